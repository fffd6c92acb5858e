//! `posse help`: guides, references and their entries.

use std::io::{self, IsTerminal};

use crate::cli::{self, HelpArgs};
use crate::commands::print;
use crate::config::Environment;
use crate::failure::{Exit, Failure};
use crate::{help, sandbox};

/// Columns of the text if the width of the terminal is not known.
const COLUMNS: usize = 80;

/// Maximum columns of the text: longer lines are hard to read.
const COLUMNS_MAX: usize = 100;

/// Prints the list of topics, a topic, the help of a command, or an entry. A topic wins over a
/// command of its name, whose help `posse COMMAND --help` prints.
pub(super) fn run(args: &HelpArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let width = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    let told = || environment.get("COLUMNS").and_then(|columns| columns.parse().ok());
    let columns = width.or_else(told).unwrap_or(COLUMNS).clamp(20, COLUMNS_MAX);
    let words = args.topic.join(" ");
    let text = if words.trim().is_empty() {
        help::topics()
    } else if let Some(mut text) = help::topic(&words, columns) {
        if cli::command_help(&args.topic).is_some() {
            text.extend(["\nThe command: posse ", &words, " --help\n"]);
        }
        text
    } else {
        let found = cli::command_help(&args.topic).or_else(|| help::entries(&words, columns));
        let command = cli::command();
        let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
        let commands: Vec<&str> = commands.map(clap::Command::get_name).collect();
        found.ok_or_else(|| help::unknown(&words, &commands))?
    };
    let rows = size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0);
    let is_long = rows.is_some_and(|rows| text.lines().count() >= rows);
    if io::stdout().is_terminal()
        && is_long
        && let Some(pager) = environment.get("PAGER")
        && sandbox::page(pager, &text).unwrap_or(false)
    {
        return Ok(Exit::Done);
    }
    Ok(print(&text))
}
