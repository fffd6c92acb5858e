//! Temporary folder of a session: `/tmp` and `$TMPDIR` of all its commands.
//!
//! With namespaces of posse it is a tmpfs in a mount namespace of the session
//! ([`TemporarySpace`]), so the kernel holds its size and it ends with posse. With other back ends
//! it is a folder in the session's own folder, whose size is measured while commands run.

mod space;

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;

use posse_base::remove_tree::remove_tree;

use crate::trial::remove_abandoned_trials;

pub(crate) use space::{MARK, TemporarySpace, space_main};

/// Maximum number of bytes in the temporary folder of a session.
pub(crate) const BYTES_MAX: u64 = 1 << 30;

/// Maximum number of files and folders in the temporary folder of a session. The kernel needs
/// memory for a file even if it is empty.
pub(crate) const ENTRIES_MAX: u64 = 512 << 10;

/// Name, beside the temporary folder, of the old content while it is being removed.
pub(crate) const REMOVED: &str = "tmp-removed";

/// Maximum time for which the end of a session waits until its temporary folder is removed. The
/// rest is removed at the next start.
const REMOVAL_MAX: Duration = Duration::from_secs(2);

/// Temporary folders that this process uses, by path. Sandboxes of one session share one.
static USED: LazyLock<Mutex<HashMap<PathBuf, Weak<SessionTemporary>>>> =
    LazyLock::new(Mutex::default);

fn used() -> MutexGuard<'static, HashMap<PathBuf, Weak<SessionTemporary>>> {
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Temporary folder of one session, removed with its content when the last user drops it.
#[derive(Debug)]
pub(crate) struct SessionTemporary {
    /// Folder on the host, accessible only to the user. Contains the files, or is the mount point
    /// of the tmpfs and stays empty.
    folder: PathBuf,
    /// Path by which the sandbox names the folder: the key in [`USED`].
    key: PathBuf,
    space: OnceLock<Option<TemporarySpace>>,
    content: Mutex<Content>,
    is_measuring: AtomicBool,
}

/// State of the files in the folder on the host.
#[derive(Debug, Default)]
struct Content {
    /// Lock that shows other processes of posse that the folder is in use. `None` if the file
    /// system has no locks.
    lock: Option<Flock<File>>,
    /// Device and inode of the folder.
    identity: (u64, u64),
    /// Number of commands that run with this folder.
    commands: usize,
    /// Number of times that the folder was emptied.
    generation: u64,
    /// True if a measurement found more than the limits.
    is_full: bool,
}

impl SessionTemporary {
    /// Returns the temporary folder at `folder`, which is created if it is missing. Fails if it
    /// cannot be created, is not a folder, or belongs to another user.
    pub(crate) fn of(folder: &Path) -> io::Result<Arc<SessionTemporary>> {
        // Declared first and dropped last: its end waits for the table.
        let known;
        let mut used = used();
        known = used.get(folder).and_then(Weak::upgrade);
        if let Some(known) = known.as_ref().filter(|known| known.is_there()) {
            return Ok(Arc::clone(known));
        }
        let lock = create_locked(folder)?;
        // A resolved path, because mounts do not follow links.
        let resolved = fs::canonicalize(folder)?;
        let identity = identity(&resolved)?;
        let content = Content { lock, identity, ..Content::default() };
        let temporary = Arc::new(SessionTemporary {
            folder: resolved,
            key: folder.to_owned(),
            space: OnceLock::new(),
            content: Mutex::new(content),
            is_measuring: AtomicBool::new(false),
        });
        used.retain(|_, known| known.strong_count() > 0);
        used.insert(folder.to_owned(), Arc::downgrade(&temporary));
        Ok(temporary)
    }

    /// Resolved path of the folder on the host.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// True if the folder still exists. With it, the mount of the tmpfs disappears.
    fn is_there(&self) -> bool {
        identity(&self.folder).is_ok_and(|identity| identity == self.content().identity)
    }

    /// Returns the tmpfs of the session. The first call creates it with the binary `helper`, which
    /// blocks. `None` if that failed; then the folder on the host is used.
    pub(crate) fn space(&self, helper: &Path) -> Option<&TemporarySpace> {
        let create = || match TemporarySpace::create(helper, &self.folder) {
            Ok(space) => Some(space),
            Err(error) => {
                tracing::warn!(%error, "the temporary folder is on a disk and measured");
                None
            }
        };
        self.space.get_or_init(create).as_ref()
    }

