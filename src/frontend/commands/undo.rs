//! `/undo`: takes back the last step, or restores a checkpoint.

use crate::commands::{Availability, COMMAND, Command, CommandGroup};

pub(super) const UNDO: Command = Command {
    name: "undo",
    argument: "[N]",
    brief: "take back the last change of files",
    help: "take back the last change of files, also of commands; with N: restore checkpoint N",
    group: CommandGroup::Files,
    when: Availability::Idle,
    run: |context, argument| match argument.map(|id| id.trim().parse()) {
        None => context.undo(None),
        Some(Ok(id)) => context.undo(Some(id)),
        Some(Err(_)) => {
            let text = "write /undo, or /undo N with the number of a checkpoint; /rewind \
                            returns further\n";
            context.tell(text.to_owned());
        }
    },
    ..COMMAND
};
