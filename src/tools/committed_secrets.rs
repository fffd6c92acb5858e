//! Files with the name of a secret that are as in the commit that is checked out. Commands see them
//! as they are, so `read_file` and `grep` read them too.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_sandbox::Sandbox;

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
}

impl CommittedSecrets {
    pub(crate) fn new(env: &ToolEnvironment, sandbox: Arc<Sandbox>) -> CommittedSecrets {
        let folder = env.workspace.cwd().to_owned();
        CommittedSecrets { sandbox, folder, scratch: env.session_dir.join("tmp") }
    }

    /// Asks git about tracked files for which it is not known whether they are as in the commit.
    /// Without an answer they count as secrets.
    pub(crate) async fn decide(&self) {
        if let Err(error) = self.sandbox.decide_tracked(self.folder.clone(), &self.scratch).await {
            tracing::debug!(%error, "tracked secret files stay hidden");
        }
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
