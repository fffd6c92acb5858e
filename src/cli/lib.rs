//! Parses the command line into plain values, without access to files. [`working_directory`] checks
//! a folder.
//!
//! A misspelled subcommand is an error, with a suggestion if a known name is similar. Features that
//! this version does not have are errors that say so: no flag is accepted without effect.

mod args;
mod directory;
mod habits;
mod later;
mod run_args;
mod usage_error;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};

pub use args::{
    AttachArgs, CheckpointsAction, CheckpointsArgs, CompletionsArgs, ConfigAction, DemoArgs,
    DoctorAction, DoctorArgs, ExportFormat, GrantsAction, GrantsArgs, HelpArgs, InputFormat,
    Invocation, ListArgs, LoginArgs, ManArgs, OutputFormat, PermissionsAction, PlaceArgs,
    ReplayArgs, RestoreFlags, SessionsAction, SessionsArgs, Shell, SkillsAction, SkillsArgs,
    TrustAction, TrustArgs, TryArgs, UndoArgs,
};
pub use directory::{check_added, working_directory};
pub use run_args::{
    AgentFlags, PlainCommand, PromptArg, Resume, ResumeCommand, RunArgs, RunCommand, Which,
};

use posse_base::failure::{Exit, Failure};

/// Exit before anything was started: help, version, or a usage error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliExit {
    /// Text to print, with its last newline.
    pub text: String,
    /// True if the text belongs on standard error, false for standard output.
    pub stderr: bool,
    /// The exit code.
    pub code: u8,
    /// The usage error, which is also in the text. `None` for help and version.
    pub failure: Option<Box<Failure>>,
}

/// Output format that the command line `args`, which begins with the program name, requests for a
/// run, also if it is invalid in another way. `Text` for commands that run no agent.
pub fn requested_format(args: &[OsString]) -> OutputFormat {
    const FLAG: &str = "--output-format";
    let is_flag = |word: &OsString| word.to_str().is_some_and(|word| word.starts_with(FLAG));
    if !args.iter().any(is_flag) {
        return OutputFormat::Text;
    }
    let first = args.get(1).and_then(|first| first.to_str()).unwrap_or_default();
    let is_run = matches!(first, "run" | "resume" | "demo");
    if !is_run && command().find_subcommand(first).is_some() {
        return OutputFormat::Text;
    }
    let words = args.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    let mut words = words.take_while(|word| *word != "--");
    let mut format = OutputFormat::Text;
    while let Some(word) = words.next() {
        let value = match word.strip_prefix(FLAG) {
            Some("") => words.next(),
            Some(value) => value.strip_prefix('='),
            None => continue,
        };
        let named =
            value.and_then(|value| <OutputFormat as ValueEnum>::from_str(value, false).ok());
        format = named.unwrap_or(format);
    }
    format
}

/// True if the command line `args`, which begins with the program name, asks a command that runs no
/// agent for JSON output, also if it is invalid in another way: by `--json`, or by
/// `--output-format` where that is the same.
pub fn requests_json(args: &[OsString]) -> bool {
    let root = command();
    let mut words = args.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    let first = words.next().unwrap_or_default();
    let Some(mut found) = root.find_subcommand(first) else { return false };
    let mut words = words.take_while(|word| *word != "--").peekable();
    let has_flag =
        |command: &clap::Command| command.get_arguments().any(|arg| arg.get_long() == Some("json"));
    // A flag before the subcommand can be global.
    let (mut takes_json, mut is_given) = (has_flag(found), false);
    while let Some(word) = words.next() {
        let format = word.strip_prefix("--output-format");
        let value = match format {
            Some("") => words.peek().copied(),
            Some(value) => value.strip_prefix('='),
            None => None,
        };
        is_given |= word == "--json" || value.is_some_and(|value| value.contains("json"));
        if let Some(below) = found.find_subcommand(word) {
            found = below;
            takes_json |= has_flag(found);
        }
    }
    takes_json && is_given
}

