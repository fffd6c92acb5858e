//! Errors for planned commands that this version does not have, and suggestions for
//! misspelled ones: clap's own suggestions miss swapped letters.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use posse_base::failure::{ErrorCode, Exit, Failure, nearest};

use crate::args::Cli;

const COMMANDS: [&str; 5] = ["mcp", "serve", "acp", "mcp-serve", "worker"];

/// Converts clap's error about an unknown command to "not available yet" if this command is planned.
/// `None` for any other name or error.
pub(crate) fn explain(error: &clap::Error) -> Option<Failure> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let given = text(error, ContextKind::InvalidSubcommand)?;
    COMMANDS.contains(&given.as_str()).then(|| {
        Failure::new(
            ErrorCode::NotAvailableYet,
            Exit::Usage,
            format!("the command \"{given}\" is not available yet"),
        )
        .fix("`posse --help` shows what is")
    })
}

/// Adds to the error about an unknown command or long flag the most similar known name, if one is
/// similar enough. Replaces clap's own suggestion.
pub(crate) fn suggest(error: &mut clap::Error, args: &[OsString]) {
    let root = Cli::command();
    let scope = args.iter().skip(1).find_map(|arg| root.find_subcommand(arg)).unwrap_or(&root);
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(given) = text(error, ContextKind::InvalidSubcommand)
        && let Some(meant) = nearest(&given, scope.get_subcommands().map(clap::Command::get_name))
    {
        let meant = ContextValue::Strings(vec![meant.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(given) = text(error, ContextKind::InvalidArg)
        && let Some(given) = given.strip_prefix("--")
    {
        let flags = std::iter::once(scope)
            .chain(scope.get_subcommands())
            .flat_map(clap::Command::get_arguments)
            .filter(|arg| !arg.is_hide_set())
            .filter_map(clap::Arg::get_long);
        if let Some(meant) = nearest(given, flags) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{meant}")));
        }
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}
