//! Quarantine: folder for files that a command planted or replaced. Files, folders and links are
//! kept; if the quarantine is on another file system, a folder that cannot be copied, such as one with
//! a pipe, is renamed in place instead, and so are the protected names in it.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use posse_base::protected;

use crate::protect::place::{self, FOLDER, PlaceKind, Root, Stat, WritableFolder};

/// Maximum size in bytes of a copied file or folder. Both are copied if the quarantine is on
/// another file system.
const COPY_BYTES_MAX: u64 = 64 << 20;
const COPY_ENTRIES_MAX: usize = 10_000;
const COPY_DEPTH_MAX: usize = 32;

/// Maximum length in bytes of the path of a folder whose entries are renamed in place.
const PATH_LENGTH_MAX: usize = 1 << 16;

/// Longest time in which names below a folder are changed. The path of each folder is resolved from the
/// top, which takes long in deep trees.
const RENAME_TIME: Duration = Duration::from_secs(5);

/// Beginning of the names that files and folders get if they cannot be moved to the quarantine.
pub(super) const MOVED_ASIDE: &str = "moved-aside-";

/// Maximum number of characters of the old name in the new one.
const NAME_LETTERS_MAX: usize = 60;

/// Folder of the session for quarantined files. Created on first use.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    path: PathBuf,
    next: u32,
}

impl Quarantine {
    pub(super) fn new(path: PathBuf) -> Quarantine {
        Quarantine { path, next: 1 }
    }

    /// Moves `name` from `folder` to the quarantine; returns its new path. If that fails, renames
    /// it within `folder` to a harmless name and returns this name, without a folder; so are the
    /// protected names in it. Fails with `ENOENT` if `name` does not exist.
    pub(super) fn take(&mut self, folder: &OwnedFd, name: &Path) -> Result<PathBuf, Errno> {
        match self.open() {
            Ok(quarantine) => {
                let new = self.name_for(name);
                match place::move_entry(folder, name, &quarantine, &new) {
                    Ok(()) => {
                        rename_inside(&quarantine, &new);
                        return Ok(self.path.join(new));
                    }
                    Err(Errno::EXDEV) => {
                        let mut left =
                            QuarantineBudget { bytes: COPY_BYTES_MAX, entries: COPY_ENTRIES_MAX };
                        let copied = copy(folder, name, &quarantine, &new, &mut left, 0);
                        if copied.is_ok() && remove(folder, name, 0).is_ok() {
                            rename_inside(&quarantine, &new);
                            return Ok(self.path.join(new));
                        }
                    }
                    Err(Errno::ENOENT) => return Err(Errno::ENOENT),
                    Err(_) => {}
                }
            }
            Err(error) => tracing::warn!(%error, "there is no quarantine"),
        }
        let beside = rename_beside(folder, name)?;
        rename_inside(folder, &beside);
        Ok(beside)
    }

    /// Stores `bytes` in a new file of the quarantine; returns the path of that file.
    pub(super) fn keep(&mut self, name: &Path, bytes: &[u8]) -> Result<PathBuf, Errno> {
        let quarantine = self.open()?;
        let new = self.name_for(name);
        place::replace_file(&quarantine, &new, bytes, 0o600)?;
        Ok(self.path.join(new))
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        match open(&self.path, FOLDER, Mode::empty()) {
            Err(Errno::ENOENT) => {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&self.path)
                    .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
                open(&self.path, FOLDER, Mode::empty())
            }
            opened => opened,
        }
    }

    /// Returns an unused name: a number, and the old name with unusual characters replaced.
    fn name_for(&mut self, name: &Path) -> PathBuf {
        loop {
            let number = self.next;
            self.next += 1;
            let new = PathBuf::from(format!("{number}-{}", plain_name(name)));
            // A resumed session has existing numbers.
            if fs::symlink_metadata(self.path.join(&new)).is_err() {
                return new;
            }
        }
    }
}

/// Gives `name` in `folder` a name that no program interprets, and returns it. A command cannot
/// foresee that name: a link to it would lead to what is moved.
fn rename_beside(folder: &OwnedFd, name: &Path) -> Result<PathBuf, Errno> {
    loop {
        let chance = RandomState::new().hash_one(name);
        let beside = PathBuf::from(format!("{MOVED_ASIDE}{chance:016x}-{}", plain_name(name)));
        if Stat::at(folder, &beside).is_err() {
            place::move_entry(folder, name, folder, &beside)?;
            return Ok(beside);
        }
    }
}

