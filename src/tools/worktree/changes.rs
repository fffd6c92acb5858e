//! Changes in a worktree compared with its base.
//!
//! The content of the worktree is untrusted: files are opened beneath its descriptor without
//! following links, whatever the agent did with the folders.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ignore::WalkBuilder;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, readlinkat};
use nix::sys::stat::Mode;
use posse_base::failure::printable;
use posse_base::ignore_files::{self, IgnoreScope};

use crate::change::FILE_BYTES_MAX;
use crate::listing::Stop;
use crate::workspace::{FOLDER, FileKind, FileStatus, open_beneath};
use crate::worktree::snapshot::{BASE, BASE_LIST, Based, change_stamp};
use crate::worktree::{TREE, Unavailable, failed, load};

/// Time limit for comparing a worktree.
const LOOKING_MAX: Duration = Duration::from_secs(20);

fn comparing_timed_out() -> Unavailable {
    Unavailable::TimedOut { action: "comparing the worktree", limit: LOOKING_MAX }
}
/// Maximum number of new files that are found. More are an error.
const NEW_MAX: usize = 20_000;
/// Name of the file that marks a folder with reproducible content (<https://bford.info/cachedir/>).
/// Such a file begins with `CACHE_SIGNATURE`.
const CACHE_TAG: &str = "CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
/// Maximum number of left-out files that are counted.
const LEFT_OUT_MAX: usize = 1000;
/// Maximum number of left-out files that are listed.
const LEFT_OUT_NAMED_MAX: usize = 20;

/// State of a path on one side: in the base or in the worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The path does not exist.
    Nothing,
    /// The path is a file.
    File {
        /// True if the owner may execute the file.
        exec: bool,
    },
    /// The path is a symbolic link.
    Link,
    /// The path is of another kind, such as a folder or a pipe.
    Other,
}

/// A changed file, with its state in the base (`before`) and in the worktree (`after`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Path relative to the working directory, with `/`.
    pub(crate) path: String,
    pub(crate) before: Side,
    pub(crate) after: Side,
}

impl Changed {
    fn new_file(path: &str, entry: &FileStatus) -> Changed {
        Changed { path: path.to_owned(), before: Side::Nothing, after: side(entry) }
    }
}

/// New files that a merge leaves out unless its caller names them: git ignores them, or their names
/// cannot be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Number of these files, counted up to 1,000 and up to the time limit. Files in marked cache
    /// folders are not counted.
    pub(crate) count: usize,
    /// Paths of the first 20 of these files, escaped.
    pub(crate) named: Vec<String>,
}

/// Changes in a worktree compared with its base.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorktreeChanges {
    /// All changed files except those in `left_out`, sorted by path.
    pub(crate) changed: Vec<Changed>,
    pub(crate) left_out: LeftOut,
}

/// A worktree and its base, opened for comparison.
#[derive(Debug)]
pub(crate) struct OpenWorktree {
    work: OwnedFd,
    base: OwnedFd,
    /// Path of the top folder, for walking. `cwd` is the path of the working directory, also for
    /// walking.
    top: PathBuf,
    cwd: PathBuf,
    /// Base state of each file, by path relative to the working directory.
    based: BTreeMap<String, Based>,
    prefix: PathBuf,
}

