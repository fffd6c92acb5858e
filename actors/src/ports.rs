//! Ports of the kernel: the traits through which it accesses the outside world.
//!
//! The kernel uses ports as `dyn` objects, so asynchronous methods return boxed futures. The review
//! connects two ports: it asks the policy, and creates the permitted call that a tool accepts.

mod action;
mod checkpoint;
mod clock;
mod connections;
mod grants;
mod hook;
mod isolated_workspace;
mod journal;
mod mode_decision;
mod policy;
mod provider;
mod review;
mod tool;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use action::{
    Action, CommandDeletions, CommandOutput, CommandPath, CommandSecrets, EarlierName, FilePath,
    Operation, PathLink, Prepared,
};
pub use checkpoint::{
    CheckpointCoverage, CheckpointProgress, CheckpointRequest, CheckpointStore, NoCheckpoints,
    TakenCheckpoint,
};
pub use clock::{Clock, Ids};
pub use connections::{ConnectionAnswer, ConnectionAsker, ConnectionRequest};
pub use grants::{ActiveGrants, GrantStore, GrantTime, NoGrants};
pub use hook::{Hook, HookInvocation, HookPayload, HookReport, HookResult, HookedCall, NoHooks};
pub use isolated_workspace::{IsolatedWorkspace, IsolatedWorkspaces};
pub use journal::{
    Committed, Journal, JournalBatch, JournalDone, JournalError, JournalStore, OpenedJournal,
};
pub use mode_decision::{
    CommandConfinement, Coverage, EffectClass, ModeDecision, ModeProfile, NEEDS_NETWORK, decide,
};
pub use policy::{
    AnswerSource, Caller, Confinement, NetworkAccess, PermissionQuestion, Policy, Situation,
    Verdict,
};
pub use provider::{
    Abilities, Completion, Delta, DeltaSender, Fallback, OverloadKind, Provider, ProviderError,
    ProviderInfo, Request, Thinking, TokenCount,
};
pub use review::PermittedCall;
#[cfg(any(test, feature = "testing"))]
pub use review::permit_for_test;
pub(crate) use review::{PendingCall, ReadPermit, Review, TrialPermit, review};
pub use tool::{
    Access, BackgroundScope, CallContext, CallTrial, ChosenHunks, OutputDelta, PostCallMessage,
    PostCallSink, RunContext, SideEffect, Tool, ToolAnnotations, ToolError, ToolOutput, ToolSpec,
    Toolbox, UserAnswer,
};

/// Cause of an error from outside the kernel.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The texts of an error and of all its sources, from the outermost to the innermost, joined by `:
/// `.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Future that an asynchronous method of a port returns.
pub type PortFuture<T> = BoxFuture<'static, T>;

/// All ports of a session.
#[derive(Clone)]
pub struct Ports {
    /// Provider of the main model.
    pub provider: Arc<dyn Provider>,
    /// Fallback models, in order of preference.
    pub fallbacks: Vec<Fallback>,
    /// Tools of the session, to which the session adds those for delegation.
    pub tools: Arc<Toolbox>,
    /// Hooks of the session: built-in guards and programs of the user.
    pub hooks: Arc<dyn Hook>,
    /// Policy that judges each prepared call.
    pub policy: Arc<dyn Policy>,
    /// Store of grants that outlive the session.
    pub grants: Arc<dyn GrantStore>,
    /// Store of checkpoints of the workspace.
    pub checkpoints: Arc<dyn CheckpointStore>,
    /// Journal of the session.
    pub journal: Arc<dyn JournalStore>,
    /// Source of time, for deadlines and records, and of the jitter of retries.
    pub clock: Arc<dyn Clock>,
    /// Source of new ids.
    pub ids: Arc<dyn Ids>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}
