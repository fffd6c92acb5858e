//! Opening files by paths whose links were resolved before, from the root of all folders or beneath
//! an open folder.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};

/// Flags that open a folder only for access to names below it.
#[cfg(target_os = "linux")]
pub const FOLDER: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
/// Flags that open a folder only for access to names below it.
#[cfg(not(target_os = "linux"))]
pub const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Opens the resolved `path` with `flags` and `O_CLOEXEC`. Fails if a link is anywhere on
/// the way: a running command may have put one there since the path was resolved.
pub fn open(path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let flags = flags | OFlag::O_CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use nix::fcntl::{AT_FDCWD, OpenHow, ResolveFlag, openat2};
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        match openat2(AT_FDCWD, path, how) {
            // An old kernel, or a filter that predates the call.
            Err(Errno::ENOSYS | Errno::EPERM) => {}
            opened => return Ok(opened?),
        }
    }
    let file = File::from(fcntl::open(path, flags | OFlag::O_NOFOLLOW, Mode::empty())?);
    let identity = |found: &Metadata| (found.dev(), found.ino());
    let again = path.canonicalize()?;
    if again == path && identity(&file.metadata()?) == identity(&again.symlink_metadata()?) {
        Ok(file.into())
    } else {
        Err(io::Error::other("a folder above it was replaced meanwhile"))
    }
}

/// Opens `path` beneath the folder `root` with `flags` and `O_CLOEXEC`; an empty path is `root`
/// itself. A symbolic link in any component is the error `ELOOP`.
pub fn open_beneath(root: &OwnedFd, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlag::O_CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use nix::fcntl::{OpenHow, ResolveFlag, openat2};
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = OpenHow::new().flags(flags).resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        );
        match openat2(root, path, how) {
            // An old kernel, a filter that predates the call, or a concurrent rename.
            Err(Errno::ENOSYS | Errno::EPERM | Errno::EAGAIN) => {}
            opened => return opened,
        }
    }
    open_stepwise(root, path, flags)
}

fn open_stepwise(root: &OwnedFd, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => names.push(name),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Errno::EXDEV);
            }
        }
    }
    let last = names.pop().unwrap_or(OsStr::new("."));
    let mut above: Option<OwnedFd> = None;
    for name in names {
        let folder = above.as_ref().unwrap_or(root);
        above = Some(open_step(folder, name, FOLDER)?);
    }
    open_step(above.as_ref().unwrap_or(root), last, flags)
}

/// Opens `name` in `folder`. A link is the error `ELOOP`, except with `O_PATH` alone, which opens
/// the link itself.
fn open_step(folder: &OwnedFd, name: &OsStr, flags: OFlag) -> Result<OwnedFd, Errno> {
    openat(folder, name, flags | OFlag::O_NOFOLLOW, Mode::empty()).map_err(|errno| {
        let is_link = || {
            let found = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW);
            found.is_ok_and(|found| found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits())
        };
        if errno == Errno::ENOTDIR && is_link() { Errno::ELOOP } else { errno }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_opened_beneath_a_folder_through_a_link() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("root/deep")).unwrap();
        fs::write(at("root/deep/file"), "words").unwrap();
        fs::write(at("outside"), "words").unwrap();
        symlink("deep", at("root/link")).unwrap();
        let root = OwnedFd::from(File::open(at("root")).unwrap());
        let (file, folder) = (OFlag::O_RDONLY, FOLDER);
        for open in [open_beneath, open_stepwise] {
            for (path, flags, expected) in [
                ("deep/file", file, None),
                ("./deep/", folder, None),
                ("", folder, None),
                ("link/file", file, Some(Errno::ELOOP)),
                ("link", folder, Some(Errno::ELOOP)),
                ("deep/file/below", file, Some(Errno::ENOTDIR)),
                ("none", file, Some(Errno::ENOENT)),
                ("../outside", file, Some(Errno::EXDEV)),
                ("/", folder, Some(Errno::EXDEV)),
            ] {
                let found = open(&root, Path::new(path), flags).err();
                assert_eq!(found, expected, "{path}");
            }
        }
    }

    #[test]
    fn resolved_file_is_not_opened_through_a_link() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(at("x/deep")).unwrap();
        fs::write(at("x/deep/AGENTS.md"), "words").unwrap();
        let resolved = at("x/deep/AGENTS.md");
        assert!(open(&resolved, OFlag::O_RDONLY).is_ok());
        // A running command replaces a folder above it.
        fs::rename(at("x"), at("y")).unwrap();
        symlink(at("y"), at("x")).unwrap();
        assert!(open(&resolved, OFlag::O_RDONLY).is_err());
        assert!(resolved.exists());
    }
}
