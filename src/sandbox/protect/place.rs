//! Access to files below a root, by descriptors. Links below the root are not followed, except by
//! [`Stat::at`] and [`Root::stat`] before the end of a path.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat, renameat};
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, fstatat, mkdirat,
};
use nix::unistd::{UnlinkatFlags, unlinkat};
use posse_base::resolved_path::open_beneath;

use crate::helper::folder_path;

/// Flags for opening a folder. A link is not followed.
pub(crate) const FOLDER: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NONBLOCK);

/// Flags for opening a file to read. A link is not followed, and opening a pipe does not block.
pub(crate) const FILE: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY);

/// Minimum age of a folder's last change for its time stamp to be reliable: file system clocks are
/// coarse.
pub(crate) const SETTLED: Duration = Duration::from_millis(20);

/// Length in bytes from which a path is opened in pieces; Linux accepts 4095 bytes in one call
/// (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 2048;

/// Maximum length of a link's target in bytes.
const LINK_BYTES_MAX: usize = 4096;

/// Identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    /// Device and inode number.
    pub(crate) fn numbers(self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// Status of a file, folder, link or other kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) identity: Identity,
    pub(crate) kind: PlaceKind,
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) links: u64,
    /// Last change of data or metadata: seconds and nanoseconds. Programs cannot set it.
    pub(crate) changed: (i64, i64),
    /// Last change of data: seconds and nanoseconds. Programs can set it.
    pub(crate) modified: (i64, i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    File,
    Folder,
    Link,
    Other,
}

impl Stat {
    #[expect(clippy::unnecessary_cast, reason = "the types differ between systems")]
    fn of(stat: &FileStat) -> Stat {
        let kind = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => PlaceKind::File,
            SFlag::S_IFDIR => PlaceKind::Folder,
            SFlag::S_IFLNK => PlaceKind::Link,
            _ => PlaceKind::Other,
        };
        Stat {
            identity: Identity { device: stat.st_dev as u64, inode: stat.st_ino as u64 },
            kind,
            mode: (stat.st_mode & 0o7777) as u32,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            links: stat.st_nlink as u64,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        }
    }

    /// Returns the status of an open file.
    pub(crate) fn of_open(file: impl AsFd) -> Result<Stat, Errno> {
        fstat(file).map(|stat| Stat::of(&stat))
    }

    /// Returns the status of the file to which `name` in `folder` leads. Links are followed.
    pub(crate) fn of_target(folder: impl AsFd, name: &Path) -> Result<Stat, Errno> {
        fstatat(folder, name, AtFlags::empty()).map(|stat| Stat::of(&stat))
    }

    /// Returns the status of `name` in `folder`. A link at the end of `name` is not followed. An
    /// empty name means the folder itself.
    pub(crate) fn at(folder: impl AsFd, name: &Path) -> Result<Stat, Errno> {
        let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
        fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).map(|stat| Stat::of(&stat))
    }
}

/// Root folder, held open for lookups.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    pub(crate) folder: OwnedFd,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Root, Errno> {
        Ok(Root { path: path.to_owned(), folder: open(path, FOLDER, Mode::empty())? })
    }

    /// Opens the folder at `relative` without following links.
    pub(crate) fn open_folder(&self, relative: &Path) -> Result<OwnedFd, Errno> {
        if relative.as_os_str().len() < PATH_BYTES_MAX {
            return open_beneath(&self.folder, relative, FOLDER);
        }
        // The kernel accepts no longer path in one call.
        let mut folder = self.folder.try_clone().map_err(|_| Errno::EMFILE)?;
        let mut piece = PathBuf::new();
        for part in relative.components() {
            if piece.as_os_str().len() + part.as_os_str().len() >= PATH_BYTES_MAX {
                folder = open_beneath(&folder, &std::mem::take(&mut piece), FOLDER)?;
            }
            piece.push(part);
        }
        open_beneath(&folder, &piece, FOLDER)
    }

    /// Opens the folder at `relative`, also if its owner cannot read it: a command must not hide a
    /// folder by permissions. One that cannot be read is made readable.
    pub(crate) fn open_readable(&self, relative: &Path) -> Result<OwnedFd, Errno> {
        match self.open_folder(relative) {
            Err(Errno::EACCES) => {
                self.make_readable(relative)?;
                self.open_folder(relative)
            }
            opened => opened,
        }
    }

    /// Lets the user list and enter the folder at `relative`, the folders above it and the root.
    /// Fails if another user owns one of them that does not allow it.
    pub(crate) fn make_readable(&self, relative: &Path) -> Result<(), Errno> {
        let mut folder = self.folder.try_clone().map_err(|_| Errno::EMFILE)?;
        let stat = Stat::of(&fstat(&folder)?);
        if stat.mode & 0o500 != 0o500 {
            fchmod(&folder, mode_of(stat.mode | 0o500))?;
        }
        for part in relative.components() {
            let name = Path::new(part.as_os_str());
            let stat = Stat::at(&folder, name)?;
            if stat.kind == PlaceKind::Folder && stat.mode & 0o500 != 0o500 {
                let mode = mode_of(stat.mode | 0o500);
                fchmodat(&folder, name, mode, FchmodatFlags::NoFollowSymlink)?;
            }
            folder = openat(&folder, name, FOLDER, Mode::empty())?;
        }
        Ok(())
    }

    /// Returns the status of `relative`. A link at its end is not followed. Links before its end
    /// are, unless the path has [`PATH_BYTES_MAX`] bytes or more; then they are an error.
    pub(crate) fn stat(&self, relative: &Path) -> Result<Stat, Errno> {
        if relative.as_os_str().len() < PATH_BYTES_MAX {
            return Stat::at(&self.folder, relative);
        }
        let (folder, name) = self.open_parent(relative)?;
        Stat::at(&folder, name)
    }

    /// Identity of the folder around the parent folder of `relative`. `None` if that folder would
    /// be above the root, or cannot be opened.
    pub(crate) fn identity_above(&self, relative: &Path) -> Option<Identity> {
        let above = relative.parent()?.parent()?;
        let folder = self.open_folder(above).ok()?;
        Stat::at(&folder, Path::new("")).ok().map(|stat| stat.identity)
    }

    /// Opens the parent folder of `relative`. Returns the folder, and the file name of `relative`.
    pub(crate) fn open_parent<'a>(&self, relative: &'a Path) -> Result<(OwnedFd, &'a Path), Errno> {
        let name = relative.file_name().ok_or(Errno::EINVAL)?;
        let parent = relative.parent().unwrap_or(Path::new(""));
        Ok((self.open_folder(parent)?, Path::new(name)))
    }
}

