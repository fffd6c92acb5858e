//! Removes a folder with everything in it, however deep it is.
//!
//! The standard library descends recursively and holds a descriptor for each level: a command can
//! make a tree that is deep enough to exhaust the stack or the descriptors. This function moves each
//! folder that is not empty up to the first one, so that it needs three descriptors and no recursion.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

const FOLDER: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NONBLOCK);

/// Removes `path` and everything below it. Follows no symbolic link below `path`, nor one in its
/// place. Makes folders accessible that their owner cannot read or change. A missing path is no
/// error.
///
/// Nothing else may write below `path` meanwhile. Errors: that of the first entry that cannot be
/// removed; the rest is removed as far as possible. A folder of another file system is not moved, so
/// that its content stays.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match unlinkat(AT_FDCWD, path, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        // A folder; Linux and POSIX differ in the error.
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    let top = open(AT_FDCWD, path.as_os_str())?;
    let mut removal = Removal { top, waiting: VecDeque::new(), moved: 0, failed: None };
    removal.clear(None);
    while let Some(name) = removal.waiting.pop_front() {
        removal.clear(Some(&name));
    }
    if let Some(error) = removal.failed {
        return Err(error.into());
    }
    Ok(unlinkat(AT_FDCWD, path, UnlinkatFlags::RemoveDir)?)
}

/// Removal of the tree below one folder.
struct Removal {
    top: OwnedFd,
    /// Names of folders directly in `top` that are not empty.
    waiting: VecDeque<OsString>,
    /// Number of folders that were moved to `top`.
    moved: u64,
    /// First error.
    failed: Option<Errno>,
}

impl Removal {
    /// Removes everything in the folder `name` of `top`, and the folder. `None`: everything in `top`
    /// that is no folder with content. Folders with content move to `top`.
    fn clear(&mut self, name: Option<&OsStr>) {
        let folder = match name.map(|name| open(self.top.as_fd(), name)).transpose() {
            Ok(folder) => folder,
            Err(error) => return self.note(error),
        };
        let entries = match read_entries(folder.as_ref().unwrap_or(&self.top)) {
            Ok(entries) => entries,
            Err(error) => return self.note(error),
        };
        for (entry, kind) in entries {
            let removed = match &folder {
                Some(folder) => self.remove(folder, &entry, kind),
                None => self.remove_in_top(entry, kind),
            };
            if let Err(error) = removed {
                self.note(error);
            }
        }
        if let Some(name) = name
            && let Err(error) = unlinkat(&self.top, name, UnlinkatFlags::RemoveDir)
        {
            self.note(error);
        }
    }

    fn remove_in_top(&mut self, name: OsString, kind: Option<Type>) -> Result<(), Errno> {
        if !is_removed(&self.top, &name, kind)? {
            self.waiting.push_back(name);
        }
        Ok(())
    }

