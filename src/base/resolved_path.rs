//! Opening files by paths whose links were resolved before.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{self, OFlag};
use nix::sys::stat::Mode;

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

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
