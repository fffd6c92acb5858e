//! Symbolic links in the paths of a command: the paths that must be resolved before the command is
//! judged, and the judgement of resolved ones.

use std::cell::RefCell;
use std::collections::BTreeSet;

use posse_actors::ports::{CommandPath, PathLink};

use crate::shell::allow::{Ground, is_closed, is_inside};
use crate::shell::folders::Folders;
use crate::shell::outline::{Outline, ShellEvent};
use crate::shell::places::{self, ALL_PATHS, Places};
use crate::shell::sensitive::is_sensitive;
use crate::shell::walk::walk;
use crate::shell::word::{braces, expand_home, is_glob, is_reserved, matches, resolve, shown};
use crate::shell::{named, outputs, reader};

/// Maximum number of short options before a value in the same word, as in `-nfFILE`. Values after
/// more options are not resolved.
pub(crate) const ATTACHED_MAX: usize = 4;
/// Maximum number of paths of one command that its words name.
const PATHS_MAX: usize = 1024;
/// Maximum number of paths of one command that are resolved: those, folders before a `..`, and paths in
/// the folders of nested scripts and options such as `-C`. With more, all paths are unknown.
const ALL_PATHS_MAX: usize = 4096;

/// Returns all paths that the words of `command` may name, if it runs in `cwd` and the user's home
/// folder is `home`.
///
/// Words that are not paths are included, because a word's meaning depends on the program. With
/// more than [`PATHS_MAX`] paths, the root folder is returned alone, with more pattern levels than
/// are ever scanned, so that resolving fails.
pub(crate) fn paths(command: &str, cwd: &str, home: &str) -> Vec<CommandPath> {
    let outline = reader::read(command);
    let mut paths: Vec<CommandPath> = Vec::new();
    let mut folders = Folders::new(Some(cwd.to_owned()));
    for event in &outline.events {
        if let ShellEvent::Run(index) | ShellEvent::After(index) = event
            && let Some(command) = outline.commands.get(*index)
        {
            let targets = command.redirects.iter().map(|redirect| &redirect.target);
            let words = command.words.iter().chain(targets).flat_map(|word| braces(&word.text));
            for text in words {
                for folder in folders.current() {
                    add(&text, folder.as_deref(), home, &mut paths);
                    for value in attached_values(&text) {
                        add(value, folder.as_deref(), home, &mut paths);
                    }
                }
                if paths.len() > PATHS_MAX {
                    return vec![all_paths()];
                }
            }
        }
        folders.step(event, &outline, |_, _| false);
    }
    let mut known: BTreeSet<(String, usize)> =
        paths.iter().map(|path| (path.path.clone(), path.levels)).collect();
    for path in asked(&outline, command, cwd, home) {
        let path = without_patterns(&path);
        if !known.insert((path.path.clone(), path.levels)) {
            continue;
        }
        if paths.len() >= ALL_PATHS_MAX {
            paths.push(all_paths());
            break;
        }
        paths.push(path);
    }
    paths
}

/// Path that stands for all paths: there are too many to resolve them.
fn all_paths() -> CommandPath {
    CommandPath { path: ALL_PATHS.to_owned(), levels: usize::MAX }
}

/// Links that the preparation of `command` finds if none of them leads through a link and all folders
/// exist: where `..` leads.
pub(crate) fn without_links(command: &str, cwd: &str, home: &str) -> Vec<PathLink> {
    let paths = paths(command, cwd, home).into_iter().map(|path| path.path);
    let climbing = paths.filter(|path| path.split('/').any(|part| part == ".."));
    climbing.map(|path| PathLink { target: resolve(&path, None), path }).collect()
}

/// Paths that must be resolved to tell what `outline`, the commands of `text`, names and writes.
fn asked(outline: &Outline, text: &str, cwd: &str, home: &str) -> BTreeSet<String> {
    let asked = RefCell::default();
    let findings = walk(outline, text, cwd, home);
    let places = outputs::named((outline, &findings), cwd, home, Places::asking(&asked));
    named::ask(outline, &findings, (cwd, home), places);
    asked.into_inner()
}

