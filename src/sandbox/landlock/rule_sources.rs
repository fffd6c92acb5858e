//! Sources of prepared Landlock rules, to decide whether the rules are still valid.
//!
//! Rules refer to files by identity, not by name. Prepared rules are valid only if every name that
//! was examined still leads to the same file and no name was added or removed. In doubt they are
//! invalid.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::protect::place::is_timestamp_final;

/// Mounts, folders and paths that were examined while rules were made.
#[derive(Debug)]
pub(super) struct RuleSources {
    /// Open mount table, which reports later mounts and unmounts. `None`: it cannot be watched, so
    /// the rules are never valid again.
    mounts: Option<File>,
    folders: Vec<ListedFolder>,
    places: Vec<RulePath>,
    entries_max: usize,
}

/// Folder whose entries were read one by one.
#[derive(Debug)]
struct ListedFolder {
    path: PathBuf,
    stamp: Option<FolderStamp>,
    /// True if the stamp was old enough when it was taken: any later change of the folder gives
    /// another stamp.
    is_settled: bool,
    entries: Option<Vec<FolderEntry>>,
}

/// Path with a rule of its own. The file is held open, so that its inode number cannot be reused.
#[derive(Debug)]
struct RulePath {
    path: PathBuf,
    found: Option<(FolderStamp, File)>,
}

/// Entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FolderEntry {
    pub(super) name: OsString,
    pub(super) inode: u64,
    pub(super) is_folder: bool,
    pub(super) is_link: bool,
}

/// Identity, mode, owner and times of a file or folder.
#[derive(Debug, PartialEq, Eq)]
struct FolderStamp {
    device: u64,
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    /// Modification time: seconds since 1970, and nanoseconds.
    written: (i64, i64),
    /// Status change time, which programs cannot set: seconds since 1970, and nanoseconds.
    changed: (i64, i64),
}

impl RuleSources {
    /// Starts an empty record, and watches mounts from now on. `entries_max`: limit with which the
    /// folders are listed, see [`list`].
    pub(super) fn begin(entries_max: usize) -> RuleSources {
        // The first poll reports changes before this point.
        let mounts = File::open("/proc/self/mountinfo").ok().filter(|file| changed(file).is_some());
        RuleSources { mounts, folders: Vec::new(), places: Vec::new(), entries_max }
    }

    /// Adds the folder `path`, before it is listed.
    pub(super) fn folder(&mut self, path: &Path) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = stamp(path);
        let is_settled = stamp.as_ref().is_some_and(|stamp| is_timestamp_final(stamp.changed, now));
        self.folders.push(ListedFolder { path: path.to_owned(), stamp, is_settled, entries: None });
    }

    /// Sets the entries of the folder that was added last. `None`: the folder cannot be listed.
    pub(super) fn add_listing(&mut self, entries: Option<&[FolderEntry]>) {
        if let Some(folder) = self.folders.last_mut() {
            folder.entries = entries.map(<[FolderEntry]>::to_vec);
        }
    }

    /// Adds a path with a rule of its own. `opened`: its open file; `None` if it cannot be opened.
    pub(super) fn add_path(&mut self, path: &Path, opened: Option<File>) {
        let found = opened.and_then(|file| Some((FolderStamp::of(&file.metadata().ok()?), file)));
        self.places.push(RulePath { path: path.to_owned(), found });
    }

    /// True if no mount has changed, each listed folder has the same stamp and entries, and each
    /// path leads to the same file as when it was recorded. False in doubt.
    pub(super) fn is_unchanged(&self) -> bool {
        let same_mounts = self.mounts.as_ref().is_some_and(|file| changed(file) == Some(false));
        same_mounts
            && self.places.iter().all(RulePath::is_same)
            && self.folders.iter().all(|folder| folder.is_same(self.entries_max))
    }
}

impl ListedFolder {
    fn is_same(&self, entries_max: usize) -> bool {
        let is_same_folder = self.is_settled && self.stamp == stamp(&self.path);
        // Not every file system maintains the times of its folders.
        is_same_folder && list(&self.path, entries_max).is_ok_and(|now| now == self.entries)
    }
}

impl RulePath {
    fn is_same(&self) -> bool {
        // The content does not affect the rule.
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
}

/// Returns the stamp of a path, without following a symbolic link. `None` if the path does not
/// exist or cannot be examined.
fn stamp(path: &Path) -> Option<FolderStamp> {
    std::fs::symlink_metadata(path).ok().as_ref().map(FolderStamp::of)
}

/// Opens `path` for identification only, without following a symbolic link. `None` if that fails.
pub(super) fn open(path: &Path) -> Option<File> {
    let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    File::options().read(true).custom_flags(flags).open(path).ok()
}

/// Reads the entries of a folder: at most `entries_max` plus one, which shows that there are more.
/// `None` if the folder cannot be opened.
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

/// True if the mount table has changed since the previous call for `mounts`. `None` if that is
/// unknown.
fn changed(mounts: &File) -> Option<bool> {
    let mut asked = [PollFd::new(mounts.as_fd(), PollFlags::POLLPRI)];
    poll(&mut asked, PollTimeout::ZERO).ok()?;
    let said = asked[0].revents()?;
    Some(said.intersects(PollFlags::POLLPRI | PollFlags::POLLERR))
}
