//! Commands of the program: each takes arguments and the environment, prints, and returns an exit
//! code. The module `wiring` makes sessions.

mod attach;
mod checkpoint_store;
mod checkpoints;
mod clipboard_image;
mod config;
mod conversation;
pub mod demo;
mod descriptors;
mod first_start;
mod grants;
mod help;
mod login;
mod net_changes;
mod notifications;
mod offline_commands;
mod permission_check;
mod pickers;
mod plain;
mod policies;
mod reports;
mod resume;
mod rewind;
mod run;
mod sessions;
mod setup_facts;
mod skills;
mod system_prompt;
mod text_editor;
mod themes;
mod tree;
mod trust;
mod try_command;
mod tui;
mod undo;
mod wrapped_lines;

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use posse_base::terminal;

use crate::cli::{self, CliExit, DoctorAction, Invocation, ListArgs, OutputFormat};
use crate::config::{Environment, Loaded};
use crate::failure::{Exit, Failure, lines};
use crate::front::headless;
use crate::models;
use crate::wiring::place;
pub(crate) use run::runtime;

/// Line width in characters if the environment variable `COLUMNS` is not set or not a number.
const COLUMNS: usize = 100;

/// Runs `work` and turns a panic into the exit code of an internal error. Before that, destructors
/// restore resources such as the terminal.
pub fn catch_panics(work: impl FnOnce() -> ExitCode) -> ExitCode {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or(ExitCode::from(Exit::Internal as u8))
}

/// Runs the program with these arguments, program name first. Prints failures and returns the exit
/// code.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    // A person reads permission requests on one of these streams.
    let seen = io::stdout().is_terminal() || io::stderr().is_terminal();
    let args: Vec<OsString> = args.collect();
    let format = cli::requested_format(&args);
    let is_json = cli::requests_json(&args);
    let invocation = match cli::parse(args.into_iter(), io::stdin().is_terminal() && seen) {
        Ok(invocation) => invocation,
        Err(exit) => {
            let failure = exit.failure.as_deref().map(std::slice::from_ref);
            print_start_error(format, is_json, failure.unwrap_or_default());
            return exit_code(&exit);
        }
    };
    let environment = Environment::read();
    match run_command(invocation, &environment) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failures) => {
            print_start_error(format, is_json, &failures);
            print_failures(&failures)
        }
    }
}

fn run_command(invocation: Invocation, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    match invocation {
        Invocation::Run(command) => run::run(&command.into_args()?, environment),
        Invocation::Resume(command) => {
            let args = command.into_args()?;
            let is_conversation = resume::is_conversation(&args);
            if is_conversation {
                tui::run(&args, environment)
            } else {
                run::run(&args, environment)
            }
        }
        Invocation::Attach(args) => attach::run(&args, environment),
        Invocation::Demo(args) => demo::run(&args, environment),
        Invocation::Sessions(args) => Ok(sessions::run(&args, environment)?),
        Invocation::Config(action) => config::run(action, environment),
        Invocation::Plain(command) => plain::run(&command.into_args(), environment),
        Invocation::Tui(command) => tui::run(&command.into_args(), environment),
        Invocation::Replay(args) => offline_commands::replay(&args, environment),
        Invocation::Agents(args) => offline_commands::agents(&args, environment),
        Invocation::Tools(args) => offline_commands::tools(&args, environment),
        Invocation::Skills(args) => skills::list(&args, environment),
        Invocation::Models(args) => list_models(&args, environment),
        Invocation::Login(args) => login::run(&args, environment),
        Invocation::Grants(args) => grants::run(&args, environment),
        Invocation::Checkpoints(args) => checkpoints::run(&args, environment),
        Invocation::Undo(args) => checkpoints::undo(&args, environment),
        Invocation::Try(args) => try_command::run(&args, environment),
        Invocation::Trust(args) => trust::run(&args, environment),
        Invocation::Permissions(action) => permission_check::check(&action, environment),
        Invocation::Doctor(args) => match &args.action {
            Some(DoctorAction::Policies(args)) => policies::run(args, environment),
            None => offline_commands::doctor(&args, environment),
        },
        Invocation::Help(args) => help::run(&args, environment),
        Invocation::Completions(args) => offline_commands::completions(args),
        Invocation::Man(args) => offline_commands::man(&args),
    }
}