    /// Root folder of the tmpfs of the session. `None` if no command has needed it yet, or if the
    /// session has none.
    fn root(&self) -> Option<OwnedFd> {
        let space = self.space.get()?.as_ref()?;
        space.root().try_clone_to_owned().ok()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measure(self: &Arc<SessionTemporary>) {
        if self.is_measuring.swap(true, Ordering::AcqRel) {
            return;
        }
        let generation = self.content().generation;
        // The end of the session does not wait for a measurement.
        let (this, folder) = (Arc::downgrade(self), self.folder.clone());
        let work = move || {
            let is_full = exceeds(&folder, BYTES_MAX, ENTRIES_MAX);
            let Some(this) = this.upgrade() else { return };
            let mut content = this.content();
            if content.generation == generation {
                content.is_full = is_full;
            }
            drop(content);
            this.is_measuring.store(false, Ordering::Release);
        };
        if let Err(error) = std::thread::Builder::new().name("posse-tmp".into()).spawn(work) {
            tracing::debug!(%error, "the temporary folder is measured later");
            self.is_measuring.store(false, Ordering::Release);
        }
    }

    /// Records that a command uses the folder on the host until the guard is dropped. When the last
    /// command ends and the folder is full, it is emptied.
    pub(crate) fn enter(self: &Arc<SessionTemporary>) -> TemporaryUse {
        self.content().commands += 1;
        TemporaryUse(Arc::clone(self))
    }

    /// Replaces the folder by an empty one and removes the old one in the background.
    fn empty(&self, content: &mut Content) {
        content.generation += 1;
        content.is_full = false;
        let removed = self.folder.with_file_name(REMOVED);
        if fs::rename(&self.folder, &removed).is_ok() {
            if let Err(error) = create(&self.folder) {
                tracing::warn!(%error, "there is no temporary folder");
            }
            content.lock = lock(&self.folder).ok();
            content.identity = identity(&self.folder).unwrap_or_default();
            let work = move || remove_tree(&removed).unwrap_or_default();
            let thread = std::thread::Builder::new().name("posse-tmp".into()).spawn(work);
            tracing::debug!(started = thread.is_ok(), "the temporary folder is emptied");
        } else {
            remove_content(&self.folder);
        }
    }
}

/// Guard of a command that uses the temporary folder of its session on the host.
#[derive(Debug)]
pub(crate) struct TemporaryUse(Arc<SessionTemporary>);

/// Temporary folders of the sessions of a sandbox, by the path of
/// [`Spawn::scratch`](crate::Spawn::scratch). They exist as long as a sandbox of the session.
#[derive(Debug, Default)]
pub(crate) struct Temporaries(Mutex<HashMap<PathBuf, Arc<SessionTemporary>>>);

impl Temporaries {
    /// Returns the temporary folder at `folder`, as [`SessionTemporary::of`] does. The first call
    /// also removes, in the background, those that killed processes left in `projects`.
    pub(crate) fn of(
        &self,
        folder: &Path,
        projects: Option<&PathBuf>,
    ) -> io::Result<Arc<SessionTemporary>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(temporary) = known.get(folder).filter(|temporary| temporary.is_there()) {
            return Ok(Arc::clone(temporary));
        }
        let temporary = SessionTemporary::of(folder)?;
        if let Some(projects) = projects.filter(|_| known.is_empty()).cloned() {
            let work = move || remove_abandoned(&projects);
            let thread = std::thread::Builder::new().name("posse-tmp".into()).spawn(work);
            tracing::trace!(started = thread.is_ok(), "old temporary folders are removed");
        }
        known.insert(folder.to_owned(), Arc::clone(&temporary));
        Ok(temporary)
    }
}

impl TemporaryUse {
    /// Measures the folder in the background, unless a measurement is running.
    pub(crate) fn measure(&self) {
        self.0.measure();
    }

    /// True if the last measurement found more than the limits.
    pub(crate) fn is_full(&self) -> bool {
        self.0.content().is_full
    }
}

impl Drop for TemporaryUse {
    fn drop(&mut self) {
        let mut content = self.0.content();
        content.commands -= 1;
        if content.commands == 0 && content.is_full {
            self.0.empty(&mut content);
        }
    }
}

