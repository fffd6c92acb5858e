//! Code shared by the front ends, such as the source of sessions, texts for outcomes and notices,
//! the input history, slash commands and the quiet period before an answer.

pub mod agent_mentions;
pub mod clipboard;
pub mod command_uses;
pub mod commands;
pub mod context;
pub mod drafts;
pub mod end_line;
pub mod files;
pub mod fuzzy;
pub mod git_branch;
pub mod grant_coverage;
pub mod history;
pub mod hunk_walk;
pub mod instruction;
pub mod jobs;
pub mod notices;
pub mod notifications;
pub mod notifier;
pub mod outcome;
pub mod past_conversation;
pub mod plan_modes;
pub mod queue;
pub mod quiet_period;
pub mod remote_session;
pub mod requests;
pub mod response;
pub mod session_records;
pub mod session_tree;
pub mod signals;
pub mod status_line;
pub mod subagents;
pub mod table;
pub mod terminal_features;

use std::any::Any;
use std::path::PathBuf;

use posse_actors::conversation::Prompt;
use posse_actors::event::PermissionMode;
use posse_actors::ports::{NetworkAccess, Ports, Thinking};
use posse_actors::root_session::{
    PromptError, RunningPrompt, SessionHandle, SessionSettings, UserCall,
};

pub use commands::rewind::{
    missing_rewind_point, replaced_heading, replaced_text, rewind_extents_text, rewind_points_text,
};

use commands::ShellCommand;
use posse_base::failure::{Failure, printable};
use posse_base::shell_words::quoted;
use remote_session::SessionServer;
use serde_json::Value;
use session_records::Changes;
use session_tree::TreeRow;

/// Last line of a front end: the session with this id, and the command that resumes it with `flags`.
pub fn resume_line(session: &str, flags: &[String]) -> String {
    let words = ["resume", session].into_iter().chain(flags.iter().map(String::as_str));
    let words: Vec<String> = words.map(quoted).collect();
    format!("session {} · posse {}", printable(session), printable(&words.join(" ")))
}

/// Formats a count with the noun `one`, to which an `s` is added unless the count is 1: `1 turn`,
/// `2 turns`.
pub fn pluralize(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Work that a front end gives to a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Starts a run with this prompt of the user.
    Prompt(Prompt),
    /// Starts a run without a prompt: continues an interrupted run, or answers messages that the
    /// model has not answered.
    Continue,
}

impl Task {
    /// Starts the task in `session`. Returns when the session has accepted or refused the task, not
    /// at its end.
    pub async fn begin(self, session: &SessionHandle) -> Result<RunningPrompt, PromptError> {
        match self {
            Task::Prompt(prompt) => session.prompt(prompt).await,
            Task::Continue => session.resume().await,
        }
    }
}

/// Builds the `bash` call for a shell command that the user typed.
pub fn own_call(ShellCommand { line, is_private }: &ShellCommand) -> UserCall {
    let said = format!(
        "I ran this command myself, outside of our conversation:\n\n```\n{line}\n```\n\nWhat came of it:"
    );
    UserCall {
        tool: "bash".to_owned(),
        arguments: serde_json::json!({ "command": line }).to_string(),
        said: if *is_private { String::new() } else { said },
    }
}

/// Services of the process for a front end: opens and finds sessions, saves selected settings, and
/// makes reports, skill prompts and undo calls.
pub trait Sessions {
    /// Assembles a session with the agent, provider and model of `choice`. With `same_conversation`
    /// the session continues the journal of the previous session, and the caller copies its history
    /// and accounts; otherwise, or if there was no session yet, a new conversation begins. If the
    /// command line resumes a session, the first call opens that session, and `same_conversation`
    /// has no effect.
    fn open(
        &mut self,
        choice: &SessionSelection,
        same_conversation: bool,
    ) -> Result<OpenedSession, Vec<Failure>>;

    /// Saves `name` as the default provider or model for later processes; a front end calls this
    /// when the selected model has answered. A saved provider discards
    /// the saved model; a model is saved together with the current provider. Does nothing for an
    /// agent.
    fn remember(&mut self, what: Selectable, name: &str) -> Result<(), Failure>;

    /// Removes the saved default provider or model, so that the configured value applies again;
    /// with the provider, also the saved model. Does nothing for an agent and a reasoning effort.
    fn forget(&mut self, what: Selectable) -> Result<(), Failure>;