fn exit_code(exit: &CliExit) -> ExitCode {
    let written = if exit.stderr {
        terminal::stderr().write_all(exit.text.as_bytes())
    } else {
        terminal::stdout().write_all(exit.text.as_bytes())
    };
    // Without a reader nothing can be reported.
    written.map_or(ExitCode::FAILURE, |()| ExitCode::from(exit.code))
}

/// Prints the failures of a run that could not start, or of a command, to standard output if its
/// output is JSON. `is_json`: true for a command that runs no agent and has the flag `--json`.
fn print_start_error(format: OutputFormat, is_json: bool, failures: &[Failure]) {
    let line = if is_json {
        // A command with a result has told in it why its exit code is not 0.
        (!terminal::has_output()).then(|| headless::command_error(failures)).flatten()
    } else {
        headless::start_error(format, failures)
    };
    if let Some(line) = line {
        // The exit code and standard error report the failures as well.
        terminal::stdout().write_all(line.as_bytes()).ok();
    }
}

/// Prints all failures to standard error and returns the exit code of the first (70 if there is
/// none). Prints nothing if the first failure is an interrupt or a normal end.
fn print_failures(failures: &[Failure]) -> ExitCode {
    let wanted = |failure: &Failure| matches!(failure.exit, Exit::Done | Exit::Interrupt);
    if !failures.first().is_some_and(wanted) {
        terminal::stderr().write_all(lines(failures).as_bytes()).ok();
    }
    ExitCode::from(failures.first().map_or(Exit::Internal, |failure| failure.exit) as u8)
}

fn list_models(args: &ListArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let place = place(&args.place, Vec::new(), environment)?;
    notices(&place.loaded);
    let catalog = models::Catalog::new(&place.loaded.settings.models);
    Ok(print(&models::list(&catalog.all(), args.json)))
}

/// Writes `text` to standard output. Returns `Exit::Failed` if that fails.
fn print(text: &str) -> Exit {
    let written = terminal::stdout().write_all(text.as_bytes());
    written.map_or(Exit::Failed, |()| Exit::Done)
}

/// Asks a question on standard error and waits for a line of standard input. Returns true for the
/// answers `y`, `Y` and `yes` only, and false for any error.
fn confirmed(question: &str) -> bool {
    let mut answer = String::new();
    let asked = terminal::stderr()
        .write_all(format!("{question}? [y/N] ").as_bytes())
        .and_then(|()| io::stdin().lock().read_line(&mut answer));
    asked.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// True if [`confirmed`] can ask.
fn can_confirm() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Prints the notices of the configuration to standard error.
pub(crate) fn notices(loaded: &Loaded) {
    wrapped_lines::print(&lines(&loaded.notices));
}

/// Calls `assemble`, prints the notices that it collected to standard error, and returns its
/// result.
fn printing_notices<T>(assemble: impl FnOnce(&mut Vec<String>) -> T) -> T {
    let mut notices = Vec::new();
    let made = assemble(&mut notices);
    wrapped_lines::print(&lines(&notices));
    made
}

/// True if colours may be used on a stream. `terminal`: true if the stream is a terminal. The
/// variables `NO_COLOR` and `TERM=dumb` forbid colours; otherwise a terminal has colours, and
/// `CLICOLOR_FORCE` with another value than `0` permits them on any stream.
pub(crate) fn colors(terminal: bool, environment: &Environment) -> bool {
    if environment.get("NO_COLOR").is_some() || environment.get("TERM") == Some("dumb") {
        return false;
    }
    terminal || environment.get("CLICOLOR_FORCE").is_some_and(|force| force != "0")
}

fn columns(environment: &Environment) -> usize {
    environment.get("COLUMNS").and_then(|columns| columns.parse().ok()).unwrap_or(COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_exits_with_an_internal_error() {
        let code = |code: ExitCode| format!("{code:?}");
        assert_eq!(code(catch_panics(|| panic!("a bug"))), code(ExitCode::from(70)));
        assert_eq!(code(catch_panics(|| ExitCode::from(3))), code(ExitCode::from(3)));
    }
}
