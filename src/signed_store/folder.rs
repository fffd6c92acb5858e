//! Folder of the signed store. It is opened once and used by descriptor, so that it cannot be
//! swapped; its files are opened without following links or blocking.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::signed_store::TamperError;

/// Prefix of the names of files that are not completely written.
const UNFINISHED: &str = ".new-";

pub(super) struct StoreFolder {
    dir: File,
    path: PathBuf,
}

impl StoreFolder {
    /// Opens and checks the folder `path` and its parent `state`. `None` if the folder does not
    /// exist.
    pub(super) fn open(state: &Path, path: &Path) -> Result<Option<StoreFolder>, TamperError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let dir = match nix::fcntl::open(path, flags, Mode::empty()) {
            Ok(dir) => File::from(dir),
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(unusable(path, &error)),
        };
        let metadata = dir.metadata().map_err(|error| unusable(path, &error))?;
        judge_folder(path, &metadata, 0o077, "chmod 700")?;
        // A user who may rename in the parent folder could replace this one.
        let above = fs::metadata(state).map_err(|error| unusable(state, &error))?;
        judge_folder(state, &above, 0o022, "chmod go-w")?;
        Ok(Some(StoreFolder { dir, path: path.to_owned() }))
    }

    /// Opens and checks the folder; creates it first if it does not exist.
    pub(super) fn make(state: &Path, path: &Path) -> Result<StoreFolder, TamperError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| unusable(path, &error))?;
        let opened = StoreFolder::open(state, path)?;
        opened.ok_or_else(|| unusable(path, &"it is gone"))
    }

    /// Reads a file that only its owner can have written. `None` if it does not exist; an error if
    /// others may have written it or it is longer than `bytes_max`.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, TamperError> {
        let path = self.path.join(name);
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(self.dir.as_fd(), name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ELOOP) => return Err(tampered(&path, "it is a link", "remove the link")),
            Err(error) => return Err(unusable(&path, &error)),
        };
        let metadata = file.metadata().map_err(|error| unusable(&path, &error))?;
        judge_file(&path, &metadata, bytes_max)?;
        let mut bytes = Vec::new();
        let read = file.take(bytes_max).read_to_end(&mut bytes);
        read.map_err(|error| unusable(&path, &error))?;
        Ok(Some(bytes))
    }

    /// Replaces a file, and syncs it to disk. Call it under the lock only: it removes other
    /// unfinished files, which are leftovers of killed processes.
    pub(super) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        self.remove_leftovers();
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let unfinished = format!("{UNFINISHED}{}-{nth}", std::process::id());
        let mut file = self.create(&unfinished, OFlag::O_WRONLY | OFlag::O_EXCL)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(error) = written {
            unlinkat(self.dir.as_fd(), unfinished.as_str(), UnlinkatFlags::NoRemoveDir).ok();
            return Err(error);
        }
        self.rename(&unfinished, name)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        renameat(self.dir.as_fd(), from, self.dir.as_fd(), to)?;
        self.dir.sync_all()
    }

    pub(super) fn lock_file(&self, name: &str) -> io::Result<File> {
        self.create(name, OFlag::O_RDWR | OFlag::O_NONBLOCK)
    }

    /// Opens a file for writing; creates it, for the user only, if it does not exist.
    fn create(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        Ok(File::from(openat(self.dir.as_fd(), name, flags, mode)?))
    }

    fn remove_leftovers(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
                unlinkat(self.dir.as_fd(), name.as_os_str(), UnlinkatFlags::NoRemoveDir).ok();
            }
        }
    }
}

pub(super) fn stamp(found: &Metadata) -> (u64, u64, u64, i64, i64, i64, i64) {
    let (dev, ino, size) = (found.dev(), found.ino(), found.size());
    (dev, ino, size, found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec())
}

fn judge_folder(path: &Path, found: &Metadata, others: u32, fix: &str) -> Result<(), TamperError> {
    owned(path, found)?;
    if found.mode() & others != 0 {
        let what =
            format!("other users can access its content (mode {:04o})", found.mode() & 0o7777);
        return Err(tampered(path, &what, &format!("{fix} {}", path.display())));
    }
    Ok(())
}

fn judge_file(path: &Path, found: &Metadata, bytes_max: u64) -> Result<(), TamperError> {
    if !found.is_file() {
        return Err(tampered(path, "it is not a file", "move it away"));
    }
    owned(path, found)?;
    let mode = found.mode() & 0o7777;
    if mode & 0o7177 != 0 {
        let what = format!("others can read or change it (mode {mode:04o})");
        return Err(tampered(path, &what, &format!("chmod 600 {}", path.display())));
    }
    // Without a name, it was replaced since it was opened, and is what stood there before.
    if found.nlink() > 1 {
        let what = format!("it has {} hard links", found.nlink());
        return Err(tampered(path, &what, "remove the other hard links"));
    }
    if found.size() > bytes_max {
        return Err(tampered(path, "it is too large", "move it away"));
    }
    Ok(())
}

fn owned(path: &Path, found: &Metadata) -> Result<(), TamperError> {
    let us = nix::unistd::geteuid().as_raw();
    if found.uid() == us {
        return Ok(());
    }
    let what = format!("it belongs to user {}", found.uid());
    Err(tampered(path, &what, &format!("chown {us} {}", path.display())))
}

fn tampered(path: &Path, what: &str, fix: &str) -> TamperError {
    TamperError { path: path.to_owned(), what: what.to_owned(), fix: fix.to_owned() }
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> TamperError {
    let what = format!("it cannot be used ({why})");
    tampered(path, &what, "replace it with a file or folder that you own")
}
