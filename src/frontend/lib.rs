//! Parts shared by the front ends for a person at a terminal: the source of sessions, texts for
//! outcomes and notices, the input history, slash commands and the quiet period before an answer.

pub mod clipboard;
pub mod commands;
pub mod context;
pub mod drafts;
pub mod files;
pub mod history;
pub mod instruction;
pub mod jobs;
pub mod notices;
pub mod outcome;
pub mod queue;
pub mod quiet_period;
pub mod remote_session;
pub mod session_records;
pub mod signals;
pub mod subagents;
pub mod table;

use std::any::Any;

use posse_actors::conversation::Prompt;
use posse_actors::ports::Ports;
use posse_actors::root_session::{
    PromptError, RunningPrompt, SessionHandle, SessionSettings, UserCall,
};

use posse_base::failure::Failure;
use remote_session::SessionServer;

/// `1 turn`, `2 turns`.
pub fn pluralize(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Work for a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// A prompt of the user.
    Prompt(Prompt),
    /// Continues an interrupted run, or sends a prompt that the model has not received yet.
    Continue,
}

impl Task {
    /// Starts the task.
    pub async fn begin(self, session: &SessionHandle) -> Result<RunningPrompt, PromptError> {
        match self {
            Task::Prompt(prompt) => session.prompt(prompt).await,
            Task::Continue => session.resume().await,
        }
    }
}

/// Builds the `bash` call for a command that the user typed.
pub fn own_call(command: &str) -> UserCall {
    UserCall {
        tool: "bash".to_owned(),
        arguments: serde_json::json!({ "command": command }).to_string(),
        said: format!(
            "I ran this command myself, beside our conversation:\n\n```\n{command}\n```\n\n\
             What came of it:"
        ),
    }
}

/// Source of the sessions of a front end.
pub trait Sessions {
    /// Assembles a session. With `same_conversation` the session continues the conversation of the
    /// previous session and shares its record; otherwise a new conversation begins.
    fn open(
        &mut self,
        choice: &SessionSelection,
        same_conversation: bool,
    ) -> Result<OpenedSession, Vec<Failure>>;

    /// Saves a selection as the default of later processes.
    fn remember(&mut self, what: Selectable, name: &str) -> Result<(), Failure>;

    /// Removes the saved selection, here and for later processes. Asks no question.
    fn forget(&mut self, what: Selectable) -> Result<(), Failure>;

    /// Returns a prompt that carries out `task` with a skill. An empty `task` leaves the task to
    /// the skill. Fails if there is no such skill.
    fn skill(&self, name: &str, task: &str) -> Result<Prompt, Vec<Failure>>;

    /// Known names that can be selected.
    fn names(&self, what: Selectable) -> Vec<String>;

    /// Renders a report for the session with that id.
    fn report(&self, what: Report, session: &str) -> BackgroundJob<String>;

    /// Stored sessions that can be resumed here, newest first, as pairs of id and description.
    fn stored(&self) -> BackgroundJob<Vec<(String, String)>>;

    /// Finds a stored session of this folder or its project by a prefix of its id, reads it and
    /// takes its lock. With `fork` a new session branches off it, and the stored one stays
    /// unchanged.
    fn find_session(&self, id: &str, fork: bool) -> BackgroundJob<LoadedSession>;

    /// Assembles a session that [`Sessions::find_session`] returned. The flag tells whether there
    /// is unfinished work that continues without a new prompt. On failure nothing has changed.
    fn resume(&mut self, ready: LoadedSession) -> Result<(OpenedSession, bool), Vec<Failure>>;

    /// Builds the call that reverts the last file change of the session with that id.
    fn undo(&self, session: &str) -> BackgroundJob<UserCall>;
}

/// Slow work that runs on a thread of its own. It prints nothing.
pub type BackgroundJob<T> = Box<dyn FnOnce() -> Result<T, Vec<Failure>> + Send>;

/// A stored session that was found and read. Holds the lock of the session. The content is known
/// only to the [`Sessions`] that created it.
#[expect(missing_debug_implementations, reason = "the content is opaque")]
pub struct LoadedSession(pub Box<dyn Any + Send>);

/// Report to render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Settings with their sources.
    Config,
    /// Diagnosis of this machine.
    Doctor,
    /// Tools.
    Tools,
    /// Skills.
    Skills,
    /// Agents.
    Agents,
    /// Permission rules, and grants beyond the session.
    Permissions,
    /// Confinement of commands.
    Sandbox,
    /// The conversation as a document, written to the named file.
    Export(Option<String>),
}

/// Selections of this process. `None` means the configured value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSelection {
    /// The agent.
    pub agent: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
}

impl SessionSelection {
    /// Returns a copy with another selection. `None` means the configured value.
    #[must_use]
    pub fn with(&self, what: Selectable, name: Option<String>) -> SessionSelection {
        let mut choice = self.clone();
        match what {
            Selectable::Agent => choice.agent = name,
            Selectable::Model => choice.model = name,
            Selectable::Provider => {
                // A model belongs to its provider.
                choice.model = None;
                choice.provider = name;
            }
        }
        choice
    }
}

/// Returns `true` if `name` resets the selection: it is `default`, and none of the selectable
/// `names` is called so.
pub fn is_default(name: &str, names: impl FnOnce() -> Vec<String>) -> bool {
    name == "default" && !names().iter().any(|known| known == name)
}

/// An assembled session that is ready to start.
#[expect(missing_debug_implementations, reason = "it is destructured at once")]
pub struct OpenedSession {
    /// Ports of the session.
    pub ports: Ports,
    /// Settings of the session.
    pub settings: SessionSettings,
    /// Sources of its provider, model and agent.
    pub sources: SelectionSources,
    /// Opens the attach socket of the session.
    pub session_server: SessionServer,
}

/// Source of each selection, such as a flag or a file, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectionSources {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The agent.
    pub agent: String,
}

/// A setting that can be selected between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selectable {
    /// The model of the provider.
    Model,
    /// The provider.
    Provider,
    /// The agent.
    Agent,
}

impl Selectable {
    /// Name of the setting.
    pub fn word(self) -> &'static str {
        match self {
            Selectable::Model => "model",
            Selectable::Provider => "provider",
            Selectable::Agent => "agent",
        }
    }
}
