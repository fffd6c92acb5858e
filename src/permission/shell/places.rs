//! Paths as the kernel resolves them: `..` behind a name that is a link leads to the parent of the
//! folder to which the link leads.
//!
//! The policy judges text only. Which names are links was found out when the call was prepared
//! ([`crate::command_paths`]); a name that a part of the command may make a link is not known.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use posse_actors::ports::PathLink;

use crate::shell::Names;
use crate::shell::word::{HOME, PWD, UNKNOWN, is_glob, matches};

/// Path of a link without a target that stands for all paths: there were too many to resolve them.
/// Other such links whose path ends with `/` stand for the names in a folder that were not looked at.
pub(crate) const ALL_PATHS: &str = "/";
/// Maximum number of links of `/proc` in a path. A path with more may lead to any file.
const PROC_LINKS_MAX: usize = 8;
/// Maximum number of `..` in a path: each is looked up. A path with more may lead to any file.
const PARENTS_MAX: usize = 64;
/// Files of a process in `/proc` that are no links.
const PROC_FILES: Names = Names(
    "\
    attr auxv cgroup clear_refs cmdline comm coredump_filter environ io limits loginuid maps mem mountinfo \
    mounts mountstats net ns numa_maps oom_adj oom_score oom_score_adj pagemap sched schedstat smaps \
    smaps_rollup stack stat statm status syscall timers uid_map gid_map wchan",
);
/// Place to which a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Absolute path without `.` and `..`. Links behind the last `..` are not resolved.
    Path(String),
    /// A descriptor of the program; the flag is true for standard output and errors.
    Descriptor(bool),
    /// Any path.
    Unknown,
}

/// A path to which a part of a command moves, copies or links a file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewPlace {
    /// The path before. `None` if it is unknown.
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    /// True if the file stays at the path before.
    pub(crate) is_copy: bool,
    /// True if `to` keeps its place if it is a folder: the file is put into it.
    pub(crate) keeps_folder: bool,
    /// True if `to` may be a link that leads to a path which only the run shows. Otherwise, such a
    /// path matters for `..` only.
    pub(crate) is_link: bool,
}

/// Links, new names and new folders in the paths of a command, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Places<'a> {
    links: PlaceLinks<'a>,
    /// Names that parts of the command give to files, so that they may be links.
    pub(crate) renamed: Vec<NewPlace>,
    /// Folders that the command creates.
    pub(crate) made: BTreeSet<String>,
    /// True if a program that is not known may create a name which did not exist when the call was
    /// prepared.
    pub(crate) may_appear: bool,
    /// True if a program may remove or move a link or folder that existed when the call was prepared.
    pub(crate) may_vanish: bool,
    /// True if a part makes links, or gives files other names, at a place that only the run shows.
    pub(crate) names_anywhere: bool,
}

/// Source of what is known of links.
#[derive(Debug, Clone, Default)]
enum PlaceLinks<'a> {
    /// There are no links.
    #[default]
    None,
    /// There are no links as far as is known, and the paths that should be resolved are recorded.
    Asked(&'a RefCell<BTreeSet<String>>),
    /// The paths that were resolved and are not as their text says, with their targets.
    Resolved(BTreeMap<&'a str, Option<&'a str>>),
}

