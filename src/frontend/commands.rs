//! Slash commands. Each is a [`Command`] in a file of `src/frontend/commands/` and a row of
//! [`COMMANDS`]. A command calls operations of a [`CommandContext`], which every front end
//! implements, so no front end knows a command by its name.

mod agents;
mod compact;
mod context;
mod copy;
mod cost;
mod exit;
mod jobs;
mod keyboard;
mod memory;
mod pages;
mod permission_mode;
mod permissions;
mod prompts;
mod queue;
mod rename;
mod reports;
pub(crate) mod rewind;
mod selection;
mod sessions;
mod skills;
mod stop;
mod theme;
mod todos;
mod tree;
mod undo;

use std::fmt;
use std::pin::Pin;

use posse_actors::root_session::SessionHandle;
use posse_base::failure::nearest;

use crate::instruction::Instruction;
use crate::jobs::Jobs;
use crate::{Report, RewindExtent, Selectable};

pub use permission_mode::{
    changed as permission_mode_changed, modes_query as permission_modes_query,
    next_permission_mode, permission_mode_query,
};

/// All slash commands, in the order of `/help`.
pub const COMMANDS: &[Command] = &[
    pages::HELP,
    pages::KEYS,
    sessions::NEW,
    sessions::RESUME,
    sessions::FORK,
    tree::TREE,
    rename::RENAME,
    selection::MODEL,
    selection::PROVIDER,
    selection::AGENT,
    selection::THINKING,
    agents::AGENTS,
    compact::COMPACT,
    context::CONTEXT,
    cost::COST,
    pages::STATUS,
    permission_mode::PERMISSION_MODE,
    permissions::PERMISSIONS,
    reports::SANDBOX,
    pages::DIFF,
    undo::UNDO,
    rewind::REWIND,
    reports::EXPORT,
    reports::SHARE,
    copy::COPY,
    reports::CONFIG,
    reports::TOOLS,
    skills::SKILLS,
    skills::SKILL,
    prompts::INIT,
    prompts::REVIEW,
    jobs::JOBS,
    todos::TASK_LIST,
    memory::MEMORY,
    memory::FORGET,
    theme::THEME,
    keyboard::KEYMAP,
    keyboard::VIM,
    reports::DOCTOR,
    queue::QUEUE,
    stop::STOP,
    exit::EXIT,
];

/// A slash command. Two commands are equal if they have the same name.
#[derive(Debug)]
pub struct Command {
    /// Name without the slash.
    pub name: &'static str,
    /// Alternative names without the slash.
    pub aliases: &'static [&'static str],
    /// Syntax of the argument, such as `[NAME]`; empty if the command takes no argument.
    pub argument: &'static str,
    /// Description for lists of commands, if `help` has more than 52 characters; else empty. Read it
    /// with [`Command::short`].
    brief: &'static str,
    /// Imperative description for `/help` and the guide, in one line.
    pub help: &'static str,
    /// Group in the help.
    pub group: CommandGroup,
    /// Values of the argument that a front end completes.
    pub values: ArgumentValues,
    /// States of the session in which the command may run.
    pub when: Availability,
    /// Runs the command. The argument is trimmed and not empty; `None` if the user typed none.
    pub run: fn(&mut dyn CommandContext, Option<&str>),
}

/// Template for the fields that a command does not set: no alias, no argument,
/// [`CommandGroup::Session`], [`Availability::Always`].
const COMMAND: Command = Command {
    name: "",
    aliases: &[],
    argument: "",
    brief: "",
    help: "",
    group: CommandGroup::Session,
    values: ArgumentValues::Any,
    when: Availability::Always,
    run: |_, _| (),
};

impl Command {
    /// Description for lists of commands.
    pub fn short(&self) -> &'static str {
        if self.brief.is_empty() { self.help } else { self.brief }
    }
}

impl PartialEq for Command {
    fn eq(&self, other: &Command) -> bool {
        self.name == other.name
    }
}

/// Group of commands in the help of the terminal UI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandGroup {
    /// Sessions and their prompts.
    Session,
    /// Model, provider, context and cost.
    Model,
    /// Changes of files.
    Files,
    /// Permissions and the sandbox.
    Permissions,
    /// Agents, tools, skills and jobs.
    Work,
    /// posse itself.
    Program,
}

