//! `/theme`: shows or sets the colour theme.

use crate::commands::{ArgumentValues, COMMAND, Command, CommandGroup};

pub(super) const THEME: Command = Command {
    name: "theme",
    brief: "choose the colour theme",
    argument: "[NAME]",
    help: "use another colour theme, built-in or your own; without NAME: choose one",
    group: CommandGroup::Program,
    values: ArgumentValues::Themes,
    run: |context, argument| context.theme(argument),
    ..COMMAND
};