impl OpenWorktree {
    pub(super) fn open(folder: &Path, prefix: &Path) -> Result<OpenWorktree, Unavailable> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let opened = |name: &str| {
            open(&folder.join(name), flags, Mode::empty()).map_err(|_| Unavailable::Gone)
        };
        let list: Vec<Based> = load(&folder.join(BASE_LIST))?;
        let based = list.into_iter().filter_map(|one| {
            let below = Path::new(&one.path).strip_prefix(prefix).ok()?.to_str()?.to_owned();
            Some((below, one))
        });
        Ok(OpenWorktree {
            work: opened(TREE)?,
            base: opened(BASE)?,
            top: folder.join(TREE),
            cwd: folder.join(TREE).join(prefix),
            based: based.collect(),
            prefix: prefix.to_owned(),
        })
    }

    /// True if the working directory is a folder of the worktree, without a link on the way.
    pub(super) fn has_working_directory(&self) -> bool {
        open_beneath(&self.work, &self.prefix, FOLDER).is_ok()
    }

    /// Finds all changes below the working directory. Fails at the time limit, with too many new
    /// files, or if a file that may have changed is larger than 64 MiB.
    pub(crate) fn all_changes(&self) -> Result<WorktreeChanges, Unavailable> {
        let (stop, _held) = Stop::after(LOOKING_MAX);
        let mut changed = Vec::new();
        for (path, based) in &self.based {
            if stop.is_due() {
                return Err(comparing_timed_out());
            }
            changed.extend(self.compared(path, based)?);
        }
        // Other files may be elsewhere.
        if !self.has_working_directory() {
            return Ok(WorktreeChanges { changed, left_out: LeftOut::default() });
        }
        self.find_new(&mut changed, &stop)?;
        changed.sort_by(|a, b| a.path.cmp(&b.path));
        let left_out = self.find_left_out(&changed, &stop);
        Ok(WorktreeChanges { changed, left_out })
    }

    /// Compares the file `path` with its base. `None` if it is unchanged, exists on neither side,
    /// is a new folder, or if the path contains `.git` or `..`. A new file is found even if git
    /// ignores it.
    pub(crate) fn one(&self, path: &str) -> Result<Option<Changed>, Unavailable> {
        if let Some(based) = self.based.get(path) {
            return self.compared(path, based);
        }
        let is_plain =
            |part| matches!(part, Component::Normal(name) if !name.eq_ignore_ascii_case(".git"));
        if path.is_empty() || !Path::new(path).components().all(is_plain) {
            return Ok(None);
        }
        let Some((_, entry)) = self.folder_and_status(&self.work, path)? else { return Ok(None) };
        Ok((entry.kind != FileKind::Folder).then(|| Changed::new_file(path, &entry)))
    }

    /// Reads the current state and content of the file `path`, to make them its new base. `None` if
    /// it is missing, or neither a file nor a link.
    pub(super) fn based_now(&self, path: &str) -> Result<Option<(Based, Vec<u8>)>, Unavailable> {
        let Some((_, entry)) = self.folder_and_status(&self.work, path)? else { return Ok(None) };
        let one = Changed::new_file(path, &entry);
        let Some(bytes) = self.after(&one)? else { return Ok(None) };
        let based = Based {
            path: self.prefix.join(path).to_string_lossy().into_owned(),
            link: one.after == Side::Link,
            exec: one.after == Side::File { exec: true },
            seen: change_stamp(&entry),
        };
        Ok(Some((based, bytes)))
    }

    fn compared(&self, path: &str, based: &Based) -> Result<Option<Changed>, Unavailable> {
        let before = if based.link { Side::Link } else { Side::File { exec: based.exec } };
        let there = self.folder_and_status(&self.work, path)?;
        if there.as_ref().is_some_and(|(_, entry)| change_stamp(entry) == based.seen) {
            return Ok(None);
        }
        let after = there.map_or(Side::Nothing, |(_, entry)| side(&entry));
        let one = Changed { path: path.to_owned(), before, after };
        let is_same = before == after && self.before(&one)? == self.after(&one)?;
        Ok((!is_same).then_some(one))
    }

    /// Adds the new files that git does not ignore to `changed`.
    fn find_new(&self, changed: &mut Vec<Changed>, stop: &Stop) -> Result<(), Unavailable> {
        let cwd = self.cwd.clone();
        let walk = ignore_files::walk(&self.top, IgnoreScope::Repository, move |entry| {
            let on_the_way = cwd.starts_with(entry.path()) || entry.path().starts_with(&cwd);
            on_the_way && entry.file_name() != ".git"
        });
        let known = changed.len();
        for entry in walk.build().flatten() {
            if stop.is_due() {
                return Err(comparing_timed_out());
            }
            if changed.len() - known > NEW_MAX {
                return Err(Unavailable::TooLarge("20,000 new files"));
            }
            if entry.file_type().is_none_or(|kind| kind.is_dir()) {
                continue;
            }
            // A name that is not UTF-8 can be neither judged nor written, so it is left out.
            let below = entry.path().strip_prefix(&self.cwd).ok().and_then(Path::to_str);
            let Some(below) = below.filter(|below| !self.based.contains_key(*below)) else {
                continue;
            };
            // The walk uses names, which may have been replaced since.
            let Some((_, entry)) = self.folder_and_status(&self.work, below)? else { continue };
            changed.push(Changed::new_file(below, &entry));
        }
        Ok(())
    }

    /// Finds the new files that are not in `changed`, such as files that git ignores. Skips marked
    /// cache folders.
    pub(super) fn find_left_out(&self, changed: &[Changed], stop: &Stop) -> LeftOut {
        let known: BTreeSet<PathBuf> = changed.iter().map(|one| self.cwd.join(&one.path)).collect();
        let based = self.based.keys().map(|path| self.cwd.join(path));
        let known: Arc<BTreeSet<PathBuf>> = Arc::new(known.into_iter().chain(based).collect());
        let mut walk = WalkBuilder::new(&self.cwd);
        walk.standard_filters(false).follow_links(false).sort_by_file_name(Ord::cmp);
        let (top, seen) = (self.top.join(".git"), Arc::clone(&known));
        walk.filter_entry(move |entry| {
            let tag = entry.path().join(CACHE_TAG);
            let is_cache = entry.depth() > 0 && !seen.contains(&tag) && is_cache_tag(&tag);
            entry.path() != top && !is_cache
        });
        let mut left_out = LeftOut::default();
        for entry in walk.build() {
            let path = match &entry {
                Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_dir()) => continue,
                Ok(entry) if known.contains(entry.path()) => continue,
                Ok(entry) => match entry.path().strip_prefix(&self.cwd) {
                    Ok(path) if self.is_entry(path) => path,
                    // The walk uses names: a link leads elsewhere.
                    _ => continue,
                },
                // Its content is unknown.
                Err(_) => Path::new("(what cannot be read)"),
            };
            left_out.count += 1;
            if left_out.named.len() < LEFT_OUT_NAMED_MAX {
                left_out.named.push(printable(&path.to_string_lossy()));
            }
            if left_out.count >= LEFT_OUT_MAX || stop.is_due() {
                break;
            }
        }
        left_out
    }

    /// True if `path`, which is relative to the working directory, is an entry of a folder of the
    /// worktree below the working directory.
    fn is_entry(&self, path: &Path) -> bool {
        path.file_name().is_some() && entry_at(&self.work, &self.prefix.join(path)).is_ok()
    }

    /// Reads the content of the file in the base; of a link, its target. `None` if the base does
    /// not contain the file.
    pub(crate) fn before(&self, one: &Changed) -> Result<Option<Vec<u8>>, Unavailable> {
        if one.before == Side::Nothing {
            return Ok(None);
        }
        // Links are stored as files that contain the target path.
        self.bytes(&self.base, &one.path, Side::File { exec: false })
    }

    /// Reads the content of the file in the worktree; of a link, its target. `None` if it is
    /// missing, or neither a file nor a link.
    pub(crate) fn after(&self, one: &Changed) -> Result<Option<Vec<u8>>, Unavailable> {
        self.bytes(&self.work, &one.path, one.after)
    }

    fn bytes(
        &self,
        root: &OwnedFd,
        path: &str,
        side: Side,
    ) -> Result<Option<Vec<u8>>, Unavailable> {
        let wrong = |error: &io::Error| failed(&printable(path), error);
        let Some((above, entry)) = self.folder_and_status(root, path)? else { return Ok(None) };
        let name = Path::new(path).file_name().unwrap_or_default();
        match side {
            Side::Link => {
                let target = readlinkat(&above, name).map_err(|errno| wrong(&errno.into()))?;
                Ok(Some(target.as_bytes().to_vec()))
            }
            Side::File { .. } if entry.kind == FileKind::File => {
                let file = open_in(&above, name).map_err(|errno| wrong(&errno.into()))?;
                let mut bytes = Vec::new();
                file.take(FILE_BYTES_MAX + 1)
                    .read_to_end(&mut bytes)
                    .map_err(|error| wrong(&error))?;
                if bytes.len() as u64 > FILE_BYTES_MAX {
                    let what = format!("{} is larger than 64 MiB", printable(path));
                    return Err(Unavailable::Failed(what));
                }
                Ok(Some(bytes))
            }
            Side::File { .. } | Side::Nothing | Side::Other => Ok(None),
        }
    }

    /// Opens the folder of `path` beneath `root`, and reads the metadata of the file. `path` is
    /// relative to the working directory. `None` if the file is missing or a folder on the way is a
    /// link.
    fn folder_and_status(
        &self,
        root: &OwnedFd,
        path: &str,
    ) -> Result<Option<(OwnedFd, FileStatus)>, Unavailable> {
        match entry_at(root, &self.prefix.join(path)) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
            Err(errno) => Err(failed(&printable(path), &errno.into())),
        }
    }
}

