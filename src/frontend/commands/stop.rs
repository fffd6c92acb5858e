//! `/stop`: stops the run, with `all` also background subagents and background jobs. Works in line
//! mode even while a permission request is open.

use crate::commands::{Availability, COMMAND, Command};

pub(super) const STOP: Command = Command {
    name: "stop",
    brief: "stop the task (also Esc)",
    argument: "[all]",
    help: "stop the task (also Esc); all: also background agents",
    when: Availability::Immediate,
    run: |context, argument| context.stop(argument == Some("all")),
    ..COMMAND
};