impl CommandGroup {
    /// All groups, in the order of the help.
    pub const ALL: [CommandGroup; 6] = [
        CommandGroup::Session,
        CommandGroup::Model,
        CommandGroup::Files,
        CommandGroup::Permissions,
        CommandGroup::Work,
        CommandGroup::Program,
    ];

    /// Heading of the group.
    pub fn title(self) -> &'static str {
        match self {
            CommandGroup::Session => "Commands: session",
            CommandGroup::Model => "Commands: model, context and cost",
            CommandGroup::Files => "Commands: changes of files",
            CommandGroup::Permissions => "Commands: permissions",
            CommandGroup::Work => "Commands: agents, tools and jobs",
            CommandGroup::Program => "Commands: posse",
        }
    }
}

/// Values of an argument that a front end knows and can complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentValues {
    /// Nothing is completed.
    Any,
    /// Names of colour themes.
    Themes,
    /// Permission modes.
    PermissionModes,
}

/// States of the session in which a command may run. A task is a run or a tool call of the user.
/// The terminal UI accepts no line while a permission request is open; line mode and an attached
/// client do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// With or without a running task, even while a permission request is open or a lookup blocks
    /// other input.
    Immediate,
    /// With or without a running task, but not while a permission request or a lookup blocks the
    /// input.
    Always,
    /// Only while no task runs and neither a permission request nor a lookup blocks the input.
    Idle,
}

/// Operations of a front end that slash commands call. An operation returns at once: the front end
/// does the work after the command has returned, or tells the user that it cannot do it.
pub trait CommandContext {
    /// Shows a page.
    fn show(&mut self, page: Page);

    /// Sends a query to the session and shows the answer.
    fn query(&mut self, query: SessionQuery);

    /// Shows a text that depends on nothing but the typed line.
    fn tell(&mut self, text: String) {
        self.query(SessionQuery::text(|_| async move { text }));
    }

    /// Renders a report on another thread and shows the text.
    fn report(&mut self, request: ReportRequest);

    /// Lets the user choose from a list: opens a selector, or prints the list if the front end has
    /// no selector.
    fn choose(&mut self, choice: Choice);

    /// Replaces the current session by another one. If that one cannot be assembled, the current
    /// session stays and the errors are shown.
    fn switch(&mut self, to: SessionSwitch);

    /// Sends a text as a prompt of the user.
    fn prompt(&mut self, text: String);

    /// Lets the user choose a permission mode: opens a selector, or shows all modes if the front end
    /// has no selector.
    fn choose_permission_mode(&mut self) {
        self.query(permission_modes_query());
    }

    /// Runs `task` with the skill `name`. If `task` is empty, the skill itself says what to do.
    fn run_skill(&mut self, name: &str, task: &str);

    /// Starts a tool call of the user that takes back the last change by a file tool, the changes of
    /// the last run with commands, or the last return of files. If there is none, or a file was
    /// modified since, an error is shown. `checkpoint`: number of a checkpoint that is restored
    /// instead.
    fn undo(&mut self, checkpoint: Option<u64>);

    /// Returns to the state before the prompt with this number, counted from 1.
    fn rewind(&mut self, prompt: usize, extent: RewindExtent);

    /// Goes to the place of the row with this number, counted from 1, in the tree of the branches; or
    /// with a label, gives it to the prompt of that row. An empty label removes one.
    fn tree(&mut self, row: usize, label: Option<String>);

    /// Deletes a queued message of the user. `number`: its position among the queued messages of
    /// the user, counted from 1. For any other text, the user is told that there is no such
    /// message.
    fn withdraw(&mut self, number: &str);

    /// Copies the last reply of the model to the clipboard, unless there is none or it is too long;
    /// the user is then told.
    fn copy_answer(&mut self);

    /// Sets the colour theme to `name`; `None` lets the user choose one. An unknown name is reported
    /// and changes nothing.
    fn theme(&mut self, name: Option<&str>);

    /// Lets the user change keys. Without keys to change, tells the user so.
    fn change_keys(&mut self) {
        self.tell("Only the terminal UI has keys to change.\n".to_owned());
    }

    /// Switches the vim keys of the prompt on or off. Without such a prompt, tells the user so.
    fn toggle_vim(&mut self) {
        self.tell("Only the terminal UI has vim keys.\n".to_owned());
    }

