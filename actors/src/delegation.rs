//! Delegation: definitions of subagents, their tasks and results, and the tools with which a model
//! starts them.
//!
//! This module contains data, pure functions, and tools that forward requests. Only
//! [`root_session`](crate::root_session) starts, stops and records subagents.

mod action_log;
mod handoff;
mod memory;
mod outcome;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::conversation::{CallId, InvocationId, MessageId};
use crate::cost::PriceLookup;
use crate::event::Origin;
use crate::governor::{GovernorLimits, SubagentRefusal};
use crate::guarded::Guarded;
use crate::mailbox::Report;
use crate::outcome::Memories;
use crate::ports::{
    Access, Ids, IsolatedWorkspace, IsolatedWorkspaces, Provider, ProviderInfo, Thinking,
    ToolAnnotations, ToolSpec, Toolbox,
};

pub use action_log::{ActionLog, LoggedChange};
pub use handoff::Caps;
pub(crate) use handoff::Handoff;
pub(crate) use memory::{FinishedTask, Forget, files_of, follow_files};
pub(crate) use outcome::{SubagentEnd, UnmergedWorkspace, WORKSPACE_GONE};
pub use tools::{DELEGATE, DIFF, MERGE, RESULT, STATUS, TOOLS};
pub(crate) use tools::{reattach, register, stopped_call_output, waiting_for};

/// Subagent configuration of a session.
#[derive(Debug, Clone, Default)]
pub struct Delegation {
    /// Names of the subagents that the main agent may call.
    pub main_calls: Vec<String>,
    /// Agents that can be called.
    pub subagents: Vec<Subagent>,
    /// Common limits.
    pub limits: GovernorLimits,
    /// Maximum sizes of tasks and answers.
    pub caps: Caps,
    /// Maximum turns of a subagent, unless its definition has less.
    pub turns_max: u32,
    /// True if subagents receive the memory of their name.
    pub remembers: bool,
    /// Creates isolated workspaces, if that is possible.
    pub workplaces: Option<Arc<dyn IsolatedWorkspaces>>,
}

/// Definition of a subagent.
#[derive(Clone)]
pub struct Subagent {
    /// Name.
    pub name: String,
    /// System prompt.
    pub system_prompt: String,
    /// Names of the tools it sees.
    pub tools: Vec<String>,
    /// Provider, if it differs from the session's.
    pub provider: Option<Arc<dyn Provider>>,
    /// Reasoning effort, if set.
    pub thinking: Option<Thinking>,
    /// Pricing of its own model.
    pub price: Option<PriceLookup>,
    /// Names of the subagents that it may call.
    pub calls: Vec<String>,
    /// Most model replies; lowers the common limit.
    pub turns_max: Option<u32>,
    /// Most wall time.
    pub duration_max: Option<Duration>,
    /// Maximum depth of further delegation, if set.
    pub depth_max: Option<u32>,
    /// True if it always works in an isolated workspace.
    pub isolated: bool,
}

impl std::fmt::Debug for Subagent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subagent").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Requests of the tools to the session.
pub(crate) enum DelegationRequest {
    /// Start a subagent.
    Start(Box<StartRequest>, Report<Result<StartedSubagent, NotStarted>>),
    /// Wait again for the subagent of this call of this caller. `None` if there is none.
    Attach(CallId, Arc<Origin>, Report<Option<StartedSubagent>>),
    /// The caller no longer waits for the subagent of this call. Replies with its state, if it was
    /// started.
    Detach(CallId, Arc<Origin>, Report<Option<DetachedSubagent>>),
    /// State of the subagents below this one; of all for the main agent.
    Query(Arc<Origin>, Report<Vec<SubagentInfo>>),
}

pub(crate) struct StartRequest {
    pub(crate) call_id: CallId,
    /// The caller.
    pub(crate) origin: Arc<Origin>,
    pub(crate) subagent: usize,
    pub(crate) handoff: Handoff,
    pub(crate) background: bool,
    pub(crate) turns_max: Option<u32>,
    /// Ended subagent to resume.
    pub(crate) resume: Option<InvocationId>,
    /// Informs the caller that the subagent waits for a slot.
    pub(crate) queued: Option<oneshot::Sender<u32>>,
    /// Gone when the caller no longer wants it.
    pub(crate) wanted: Weak<()>,
    /// True if it works in an isolated workspace of its own.
    pub(crate) isolated: bool,
    /// The workspace created for it, with the invocation id under which it was created.
    pub(crate) workplace: Option<(InvocationId, IsolatedWorkspace)>,
}

/// Reason why a subagent was not started.
pub(crate) enum NotStarted {
    /// A limit was reached.
    Limit(SubagentRefusal),
    /// The subagent to resume cannot be resumed, with the reason.
    Cannot(String),
}

/// A subagent that was started.
pub(crate) struct StartedSubagent {
    pub(crate) id: InvocationId,
    /// True if the caller does not wait.
    pub(crate) background: bool,
    /// Its end. Dropping the receiver means that the caller no longer waits.
    pub(crate) ended: oneshot::Receiver<Arc<SubagentEnd>>,
}

/// State of a subagent whose caller no longer waits for it.
pub(crate) enum DetachedSubagent {
    /// It has ended.
    Ended(Arc<SubagentEnd>),
    /// It is running and ends with its caller.
    Running(InvocationId, String),
}

/// State of a subagent.
#[derive(Debug, Clone)]
pub(crate) struct SubagentInfo {
    pub(crate) id: InvocationId,
    pub(crate) path: String,
    /// `waiting for a place`, `running`, `stopping`, `restarting`, or the outcome.
    pub(crate) state: String,
    pub(crate) task: String,
    /// Running time so far, or in total.
    pub(crate) took: Duration,
    /// Cost in billionths of a dollar, as far as known.
    pub(crate) cost_nano_usd: Option<u64>,
    pub(crate) ended: Option<Arc<SubagentEnd>>,
}

