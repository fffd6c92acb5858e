//! The store of a project: takes, compares, restores and removes checkpoints.
//!
//! Layout below the folder of the store: `git/` (private git folder), `records/` (one file for each
//! checkpoint), `objects/` (copies of the objects of repositories), `state-<roots>.bin` (cache of
//! the last state), and `lock`.

mod coverage;
mod restoring;
mod retention;
mod taking;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use posse_base::hex::sha256;
use posse_tools::workspace::Workspace;

use crate::cache::Snapshot;
use crate::git::{Git, GitError, program};
use crate::plan::{ChangedFile, changed_files, effective};
use crate::record::{self, Checkpoint, LeftOut, StoredRoot, StoredState, Trigger};
use crate::walk::WalkLimits;

pub use restoring::Restored;

/// Maximum number of files of a checkpoint.
const FILES_MAX: usize = 200_000;

/// Name of the folder with the copies of the objects of repositories.
const COPIES: &str = "objects";

/// Length of the folder name of a root in the trees of the store.
const KEY_LENGTH: usize = 12;

/// Error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no checkpoint with this id.
    #[error("there is no checkpoint {0}")]
    NotFound(u64),
    /// The checkpoint was made in a session with other workspace roots.
    #[error("checkpoint {0} belongs to other folders: {1}")]
    OtherRoots(u64, String),
    /// The disk is full, or a quota is exhausted.
    #[error("no space is left on the disk for a checkpoint")]
    Full,
    /// The folder of the store cannot be read or written.
    #[error("the folder of the checkpoints cannot be used: {0}")]
    Io(io::Error),
    /// git failed. The text is the beginning of its error output.
    #[error("git cannot store the checkpoint: {0}")]
    Git(String),
    /// [`Store::stop`] was called.
    #[error("the session has ended")]
    Stopped,
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> StoreError {
        if crate::git::is_full(&error) { StoreError::Full } else { StoreError::Io(error) }
    }
}

impl From<GitError> for StoreError {
    fn from(error: GitError) -> StoreError {
        match error {
            GitError::Full => StoreError::Full,
            GitError::Failed(text) => StoreError::Git(text),
            GitError::Io(error) => StoreError::from(error),
        }
    }
}

/// Reason why no checkpoints can be made on this machine; `None` if they can.
pub fn unavailable() -> Option<&'static str> {
    program().is_none().then_some("git is not installed, which stores the checkpoints")
}

/// Description of a checkpoint that is taken.
#[derive(Debug, Clone, Copy)]
pub struct NewCheckpoint<'a> {
    /// Id of the session.
    pub session: &'a str,
    /// Invocation id of the run or call before whose first effect the checkpoint is made.
    pub invocation: &'a str,
    /// Prompt, or a description of the call. Its first line becomes the title.
    pub title: &'a str,
}

/// Store of the checkpoints of one project, for a workspace. Several processes can use it; each
/// operation locks it.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    workspace: Workspace,
    keys: Vec<String>,
    git: Git,
    limits: WalkLimits,
    /// Folder with the marks of running commands.
    marks: PathBuf,
    /// Last state that this process has taken, with the identity of the cache file then.
    last: Mutex<LastState>,
    /// True if no state is stored any more.
    is_stopped: AtomicBool,
}

/// Content of a file; `None`: there is no file.
type FileContent = Option<Vec<u8>>;

/// Inode, size and time of the cache file. Another process replaces the file.
type CacheIdentity = (u64, u64, i64, i64);

/// Last state that a process has taken, with the identity of the cache file then.
type LastState = Option<(CacheIdentity, Snapshot)>;

/// Progress of a checkpoint: number of files that are stored, and of those that have to be.
pub type Progress<'a> = &'a dyn Fn(usize, usize);

