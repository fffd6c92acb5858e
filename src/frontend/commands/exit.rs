//! `/exit`: ends the front end. Works in line mode even while a permission request is open.

use crate::commands::{Availability, COMMAND, Command};

pub(super) const EXIT: Command = Command {
    name: "exit",
    aliases: &["quit", "q"],
    help: "exit (also Ctrl+D)",
    when: Availability::Immediate,
    run: |context, _| context.exit(),
    ..COMMAND
};
