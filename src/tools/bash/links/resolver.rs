//! Resolution of paths as the kernel does it, with a cache of the names that were looked up.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links in a path, as on Linux.
const LINKS_MAX: usize = 40;

/// Resolver of paths that looks up each name in a folder once.
#[derive(Debug, Default)]
pub(super) struct PathResolver {
    names: HashMap<PathBuf, NameKind>,
    /// Number of names that were looked up.
    pub(super) lookups: usize,
}

/// Kind of a name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NameKind {
    Folder,
    /// A link with this text.
    Link(PathBuf),
    /// Another file. No path leads through it.
    File,
    Missing,
    /// It cannot be looked up.
    Unreadable,
}

/// Part of a path that is still to be followed.
#[derive(Debug)]
struct PendingPart {
    /// `None`: the parent folder.
    name: Option<OsString>,
    /// True if it is a part of the text of a link.
    is_of_link: bool,
}

impl PathResolver {
    /// Resolves all links and `..` in the absolute path `path`. Names at its end need not exist. `None` if
    /// a link leads nowhere, cannot be read, or leads to the folders of a process in `/proc`, and if `..` is
    /// behind a name that is no folder.
    pub(super) fn target(&mut self, path: &Path) -> Option<PathBuf> {
        let mut at = PathBuf::from("/");
        let mut pending = Vec::new();
        put(path, false, &mut pending);
        let mut links = 0;
        // True behind a name that is no folder.
        let mut has_ended = false;
        while let Some(part) = pending.pop() {
            let Some(name) = part.name else {
                if has_ended {
                    return None;
                }
                at.pop();
                continue;
            };
            let below = at.join(&name);
            if has_ended {
                at = below;
                continue;
            }
            let leads_to_process = below.starts_with("/proc") || below.starts_with("/dev/fd");
            if part.is_of_link && leads_to_process {
                return None;
            }
            match self.kind(&below) {
                NameKind::Folder => at = below,
                NameKind::Link(text) => {
                    links += 1;
                    if links > LINKS_MAX || leads_to_process {
                        return None;
                    }
                    if text.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    put(&text, true, &mut pending);
                }
                NameKind::Missing if part.is_of_link => return None,
                NameKind::File | NameKind::Missing => (at, has_ended) = (below, true),
                NameKind::Unreadable => return None,
            }
        }
        Some(at)
    }

    fn kind(&mut self, path: &Path) -> NameKind {
        if let Some(kind) = self.names.get(path) {
            return kind.clone();
        }
        self.lookups += 1;
        let kind = match path.symlink_metadata() {
            Ok(data) if data.is_dir() => NameKind::Folder,
            Ok(data) if data.is_symlink() => {
                self.lookups += 1;
                path.read_link().map_or(NameKind::Unreadable, NameKind::Link)
            }
            Ok(_) => NameKind::File,
            Err(error) if is_missing(error.kind()) => NameKind::Missing,
            Err(_) => NameKind::Unreadable,
        };
        self.names.insert(path.to_owned(), kind.clone());
        kind
    }
}

/// Puts the parts of `path` on `pending`, the first one last.
fn put(path: &Path, is_of_link: bool, pending: &mut Vec<PendingPart>) {
    let name = |name: &OsStr| Some(name.to_owned());
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(part) => Some(name(part)),
        Component::ParentDir => Some(None),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    pending.extend(parts.map(|name| PendingPart { name, is_of_link }));
}

/// True for the error about a path that leads nowhere.
pub(super) fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename)
}
