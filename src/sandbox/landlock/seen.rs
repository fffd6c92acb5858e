//! Snapshot of the files that rules were made from, to detect whether new rules would be the same.
//!
//! Rules refer to inodes, not names. Old rules are valid only if every recorded name still leads to
//! the same inode and no name was added or removed. In doubt they are invalid.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Minimum age of a folder's last change for its time stamp to be reliable: file system clocks are
/// coarse.
const SETTLED: Duration = Duration::from_millis(20);

/// Everything that was read while rules were made.
#[derive(Debug)]
pub(super) struct Seen {
    /// Mount table; signals mounts and unmounts since. `None` if unavailable.
    mounts: Option<File>,
    folders: Vec<Folder>,
    places: Vec<Place>,
    entries_max: usize,
}

/// Folder whose entries were read one by one.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    stamp: Option<Stamp>,
    /// `true` if any later change would have given another time stamp.
    is_settled: bool,
    entries: Option<Vec<Entry>>,
}

/// Path with a rule of its own. The file is held open, so that its inode number is not reused.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    found: Option<(Stamp, File)>,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) inode: u64,
    pub(super) is_folder: bool,
    pub(super) is_link: bool,
}

/// Identity and change times of a file.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    /// Last change of its names: seconds and nanoseconds.
    written: (i64, i64),
    /// Last change of any metadata.
    changed: (i64, i64),
}

impl Seen {
    /// Starts a snapshot, with up to `entries_max` entries per folder.
    pub(super) fn begin(entries_max: usize) -> Seen {
        // The first poll reports changes before this point.
        let mounts = File::open("/proc/self/mountinfo").ok().filter(|file| changed(file).is_some());
        Seen { mounts, folders: Vec::new(), places: Vec::new(), entries_max }
    }

    /// Records a folder that is about to be listed.
    pub(super) fn folder(&mut self, path: &Path) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = stamp(path);
        let is_settled = stamp.as_ref().is_some_and(|stamp| stamp.is_settled(now));
        self.folders.push(Folder { path: path.to_owned(), stamp, is_settled, entries: None });
    }

    /// Records the entries of the folder recorded last.
    pub(super) fn listed(&mut self, entries: Option<&[Entry]>) {
        if let Some(folder) = self.folders.last_mut() {
            folder.entries = entries.map(<[Entry]>::to_vec);
        }
    }

    /// Records a path that gets a rule, and the file opened for it.
    pub(super) fn place(&mut self, path: &Path, opened: Option<File>) {
        let found = opened.and_then(|file| Some((Stamp::of(&file.metadata().ok()?), file)));
        self.places.push(Place { path: path.to_owned(), found });
    }

    /// Returns `true` if nothing has changed.
    pub(super) fn still_holds(&self) -> bool {
        let same_mounts = self.mounts.as_ref().is_some_and(|file| changed(file) == Some(false));
        same_mounts
            && self.places.iter().all(Place::is_same)
            && self.folders.iter().all(|folder| folder.is_same(self.entries_max))
    }
}

impl Folder {
    fn is_same(&self, entries_max: usize) -> bool {
        let is_same_folder = self.is_settled && self.stamp == stamp(&self.path);
        // Not every file system maintains the times of its folders.
        is_same_folder && list(&self.path, entries_max).is_ok_and(|now| now == self.entries)
    }
}

impl Place {
    fn is_same(&self) -> bool {
        // The content does not affect the rule.
        match (&self.found, stamp(&self.path)) {
            (Some((before, _)), Some(now)) => before.is_same_thing(&now),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Stamp {
    fn of(found: &Metadata) -> Stamp {
        Stamp {
            device: found.dev(),
            inode: found.ino(),
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            written: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    fn is_same_thing(&self, other: &Stamp) -> bool {
        let kind = |stamp: &Stamp| stamp.mode & libc::S_IFMT;
        (self.device, self.inode, kind(self)) == (other.device, other.inode, kind(other))
    }

    /// Returns `true` if a change after `now` (since the Unix epoch) would give another change
    /// time. Programs cannot set this time.
    fn is_settled(&self, now: Duration) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0).min(999_999_999);
        Duration::new(seconds, nanoseconds) + SETTLED < now
    }
}

/// Metadata of the path itself, without following links.
fn stamp(path: &Path) -> Option<Stamp> {
    std::fs::symlink_metadata(path).ok().as_ref().map(Stamp::of)
}

/// Opens the path itself with `O_PATH`.
pub(super) fn open(path: &Path) -> Option<File> {
    let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    File::options().read(true).custom_flags(flags).open(path).ok()
}

/// Names in a folder, at most `entries_max` plus one. `None` if the folder cannot be listed.
pub(super) fn list(folder: &Path, entries_max: usize) -> io::Result<Option<Vec<Entry>>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(None) };
    let entry = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        let kind = entry.file_type()?;
        Ok(Entry {
            inode: entry.ino(),
            is_folder: kind.is_dir(),
            is_link: kind.is_symlink(),
            name: entry.file_name(),
        })
    };
    entries.take(entries_max + 1).map(entry).collect::<io::Result<_>>().map(Some)
}

/// Returns `true` if the mount table has changed since the last call. `None` if unknown.
fn changed(mounts: &File) -> Option<bool> {
    let mut asked = [PollFd::new(mounts.as_fd(), PollFlags::POLLPRI)];
    poll(&mut asked, PollTimeout::ZERO).ok()?;
    let said = asked[0].revents()?;
    Some(said.intersects(PollFlags::POLLPRI | PollFlags::POLLERR))
}
