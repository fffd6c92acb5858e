//! Reads the upper layers of a trial: the files that a command added, changed and deleted.
//!
//! The kernel marks deleted files as character devices 0/0 (whiteouts) and replaced folders with the
//! attribute `user.overlay.opaque`. A command can create neither: the kernel refuses such devices in
//! an overlay and renames the attributes. Redirects and files without content are switched off
//! (`kernel::overlay`), so other marks are an error. Nothing is changed, except that folders which
//! the command made unreadable are made readable in the upper layer.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, openat};
use nix::libc;
use nix::sys::stat::{Mode, fstatat};

use crate::kernel;
use crate::protect::place::{self, FILE, Identity, PlaceKind, Root, Stat};
use crate::trial::{TrialLayer, path_in};

/// Maximum number of changes that are read.
const CHANGES_MAX: usize = 100_000;

/// Maximum length in bytes of a path below a root.
const PATH_BYTES_MAX: usize = 8192;

/// Maximum size in bytes of files that are compared. Larger ones count as changed.
const COMPARED_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of bytes that are compared for one trial.
const COMPARED_TOTAL_MAX: u64 = 1 << 30;

/// Maximum number of entries of one folder.
const ENTRIES_MAX: usize = CHANGES_MAX;

/// Beginning of the names of the attributes with which the kernel marks files of the upper layer.
pub(super) const MARKS: &[u8] = b"user.overlay.";

/// Mark of a folder that hides the folder below it.
const OPAQUE: &[u8] = b"user.overlay.opaque";

/// Marks that change the content of a folder or file. The options of the overlay exclude them.
const STRANGE: [&[u8]; 3] =
    [b"user.overlay.redirect", b"user.overlay.metacopy", b"user.overlay.whiteout"];

/// Changes of a trial, in an order in which they can be applied one after another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrialChanges {
    /// The changes: entries of a deleted folder before the folder, an added folder before its
    /// entries.
    pub changes: Vec<TrialChange>,
    /// False if there are more changes than are read, or deeper ones. Then nothing can be kept.
    pub is_complete: bool,
}

/// Change of one file, folder or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialChange {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Absolute path of the workspace root.
    pub root: PathBuf,
    /// Path below the root.
    pub path: PathBuf,
    /// State in the workspace. `None`: the file does not exist there.
    pub before: Option<FileState>,
    /// State after the command. `None`: it was deleted.
    pub after: Option<FileState>,
    /// True if the file in the workspace was changed by another program while the command ran.
    pub is_stale: bool,
    /// Number of the layer.
    pub(super) layer: usize,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The file did not exist.
    Added,
    /// Content or kind of the file differs.
    Modified,
    /// The file no longer exists.
    Deleted,
    /// Only the permissions differ.
    Mode,
}

impl ChangeKind {
    /// Word for a person and for JSON: `added`, `modified`, `deleted` or `mode`.
    pub fn word(self) -> &'static str {
        match self {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
            ChangeKind::Mode => "mode",
        }
    }
}

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Folder.
    Folder,
    /// Symbolic link.
    Link,
    /// Pipe, socket or device.
    Special,
}

impl FileKind {
    /// Word for JSON: `file`, `folder`, `link` or `special`.
    pub fn word(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Folder => "folder",
            FileKind::Link => "link",
            FileKind::Special => "special",
        }
    }
}

/// State of a file at the end of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Kind of the file.
    pub kind: FileKind,
    /// Permissions, without the bits for set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    pub(super) stat: Stat,
}

impl TrialChange {
    /// Creates a change at a root and a path below it, which belongs to no trial.
    pub fn new(
        kind: ChangeKind,
        (root, path): (&Path, &Path),
        before: Option<FileState>,
        after: Option<FileState>,
    ) -> TrialChange {
        let (root, path) = (root.to_owned(), path.to_owned());
        TrialChange { kind, root, path, before, after, is_stale: false, layer: 0 }
    }
}

