//! The file that grows: appended to, synced, with room kept free behind its end, and put back if
//! somebody removes it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::statvfs::fstatvfs;

/// Room behind the end: when less than this can be had, nothing new should begin. It is what the
/// outcomes of calls that are under way may need.
const RESERVE_MIN: u64 = 1 << 20;
/// Room that is asked for at once.
const RESERVE_STEP: u64 = 2 << 20;
/// Beside the file while it is put back.
const RESTORED: &str = "session.jsonl.restored";

/// What the thread needs of a file; tests put faults in its place.
pub(crate) trait Disk: Send + std::fmt::Debug {
    /// `write(2)` at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// `fdatasync(2)`.
    fn sync(&mut self) -> io::Result<()>;
    /// `ftruncate(2)`.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Whether there is room on the disk at all.
    fn has_space(&self) -> bool;
    /// Keeps room behind `length` bytes. `false`: there is hardly any left.
    fn reserve(&mut self, length: u64) -> bool;
    /// Gives back what is kept behind `length` bytes.
    fn release(&mut self, length: u64);
    /// Puts the file back under its name, with its first `length` bytes, if it is not there any
    /// more. `true`: it was not.
    fn keep_name(&mut self, length: u64) -> io::Result<bool>;
}

/// Makes the next active file.
pub(crate) type NextDisk = Box<dyn Fn() -> io::Result<Box<dyn Disk>> + Send>;

/// A real file.
#[derive(Debug)]
pub(crate) struct ActiveFile {
    file: File,
    path: PathBuf,
    /// Device and inode: the name may come to mean another file.
    identity: (u64, u64),
    /// Where the room ends that is kept.
    reserved: u64,
    /// The file system cannot keep room: its free space is looked at instead.
    counted: bool,
}

impl ActiveFile {
    /// Opens the file at `path` for appending, and makes it if there is none.
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

    /// Makes an empty file at `path`, which is going to be called `name`.
    pub(crate) fn next(path: &Path, name: &Path) -> io::Result<ActiveFile> {
        std::fs::remove_file(path).or_else(absent_is_fine)?;
        Ok(ActiveFile { path: name.to_owned(), ..ActiveFile::open(path)? })
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
        self.file.set_len(length)
    }

    fn has_space(&self) -> bool {
        // Whoever cannot say does not stop anybody.
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
        // Which of the two gives room behind the end back depends on the file system.
        self.file.set_len(length).ok();
        let flags = FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
        if let (Ok(at), Ok(room)) = (i64::try_from(length), i64::try_from(self.reserved - length)) {
            fallocate(&self.file, flags, at, room).ok();
        }
        self.reserved = 0;
    }

    fn keep_name(&mut self, length: u64) -> io::Result<bool> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(about) if (about.dev(), about.ino()) == self.identity => return Ok(false),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        let fresh = self.path.with_file_name(RESTORED);
        std::fs::remove_file(&fresh).or_else(absent_is_fine)?;
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

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Stands for a file that must not be written any more.
#[derive(Debug)]
pub(crate) struct Unusable;

impl Disk for Unusable {
    fn append(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("the next segment cannot be opened"))
    }

    fn sync(&mut self) -> io::Result<()> {
        Err(io::Error::other("the next segment cannot be opened"))
    }

    fn truncate(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn has_space(&self) -> bool {
        true
    }

    fn reserve(&mut self, _: u64) -> bool {
        true
    }

    fn release(&mut self, _: u64) {}

    fn keep_name(&mut self, _: u64) -> io::Result<bool> {
        Ok(false)
    }
}
