//! Slash commands: one table for every front end, for `/help` and for the guide.

use posse_base::failure::nearest;

use crate::Selectable;

/// A parsed slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "a variant is the command of its name, described in the table")]
pub enum Command {
    Help,
    Keys,
    Status,
    New,
    Resume(Option<String>),
    Fork,
    Select(Selectable, Option<String>),
    Agents,
    Compact(Option<String>),
    /// `/context`; `true` with `--json`, for programs.
    Context(bool),
    Cost,
    Permissions,
    Sandbox,
    Diff,
    Undo,
    Export(Option<String>),
    Copy,
    Config,
    Tools,
    Skills,
    /// `/skill`: name and task.
    Skill(String, String),
    /// `/jobs`; with the id of a job: stops that job.
    Jobs(Option<String>),
    Memory,
    /// `/forget`, for one agent or for all.
    Forget(Option<String>),
    Theme(Option<String>),
    Doctor,
    /// `/queue`; with the number of a message: deletes that message.
    Queue(Option<String>),
    Stop,
    StopAll,
    Exit,
}

/// State of the session in which a command is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// At any time.
    Always,
    /// Only while no task runs.
    Idle,
}

/// Specification of a slash command, one row of the table.
#[derive(Debug)]
pub struct CommandSpec {
    /// Name without the slash.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Placeholder of the argument, or empty.
    pub argument: &'static str,
    /// Description of `/help`.
    pub what: &'static str,
    pub(crate) when: Availability,
}

const fn idle(
    name: &'static str,
    aliases: &'static [&'static str],
    argument: &'static str,
    what: &'static str,
) -> CommandSpec {
    CommandSpec { name, aliases, argument, what, when: Availability::Idle }
}

const fn always(
    name: &'static str,
    aliases: &'static [&'static str],
    argument: &'static str,
    what: &'static str,
) -> CommandSpec {
    CommandSpec { name, aliases, argument, what, when: Availability::Always }
}

/// All slash commands, in the order of `/help`.
pub const COMMANDS: &[CommandSpec] = &[
    always("help", &["?"], "", "show commands and keys"),
    always("keys", &["hotkeys"], "", "show keys"),
    idle("new", &["clear"], "", "start a new session"),
    idle("resume", &[], "[ID]", "resume a stored session; without ID: choose one"),
    idle("fork", &[], "", "continue in a copy of this session; the original is kept"),
    idle(
        "model",
        &[],
        "[NAME]",
        "use another model of this provider, also next time; `default` resets; without NAME: choose one",
    ),
    idle(
        "provider",
        &[],
        "[NAME]",
        "use another provider with its own model, also next time; `default` resets; without NAME: choose one",
    ),
    idle("agent", &[], "[NAME]", "use another agent; without NAME: choose one"),
    always("agents", &[], "", "list all agents, and the subagents of this session"),
    idle("compact", &[], "[WHAT]", "shorten the history; WHAT is kept"),
    always("context", &[], "[--json]", "show the parts of a request, in tokens"),
    always("cost", &["usage"], "", "show tokens and cost so far, by model and by agent"),
    always("status", &[], "", "show session, provider, model and agent with their sources"),
    always(
        "permissions",
        &[],
        "",
        "show how permissions are decided, current grants, and how to revoke them",
    ),
    always("sandbox", &[], "", "show the confinement of commands"),
    always("diff", &[], "", "show the file changes of this session"),
    idle("undo", &[], "", "revert the last file change, unless the file was changed since"),
    idle(
        "export",
        &[],
        "[FILE]",
        "export the session as Markdown, or as HTML if FILE ends in .html",
    ),
    always("copy", &[], "", "copy the last answer to the clipboard, if the terminal allows it"),
    always("config", &[], "", "show settings and their sources"),
    always("tools", &[], "", "list the tools of the model"),
    always("skills", &[], "", "list skills: instructions for kinds of task"),
    idle("skill", &[], "NAME [TASK]", "run a task with a skill"),
    always("jobs", &[], "[stop ID]", "list background jobs; stop: stop one"),
    always(
        "memory",
        &[],
        "",
        "show what agents have reported; later agents of the same name receive it",
    ),
    always("forget", &[], "[NAME]", "delete that memory, of one agent or of all"),
    always("theme", &[], "[NAME]", "use the theme dark, light, high-contrast or none"),
    always("doctor", &[], "", "check what posse needs here"),
    always(
        "queue",
        &[],
        "[drop N]",
        "list queued messages to edit or delete them; drop: delete the Nth",
    ),
    always("stop", &[], "[all]", "stop the task (also Esc); all: also background agents"),
    always("exit", &["quit", "q"], "", "exit (also Ctrl+D)"),
];

/// A submitted line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedLine {
    /// Only white space.
    Blank,
    /// A text for the model.
    Text(String),
    /// A shell command, after `!`.
    Shell(String),
    /// A slash command and its availability.
    Command(Command, Availability),
    /// An unknown command, with the most similar name if there is one.
    Unknown(String, Option<&'static str>),
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
    let Some(entry) = known else {
        let names = COMMANDS
            .iter()
            .flat_map(|entry| [entry.name].into_iter().chain(entry.aliases.iter().copied()));
        return ParsedLine::Unknown(name.to_owned(), nearest(name, names));
    };
    let argument = Some(argument).filter(|text| !text.is_empty()).map(str::to_owned);
    ParsedLine::Command(meant(entry.name, argument), entry.when)
}

