//! Settings of a session, outcomes of sessions and prompts, and errors of requests to a session.

use std::sync::Arc;

use crate::agent_invocation::RequestOptions;
use crate::context::ContextSettings;
use crate::conversation::{Message, SessionId, Usage};
use crate::cost::{Budget, PriceLookup};
use crate::delegation::Delegation;
use crate::event::{
    Event, PermissionMode, PromptOverrides, SandboxTier, SessionEndReason, SessionError,
};
use crate::ledger::Accounts;
use crate::limits::Limits;
use crate::outcome::Ending;
use crate::ports::AnswerSource;
use crate::root_session::{FailPoints, Resumption};

/// Settings for starting a session, besides its ports.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Id of the session.
    pub session_id: SessionId,
    /// Version of posse, for the journal.
    pub posse: String,
    /// Working directory of the session, for calls, records and handoff packets.
    pub cwd: String,
    /// Name of the main agent.
    pub agent: String,
    /// System prompt of the main agent.
    pub system_prompt: String,
    /// Names of the tools that the main agent sees, besides those for delegation. Unknown names are
    /// ignored.
    pub tools: Vec<String>,
    /// Options of the main agent's model requests; subagents have the same ones with their own
    /// reasoning effort and temperature.
    pub options: RequestOptions,
    /// Source of answers to permission requests.
    pub asking: AnswerSource,
    /// Permission mode at the start. A resumed or forked session has the stricter one of this mode
    /// and that of its journal.
    pub permission_mode: PermissionMode,
    /// Sandbox tier of processes: `none`, `reduced` or `full`.
    pub tier: SandboxTier,
    /// Bounds of the session, such as restarts, waits, queue lengths, output sizes and context
    /// budgets.
    pub limits: Limits,
    /// Earlier messages for a new session, valid and without system messages. Not used together
    /// with `resumption`.
    pub history: Vec<Arc<Message>>,
    /// State to resume or fork from; `None` for a new session.
    pub resumption: Option<Box<Resumption>>,
    /// Hash of the agent's instructions without the block about the environment, for the record;
    /// may be empty.
    pub instructions: String,
    /// Pricing of the main model; `None` if unknown.
    pub price: Option<PriceLookup>,
    /// Limits of tokens and money of the session, including its subagents; the default has none.
    pub budget: Budget,
    /// Limits that were set for this session only, for the record; limits of the configuration are
    /// not recorded.
    pub own_budget: Budget,
    /// Texts of the user that `system_prompt` contains, for the record.
    pub own_prompt: PromptOverrides,
    /// Spending before the start, for a new session or a fork. Not used for a resumed session,
    /// whose spending is read from its journal.
    pub accounts: Accounts,
    /// Events from before the start. They are recorded after the record of the start, resume or
    /// fork.
    pub noted: Vec<Event>,
    /// Title of the conversation that a new session continues; `None` if it has none. Not used
    /// together with `resumption`.
    pub title: Option<String>,
    /// Configuration of subagents; `None` in single-agent mode.
    pub delegation: Option<Delegation>,
    /// Settings for context windows, summaries and titles. Context budgets are part of `limits`.
    pub context: ContextSettings,
    /// Panics to inject in tests.
    pub fail: FailPoints,
}

impl SessionSettings {
    /// Default settings of a new session in single-agent mode: no system prompt, tools, price or
    /// budget, default limits, and the sandbox tier `none`. Permission requests are denied, because
    /// no person can be asked.
    pub fn new(
        session_id: SessionId,
        cwd: impl Into<String>,
        agent: impl Into<String>,
    ) -> SessionSettings {
        SessionSettings {
            session_id,
            posse: env!("CARGO_PKG_VERSION").to_owned(),
            cwd: cwd.into(),
            agent: agent.into(),
            system_prompt: String::new(),
            tools: Vec::new(),
            options: RequestOptions::default(),
            asking: AnswerSource::Nobody,
            permission_mode: PermissionMode::default(),
            tier: SandboxTier::None,
            limits: Limits::default(),
            history: Vec::new(),
            resumption: None,
            instructions: String::new(),
            price: None,
            budget: Budget::default(),
            own_budget: Budget::default(),
            own_prompt: PromptOverrides::default(),
            accounts: Accounts::default(),
            noted: Vec::new(),
            title: None,
            delegation: None,
            context: ContextSettings::default(),
            fail: FailPoints::none(),
        }
    }
}

impl SessionSettings {
    /// Permission mode with which the session starts. `locked` if the modes of start and journal
    /// cannot be combined.
    pub(super) fn first_mode(&self) -> PermissionMode {
        let start = self.permission_mode;
        self.resumption
            .as_ref()
            .map_or(start, |from| from.permission_mode(start).unwrap_or(PermissionMode::Locked))
    }
}

/// Ending of a session, for its last record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnding {
    /// Reason for the end of the session, as recorded and passed to hooks.
    pub reason: SessionEndReason,
    /// Exit code of the process of the front end that ends the session.
    pub exit_code: i32,
    /// Final answer of a headless run; `None` if there is none, and for other front ends.
    pub result: Option<String>,
    /// Error that ended a headless run; `None` if there was none, and for other front ends.
    pub error: Option<SessionError>,
}

/// Outcome of one run, or of one tool call of the user.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    /// Ending of the run. A tool call of the user ends as an empty answer or as interrupted.
    pub ending: Ending,
    /// Number of model replies to the main agent in the run, including those before a crash or a
    /// resume; 0 for a tool call of the user.
    pub turns: u32,
    /// Tokens of the main agent in the run, including those before a crash or a resume, without
    /// those of subagents.
    pub usage: Usage,
    /// Number of permission requests that no person could answer, since this process started or
    /// resumed the session.
    pub unanswered: u32,
    /// Number of these requests that `--yes` would not have covered.
    pub not_by_yes: u32,
}

/// Reason why a prompt, or another request to start work, was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// A run, a tool call of the user or a compaction is in progress. For a tool call of the user,
    /// also: the hooks for the session start are running.
    #[error("the session is busy with another prompt")]
    Busy,
    /// The session accepts no work, because an actor crashed too often. For a tool call of the
    /// user, also: a hook denied the start of the session. Contains the cause.
    #[error("the session is parked: {0}")]
    Parked(String),
    /// There is no unfinished work to resume.
    #[error("there is no unfinished work to resume: send a prompt")]
    NothingUnfinished,
    /// The session has ended or is ending.
    #[error("the session has ended")]
    Ended,
}

/// Reason why a message was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeliverError {
    /// No run can receive the message now: none is in progress, or it waits for hooks or is rebuilt
    /// after a crash.
    #[error("no task is running that could receive a message")]
    Idle,
    /// Too many messages wait in the queue.
    #[error("the message queue is full")]
    Full,
}
