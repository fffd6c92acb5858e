//! What the front ends for a person at a terminal share: where their sessions come from, how an
//! outcome and a notice read, what was typed before, and when a question begins to listen.

pub(crate) mod asked;
pub(crate) mod clipboard;
pub(crate) mod commands;
pub(crate) mod context;
pub(crate) mod drafts;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod instruction;
pub(crate) mod jobs;
pub mod joining;
pub(crate) mod notices;
pub(crate) mod outcome;
pub(crate) mod queue;
pub(crate) mod signals;
pub(crate) mod silence;
pub(crate) mod table;
pub(crate) mod workers;

use std::any::Any;

use posse_actors::conversation::Prompt;
use posse_actors::ports::Ports;
use posse_actors::root_session::{
    PromptError, RunningPrompt, SessionHandle, SessionSettings, UserCall,
};

use crate::failure::Failure;
use joining::Invitation;

/// `1 turn`, `2 turns`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

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
    pub(crate) async fn begin(self, session: &SessionHandle) -> Result<RunningPrompt, PromptError> {
        match self {
            Task::Prompt(prompt) => session.prompt(prompt).await,
            Task::GoOn => session.resume().await,
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

    /// Forgets what was selected last, here and in earlier processes. Nothing is asked anew.
    fn forget(&mut self, what: Selected) -> Result<(), Failure>;

    /// A task that is to be done as a skill says; or why there is no such skill. An empty `task`
    /// leaves it to the skill.
    fn skill(&self, name: &str, task: &str) -> Result<Prompt, Vec<Failure>>;

    /// Names that can be selected, as far as they are known.
    fn names(&self, what: Selected) -> Vec<String>;

    /// A text about something, for the session of that id.
    fn report(&self, what: Report, session: &str) -> Errand<String>;

    /// Stored sessions that can go on here, the newest first: their ids, and what is said of them.
    fn stored(&self) -> Errand<Vec<(String, String)>>;

    /// Looks a stored session of this folder or its project up by the beginning of its id, reads it
    /// and takes its lock; with `fork` it is to branch off, and stays as it is.
    fn look_up(&self, id: &str, fork: bool) -> Errand<Ready>;

    /// Puts together what was looked up. With whether there is something to go on with that nobody
    /// needs to say anything for. If it fails, nothing has changed.
    fn take_up(&mut self, ready: Ready) -> Result<(Opened, bool), Vec<Failure>>;

    /// What takes back the last change of a file in the session of that id.
    fn undo(&self, session: &str) -> Errand<UserCall>;
}

/// Something that takes a while, and is done on a thread of its own. It prints nothing.
pub type Errand<T> = Box<dyn FnOnce() -> Result<T, Vec<Failure>> + Send>;

/// A stored session that was looked up, and whose lock is held as long as this lives. Only whoever
/// looked it up knows what is in it.
#[expect(missing_debug_implementations, reason = "nobody can look into it")]
pub struct Ready(pub(crate) Box<dyn Any + Send>);

/// Something to be told about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Settings with their sources.
    Config,
    /// What works here.
    Doctor,
    /// Tools.
    Tools,
    /// Skills.
    Skills,
    /// Agents.
    Agents,
    /// How permissions are decided, and what is allowed beyond the session.
    Permissions,
    /// What confines commands.
    Sandbox,
    /// The conversation as a document, in a file of that name.
    Export(Option<String>),
}

impl Report {
    /// What it is called, where it has a title.
    pub fn title(&self) -> &'static str {
        match self {
            Report::Config => "settings",
            Report::Doctor => "doctor",
            Report::Tools => "tools",
            Report::Skills => "skills",
            Report::Agents => "agents",
            Report::Permissions => "permissions",
            Report::Sandbox => "sandbox",
            Report::Export(_) => "export",
        }
    }
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

impl Choice {
    /// The same with something else selected. `None`: what is configured.
    pub(crate) fn with(&self, what: Selected, name: Option<String>) -> Choice {
        let mut choice = self.clone();
        match what {
            Selected::Agent => choice.agent = name,
            Selected::Model => choice.model = name,
            Selected::Provider => {
                // A model belongs to its provider.
                choice.model = None;
                choice.provider = name;
            }
        }
        choice
    }
}

/// Whether `name` says that nothing is to be selected any more. `names`: what can be selected.
pub(crate) fn is_default(name: &str, names: impl FnOnce() -> Vec<String>) -> bool {
    name == "default" && !names().iter().any(|known| known == name)
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
    /// Lets others join it.
    pub invitation: Invitation,
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
