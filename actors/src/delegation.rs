//! Delegation: definitions of subagents, their tasks and results, and the tools with which a model
//! starts and queries them.
//!
//! This module contains data, pure functions, and tools that send requests to the session. Only
//! [`root_session`](crate::root_session) starts, stops and records subagents.

mod action_log;
mod conversation_digest;
mod handoff;
mod ledger;
mod memory;
mod outcome;
mod references;
mod tool_names;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::context::{ContextBudget, ContextSettings, assumed_window, bytes_in};
use crate::conversation::{CallId, InvocationId, Message, MessageId};
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
use conversation_digest::{ConversationDigest, ConversationDigests};
pub use handoff::Caps;
pub(crate) use handoff::Handoff;
pub(crate) use ledger::{LedgeredHistory, with_ledger};
pub(crate) use memory::{FinishedTask, Forget, files_of, follow_files};
pub(crate) use outcome::{SubagentEnd, UnmergedWorkspace, WORKSPACE_GONE};
pub use tool_names::{DELEGATE, DIFF, MERGE, RESULT, STATUS, TOOLS};
pub use tools::specs as tool_specs;
pub(crate) use tools::{reattach, register, stopped_call_output, waiting_for};

/// Configuration of all subagents of a session.
#[derive(Debug, Clone, Default)]
pub struct Delegation {
    /// Names of the subagents that the main agent may call.
    pub main_calls: Vec<String>,
    /// Definitions of the subagents that can be called.
    pub subagents: Vec<Subagent>,
    /// Common limits of all subagents: depth, number, tokens, cost and running time.
    pub limits: GovernorLimits,
    /// Maximum sizes of handoff packets and answers.
    pub caps: Caps,
    /// Maximum model replies of a subagent, at least 1; its definition or the call may set a lower
    /// number. `u32::MAX`: no limit.
    pub turns_max: u32,
    /// True if a new subagent receives the memory of earlier subagents of its name.
    pub remembers: bool,
    /// Factory of isolated workspaces; `None` if they are not available, for example outside a git
    /// repository. Then a call that needs one is refused.
    pub workplaces: Option<Arc<dyn IsolatedWorkspaces>>,
}

/// Definition of a subagent that other agents can start by its name.
#[derive(Clone)]
pub struct Subagent {
    /// Name of the subagent.
    pub name: String,
    /// System prompt of the subagent. In an isolated workspace, the one of that workspace replaces
    /// it.
    pub system_prompt: String,
    /// Names of the tools that it sees, besides those for delegation. Unknown names are ignored.
    pub tools: Vec<String>,
    /// Provider of its own model, which has no fallback models; `None`: the main model with its
    /// fallback models.
    pub provider: Option<Arc<dyn Provider>>,
    /// Reasoning effort; `None`: the provider's default.
    pub thinking: Option<Thinking>,
    /// Sampling temperature; `None`: the provider's default.
    pub temperature: Option<f64>,
    /// Pricing of its own model; `None` if unknown or without an own model.
    pub price: Option<PriceLookup>,
    /// Names of the subagents that it may call.
    pub calls: Vec<String>,
    /// Maximum model replies, if lower than the common limit; `None`: the common limit.
    pub turns_max: Option<u32>,
    /// Maximum running time; `None`: only common limits.
    pub duration_max: Option<Duration>,
    /// Maximum depth of delegation below this subagent; `None`: only the common limit.
    pub depth_max: Option<u32>,
    /// True if it always works in an isolated workspace; false if only on request of the caller.
    pub isolated: bool,
}

impl std::fmt::Debug for Subagent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subagent").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Requests of the delegation tools to the session.
pub(crate) enum DelegationRequest {
    /// Start or resume a subagent. Replies when it has started or was refused, not while it waits
    /// in the queue.
    Start(Box<StartRequest>, Report<Result<StartedSubagent, NotStarted>>),
    /// Wait again for the subagent that the call started for the caller `Origin`. Replies `None` if
    /// there is none.
    Attach(CallId, Arc<Origin>, Report<Option<StartedSubagent>>),
    /// Stop waiting for the subagent that the call started for the caller `Origin`. Replies with
    /// the end of the subagent, or with its id if it is still running; `None` if none was started.
    Detach(CallId, Arc<Origin>, Report<Option<DetachedSubagent>>),
    /// Return the entries of all subagents that the agent `Origin` started directly or indirectly;
    /// for the main agent, of all subagents of the session.
    Query(Arc<Origin>, Report<Vec<SubagentInfo>>),
}

