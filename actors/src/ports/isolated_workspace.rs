//! Port for isolated workspaces of subagents.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::InvocationId;
use crate::event::Origin;
use crate::ports::{Policy, PortFuture, Toolbox};

/// Creates isolated workspaces.
pub trait IsolatedWorkspaces: fmt::Debug + Send + Sync + 'static {
    /// Creates one for invocation `id` of agent `agent`, called by `caller`, from the current state
    /// of the session's workspace. Dropping the future cancels it. `Err`: reason in words.
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

    /// True if `id` has a workspace with content.
    fn is_there(&self, id: &InvocationId) -> bool;

    /// Closes a workspace and returns its changes. `None`: no changes, and the workspace was
    /// removed.
    fn close(&self, id: &InvocationId) -> PortFuture<Result<Option<WorkspaceChanges>, String>>;

    /// The agent never began: the place goes.
    fn discard(&self, id: &InvocationId);
}

/// Isolated workspace of one subagent.
#[derive(Clone)]
pub struct IsolatedWorkspace {
    /// Its working directory.
    pub cwd: String,
    /// Instructions, replacing those of its agent.
    pub system_prompt: String,
    /// Tools that work there, in place of those with the same names.
    pub tools: Toolbox,
    /// Policy of the workspace. Never permits more than the session's own workspace.
    pub policy: Arc<dyn Policy>,
}

impl fmt::Debug for IsolatedWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workplace").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

/// Changes that a subagent left in its workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceChanges {
    /// Number of changed files.
    pub count: usize,
    /// The first of them.
    pub files: Vec<ChangedFile>,
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
pub struct ChangedFile {
    /// Below the working directory.
    pub path: String,
    /// Lines that are new.
    pub added: usize,
    /// Lines that are gone.
    pub removed: usize,
}

/// State of the workspace of an ended subagent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorktreeSummary {
    /// Its working directory.
    pub cwd: String,
    /// True if it still exists.
    pub kept: bool,
    /// Its changes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<WorkspaceChanges>,
}

impl WorktreeSummary {
    /// State of the workspace at `cwd` after posse was killed before it was examined.
    pub fn unknown(cwd: String) -> WorktreeSummary {
        WorktreeSummary { cwd, kept: true, left: None }
    }
}
