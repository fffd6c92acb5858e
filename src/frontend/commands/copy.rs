//! `/copy`: copies the last answer to the clipboard.

use crate::commands::{COMMAND, Command};

pub(super) const COPY: Command = Command {
    name: "copy",
    brief: "copy the last answer to the clipboard",
    help: "copy the last answer to the clipboard, if the terminal allows it",
    run: |context, _| context.copy_answer(),
    ..COMMAND
};
