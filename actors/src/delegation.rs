//! Agents that work for other agents: who there is, what they are given, what comes back, and the
//! tools with which a model asks for them.
//!
//! Here are data and pure functions, and tools that pass wishes on. Who is started, stopped and
//! recorded is the business of [`root_session`](crate::root_session) alone.

mod action_log;
mod handoff;
mod memory;
mod outcome;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::conversation::{CallId, InvocationId, MessageId};
use crate::event::Origin;
use crate::governor::{GovernorLimits, SubagentRefusal};
use crate::ledger::PriceLookup;
use crate::mailbox::Report;
use crate::ports::{
    Ids, IsolatedWorkspace, Provider, ProviderInfo, SideEffect, Thinking, ToolSpec, Toolbox,
    Workplaces,
};

pub(crate) use action_log::CANCELLED;
pub use action_log::{ActionLog, LoggedChange};
pub use handoff::Caps;
pub(crate) use handoff::Handoff;
pub(crate) use memory::{Forget, Learnt, files_of, follow_files};
pub use memory::{Memories, Memory, SubagentReport as Remembered};
pub use outcome::SubagentOutcome;
pub(crate) use outcome::{LeftBelow, NO_PLACE, SubagentEnd};
pub(crate) use tools::{left, reattach, register, waiting_for};

/// The tool that starts an agent.
pub const DELEGATE: &str = "delegate_agent";
/// The tool that says what agents do.
pub const STATUS: &str = "agent_status";
/// The tool that reads what an agent answered.
pub const RESULT: &str = "agent_result";
/// The tool that shows what an agent has changed in a worktree of its own.
pub const DIFF: &str = "agent_diff";
/// The tool that takes it over.
pub const MERGE: &str = "agent_merge";

/// Agents of a session that work for others.
#[derive(Debug, Clone, Default)]
pub struct Delegation {
    /// Whom the main agent may call, by name.
    pub main_calls: Vec<String>,
    /// Everybody who can be called.
    pub deputies: Vec<Subagent>,
    /// What they may use together.
    pub limits: GovernorLimits,
    /// How much goes there and back.
    pub caps: Caps,
    /// Model replies of one of them, unless it says less.
    pub turns_max: u32,
    /// Whether an agent is given what those of its name have reported before.
    pub remembers: bool,
    /// Makes places of their own for agents; none where there can be none.
    pub workplaces: Option<Arc<dyn Workplaces>>,
}

/// An agent that works for others.
#[derive(Clone)]
pub struct Subagent {
    /// How it is called.
    pub name: String,
    /// Its instructions.
    pub system_prompt: String,
    /// Names of the tools it sees.
    pub tools: Vec<String>,
    /// How its model is reached, if not like the session's.
    pub provider: Option<Arc<dyn Provider>>,
    /// How much its model thinks, if somebody says so.
    pub thinking: Option<Thinking>,
    /// What its model costs, if it has one of its own.
    pub price: Option<PriceLookup>,
    /// Whom it may call, by name.
    pub calls: Vec<String>,
    /// Model replies, below what holds for all.
    pub turns_max: Option<u32>,
    /// Wall time.
    pub duration_max: Option<Duration>,
    /// How deep it may delegate further, if it says so.
    pub depth_max: Option<u32>,
    /// Whether it works in a place of its own, whoever calls it.
    pub isolated: bool,
}

impl std::fmt::Debug for Subagent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deputy").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What tools ask of the session.
pub(crate) enum DelegationRequest {
    /// Start an agent.
    Start(Box<StartRequest>, Report<Result<StartedSubagent, NotStarted>>),
    /// Wait again for the agent that works for this call of that one. Nothing, if there is none.
    Attach(CallId, Arc<Origin>, Report<Option<StartedSubagent>>),
    /// Nobody waits any more for the agent that works for this call of that one. What became of it,
    /// if it was started.
    Left(CallId, Arc<Origin>, Report<Option<Leaving>>),
    /// What is known of those below this one; of all if it is the main agent.
    Look(Arc<Origin>, Report<Vec<SubagentInfo>>),
}

pub(crate) struct StartRequest {
    pub(crate) call_id: CallId,
    /// Who wants it.
    pub(crate) origin: Arc<Origin>,
    pub(crate) deputy: usize,
    pub(crate) handoff: Handoff,
    pub(crate) background: bool,
    pub(crate) turns_max: Option<u32>,
    /// One that has ended and goes on where it was.
    pub(crate) resume: Option<InvocationId>,
    /// How whoever wants it hears that it has to wait for a place.
    pub(crate) queued: Option<oneshot::Sender<u32>>,
    /// Gone when nobody wants it any more.
    pub(crate) wanted: Weak<()>,
    /// The place that was made for it, and the id that it has there.
    pub(crate) workplace: Option<(InvocationId, IsolatedWorkspace)>,
}

/// Why an agent was not started.
pub(crate) enum NotStarted {
    /// A limit stands against it.
    Limit(SubagentRefusal),
    /// The one that is to go on cannot, in words.
    Cannot(String),
}

/// An agent that was started.
pub(crate) struct StartedSubagent {
    pub(crate) id: InvocationId,
    /// Nobody waits for it.
    pub(crate) background: bool,
    /// How it ends. Whoever drops it does not wait any more.
    pub(crate) ended: oneshot::Receiver<Arc<SubagentEnd>>,
}

/// An agent whose caller does not wait for it any more.
pub(crate) enum Leaving {
    /// It has ended.
    Ended(Arc<SubagentEnd>),
    /// It is still at work, and goes with its caller.
    AtWork(InvocationId, String),
}

