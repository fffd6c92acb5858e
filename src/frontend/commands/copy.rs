//! `/copy`: copies the last answer to the clipboard.

use crate::commands::{Availability, Command};

pub(super) const COPY: Command = Command {
    name: "copy",
    aliases: &[],
    argument: "",
    help: "copy the last answer to the clipboard, if the terminal allows it",
    when: Availability::Always,
    run: |context, _| context.copy_answer(),
};