    /// Builds a prompt that carries out `task` with a skill. If `task` is empty, the skill itself
    /// says what to do. Fails if there is no skill of that name.
    fn skill(&self, name: &str, task: &str) -> Result<Prompt, Vec<Failure>>;

    /// Names to choose from for `what`: main agents without hidden ones, configured and built-in
    /// providers, the models that settings and the model catalogue name for the current provider, or
    /// the reasoning efforts. Other names of models may be valid as well. Empty if the agents cannot be read.
    fn names(&self, what: Selectable) -> Vec<String>;

    /// Returns a closure that renders a report as text. [`Report::Export`] writes a file and
    /// returns a text with its path. `session`: id of the current session.
    fn report(&self, what: Report, session: &str) -> BackgroundJob<String>;

    /// Returns a closure that writes a session as a document and returns the path of the file.
    /// `session`: id of the session.
    fn export(&self, target: ExportTarget, session: &str) -> BackgroundJob<PathBuf>;

    /// Returns a closure that makes a list for programs.
    fn listing(&self, what: Listing) -> BackgroundJob<Value>;

    /// Returns a closure that lists the stored sessions of the working directory or, if it has
    /// none, of its project, as pairs of id and description, the most recently used first. Sessions
    /// without a prompt are left out.
    fn stored(&self) -> BackgroundJob<Vec<(String, String)>>;

    /// Returns a closure that finds a stored session by a prefix of its id, among the sessions of
    /// the working directory or, if it has none, of its project. Of several matches, the most
    /// recently used session counts; the current one matches only with its whole id or with `fork`.
    /// The closure reads the session and takes its lock. With `fork` it takes no lock:
    /// [`Sessions::resume`] then makes a new session with a copy of the history, and the stored
    /// session stays unchanged.
    fn find_session(&self, id: &str, fork: bool) -> BackgroundJob<LoadedSession>;

    /// Assembles a session that [`Sessions::find_session`] returned, with its stored provider,
    /// model and agent unless a flag of this process names another. The returned flag is true if
    /// the session has unfinished work that can continue without a new prompt. On failure the
    /// current session stays.
    fn resume(&mut self, ready: LoadedSession) -> Result<(OpenedSession, bool), Vec<Failure>>;

    /// Returns a closure that builds the call which takes back the last step of a conversation that
    /// is still in effect: one change by a file tool, all changes of the last run with commands, or a
    /// return of files. The closure changes no file; it fails if there is no such step, or if a file
    /// was modified since. `session`: id of the session. `checkpoint`: number of a checkpoint; the
    /// call restores it instead.
    fn undo(&self, session: &str, checkpoint: Option<u64>) -> BackgroundJob<UserCall>;

    /// Returns a closure that compares the files with their state at the start of a conversation. Its
    /// result is the reason if that is not possible, for example without checkpoints. `session`: id
    /// of the session.
    fn net_changes(&self, session: &str) -> BackgroundJob<Result<Changes, String>>;

    /// Returns a closure that lists the prompts of a session, the latest first, as pairs of number,
    /// counted from 1, and description: age, number of files that changed since, and text.
    /// `session`: id of the session.
    fn rewind_points(&self, session: &str) -> BackgroundJob<Vec<(usize, String)>>;

    /// Returns a closure that reads the branches of a conversation as rows of a tree; without rows if
    /// the session is not stored. `session`: id of the current session.
    fn tree(&self, session: &str) -> BackgroundJob<Vec<TreeRow>>;

    /// Returns a closure that prepares the return of a session to the state before its prompt with
    /// the number `prompt`. The closure changes no file; it fails if there is no such prompt, or no
    /// checkpoint of it.
    fn rewind(&self, session: &str, prompt: usize, extent: RewindExtent) -> BackgroundJob<Rewind>;
}

/// Part that returns to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindExtent {
    /// The files of the workspace, except those that the user has changed since.
    Files,
    /// The files of the workspace, also those that the user has changed since.
    All,
    /// The conversation, which continues in a copy that ends before the prompt.
    Conversation,
    /// Files, as for `Files`, and conversation.
    Both,
}

/// All extents, with their names and descriptions.
pub fn rewind_extents() -> impl Iterator<Item = (&'static str, &'static str, RewindExtent)> {
    [
        ("both", "files and conversation", RewindExtent::Both),
        ("files", "files only; the conversation stays", RewindExtent::Files),
        ("conversation", "conversation only; files stay as they are", RewindExtent::Conversation),
        (
            "all",
            "files only, also those that you have changed since; lists them first",
            RewindExtent::All,
        ),
    ]
    .into_iter()
}

