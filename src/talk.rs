//! What the front ends for a person at a terminal share: where their sessions come from, how an
//! outcome and a notice read, what was typed before, and when a question begins to listen.

pub(crate) mod context;
pub(crate) mod history;
pub(crate) mod notices;
pub(crate) mod outcome;
pub(crate) mod signals;
pub(crate) mod silence;

use posse_actors::conversation::Prompt;
use posse_actors::ports::Ports;
use posse_actors::root_session::{PromptError, Running, SessionHandle, SessionSettings};

use crate::failure::Failure;

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// What the user asks for.
    Prompt(Prompt),
    /// What broke off, or what the model was not asked yet.
    GoOn,
}

impl Task {
    /// Begins it.
    pub(crate) async fn begin(self, session: &SessionHandle) -> Result<Running, PromptError> {
        match self {
            Task::Prompt(prompt) => session.prompt(prompt).await,
            Task::GoOn => session.go_on().await,
        }
    }
}

/// Where a front end gets its sessions from.
pub trait Sessions {
    /// Puts a session together. `goes_on`: it belongs to the conversation of the one before, and
    /// is recorded with it; otherwise a new conversation begins.
    fn open(&mut self, choice: &Choice, goes_on: bool) -> Result<Opened, Vec<Failure>>;

    /// Makes what was selected the default of later processes.
    fn remember(&mut self, what: Selected, name: &str) -> Result<(), Failure>;

    /// Names that can be selected, as far as they are known.
    fn names(&self, what: Selected) -> Vec<String>;
}

/// What was selected in this process. `None`: what is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The agent.
    pub agent: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
}

/// A session that is ready to start.
#[expect(missing_debug_implementations, reason = "it is taken apart at once")]
pub struct Opened {
    /// What it needs of the world.
    pub ports: Ports,
    /// What it is.
    pub settings: SessionSettings,
    /// Where its provider, model and agent come from.
    pub sources: Sources,
}

/// Who said which provider, model and agent it is, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The agent.
    pub agent: String,
}

/// What can be chosen between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    /// The model of the provider.
    Model,
    /// The provider.
    Provider,
    /// The agent.
    Agent,
}

impl Selected {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Selected::Model => "model",
            Selected::Provider => "provider",
            Selected::Agent => "agent",
        }
    }
}
