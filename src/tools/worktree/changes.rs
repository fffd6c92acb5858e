//! What was changed in a worktree, compared with what it was made of.
//!
//! Nothing in the worktree is believed: files are reached beneath its descriptor and through no link,
//! whatever the agent made of the folders between.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ignore::WalkBuilder;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, readlinkat};
use nix::sys::stat::Mode;

use crate::failure::printable;
use crate::tools::change::FILE_BYTES_MAX;
use crate::tools::listing::Stop;
use crate::tools::workspace::{Entry, Kind, open_beneath};
use crate::tools::worktree::snapshot::{BASE, BASE_LIST, Based, seen};
use crate::tools::worktree::{TREE, Unavailable, failed};

/// New files that are looked at.
const NEW_MAX: usize = 20_000;
/// What a folder of build output or of a cache has in it.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// What a name stands for on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Nothing.
    Nothing,
    /// A file.
    File {
        /// Whether it may be run.
        exec: bool,
    },
    /// A link.
    Link,
    /// Something else, such as a folder or a pipe.
    Other,
}

/// A file that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Below the working directory, with `/`.
    pub(crate) path: String,
    pub(crate) before: Side,
    pub(crate) after: Side,
}

/// A worktree, opened to be looked at.
#[derive(Debug)]
pub(crate) struct Tree {
    work: OwnedFd,
    base: OwnedFd,
    /// The same as paths, for walking.
    cwd: PathBuf,
    /// What files were, by their path below the working directory.
    based: BTreeMap<String, Based>,
    prefix: PathBuf,
    time: Duration,
}

impl Tree {
    pub(super) fn open(folder: &Path, prefix: &Path, time: Duration) -> Result<Tree, Unavailable> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let opened = |name: &str| {
            open(&folder.join(name), flags, Mode::empty()).map_err(|_| Unavailable::Gone)
        };
        let list = std::fs::read(folder.join(BASE_LIST)).map_err(|_| Unavailable::Gone)?;
        let list: Vec<Based> = serde_json::from_slice(&list).map_err(|_| Unavailable::Gone)?;
        let based = list.into_iter().filter_map(|one| {
            let below = Path::new(&one.path).strip_prefix(prefix).ok()?.to_str()?.to_owned();
            Some((below, one))
        });
        Ok(Tree {
            work: opened(TREE)?,
            base: opened(BASE)?,
            cwd: folder.join(TREE).join(prefix),
            based: based.collect(),
            prefix: prefix.to_owned(),
            time,
        })
    }

    /// Every file that is not what it was, by path. New files that are ignored do not count.
    pub(crate) fn changed(&self) -> Result<Vec<Changed>, Unavailable> {
        let (stop, held) = Stop::after(self.time);
        let mut changed = Vec::new();
        for (path, based) in &self.based {
            if stop.is_due() {
                return Err(Unavailable::TimedOut);
            }
            let before = if based.link { Side::Link } else { Side::File { exec: based.exec } };
            let there = self.there(&self.work, path)?;
            if there.as_ref().is_some_and(|(_, entry)| seen(entry) == based.seen) {
                continue;
            }
            let after = there.map_or(Side::Nothing, |(_, entry)| side(&entry));
            let (path, same) = (path.clone(), before == after);
            let one = Changed { path, before, after };
            if same && self.before(&one)? == self.after(&one)? {
                continue;
            }
            changed.push(one);
        }
        self.find_new(&mut changed, &stop)?;
        drop(held);
        changed.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changed)
    }

    /// Adds files that were not there.
    fn find_new(&self, changed: &mut Vec<Changed>, stop: &Stop) -> Result<(), Unavailable> {
        let mut walk = WalkBuilder::new(&self.cwd);
        walk.hidden(false).require_git(false).follow_links(false).filter_entry(|entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            let is_git = entry.file_name() == ".git";
            let is_cache = is_folder && entry.path().join(CACHE_TAG).symlink_metadata().is_ok();
            entry.depth() == 0 || !(is_git || is_cache)
        });
        let known = changed.len();
        for entry in walk.build().flatten() {
            if stop.is_due() {
                return Err(Unavailable::TimedOut);
            }
            if changed.len() - known > NEW_MAX {
                return Err(Unavailable::TooLarge("20,000 new files"));
            }
            if entry.file_type().is_none_or(|kind| kind.is_dir()) {
                continue;
            }
            // What is no UTF-8 can be neither judged nor written.
            let below = entry.path().strip_prefix(&self.cwd).ok().and_then(Path::to_str);
            let Some(below) = below.filter(|below| !self.based.contains_key(*below)) else {
                continue;
            };
            // The walk goes by names, which may lead elsewhere by now.
            let Some((_, entry)) = self.there(&self.work, below)? else { continue };
            let path = below.to_owned();
            changed.push(Changed { path, before: Side::Nothing, after: side(&entry) });
        }
        Ok(())
    }

    /// What the file was. `None`: there was none.
    pub(crate) fn before(&self, one: &Changed) -> Result<Option<Vec<u8>>, Unavailable> {
        if one.before == Side::Nothing {
            return Ok(None);
        }
        // Links are kept as files with the path in them.
        self.bytes(&self.base, &one.path, Side::File { exec: false })
    }

    /// What it is. `None`: there is none, or it is no file and no link.
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
        let Some((above, entry)) = self.there(root, path)? else { return Ok(None) };
        let name = Path::new(path).file_name().unwrap_or_default();
        match side {
            Side::Link => {
                let target = readlinkat(&above, name).map_err(|errno| wrong(&errno.into()))?;
                Ok(Some(target.as_bytes().to_vec()))
            }
            Side::File { .. } if entry.kind == Kind::File => {
                let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
                let file = open_beneath(&above, Path::new(name), flags);
                let file = File::from(file.map_err(|errno| wrong(&errno.into()))?);
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

    /// The folder of `path`, and what is there.
    fn there(&self, root: &OwnedFd, path: &str) -> Result<Option<(OwnedFd, Entry)>, Unavailable> {
        let gone = |errno: Errno| match errno {
            Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => Ok(None),
            errno => Err(failed(&printable(path), &errno.into())),
        };
        let whole = self.prefix.join(path);
        let above = whole.parent().unwrap_or(Path::new(""));
        let above = match open_beneath(root, above, OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
            Ok(above) => above,
            Err(errno) => return gone(errno),
        };
        match Entry::at(&above, Path::new(whole.file_name().unwrap_or_default())) {
            Ok(entry) => Ok(Some((above, entry))),
            Err(errno) => gone(errno),
        }
    }
}

fn side(entry: &Entry) -> Side {
    match entry.kind {
        Kind::File => Side::File { exec: entry.mode & 0o100 != 0 },
        Kind::Link => Side::Link,
        Kind::Folder | Kind::Pipe | Kind::Socket | Kind::Device => Side::Other,
    }
}