impl FileState {
    /// Creates the state of a file that belongs to no trial.
    pub fn new(kind: FileKind, mode: u32, size: u64) -> FileState {
        let kind_of_place = match kind {
            FileKind::File => PlaceKind::File,
            FileKind::Folder => PlaceKind::Folder,
            FileKind::Link => PlaceKind::Link,
            FileKind::Special => PlaceKind::Other,
        };
        let identity = Identity { device: 0, inode: 0 };
        let kind = kind_of_place;
        let (changed, modified) = ((0, 0), (0, 0));
        FileState::of(Stat { identity, kind, mode, size, links: 1, changed, modified })
    }

    pub(super) fn of(stat: Stat) -> FileState {
        let kind = match stat.kind {
            PlaceKind::File => FileKind::File,
            PlaceKind::Folder => FileKind::Folder,
            PlaceKind::Link => FileKind::Link,
            PlaceKind::Other => FileKind::Special,
        };
        FileState { kind, mode: stat.mode & 0o777, size: stat.size, stat }
    }
}

/// Reads the changes in all `layers`, and marks files that were changed in the workspace since
/// `begun`. Fails if a layer or the workspace below it cannot be read.
pub(super) fn read(layers: &[TrialLayer], begun: (i64, i64)) -> io::Result<TrialChanges> {
    let mut found = TrialChanges { changes: Vec::new(), is_complete: true };
    let mut budget = COMPARED_TOTAL_MAX;
    for (number, layer) in layers.iter().enumerate() {
        let lower = Root::open(&layer.root)?;
        let now = Stat::at(&lower.folder, Path::new(""))?.identity;
        if now != layer.identity {
            return Err(io::Error::other("the workspace folder was replaced"));
        }
        let mut reader = LayerReader {
            number,
            root: &layer.root,
            upper: Root::open(&layer.upper)?,
            lower,
            begun,
            budget: &mut budget,
            found: &mut found,
            folders: Vec::new(),
        };
        reader.folders.push(Merged { path: PathBuf::new(), has_lower: true, is_opaque: false });
        reader.read()?;
    }
    Ok(found)
}

/// Folder of the upper layer that is still to be read.
struct Merged {
    path: PathBuf,
    /// True if the workspace has a folder at this path.
    has_lower: bool,
    /// True if the command does not see that folder.
    is_opaque: bool,
}

struct LayerReader<'a> {
    number: usize,
    root: &'a Path,
    upper: Root,
    lower: Root,
    begun: (i64, i64),
    /// Number of bytes that may still be compared.
    budget: &'a mut u64,
    found: &'a mut TrialChanges,
    folders: Vec<Merged>,
}

