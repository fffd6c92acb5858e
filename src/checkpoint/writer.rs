//! Writes restored files below the descriptor of a root.
//!
//! Every folder on the way is opened without following links, so a link that replaces a folder
//! meanwhile leads nowhere. A file is replaced or removed only if it is still the one that was
//! examined.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use posse_tools::workspace::{FOLDER, open_beneath};

use crate::entry::{Kind, Stamp};
use crate::walk::stamp_of;

/// Maximum number of temporary names that are tried.
const NAMES_MAX: u32 = 16;

/// Maximum depth of the empty folders that a restored file replaces.
const EMPTY_DEPTH_MAX: usize = 64;

/// Content of a file with its stamp from before it was read.
pub(crate) struct ReadFile {
    pub(crate) stamp: Stamp,
    pub(crate) content: Vec<u8>,
    /// The open file; `None` of a link.
    pub(crate) file: Option<OwnedFd>,
}

/// Reads the file or link `path` below `root`. `None` if it is gone, of another kind, or larger than
/// `bytes_max`.
pub(crate) fn read(root: &OwnedFd, path: &Path, bytes_max: u64) -> io::Result<Option<ReadFile>> {
    let is_gone = |errno: &Errno| matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP);
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    match open_beneath(root, path, flags) {
        Ok(opened) => {
            let stat = fstat(&opened)?;
            let Some(stamp) = Stamp::of(&stat).filter(|stamp| stamp.size <= bytes_max) else {
                return Ok(None);
            };
            let mut file = File::from(opened);
            let mut content = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0) + 1);
            (&mut file).take(bytes_max + 1).read_to_end(&mut content)?;
            let is_whole = content.len() as u64 <= bytes_max;
            Ok(is_whole.then(|| ReadFile { stamp, content, file: Some(file.into()) }))
        }
        Err(Errno::ELOOP) => {
            let Some(stamp) = stamp_of(root, path).filter(|stamp| stamp.kind == Kind::Link) else {
                return Ok(None);
            };
            let above = open_beneath(root, path.parent().unwrap_or(Path::new("")), FOLDER)?;
            let target = match readlinkat(&above, path.file_name().unwrap_or_default()) {
                Err(errno) if is_gone(&errno) || errno == Errno::EINVAL => return Ok(None),
                target => target?,
            };
            Ok(Some(ReadFile { stamp, content: target.as_bytes().to_vec(), file: None }))
        }
        Err(errno) if is_gone(&errno) || errno == Errno::ENXIO => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes the file `path`, if its stamp is still `known`, and the folders above it that are empty
/// then.
pub(crate) fn remove(root: &OwnedFd, path: &Path, known: &Stamp) -> io::Result<()> {
    let Some((above, name)) = split(path) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let folder = open_beneath(root, above, FOLDER)?;
    require(&folder, name, Some(known))?;
    unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir)?;
    let mut empty = above;
    while let Some((above, name)) = split(empty) {
        let Ok(folder) = open_beneath(root, above, FOLDER) else { break };
        if unlinkat(&folder, name, UnlinkatFlags::RemoveDir).is_err() {
            break;
        }
        empty = above;
    }
    Ok(())
}

/// Writes the file `path` with this kind and content, and creates missing folders. `known`: stamp of
/// the file that is replaced; `None`: there must be none. A folder in its place that contains no
/// files is removed: checkpoints store no empty folders.
pub(crate) fn write(
    root: &OwnedFd,
    path: &Path,
    kind: Kind,
    content: &[u8],
    known: Option<&Stamp>,
) -> io::Result<()> {
    let Some((above, name)) = split(path) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let folder = make_folders(root, above)?;
    if known.is_none() && contains_no_file(&folder, name, EMPTY_DEPTH_MAX) {
        remove_folders(&folder, name);
    }
    require(&folder, name, known)?;
    let temporary = match kind {
        Kind::Link => make_link(&folder, OsStr::from_bytes(content))?,
        Kind::File | Kind::Executable => make_file(&folder, kind, content, known, name)?,
    };
    let placed = match known {
        Some(_) => renameat(&folder, &*temporary, &folder, name),
        None => place_new(&folder, &temporary, name),
    };
    if placed.is_err() || known.is_none() {
        // After a link the temporary name is left over; after a rename it is gone.
        unlinkat(&folder, &*temporary, UnlinkatFlags::NoRemoveDir).ok();
    }
    Ok(placed?)
}

