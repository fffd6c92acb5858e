//! Port for isolated workspaces of subagents.

use std::fmt;
use std::sync::Arc;

use crate::conversation::InvocationId;
use crate::event::Origin;
use crate::outcome::WorkspaceChanges;
use crate::ports::{Policy, PortFuture, Toolbox};

/// Factory of isolated workspaces: copies of the caller's workspace, one per subagent.
pub trait IsolatedWorkspaces: fmt::Debug + Send + Sync + 'static {
    /// Creates the isolated workspace for the invocation `id` of the agent `agent`: a copy of the
    /// workspace in which the caller `caller` works. Dropping the future cancels the creation.
    /// `Err`: reason in words.
    fn open(
        &self,
        id: &InvocationId,
        agent: &str,
        caller: &Origin,
    ) -> PortFuture<Result<IsolatedWorkspace, String>>;

    /// Reopens the existing isolated workspace of the invocation `id` of the agent `agent`, with
    /// the changes in it. `Err`: reason in words, for example that it is gone.
    fn reopen(
        &self,
        id: &InvocationId,
        agent: &str,
    ) -> PortFuture<Result<IsolatedWorkspace, String>>;

    /// True if the isolated workspace of the invocation `id` exists.
    fn is_there(&self, id: &InvocationId) -> bool;

    /// Examines the isolated workspace of the ended subagent `id` and returns its changes. `None`:
    /// there were no changes, and the isolated workspace was removed. `Err`: reason in words.
    fn close(&self, id: &InvocationId) -> PortFuture<Result<Option<WorkspaceChanges>, String>>;

    /// Removes the isolated workspace of a subagent that never started. May return before the
    /// removal is complete.
    fn discard(&self, id: &InvocationId);
}

/// An open isolated workspace of one subagent.
#[derive(Clone)]
pub struct IsolatedWorkspace {
    /// Absolute path of the subagent's working directory, in its isolated workspace.
    pub cwd: String,
    /// System prompt for the subagent, which replaces the one of its definition.
    pub system_prompt: String,
    /// Tools that work in the isolated workspace. They replace tools of the session with the same
    /// names.
    pub tools: Toolbox,
    /// Permission policy for calls in the isolated workspace. It never permits more than the
    /// session's policy.
    pub policy: Arc<dyn Policy>,
}

impl fmt::Debug for IsolatedWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IsolatedWorkspace").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}