/// Opens the folder of `path` beneath `root` without following links, and reads the metadata of the
/// file.
pub(super) fn entry_at(root: &OwnedFd, path: &Path) -> Result<(OwnedFd, FileStatus), Errno> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let folder = open_beneath(root, folder, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    let entry = FileStatus::at(&folder, Path::new(path.file_name().unwrap_or_default()))?;
    Ok((folder, entry))
}

/// Opens the file `name` in `folder` for reading, without following links and without blocking.
pub(super) fn open_in(folder: &OwnedFd, name: &OsStr) -> Result<File, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    open_beneath(folder, Path::new(name), flags).map(File::from)
}

/// Returns true if the file `path` marks its folder as reproducible: it begins with
/// `CACHE_SIGNATURE`.
fn is_cache_tag(path: &Path) -> bool {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let Ok(file) = open(path, flags, Mode::empty()) else { return false };
    let mut begins = Vec::new();
    let read = File::from(file).take(CACHE_SIGNATURE.len() as u64).read_to_end(&mut begins);
    read.is_ok() && begins == CACHE_SIGNATURE
}

fn side(entry: &FileStatus) -> Side {
    match entry.kind {
        FileKind::File => Side::File { exec: entry.is_executable() },
        FileKind::Link => Side::Link,
        FileKind::Folder | FileKind::Pipe | FileKind::Socket | FileKind::Device => Side::Other,
    }
}