/// Opens the folder `name`, and reads its entries. `None` if it is no folder.
fn entries(folder: &OwnedFd, name: &OsStr) -> Option<(OwnedFd, Vec<OsString>)> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = openat(folder, name, flags, Mode::empty()).ok()?;
    let mut dir = Dir::from_fd(opened.try_clone().ok()?).ok()?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Some((opened, names))
}

/// True if `name` is a folder with nothing but folders in it, at most `depth` deep.
fn contains_no_file(folder: &OwnedFd, name: &OsStr, depth: usize) -> bool {
    let Some((opened, names)) = entries(folder, name).filter(|_| depth > 0) else { return false };
    names.iter().all(|name| contains_no_file(&opened, name, depth - 1))
}

/// Removes the folder `name` and the folders in it, as far as they are empty.
fn remove_folders(folder: &OwnedFd, name: &OsStr) {
    if let Some((opened, names)) = entries(folder, name) {
        for name in &names {
            remove_folders(&opened, name);
        }
    }
    unlinkat(folder, name, UnlinkatFlags::RemoveDir).ok();
}

/// Gives the temporary file its name unless a file has it.
fn place_new(folder: &OwnedFd, temporary: &str, name: &OsStr) -> Result<(), Errno> {
    match linkat(folder, temporary, folder, name, AtFlags::empty()) {
        // A file system without hard links.
        Err(Errno::EPERM | Errno::ENOTSUP | Errno::ENOSYS) => {
            match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => renameat(folder, temporary, folder, name),
                _ => Err(Errno::EEXIST),
            }
        }
        linked => linked,
    }
}

fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

/// Fails unless the file `name` has the stamp `known`; with `None`, unless it is missing.
fn require(folder: &OwnedFd, name: &OsStr, known: Option<&Stamp>) -> io::Result<()> {
    let found = match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => None,
        found => Some(found?),
    };
    let is_same = match (&found, known) {
        (None, None) => true,
        (Some(stat), Some(known)) => Stamp::of(stat).as_ref() == Some(known),
        _ => false,
    };
    if is_same { Ok(()) } else { Err(io::Error::other("it was changed a moment ago")) }
}