/// Message for an unknown command.
pub fn unknown(name: &str, meant: Option<&str>) -> String {
    let name = posse_base::failure::printable(name);
    match meant {
        Some(meant) => format!("There is no /{name}. Did you mean /{meant}?"),
        None => format!("There is no /{name}. /help lists what there is."),
    }
}

/// The command with that name in the table.
fn meant(name: &str, argument: Option<String>) -> Command {
    // `?` lists the choices.
    let chosen = |argument: Option<String>| argument.filter(|name| name != "?");
    match name {
        "help" => Command::Help,
        "keys" => Command::Keys,
        "new" => Command::New,
        "resume" => Command::Resume(argument),
        "fork" => Command::Fork,
        "model" => Command::Select(Selectable::Model, chosen(argument)),
        "provider" => Command::Select(Selectable::Provider, chosen(argument)),
        "agent" => Command::Select(Selectable::Agent, chosen(argument)),
        "agents" => Command::Agents,
        "compact" => Command::Compact(argument),
        "context" => Command::Context(argument.as_deref() == Some("--json")),
        "cost" => Command::Cost,
        "status" => Command::Status,
        "permissions" => Command::Permissions,
        "sandbox" => Command::Sandbox,
        "diff" => Command::Diff,
        "undo" => Command::Undo,
        "export" => Command::Export(argument),
        "copy" => Command::Copy,
        "config" => Command::Config,
        "tools" => Command::Tools,
        "skills" => Command::Skills,
        "skill" => match argument {
            Some(argument) => {
                let (name, task) =
                    argument.split_once(char::is_whitespace).unwrap_or((&argument, ""));
                Command::Skill(name.to_owned(), task.trim().to_owned())
            }
            None => Command::Skills,
        },
        "jobs" => Command::Jobs(which(argument, "stop")),
        "memory" => Command::Memory,
        "forget" => Command::Forget(argument),
        "theme" => Command::Theme(argument),
        "doctor" => Command::Doctor,
        "queue" => Command::Queue(which(argument, "drop")),
        "stop" if argument.as_deref() == Some("all") => Command::StopAll,
        "stop" => Command::Stop,
        _ => Command::Exit,
    }
}

/// The id in `stop ID` or in the id alone; `None` for the bare word, which lists.
fn which(argument: Option<String>, word: &str) -> Option<String> {
    let argument = argument?;
    let rest = argument
        .strip_prefix(word)
        .filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
    let id = rest.unwrap_or(&argument).trim();
    (!id.is_empty()).then(|| id.to_owned())
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
mod tests {
    use super::*;

    #[test]
    fn distinguishes_commands_from_prompts() {
        let text = |text: &str| ParsedLine::Text(text.to_owned());
        let always = |command| ParsedLine::Command(command, Availability::Always);
        let idle = |command| ParsedLine::Command(command, Availability::Idle);
        let table = [
            ("", ParsedLine::Blank),
            ("  \n", ParsedLine::Blank),
            ("fix it", text("fix it")),
            ("/help", always(Command::Help)),
            ("/?", always(Command::Help)),
            (" /quit ", always(Command::Exit)),
            ("/model gpt-9 ", idle(Command::Select(Selectable::Model, Some("gpt-9".into())))),
            ("/provider ?", idle(Command::Select(Selectable::Provider, None))),
            (
                "/skill deploy  to staging ",
                idle(Command::Skill("deploy".into(), "to staging".into())),
            ),
            ("/skill deploy", idle(Command::Skill("deploy".into(), String::new()))),
            ("/skill", idle(Command::Skills)),
            ("/context", always(Command::Context(false))),
            ("/context --json", always(Command::Context(true))),
            ("/compact the port", idle(Command::Compact(Some("the port".into())))),
            ("/forget explore", always(Command::Forget(Some("explore".into())))),
            ("/jobs", always(Command::Jobs(None))),
            ("/jobs stop", always(Command::Jobs(None))),
            ("/jobs stop c1-2", always(Command::Jobs(Some("c1-2".into())))),
            ("/jobs stopper", always(Command::Jobs(Some("stopper".into())))),
            ("/queue drop 2", always(Command::Queue(Some("2".into())))),
            ("/compat", ParsedLine::Unknown("compat".into(), Some("compact"))),
            ("/zzzzzz", ParsedLine::Unknown("zzzzzz".into(), None)),
            ("/usr/bin is broken", text("/usr/bin is broken")),
            ("/etc/hosts", text("/etc/hosts")),
            ("/", text("/")),
            ("/exit\nmore", text("/exit\nmore")),
            ("!ls -l ", ParsedLine::Shell("ls -l".into())),
            ("! ls\npwd", ParsedLine::Shell("ls\npwd".into())),
            (" !important", text(" !important")),
            ("!", text("!")),
            ("/stop all", always(Command::StopAll)),
        ];
        for (line, meant) in table {
            assert_eq!(parse(line), meant, "{line:?}");
        }
    }

    #[test]
    fn every_name_in_the_table_parses_to_its_command() {
        let mut seen = Vec::new();
        for entry in COMMANDS {
            let argument = if entry.name == "skill" { " deploy" } else { "" };
            let ParsedLine::Command(meant, when) = parse(&format!("/{}{argument}", entry.name))
            else {
                panic!("{}", entry.name);
            };
            assert_eq!(when, entry.when, "{}", entry.name);
            assert!(!seen.contains(&meant), "{}", entry.name);
            for alias in entry.aliases {
                assert_eq!(
                    parse(&format!("/{alias}{argument}")),
                    ParsedLine::Command(meant.clone(), when),
                    "{alias}"
                );
            }
            seen.push(meant);
        }
    }
}
