//! What begins with a slash: one table for every front end, for `/help` and for the guide.

use crate::failure::nearest;
use crate::talk::Selected;

/// A command, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Keys,
    Status,
    New,
    Resume(Option<String>),
    Fork,
    Select(Selected, Option<String>),
    Agents,
    Compact(Option<String>),
    /// `/context`; with `--json` for a program.
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
    /// `/skill`: its name, and the task.
    Skill(String, String),
    /// `/jobs`, or which of them is to stop.
    Jobs(Option<String>),
    Memory,
    /// Of one agent, or of all.
    Forget(Option<String>),
    Theme(Option<String>),
    Doctor,
    /// `/queue`, or which of its messages is to go.
    Queue(Option<String>),
    Stop,
    StopAll,
    Exit,
}

/// When a command works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Always.
    Always,
    /// While nothing runs.
    Idle,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Other names for it.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) argument: &'static str,
    pub(crate) what: &'static str,
    pub(crate) when: When,
}

const fn idle(
    name: &'static str,
    aliases: &'static [&'static str],
    argument: &'static str,
    what: &'static str,
) -> Entry {
    Entry { name, aliases, argument, what, when: When::Idle }
}

const fn always(
    name: &'static str,
    aliases: &'static [&'static str],
    argument: &'static str,
    what: &'static str,
) -> Entry {
    Entry { name, aliases, argument, what, when: When::Always }
}

/// All of them, in the order in which they are explained.
pub(crate) const COMMANDS: &[Entry] = &[
    always("help", &["?"], "", "commands and keys"),
    always("keys", &["hotkeys"], "", "keys alone"),
    idle("new", &["clear"], "", "a new conversation"),
    idle("resume", &[], "[ID]", "a conversation from before; alone: choose"),
    idle("fork", &[], "", "go on in a copy of this conversation; this one stays"),
    idle(
        "model",
        &[],
        "[NAME]",
        "another model of this provider, also next time; `default` forgets it; alone: choose",
    ),
    idle(
        "provider",
        &[],
        "[NAME]",
        "another provider, with its own model, also next time; `default` forgets it; alone: choose",
    ),
    idle("agent", &[], "[NAME]", "another agent; alone: choose"),
    always("agents", &[], "", "every agent there is, and those that worked in this conversation"),
    idle("compact", &[], "[WHAT]", "make the history shorter; WHAT is to be kept in it"),
    always("context", &[], "[--json]", "what a request is made of, in tokens"),
    always("cost", &["usage"], "", "tokens and money so far, by model and by agent"),
    always("status", &[], "", "session, provider, model, agent, and who said so"),
    always(
        "permissions",
        &[],
        "",
        "how it is decided what may be done, what is allowed, and how that is taken back",
    ),
    always("sandbox", &[], "", "what really confines commands here"),
    always("diff", &[], "", "what was changed in this conversation"),
    idle("undo", &[], "", "take back the last change of a file, as long as it is as it was left"),
    idle("export", &[], "[FILE]", "the conversation as Markdown, or as HTML if the file ends so"),
    always("copy", &[], "", "the last answer into the clipboard, where the terminal allows it"),
    always("config", &[], "", "settings, and which file or flag set each"),
    always("tools", &[], "", "tools the model may ask for"),
    always("skills", &[], "", "instructions for kinds of task, as skills"),
    idle("skill", &[], "NAME [TASK]", "a task to be done as a skill says"),
    always("jobs", &[], "[stop ID]", "commands that run in the background; stop: ends one"),
    always("memory", &[], "", "what agents have reported, as the next of their names are told"),
    always("forget", &[], "[NAME]", "forget that, of one agent or of all"),
    always("theme", &[], "[NAME]", "dark, light, high-contrast or none"),
    always("doctor", &[], "", "try what posse needs here"),
    always(
        "queue",
        &[],
        "[drop N]",
        "messages that wait: take one back, or delete it; drop: delete the Nth",
    ),
    always("stop", &[], "[all]", "stop what runs (also Esc); all: agents in the background, too"),
    always("exit", &["quit", "q"], "", "leave (also Ctrl+D)"),
];

/// A line that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Nothing.
    Blank,
    /// Something for the model.
    Text(String),
    /// A command of the shell.
    Shell(String),
    /// A command, and when it works.
    Command(Command, When),
    /// No command has that name; perhaps this one was meant.
    Unknown(String, Option<&'static str>),
}

