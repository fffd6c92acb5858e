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
mod memory;
mod pages;
mod permissions;
mod queue;
mod reports;
mod selection;
mod sessions;
mod skills;
mod stop;
mod theme;
mod undo;

use std::fmt;
use std::pin::Pin;

use posse_actors::root_session::SessionHandle;
use posse_base::failure::nearest;

use crate::instruction::Instruction;
use crate::jobs::Jobs;
use crate::{Report, Selectable};

/// All slash commands, in the order of `/help`.
pub const COMMANDS: &[Command] = &[
    pages::HELP,
    pages::KEYS,
    sessions::NEW,
    sessions::RESUME,
    sessions::FORK,
    selection::MODEL,
    selection::PROVIDER,
    selection::AGENT,
    agents::AGENTS,
    compact::COMPACT,
    context::CONTEXT,
    cost::COST,
    pages::STATUS,
    permissions::PERMISSIONS,
    reports::SANDBOX,
    pages::DIFF,
    undo::UNDO,
    reports::EXPORT,
    copy::COPY,
    reports::CONFIG,
    reports::TOOLS,
    skills::SKILLS,
    skills::SKILL,
    jobs::JOBS,
    memory::MEMORY,
    memory::FORGET,
    theme::THEME,
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
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Syntax of the argument; empty if there is none.
    pub argument: &'static str,
    /// Description in one line.
    pub help: &'static str,
    /// States of the session in which it runs.
    pub when: Availability,
    /// Runs the command with its argument, which is trimmed and not empty.
    pub run: fn(&mut dyn CommandContext, Option<&str>),
}

/// A command without aliases and argument that is always available.
const COMMAND: Command = Command {
    name: "",
    aliases: &[],
    argument: "",
    help: "",
    when: Availability::Always,
    run: |_, _| (),
};

impl PartialEq for Command {
    fn eq(&self, other: &Command) -> bool {
        self.name == other.name
    }
}

/// State of the session in which a command is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// At any time, even while a permission request is open or input has to wait for a lookup.
    Immediate,
    /// At any time.
    Always,
    /// Only while no task runs.
    Idle,
}

/// Operations of a front end that commands consist of. None of them waits: a front end finishes
/// the work after the command has returned, or tells the user that it cannot do it.
pub trait CommandContext {
    /// Shows a page.
    fn show(&mut self, page: Page);

    /// Queries the session and shows the answer.
    fn query(&mut self, query: SessionQuery);

    /// Renders a report on another thread and shows it.
    fn report(&mut self, request: ReportRequest);

    /// Opens a selector, or prints its entries.
    fn choose(&mut self, choice: Choice);

    /// Continues in another session.
    fn switch(&mut self, to: SessionSwitch);

    /// Runs a task with a skill. An empty task leaves it to the skill.
    fn run_skill(&mut self, name: &str, task: &str);

    /// Reverts the last file change.
    fn undo(&mut self);

    /// Deletes the queued message of the user with that number, counted from 1.
    fn withdraw(&mut self, number: &str);

    /// Copies the last answer to the clipboard.
    fn copy_answer(&mut self);

    /// Shows or sets the colour theme.
    fn theme(&mut self, name: Option<&str>);

    /// Stops the task; with `all` also background agents.
    fn stop(&mut self, all: bool);

    /// Ends the front end.
    fn exit(&mut self);

    /// Running background jobs, as far as events have reported them.
    fn jobs(&self) -> Jobs;
}

/// A text that each front end writes in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Commands and keys.
    Help,
    /// Keys.
    Keys,
    /// Session, provider, model and agent.
    Status,
    /// File changes of the session.
    Changes,
}

/// Content of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Values of a setting.
    Setting(Selectable),
    /// Stored sessions that can be resumed here.
    StoredSession,
    /// Queued messages.
    QueuedMessage,
}

/// Session that replaces the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionSwitch {
    /// A new session.
    New,
    /// The stored session whose id begins with the text.
    Resume(String),
    /// A copy of the current session.
    Fork,
    /// The same conversation with another value of a setting.
    With(Selectable, String),
}

/// Answer of a session to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryAnswer {
    /// A text for the user.
    Text(String),
    /// A text that repeats what an event announces to front ends that show events.
    Announced(String),
}

impl QueryAnswer {
    /// The text of either kind.
    pub fn into_text(self) -> String {
        let (QueryAnswer::Text(text) | QueryAnswer::Announced(text)) = self;
        text
    }
}

type PendingAnswer = Pin<Box<dyn Future<Output = QueryAnswer> + Send>>;

/// A query of a command to the session. Takes as long as the session needs to answer.
pub struct SessionQuery {
    ask: Box<dyn FnOnce(SessionHandle) -> PendingAnswer + Send>,
    /// Instruction with the same effect, for a session in another process.
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

    /// Asks the session.
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

/// A report of the environment for a command.
#[derive(Debug, PartialEq)]
pub struct ReportRequest {
    /// The report.
    pub report: Report,
    /// Heading.
    pub title: &'static str,
    /// Users search in the report, so a front end with a viewer shows it there.
    pub is_list: bool,
    /// Answer of the session that is appended to the report.
    pub appendix: Option<SessionQuery>,
}

impl ReportRequest {
    fn new(report: Report, title: &'static str) -> ReportRequest {
        ReportRequest { report, title, is_list: false, appendix: None }
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

/// A submitted line.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedLine {
    /// Only white space.
    Blank,
    /// A text for the model.
    Text(String),
    /// A shell command, after `!`.
    Shell(String),
    /// A slash command and its argument.
    Command(&'static Command, Option<String>),
    /// An unknown command, with the most similar name if there is one.
    Unknown(String, Option<&'static str>),
}

impl ParsedLine {
    /// True for a command that runs at any time.
    pub fn is_immediate(&self) -> bool {
        matches!(self, ParsedLine::Command(command, _) if command.when == Availability::Immediate)
    }
}

/// Parses a submitted line.
pub fn parse(text: &str) -> ParsedLine {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return ParsedLine::Blank;
    }
    if let Some(command) = text.strip_prefix('!').map(str::trim).filter(|line| !line.is_empty()) {
        return ParsedLine::Shell(command.to_owned());
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

/// Message for an unknown command.
pub fn unknown(name: &str, meant: Option<&str>) -> String {
    let name = posse_base::failure::printable(name);
    match meant {
        Some(meant) => format!("There is no /{name}. Did you mean /{meant}?"),
        None => format!("There is no /{name}. /help lists what there is."),
    }
}

/// The id in `stop ID` or in the id alone; `None` for the bare word, which lists.
fn after_word<'a>(argument: Option<&'a str>, word: &str) -> Option<&'a str> {
    let argument = argument?;
    let rest = argument
        .strip_prefix(word)
        .filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
    let id = rest.unwrap_or(argument).trim();
    (!id.is_empty()).then_some(id)
}

/// Splits a command line into name and argument. A command is one word after a slash, on one line:
/// `/usr/bin is broken` is a text for the model.
fn split(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix('/')?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_name = name == "?" || !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
    (is_name && !line.contains('\n')).then_some((name, argument.trim()))
}

#[cfg(test)]
mod tests;