impl LayerReader<'_> {
    fn read(&mut self) -> io::Result<()> {
        while let Some(folder) = self.folders.pop() {
            if !self.found.is_complete {
                return Ok(());
            }
            self.read_folder(&folder)?;
        }
        Ok(())
    }

    fn read_folder(&mut self, folder: &Merged) -> io::Result<()> {
        let upper = self.upper.open_readable(&folder.path)?;
        let is_opaque = folder.is_opaque || is_opaque(&upper)?;
        let lower = folder.has_lower.then(|| self.lower.open_folder(&folder.path)).transpose()?;
        let (mut entries, is_whole) = place::list(&upper, ENTRIES_MAX)?;
        self.found.is_complete &= is_whole;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in &entries {
            let name = Path::new(&entry.name);
            let before = lower.as_ref().and_then(|lower| Stat::at(lower, name).ok());
            let path = folder.path.join(name);
            if path.as_os_str().len() > PATH_BYTES_MAX {
                self.found.is_complete = false;
                return Ok(());
            }
            // The kernel knows the kind of most entries without their status.
            if entry.kind == PlaceKind::Other && is_whiteout(&upper, name)? {
                if let Some(before) = before {
                    self.add_deleted(path, before)?;
                }
                continue;
            }
            let after = Stat::at(&upper, name)?;
            self.add_present((&upper, lower.as_ref(), name), path, before, after, is_opaque)?;
        }
        let Some(lower) = lower.filter(|_| is_opaque) else { return Ok(()) };
        let (mut hidden, is_whole) = place::list(&lower, ENTRIES_MAX)?;
        self.found.is_complete &= is_whole;
        hidden.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in hidden {
            if entries.binary_search_by(|known| known.name.cmp(&entry.name)).is_err() {
                let before = Stat::at(&lower, Path::new(&entry.name))?;
                self.add_deleted(folder.path.join(&entry.name), before)?;
            }
        }
        Ok(())
    }

    /// Adds the change of an entry of the upper layer that is not a whiteout.
    fn add_present(
        &mut self,
        (upper, lower, name): (&OwnedFd, Option<&OwnedFd>, &Path),
        path: PathBuf,
        before: Option<Stat>,
        after: Stat,
        is_opaque: bool,
    ) -> io::Result<()> {
        let is_folder = after.kind == PlaceKind::Folder;
        let was_folder = before.is_some_and(|before| before.kind == PlaceKind::Folder);
        if is_folder && was_folder {
            if before.is_some_and(|before| before.mode & 0o777 != after.mode & 0o777) {
                self.add(ChangeKind::Mode, path.clone(), before, Some(after));
            }
            self.folders.push(Merged { path, has_lower: true, is_opaque });
            return Ok(());
        }
        if is_folder || was_folder {
            if let Some(before) = before {
                self.add_deleted(path.clone(), before)?;
            }
            self.add(ChangeKind::Added, path.clone(), None, Some(after));
            if is_folder {
                self.folders.push(Merged { path, has_lower: false, is_opaque: false });
            }
            return Ok(());
        }
        if after.kind == PlaceKind::File {
            check_marks(upper, name)?;
        }
        let (Some(before), Some(lower)) = (before, lower) else {
            self.add(ChangeKind::Added, path, None, Some(after));
            return Ok(());
        };
        if !self.is_same(upper, lower, name, (before, after)) {
            self.add(ChangeKind::Modified, path, Some(before), Some(after));
        } else if before.mode & 0o777 != after.mode & 0o777 {
            self.add(ChangeKind::Mode, path, Some(before), Some(after));
        }
        Ok(())
    }

    /// Adds the deletion of an entry of the workspace, after those of everything in it.
    fn add_deleted(&mut self, path: PathBuf, before: Stat) -> io::Result<()> {
        // A folder is visited twice: its entries are added in between.
        let mut waiting = vec![(path, before, false)];
        while let Some((path, before, is_emptied)) = waiting.pop() {
            if before.kind != PlaceKind::Folder || is_emptied {
                self.add(ChangeKind::Deleted, path, Some(before), None);
                if !self.found.is_complete {
                    return Ok(());
                }
                continue;
            }
            if path.as_os_str().len() > PATH_BYTES_MAX || waiting.len() > CHANGES_MAX {
                self.found.is_complete = false;
                return Ok(());
            }
            let folder = self.lower.open_folder(&path)?;
            let (mut entries, is_whole) = place::list(&folder, ENTRIES_MAX)?;
            self.found.is_complete &= is_whole;
            entries.sort_by(|one, other| other.name.cmp(&one.name));
            waiting.push((path.clone(), before, true));
            for entry in entries {
                let stat = Stat::at(&folder, Path::new(&entry.name))?;
                waiting.push((path.join(&entry.name), stat, false));
            }
        }
        Ok(())
    }

    fn add(&mut self, kind: ChangeKind, path: PathBuf, before: Option<Stat>, after: Option<Stat>) {
        if self.found.changes.len() >= CHANGES_MAX {
            self.found.is_complete = false;
            return;
        }
        // The time of a folder changes with its entries.
        let is_new =
            |before: Stat| before.kind != PlaceKind::Folder && before.changed >= self.begun;
        self.found.changes.push(TrialChange {
            kind,
            root: self.root.to_owned(),
            path,
            before: before.map(FileState::of),
            after: after.map(FileState::of),
            is_stale: before.is_some_and(is_new),
            layer: self.number,
        });
    }

    /// True if both files or links have the same content. False if that is not known.
    fn is_same(
        &mut self,
        upper: &OwnedFd,
        lower: &OwnedFd,
        name: &Path,
        (before, after): (Stat, Stat),
    ) -> bool {
        if before.kind != after.kind || before.size != after.size {
            return false;
        }
        match after.kind {
            PlaceKind::Link => {
                let targets = [upper, lower].map(|folder| place::link_target(folder, name).ok());
                targets[0].is_some() && targets[0] == targets[1]
            }
            PlaceKind::File if after.size <= COMPARED_BYTES_MAX.min(*self.budget) => {
                *self.budget -= after.size;
                let opened = [upper, lower].map(|folder| openat(folder, name, FILE, Mode::empty()));
                match opened {
                    [Ok(one), Ok(other)] => is_equal(one.into(), other.into()).unwrap_or(false),
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

fn is_equal(one: File, other: File) -> io::Result<bool> {
    let (mut first, mut second) = (vec![0; 64 << 10], Vec::with_capacity(64 << 10));
    let (mut one, mut other) = (one.take(COMPARED_BYTES_MAX), other.take(COMPARED_BYTES_MAX));
    loop {
        let length = one.read(&mut first)?;
        second.clear();
        let wanted = if length == 0 { 1 } else { length };
        other.by_ref().take(wanted as u64).read_to_end(&mut second)?;
        if second != first[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

/// True if `name` is the mark of a deleted file.
fn is_whiteout(folder: &OwnedFd, name: &Path) -> Result<bool, Errno> {
    let stat = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == 0)
}

/// True if `folder` of the upper layer hides the folder below it. Fails if it has a strange mark.
fn is_opaque(folder: &OwnedFd) -> io::Result<bool> {
    let path = path_in(folder, Path::new("."));
    let marks = kernel::attributes(&path, MARKS)?;
    if let Some(strange) = marks.iter().find(|mark| STRANGE.contains(&mark.to_bytes())) {
        return Err(strange_mark(strange.to_bytes()));
    }
    let Some(mark) = marks.iter().find(|mark| mark.to_bytes() == OPAQUE) else { return Ok(false) };
    match kernel::short_attribute(&path, mark)?.as_deref() {
        Some(b"y") => Ok(true),
        _ => Err(strange_mark(OPAQUE)),
    }
}

/// Fails if the file `name` has a mark that the options of the overlay exclude.
fn check_marks(folder: &OwnedFd, name: &Path) -> io::Result<()> {
    let marks = kernel::attributes(&path_in(folder, name), MARKS)?;
    let strange = marks.iter().find(|mark| STRANGE.contains(&mark.to_bytes()));
    strange.map_or(Ok(()), |mark| Err(strange_mark(mark.to_bytes())))
}

fn strange_mark(mark: &[u8]) -> io::Error {
    let mark = String::from_utf8_lossy(mark);
    io::Error::other(format!("the kernel has used the unexpected mark {mark}"))
}

/// Content of a file before or after a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialContent {
    /// There is no file, or it is a folder.
    Absent,
    /// The bytes of a regular file, or the target of a link.
    Bytes(Vec<u8>),
    /// It is larger than asked for, cannot be read, or is neither a file nor a link.
    Unknown,
}

/// Reads the content of the file `path` below `root`, whose state is `state`, up to `bytes_max`
/// bytes.
pub(super) fn content(
    root: &Root,
    path: &Path,
    state: Option<&FileState>,
    bytes_max: u64,
) -> TrialContent {
    let Some(state) = state.filter(|state| state.kind != FileKind::Folder) else {
        return TrialContent::Absent;
    };
    let read = || {
        let (folder, name) = root.open_parent(path).ok()?;
        match state.kind {
            FileKind::File => place::read(&folder, name, bytes_max).ok().flatten(),
            FileKind::Link => {
                place::link_target(&folder, name).ok().map(OsString::into_encoded_bytes)
            }
            FileKind::Folder | FileKind::Special => None,
        }
    };
    read().map_or(TrialContent::Unknown, TrialContent::Bytes)
}
