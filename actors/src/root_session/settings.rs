//! What a session is started with, and how it and its prompts end.

use std::sync::Arc;

use crate::agent_invocation::{Ending, RequestOptions};
use crate::context::ContextSettings;
use crate::conversation::{Message, SessionId, Usage};
use crate::delegation::Delegation;
use crate::event::Event;
use crate::ledger::{Accounts, Budget, PriceLookup};
use crate::limits::Limits;
use crate::ports::Asking;
use crate::root_session::{FailPoints, Resumption};

/// What a session is, besides what it needs of the world.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Its id.
    pub session_id: SessionId,
    /// Version of posse, for the record.
    pub posse: String,
    /// The working directory, for the record.
    pub cwd: String,
    /// The main agent.
    pub agent: String,
    /// Its instructions.
    pub system_prompt: String,
    /// Names of the tools it sees.
    pub tools: Vec<String>,
    /// How the model is asked.
    pub options: RequestOptions,
    /// Who answers questions.
    pub asking: Asking,
    /// What confines processes: `none`, `reduced` or `full`.
    pub tier: String,
    /// Every bound.
    pub limits: Limits,
    /// What was said before, valid and without system messages. Not with a `resumption`.
    pub history: Vec<Arc<Message>>,
    /// What its journal says, if it was there before.
    pub resumption: Option<Box<Resumption>>,
    /// Hash of what the agent is told besides the state of the world, for the record; may be empty.
    pub instructions: String,
    /// What the model costs, as far as that is known.
    pub price: Option<PriceLookup>,
    /// What the session may cost.
    pub budget: Budget,
    /// The part of it that was said for this session, for the record: a limit of the configuration
    /// is that of whoever goes on with it.
    pub own_budget: Budget,
    /// What it has spent before it was started here, if there is no `resumption` that knows.
    pub accounts: Accounts,
    /// What was found before it started and belongs into its journal.
    pub noted: Vec<Event>,
    /// Agents that may work for others; none where one works alone.
    pub delegation: Option<Delegation>,
    /// What is known of contexts besides budgets, which are among the bounds.
    pub context: ContextSettings,
    /// Where tests make actors panic.
    pub fail: FailPoints,
}

/// How the session ends, in the words of its last record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnding {
    /// `completed`, `failed`, `interrupted`, `limit`, `parked`, `provider`, `permission`.
    pub reason: String,
    /// The exit code of a headless run.
    pub exit_code: i32,
    /// The last answer.
    pub result: Option<String>,
}

/// How one prompt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    /// How.
    pub ending: Ending,
    /// Model replies.
    pub turns: u32,
    /// Tokens.
    pub usage: Usage,
    /// Questions that nobody could be asked, in the whole session.
    pub unanswered: u32,
    /// How many of these `--yes` would not have covered.
    pub not_by_yes: u32,
}