/// Adds the paths that the word `text` may name in `folder` to `paths`.
fn add(text: &str, folder: Option<&str>, home: &str, paths: &mut Vec<CommandPath>) {
    let text = expand_home(text, home, folder);
    for text in names(&text) {
        let Some(path) = joined(text, folder) else { continue };
        let path = without_patterns(&path);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
}

/// Returns all texts that may be the value of an option in the same word: `--name=VALUE`, or
/// `-nVALUE` with at most [`ATTACHED_MAX`] option letters.
pub(crate) fn attached_values(text: &str) -> Vec<&str> {
    if text.starts_with("--") {
        return text.split_once('=').map(|(_, value)| value).into_iter().collect();
    }
    if !text.starts_with('-') {
        return Vec::new();
    }
    let starts = text.char_indices().skip(2).take(ATTACHED_MAX);
    starts.map(|(at, _)| &text[at..]).collect()
}

/// Checks that no link leads the path `text` out of the workspace or to a secret; fails with the
/// reason. If the program only lists names (`lists`), a link may leave the workspace.
pub(crate) fn check(text: &str, lists: bool, ground: Ground<'_>) -> Result<(), String> {
    for text in names(text) {
        let Some(path) = joined(text, ground.place.cwd) else { continue };
        for link in ground.links {
            let Some(rest) = rest_behind(&link.path, &path) else { continue };
            let next = rest.split('/').next().filter(|next| !next.is_empty());
            if link.path.ends_with("/..") && next.is_some_and(|next| !is_glob(next)) {
                // The path leads on from there, and is a link of its own.
                continue;
            }
            let said = shown(text);
            let Some(target) = &link.target else {
                return Err(format!("the links of the path {said} cannot be resolved"));
            };
            let full = format!("{target}/{}", shown(&rest));
            let full = full.trim_end_matches('/');
            let is_shown = ground.shown.iter().any(|path| path == full);
            if !is_shown && (is_sensitive(target) || is_sensitive(full)) {
                return Err(format!("{said} leads to {target}, which may hold secrets"));
            }
            if !is_inside(target, ground) && (!lists || is_closed(target, ground)) {
                return Err(format!("{said} leads to {target}, which is outside of the workspace"));
            }
        }
    }
    Ok(())
}

/// True if the path `text`, relative to `folder`, leads through one of `links` to another path than its
/// text says. False if the path is known only at run time.
pub(crate) fn leads_elsewhere(text: &str, folder: Option<&str>, links: &[PathLink]) -> bool {
    let Some(path) = joined(text, folder) else { return false };
    links.iter().any(|link| {
        let is_as_said = link.target.is_some() && link.target == resolve(&link.path, None);
        !is_as_said && rest_behind(&link.path, &path).is_some()
    })
}

/// True if the absolute path `path`, in which `..` is kept, leads through `link` and not further up.
pub(crate) fn leads_behind(link: &PathLink, path: &str) -> bool {
    let rest = rest_behind(&link.path, path);
    rest.is_some_and(|rest| !rest.split('/').any(|part| part == ".."))
        && (link.path == path || !link.path.ends_with("/.."))
}

/// True if `path` ends with the path components of the word `text`.
pub(crate) fn is_named_by(path: &str, text: &str) -> bool {
    let text = text.trim_start_matches("./").trim_end_matches('/');
    let before = path.strip_suffix(text).filter(|_| !text.is_empty());
    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// Returns `text`, and the file in it if a position or a test follows a colon: `test.py::name`,
/// `main.rs:12`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    [Some(text), text.split_once(':').map(|(file, _)| file)]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
}

/// Appends `text` to `folder`, without `.` and empty parts; `..` stays. `None` if a part of the
/// path is known only at run time.
fn joined(text: &str, folder: Option<&str>) -> Option<String> {
    resolve(text, folder)?;
    places::joined(text, folder)
}

/// Splits `path` at its first component with a pattern: the path before it, and the number of
/// levels from it on.
fn without_patterns(path: &str) -> CommandPath {
    let parts: Vec<&str> = path.split('/').collect();
    let plain = |part: &&&str| !is_glob(part) && !part.chars().any(is_reserved);
    let fixed = parts.iter().take_while(plain).count();
    let path = parts[..fixed].join("/");
    CommandPath {
        path: if path.is_empty() { "/".to_owned() } else { path },
        levels: parts.len() - fixed,
    }
}

/// Returns the part of `path` after `link`; patterns in `path` may match the names of `link`.
/// `None` if `path` cannot lead through `link`.
pub(crate) fn rest_behind(link: &str, path: &str) -> Option<String> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let mut known = link.split('/').filter(|part| !part.is_empty());
    let same = known.all(|name| parts.next().is_some_and(|part| matches(part, name)));
    same.then(|| parts.collect::<Vec<_>>().join("/"))
}