impl Store {
    /// Opens the store in the folder `dir`, which is created if it is missing. Files larger than
    /// `file_bytes_max` are left out. `marks`: folder with the marks of running commands, see
    /// [`posse_sandbox::marks_folder`].
    pub fn open(
        dir: PathBuf,
        workspace: Workspace,
        file_bytes_max: u64,
        marks: PathBuf,
    ) -> Result<Store, StoreError> {
        let program = program().ok_or_else(|| StoreError::Git("it is not installed".to_owned()))?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir.join("records"))?;
        let git = Git::open(program, dir.join("git"))?;
        let keys = workspace.roots().map(key).collect();
        let limits = WalkLimits { file_bytes_max, files_max: FILES_MAX };
        Ok(Store {
            dir,
            workspace,
            keys,
            git,
            limits,
            marks,
            last: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// All checkpoints, the oldest first.
    pub fn list(&self) -> Result<Vec<Checkpoint>, StoreError> {
        Ok(record::read_all(&self.records())?)
    }

    /// The checkpoint with this id.
    pub fn get(&self, id: u64) -> Result<Checkpoint, StoreError> {
        let found = self.list()?.into_iter().find(|record| record.id == id);
        found.ok_or(StoreError::NotFound(id))
    }

    /// Files that the run of the checkpoint has changed: from the checkpoint to the state after the
    /// run. Empty as long as that state is not known.
    pub fn changes_of_run(&self, record: &Checkpoint) -> Result<Vec<ChangedFile>, StoreError> {
        let Some(after) = &record.after else { return Ok(Vec::new()) };
        self.compare(&record.state, after)
    }

    /// Checkpoints of runs whose changes are in the present state, the oldest first, as far as the
    /// records tell: without those that a restore has taken back.
    pub fn undoable(&self) -> Result<Vec<Checkpoint>, StoreError> {
        let records = self.list()?;
        let ids = effective(&records);
        Ok(records.into_iter().filter(|record| ids.contains(&record.id)).collect())
    }

    /// Contents of a changed file before and after. `None`: the file is not in that state.
    pub fn contents(&self, file: &ChangedFile) -> Result<(FileContent, FileContent), StoreError> {
        let mut found = Vec::new();
        let sides = [&file.before, &file.after];
        let objects: Vec<&str> = sides.into_iter().flatten().map(|(_, id)| &**id).collect();
        self.git.contents::<StoreError>(&objects, |_, content| {
            found.push(content);
            Ok(())
        })?;
        let mut found = found.into_iter();
        let before = file.before.as_ref().and_then(|_| found.next());
        let after = file.after.as_ref().and_then(|_| found.next());
        Ok((before, after))
    }

    /// Path of the root of the workspace with this index.
    pub fn root(&self, index: usize) -> Option<&Path> {
        self.workspace.roots().nth(index)
    }

    /// Gives up the state that another thread stores, at the next file, and stores no further one.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn compare(
        &self,
        from: &StoredState,
        to: &StoredState,
    ) -> Result<Vec<ChangedFile>, StoreError> {
        Ok(changed_files(self.git.diff(&from.tree, &to.tree)?, &self.keys))
    }

    fn records(&self) -> PathBuf {
        self.dir.join("records")
    }

    /// Waits for the lock of the store, which is held until the result is dropped.
    fn lock(&self) -> Result<Flock<File>, StoreError> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(self.dir.join("lock"))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| io::Error::from(errno).into())
    }

    fn last(&self) -> MutexGuard<'_, LastState> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// File with the last state of these roots.
    fn cache_file(&self) -> PathBuf {
        let roots: Vec<String> =
            self.workspace.roots().map(|root| root.display().to_string()).collect();
        let name = &sha256(roots.join("\0").as_bytes())[..KEY_LENGTH];
        self.dir.join(format!("state-{name}.bin"))
    }

    fn stored_roots(&self) -> Vec<StoredRoot> {
        let roots = self.workspace.roots().zip(&self.keys);
        let roots = roots
            .map(|(path, key)| StoredRoot { path: path.display().to_string(), key: key.clone() });
        roots.collect()
    }

    /// Writes the record of a new checkpoint of the present state.
    fn record(
        &self,
        new: NewCheckpoint<'_>,
        trigger: Trigger,
        snapshot: &Snapshot,
        left_out: LeftOut,
    ) -> Result<Checkpoint, StoreError> {
        let record = Checkpoint {
            id: self.list()?.last().map_or(1, |last| last.id + 1),
            session: new.session.to_owned(),
            invocation: new.invocation.to_owned(),
            trigger,
            title: record::title(new.title),
            taken_ms: now_ms(),
            files: snapshot.files(),
            bytes: snapshot.bytes(),
            left_out,
            roots: self.stored_roots(),
            state: state_of(snapshot),
            after: None,
            holds_deletions: false,
        };
        record.write(&self.records())?;
        Ok(record)
    }
}

fn state_of(snapshot: &Snapshot) -> StoredState {
    StoredState { commit: snapshot.commit.clone(), tree: snapshot.tree.clone() }
}

fn key(root: &Path) -> String {
    sha256(root.as_os_str().as_encoded_bytes())[..KEY_LENGTH].to_owned()
}

/// Files of a workspace: index of the root, and path below it.
type Files = BTreeSet<(usize, Vec<u8>)>;

fn ids(files: &[ChangedFile]) -> Files {
    files.iter().map(|file| (file.root, file.path.clone())).collect()
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Identity of the cache file. `None` if it is missing.
fn identity(file: &Path) -> Option<CacheIdentity> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(file).ok()?;
    Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests;
