//! `/tree`: shows the branches of the conversation, goes to a place of them, or labels a prompt.

use crate::commands::{Availability, COMMAND, Choice, Command};

/// Text in place of a label that removes the label.
const NO_LABEL: &str = "-";

pub(super) const TREE: Command = Command {
    name: "tree",
    brief: "show the branches and go to one",
    argument: "[N [LABEL]]",
    help: "show the branches of the conversation and go to one; with LABEL: label the prompt of \
           row N, `-` removes the label",
    when: Availability::Idle,
    run: |context, argument| {
        let Some(argument) = argument else { return context.choose(Choice::Branch) };
        let (number, label) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
        let label = Some(label.trim()).filter(|label| !label.is_empty());
        match number.parse() {
            Ok(row) => {
                let label = label.map(|label| if label == NO_LABEL { "" } else { label });
                context.tree(row, label.map(str::to_owned));
            }
            Err(_) => context.tell("write /tree, /tree N or /tree N LABEL\n".to_owned()),
        }
    },
    ..COMMAND
};
