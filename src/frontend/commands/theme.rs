//! `/theme`: shows or sets the colour theme.

use crate::commands::{COMMAND, Command, CommandGroup};

pub(super) const THEME: Command = Command {
    name: "theme",
    argument: "[NAME]",
    help: "use another colour theme, built-in or your own",
    group: CommandGroup::Program,
    run: |context, argument| context.theme(argument),
    ..COMMAND
};
