//! What begins with a slash: one table for the program, for `/help` and for the guide.

use crate::failure::nearest;
use crate::talk::Selected;

/// A command, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Keys,
    Status,
    New,
    Select(Selected, Option<String>),
    Compact(Option<String>),
    Context,
    Cost,
    Permissions,
    Sandbox,
    Diff,
    Config,
    Export(Option<String>),
    Copy,
    Theme(Option<String>),
    Doctor,
    Tools,
    /// `/skill`: its name, and the task.
    Skill(String, String),
    Skills,
    Queue,
    Resume(Option<String>),
    Fork,
    Undo,
    Stop,
    StopAll,
    Exit,
}

/// When a command works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Always.
    Always,
    /// While nothing runs.
    Idle,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// Other names for it.
    pub(super) aliases: &'static [&'static str],
    pub(super) argument: &'static str,
    pub(super) what: &'static str,
    pub(super) when: When,
}

const fn entry(
    name: &'static str,
    aliases: &'static [&'static str],
    argument: &'static str,
    when: When,
    what: &'static str,
) -> Entry {
    Entry { name, aliases, argument, what, when }
}

/// All of them, in the order in which they are explained.
pub(super) const COMMANDS: &[Entry] = &[
    entry("help", &["?"], "", When::Always, "commands and keys"),
    entry("keys", &["hotkeys"], "", When::Always, "keys alone"),
    entry("new", &["clear"], "", When::Idle, "a new conversation"),
    entry("resume", &[], "[ID]", When::Idle, "a conversation from before; alone: choose"),
    entry("fork", &[], "", When::Idle, "go on in a copy of this conversation; this one stays"),
    entry("model", &[], "[NAME]", When::Idle, "another model of this provider; alone: choose"),
    entry(
        "provider",
        &[],
        "[NAME]",
        When::Idle,
        "another provider, with its own model; alone: choose",
    ),
    entry("agent", &["agents"], "[NAME]", When::Idle, "another agent; alone: choose"),
    entry(
        "compact",
        &[],
        "[WHAT]",
        When::Idle,
        "make the history shorter; WHAT is to be kept in it",
    ),
    entry("context", &[], "", When::Always, "what a request is made of, in tokens"),
    entry("cost", &["usage"], "", When::Always, "tokens and money so far"),
    entry("status", &[], "", When::Always, "session, provider, model, agent, and who said so"),
    entry(
        "permissions",
        &[],
        "",
        When::Always,
        "how permissions are decided here, and what is allowed for good",
    ),
    entry("sandbox", &[], "", When::Idle, "what really confines commands here"),
    entry("diff", &[], "", When::Always, "what was changed in this conversation"),
    entry(
        "undo",
        &[],
        "",
        When::Idle,
        "take back the last change of a file, as long as it is as it was left",
    ),
    entry(
        "export",
        &[],
        "[FILE]",
        When::Idle,
        "the conversation as Markdown, or as HTML if the file ends so",
    ),
    entry(
        "copy",
        &[],
        "",
        When::Always,
        "the last answer into the clipboard, where the terminal allows it",
    ),
    entry("config", &[], "", When::Always, "settings, and which file or flag set each"),
    entry("tools", &[], "", When::Always, "tools the model may ask for"),
    entry("skills", &[], "", When::Always, "instructions for kinds of task, as skills"),
    entry("skill", &[], "NAME [TASK]", When::Idle, "a task to be done as a skill says"),
    entry("theme", &[], "[NAME]", When::Always, "dark, light, high-contrast or none"),
    entry("doctor", &[], "", When::Idle, "try what posse needs here"),
    entry("queue", &[], "", When::Always, "messages that wait: take one back, or delete it"),
    entry(
        "stop",
        &[],
        "[all]",
        When::Always,
        "stop what runs (also Esc); all: agents in the background, too",
    ),
    entry("exit", &["quit", "q"], "", When::Always, "leave (also Ctrl+D)"),
];

/// A line that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
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
pub(super) fn parse(text: &str) -> Typed {
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
    let command = match entry.name {
        "help" => Command::Help,
        "keys" => Command::Keys,
        "new" => Command::New,
        "model" => Command::Select(Selected::Model, argument),
        "provider" => Command::Select(Selected::Provider, argument),
        "agent" => Command::Select(Selected::Agent, argument),
        "compact" => Command::Compact(argument),
        "context" => Command::Context,
        "cost" => Command::Cost,
        "status" => Command::Status,
        "permissions" => Command::Permissions,
        "sandbox" => Command::Sandbox,
        "diff" => Command::Diff,
        "export" => Command::Export(argument),
        "copy" => Command::Copy,
        "config" => Command::Config,
        "tools" => Command::Tools,
        "skills" => Command::Skills,
        "skill" => {
            let argument = argument.unwrap_or_default();
            let (name, task) = argument.split_once(char::is_whitespace).unwrap_or((&argument, ""));
            Command::Skill(name.to_owned(), task.trim().to_owned())
        }
        "theme" => Command::Theme(argument),
        "doctor" => Command::Doctor,
        "resume" => Command::Resume(argument),
        "fork" => Command::Fork,
        "undo" => Command::Undo,
        "queue" => Command::Queue,
        "stop" if argument.as_deref() == Some("all") => Command::StopAll,
        "stop" => Command::Stop,
        _ => Command::Exit,
    };
    Typed::Command(command, entry.when)
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
        let table = [
            ("", Typed::Blank),
            ("  \n", Typed::Blank),
            ("fix it", text("fix it")),
            ("/help", always(Command::Help)),
            ("/?", always(Command::Help)),
            (" /quit ", always(Command::Exit)),
            (
                "/model gpt-9 ",
                Typed::Command(Command::Select(Selected::Model, Some("gpt-9".into())), When::Idle),
            ),
            (
                "/skill deploy  to staging ",
                Typed::Command(Command::Skill("deploy".into(), "to staging".into()), When::Idle),
            ),
            ("/compat", Typed::Unknown("compat".into(), Some("compact"))),
            ("/zzzzzz", Typed::Unknown("zzzzzz".into(), None)),
            ("/usr/bin is broken", text("/usr/bin is broken")),
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
            let meant = parse(&format!("/{}", entry.name));
            assert!(matches!(meant, Typed::Command(..)), "{}", entry.name);
            assert!(!seen.contains(&meant), "{}", entry.name);
            for alias in entry.aliases {
                assert_eq!(parse(&format!("/{alias}")), meant, "{alias}");
            }
            seen.push(meant);
        }
    }
}