/// Returns the creation time of a folder, which tells folders with a reused inode number apart.
/// `None` if the file system does not store it.
pub(crate) fn creation_time(folder: &OwnedFd) -> Option<SystemTime> {
    File::from(folder.try_clone().ok()?).metadata().ok()?.created().ok()
}

/// Returns the metadata of `name` in `folder`, with the creation time. A link is not followed.
/// `None` if `name` cannot be opened.
pub(crate) fn metadata(folder: &OwnedFd, name: &Path) -> Option<Metadata> {
    hold(folder, name)?.metadata().ok()
}

/// Opens `name` in `folder` without access to its content, where the system can. A link is not
/// followed.
pub(crate) fn hold(folder: &OwnedFd, name: &Path) -> Option<File> {
    #[cfg(target_os = "linux")]
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = FILE;
    Some(File::from(openat(folder, name, flags, Mode::empty()).ok()?))
}

/// Resolved path of the folder to which `name` in `folder` leads, however long the way is. `None` if it
/// is no folder, if its path is too long, or if the system does not tell.
pub(crate) fn path_of_target(folder: &OwnedFd, name: &Path) -> Option<PathBuf> {
    let opened = openat(folder, name, FOLDER.difference(OFlag::O_NOFOLLOW), Mode::empty()).ok()?;
    folder_path(opened.as_fd()).ok()
}

/// Entry of a folder.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: OsString,
    pub(crate) kind: PlaceKind,
    pub(crate) inode: u64,
}

/// Lists the entries of a folder without `.` and `..`, up to `entries_max`. The flag is true if the
/// list is complete.
pub(crate) fn list(folder: &OwnedFd, entries_max: usize) -> Result<(Vec<Listed>, bool), Errno> {
    // A duplicate descriptor would share its position with other readers.
    let mut dir = Dir::from_fd(openat(folder, ".", FOLDER, Mode::empty())?)?;
    let mut listed = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if listed.len() == entries_max {
            return Ok((listed, false));
        }
        let kind = match entry.file_type() {
            Some(Type::File) => PlaceKind::File,
            Some(Type::Directory) => PlaceKind::Folder,
            Some(Type::Symlink) => PlaceKind::Link,
            Some(_) => PlaceKind::Other,
            None => Stat::at(folder, Path::new(OsStr::from_bytes(name)))
                .map_or(PlaceKind::Other, |stat| stat.kind),
        };
        let name = OsString::from_vec(name.to_owned());
        listed.push(Listed { name, kind, inode: entry.ino() });
    }
    Ok((listed, true))
}

