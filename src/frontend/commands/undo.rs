//! `/undo`: reverts the last change of files.

use crate::commands::{Availability, COMMAND, Command};

pub(super) const UNDO: Command = Command {
    name: "undo",
    help: "revert the last file change, or what the last run with commands changed",
    when: Availability::Idle,
    run: |context, _| context.undo(),
    ..COMMAND
};
