//! The holes in the kernel: what it needs of the world, named by its callers.
//!
//! A port is used as `dyn`, so its methods return boxed futures explicitly.

mod clock;
mod grants;
mod hook;
mod isolated_workspace;
mod journal;
mod policy;
mod provider;
mod tool;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use clock::{Clock, Ids};
pub use grants::{ActiveGrants, GrantStore, NoGrants, Now};
pub use hook::{Hook, HookEvent, HookReport, HookSays, Moment, NoHooks, Occasion, Used};
pub use isolated_workspace::{FileLeft, IsolatedWorkspace, WorkLeft, Workplaces, WorktreeSummary};
pub use journal::{
    Committed, Journal, JournalBatch, JournalDone, JournalError, JournalStore, OpenedJournal,
};
pub use policy::{Asking, Confinement, PermissionQuestion, Policy, Situation, Verdict};
pub use provider::{
    Abilities, Completion, Delta, DeltaSender, Fallback, Provider, ProviderError, ProviderInfo,
    Request, Thinking, TokenCount,
};
pub use tool::{
    Action, After, CallContext, Operation, OutputDelta, PostCallSink, Prepared, Release,
    RunContext, SideEffect, Tool, ToolError, ToolOutput, ToolSpec, Toolbox,
};

/// What a boxed source of an error must be.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A future that a port returns.
pub type PortFuture<T> = BoxFuture<'static, T>;

/// Everything a session needs of the world.
#[derive(Clone)]
pub struct Ports {
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// Who is asked instead while it is away, in this order.
    pub fallbacks: Vec<Fallback>,
    /// The tools.
    pub tools: Arc<Toolbox>,
    /// What may happen before and after a call.
    pub hooks: Arc<dyn Hook>,
    /// What may run.
    pub policy: Arc<dyn Policy>,
    /// What the user allowed for longer than a session.
    pub grants: Arc<dyn GrantStore>,
    /// Where records go.
    pub journal: Arc<dyn JournalStore>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn Ids>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}