/// Reads a regular file. `None` if it has more than `bytes_max` bytes. Any other kind of file is an
/// error.
pub(crate) fn read(
    folder: impl AsFd,
    name: &Path,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, Errno> {
    let file = File::from(openat(folder, name, FILE, Mode::empty())?);
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    if !is_file {
        return Err(Errno::EINVAL);
    }
    let mut bytes = Vec::new();
    let length = file
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    Ok((length as u64 <= bytes_max).then_some(bytes))
}

/// Returns the target of a link, as text that is not resolved. Fails if it is longer than
/// [`LINK_BYTES_MAX`].
pub(crate) fn link_target(folder: impl AsFd, name: &Path) -> Result<OsString, Errno> {
    let target = readlinkat(folder, name)?;
    if target.len() > LINK_BYTES_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(target) }
}

/// Permission to change the entries of a folder. A folder that the user owns gets it until this is
/// dropped, because a command may have taken it away from the user as well.
pub(crate) struct WritableFolder<'a> {
    folder: &'a OwnedFd,
    /// The permissions to set at the end. `None` if they were not changed.
    before: Option<u32>,
}

impl WritableFolder<'_> {
    pub(crate) fn new(folder: &OwnedFd) -> WritableFolder<'_> {
        let mode = fstat(folder).map(|stat| Stat::of(&stat).mode);
        let closed = mode.ok().filter(|mode| mode & 0o300 != 0o300);
        let before = closed.filter(|mode| fchmod(folder, mode_of(mode | 0o300)).is_ok());
        WritableFolder { folder, before }
    }
}

impl Drop for WritableFolder<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            fchmod(self.folder, mode_of(before)).ok();
        }
    }
}

/// Moves `name` from one folder to another, also if permissions of the user's own folders deny it.
pub(crate) fn move_entry(
    from: &OwnedFd,
    name: &Path,
    to: &OwnedFd,
    new: &Path,
) -> Result<(), Errno> {
    let _writable = (WritableFolder::new(from), WritableFolder::new(to));
    let stat = Stat::at(from, name)?;
    if stat.kind == PlaceKind::Folder && stat.mode & 0o200 == 0 {
        // Moving a folder changes its entry `..`.
        fchmodat(from, name, mode_of(stat.mode | 0o700), FchmodatFlags::NoFollowSymlink).ok();
    }
    renameat(from, name, to, new)
}

/// Replaces `name` by a file with `bytes` and the permissions `mode`, atomically and without
/// following a link.
pub(crate) fn replace_file(
    folder: &OwnedFd,
    name: &Path,
    bytes: &[u8],
    mode: u32,
) -> Result<(), Errno> {
    let _writable = WritableFolder::new(folder);
    let temporary = temporary_name();
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let only_us = Mode::from_bits_truncate(0o600);
    let file = openat(folder, temporary.as_path(), flags | OFlag::O_CLOEXEC, only_us)?;
    let mut file = File::from(file);
    let written = file
        .write_all(bytes)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
        .and_then(|()| fchmod(&file, mode_of(mode)))
        .and_then(|()| renameat(folder, temporary.as_path(), folder, name));
    if written.is_err() {
        // Removes the remaining temporary name.
        unlinkat(folder, temporary.as_path(), UnlinkatFlags::NoRemoveDir).ok();
    }
    written
}

/// Creates the folder `name` with the permissions `mode` and full rights for the user, or opens an
/// existing one.
pub(crate) fn make_folder(folder: &OwnedFd, name: &Path, mode: u32) -> Result<OwnedFd, Errno> {
    let _writable = WritableFolder::new(folder);
    match mkdirat(folder, name, mode_of(mode | 0o700)) {
        Ok(()) | Err(Errno::EEXIST) => openat(folder, name, FOLDER, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// True if any change after `now` gets a time other than `changed`, the time of the last change.
pub(crate) fn is_timestamp_final(changed: (i64, i64), now: Duration) -> bool {
    let seconds = u64::try_from(changed.0).unwrap_or(0);
    let nanoseconds = u32::try_from(changed.1).unwrap_or(0);
    Duration::new(seconds, nanoseconds.min(999_999_999)) + SETTLED < now
}

pub(crate) fn mode_of(mode: u32) -> Mode {
    Mode::from_bits_truncate(u16::try_from(mode & 0o777).unwrap_or(0o600).into())
}

pub(crate) fn temporary_name() -> PathBuf {
    use std::hash::{BuildHasher, RandomState};
    let chance = RandomState::new().hash_one(std::process::id());
    PathBuf::from(format!(".posse-{chance:016x}.tmp"))
}

/// Waits until the clock of the file system of `folder` advances, by a file that is created in the
/// folder and removed. Returns the new time.
#[cfg(test)]
pub(crate) fn next_tick(folder: &Path) -> (i64, i64) {
    let clock = folder.join(temporary_name());
    let now = || {
        std::fs::write(&clock, "").unwrap();
        Stat::of(&nix::sys::stat::stat(&clock).unwrap()).changed
    };
    let before = now();
    let tick = std::iter::repeat_with(now).find(|now| *now > before).unwrap();
    std::fs::remove_file(&clock).unwrap();
    tick
}