    /// Stops the run or tool call of the user in progress, with the subagents that the run waits
    /// for; with `all`, also all background subagents and background jobs.
    fn stop(&mut self, all: bool);

    /// Ends the front end, which may first warn that background work would be stopped.
    fn exit(&mut self);

    /// Lists the running background jobs: opens a selector, or prints the list if the front end has no
    /// selector.
    fn list_jobs(&mut self) {
        let query = jobs::asked(self.jobs(), None);
        self.query(query);
    }

    /// Running background jobs, as far as events have reported them. Empty in an attached client.
    fn jobs(&self) -> Jobs;
}

/// A page of text whose content each front end composes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Slash commands and, in the terminal UI, keys.
    Help,
    /// Keys with their meaning.
    Keys,
    /// Session, provider, model and agent, and details that differ between front ends.
    Status,
    /// Diffs of the file changes of the conversation.
    Changes,
}

/// List from which a slash command lets the user choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Values of a setting.
    Setting(Selectable),
    /// Stored sessions of the current folder or, if it has none, of its project.
    StoredSession,
    /// Prompts of the session to which the user can return.
    RewindPoint,
    /// Parts of the session that can return to their state before the prompt with this number.
    RewindExtent(usize),
    /// The branches of the conversation.
    Branch,
    /// Queued messages: those of the user in a selector, all of them in a printed list.
    QueuedMessage,
}

/// Session that replaces the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionSwitch {
    /// A new session with an empty history.
    New,
    /// The stored session whose id begins with this text.
    Resume(String),
    /// A new session with a copy of the current history.
    Fork,
    /// A session that continues the current conversation with this value of a setting. `default`
    /// means the configured value, see [`crate::is_default`].
    With(Selectable, String),
}

/// Answer of a session to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryAnswer {
    /// A text that no event repeats. Every front end shows it.
    Text(String),
    /// A text about a change that an event announces as well. Front ends that show the event omit
    /// the text.
    Announced(String),
}

impl QueryAnswer {
    /// Returns the text of either variant.
    pub fn into_text(self) -> String {
        let (QueryAnswer::Text(text) | QueryAnswer::Announced(text)) = self;
        text
    }
}

type PendingAnswer = Pin<Box<dyn Future<Output = QueryAnswer> + Send>>;

/// A query of a slash command to the session: a function that takes the session and returns a
/// future with the [`QueryAnswer`].
pub struct SessionQuery {
    ask: Box<dyn FnOnce(SessionHandle) -> PendingAnswer + Send>,
    /// Instruction with the same effect, sent instead of the query if the session runs in another
    /// process. `None`: the query is not possible there.
    pub instruction: Option<Instruction>,
}

impl SessionQuery {
    fn new<F>(ask: impl FnOnce(SessionHandle) -> F + Send + 'static) -> SessionQuery
    where
        F: Future<Output = QueryAnswer> + Send + 'static,
    {
        SessionQuery { ask: Box::new(|session| Box::pin(ask(session))), instruction: None }
    }

    fn text<F>(ask: impl FnOnce(SessionHandle) -> F + Send + 'static) -> SessionQuery
    where
        F: Future<Output = String> + Send + 'static,
    {
        SessionQuery::new(|session| {
            let text = ask(session);
            async { QueryAnswer::Text(text.await) }
        })
    }

    fn with_instruction(self, instruction: Instruction) -> SessionQuery {
        SessionQuery { instruction: Some(instruction), ..self }
    }

    /// Runs the query on `session` and waits for the answer.
    pub async fn answer(self, session: SessionHandle) -> QueryAnswer {
        (self.ask)(session).await
    }
}

/// A query is equal to no other, because functions cannot be compared.
impl PartialEq for SessionQuery {
    fn eq(&self, _: &SessionQuery) -> bool {
        false
    }
}

impl fmt::Debug for SessionQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionQuery").field(&self.instruction).finish()
    }
}

/// Request of a slash command to show a report.
#[derive(Debug, PartialEq)]
pub struct ReportRequest {
    /// The report to render.
    pub report: Report,
    /// Heading of the report in a viewer.
    pub title: &'static str,
    /// True if the report is a list in which users search: a front end with a viewer shows it
    /// there, even if it is short.
    pub is_list: bool,
    /// Query to the session whose answer is appended to the report; `None` appends nothing.
    pub appendix: Option<SessionQuery>,
}

