//! `/undo`: reverts the last file change.

use crate::commands::{Availability, COMMAND, Command};

pub(super) const UNDO: Command = Command {
    name: "undo",
    help: "revert the last file change, unless the file was changed since",
    when: Availability::Idle,
    run: |context, _| context.undo(),
    ..COMMAND
};