/// What is known of an agent.
#[derive(Debug, Clone)]
pub(crate) struct SubagentInfo {
    pub(crate) id: InvocationId,
    pub(crate) path: String,
    /// `waiting for a place`, `running`, `stopping`, `restarting`, or how it ended.
    pub(crate) state: String,
    pub(crate) task: String,
    /// How long it has been at work, or was.
    pub(crate) took: Duration,
    /// Billionths of a dollar, as far as that is known.
    pub(crate) cost_nano_usd: Option<u64>,
    pub(crate) ended: Option<Arc<SubagentEnd>>,
}

type SendRequest = Box<dyn Fn(DelegationRequest) + Send + Sync>;

/// What the tools know, and how they reach the session.
pub(crate) struct DelegationHandle {
    pub(crate) delegation: Delegation,
    /// Who answers for the session's own model.
    pub(crate) info: ProviderInfo,
    /// Where the work is done.
    pub(crate) cwd: String,
    /// Names those that get a place before they begin.
    ids: Arc<dyn Ids>,
    line: OnceLock<SendRequest>,
    /// What the user asked for last.
    request: Mutex<Arc<str>>,
    /// What agents have reported.
    memories: Mutex<Memories>,
    /// Those that are at work and that nobody waits for.
    beside: Mutex<BTreeMap<InvocationId, BackgroundWork>>,
    /// Those that work in places of their own, or did.
    rooms: Mutex<BTreeSet<InvocationId>>,
}

/// An agent in the background.
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
            request: Mutex::new("".into()),
            memories: Mutex::default(),
            beside: Mutex::default(),
            rooms: Mutex::default(),
        }
    }

    /// From now on wishes are heard.
    pub(crate) fn open(&self, line: impl Fn(DelegationRequest) + Send + Sync + 'static) {
        self.line.set(Box::new(line)).ok();
    }

    /// A wish before that, or after the end, is lost, and whoever has it hears so.
    fn tell(&self, request: DelegationRequest) {
        if let Some(line) = self.line.get() {
            line(request);
        }
    }

    pub(crate) fn deputy(&self, name: &str) -> Option<(usize, &Subagent)> {
        self.delegation.deputies.iter().enumerate().find(|(_, deputy)| deputy.name == name)
    }

    /// Whom `origin` may call.
    fn callable(&self, origin: &Origin) -> &[String] {
        match &origin.parent_invocation_id {
            None => &self.delegation.main_calls,
            Some(_) => self.deputy(&origin.agent).map_or(&[], |(_, deputy)| &deputy.calls),
        }
    }

    pub(crate) fn info_of(&self, deputy: &Subagent) -> ProviderInfo {
        deputy.provider.as_ref().map_or_else(|| self.info.clone(), |provider| provider.info())
    }

    pub(crate) fn user_asked(&self, text: &str) {
        *self.request() = text.into();
    }

    /// Those that are at work and that nobody waits for.
    pub(crate) fn in_background(&self) -> MutexGuard<'_, BTreeMap<InvocationId, BackgroundWork>> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that work in places of their own, or did.
    pub(crate) fn rooms(&self) -> MutexGuard<'_, BTreeSet<InvocationId>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of them that work for `origin`, a line each.
    pub(crate) fn background_work(&self, origin: &Origin) -> Vec<String> {
        // A main agent is another invocation with each prompt.
        let theirs = |one: &BackgroundWork| match &origin.parent_invocation_id {
            None => one.caller.parent_invocation_id.is_none(),
            Some(_) => one.caller.invocation_id == origin.invocation_id,
        };
        let all = self.in_background();
        let line = |(id, BackgroundWork { agent, task, .. }): (&InvocationId, &BackgroundWork)| {
            format!(
                "agent {agent} ({id}) works on: {task}. Its answer comes as a message; {RESULT} \
                 {{\"id\": \"{id}\"}} reads it"
            )
        };
        all.iter().filter(|(_, one)| theirs(one)).map(line).collect()
    }

    /// What agents have reported.
    pub(crate) fn memories(&self) -> MutexGuard<'_, Memories> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a new agent of this name is given of it.
    fn memory_of(&self, deputy: &Subagent, provider: &str) -> String {
        if !self.delegation.remembers {
            return String::new();
        }
        self.memories().text(&deputy.name, provider, &self.cwd)
    }

    fn user_request(&self) -> Arc<str> {
        Arc::clone(&self.request())
    }

    fn request(&self) -> MutexGuard<'_, Arc<str>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools that an agent sees which may call `calls`, at this depth (0 is the main agent).
    pub(crate) fn specs(&self, toolbox: &Toolbox, calls: &[String], depth: u32) -> Vec<ToolSpec> {
        if calls.is_empty() || depth >= self.delegation.limits.depth_max {
            return Vec::new();
        }
        let spec = |name: &str| toolbox.get(name).map(|tool| tool.spec().clone());
        let mut specs: Vec<ToolSpec> =
            [STATUS, RESULT, DIFF, MERGE, DELEGATE].into_iter().filter_map(spec).collect();
        for spec in specs.iter_mut().filter(|spec| spec.name == DELEGATE) {
            spec.parameters["properties"]["agent"]["enum"] = json!(calls);
        }
        specs
    }
}

/// The message that tells a caller how the agent has ended that it started with this call: the same
/// in every process, so that it is told once.
pub(crate) fn notice_id(child: &InvocationId, call: &CallId) -> MessageId {
    MessageId::new(format!("{child}.{call}"))
}

/// How deep `origin` is: 0 is the main agent.
pub(crate) fn depth_of(origin: &Origin) -> u32 {
    u32::try_from(origin.agent_path.matches('/').count()).unwrap_or(u32::MAX)
}

fn spec(name: &str, description: &str, properties: &Value, required: &[&str]) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: json!({"type": "object", "properties": properties, "required": required}),
        side_effect: SideEffect::None,
        source: "builtin".to_owned(),
    }
}
