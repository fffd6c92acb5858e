//! Finds out if checkpoints can bring back files that are about to be deleted.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{SFlag, fstat, fstatat};
use posse_actors::ports::CheckpointCoverage;
use posse_base::remove_tree::read_entries;
use posse_tools::workspace::{FOLDER, RepositoryParts, open_beneath};

use crate::cache::Snapshot;
use crate::entry::Stamp;
use crate::plan::{ChangeKind, ChangedFile};
use crate::store::{Files, Store, StoreError, state_of};
use crate::walk::is_git_state;

/// Maximum number of files and folders that are examined. More are not covered.
const ENTRIES_MAX: usize = 2000;

/// Name of the folder or file that makes the folder around it a repository or work tree.
const DOT_GIT: &str = ".git";

/// Files with their stamps: index of the root, and path below it.
type StampedFiles = BTreeMap<(usize, Vec<u8>), Stamp>;

impl Store {
    /// Coverage of all files at and below the absolute `paths` by the checkpoint `id`, or by one that
    /// is taken now. Stores the present state. The checkpoint `id` then holds deleted files, if it
    /// covers all.
    ///
    /// Not covered are, besides files that a checkpoint leaves out and those that a restore may not
    /// write: roots, paths through links, missing paths, other file systems, and everything in a
    /// repository or work tree that is not the one of the root. A path that ends with `/` must be a
    /// folder and no link.
    pub fn coverage(
        &self,
        paths: &[String],
        id: Option<u64>,
    ) -> Result<CheckpointCoverage, StoreError> {
        if self.stamped(paths).is_none() {
            return Ok(CheckpointCoverage::None);
        }
        let _lock = self.lock()?;
        let mut last = self.last();
        let (snapshot, _) = self.update(&mut last, &Files::new(), &|_, _| {})?;
        // After the state was stored: a file that is new since then is not in it.
        let Some(files) = self.stamped(paths).filter(|files| self.are_restorable(files, snapshot))
        else {
            return Ok(CheckpointCoverage::None);
        };
        let Some(id) = id else { return Ok(CheckpointCoverage::Possible) };
        let mut record = self.get(id)?;
        let changed = self.compare(&record.state, &state_of(snapshot))?;
        let has_changed = changed.iter().any(|file| {
            let id = (file.root, file.path.clone());
            files.contains_key(&id)
        });
        if has_changed {
            return Ok(CheckpointCoverage::Possible);
        }
        if !record.holds_deletions {
            record.holds_deletions = true;
            record.write(&self.records())?;
        }
        Ok(CheckpointCoverage::Stored)
    }

    /// True if all `files` are in `snapshot` as they are, and a restore may write them.
    fn are_restorable(&self, files: &StampedFiles, snapshot: &Snapshot) -> bool {
        let files: Vec<(ChangedFile, &Stamp)> = files
            .iter()
            .map(|((root, path), stamp)| {
                let after = Some((stamp.kind, String::new()));
                let (root, path, kind) = (*root, path.clone(), ChangeKind::Added);
                (ChangedFile { root, path, kind, is_users: false, before: None, after }, stamp)
            })
            .collect();
        let written = |root: usize| {
            let files = files.iter().filter(|(file, _)| file.root == root);
            RepositoryParts::of(files.map(|(file, _)| file.relative()))
        };
        let written: Vec<RepositoryParts> = (0..self.keys.len()).map(written).collect();
        files.iter().all(|(file, stamp)| {
            let entry = snapshot.entry(file.root, &file.path);
            entry.is_some_and(|entry| entry.stamp == **stamp)
                && !is_git_state(&file.path)
                && !may_be_part_of_repository(file.relative())
                && !self.is_protected(file, &written[file.root])
        })
    }

    /// All files at and below `paths`. `None` if a path is missing or not one whose files a
    /// checkpoint covers, or if there are too many.
    fn stamped(&self, paths: &[String]) -> Option<StampedFiles> {
        let mut search =
            DeletedFileSearch { files: StampedFiles::new(), entries_left: ENTRIES_MAX };
        for path in paths {
            let is_folder = path.ends_with('/');
            let path = Path::new(path);
            let roots = || self.workspace.roots();
            // The roots themselves, and folders above them.
            if roots().any(|root| root.starts_with(path)) {
                return None;
            }
            let (root, above) = roots().enumerate().find(|(_, root)| path.starts_with(root))?;
            let relative = path.strip_prefix(above).ok()?;
            let directory = self.workspace.root_directory(root)?;
            search.path(root, directory, (relative, is_folder))?;
        }
        Some(search.files)
    }
}

/// Search for files below the roots.
struct DeletedFileSearch {
    files: StampedFiles,
    entries_left: usize,
}

