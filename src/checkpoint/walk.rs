//! Walks the roots: finds the files that a checkpoint stores, with their stamps.
//!
//! Folders are opened below the descriptor of their root and no link is followed, so a folder that
//! is replaced meanwhile does not lead elsewhere. Several threads share the folders.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nix::dir::Type;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::fstatat;
use posse_base::ignore_files::GitIgnoreRules;
use posse_base::remove_tree::read_entries;
use posse_base::secrets::is_secret;
use posse_tools::workspace::{Workspace, open_beneath};

use crate::entry::Stamp;
use crate::record::LeftOut;

/// Maximum number of threads of a walk.
const THREADS_MAX: usize = 4;

/// Maximum depth of folders below a root. Deeper ones are left out.
const DEPTH_MAX: usize = 200;

/// Files in a git folder that are stored: what is checked out, and the state of a merge.
const GIT_FILES: [&str; 9] = [
    "HEAD",
    "ORIG_HEAD",
    "MERGE_HEAD",
    "MERGE_MSG",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "packed-refs",
    "index",
    "shallow",
];

/// Limits of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkLimits {
    /// Maximum size of a stored file in bytes.
    pub(crate) file_bytes_max: u64,
    /// Maximum number of stored files. Of more, those whose paths come last are left out.
    pub(crate) files_max: usize,
}

/// File that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFile {
    /// Path relative to the root.
    pub(crate) path: Box<[u8]>,
    pub(crate) stamp: Stamp,
    /// True if the file has several names, so that one of them may be that of a secret.
    pub(crate) has_links: bool,
}

/// Result of a walk.
#[derive(Debug, Default)]
pub(crate) struct WorkspaceScan {
    /// Files of each root, sorted by path.
    pub(crate) roots: Vec<Vec<FoundFile>>,
    /// Git folders with objects: index of the root, and path of the folder below it.
    pub(crate) repositories: Vec<(usize, PathBuf)>,
    pub(crate) left_out: LeftOut,
}

/// Content of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Folder {
    /// Files of the workspace.
    Plain,
    /// A git folder: `.git`, or that of a submodule.
    Git,
    /// Refs of a git folder.
    Refs,
    /// `modules` of a git folder: git folders of submodules, in folders of any depth.
    Modules,
}

struct Job {
    root: usize,
    path: PathBuf,
    folder: Folder,
    rules: GitIgnoreRules,
}

#[derive(Default)]
struct Shared {
    open: Vec<Job>,
    /// Number of threads that may still add jobs.
    working: usize,
}

/// Walks all roots of the workspace.
pub(crate) fn walk(workspace: &Workspace, limits: WalkLimits) -> WorkspaceScan {
    let roots: Vec<&Path> = workspace.roots().collect();
    let open = roots.iter().enumerate().map(|(root, path)| Job {
        root,
        path: PathBuf::new(),
        folder: Folder::Plain,
        rules: GitIgnoreRules::of_root(path),
    });
    let shared = Mutex::new(Shared { open: open.collect(), working: 0 });
    let wake = Condvar::new();
    let walker = Walker { workspace, roots: &roots, limits, shared: &shared, wake: &wake };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let mut parts: Vec<Part> = Vec::new();
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, || walker.work()).ok())
            .collect();
        parts.push(walker.work());
        parts.extend(others.into_iter().filter_map(|other| other.join().ok()));
    });
    combine(parts, roots.len(), limits)
}

fn combine(parts: Vec<Part>, roots: usize, limits: WalkLimits) -> WorkspaceScan {
    let mut scan = WorkspaceScan {
        roots: (0..roots).map(|_| Vec::new()).collect(),
        ..WorkspaceScan::default()
    };
    for part in parts {
        for (root, files) in part.files.into_iter().enumerate() {
            if scan.roots[root].is_empty() {
                scan.roots[root] = files;
            } else {
                scan.roots[root].extend(files);
            }
        }
        scan.repositories.extend(part.repositories);
        scan.left_out.add(part.left_out);
    }
    scan.repositories.sort();
    let mut room = limits.files_max;
    for files in &mut scan.roots {
        files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let beyond = files.len().saturating_sub(room);
        scan.left_out.beyond_limit += beyond;
        files.truncate(room);
        room -= files.len();
    }
    scan.left_out.sort();
    scan
}

