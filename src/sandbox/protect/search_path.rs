//! Programs in folders of the search path (`PATH`) that commands can write, such as `.venv/bin`. The
//! user's shell would run one that a command has given the name of another program, such as `git`.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

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

/// State of the entry, and of the file to which it leads. `None` if that cannot be examined.
type ProgramStamp = (FileStamp, Option<FileStamp>);

/// Device, inode, size, and the times of the last changes in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileStamp(u64, u64, u64, [(i64, i64); 2]);

impl SearchPath {
    /// Sorts the absolute folders of the search path `path`. `roots` are resolved. A folder counts as
    /// writable if a part of its path is below a root: a command may put another folder there.
    pub(super) fn new(path: &OsStr, roots: &[PathBuf]) -> SearchPath {
        let is_below = |path: &Path| roots.iter().any(|root| path.starts_with(root));
        let is_writable = |folder: &PathBuf| {
            let resolves_below =
                |above: &Path| above.canonicalize().is_ok_and(|resolved| is_below(&resolved));
            is_below(folder) || folder.ancestors().any(resolves_below)
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

    /// The programs in writable folders that exist now and hide another one. A link that leads
    /// nowhere counts, because it may lead elsewhere for another process.
    pub(super) fn hiding_programs(&self) -> HidingPrograms {
        let entries = self.writable.iter().flat_map(|folder| {
            let hides = names_in(folder).filter(|name| self.known.contains(name));
            hides.map(|name| folder.join(name))
        });
        let stamped = |path: PathBuf| {
            let entry = fs::symlink_metadata(&path).ok()?;
            let file = fs::metadata(&path).ok();
            let is_program =
                |file: &Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
            let runs = file.as_ref().is_none_or(is_program);
            runs.then(|| (path, (FileStamp::of(&entry), file.as_ref().map(FileStamp::of))))
        };
        entries.filter_map(stamped).collect()
    }
}

impl FileStamp {
    fn of(found: &Metadata) -> FileStamp {
        let times = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
        FileStamp(found.dev(), found.ino(), found.len(), times)
    }
}

fn names_in(folder: &Path) -> impl Iterator<Item = OsString> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name())
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
        fs::remove_file(&git).unwrap();
        symlink("/proc/self/cwd/git", &git).unwrap();
        assert!(searched.hiding_programs().contains_key(&git), "it leads elsewhere later");
        // A folder behind the user's link in the workspace, which a command can replace.
        executable(&base.join("venvs/x/bin/pip"));
        symlink(base.join("venvs/x"), root.join("venv")).unwrap();
        let path = env::join_paths([root.join("venv/bin"), system.clone()]).unwrap();
        let searched = SearchPath::new(&path, std::slice::from_ref(&root));
        assert!(searched.hiding_programs().is_empty());
        fs::remove_file(root.join("venv")).unwrap();
        executable(&root.join("venv/bin/git"));
        assert_eq!(searched.hiding_programs().len(), 1);
        let elsewhere = SearchPath::new(system.as_os_str(), &[root]);
        assert!(elsewhere.known.is_empty() && elsewhere.hiding_programs().is_empty());
    }
}