    fn remove(&mut self, folder: &OwnedFd, name: &OsStr, kind: Option<Type>) -> Result<(), Errno> {
        if is_removed(folder, name, kind)? {
            return Ok(());
        }
        // Moving a folder changes its entry `..`, for which it must be writable.
        fchmodat(folder, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
        loop {
            let free = OsString::from(format!(".posse-removed-{}", self.moved));
            self.moved += 1;
            if fstatat(&self.top, &*free, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
                continue;
            }
            renameat(folder, name, &self.top, &*free)?;
            self.waiting.push_back(free);
            return Ok(());
        }
    }

    fn note(&mut self, error: Errno) {
        self.failed.get_or_insert(error);
    }
}

/// Removes the entry, if it is no folder with content; false if it is one.
fn is_removed(folder: &OwnedFd, name: &OsStr, kind: Option<Type>) -> Result<bool, Errno> {
    let is_folder = if let Some(kind) = kind {
        kind == Type::Directory
    } else {
        let stat = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR
    };
    if !is_folder {
        return unlinkat(folder, name, UnlinkatFlags::NoRemoveDir).map(|()| true);
    }
    match unlinkat(folder, name, UnlinkatFlags::RemoveDir) {
        Ok(()) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens the folder `name` of `at`, of which the owner can list and change the entries then.
fn open(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let open = || openat(at, name, FOLDER, Mode::empty());
    let opened = match open() {
        Err(Errno::EACCES) => {
            fchmodat(at, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            open()?
        }
        opened => opened?,
    };
    if !Mode::from_bits_truncate(fstat(&opened)?.st_mode).contains(Mode::S_IRWXU) {
        fchmod(&opened, Mode::S_IRWXU)?;
    }
    Ok(opened)
}

/// Names and kinds of the entries of an open folder.
pub fn read_entries(folder: &OwnedFd) -> Result<Vec<(OsString, Option<Type>)>, Errno> {
    let copy = folder.try_clone().map_err(|_| Errno::EMFILE)?;
    let mut entries = Vec::new();
    for entry in Dir::from_fd(copy)?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            entries.push((OsStr::from_bytes(name).to_owned(), entry.file_type()));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Makes `depth` folders in each other below `folder`, with a file in each.
    fn make_deep(folder: &Path, depth: usize) {
        fs::create_dir(folder).unwrap();
        let mut at = open(AT_FDCWD, folder.as_os_str()).unwrap();
        for _ in 0..depth {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            let next = openat(&at, "d", FOLDER, Mode::empty()).unwrap();
            openat(&next, "f", OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRWXU).unwrap();
            at = next;
        }
    }

    #[test]
    fn deeper_tree_than_the_stack_and_the_descriptors_allow_is_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("deep");
        make_deep(&folder, 12_000);
        remove_tree(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        fs::create_dir_all(at("kept/below")).unwrap();
        fs::write(at("kept/below/file"), "x").unwrap();
        fs::create_dir_all(at("gone/a/b")).unwrap();
        symlink(at("kept"), at("gone/a/b/link")).unwrap();
        symlink(at("kept"), at("link")).unwrap();
        symlink("nowhere", at("gone/dangling")).unwrap();
        remove_tree(&at("gone")).unwrap();
        remove_tree(&at("link")).unwrap();
        remove_tree(&at("missing")).unwrap();
        assert!(!at("gone").exists() && at("link").symlink_metadata().is_err());
        assert_eq!(fs::read(at("kept/below/file")).unwrap(), b"x");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn link_that_another_process_swaps_in_is_not_followed() {
        use nix::fcntl::{RenameFlags, renameat2};
        use std::os::unix::fs::MetadataExt;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::{Duration, Instant};
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        fs::create_dir_all(at("outside/sub")).unwrap();
        fs::write(at("outside/sub/file"), "x").unwrap();
        for folder in ["outside/sub", "outside"] {
            fs::set_permissions(at(folder), Permissions::from_mode(0o550)).unwrap();
        }
        let is_done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let exchange = RenameFlags::RENAME_EXCHANGE;
                    renameat2(AT_FDCWD, &at("tree/a"), AT_FDCWD, &at("link"), exchange).ok();
                }
            });
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(500) {
                fs::create_dir_all(at("tree")).unwrap();
                fs::create_dir_all(at("tree/a/sub")).ok();
                remove_tree(&at("link")).ok();
                symlink(at("outside"), at("link")).ok();
                remove_tree(&at("tree")).ok();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        for folder in ["outside/sub", "outside"] {
            assert_eq!(fs::metadata(at(folder)).unwrap().mode() & 0o7777, 0o550, "{folder}");
        }
        assert_eq!(fs::read(at("outside/sub/file")).unwrap(), b"x");
        for folder in ["outside", "outside/sub"] {
            fs::set_permissions(at(folder), Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn inaccessible_folders_and_taken_names_are_no_obstacle() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("folder");
        fs::create_dir_all(folder.join(".posse-removed-0/x/y/z")).unwrap();
        fs::create_dir_all(folder.join("a/b/c")).unwrap();
        fs::write(folder.join("a/b/c/file"), "x").unwrap();
        for (path, mode) in [("a/b/c", 0o000), ("a/b", 0o500), ("a", 0o300), ("", 0o500)] {
            fs::set_permissions(folder.join(path), Permissions::from_mode(mode)).unwrap();
        }
        remove_tree(&folder).unwrap();
        assert!(!folder.exists());
    }
}