impl ReportRequest {
    fn new(report: Report, title: &'static str) -> ReportRequest {
        ReportRequest { report, title, is_list: false, appendix: None }
    }

    /// A topic or an entry of the help.
    pub fn guide(topic: &str) -> ReportRequest {
        ReportRequest::list(Report::Help(topic.to_owned()), "help")
    }

    fn list(report: Report, title: &'static str) -> ReportRequest {
        ReportRequest { is_list: true, ..ReportRequest::new(report, title) }
    }

    fn followed_by<F>(self, ask: impl FnOnce(SessionHandle) -> F + Send + 'static) -> ReportRequest
    where
        F: Future<Output = String> + Send + 'static,
    {
        ReportRequest { appendix: Some(SessionQuery::text(ask)), ..self }
    }
}

/// A shell command that the user typed after `!` or `!!`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// The command: trimmed and not empty.
    pub line: String,
    /// True after `!!`: the model is not told of the command and its output.
    pub is_private: bool,
}

impl ShellCommand {
    fn parse(text: &str) -> Option<ShellCommand> {
        let after = text.strip_prefix('!')?;
        let (is_private, line) = match after.strip_prefix('!') {
            Some(line) => (true, line.trim()),
            None => (false, after.trim()),
        };
        (!line.is_empty()).then(|| ShellCommand { line: line.to_owned(), is_private })
    }
}

/// The command as it was typed, without superfluous white space.
impl fmt::Display for ShellCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_private { "!!" } else { "!" }, self.line)
    }
}

/// A line that the user submitted, parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedLine {
    /// An empty line, or only white space.
    Blank,
    /// A text for the model: the unchanged line.
    Text(String),
    /// A shell command of the user.
    Shell(ShellCommand),
    /// A slash command, and its argument if the user typed one.
    Command(&'static Command, Option<String>),
    /// Name of an unknown command, and the most similar known name if there is one.
    Unknown(String, Option<&'static str>),
}

impl ParsedLine {
    /// True for a command that runs at any time, see [`Availability::Immediate`].
    pub fn is_immediate(&self) -> bool {
        matches!(self, ParsedLine::Command(command, _) if command.when == Availability::Immediate)
    }
}

/// Parses a submitted line. `!` must be the first character, and `!` or `!!` without a command is a
/// text for the model; white space may precede `/`.
pub fn parse(text: &str) -> ParsedLine {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return ParsedLine::Blank;
    }
    if let Some(command) = ShellCommand::parse(text) {
        return ParsedLine::Shell(command);
    }
    let Some((name, argument)) = split(trimmed) else { return ParsedLine::Text(text.to_owned()) };
    let known = COMMANDS.iter().find(|entry| entry.name == name || entry.aliases.contains(&name));
    let Some(command) = known else {
        let names = COMMANDS
            .iter()
            .flat_map(|entry| [entry.name].into_iter().chain(entry.aliases.iter().copied()));
        return ParsedLine::Unknown(name.to_owned(), nearest(name, names));
    };
    ParsedLine::Command(command, (!argument.is_empty()).then(|| argument.to_owned()))
}

/// Error text for the unknown command `name`. `meant`: a similar known name to suggest, if any.
pub fn unknown(name: &str, meant: Option<&str>) -> String {
    let name = posse_base::failure::printable(name);
    match meant {
        Some(meant) => format!("There is no /{name}. Did you mean /{meant}?"),
        None => format!("There is no /{name}. /help lists what there is."),
    }
}

/// Returns the argument without its optional first word `word`: `ID` for both `stop ID` and `ID`.
/// `None` if nothing else was typed.
fn after_word<'a>(argument: Option<&'a str>, word: &str) -> Option<&'a str> {
    let argument = argument?;
    let rest = argument
        .strip_prefix(word)
        .filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
    let id = rest.unwrap_or(argument).trim();
    (!id.is_empty()).then_some(id)
}

/// Splits `/name argument` into name and trimmed argument. `None` if the line is not a command. A
/// command is on one line, and its name is `?` or lower-case words joined by `-`, so the line
/// `/usr/bin is broken` is a text for the model.
fn split(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix('/')?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
    let is_name = name == "?" || name.split('-').all(is_word);
    (is_name && !line.contains('\n')).then_some((name, argument.trim()))
}

#[cfg(test)]
mod tests;
