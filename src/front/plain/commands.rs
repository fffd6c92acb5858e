//! What a line typed in line mode means. Pure.

use crate::failure::nearest;
use crate::talk::Selected;

/// Each command with its arguments and what it does.
const COMMANDS: [(&str, &str, &str); 17] = [
    ("help", "", "this list"),
    ("status", "", "session, model, tokens"),
    ("model", "[NAME]", "another model of this provider; alone: which one it is"),
    ("provider", "[NAME]", "another provider, with its own model"),
    ("agent", "[NAME]", "another agent"),
    ("skill", "NAME [TASK]", "a task to be done as a skill says"),
    ("skills", "", "the skills there are"),
    ("cost", "", "what requests have cost so far"),
    ("memory", "", "what agents have reported, as the next of their names are told"),
    ("forget", "[NAME]", "forget that, of one agent or of all"),
    ("compact", "[WHAT]", "make the history shorter; WHAT is to be kept in it"),
    ("context", "[--json]", "what a request is made of, in tokens"),
    ("clear", "", "a new conversation"),
    ("stop", "[all]", "stop what runs (also Ctrl+C); all: agents in the background, too"),
    ("exit", "", "leave (also Ctrl+D on an empty line)"),
    ("quit", "", "the same"),
    ("new", "", "the same as /clear"),
];

/// A line, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Nothing.
    Blank,
    /// Something for the model.
    Text(String),
    /// `/help`.
    Help,
    /// `/status`.
    Status,
    /// `/model`, `/provider` or `/agent`, with a name or to look.
    Select(Selected, Option<String>),
    /// `/skill`: its name, and the task.
    Skill(String, String),
    /// `/skills`.
    Skills,
    /// `/compact`, with what is to be kept.
    Compact(Option<String>),
    /// `/context`, perhaps as JSON.
    Context(bool),
    /// What requests have cost.
    Cost,
    /// `/memory`.
    Memory,
    /// `/forget`, of one agent or of all.
    Forget(Option<String>),
    /// `/clear`.
    Clear,
    /// `/stop`.
    Stop,
    /// `/stop all`.
    StopAll,
    /// `/exit`.
    Exit,
    /// No command has that name; perhaps this one was meant.
    Unknown(String, Option<&'static str>),
}

/// Understands a line, or several that were pasted.
pub(crate) fn parse(line: &str) -> Typed {
    let trimmed = line.trim();
    if trimmed.is_empty() {
        return Typed::Blank;
    }
    let Some((name, argument)) = command(trimmed) else { return Typed::Text(line.to_owned()) };
    let argument = Some(argument).filter(|text| !text.is_empty() && *text != "?");
    let select = |selected| Typed::Select(selected, argument.map(str::to_owned));
    match name {
        "help" | "?" => Typed::Help,
        "status" => Typed::Status,
        "model" => select(Selected::Model),
        "provider" => select(Selected::Provider),
        "agent" => select(Selected::Agent),
        "skill" => match argument {
            Some(argument) => {
                let (name, task) =
                    argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
                Typed::Skill(name.to_owned(), task.trim().to_owned())
            }
            None => Typed::Skills,
        },
        "skills" => Typed::Skills,
        "compact" => Typed::Compact(argument.map(str::to_owned)),
        "context" => Typed::Context(argument == Some("--json")),
        "cost" => Typed::Cost,
        "memory" => Typed::Memory,
        "forget" => Typed::Forget(argument.map(str::to_owned)),
        "clear" | "new" => Typed::Clear,
        "stop" if argument == Some("all") => Typed::StopAll,
        "stop" => Typed::Stop,
        "exit" | "quit" => Typed::Exit,
        name => Typed::Unknown(name.to_owned(), nearest(name, COMMANDS.map(|(name, ..)| name))),
    }
}

/// A command is one word after a slash, on one line: `/usr/bin is broken` is something to say.
fn command(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix('/')?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_name = name == "?" || !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
    (is_name && !line.contains('\n')).then_some((name, argument.trim()))
}

/// What `/help` shows.
pub(crate) fn help() -> String {
    let line = |(name, argument, what)| format!("  {:<17} {what}\n", format!("/{name} {argument}"));
    let mut text = COMMANDS.map(line).concat();
    text.push_str(
        "  Everything else is a task. While one is worked on, it is said to the model at its next \
         step.\n  A backslash at the end of a line continues it; pasted lines stay together.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_commands_from_things_to_say() {
        let text = |text: &str| Typed::Text(text.to_owned());
        let select = |what, name: Option<&str>| Typed::Select(what, name.map(str::to_owned));
        let table = [
            ("", Typed::Blank),
            ("  \n", Typed::Blank),
            ("fix it", text("fix it")),
            ("/help", Typed::Help),
            ("/?", Typed::Help),
            (" /exit ", Typed::Exit),
            ("/quit", Typed::Exit),
            ("/model gpt-9 ", select(Selected::Model, Some("gpt-9"))),
            ("/forget explore", Typed::Forget(Some("explore".to_owned()))),
            ("/model", select(Selected::Model, None)),
            ("/provider ?", select(Selected::Provider, None)),
            ("/agent plan", select(Selected::Agent, Some("plan"))),
            ("/skill deploy  to staging ", Typed::Skill("deploy".into(), "to staging".into())),
            ("/skill deploy", Typed::Skill("deploy".into(), String::new())),
            ("/skill", Typed::Skills),
            ("/compact", Typed::Compact(None)),
            ("/compact the port", Typed::Compact(Some("the port".to_owned()))),
            ("/context", Typed::Context(false)),
            ("/context --json", Typed::Context(true)),
            ("/compat", Typed::Unknown("compat".to_owned(), Some("compact"))),
            ("/zzzzzz", Typed::Unknown("zzzzzz".to_owned(), None)),
            ("/usr/bin is broken", text("/usr/bin is broken")),
            ("/etc/hosts", text("/etc/hosts")),
            ("/", text("/")),
            ("/exit\nmore", text("/exit\nmore")),
        ];
        for (line, meant) in table {
            assert_eq!(parse(line), meant, "{line:?}");
        }
    }

    #[test]
    fn help_names_every_command() {
        for (name, ..) in COMMANDS {
            assert!(help().contains(&format!("/{name} ")), "{name}");
            assert!(!matches!(parse(&format!("/{name}")), Typed::Unknown(..)), "{name}");
        }
    }
}