/// Parses the command line `args`, which begins with the program name. `terminal`: true if a person
/// is at the terminal. No arguments at a terminal mean `tui`. A first argument `-c` means
/// `resume --last`; other flags without a command belong to `tui` at a terminal if it accepts them,
/// otherwise to `run`. A first argument that contains white space and is no command is a task, for
/// `tui` or `run` in the same way. `Err` also for help and version.
pub fn parse(args: impl Iterator<Item = OsString>, terminal: bool) -> Result<Invocation, CliExit> {
    let mut args: Vec<OsString> = args.collect();
    if args.is_empty() {
        args.push("posse".into());
    }
    if args.len() == 1 && terminal {
        return Ok(Invocation::Tui(Box::default()));
    }
    let first = args.get(1).and_then(|arg| arg.to_str()).unwrap_or_default();
    if args.len() == 2 && matches!(first, "--version" | "-V") {
        return Err(CliExit {
            text: version(),
            stderr: false,
            code: Exit::Done as u8,
            failure: None,
        });
    }
    // `posse -c` is `posse resume --last`.
    if matches!(first, "-c" | "--continue") {
        args.splice(1..2, ["resume".into(), "--last".into()]);
    // `posse -p PROMPT` is `posse run -p PROMPT`, so that the flags of `run` exist once.
    } else if first.starts_with('-') && !matches!(first, "-h" | "--help" | "-V" | "--version") {
        if terminal && let Some(conversation) = conversation(&args) {
            return Ok(conversation);
        }
        args.insert(1, "run".into());
    // No command contains white space: `posse "fix the test"` is a task.
    } else if first.trim().contains(char::is_whitespace) {
        if terminal && let Some(conversation) = conversation(&args) {
            return Ok(conversation);
        }
        args.insert(1, "run".into());
    }
    match args::Cli::try_parse_from(&args) {
        Ok(cli) => Ok(cli.command),
        Err(error) => Err(refuse(error, &args)),
    }
}

/// Parses flags without a command as flags of the terminal UI: `posse --config F` opens it with
/// another configuration. `None` if a flag is unknown there or belongs to a single run.
fn conversation(args: &[OsString]) -> Option<Invocation> {
    let mut args = args.to_vec();
    args.insert(1, "tui".into());
    match args::Cli::try_parse_from(args).ok()?.command {
        Invocation::Tui(args) if args.is_conversation() => Some(Invocation::Tui(args)),
        _ => None,
    }
}

/// Definition of the whole command line, for completions and manual pages.
pub fn command() -> clap::Command {
    use clap::CommandFactory;
    args::Cli::command()
}

/// The help of the command with these names, such as `sessions list`, as text. `None` if there is
/// no such command.
pub fn command_help(names: &[String]) -> Option<String> {
    let mut command = command();
    command.build();
    let mut found = &mut command;
    for name in names {
        found = found.find_subcommand_mut(name)?;
    }
    Some(found.render_long_help().to_string())
}

fn version() -> String {
    concat!("posse ", env!("CARGO_PKG_VERSION"), "\n").into()
}

/// Converts an error of clap to text and exit code: 0 for help and version, otherwise 2.
fn refuse(mut error: clap::Error, args: &[OsString]) -> CliExit {
    match error.kind() {
        ErrorKind::DisplayHelp => CliExit {
            text: error.to_string(),
            stderr: false,
            code: Exit::Done as u8,
            failure: None,
        },
        ErrorKind::DisplayVersion => {
            CliExit { text: version(), stderr: false, code: Exit::Done as u8, failure: None }
        }
        // The command is missing. The text is the help.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => CliExit {
            text: error.to_string(),
            stderr: true,
            code: Exit::Usage as u8,
            failure: None,
        },
        _ => {
            later::suggest(&mut error, args);
            usage(usage_error::failure(&error, subcommand(args).as_deref(), args))
        }
    }
}

/// Name of the subcommand in `args`, which begin with the program name, followed by the name of its
/// own subcommand if that is the next argument: `sessions list`. An alias gives the main name.
/// `None` if the argument after the program name is no subcommand.
fn subcommand(args: &[OsString]) -> Option<String> {
    let root = command();
    let first = root.find_subcommand(args.get(1)?)?;
    let below = args.get(2).and_then(|second| first.find_subcommand(second));
    let names: Vec<_> = std::iter::once(first).chain(below).map(clap::Command::get_name).collect();
    Some(names.join(" "))
}

fn usage(failure: Failure) -> CliExit {
    let text = format!("{failure}\n");
    CliExit { text, stderr: true, code: Exit::Usage as u8, failure: Some(Box::new(failure)) }
}

#[cfg(test)]
mod tests;
