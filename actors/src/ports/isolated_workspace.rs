//! A place of its own for an agent to work in, so that nothing it does is in anybody's way.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::InvocationId;
use crate::event::Origin;
use crate::ports::{Policy, PortFuture, Toolbox};

/// Makes such places.
pub trait Workplaces: fmt::Debug + Send + Sync + 'static {
    /// Makes one for `id`, an agent of the name `agent` that `caller` wants, from what the session's
    /// workspace is now. Dropping the future stops it. `Err`: why there can be none, in words.
    fn open(
        &self,
        id: &InvocationId,
        agent: &str,
        caller: &Origin,
    ) -> PortFuture<Result<IsolatedWorkspace, String>>;

    /// The one that `id` has had.
    fn reopen(
        &self,
        id: &InvocationId,
        agent: &str,
    ) -> PortFuture<Result<IsolatedWorkspace, String>>;

    /// Whether `id` has one with something in it.
    fn is_there(&self, id: &InvocationId) -> bool;

    /// Nobody works there any more: what was changed. `None`: nothing was, and the place is gone.
    fn close(&self, id: &InvocationId) -> PortFuture<Result<Option<WorkLeft>, String>>;

    /// The agent never began: the place goes.
    fn discard(&self, id: &InvocationId);
}

/// Where one agent works.
#[derive(Clone)]
pub struct IsolatedWorkspace {
    /// Its working directory.
    pub cwd: String,
    /// What it is told, in place of what others of its name are told.
    pub system_prompt: String,
    /// Tools that work there, in place of those with the same names.
    pub tools: Toolbox,
    /// What may be done there. Nothing that may not be done in the session's own workspace.
    pub policy: Arc<dyn Policy>,
}

impl fmt::Debug for IsolatedWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workplace").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

/// What an agent has left in its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkLeft {
    /// How many files it changed.
    pub count: usize,
    /// The first of them.
    pub files: Vec<FileLeft>,
    /// New files that are not taken over with the others.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: usize,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_files: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that the attribute wants")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A file that an agent has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLeft {
    /// Below the working directory.
    pub path: String,
    /// Lines that are new.
    pub added: usize,
    /// Lines that are gone.
    pub removed: usize,
}

/// What is there of the place of an agent that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorktreeSummary {
    /// Where it worked.
    pub cwd: String,
    /// Whether it is still there.
    pub kept: bool,
    /// What was changed, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<WorkLeft>,
}

impl WorktreeSummary {
    /// What is known of the place at `cwd` where posse was killed before it looked.
    pub fn unknown(cwd: String) -> WorktreeSummary {
        WorktreeSummary { cwd, kept: true, left: None }
    }
}