/// Files that one thread has found.
#[derive(Default)]
struct Part {
    files: Vec<Vec<FoundFile>>,
    repositories: Vec<(usize, PathBuf)>,
    left_out: LeftOut,
}

struct Walker<'a> {
    workspace: &'a Workspace,
    roots: &'a [&'a Path],
    limits: WalkLimits,
    shared: &'a Mutex<Shared>,
    wake: &'a Condvar,
}

impl Walker<'_> {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> Part {
        let mut part = Part { files: vec![Vec::new(); self.roots.len()], ..Part::default() };
        let mut found = Vec::new();
        loop {
            let job = {
                let mut shared = self.lock();
                loop {
                    if let Some(job) = shared.open.pop() {
                        shared.working += 1;
                        break job;
                    }
                    if shared.working == 0 {
                        return part;
                    }
                    shared = self.wake.wait(shared).unwrap_or_else(PoisonError::into_inner);
                }
            };
            // Also if the folder cannot be read, the others must not wait for its jobs.
            self.read_folder(job, &mut part, &mut found);
            let mut shared = self.lock();
            shared.working -= 1;
            shared.open.append(&mut found);
            self.wake.notify_all();
        }
    }

    fn read_folder(&self, job: Job, part: &mut Part, found: &mut Vec<Job>) {
        let Some(root) = self.workspace.root_directory(job.root) else { return };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        let opened = open_beneath(root, &job.path, flags);
        let entries = opened.and_then(|folder| {
            let entries = read_entries(&folder)?;
            Ok((folder, entries))
        });
        let Ok((folder, entries)) = entries else {
            // A folder that is gone needs no mention.
            if self.roots[job.root].join(&job.path).symlink_metadata().is_ok() {
                part.left_out.unreadable(job.path.as_os_str().as_bytes());
            }
            return;
        };
        let absolute = self.roots[job.root].join(&job.path);
        let has = |wanted: &str| entries.iter().any(|(name, _)| name == wanted);
        let is_plain = job.folder == Folder::Plain;
        // The rules of a root are complete.
        let rules =
            if is_plain && !job.path.as_os_str().is_empty() && (has(".gitignore") || has(".git")) {
                job.rules.of_folder(&absolute)
            } else {
                job.rules.clone()
            };
        let is_git = match job.folder {
            Folder::Git => true,
            Folder::Modules => has("HEAD") && has("objects"),
            Folder::Plain | Folder::Refs => false,
        };
        let mut reading = FolderReader { walker: self, job, rules, folder, absolute, part, found };
        for (name, kind) in entries {
            reading.take(&name, kind, is_git);
        }
    }
}

struct FolderReader<'a, 'b> {
    walker: &'a Walker<'b>,
    job: Job,
    rules: GitIgnoreRules,
    folder: OwnedFd,
    absolute: PathBuf,
    part: &'a mut Part,
    found: &'a mut Vec<Job>,
}

impl FolderReader<'_, '_> {
    fn take(&mut self, name: &OsStr, kind: Option<Type>, is_git: bool) {
        match kind {
            Some(Type::Directory) => self.take_folder(name, is_git),
            Some(Type::File | Type::Symlink) => self.take_file(name, None, is_git),
            Some(_) if self.job.folder == Folder::Plain => self.part.left_out.special += 1,
            Some(_) => {}
            // Some file systems do not tell.
            None => {
                let stat = fstatat(self.folder.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW).ok();
                if stat.is_some_and(|stat| stat.st_mode & 0o170_000 == 0o040_000) {
                    self.take_folder(name, is_git);
                } else {
                    self.take_file(name, stat, is_git);
                }
            }
        }
    }

