//! Shell judge: finds the programs that a command runs, parts that are never allowed, and the
//! grants that would cover it.
//!
//! It is asymmetric. To deny, it looks through wrappers, quotes, nested scripts, functions,
//! substitutions and control flow ([`walk`]). To allow, it accepts only plain simple commands with
//! options from a table ([`allow`]), read in the same way by two parsers ([`grammar`]). Everything
//! else asks. The sandbox is the security boundary, not this judge.
pub(crate) mod allow;
mod arguments;
pub(crate) mod danger;
pub(crate) mod deletions;
mod destinations;
pub(crate) mod effects;
pub(crate) mod folders;
pub(crate) mod globs;
mod grammar;
pub(crate) mod links;
mod name_effects;
pub(crate) mod named;
pub(crate) mod options;
pub(crate) mod outline;
pub(crate) mod outputs;
mod pathspecs;
mod places;
pub(crate) mod reader;
pub(crate) mod sensitive;
pub(crate) mod walk;
pub(crate) mod word;
pub(crate) mod wrappers;

use std::path::Path;

use outline::Outline;
use places::{Place, Places};
use posse_base::protected::{is_protected, is_protected_in};
use posse_base::shell_words;

use crate::paths::is_below;

/// Maximum number of characters of a command that a grant, rule or `--yes` may allow. Only a person
/// can allow a longer one.
pub(crate) const COMMAND_CHARS_MAX: usize = 10_000;

/// Complete judgement of a command.
#[derive(Debug)]
pub(crate) struct Judged {
    /// Programs that the command runs, and the first danger in it.
    pub(crate) findings: walk::Findings,
    /// Simple commands of the text. Empty if `outside` is set.
    pub(crate) parts: Vec<allow::PlainCommand>,
    /// Reason why no grant can cover the command as a whole. `None` if grants can.
    pub(crate) outside: Option<String>,
    /// True if bash may parse the text differently, so that not even a rule for all commands allows
    /// it.
    pub(crate) doubtful: bool,
    /// Protected file that the text writes, relative to the workspace if it is in it. `None` if
    /// there is none.
    pub(crate) protected: Option<String>,
    /// Reason why a move takes files out of the workspace. `None` if none is known to.
    pub(crate) moved_out: Option<String>,
    text: String,
    outline: Outline,
}

/// A list of names or options, separated by blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) &'static str);

impl Names {
    pub(crate) fn has(self, name: &str) -> bool {
        // The search in the whole text is much faster, and rarely finds something else.
        self.0.contains(name) && self.iter().any(|known| known == name)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'static str> {
        self.0.split_ascii_whitespace()
    }
}

/// Returns the words of `text` if it is one simple command of literal words, without assignments
/// and redirections, which both parsers read alike. `None` for any other text.
pub(crate) fn simple(text: &str) -> Option<Vec<String>> {
    let outline = reader::read(text);
    let [command] = outline.commands.as_slice() else { return None };
    let plain = outside(text, &outline).is_none()
        && grammar::agrees(text, &outline)
        && command.assignments.is_empty()
        && command.redirects.is_empty()
        && !command.words.is_empty()
        && outline.timed.is_empty();
    let words = command.words.iter().map(|word| word.literal().map(str::to_owned));
    if plain { words.collect() } else { None }
}

/// Splits the target of a grant, as [`quoted`] writes it, into words. `None` for text in another
/// form.
pub(crate) fn split(target: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = target;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            ' ' => words.extend(word.take()),
            '\'' | '"' => {
                let (inside, after) = rest.split_once(c)?;
                word.get_or_insert_default().push_str(inside);
                rest = after;
            }
            c if shell_words::is_plain(c) => word.get_or_insert_default().push(c),
            _ => return None,
        }
    }
    words.extend(word);
    (!words.is_empty()).then_some(words)
}

