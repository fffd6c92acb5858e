//! Resolution and opening of paths beneath the descriptor of a root.
//!
//! Uses one system call where the kernel supports it. Otherwise walks from folder to folder by
//! descriptor and reads every link itself, so that swapping a link meanwhile has no effect.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use posse_base::paths::normalise;
pub use posse_base::resolved_path::{FOLDER, open_beneath};
use posse_base::secrets::way;

use super::entry::{FileKind, FileStatus};
use super::{Root, entry};

/// Maximum number of symbolic links that are followed for one path, as in kernels.
const LINKS_MAX: u32 = 40;
/// Maximum depth of folders below the root in a stepwise walk, which holds all of them open.
const DEPTH_MAX: usize = 200;

/// Result of resolving a path. The file need not exist; its metadata `entry` is then `None`.
#[derive(Clone)]
pub(super) struct ResolvedPath {
    pub(super) root: usize,
    /// Path relative to the root, without symbolic links; empty for the root itself.
    pub(super) relative: PathBuf,
    pub(super) entry: Option<FileStatus>,
    /// True if the path, a name on the way to it, or the text of a link on the way is that of a
    /// secret.
    pub(super) names_secret: bool,
    /// Number of links on the way.
    links: u32,
    /// Index of the root and path below it, as written, before the first link and behind each one.
    /// Empty without links.
    pub(super) ways: Vec<(usize, PathBuf)>,
}

/// Reason why a path cannot be resolved.
pub(super) enum WalkError {
    /// The path is outside every root, or a link in it leads there.
    Outside,
    /// The system reported an error.
    System(Errno),
}

/// Finds the innermost root that contains `absolute`. Returns its index and the path below it;
/// `None` if the path is in no root.
pub(super) fn root_of<'a>(roots: &[Root], absolute: &'a Path) -> Option<(usize, &'a Path)> {
    roots
        .iter()
        .enumerate()
        .filter_map(|(index, root)| Some((index, absolute.strip_prefix(&root.path).ok()?)))
        .min_by_key(|(_, rest)| rest.as_os_str().len())
}

/// Resolves `path`, which is relative to the root with index `root`. Follows symbolic links whose
/// targets are in a root; any other link is an error.
pub(super) fn resolve(roots: &[Root], root: usize, path: &Path) -> Result<ResolvedPath, WalkError> {
    #[cfg(target_os = "linux")]
    let known = ask_kernel(roots, root, path);
    #[cfg(target_os = "linux")]
    if let Some(place) = known.as_ref().filter(|place| place.relative == path) {
        return Ok(place.clone());
    }
    // The kernel does not tell the names of links on the way.
    let place = resolve_stepwise(roots, root, path)?;
    #[cfg(target_os = "linux")]
    if let Some(known) = known.filter(|_| place.links == 0) {
        // The file system ignores case: the kernel knows the stored spelling.
        return Ok(ResolvedPath { names_secret: place.names_secret, ..known });
    }
    #[cfg(target_os = "macos")]
    let place = restore_spelling(roots, place);
    Ok(place)
}

/// Resolves a path as [`resolve`] does, but always folder by folder, without `openat2`, and on
/// macOS without correcting the spelling.
pub(super) fn resolve_stepwise(
    roots: &[Root],
    root: usize,
    path: &Path,
) -> Result<ResolvedPath, WalkError> {
    let (here, todo) = (Vec::new(), Vec::new());
    let ways = Vec::new();
    let mut walk = Walk { roots, root, here, todo, links: 0, names_secret: false, ways };
    walk.follow(path)?;
    walk.run()
}

/// Replaces the names of an existing file by their stored spelling, for file systems that ignore
/// case: a rule about `.env` has to match when a model writes `.ENV`.
#[cfg(target_os = "macos")]
fn restore_spelling(roots: &[Root], mut place: ResolvedPath) -> ResolvedPath {
    let plain = |entry: &FileStatus| matches!(entry.kind, FileKind::File | FileKind::Folder);
    if place.entry.as_ref().is_some_and(plain) {
        let root = &roots[place.root];
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        let real = open_beneath(&root.directory, &place.relative, flags)
            .map_err(std::io::Error::from)
            .and_then(|found| entry::real_path(&found));
        if let Ok(real) = real
            && let Ok(relative) = real.strip_prefix(&root.path)
        {
            place.relative = relative.to_owned();
        }
    }
    place
}

/// Resolves an existing path within one root by `openat2`, in three system calls. `None` in all
/// other cases; the stepwise walk then decides.
#[cfg(target_os = "linux")]
fn ask_kernel(roots: &[Root], root: usize, path: &Path) -> Option<ResolvedPath> {
    use nix::fcntl::{OpenHow, ResolveFlag, openat2};
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(resolve);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let found = openat2(&roots[root].directory, path, how).ok()?;
    let entry = FileStatus::of(&found).ok()?;
    let real = entry::real_path(&found).ok()?;
    let relative = real.strip_prefix(&roots[root].path).ok()?.to_owned();
    // The path of a removed file reads as one that never existed.
    let names_secret = way::names_secret(path);
    let place = ResolvedPath {
        root,
        relative,
        entry: Some(entry),
        names_secret,
        links: 0,
        ways: Vec::new(),
    };
    (entry.links > 0).then_some(place)
}

