//! Files with the name of a secret that are as in the commit that is checked out. Commands see them
//! as they are, so `read_file` and `grep` read them too.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::event::SandboxTier;
use posse_actors::ports::ToolError;
use posse_sandbox::Sandbox;
use tokio::sync::OnceCell;

use crate::ToolEnvironment;

/// State of a tool that reads files with the name of a secret if they are as in the commit.
#[derive(Debug)]
pub struct ReadingTool {
    pub(crate) env: Arc<ToolEnvironment>,
    pub(crate) committed: CommittedSecrets,
}

impl ReadingTool {
    pub(crate) fn new(env: Arc<ToolEnvironment>, sandbox: &Arc<Sandbox>) -> Arc<ReadingTool> {
        let committed = CommittedSecrets::new(&env, Arc::clone(sandbox));
        Arc::new(ReadingTool { env, committed })
    }
}

/// Decides which files with the name of a secret are as in the commit, as the sandbox does for
/// commands.
#[derive(Debug, Clone)]
pub struct CommittedSecrets {
    sandbox: Arc<Sandbox>,
    /// Folder in which git is asked.
    folder: PathBuf,
    /// Temporary folder of the session.
    scratch: PathBuf,
    /// Files about which [`CommittedSecrets::decide_about`] has decided.
    asked: Arc<Mutex<BTreeMap<PathBuf, Version>>>,
    /// Set when the workspace was searched for secrets.
    searched: Arc<OnceCell<()>>,
}

/// Inode number and time of the last change of a file.
type Version = (u64, i64, i64);

fn version(path: &Path) -> Option<Version> {
    let found = path.symlink_metadata().ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

/// Error about a file that was as in the commit when the call was judged. The user may have written
/// a secret into it since.
pub(crate) fn changed(shown: &str) -> ToolError {
    let message = format!("{shown} is not as in the commit any more, so it may hold secrets");
    ToolError::new("ARG003", message)
}

impl CommittedSecrets {
    pub(crate) fn new(env: &ToolEnvironment, sandbox: Arc<Sandbox>) -> CommittedSecrets {
        let folder = env.workspace.cwd().to_owned();
        let scratch = env.session_dir.join("tmp");
        let (asked, searched) = (Arc::default(), Arc::default());
        CommittedSecrets { sandbox, folder, scratch, asked, searched }
    }

    /// Searches the workspace for secrets before the first file is opened, as before each command:
    /// only a search finds that `data/real` is one, because a link `.env` leads to it. If the search
    /// fails, as in a workspace that is too large for it, secrets are known by their names alone: a
    /// second search would take as long.
    pub(crate) async fn search_once(&self) {
        let search = || async {
            if self.sandbox.tier() == SandboxTier::None {
                return;
            }
            let searched = self.sandbox.decide_tracked(self.folder.clone(), &self.scratch).await;
            if let Err(error) = searched {
                tracing::debug!(%error, "secrets are known by their names alone");
            }
        };
        self.searched.get_or_init(search).await;
    }

    /// Asks git about tracked files for which it is not known whether they are as in the commit.
    /// Without an answer, an earlier one counts, and otherwise they are secrets.
    pub(crate) async fn decide(&self) {
        if self.sandbox.tier() != SandboxTier::Full {
            return;
        }
        if let Err(error) = self.sandbox.decide_tracked(self.folder.clone(), &self.scratch).await {
            tracing::debug!(%error, "tracked secret files stay hidden");
        }
    }

    /// Decides about `names` in `folder`, unless it was done for the same files. True if one of them is
    /// as in the commit.
    pub(crate) async fn decide_about(&self, folder: &Path, names: &[PathBuf]) -> bool {
        let paths = names.iter().map(|name| folder.join(name));
        let files: BTreeMap<PathBuf, Version> =
            paths.filter_map(|path| Some((path.clone(), version(&path)?))).collect();
        let is_known = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let is_known = files.iter().all(|(path, now)| asked.get(path) == Some(now));
            asked.extend(files.clone());
            is_known
        };
        if is_known {
            return false;
        }
        self.decide().await;
        files.keys().any(|path| self.list(path))
    }

    /// True if the file that is at the resolved `path` now is as in the commit.
    pub(crate) fn list(&self, path: &Path) -> bool {
        self.sandbox.shows_committed_at(path)
    }

    /// True if `file`, which was found at the resolved `path`, is as in the commit.
    pub(crate) fn contain(&self, path: &Path, file: BorrowedFd<'_>) -> bool {
        self.sandbox.shows_committed(path, file)
    }
}
