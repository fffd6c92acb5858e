//! Code shared by the front ends, such as the source of sessions, texts for outcomes and notices,
//! the input history, slash commands and the quiet period before an answer.

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

/// Formats a count with its noun: `1 turn`, `2 turns`.
pub fn pluralize(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Work that a front end gives to a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// A prompt of the user.
    Prompt(Prompt),
    /// Continues an interrupted run, or sends queued messages that the model has not received yet.
    Continue,
}

impl Task {
    /// Starts the task in `session`.
    pub async fn begin(self, session: &SessionHandle) -> Result<RunningPrompt, PromptError> {
        match self {
            Task::Prompt(prompt) => session.prompt(prompt).await,
            Task::Continue => session.resume().await,
        }
    }
}

/// Builds the `bash` call for a shell command that the user typed.
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

/// Opens and finds sessions for a front end, and stores the settings that the user selects.
pub trait Sessions {
    /// Assembles a session with the agent, provider and model of `choice`. With `same_conversation`
    /// the session continues the journal of the previous session, and the caller copies the
    /// history; otherwise a new conversation begins. The first call opens the session that the
    /// command line resumes, if any.
    fn open(
        &mut self,
        choice: &SessionSelection,
        same_conversation: bool,
    ) -> Result<OpenedSession, Vec<Failure>>;

    /// Saves `name` as the default provider or model for later processes. Does nothing for an
    /// agent.
    fn remember(&mut self, what: Selectable, name: &str) -> Result<(), Failure>;

    /// Removes the saved default provider or model, so that the configured value applies again;
    /// with the provider, also the saved model. Does nothing for an agent.
    fn forget(&mut self, what: Selectable) -> Result<(), Failure>;

    /// Builds a prompt that carries out `task` with a skill. If `task` is empty, the skill itself
    /// says what to do. Fails if there is no skill of that name.
    fn skill(&self, name: &str, task: &str) -> Result<Prompt, Vec<Failure>>;

    /// Names to choose from for `what`: main agents, providers, or the models that the provider
    /// settings name.
    fn names(&self, what: Selectable) -> Vec<String>;

    /// Returns a closure that renders a report. `session`: id of the current session.
    fn report(&self, what: Report, session: &str) -> BackgroundJob<String>;

    /// Returns a closure that lists the stored sessions with a prompt, of the working directory and
    /// its project, newest first, as pairs of id and description.
    fn stored(&self) -> BackgroundJob<Vec<(String, String)>>;

    /// Returns a closure that finds a stored session of the working directory or its project by a
    /// prefix of its id, reads it and takes its lock. With `fork`, a new session is created from a
    /// copy of the history, and the stored session stays unchanged.
    fn find_session(&self, id: &str, fork: bool) -> BackgroundJob<LoadedSession>;

    /// Assembles a session that [`Sessions::find_session`] returned. The flag is true if the
    /// session has unfinished work that can continue without a new prompt. On failure the current
    /// session stays.
    fn resume(&mut self, ready: LoadedSession) -> Result<(OpenedSession, bool), Vec<Failure>>;

    /// Returns a closure that builds the call which reverts the last file change of a session.
    /// `session`: id of the session.
    fn undo(&self, session: &str) -> BackgroundJob<UserCall>;
}

/// Slow work that the front end runs on another thread. It prints nothing. Not a background job in
/// the sense of `/jobs`, which is a command of the model.
pub type BackgroundJob<T> = Box<dyn FnOnce() -> Result<T, Vec<Failure>> + Send>;

/// A stored session that was found and read. Holds the lock of the session. Only the [`Sessions`]
/// that created the value knows its content.
#[expect(missing_debug_implementations, reason = "the content is opaque")]
pub struct LoadedSession(pub Box<dyn Any + Send>);

/// A report that [`Sessions::report`] can render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Settings with their sources.
    Config,
    /// Results of the checks of `posse doctor` on this machine.
    Doctor,
    /// Tools of the model.
    Tools,
    /// Available skills.
    Skills,
    /// Available agents.
    Agents,
    /// Permission rules, and grants with project or global scope.
    Permissions,
    /// Confinement of commands.
    Sandbox,
    /// The conversation as a document, written to the named file; `None`: to a Markdown file named
    /// after the session.
    Export(Option<String>),
}

/// Values of settings that the user selected in this process. `None` means the configured value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSelection {
    /// The selected agent; `None`: the configured one.
    pub agent: Option<String>,
    /// The selected provider; `None`: the configured one.
    pub provider: Option<String>,
    /// The selected model; `None`: the configured one.
    pub model: Option<String>,
}

impl SessionSelection {
    /// Returns a copy in which the setting `what` has the value `name`; `None` means the configured
    /// value. Selecting a provider also resets the model.
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

/// Returns `true` if `name` resets a setting to its configured value: it is `default`, and none of
/// the selectable `names` is `default`.
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
    /// Sources of the provider, model and agent of the session.
    pub sources: SelectionSources,
    /// Opens the attach socket; the front end calls [`SessionServer::start`] after it has started
    /// the session.
    pub session_server: SessionServer,
}

/// Source of the provider, model and agent of a session, as text: a flag, a variable, a file or a
/// default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectionSources {
    /// Source of the provider.
    pub provider: String,
    /// Source of the model.
    pub model: String,
    /// Source of the agent.
    pub agent: String,
}

/// A setting that the user can change between runs.
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