pub(crate) struct StartRequest {
    pub(crate) call_id: CallId,
    /// Origin of the caller.
    pub(crate) origin: Arc<Origin>,
    pub(crate) subagent: usize,
    pub(crate) handoff: Handoff,
    pub(crate) background: bool,
    /// True if the caller wants a brief answer.
    pub(crate) brief: bool,
    pub(crate) turns_max: Option<u32>,
    /// Ended subagent to resume; `None` for a new one.
    pub(crate) resume: Option<InvocationId>,
    /// Informs the tool that the subagent waits for a concurrency slot, with the number of all
    /// slots; `None` after that.
    pub(crate) queued: Option<oneshot::Sender<u32>>,
    /// Its strong reference is dropped when the caller no longer wants the subagent.
    pub(crate) wanted: Weak<()>,
    /// True if the subagent gets a new isolated workspace.
    pub(crate) isolated: bool,
    /// The new isolated workspace, with the invocation id that the subagent gets; `None` before it
    /// is created, or if the subagent gets none.
    pub(crate) workplace: Option<(InvocationId, IsolatedWorkspace)>,
}

/// Reason why a subagent was not started.
pub(crate) enum NotStarted {
    /// A limit of delegation or of a budget leaves no room for the subagent.
    Limit(SubagentRefusal),
    /// The subagent cannot be started or resumed, with the reason in words.
    Cannot(String),
}

/// Reply to the start of a subagent.
pub(crate) struct StartedSubagent {
    pub(crate) id: InvocationId,
    /// True if the caller does not wait for the end.
    pub(crate) background: bool,
    /// Receives the end of the subagent; nothing if `background` is set. Dropping the receiver
    /// means that the caller no longer waits.
    pub(crate) ended: oneshot::Receiver<Arc<SubagentEnd>>,
}

/// A subagent whose caller no longer waits for it.
pub(crate) enum DetachedSubagent {
    /// The subagent has ended, with this outcome and answer.
    Ended(Arc<SubagentEnd>),
    /// The subagent, with its name, is still running. It is stopped with its caller.
    Running(InvocationId, String),
}

/// Entry of a subagent in the results of `agent_status` and `agent_result`.
#[derive(Debug, Clone)]
pub(crate) struct SubagentInfo {
    pub(crate) id: InvocationId,
    pub(crate) path: String,
    /// `waiting for a place …`, `running`, `ending`, `stopping`, `restarting`, or the outcome.
    pub(crate) state: String,
    pub(crate) task: String,
    /// Running time since its last start, until now or until its end; zero while it is queued.
    pub(crate) took: Duration,
    /// Known cost since its last start, in billionths of a dollar; `None` if no cost is known.
    pub(crate) cost_nano_usd: Option<u64>,
    pub(crate) ended: Option<Arc<SubagentEnd>>,
}

type SendRequest = Box<dyn Fn(DelegationRequest) + Send + Sync>;

/// Configuration, memory and lists of subagents that the delegation tools and the session share,
/// and the connection of the tools to the session.
pub(crate) struct DelegationHandle {
    pub(crate) delegation: Delegation,
    /// Profile, model and endpoint of the main agent's provider.
    pub(crate) info: ProviderInfo,
    /// Working directory of the session.
    pub(crate) cwd: String,
    /// Context budget of subagents, and the lookup of their context windows.
    child_context: (ContextBudget, ContextSettings),
    /// True if the main agent sees the tool that reads files and earlier outputs.
    main_reads: bool,
    /// Source of invocation ids for subagents whose isolated workspace is created before they
    /// start.
    ids: Arc<dyn Ids>,
    line: OnceLock<SendRequest>,
    /// Text of the last prompt of the user, for handoff packets; empty before the first.
    request: Guarded<Arc<str>>,
    /// Digests of the conversations of callers, for handoff packets.
    conversations: Guarded<ConversationDigests>,
    /// Memory of all subagents of the session.
    pub(crate) memories: Guarded<Memories>,
    /// Running subagents whose callers do not wait, by invocation.
    pub(crate) background: Guarded<BTreeMap<InvocationId, BackgroundWork>>,
    /// Invocations of subagents that work or worked in isolated workspaces, also in earlier
    /// processes.
    pub(crate) isolated: Guarded<BTreeSet<InvocationId>>,
}

/// Settings of the session that delegation needs.
pub(crate) struct DelegationSurroundings {
    /// Working directory of the session.
    pub(crate) cwd: String,
    /// Context budget of subagents, and the lookup of their context windows.
    pub(crate) child_context: (ContextBudget, ContextSettings),
    /// Names of the tools that the main agent sees.
    pub(crate) main_tools: Vec<String>,
}