/// Prepared return to an earlier state. The front end first asks the user if changes of the user
/// would be replaced, see [`RewindConfirmation`]; then it starts the call; when that has restored
/// the files, it switches to the session. A call that restores nothing ends the return.
#[expect(missing_debug_implementations, reason = "the content is opaque")]
pub struct Rewind {
    /// Copy of the session that ends before the prompt; `None` if the conversation stays.
    pub session: Option<LoadedSession>,
    /// Call that restores the files; `None` if they stay, or no file was changed since.
    pub call: Option<UserCall>,
    /// Text of the prompt, for editing. Empty if the conversation stays.
    pub prompt: String,
    /// Changes of the user that the call replaces; `None` if it replaces none.
    pub replaced: Option<ReplacedChanges>,
}

/// Changes of the user that a restore replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedChanges {
    /// Lines for a person: one for each of the files, then one with the number of those left out.
    pub lines: Vec<String>,
    /// Digest of the restore: another one means that other files would be changed.
    pub digest: String,
}

/// Confirmation that a return may replace changes of the user: the same command is given again
/// after its files were shown.
#[derive(Debug, Default)]
pub struct RewindConfirmation {
    /// Name of the front end to which the files were shown, and the digest of the restore.
    shown: Option<(String, String)>,
}

impl RewindConfirmation {
    /// Returns the changes to show to the user, who has not confirmed `rewind` yet; `None` if it may
    /// begin. `front`: name of the front end that asks for the return.
    pub fn missing(&mut self, front: &str, rewind: &Rewind) -> Option<ReplacedChanges> {
        let replaced = rewind.replaced.as_ref()?;
        let asked = (front.to_owned(), replaced.digest.clone());
        if self.shown.take().as_ref() == Some(&asked) {
            return None;
        }
        self.shown = Some(asked);
        Some(replaced.clone())
    }
}

impl Rewind {
    /// Returns a job whose result is the return of files alone, by the call of `prepare`.
    pub fn of_call(prepare: BackgroundJob<UserCall>) -> BackgroundJob<Rewind> {
        Box::new(move || {
            let call = Some(prepare()?);
            Ok(Rewind { session: None, call, prompt: String::new(), replaced: None })
        })
    }
}

/// Slow work that the front end runs on another thread: returns its result or errors, and prints
/// nothing. Not a background job of the glossary, which is a command that runs beside the
/// conversation.
pub type BackgroundJob<T> = Box<dyn FnOnce() -> Result<T, Vec<Failure>> + Send>;

/// A stored session that was found and read. Holds the lock of the session, unless the session is
/// forked. Only the [`Sessions`] that created the value knows its content.
#[expect(missing_debug_implementations, reason = "the content is opaque")]
pub struct LoadedSession(pub Box<dyn Any + Send>);

/// A report that [`Sessions::report`] can render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// All settings with their sources.
    Config,
    /// A topic or an entry of the help.
    Help(String),
    /// Results of the checks of `posse doctor` on this machine.
    Doctor,
    /// List of the tools of the model.
    Tools,
    /// List of the available skills.
    Skills,
    /// List of all agents with source, mode, provider and cost class.
    Agents,
    /// Permission settings, permission rules, and grants with project or global scope.
    Permissions,
    /// Part of the `posse doctor` report about the sandbox.
    Sandbox,
    /// The conversation as a document, written to a file.
    Export(ExportTarget),
}

/// File to which a session is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportTarget {
    /// The named file of the working directory: HTML if its name ends with `.html` or `.htm`,
    /// otherwise Markdown.
    File(String),
    /// A Markdown file named after the session.
    Markdown,
    /// An HTML file named after the session, in the folder `exports` of the state directory.
    Html,
}

impl ExportTarget {
    /// The target of an export to the file `name`; `None`: to a Markdown file named after the
    /// session.
    pub fn named(name: Option<&str>) -> ExportTarget {
        name.map_or(ExportTarget::Markdown, |name| ExportTarget::File(name.to_owned()))
    }
}

/// A list for programs, in the form of the command with `--json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// Tools of the model: `posse tools`.
    Tools,
    /// Agents: `posse agents`.
    Agents,
    /// Models: `posse models`.
    Models,
    /// Skills: `posse skills list`.
    Skills,
    /// Stored sessions of the project: `posse sessions list`.
    Sessions,
}

