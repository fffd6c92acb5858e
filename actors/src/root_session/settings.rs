//! Settings of a session, and the ends of sessions and prompts.

use std::sync::Arc;

use crate::agent_invocation::RequestOptions;
use crate::context::ContextSettings;
use crate::conversation::{Message, SessionId, Usage};
use crate::cost::{Budget, PriceLookup};
use crate::delegation::Delegation;
use crate::event::{Event, SandboxTier, SessionEndReason};
use crate::ledger::Accounts;
use crate::limits::Limits;
use crate::outcome::Ending;
use crate::ports::AnswerSource;
use crate::root_session::{FailPoints, Resumption};

/// Settings of a session besides its ports.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Id of the session.
    pub session_id: SessionId,
    /// Version of posse, for the journal.
    pub posse: String,
    /// Working directory, for the journal.
    pub cwd: String,
    /// Name of the main agent.
    pub agent: String,
    /// System prompt of the main agent.
    pub system_prompt: String,
    /// Names of the tools it sees.
    pub tools: Vec<String>,
    /// Options of model requests.
    pub options: RequestOptions,
    /// Source of answers to permission requests.
    pub asking: AnswerSource,
    /// Sandbox tier of processes: `none`, `reduced` or `full`.
    pub tier: SandboxTier,
    /// Upper bounds.
    pub limits: Limits,
    /// Earlier messages, valid and without system messages. Exclusive with `resumption`.
    pub history: Vec<Arc<Message>>,
    /// Journal state, if the session is resumed.
    pub resumption: Option<Box<Resumption>>,
    /// Hash of the agent's instructions without the environment block, for the record; may be
    /// empty.
    pub instructions: String,
    /// Pricing of the model, if known.
    pub price: Option<PriceLookup>,
    /// Budget of the session.
    pub budget: Budget,
    /// Part of the budget that was set for this session, for the record: limits of the
    /// configuration are not stored.
    pub own_budget: Budget,
    /// Spending before this start, if there is no `resumption`.
    pub accounts: Accounts,
    /// Events from before the start that belong into the journal.
    pub noted: Vec<Event>,
    /// Subagents; `None` in single-agent mode.
    pub delegation: Option<Delegation>,
    /// Context settings besides budgets, which are among the limits.
    pub context: ContextSettings,
    /// Test hooks that make actors panic.
    pub fail: FailPoints,
}

impl SessionSettings {
    /// Settings of a new session in single-agent mode: no tools, no price and no budget, default
    /// limits, and permission requests that no person answers.
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
            tier: SandboxTier::None,
            limits: Limits::default(),
            history: Vec::new(),
            resumption: None,
            instructions: String::new(),
            price: None,
            budget: Budget::default(),
            own_budget: Budget::default(),
            accounts: Accounts::default(),
            noted: Vec::new(),
            delegation: None,
            context: ContextSettings::default(),
            fail: FailPoints::none(),
        }
    }
}

/// End of the session, as in its last record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnding {
    /// Why it ends.
    pub reason: SessionEndReason,
    /// Exit code of a headless run.
    pub exit_code: i32,
    /// The last answer.
    pub result: Option<String>,
}

/// Outcome of one prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    /// Ending.
    pub ending: Ending,
    /// Model replies.
    pub turns: u32,
    /// Tokens.
    pub usage: Usage,
    /// Number of permission requests in the whole session that no person could answer.
    pub unanswered: u32,
    /// Number of these that `--yes` would not have covered.
    pub not_by_yes: u32,
}

/// Reason why a prompt was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// A prompt is running: steer it, or wait.
    #[error("the session is busy with another prompt")]
    Busy,
    /// An actor crashed too often, and the session waits for its user.
    #[error("the session is parked: {0}")]
    Parked(String),
    /// Nothing is unfinished.
    #[error("there is no unfinished work to resume: send a prompt")]
    NothingUnfinished,
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
}

/// Reason why a message was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeliverError {
    /// Nothing runs: send a prompt instead.
    #[error("no task is running that could receive a message")]
    Idle,
    /// The queue is full.
    #[error("the message queue is full")]
    Full,
}