fn make_folders(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    match open_beneath(root, path, FOLDER) {
        Err(Errno::ENOENT) => {}
        opened => return Ok(opened?),
    }
    let mut above = open_beneath(root, Path::new(""), FOLDER)?;
    for name in path.components() {
        let name = Path::new(name.as_os_str());
        match mkdirat(&above, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        above = open_beneath(&above, name, FOLDER)?;
    }
    Ok(above)
}

fn make_file(
    folder: &OwnedFd,
    kind: Kind,
    content: &[u8],
    known: Option<&Stamp>,
    name: &OsStr,
) -> io::Result<String> {
    let executable = if kind == Kind::Executable { 0o777 } else { 0o666 };
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let (temporary, file) = with_temporary_name(|temporary| {
        openat(folder, temporary, flags, Mode::from_bits_truncate(executable))
    })?;
    let mut file = File::from(file);
    let filled = file.write_all(content).and_then(|()| {
        let is_file = known.is_some_and(|known| known.kind != Kind::Link);
        if is_file { adopt_mode(&file, folder, name, kind) } else { Ok(()) }
    });
    if let Err(error) = filled {
        unlinkat(folder, &*temporary, UnlinkatFlags::NoRemoveDir).ok();
        return Err(error);
    }
    Ok(temporary)
}

/// Gives `file` the permissions of the file `name` that it replaces, with the executable bits of
/// `kind`.
#[allow(clippy::cast_possible_truncation, clippy::unnecessary_cast, reason = "9 bits")]
fn adopt_mode(file: &File, folder: &OwnedFd, name: &OsStr, kind: Kind) -> io::Result<()> {
    let old = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?.st_mode as u32 & 0o777;
    let mode = match (kind, old & 0o100 != 0) {
        (Kind::Executable, false) => old | ((old & 0o444) >> 2),
        (Kind::File, true) => old & !0o111,
        _ => old,
    };
    Ok(fchmod(file, Mode::from_bits_truncate(mode as nix::libc::mode_t))?)
}

fn make_link(folder: &OwnedFd, target: &OsStr) -> io::Result<String> {
    let made = with_temporary_name(|temporary| symlinkat(target, folder, temporary))?;
    Ok(made.0)
}

fn with_temporary_name<T>(make: impl Fn(&str) -> Result<T, Errno>) -> io::Result<(String, T)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".posse-{}-{number}.restore", std::process::id());
        match make(&name) {
            Err(Errno::EEXIST) => {}
            result => return Ok((name, result?)),
        }
    }
    Err(Errno::EEXIST.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn root(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    fn stamp(root: &OwnedFd, path: &str) -> Stamp {
        stamp_of(root, Path::new(path)).unwrap()
    }

    #[test]
    fn files_are_written_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, at) = (root(dir.path()), |path: &str| dir.path().join(path));
        write(&root, Path::new("a/b/c"), Kind::Executable, b"one", None).unwrap();
        assert_eq!(fs::read(at("a/b/c")).unwrap(), b"one");
        assert_ne!(fs::metadata(at("a/b/c")).unwrap().permissions().mode() & 0o100, 0);
        fs::set_permissions(at("a/b/c"), fs::Permissions::from_mode(0o750)).unwrap();
        let known = stamp(&root, "a/b/c");
        write(&root, Path::new("a/b/c"), Kind::File, b"two", Some(&known)).unwrap();
        assert_eq!(fs::metadata(at("a/b/c")).unwrap().permissions().mode() & 0o777, 0o640);
        // The file is another one by now.
        assert!(write(&root, Path::new("a/b/c"), Kind::File, b"x", Some(&known)).is_err());
        assert!(remove(&root, Path::new("a/b/c"), &known).is_err());
        assert!(write(&root, Path::new("a/b/c"), Kind::File, b"x", None).is_err());
        assert_eq!(fs::read(at("a/b/c")).unwrap(), b"two");
        write(&root, Path::new("a/l"), Kind::Link, b"b/c", None).unwrap();
        assert_eq!(fs::read_link(at("a/l")).unwrap(), Path::new("b/c"));
        remove(&root, Path::new("a/b/c"), &stamp(&root, "a/b/c")).unwrap();
        assert!(!at("a/b").exists() && at("a").exists());
        remove(&root, Path::new("a/l"), &stamp(&root, "a/l")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("f"), "outside").unwrap();
        symlink(outside.path(), dir.path().join("d")).unwrap();
        symlink(outside.path().join("f"), dir.path().join("l")).unwrap();
        let root = root(dir.path());
        assert!(write(&root, Path::new("d/f"), Kind::File, b"x", None).is_err());
        assert!(write(&root, Path::new("d/new/f"), Kind::File, b"x", None).is_err());
        assert!(write(&root, Path::new("../f"), Kind::File, b"x", None).is_err());
        let outer = stamp_of(&self::root(outside.path()), Path::new("f")).unwrap();
        assert!(remove(&root, Path::new("d/f"), &outer).is_err());
        assert!(read(&root, Path::new("d/f"), 100).unwrap().is_none());
        let link = read(&root, Path::new("l"), 100).unwrap().unwrap();
        assert_eq!(link.content, outside.path().join("f").as_os_str().as_encoded_bytes());
        // A link is replaced, not its target.
        let known = stamp(&root, "l");
        write(&root, Path::new("l"), Kind::File, b"inside", Some(&known)).unwrap();
        assert_eq!(fs::read(outside.path().join("f")).unwrap(), b"outside");
        assert_eq!(fs::read(dir.path().join("l")).unwrap(), b"inside");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn pipes_and_large_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(dir.path());
        nix::unistd::mkfifo(&dir.path().join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
        fs::write(dir.path().join("f"), "12345").unwrap();
        for (path, bytes_max, expected) in [("pipe", 9, None), ("f", 4, None), ("f", 5, Some(5))] {
            let read = read(&root, Path::new(path), bytes_max).unwrap();
            assert_eq!(read.map(|read| read.content.len()), expected, "{path}");
        }
        assert!(read(&root, Path::new("none"), 9).unwrap().is_none());
    }
}