/// Renames what has a protected name, and the `HEAD` of each folder that git accepts as a
/// repository, anywhere below the folder `name`. Otherwise it would take effect there, and each
/// scan would find only the outermost ones. A command decides on the size and the depth, so
/// there is no recursion. Entries that cannot be renamed stay. If it takes
/// longer than [`RENAME_TIME`], the folder loses all permissions instead.
fn rename_inside(folder: &OwnedFd, name: &Path) {
    let Ok(opened) = openat(folder, name, FOLDER | OFlag::O_NOFOLLOW, Mode::empty()) else {
        return;
    };
    let top = Root { path: PathBuf::new(), folder: opened };
    // Breadth first: programs reach the names near the top most easily.
    let mut waiting = VecDeque::from([PathBuf::new()]);
    let begin = Instant::now();
    while let Some(path) = waiting.pop_front() {
        if begin.elapsed() > RENAME_TIME {
            fchmod(&top.folder, Mode::empty()).ok();
            return;
        }
        let below = top.open_readable(&path);
        let listed = below.and_then(|below| Ok((place::list(&below, usize::MAX)?.0, below)));
        let Ok((listed, below)) = listed else { continue };
        let above = protected::fold(path.file_name().unwrap_or_default().as_bytes());
        let names: Vec<_> =
            listed.iter().map(|entry| protected::fold(entry.name.as_bytes())).collect();
        let is_repository =
            protected::is_repository(|part| names.iter().any(|name| **name == *part.as_bytes()));
        for (entry, plain) in listed.iter().zip(&names) {
            let is_protected = protected::is_dot_git(entry.name.as_bytes())
                || protected::class_of(&above, plain).is_some()
                || (is_repository && **plain == *b"head");
            let old = Path::new(&entry.name);
            let renamed = is_protected.then(|| rename_beside(&below, old));
            let name = renamed.and_then(Result::ok).unwrap_or_else(|| old.to_owned());
            if entry.kind == PlaceKind::Folder && path.as_os_str().len() < PATH_LENGTH_MAX {
                waiting.push_back(path.join(name));
            }
        }
    }
}

/// The beginning of `name` with unusual characters replaced.
fn plain_name(name: &Path) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let shown: String = name.to_string_lossy().chars().take(NAME_LETTERS_MAX).map(plain).collect();
    shown.trim_start_matches('.').to_owned()
}

struct QuarantineBudget {
    bytes: u64,
    entries: usize,
}

/// Copies `name` from `folder` to `new` in `to`, with everything below it. Links are copied as
/// links. Fails if a limit is exceeded, or for a pipe, a socket or a device, and leaves an
/// incomplete copy then.
fn copy(
    folder: &OwnedFd,
    name: &Path,
    to: &OwnedFd,
    new: &Path,
    left: &mut QuarantineBudget,
    depth: usize,
) -> Result<(), Errno> {
    left.entries = left.entries.checked_sub(1).ok_or(Errno::EFBIG)?;
    let stat = Stat::at(folder, name)?;
    match stat.kind {
        PlaceKind::File => {
            let bytes = place::read(folder, name, left.bytes)?.ok_or(Errno::EFBIG)?;
            left.bytes -= bytes.len() as u64;
            place::replace_file(to, new, &bytes, 0o600)
        }
        PlaceKind::Link => symlinkat(&*place::link_target(folder, name)?, to, new),
        PlaceKind::Folder if depth < COPY_DEPTH_MAX => {
            let from = openat(folder, name, FOLDER, Mode::empty())?;
            let made = place::make_folder(to, new, 0o700)?;
            let (listed, all) = place::list(&from, left.entries)?;
            for entry in listed {
                let name = Path::new(&entry.name);
                copy(&from, name, &made, name, left, depth + 1)?;
            }
            if all { Ok(()) } else { Err(Errno::EFBIG) }
        }
        // The content of a pipe or a socket cannot be copied.
        PlaceKind::Other => Err(Errno::EOPNOTSUPP),
        PlaceKind::Folder => Err(Errno::EFBIG),
    }
}

/// Removes `name` and everything below it, without following links.
fn remove(folder: &OwnedFd, name: &Path, depth: usize) -> Result<(), Errno> {
    let _writable = WritableFolder::new(folder);
    match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR | Errno::EPERM) if depth <= COPY_DEPTH_MAX => {
            let below = openat(folder, name, FOLDER | OFlag::O_NOFOLLOW, Mode::empty())?;
            for entry in place::list(&below, COPY_ENTRIES_MAX)?.0 {
                remove(&below, Path::new(&entry.name), depth + 1)?;
            }
            unlinkat(folder, name, UnlinkatFlags::RemoveDir)
        }
        removed => removed,
    }
}