impl Listing {
    /// Name of the list in instructions and results.
    pub fn word(self) -> &'static str {
        match self {
            Listing::Tools => "tools",
            Listing::Agents => "agents",
            Listing::Models => "models",
            Listing::Skills => "skills",
            Listing::Sessions => "sessions",
        }
    }
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
    /// The selected reasoning effort; `None`: the configured one.
    pub thinking: Option<String>,
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
            Selectable::Thinking => choice.thinking = name,
            Selectable::Provider => {
                // A model belongs to its provider.
                choice.model = None;
                choice.provider = name;
            }
        }
        choice
    }
}

/// Name of the reasoning effort of the main agent in `settings`; `default` if the provider decides.
pub fn thinking_name(settings: &SessionSettings) -> &'static str {
    settings.options.thinking.map_or("default", Thinking::name)
}

/// A value of a setting, with facts about it for columns of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedValue {
    /// The value.
    pub name: String,
    /// Facts in a few words each, in the same order for all values of a list; may be empty.
    pub facts: Vec<String>,
}

/// Returns `true` if `name` resets a setting to its configured value: it is `default`, and none of
/// the selectable `names` is `default`.
pub fn is_default(name: &str, names: impl FnOnce() -> Vec<String>) -> bool {
    name == "default" && !names().iter().any(|known| known == name)
}

/// An assembled session that is ready to start.
#[expect(missing_debug_implementations, reason = "it is destructured at once")]
pub struct OpenedSession {
    /// Ports with which the session starts.
    pub ports: Ports,
    /// Settings with which the session starts. The caller may still set history and accounts.
    pub settings: SessionSettings,
    /// Sources of the provider, model and agent of the session.
    pub sources: SelectionSources,
    /// Network access of commands.
    pub network: NetworkAccess,
    /// Permission mode that the front end explains, because it is the first start in the project.
    pub explained_mode: Option<PermissionMode>,
    /// Opens the attach socket; the front end calls [`SessionServer::start`] after it has started
    /// the session.
    pub session_server: SessionServer,
}

impl OpenedSession {
    /// Takes the stricter one of its permission mode and `before`, that of the session of which this
    /// one is a copy: its journal may end before the mode was changed.
    pub fn restrict_permission_mode(&mut self, before: PermissionMode) {
        let own = self.settings.permission_mode;
        self.settings.permission_mode = before.stricter(own).unwrap_or(before);
    }

    /// Takes over the history, the spending and the title of `before`, whose conversation this
    /// session continues.
    pub async fn continue_conversation(&mut self, before: &SessionHandle) {
        self.settings.history = before.history().await;
        // One budget covers the whole conversation.
        self.settings.accounts = before.accounts().await.unwrap_or_default();
        self.settings.title = before.title().await;
    }

    /// Takes over the permission mode of the session that this one replaces; with another agent,
    /// the stricter one of both modes. `agent`: name of the main agent until now.
    pub fn keep_permission_mode(&mut self, before: PermissionMode, agent: &str) {
        let own = self.settings.permission_mode;
        let stricter = || before.stricter(own).unwrap_or(before);
        self.settings.permission_mode =
            if self.settings.agent == agent { before } else { stricter() };
    }
}

/// Source of the provider, model, agent and reasoning effort of a session, as text: a flag, a variable, a file or a
/// default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectionSources {
    /// Source of the provider.
    pub provider: String,
    /// Source of the model.
    pub model: String,
    /// Source of the agent.
    pub agent: String,
    /// Source of the reasoning effort.
    pub thinking: String,
}

/// A setting that the user can change between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selectable {
    /// Name of the model at its provider.
    Model,
    /// Name of the provider profile. Selecting it resets the model.
    Provider,
    /// Name of the main agent.
    Agent,
    /// Reasoning effort of the model.
    Thinking,
}

impl Selectable {
    /// Name of the setting in commands and messages: `model`, `provider`, `agent` or `thinking`.
    pub fn word(self) -> &'static str {
        match self {
            Selectable::Model => "model",
            Selectable::Provider => "provider",
            Selectable::Agent => "agent",
            Selectable::Thinking => "thinking",
        }
    }

    /// True if a value that the user selects and that has answered is used by later processes, too.
    pub fn is_saved(self) -> bool {
        matches!(self, Selectable::Model | Selectable::Provider)
    }
}
