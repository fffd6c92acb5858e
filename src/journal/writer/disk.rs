//! The active file of a journal: appending, syncing, reserved space after its end, and restoration
//! if it was removed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::statvfs::fstatvfs;

use crate::scan::if_exists;

/// Minimum free or reserved space in bytes. With less, no new work should begin, because running
/// calls may need the space for their outcomes.
const RESERVE_MIN: u64 = 1 << 20;
/// Bytes of one reservation.
const RESERVE_STEP: u64 = 2 << 20;
/// Temporary name of the active file while it is restored.
const RESTORED: &str = "session.jsonl.restored";

/// Operations of the writer thread on the active file. Tests replace them to inject faults.
pub(crate) trait Disk: Send + std::fmt::Debug {
    /// Appends `bytes` with one `write(2)`. Returns the number of bytes written, which may be
    /// smaller.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Writes the file's data to the disk with `fdatasync(2)`.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to `length` bytes with `ftruncate(2)`.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Returns true if at least `RESERVE_MIN` bytes are free, or if the free space is unknown.
    fn has_space(&self) -> bool;
    /// Reserves space after the first `length` bytes, which are the records. Returns false if the
    /// disk is nearly full. If the file system cannot reserve space, only checks the free space.
    fn reserve(&mut self, length: u64) -> bool;
    /// Releases the space reserved after the first `length` bytes.
    fn release(&mut self, length: u64);
    /// If another process removed or replaced the file, creates it again under its name with its
    /// first `length` bytes. Returns true if it was created again.
    fn restore_if_removed(&mut self, length: u64) -> io::Result<bool>;
}

/// Function that creates the file of the next active segment.
pub(crate) type NextDisk = Box<dyn Fn() -> io::Result<Box<dyn Disk>> + Send>;

/// The active file of a journal in the file system.
#[derive(Debug)]
pub(crate) struct ActiveFile {
    file: File,
    path: PathBuf,
    /// Device and inode of the file, to notice if `path` names another file later.
    identity: (u64, u64),
    /// Offset of the end of the reserved space; 0 if none is reserved.
    reserved: u64,
    /// True if the file system cannot reserve space: its free space is checked instead.
    counted: bool,
}

impl ActiveFile {
    /// Opens the file at `path` for appending and creates it if it is missing. Fails if `path` is a
    /// symbolic link.
    pub(crate) fn open(path: &Path) -> io::Result<ActiveFile> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(path)?;
        let about = file.metadata()?;
        let identity = (about.dev(), about.ino());
        Ok(ActiveFile { file, path: path.to_owned(), identity, reserved: 0, counted: false })
    }

    /// Creates an empty file at `path`, which the caller later renames to `name`. An old file at
    /// `path` is removed.
    pub(crate) fn next(path: &Path, name: &Path) -> io::Result<ActiveFile> {
        if_exists(std::fs::remove_file(path))?;
        Ok(ActiveFile { path: name.to_owned(), ..ActiveFile::open(path)? })
    }
}

impl ActiveFile {
    /// Sets the modification time of a file without records (`length` is 0) to its time of creation,
    /// which tells `posse sessions verify` that it never had one.
    fn mark_as_created(&self, length: u64) {
        if length == 0 {
            let created = self.file.metadata().and_then(|about| about.created());
            created.and_then(|created| self.file.set_modified(created)).ok();
        }
    }
}

impl Disk for ActiveFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut self.file, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.reserved = 0;
        self.file.set_len(length)?;
        self.mark_as_created(length);
        Ok(())
    }

    fn has_space(&self) -> bool {
        // A file system that does not report its free space is not considered full.
        fstatvfs(&self.file).map_or(true, |about| {
            let free = about.blocks_available().saturating_mul(about.fragment_size());
            about.blocks() == 0 || free >= RESERVE_MIN
        })
    }

    fn reserve(&mut self, length: u64) -> bool {
        if self.reserved >= length + RESERVE_MIN {
            return true;
        }
        if self.counted {
            return self.has_space();
        }
        let (Ok(at), Ok(room)) = (i64::try_from(length), i64::try_from(RESERVE_STEP)) else {
            return true;
        };
        match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, at, room) {
            Ok(()) => {
                self.reserved = length + RESERVE_STEP;
                true
            }
            Err(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG) => false,
            Err(_) => {
                self.counted = true;
                self.has_space()
            }
        }
    }

    fn release(&mut self, length: u64) {
        if self.reserved <= length {
            return;
        }
        // It depends on the file system which of the two calls releases the space.
        self.file.set_len(length).ok();
        let flags = FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
        if let (Ok(at), Ok(room)) = (i64::try_from(length), i64::try_from(self.reserved - length)) {
            fallocate(&self.file, flags, at, room).ok();
        }
        self.reserved = 0;
        self.mark_as_created(length);
    }

    fn restore_if_removed(&mut self, length: u64) -> io::Result<bool> {
        let found = if_exists(std::fs::symlink_metadata(&self.path))?;
        if found.is_some_and(|about| (about.dev(), about.ino()) == self.identity) {
            return Ok(false);
        }
        let fresh = self.path.with_file_name(RESTORED);
        if_exists(std::fs::remove_file(&fresh))?;
        let mut copy = ActiveFile::open(&fresh)?;
        self.file.seek(SeekFrom::Start(0))?;
        let copied = io::copy(&mut Read::by_ref(&mut self.file).take(length), &mut copy.file)?;
        if copied != length {
            return Err(io::Error::other("the removed journal is shorter than it was"));
        }
        copy.file.sync_all()?;
        std::fs::rename(&fresh, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        copy.path = std::mem::take(&mut self.path);
        *self = copy;
        Ok(true)
    }
}
