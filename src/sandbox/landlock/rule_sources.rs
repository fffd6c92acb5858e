//! What rules were made from, so that it can be told whether they would be made the same again.
//!
//! Rules name folders and files by what they are, not by what they are called. Rules made a while
//! ago are as good as new ones only if every name that was looked at still leads to the same
//! thing and no name has come or gone. In doubt they are not.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A folder that changed this short before it was read may change again without another time: the
/// clocks of file systems are coarse.
const SETTLED: Duration = Duration::from_millis(20);

/// Everything that was looked at while rules were made.
#[derive(Debug)]
pub(super) struct RuleSources {
    /// Says whether anything was mounted or unmounted since. None: nobody knows.
    mounts: Option<File>,
    folders: Vec<ListedFolder>,
    places: Vec<RulePath>,
    entries_max: usize,
}

/// A folder whose entries were looked at one by one.
#[derive(Debug)]
struct ListedFolder {
    path: PathBuf,
    stamp: Option<FolderStamp>,
    /// Whether a change after that would have given another stamp.
    is_settled: bool,
    entries: Option<Vec<FolderEntry>>,
}

/// A path that has a rule of its own. What was there is held open, or its number could be given
/// to something else.
#[derive(Debug)]
struct RulePath {
    path: PathBuf,
    found: Option<(FolderStamp, File)>,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FolderEntry {
    pub(super) name: OsString,
    pub(super) inode: u64,
    pub(super) is_folder: bool,
    pub(super) is_link: bool,
}

/// What tells one state of a folder from another.
#[derive(Debug, PartialEq, Eq)]
struct FolderStamp {
    device: u64,
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    /// When its names changed last: seconds and nanoseconds.
    written: (i64, i64),
    /// When anything of it changed last.
    changed: (i64, i64),
}

impl RuleSources {
    /// Begins to note what is looked at, with up to `entries_max` entries of a folder.
    pub(super) fn begin(entries_max: usize) -> RuleSources {
        // The first question is answered by what happened before.
        let mounts = File::open("/proc/self/mountinfo").ok().filter(|file| changed(file).is_some());
        RuleSources { mounts, folders: Vec::new(), places: Vec::new(), entries_max }
    }

    /// Notes a folder that is about to be listed.
    pub(super) fn folder(&mut self, path: &Path) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = stamp(path);
        let is_settled = stamp.as_ref().is_some_and(|stamp| stamp.is_settled(now));
        self.folders.push(ListedFolder { path: path.to_owned(), stamp, is_settled, entries: None });
    }

    /// Notes what the folder that was noted last has in it.
    pub(super) fn listed(&mut self, entries: Option<&[FolderEntry]>) {
        if let Some(folder) = self.folders.last_mut() {
            folder.entries = entries.map(<[FolderEntry]>::to_vec);
        }
    }

    /// Notes a path that gets a rule, and what was opened there for it.
    pub(super) fn place(&mut self, path: &Path, opened: Option<File>) {
        let found = opened.and_then(|file| Some((FolderStamp::of(&file.metadata().ok()?), file)));
        self.places.push(RulePath { path: path.to_owned(), found });
    }

    /// Whether all of it is as it was.
    pub(super) fn still_holds(&self) -> bool {
        let same_mounts = self.mounts.as_ref().is_some_and(|file| changed(file) == Some(false));
        same_mounts
            && self.places.iter().all(RulePath::is_same)
            && self.folders.iter().all(|folder| folder.is_same(self.entries_max))
    }
}

impl ListedFolder {
    fn is_same(&self, entries_max: usize) -> bool {
        let is_same_folder = self.is_settled && self.stamp == stamp(&self.path);
        // Not every file system keeps the times of its folders.
        is_same_folder && list(&self.path, entries_max).is_ok_and(|now| now == self.entries)
    }
}

impl RulePath {
    fn is_same(&self) -> bool {
        // Its content is none of the rule's business.
        match (&self.found, stamp(&self.path)) {
            (Some((before, _)), Some(now)) => before.is_same_thing(&now),
            (None, None) => true,
            _ => false,
        }
    }
}

impl FolderStamp {
    fn of(found: &Metadata) -> FolderStamp {
        FolderStamp {
            device: found.dev(),
            inode: found.ino(),
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            written: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    fn is_same_thing(&self, other: &FolderStamp) -> bool {
        let kind = |stamp: &FolderStamp| stamp.mode & libc::S_IFMT;
        (self.device, self.inode, kind(self)) == (other.device, other.inode, kind(other))
    }

    /// Whether a change after `now`, counted from 1970, would give another time. Nobody can set this
    /// one.
    fn is_settled(&self, now: Duration) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0).min(999_999_999);
        Duration::new(seconds, nanoseconds) + SETTLED < now
    }
}

/// What a path leads to, itself and not what it links to.
fn stamp(path: &Path) -> Option<FolderStamp> {
    std::fs::symlink_metadata(path).ok().as_ref().map(FolderStamp::of)
}

/// What is at `path` itself, opened for nothing but to say so.
pub(super) fn open(path: &Path) -> Option<File> {
    let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    File::options().read(true).custom_flags(flags).open(path).ok()
}

/// The names in a folder, one more than `entries_max` at most. None: it cannot be listed.
pub(super) fn list(folder: &Path, entries_max: usize) -> io::Result<Option<Vec<FolderEntry>>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(None) };
    let entry = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        let kind = entry.file_type()?;
        Ok(FolderEntry {
            inode: entry.ino(),
            is_folder: kind.is_dir(),
            is_link: kind.is_symlink(),
            name: entry.file_name(),
        })
    };
    entries.take(entries_max + 1).map(entry).collect::<io::Result<_>>().map(Some)
}

/// Whether the table of mounts has changed since this was asked before. None: it does not say.
fn changed(mounts: &File) -> Option<bool> {
    let mut asked = [PollFd::new(mounts.as_fd(), PollFlags::POLLPRI)];
    poll(&mut asked, PollTimeout::ZERO).ok()?;
    let said = asked[0].revents()?;
    Some(said.intersects(PollFlags::POLLPRI | PollFlags::POLLERR))
}