impl Drop for SessionTemporary {
    fn drop(&mut self) {
        // A new session at this path waits until the folder is gone or renamed.
        let used = used();
        let known = used.get(&self.key);
        if known.is_some_and(|known| known.strong_count() > 0) {
            // A session that began in the meantime uses the folder.
            return;
        }
        if fs::remove_dir(&self.folder).is_ok() {
            return;
        }
        let removed = self.folder.with_file_name(REMOVED);
        let folder = match fs::rename(&self.folder, &removed) {
            Ok(()) => removed,
            Err(_) => self.folder.clone(),
        };
        let (done, is_done) = channel();
        let work = move || {
            if let Err(error) = remove_tree(&folder) {
                tracing::debug!(%error, "a temporary folder stays until the next start");
            }
            done.send(()).ok();
        };
        if std::thread::Builder::new().name("posse-tmp".into()).spawn(work).is_ok() {
            is_done.recv_timeout(REMOVAL_MAX).ok();
        }
    }
}

fn identity(folder: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(folder).map(|found| (found.dev(), found.ino()))
}

/// Creates `folder` with mode 0700, with missing parent folders. Fails if something else is there
/// or it belongs to another user.
fn create(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700).recursive(true).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("the folder for temporary files is not ours"));
    }
    if found.mode() & 0o7777 != 0o700 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Creates `folder` as [`create`] does and locks it. Waits for a moment while another process holds
/// the lock, because it may be removing the folder of an earlier process. Without a lock, the folder
/// is used as it is.
fn create_locked(folder: &Path) -> io::Result<Option<Flock<File>>> {
    const TRIES: u32 = 20;
    for _ in 0..TRIES {
        create(folder)?;
        match lock(folder) {
            Ok(lock) => return Ok(Some(lock)),
            Err(Errno::EWOULDBLOCK | Errno::ENOENT) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => break,
        }
    }
    create(folder)?;
    Ok(None)
}

/// Locks the folder. `EWOULDBLOCK`: another process holds the lock. `ENOENT`: the folder is gone.
fn lock(folder: &Path) -> Result<Flock<File>, Errno> {
    let errno = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or_default());
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(folder).map_err(errno)?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
    // The holder before may have removed the folder.
    let (locked, there) = (lock.metadata().map_err(errno)?, fs::symlink_metadata(folder));
    let is_there = there.is_ok_and(|there| there.ino() == locked.ino());
    if is_there { Ok(lock) } else { Err(Errno::ENOENT) }
}

/// Folder that the commands of a session see as `/tmp`, open for reading files in it. `scratch`: path
/// of the temporary folder ([`Spawn::scratch`](crate::Spawn::scratch)). `None` if the session has no
/// tmpfs: without one, a file in it could be a hard link to a secret of the workspace.
pub fn temporary_root(scratch: &Path) -> Option<OwnedFd> {
    let known = used().get(scratch).and_then(Weak::upgrade);
    known.and_then(|temporary| temporary.root())
}

/// Removes the temporary folders and trials of all sessions that no process uses, such as those of a
/// process that was killed. `projects`: folder of posse with `PROJECT/sessions/SESSION` in it. Errors are
/// logged.
fn remove_abandoned(projects: &Path) {
    let folders = |of: &Path| {
        let entries = fs::read_dir(of).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    };
    let sessions = folders(projects).flat_map(|project| folders(&project.path().join("sessions")));
    for session in sessions.map(|entry| entry.path()) {
        remove_tree(&session.join(REMOVED)).ok();
        remove_abandoned_trials(&session.join("trials"));
        let folder = session.join("tmp");
        // The lock is held until the folder is gone, so that no process begins to use it.
        let Ok(_lock) = lock(&folder) else { continue };
        if let Err(error) = remove_tree(&folder) {
            tracing::debug!(%error, "the temporary folder of an ended session stays");
        }
    }
}

/// True if the files below `folder` take more than `bytes_max` bytes, or are more than
/// `entries_max`. Follows no links and ignores what cannot be read.
fn exceeds(folder: &Path, bytes_max: u64, entries_max: u64) -> bool {
    const BLOCK_BYTES: u64 = 512;
    let (mut bytes, mut entries) = (0_u64, 0_u64);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            // Each name of a file counts, as each takes space for itself in the end.
            bytes = bytes.saturating_add(found.blocks().saturating_mul(BLOCK_BYTES));
            entries += 1;
            if bytes > bytes_max || entries > entries_max {
                return true;
            }
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    false
}

fn remove_content(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Err(error) = remove_tree(&entry.path()) {
            tracing::debug!(%error, "a temporary file stays");
        }
    }
}

#[cfg(test)]
mod tests;
