//! Programs in folders of the search path (`PATH`) that commands can write, such as `.venv/bin`. The
//! user's shell would run one that a command has given the name of another program, such as `git`.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Maximum number of entries of a folder that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// The folders of a search path, by whether commands can write there.
#[derive(Debug, Default)]
pub(super) struct SearchPath {
    /// Folders below a root, which need not exist.
    writable: Vec<PathBuf>,
    /// Names of the entries of the other folders. Empty if no folder is writable.
    known: HashSet<OsString>,
}

/// Programs that hide another one of the same name, with what changes when they do.
pub(super) type HidingPrograms = HashMap<PathBuf, ProgramStamp>;

/// Device, inode, size, and the times of the last changes in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProgramStamp(u64, u64, u64, [(i64, i64); 2]);

impl SearchPath {
    /// Sorts the folders of the search path `path`. `roots` are resolved.
    pub(super) fn new(path: &OsStr, roots: &[PathBuf]) -> SearchPath {
        let is_writable = |folder: &PathBuf| {
            let existing = folder.ancestors().find_map(|above| {
                let below = folder.strip_prefix(above).ok()?;
                Some(above.canonicalize().ok()?.join(below))
            });
            existing.is_some_and(|resolved| roots.iter().any(|root| resolved.starts_with(root)))
        };
        let folders = env::split_paths(path).filter(|folder| folder.is_absolute());
        let (writable, other): (Vec<PathBuf>, Vec<PathBuf>) = folders.partition(is_writable);
        let known = if writable.is_empty() {
            HashSet::new()
        } else {
            other.iter().flat_map(|folder| names_in(folder)).collect()
        };
        SearchPath { writable, known }
    }

    /// The programs in writable folders that exist now and hide another one.
    pub(super) fn hiding_programs(&self) -> HidingPrograms {
        let entries = self.writable.iter().flat_map(|folder| {
            let hides = names_in(folder).filter(|name| self.known.contains(name));
            hides.map(|name| folder.join(name))
        });
        let stamped = |path: PathBuf| {
            let found = fs::metadata(&path).ok()?;
            let runs = found.is_file() && found.permissions().mode() & 0o111 != 0;
            runs.then(|| (path, ProgramStamp::of(&found)))
        };
        entries.filter_map(stamped).collect()
    }
}

impl ProgramStamp {
    fn of(found: &Metadata) -> ProgramStamp {
        let times = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
        ProgramStamp(found.dev(), found.ino(), found.len(), times)
    }
}

fn names_in(folder: &Path) -> impl Iterator<Item = OsString> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.take(ENTRIES_MAX).map(|entry| entry.file_name())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn executable(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn programs_that_hide_others_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (root, system) = (base.join("ws"), base.join("bin"));
        executable(&system.join("git"));
        executable(&system.join("jq"));
        fs::create_dir(&root).unwrap();
        symlink(&root, base.join("proj")).unwrap();
        let path = [base.join("proj/.venv/bin"), base.join("missing"), system.clone()];
        let path = env::join_paths(path).unwrap();
        let searched = SearchPath::new(&path, std::slice::from_ref(&root));
        assert!(searched.hiding_programs().is_empty(), "the folder does not exist yet");
        executable(&root.join(".venv/bin/git"));
        executable(&root.join(".venv/bin/pytest"));
        fs::write(root.join(".venv/bin/jq"), "no program").unwrap();
        let git = base.join("proj/.venv/bin/git");
        let before = searched.hiding_programs();
        assert_eq!(before.keys().collect::<Vec<_>>(), [&git]);
        fs::write(&git, "#!/bin/sh\nother\n").unwrap();
        assert_ne!(searched.hiding_programs(), before, "it was changed");
        let elsewhere = SearchPath::new(system.as_os_str(), &[root]);
        assert!(elsewhere.known.is_empty() && elsewhere.hiding_programs().is_empty());
    }
}
