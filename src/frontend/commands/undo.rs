//! `/undo`: reverts the last change of files.

use crate::commands::{Availability, COMMAND, Command, CommandGroup};

pub(super) const UNDO: Command = Command {
    name: "undo",
    help: "revert the last file change, or what the last run with commands changed",
    group: CommandGroup::Files,
    when: Availability::Idle,
    run: |context, argument| {
        if argument.is_none() {
            return context.undo();
        }
        let text = "/undo takes no argument; /rewind N WHAT returns further\n".to_owned();
        context.tell(text);
    },
    ..COMMAND
};
