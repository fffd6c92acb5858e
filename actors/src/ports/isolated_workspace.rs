//! Port for isolated workspaces of subagents.

use std::fmt;
use std::sync::Arc;

use crate::conversation::InvocationId;
use crate::event::Origin;
use crate::outcome::WorkspaceChanges;
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

    /// Removes the workspace of an agent that never started.
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