    fn take_folder(&mut self, name: &OsStr, is_git: bool) {
        let path = self.job.path.join(name);
        let folder = match (self.job.folder, name.as_bytes()) {
            (Folder::Plain, b".git") => Folder::Git,
            (Folder::Plain, _) => {
                if self.rules.is_ignored(&self.absolute.join(name), true) {
                    return;
                }
                Folder::Plain
            }
            (Folder::Refs, _) => Folder::Refs,
            (_, b"refs" | b"reftable") if is_git => Folder::Refs,
            (_, b"modules") if is_git => Folder::Modules,
            (_, b"objects") if is_git => {
                self.part.repositories.push((self.job.root, self.job.path.clone()));
                return;
            }
            (Folder::Modules, _) if !is_git => Folder::Modules,
            _ => return,
        };
        if path.components().count() > DEPTH_MAX {
            return self.part.left_out.unreadable(path.as_os_str().as_bytes());
        }
        let rules = self.rules.clone();
        self.found.push(Job { root: self.job.root, path, folder, rules });
    }

    fn take_file(&mut self, name: &OsStr, stat: Option<nix::sys::stat::FileStat>, is_git: bool) {
        let is_wanted = match self.job.folder {
            Folder::Plain => !self.rules.is_ignored(&self.absolute.join(name), false),
            Folder::Refs => Path::new(name).extension() != Some(OsStr::new("lock")),
            Folder::Git | Folder::Modules => {
                is_git
                    && (GIT_FILES.iter().any(|known| name == *known)
                        || name.as_bytes().starts_with(b"sharedindex."))
            }
        };
        if !is_wanted {
            return;
        }
        let path = self.job.path.join(name);
        if self.job.folder == Folder::Plain && is_secret(&path.to_string_lossy()) {
            return self.part.left_out.secret(path.as_os_str().as_bytes());
        }
        let path: Box<[u8]> = path.into_os_string().into_encoded_bytes().into();
        let stat = match stat {
            Some(stat) => stat,
            None => match fstatat(self.folder.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(nix::Error::ENOENT) => return,
                Err(_) => return self.part.left_out.unreadable(&path),
            },
        };
        let Some(stamp) = Stamp::of(&stat) else {
            self.part.left_out.special += 1;
            return;
        };
        if stamp.size > self.walker.limits.file_bytes_max {
            return self.part.left_out.large(&path);
        }
        let has_links = stat.st_nlink > 1;
        self.part.files[self.job.root].push(FoundFile { path, stamp, has_links });
    }
}

/// Stamp of the file `path` below the root, without following links. `None` if it is missing, or
/// neither a regular file nor a link.
pub(crate) fn stamp_of(root: &OwnedFd, path: &Path) -> Option<Stamp> {
    let above = path.parent().unwrap_or(Path::new(""));
    let folder = open_beneath(root, above, posse_tools::workspace::FOLDER).ok()?;
    let stat = fstatat(folder.as_fd(), path.file_name()?, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    Stamp::of(&stat)
}

/// True if `path`, relative to a root, is a file of a git folder that a checkpoint stores.
pub(crate) fn is_git_state(path: &[u8]) -> bool {
    let names = path.split(|byte| *byte == b'/').skip_while(|name| *name != b".git").skip(1);
    let names: Vec<&[u8]> = names.collect();
    let Some((last, above)) = names.split_last() else { return false };
    let is_module = |above: &[&[u8]]| above.is_empty() || above[0] == b"modules";
    let is_state_file = |name: &[u8]| {
        GIT_FILES.iter().any(|known| known.as_bytes() == name) || name.starts_with(b"sharedindex.")
    };
    let in_refs = above.iter().position(|name| matches!(*name, b"refs" | b"reftable"));
    match in_refs {
        Some(at) => is_module(&above[..at]) && !last.ends_with(b".lock"),
        None => is_module(above) && is_state_file(last),
    }
}

#[cfg(test)]
mod tests;
