//! Errors for planned commands and flags that this version does not have, and suggestions for
//! misspelled ones: clap's own suggestions miss swapped letters.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use posse_base::failure::{ErrorCode, Exit, Failure, nearest};

use crate::args::Cli;

const FLAGS: [&str; 4] = [
    "--main-max-context-tokens",
    "--main-compact-at",
    "--sub-max-context-tokens",
    "--sub-compact-at",
];

const COMMANDS: [&str; 5] = ["mcp", "serve", "acp", "mcp-serve", "worker"];

/// Converts clap's error about an unknown command or flag to "not available yet" if this command or
/// flag is planned. `None` for any other name or error.
pub(crate) fn explain(error: &clap::Error) -> Option<Failure> {
    let (kind, names, word) = match error.kind() {
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, &FLAGS[..], "flag"),
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, &COMMANDS[..], "command"),
        _ => return None,
    };
    let Some(ContextValue::String(given)) = error.get(kind) else { return None };
    let given = given.split('=').next().unwrap_or(given);
    names.contains(&given).then(|| {
        Failure::new(
            ErrorCode::NotAvailableYet,
            Exit::Usage,
            format!("the {word} \"{given}\" is not available yet"),
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
