//! `/queue`: lists queued messages, or deletes one.

use crate::commands::{COMMAND, Choice, Command, after_word};

pub(super) const QUEUE: Command = Command {
    name: "queue",
    argument: "[drop N]",
    help: "list queued messages to edit or delete them; drop: delete the Nth",
    run: |context, argument| match after_word(argument, "drop") {
        Some(number) => context.withdraw(number),
        None => context.choose(Choice::QueuedMessage),
    },
    ..COMMAND
};