impl DeletedFileSearch {
    /// Adds the file `path`, or the files below the folder `path`, of the root `directory` with this
    /// index. `None` if not all of them may be covered, or if it is no folder although it `is_folder`.
    fn path(
        &mut self,
        root: usize,
        directory: &OwnedFd,
        (path, is_folder): (&Path, bool),
    ) -> Option<()> {
        let device = fstat(directory).ok()?.st_dev;
        let mut above = PathBuf::new();
        for name in path.parent()?.components() {
            let Component::Normal(name) = name else { return None };
            above.push(name);
            let folder = open_beneath(directory, &above, FOLDER).ok()?;
            let own = fstatat(folder.as_fd(), DOT_GIT, AtFlags::AT_SYMLINK_NOFOLLOW);
            let is_plain = own.is_err_and(|error| error == nix::Error::ENOENT);
            if !is_plain || fstat(&folder).ok()?.st_dev != device {
                return None;
            }
        }
        // A link that is followed leads to files elsewhere.
        if is_folder {
            open_beneath(directory, path, FOLDER).ok()?;
        }
        let mut open = vec![path.to_owned()];
        while let Some(path) = open.pop() {
            self.entries_left = self.entries_left.checked_sub(1)?;
            let folder = open_beneath(directory, path.parent()?, FOLDER).ok()?;
            let name = path.file_name()?;
            let stat = fstatat(folder.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
            if stat.st_dev != device {
                return None;
            }
            if let Some(stamp) = Stamp::of(&stat) {
                self.files.insert((root, path.into_os_string().into_encoded_bytes()), stamp);
                continue;
            }
            // Neither a pipe nor a device comes back.
            if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) != SFlag::S_IFDIR {
                return None;
            }
            let readable = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
            let entries = read_entries(&open_beneath(directory, &path, readable).ok()?).ok()?;
            for (name, _) in entries {
                if name.eq_ignore_ascii_case(DOT_GIT) {
                    return None;
                }
                open.push(path.join(name));
            }
            if open.len() > self.entries_left {
                return None;
            }
        }
        Some(())
    }
}

/// True if a file at this path may be a part of a repository, of which another part was moved away
/// before: a restore does not write parts that would complete one.
fn may_be_part_of_repository(path: &Path) -> bool {
    const PARTS: [&str; 3] = ["HEAD", "objects", "refs"];
    path.components()
        .any(|part| PARTS.iter().any(|name| part.as_os_str().eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::store::tests::World;

    impl World {
        fn covered(&self, path: &str, id: Option<u64>) -> CheckpointCoverage {
            self.store.coverage(&[self.at(path).display().to_string()], id).unwrap()
        }
    }

    #[test]
    fn files_are_covered_if_a_restore_can_bring_all_of_them_back() {
        let world = World::new();
        world.put("src/a.rs", "a");
        world.put("src/deep/b.rs", "b");
        symlink("/etc/hostname", world.at("src/link")).unwrap();
        fs::create_dir(world.at("empty")).unwrap();
        for path in ["src/a.rs", "src", "src/link", "empty"] {
            assert_eq!(world.covered(path, None), CheckpointCoverage::Possible, "{path}");
        }
        let id = world.take().id;
        for path in ["src/a.rs", "src", "src/link", "empty"] {
            assert_eq!(world.covered(path, Some(id)), CheckpointCoverage::Stored, "{path}");
        }
        // Changed, created and unchanged since.
        world.put("src/a.rs", "a, changed");
        world.put("src/new.rs", "new");
        for (path, expected) in [
            ("src/a.rs", CheckpointCoverage::Possible),
            ("src/new.rs", CheckpointCoverage::Possible),
            ("src/deep/b.rs", CheckpointCoverage::Stored),
            ("src", CheckpointCoverage::Possible),
        ] {
            assert_eq!(world.covered(path, Some(id)), expected, "{path}");
        }
        fs::remove_dir_all(world.at("src")).unwrap();
        assert_eq!(world.covered("src", Some(id)), CheckpointCoverage::None);
    }

    #[test]
    fn files_that_a_restore_does_not_bring_back_are_not_covered() {
        let world = World::new();
        world.git(".", &["init", "-q"]);
        world.put(".gitignore", "*.log\nout/\n");
        world.put("plain/a", "a");
        world.put("logs/a.log", "ignored");
        world.put("out/a", "ignored");
        world.put("large/a", &"a".repeat(1001));
        world.put("secret/.env", "KEY=1");
        world.put("secret/id_rsa", "key");
        world.put("protected/.vscode/tasks.json", "{}");
        world.put("nested/a", "a");
        world.git("nested", &["init", "-q"]);
        world.put("tree/.git", "gitdir: ../.git/worktrees/x");
        world.put("tree/a", "a");
        world.put("outer/nested/a", "a");
        world.git("outer/nested", &["init", "-q"]);
        world.git(".", &["init", "-q", "--bare", "bare"]);
        world.git(".", &["init", "-q", "--bare", "parts"]);
        fs::rename(world.at("parts/HEAD"), world.at("h")).unwrap();
        world.put("parts/objects/12/34", "object");
        world.put("parts/refs/heads/main", "12");
        symlink("plain", world.at("through")).unwrap();
        fs::create_dir(world.at("special")).unwrap();
        nix::unistd::mkfifo(&world.at("special/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for at in 0..ENTRIES_MAX {
            world.put(&format!("many/{at}"), "");
        }
        for path in ["plain", "plain/", "through"] {
            assert_eq!(world.covered(path, None), CheckpointCoverage::Possible, "{path}");
        }
        for path in [
            "",
            "missing",
            "logs/a.log",
            "logs",
            "out",
            "out/a",
            "large/a",
            "large",
            "secret/.env",
            "secret",
            "protected",
            "protected/.vscode/tasks.json",
            "nested/a",
            "nested",
            "outer",
            "tree/a",
            "tree",
            "bare",
            "bare/HEAD",
            "parts/objects",
            "parts/refs",
            ".git",
            ".git/HEAD",
            ".git/config",
            "through/a",
            "through/",
            "plain/a/",
            "special",
            "special/pipe",
            "many",
        ] {
            assert_eq!(world.covered(path, None), CheckpointCoverage::None, "{path}");
        }
        let elsewhere = ["/".to_owned(), "/etc/hostname".to_owned()];
        for path in elsewhere {
            assert_eq!(world.store.coverage(&[path], None).unwrap(), CheckpointCoverage::None);
        }
        let mixed = ["plain/a", "logs/a.log"].map(|path| world.at(path).display().to_string());
        assert_eq!(world.store.coverage(&mixed, None).unwrap(), CheckpointCoverage::None);
    }
}
