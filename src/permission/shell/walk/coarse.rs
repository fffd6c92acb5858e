//! Coarse check of text that cannot be parsed properly: linear, without nesting.

use super::base;
use super::taint::Taint;
use crate::shell::danger::{
    CommandLocation, DELETES, DEVICE, DOWNLOADED, Danger, FORK_BOMB, is_disk, is_system,
};
use crate::shell::outline::{Outline, Scope, ShellEvent};
use crate::shell::wrappers::{DOWNLOADERS, SHELLS, is_interpreter};

/// Returns a danger in `text`, ignoring quotes and nesting; `None` if there is none. In doubt it
/// reports one, because such text is deliberately hard to read.
pub(super) fn text_danger(text: &str, home: &str) -> Option<Danger> {
    let place = CommandLocation { cwd: None, home };
    let (mut removes, mut recursive, mut downloads) = (false, false, false);
    let separates = |c: char| c.is_whitespace() || ";&|()`<>{}\"'\\".contains(c);
    let mut piped = false;
    for (at, piece) in text.split_inclusive(separates).enumerate() {
        let word = piece.trim_end_matches(separates);
        let word = word.trim_start_matches('$');
        piped |= piece.ends_with(['|', '<', '`']) || at > 0 && piece.ends_with('(');
        if word.is_empty() {
            continue;
        }
        let name = base(word);
        match name {
            "rm" | "chmod" | "chown" | "mv" | "find" => {
                (removes, recursive) = (true, name == "mv" || name == "find");
            }
            _ if DOWNLOADERS.has(name) => downloads = true,
            _ if downloads && piped && (SHELLS.has(name) || is_interpreter(name)) => {
                return Some(DOWNLOADED);
            }
            _ if name.starts_with("mkfs") || matches!(name, "wipefs" | "blkdiscard") => {
                return Some(DEVICE);
            }
            _ if word.starts_with('-') => {
                recursive |= word.contains(['r', 'R']);
            }
            _ => {
                let target = word.strip_prefix("of=").unwrap_or(word);
                if is_disk(target, place) {
                    return Some(DEVICE);
                }
                let path = target.trim_end_matches('*').replace('~', home);
                let path = if target.starts_with("HOME") { home.to_owned() } else { path };
                if removes && recursive && is_system(&path, place) {
                    return Some(DELETES);
                }
            }
        }
    }
    calls_itself(text).then_some(FORK_BOMB)
}

/// True if a script starts itself twice, as in `$0 & $0 &`, at any position of `text`.
pub(super) fn calls_itself(text: &str) -> bool {
    if !text.contains("$0") {
        return false;
    }
    let dense: String = text.chars().filter(|c| !c.is_whitespace() && *c != '"').collect();
    ["$0|$0", "$0&$0&", "./$0&./$0"].iter().any(|bomb| dense.contains(bomb))
}

/// True if `words`, which follow `xargs`, are a shell that executes the input of `xargs`.
pub(super) fn is_open_shell(words: &[&str]) -> bool {
    let Some((program, rest)) = words.split_first() else { return false };
    let text = rest.iter().position(|word| word.starts_with('-') && word.contains('c'));
    let held = |text: &str| !text.is_empty() && !text.contains("{}") && !text.contains('%');
    let fixed = text.and_then(|at| rest.get(at + 1)).is_some_and(|text| held(text));
    SHELLS.has(base(program)) && !fixed
}

/// Returns the taint of each substitution by the programs in it, also behind wrappers.
pub(super) fn taints(outline: &Outline) -> Vec<Taint> {
    let mut tainted = vec![Taint::default(); outline.substitutions];
    let mut open: Vec<Option<usize>> = Vec::new();
    for event in &outline.events {
        match event {
            ShellEvent::Open(Scope::Substitution(id) | Scope::Reading(id)) => open.push(Some(*id)),
            // An outer construct contains the inner one.
            ShellEvent::Open(_) => open.push(open.last().copied().flatten()),
            ShellEvent::Close => {
                let closed = open.pop().flatten();
                let outer = open.last().copied().flatten();
                if let (Some(closed), Some(outer)) = (closed, outer) {
                    let taint = tainted.get(closed).copied().unwrap_or_default();
                    if let Some(outer) = tainted.get_mut(outer) {
                        *outer |= taint;
                    }
                }
            }
            ShellEvent::Run(index) => {
                let Some(id) = open.last().copied().flatten() else { continue };
                let words = outline.commands.get(*index).map(|command| &command.words);
                let words: Vec<&str> =
                    words.into_iter().flatten().map(|word| word.text.as_str()).collect();
                if let Some(taint) = tainted.get_mut(id) {
                    *taint |= Taint::of_words(&words);
                }
            }
            _ => {}
        }
    }
    tainted
}