impl<'a> Places<'a> {
    /// Places with the links that were found when the call was prepared.
    pub(crate) fn resolved(links: &'a [PathLink]) -> Places<'a> {
        let links = links.iter().map(|link| (link.path.as_str(), link.target.as_deref()));
        Places { links: PlaceLinks::Resolved(links.collect()), ..Places::default() }
    }

    /// Places without links, which records in `asked` the paths that should be resolved.
    pub(crate) fn asking(asked: &'a RefCell<BTreeSet<String>>) -> Places<'a> {
        Places { links: PlaceLinks::Asked(asked), ..Places::default() }
    }

    /// Notes that a program opens the absolute path `path`, whose links should be resolved. For a
    /// pattern, the names that it may match are not looked at.
    pub(crate) fn opens(&self, path: &str) {
        if !is_glob(path) {
            self.expands(path);
        }
    }

    /// Notes that the shell opens the absolute path `path`, or looks for the names that match it.
    pub(crate) fn expands(&self, path: &str) {
        if let PlaceLinks::Asked(asked) = &self.links {
            asked.borrow_mut().insert(path.to_owned());
        }
    }

    /// Place of the absolute path `path`, in which `..` is kept, for a program that runs in the folder
    /// `own`. `None` if a part of the path is known only at run time.
    pub(crate) fn place(&self, path: &str, own: &str) -> Option<Place> {
        let path = match behind_proc(path.to_owned(), own) {
            Ok(path) => path,
            Err(place) => return Some(place),
        };
        if path.contains([UNKNOWN, HOME, PWD]) {
            return None;
        }
        if parts(&path).filter(|part| *part == "..").count() > PARENTS_MAX {
            return Some(Place::Unknown);
        }
        let mut at = String::new();
        let mut written = String::new();
        for part in parts(&path) {
            written.push('/');
            written.push_str(part);
            if part != ".." {
                at.push('/');
                at.push_str(part);
                continue;
            }
            match self.parent(&at, &written) {
                Some(parent) => at = parent,
                None => return Some(Place::Unknown),
            }
            // Behind a folder that did not exist, only the folder without it can be looked up.
            if self.is_missing(&written) {
                written.clone_from(&at);
            }
        }
        if at.is_empty() {
            at.push('/');
        }
        Some(if self.is_open(&at) { Place::Unknown } else { Place::Path(at) })
    }

    /// True if the absolute path `path` leads through a link whose target is not known, if it is a
    /// pattern that may match too many names, or if there were too many paths to resolve them.
    fn is_open(&self, path: &str) -> bool {
        let PlaceLinks::Resolved(links) = &self.links else { return false };
        let is_unknown = |path: &str| links.get(path) == Some(&None);
        let is_too_large = || {
            let parts = path.split_inclusive('/').take_while(|part| !is_glob(part));
            let folder: String = parts.collect();
            is_glob(path) && is_unknown(if folder == "/" { "//" } else { &folder })
        };
        is_unknown(path) || is_unknown(ALL_PATHS) || is_too_large()
    }

    /// Paths to which the absolute path `path`, which is no pattern, leads through links behind which
    /// it has no `..`.
    pub(crate) fn behind(&self, path: &str) -> Vec<String> {
        let PlaceLinks::Resolved(links) = &self.links else { return Vec::new() };
        let mut found = Vec::new();
        let mut end = path.len();
        loop {
            let (above, rest) = path.split_at(end);
            if let Some(Some(target)) = links.get(above) {
                found.push(format!("{}{rest}", target.trim_end_matches('/')));
            }
            let Some(at) = above.rfind('/').filter(|at| *at > 0) else { return found };
            if &above[at..] == "/.." {
                return found;
            }
            end = at;
        }
    }

    /// True if it is known that nothing was at `written` when the call was prepared.
    fn is_missing(&self, written: &str) -> bool {
        let PlaceLinks::Resolved(links) = &self.links else { return false };
        links.get(written) == Some(&None)
    }

    /// Folder above `folder`, which the text `written` names with `..` at its end. `None` if it is
    /// unknown. The root folder is empty text.
    fn parent(&self, folder: &str, written: &str) -> Option<String> {
        let by_text = || folder.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
        if folder.is_empty() {
            return Some(String::new());
        }
        let was_plain_folder = matches!(&self.links, PlaceLinks::Resolved(links)
        if links.get(written).is_some_and(|target| {
            target.is_some_and(|target| target.trim_end_matches('/') == by_text())
        }));
        // A file is put into an existing folder.
        let stays = |name: &NewPlace| {
            name.keeps_folder && name.to == folder && was_plain_folder && !self.may_vanish
        };
        let is_new = |name: &NewPlace| is_below_pattern(folder, &name.to) && !stays(name);
        let is_gone = |name: &NewPlace| {
            let is_around = |from: &String| below(folder, from).is_some();
            !name.is_copy && name.from.as_ref().is_some_and(is_around)
        };
        if is_glob(folder) || self.renamed.iter().any(|name| is_new(name) || is_gone(name)) {
            return None;
        }
        let is_any = |name: &NewPlace| name.from.is_none() && !name.is_copy;
        let may_vanish = self.may_vanish || self.renamed.iter().any(is_any);
        match &self.links {
            PlaceLinks::None => Some(by_text()),
            PlaceLinks::Asked(_) => {
                self.opens(written);
                self.opens(folder);
                // If a folder in the path does not exist.
                self.opens(&format!("{folder}/.."));
                Some(by_text())
            }
            PlaceLinks::Resolved(links) => {
                // A link that leads nowhere, or elsewhere for each process.
                let is_open_link = links.get(folder) == Some(&None);
                match links.get(written)? {
                    None if is_open_link => None,
                    // Something else may be in the place of a link by then. A folder that was
                    // removed is a folder again.
                    Some(_) if may_vanish && (!was_plain_folder || self.names_anywhere) => None,
                    Some(target) => Some(target.trim_end_matches('/').to_owned()),
                    // It did not exist: if a part creates it, it is a folder, and if none does, the
                    // program fails.
                    None if self.made.contains(folder) => {
                        (!self.names_anywhere || !may_vanish).then(by_text)
                    }
                    None => (!self.may_appear && !self.names_anywhere).then(by_text),
                }
            }
        }
    }
}

/// Appends `text` to `folder`, without `.` and empty parts; `..` stays. `None` if `text` is empty or
/// if it is relative and there is no folder.
pub(crate) fn joined(text: &str, folder: Option<&str>) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let folder = if text.starts_with('/') { "" } else { folder? };
    let parts: Vec<&str> = parts(folder).chain(parts(text)).collect();
    Some(format!("/{}", parts.join("/")))
}

/// Rest of `path` behind `folder`: empty, or it begins with `/`. `None` if it is not below it.
pub(crate) fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    path.strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// True if `path` is at or below a path that matches `pattern`, whose names may have globs.
pub(crate) fn is_below_pattern(path: &str, pattern: &str) -> bool {
    if !is_glob(pattern) {
        return below(path, pattern).is_some();
    }
    let mut names = parts(path);
    parts(pattern).all(|part| names.next().is_some_and(|name| matches(part, name)))
}

/// Parts of `path`, without `.` and empty ones.
fn parts(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

/// Replaces the links of `/proc` to the working folder of a process, which is `folder`, and to the root
/// folder in the absolute path `path`. Fails with the place if it is a descriptor, or is behind a
/// link that may lead anywhere.
fn behind_proc(mut path: String, folder: &str) -> Result<String, Place> {
    for _ in 0..PROC_LINKS_MAX {
        match behind_link_of_proc(&path, folder)? {
            Some(next) => path = next,
            None => return Ok(path),
        }
    }
    Err(Place::Unknown)
}

/// As [`behind_proc`], for the first link of `/proc` in `path`. `None` if there is none.
fn behind_link_of_proc(path: &str, folder: &str) -> Result<Option<String>, Place> {
    let mut known: Vec<&str> = Vec::new();
    let mut rest = parts(path);
    while let Some(part) = rest.next() {
        if part == ".." {
            known.pop();
            continue;
        }
        known.push(part);
        let is_last = rest.clone().next().is_none();
        let target = match known[..] {
            ["proc", process, "cwd"] | ["proc", process, "task", _, "cwd"]
                if is_process(process) =>
            {
                folder
            }
            ["proc", _, "root"] | ["proc", _, "task", _, "root"] => "",
            ["proc", _, "fd", number] | ["proc", _, "task", _, "fd", number] if is_last => {
                return Err(descriptor(number));
            }
            ["proc", _, "fd", _] | ["proc", _, "task", _, "fd", _] => return Err(Place::Unknown),
            ["proc", process, "fd" | "task"]
            | ["proc", process, "task", _]
            | ["proc", process, "task", _, "fd"]
                if is_process(process) =>
            {
                continue;
            }
            ["proc", process, .., name] if known.len() > 2 && is_process(process) => {
                let is_file = known.len() > 3 || PROC_FILES.has(name);
                if is_file {
                    continue;
                }
                return Err(Place::Unknown);
            }
            ["dev", "fd"] if !is_last => "/proc/self/fd",
            ["dev", name @ ("stdin" | "stdout" | "stderr")] if is_last => {
                return Err(Place::Descriptor(name != "stdin"));
            }
            ["dev", "stdin" | "stdout" | "stderr"] => return Err(Place::Unknown),
            _ => continue,
        };
        let rest: Vec<&str> = rest.collect();
        return Ok(Some(format!("{target}/{}", rest.join("/"))));
    }
    Ok(None)
}

/// Place of the descriptor `number`.
fn descriptor(number: &str) -> Place {
    if number.chars().all(|c| c.is_ascii_digit()) {
        Place::Descriptor(matches!(number, "1" | "2"))
    } else {
        Place::Unknown
    }
}

/// True for the name of a folder in `/proc` that stands for a process.
fn is_process(name: &str) -> bool {
    matches!(name, "self" | "thread-self")
        || name.contains([UNKNOWN, '*'])
        || is_glob(name)
        || name.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests;