/// Understands what was sent.
pub(crate) fn parse(text: &str) -> Typed {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Typed::Blank;
    }
    if let Some(command) = text.strip_prefix('!').map(str::trim).filter(|line| !line.is_empty()) {
        return Typed::Shell(command.to_owned());
    }
    let Some((name, argument)) = split(trimmed) else { return Typed::Text(text.to_owned()) };
    let known = COMMANDS.iter().find(|entry| entry.name == name || entry.aliases.contains(&name));
    let Some(entry) = known else {
        let names = COMMANDS
            .iter()
            .flat_map(|entry| [entry.name].into_iter().chain(entry.aliases.iter().copied()));
        return Typed::Unknown(name.to_owned(), nearest(name, names));
    };
    let argument = Some(argument).filter(|text| !text.is_empty()).map(str::to_owned);
    Typed::Command(meant(entry.name, argument), entry.when)
}

/// There is no such command, in words.
pub(crate) fn unknown(name: &str, meant: Option<&str>) -> String {
    let name = crate::failure::printable(name);
    match meant {
        Some(meant) => format!("There is no /{name}. Did you mean /{meant}?"),
        None => format!("There is no /{name}. /help lists what there is."),
    }
}

/// The command of that name in the table.
fn meant(name: &str, argument: Option<String>) -> Command {
    // Whoever asks what there is wants to choose.
    let chosen = |argument: Option<String>| argument.filter(|name| name != "?");
    match name {
        "help" => Command::Help,
        "keys" => Command::Keys,
        "new" => Command::New,
        "resume" => Command::Resume(argument),
        "fork" => Command::Fork,
        "model" => Command::Select(Selected::Model, chosen(argument)),
        "provider" => Command::Select(Selected::Provider, chosen(argument)),
        "agent" => Command::Select(Selected::Agent, chosen(argument)),
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

/// `stop ID` or the id alone; the word alone is a look.
fn which(argument: Option<String>, word: &str) -> Option<String> {
    let argument = argument?;
    let rest = argument
        .strip_prefix(word)
        .filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
    let id = rest.unwrap_or(&argument).trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// A command is one word after a slash, on one line: `/usr/bin is broken` is something to say.
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
    fn tells_commands_from_things_to_say() {
        let text = |text: &str| Typed::Text(text.to_owned());
        let always = |command| Typed::Command(command, When::Always);
        let idle = |command| Typed::Command(command, When::Idle);
        let table = [
            ("", Typed::Blank),
            ("  \n", Typed::Blank),
            ("fix it", text("fix it")),
            ("/help", always(Command::Help)),
            ("/?", always(Command::Help)),
            (" /quit ", always(Command::Exit)),
            ("/model gpt-9 ", idle(Command::Select(Selected::Model, Some("gpt-9".into())))),
            ("/provider ?", idle(Command::Select(Selected::Provider, None))),
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
            ("/compat", Typed::Unknown("compat".into(), Some("compact"))),
            ("/zzzzzz", Typed::Unknown("zzzzzz".into(), None)),
            ("/usr/bin is broken", text("/usr/bin is broken")),
            ("/etc/hosts", text("/etc/hosts")),
            ("/", text("/")),
            ("/exit\nmore", text("/exit\nmore")),
            ("!ls -l ", Typed::Shell("ls -l".into())),
            ("! ls\npwd", Typed::Shell("ls\npwd".into())),
            (" !important", text(" !important")),
            ("!", text("!")),
            ("/stop all", always(Command::StopAll)),
        ];
        for (line, meant) in table {
            assert_eq!(parse(line), meant, "{line:?}");
        }
    }

    #[test]
    fn every_name_of_the_table_is_its_command() {
        let mut seen = Vec::new();
        for entry in COMMANDS {
            let argument = if entry.name == "skill" { " deploy" } else { "" };
            let Typed::Command(meant, when) = parse(&format!("/{}{argument}", entry.name)) else {
                panic!("{}", entry.name);
            };
            assert_eq!(when, entry.when, "{}", entry.name);
            assert!(!seen.contains(&meant), "{}", entry.name);
            for alias in entry.aliases {
                assert_eq!(
                    parse(&format!("/{alias}{argument}")),
                    Typed::Command(meant.clone(), when),
                    "{alias}"
                );
            }
            seen.push(meant);
        }
    }
}