/// A running subagent whose caller does not wait.
pub(crate) struct BackgroundWork {
    pub(crate) caller: Arc<Origin>,
    pub(crate) agent: String,
    pub(crate) task: String,
}

impl DelegationHandle {
    pub(crate) fn new(
        delegation: Delegation,
        info: ProviderInfo,
        surroundings: DelegationSurroundings,
        ids: Arc<dyn Ids>,
    ) -> DelegationHandle {
        let DelegationSurroundings { cwd, child_context, main_tools } = surroundings;
        DelegationHandle {
            delegation,
            info,
            cwd,
            child_context,
            main_reads: main_tools.iter().any(|name| name == tool_names::READER),
            ids,
            line: OnceLock::new(),
            request: Guarded::new("".into()),
            conversations: Guarded::default(),
            memories: Guarded::default(),
            background: Guarded::default(),
            isolated: Guarded::default(),
        }
    }

    /// Sets the function that sends requests to the session. Only the first call has an effect.
    pub(crate) fn open(&self, line: impl Fn(DelegationRequest) + Send + Sync + 'static) {
        self.line.set(Box::new(line)).ok();
    }

    /// Sends a request to the session. Before `open` and after the end of the session it is
    /// dropped, and its report delivers an error.
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

    /// Updates the digest of the conversation of `origin`, whose reply number `turn` delegates, from
    /// its history.
    pub(crate) fn note_conversation(&self, origin: &Origin, turn: u32, history: &[Arc<Message>]) {
        self.conversations.lock().update(origin, turn, history);
    }

    fn conversation_of(&self, origin: &Origin) -> Arc<ConversationDigest> {
        self.conversations.lock().of(origin)
    }

    /// True if `origin` sees the tool that reads files and earlier outputs.
    fn may_read(&self, origin: &Origin) -> bool {
        match &origin.parent_invocation_id {
            None => self.main_reads,
            Some(_) => self.subagent(&origin.agent).is_some_and(|(_, subagent)| {
                subagent.tools.iter().any(|name| name == tool_names::READER)
            }),
        }
    }

    /// Maximum bytes of the answer of a subagent in a result for the caller `origin`.
    pub(crate) fn answer_bytes_max(&self, origin: &Origin) -> usize {
        let caps = &self.delegation.caps;
        match &origin.parent_invocation_id {
            None => caps.answer_bytes_max.min(caps.main_answer_bytes_max),
            Some(_) => caps.answer_bytes_max,
        }
    }

    /// Maximum size of a handoff packet: that of the configuration, but at most half of a configured
    /// context budget of subagents.
    fn handoff_caps(&self) -> Caps {
        let caps = self.delegation.caps;
        let half = self.child_context.0.tokens_max.map_or(usize::MAX, |max| bytes_in(max / 2));
        Caps { handoff_bytes_max: caps.handoff_bytes_max.min(half), ..caps }
    }

    /// Maximum bytes of all referenced texts for `subagent`: a quarter of its context budget.
    fn references_bytes_max(&self, subagent: &Subagent) -> usize {
        let (budget, settings) = &self.child_context;
        let info = self.info_of(subagent);
        let tokens_max = budget.tokens_max(settings.window(&info), assumed_window(&info));
        bytes_in(tokens_max / 4).min(references::REFERENCES_BYTES_MAX)
    }

    /// Running background subagents that `origin` started, one line each.
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

    /// Text of the memory for a new subagent of this definition; empty if there is none.
    fn memory_of(&self, subagent: &Subagent, provider: &str) -> String {
        if !self.delegation.remembers {
            return String::new();
        }
        self.memories.lock().text(&subagent.name, provider, &self.cwd)
    }

    fn user_request(&self) -> Arc<str> {
        Arc::clone(&self.request.lock())
    }

    /// True if an agent at depth `depth` that may call the subagents `calls` can delegate.
    fn delegates(&self, calls: &[String], depth: u32) -> bool {
        !calls.is_empty() && depth < self.delegation.limits.depth_max
    }

    /// Descriptions of the delegation tools for an agent at depth `depth` (0 is the main agent)
    /// that may call the subagents `calls`. Empty if `calls` is empty or the maximum depth is
    /// reached.
    pub(crate) fn specs(&self, toolbox: &Toolbox, calls: &[String], depth: u32) -> Vec<ToolSpec> {
        if !self.delegates(calls, depth) {
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

/// Id of the message that reports the end of the subagent `child`, which `call` started, to its
/// caller. The id is the same in every process, so the message is delivered only once.
pub(crate) fn notice_id(child: &InvocationId, call: &CallId) -> MessageId {
    MessageId::new(format!("{child}.{call}"))
}

/// Depth of an agent in the delegation tree: 0 is the main agent.
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