/// Joins words to a text from which a shell reads the same words.
pub(crate) fn quoted(words: &[String]) -> String {
    words.iter().map(|word| shell_words::quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Judges `text` in an invented working directory, without links, as if the whole file system were
/// the workspace. For the examples of rules.
pub(crate) fn judge_example(text: &str) -> Judged {
    let roots = ["/".to_owned()];
    let place = danger::CommandLocation { cwd: Some("/home/user/project"), home: "/home/user" };
    judge(text, allow::Ground { place, roots: &roots, closed: &[], links: &[], shown: &[] })
}

/// Judges `text` with the working directory, workspace and links of `ground`.
pub(crate) fn judge(text: &str, ground: allow::Ground<'_>) -> Judged {
    let outline = reader::read(text);
    let findings = walk::walk(&outline, text, ground.place.cwd.unwrap_or("/"), ground.place.home);
    let outside = outside(text, &outline);
    let parts = if outside.is_none() { allow::parts(&outline, ground) } else { Vec::new() };
    let doubtful = outline.flaws.are_doubts();
    let protected = protected(&findings, &outline, ground);
    let moved_out = moved_out(&findings, ground);
    let text = text.to_owned();
    Judged { findings, parts, outside, doubtful, protected, moved_out, text, outline }
}

/// First protected file that the text writes: as its words name it or, below a root, by its path.
fn protected(
    findings: &walk::Findings,
    outline: &Outline,
    ground: allow::Ground<'_>,
) -> Option<String> {
    let in_root = |path: &str| {
        let mut roots = ground.roots.iter().filter(|root| is_below(path, root));
        roots.find_map(|root| {
            let relative = path.strip_prefix(root.trim_end_matches('/'))?.trim_start_matches('/');
            Some((relative.to_owned(), is_protected_in(Path::new(root), relative)))
        })
    };
    let by_name = findings.written.iter().find_map(|name| match in_root(name) {
        Some((relative, is_protected)) => is_protected.then_some(relative),
        None => is_protected(name).then(|| name.clone()),
    });
    let cwd = ground.place.cwd.unwrap_or("/");
    let by_path = || {
        let script = (outline, findings);
        let paths = outputs::written(script, cwd, ground.place.home, ground.links).paths;
        let mut paths = paths.iter().filter_map(|path| in_root(path));
        paths.find_map(|(relative, is_protected)| is_protected.then_some(relative))
    };
    by_name.or_else(by_path)
}

/// Reason why a move takes files of the workspace out of it, such as to the folder for temporary files,
/// also through links.
fn moved_out(findings: &walk::Findings, ground: allow::Ground<'_>) -> Option<String> {
    let is_inside = |path: &str| ground.roots.iter().any(|root| is_below(path, root));
    let places = Places::resolved(ground.links);
    let cwd = ground.place.cwd.unwrap_or("/");
    let is_outside = |to: &str| {
        let place = places.place(to, cwd);
        let is_known = matches!(&place, Some(Place::Path(path)) if is_inside(path));
        let mut behind = ground.links.iter().filter(|link| links::leads_behind(link, to));
        !is_known || behind.any(|link| !link.target.as_deref().is_some_and(is_inside))
    };
    let makes_links = effects::program_count(findings, Names("ln link")) > 0;
    findings.moved.iter().find_map(|moved| {
        if makes_links {
            return Some(format!(
                "it makes a link, which may lead its move to {} elsewhere",
                moved.to
            ));
        }
        let leaves = moved.is_temporary || moved.path.as_deref().is_some_and(is_outside);
        let is_ours = |path: &Option<String>| path.as_deref().is_none_or(is_inside);
        let (source, _) = moved.sources.iter().find(|(_, path)| is_ours(path))?;
        leaves.then(|| format!("it moves {source} to {}, out of the workspace", moved.to))
    })
}

impl Judged {
    /// True if the second parser ([`grammar`]) reads the same words. It is slow, so it is called
    /// last, if everything else allows the command.
    pub(crate) fn is_read_alike(&self) -> bool {
        grammar::agrees(&self.text, &self.outline)
    }
}

fn outside(text: &str, outline: &Outline) -> Option<String> {
    if text.chars().nth(COMMAND_CHARS_MAX).is_some() {
        return Some(format!("the command is longer than {COMMAND_CHARS_MAX} characters"));
    }
    if let Some(c) = text.chars().find(|c| is_unseen(*c)) {
        return Some(format!("it contains {}, which is invisible", c.escape_unicode()));
    }
    allow::outside(outline).map(str::to_owned)
}

/// True for a character that is invisible, blank or not drawn as itself, except space, tab and
/// newline.
fn is_unseen(c: char) -> bool {
    let plain = matches!(c, '\n' | '\t' | ' ');
    !plain
        && (c.is_control()
            || c.is_whitespace()
            || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffd}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}'))
}
