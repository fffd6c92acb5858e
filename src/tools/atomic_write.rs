//! Atomic file replacement.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fsync, linkat, unlinkat};

use crate::workspace::FileStatus;

/// Maximum number of temporary names that are tried if a name exists already.
const NAMES_MAX: u32 = 16;

/// Writes `bytes` to a temporary file, syncs it, gives it the name `name` in `folder`, and syncs
/// the folder. Returns the metadata of the new file. If only the last step fails, the file is in
/// place although the result is an error.
///
/// `old` is the metadata of the file that is replaced; the new file gets its permissions without
/// the set-id and sticky bits and, if the system allows it, its owner. If `old` is `None`, an
/// existing file called `name` is an error; otherwise a file of any identity is replaced.
pub(crate) fn replace(
    folder: &OwnedFd,
    name: &OsStr,
    bytes: &[u8],
    old: Option<&FileStatus>,
) -> io::Result<Made> {
    let mut temporary = Temporary::create(folder, if old.is_some() { 0o600 } else { 0o666 })?;
    temporary.file.write_all(bytes)?;
    if let Some(old) = old {
        adopt(&temporary.file, old)?;
    }
    temporary.file.sync_all()?;
    // Read before the rename: as soon as the file has its final name, other processes can change
    // it.
    let mode = temporary.file.metadata()?.mode();
    let file = temporary.file.try_clone()?;
    match old {
        Some(_) => temporary.rename(name)?,
        None => temporary.link(name)?,
    }
    sync(folder)?;
    Ok(Made { metadata: file.metadata()?, mode })
}

/// Metadata of a file that was just written, and the mode that posse gave it.
pub(crate) struct Made {
    pub(crate) metadata: Metadata,
    /// Mode that posse gave the file. The mode in `metadata` can contain a later change by another
    /// process.
    pub(crate) mode: u32,
}

/// Removes the file `name` from `folder`, and syncs the folder.
pub(crate) fn remove(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    unlinkat(folder, name, UnlinkatFlags::NoRemoveDir)?;
    sync(folder)
}

/// Syncs a folder. A file system that cannot sync folders is not an error.
fn sync(folder: &OwnedFd) -> io::Result<()> {
    match fsync(folder) {
        Err(Errno::EINVAL | Errno::ENOTSUP) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets (`may` is true) or clears the executable bits of the file `name` in `folder`, starting from
/// the mode in `known`. Owner, group and others get the bit only if they may read the file. Fails
/// if the name belongs to another file than `known`.
pub(crate) fn run(folder: &OwnedFd, name: &OsStr, known: &Made, may: bool) -> io::Result<Made> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::empty())?);
    let found = file.metadata()?;
    if (found.dev(), found.ino()) != (known.metadata.dev(), known.metadata.ino()) {
        return Err(io::Error::other("another program replaced it a moment ago"));
    }
    let mode = known.mode & 0o777;
    let mode = if may { mode | ((mode & 0o444) >> 2) } else { mode & !0o111 };
    fchmod(&file, permissions(mode))?;
    Ok(Made { metadata: file.metadata()?, mode })
}

/// Stores `bytes` in the file `hash` of the folder `blobs`, unless that file exists. Creates the
/// folder if it is missing. `hash` is the SHA-256 of `bytes` in hex.
pub(crate) fn keep_blob(blobs: &Path, hash: &str, bytes: &[u8]) -> io::Result<()> {
    let path = blobs.join(hash);
    if path.try_exists()? {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(blobs)?;
    let unfinished = blobs.join(temporary_name());
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&unfinished, &path));
    if written.is_err() {
        // The first error is the relevant one.
        drop(fs::remove_file(&unfinished));
    }
    written
}

/// Gives `file` the owner of `old`, if the system allows it, and the permissions of `old` except
/// set-user-id, set-group-id and sticky bit.
fn adopt(file: &File, old: &FileStatus) -> io::Result<()> {
    let new = FileStatus::of(file)?;
    if (new.uid, new.gid) != (old.uid, old.gid) {
        match fchown(file, Some(Uid::from_raw(old.uid)), Some(Gid::from_raw(old.gid))) {
            // Only root may change the owner; otherwise the writer owns the file.
            Err(Errno::EPERM | Errno::EINVAL) | Ok(()) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(fchmod(file, permissions(old.mode & 0o777))?)
}

#[allow(clippy::cast_possible_truncation, clippy::unnecessary_cast, reason = "9 bits")]
fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode as nix::libc::mode_t)
}

/// A temporary file, removed on drop unless it was renamed.
struct Temporary<'a> {
    folder: &'a OwnedFd,
    name: String,
    file: File,
}

impl Temporary<'_> {
    fn create(folder: &OwnedFd, mode: nix::libc::mode_t) -> io::Result<Temporary<'_>> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for _ in 0..NAMES_MAX {
            let name = temporary_name();
            match openat(folder, name.as_str(), flags, Mode::from_bits_truncate(mode)) {
                Err(Errno::EEXIST) => {}
                file => return Ok(Temporary { folder, name, file: File::from(file?) }),
            }
        }
        Err(Errno::EEXIST.into())
    }

    fn rename(mut self, name: &OsStr) -> io::Result<()> {
        renameat(self.folder, self.name.as_str(), self.folder, name)?;
        self.name.clear();
        Ok(())
    }

    /// Gives the file its final name, but fails if a file has that name; `rename` would replace it.
    /// On a file system without hard links, a file that appears at the same moment is replaced.
    fn link(self, name: &OsStr) -> io::Result<()> {
        let none = AtFlags::empty();
        match linkat(self.folder, self.name.as_str(), self.folder, name, none) {
            // File system without hard links: check, then rename.
            Err(Errno::EPERM | Errno::ENOTSUP | Errno::ENOSYS) => {
                match FileStatus::at(self.folder, Path::new(name)) {
                    Err(Errno::ENOENT) => self.rename(name),
                    found => Err(found.err().unwrap_or(Errno::EEXIST).into()),
                }
            }
            linked => Ok(linked?),
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // No error can be reported here.
            let _ = unlinkat(self.folder, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".posse-{}-{number}.tmp", std::process::id())
}
