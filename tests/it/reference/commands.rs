//! The reference of the command line.

use std::fmt::Write as _;

use clap::{Arg, Command};
use posse::cli;

use super::GENERATED;

/// The page about all commands.
pub(super) fn page() -> String {
    let mut command = cli::command();
    command.build();
    let mut page = format!(
        "# Command line\n<!-- {GENERATED} -->\n\nAll commands with their arguments and flags. The meaning of \
         exit codes: [exit codes](exit-codes.md).\n"
    );
    add(&command, &mut page);
    page
}

/// Adds a command and the commands below it.
fn add(command: &Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    write!(page, "\n## `{name}`\n\n{}\n", sentence(&about)).unwrap();
    let aliases: Vec<String> =
        command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        write!(page, "\nAlso: {}.\n", aliases.join(", ")).unwrap();
    }
    let usage = command.clone().render_usage().to_string();
    write!(page, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim()).unwrap();
    let shown = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version"));
    let items: Vec<String> = shown.map(item).collect();
    if !items.is_empty() {
        write!(page, "\n{}", items.concat()).unwrap();
    }
    if let Some(after) = command.get_after_help() {
        write!(page, "\n{after}\n").unwrap();
    }
    let is_generated = |below: &Command| below.get_name() == "help" && name != "posse";
    for below in command.get_subcommands() {
        if !below.is_hide_set() && !is_generated(below) {
            add(below, page);
        }
    }
}

/// A text that ends with a full stop, in paragraphs.
fn sentence(text: &str) -> String {
    let text = super::prose(text.trim());
    let ended = text.split("\n\n").map(|paragraph| match paragraph {
        "" => String::new(),
        text if text.ends_with(['.', '!', ':']) => text.to_owned(),
        text => format!("{text}."),
    });
    ended.collect::<Vec<_>>().join("\n\n")
}

/// A list item about an argument or a flag.
fn item(arg: &Arg) -> String {
    let mut names: Vec<String> =
        arg.get_short().map(|short| format!("-{short}")).into_iter().collect();
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    names.extend(
        arg.get_visible_aliases().unwrap_or_default().iter().map(|alias| format!("--{alias}")),
    );
    let values = arg.get_value_names().unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    if names.is_empty() {
        names.extend(values.first().map(ToString::to_string));
    } else if let (true, Some(value)) = (takes_value, values.first()) {
        names.last_mut().unwrap().push_str(&format!(" {value}"));
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = sentence(&help).replace("\n\n", " ");
    let possible: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| takes_value && !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()).replace(".)", ")"),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !possible.is_empty() {
        write!(text, " One of {}.", possible.join(", ")).unwrap();
    }
    let defaults = arg.get_default_values().iter().filter_map(|value| value.to_str());
    let defaults: Vec<&str> = defaults.filter(|_| takes_value).collect();
    if !defaults.is_empty() {
        write!(text, " Default: `{}`.", defaults.join(" ")).unwrap();
    }
    format!("- `{}`: {text}\n", names.join(", "))
}