type SendRequest = Box<dyn Fn(DelegationRequest) + Send + Sync>;

/// Shared state of the delegation tools and their connection to the session.
pub(crate) struct DelegationHandle {
    pub(crate) delegation: Delegation,
    /// Provider of the session.
    pub(crate) info: ProviderInfo,
    /// Working directory.
    pub(crate) cwd: String,
    /// Source of ids for subagents whose workspace is created before they start.
    ids: Arc<dyn Ids>,
    line: OnceLock<SendRequest>,
    /// Last prompt of the user.
    request: Guarded<Arc<str>>,
    /// Memory of subagents.
    pub(crate) memories: Guarded<Memories>,
    /// Running subagents whose callers do not wait.
    pub(crate) background: Guarded<BTreeMap<InvocationId, BackgroundWork>>,
    /// Subagents that work or worked in isolated workspaces.
    pub(crate) isolated: Guarded<BTreeSet<InvocationId>>,
}

/// A subagent in the background.
pub(crate) struct BackgroundWork {
    pub(crate) caller: Arc<Origin>,
    pub(crate) agent: String,
    pub(crate) task: String,
}

impl DelegationHandle {
    pub(crate) fn new(
        delegation: Delegation,
        info: ProviderInfo,
        cwd: String,
        ids: Arc<dyn Ids>,
    ) -> DelegationHandle {
        DelegationHandle {
            delegation,
            info,
            cwd,
            ids,
            line: OnceLock::new(),
            request: Guarded::new("".into()),
            memories: Guarded::default(),
            background: Guarded::default(),
            isolated: Guarded::default(),
        }
    }

    /// Connects to the session.
    pub(crate) fn open(&self, line: impl Fn(DelegationRequest) + Send + Sync + 'static) {
        self.line.set(Box::new(line)).ok();
    }

    /// Sends a request. Before the connection or after the end it is dropped, and the caller gets
    /// an error.
    fn send(&self, request: DelegationRequest) {
        if let Some(line) = self.line.get() {
            line(request);
        }
    }

    pub(crate) fn subagent(&self, name: &str) -> Option<(usize, &Subagent)> {
        self.delegation.subagents.iter().enumerate().find(|(_, subagent)| subagent.name == name)
    }

    /// Names of the subagents that `origin` may call.
    fn callable(&self, origin: &Origin) -> &[String] {
        match &origin.parent_invocation_id {
            None => &self.delegation.main_calls,
            Some(_) => self.subagent(&origin.agent).map_or(&[], |(_, subagent)| &subagent.calls),
        }
    }

    pub(crate) fn info_of(&self, subagent: &Subagent) -> ProviderInfo {
        subagent.provider.as_ref().map_or_else(|| self.info.clone(), |provider| provider.info())
    }

    pub(crate) fn set_user_request(&self, text: &str) {
        *self.request.lock() = text.into();
    }

    /// Background subagents of `origin`, one line each.
    pub(crate) fn background_work(&self, origin: &Origin) -> Vec<String> {
        // The main agent has a new invocation id with each prompt.
        let theirs = |one: &BackgroundWork| match &origin.parent_invocation_id {
            None => one.caller.parent_invocation_id.is_none(),
            Some(_) => one.caller.invocation_id == origin.invocation_id,
        };
        let all = self.background.lock();
        let line = |(id, BackgroundWork { agent, task, .. }): (&InvocationId, &BackgroundWork)| {
            format!(
                "agent {agent} ({id}) works on: {task}. Its answer comes as a message; {RESULT} \
                 {{\"id\": \"{id}\"}} reads it"
            )
        };
        all.iter().filter(|(_, one)| theirs(one)).map(line).collect()
    }

    /// Memory for a new subagent of this name.
    fn memory_of(&self, subagent: &Subagent, provider: &str) -> String {
        if !self.delegation.remembers {
            return String::new();
        }
        self.memories.lock().text(&subagent.name, provider, &self.cwd)
    }

    fn user_request(&self) -> Arc<str> {
        Arc::clone(&self.request.lock())
    }

    /// Delegation tools for an agent that may call `calls`, at this depth (0 is the main agent).
    pub(crate) fn specs(&self, toolbox: &Toolbox, calls: &[String], depth: u32) -> Vec<ToolSpec> {
        if calls.is_empty() || depth >= self.delegation.limits.depth_max {
            return Vec::new();
        }
        let spec = |name: &str| toolbox.get(name).map(|tool| tool.spec().clone());
        let mut specs: Vec<ToolSpec> = TOOLS.into_iter().filter_map(spec).collect();
        for spec in specs.iter_mut().filter(|spec| spec.name == DELEGATE) {
            spec.parameters["properties"]["agent"]["enum"] = json!(calls);
        }
        specs
    }
}

/// Id of the message that reports the end of the subagent of this call to its caller: the same in
/// every process, so it is delivered once.
pub(crate) fn notice_id(child: &InvocationId, call: &CallId) -> MessageId {
    MessageId::new(format!("{child}.{call}"))
}

/// Depth of `origin`: 0 is the main agent.
pub(crate) fn depth_of(origin: &Origin) -> u32 {
    u32::try_from(origin.agent_path.matches('/').count()).unwrap_or(u32::MAX)
}

fn spec(name: &str, description: &str, properties: &Value, required: &[&str]) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: json!({"type": "object", "properties": properties, "required": required}),
        side_effect: Access::Session.side_effect(),
        source: "builtin".to_owned(),
        annotations: ToolAnnotations::new(Access::Session),
    }
}