/// State of a stepwise walk from a root towards a path.
struct Walk<'a> {
    roots: &'a [Root],
    root: usize,
    /// Open folders below the root on the way to the current position, which is the last one.
    here: Vec<(OsString, OwnedFd)>,
    /// Names that are still to be resolved, the next one last.
    todo: Vec<OsString>,
    links: u32,
    /// As [`ResolvedPath::names_secret`], so far.
    names_secret: bool,
    /// As [`ResolvedPath::ways`], so far.
    ways: Vec<(usize, PathBuf)>,
}

impl Walk<'_> {
    fn run(mut self) -> Result<ResolvedPath, WalkError> {
        while let Some(name) = self.todo.pop() {
            if name == ".." {
                self.here.pop().ok_or(WalkError::Outside)?;
                continue;
            }
            let flags = FOLDER | OFlag::O_NOFOLLOW;
            match openat(self.folder(), name.as_os_str(), flags, Mode::empty()) {
                Ok(_) if self.here.len() >= DEPTH_MAX => {
                    return Err(WalkError::System(Errno::ENAMETOOLONG));
                }
                Ok(folder) => self.here.push((name, folder)),
                Err(Errno::ENOENT) => return self.missing(name),
                Err(Errno::ENOTDIR | Errno::ELOOP) => {
                    if let Some(entry) = self.follow_name(&name)? {
                        return Ok(self.place(Some(name), Some(entry)));
                    }
                }
                Err(errno) => return Err(WalkError::System(errno)),
            }
        }
        let entry = FileStatus::of(self.folder()).map_err(WalkError::System)?;
        Ok(self.place(None, Some(entry)))
    }

    /// Handles `name`, which is not a folder. If it is a symbolic link, adds its target to the
    /// remaining path and returns `None`. If it is a file at the end of the path, returns its
    /// metadata; before the end, a file is an error.
    fn follow_name(&mut self, name: &OsStr) -> Result<Option<FileStatus>, WalkError> {
        let entry = FileStatus::at(self.folder(), Path::new(name)).map_err(WalkError::System)?;
        if entry.kind == FileKind::Link {
            self.links += 1;
            if self.links > LINKS_MAX {
                return Err(WalkError::System(Errno::ELOOP));
            }
            let target = readlinkat(self.folder(), name).map_err(WalkError::System)?;
            self.follow(Path::new(&target))?;
            return Ok(None);
        }
        if self.todo.is_empty() { Ok(Some(entry)) } else { Err(WalkError::System(Errno::ENOTDIR)) }
    }

    /// Prepends `path` to the remaining path, and judges the names of both. An absolute `path` restarts the walk at the root that
    /// contains it; in no root, it is an error.
    fn follow(&mut self, path: &Path) -> Result<(), WalkError> {
        let mut rest = path;
        if path.is_absolute() {
            (self.root, rest) = root_of(self.roots, path).ok_or(WalkError::Outside)?;
            self.here.clear();
        }
        let names = rest.components().rev().filter(|part| *part != Component::CurDir);
        self.todo.extend(names.map(|part| part.as_os_str().to_owned()));
        let here = self.here.iter().map(|(name, _)| name);
        let whole: PathBuf = here.chain(self.todo.iter().rev()).collect();
        self.names_secret |= way::names_secret(&whole);
        self.ways.push((self.root, normalise(&whole)));
        Ok(())
    }

    /// Result of a walk that ends at the missing `name`. The remaining names are appended; `..`
    /// among them is an error.
    fn missing(mut self, name: OsString) -> Result<ResolvedPath, WalkError> {
        let mut rest = PathBuf::from(name);
        while let Some(name) = self.todo.pop() {
            if name == ".." {
                return Err(WalkError::System(Errno::ENOENT));
            }
            rest.push(name);
        }
        Ok(self.place(Some(rest.into_os_string()), None))
    }

    fn place(self, last: Option<OsString>, entry: Option<FileStatus>) -> ResolvedPath {
        let mut relative: PathBuf = self.here.into_iter().map(|(name, _)| name).collect();
        relative.extend(last);
        let Walk { root, links, names_secret, mut ways, .. } = self;
        ways.retain(|way| links > 0 && (way.0 != root || way.1 != relative));
        ResolvedPath { root, relative, entry, names_secret, links, ways }
    }

    fn folder(&self) -> BorrowedFd<'_> {
        self.here.last().map_or(&self.roots[self.root].directory, |(_, folder)| folder).as_fd()
    }
}
