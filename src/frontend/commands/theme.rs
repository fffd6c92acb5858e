//! `/theme`: shows or sets the colour theme.

use crate::commands::{Availability, Command};

pub(super) const THEME: Command = Command {
    name: "theme",
    aliases: &[],
    argument: "[NAME]",
    help: "use the theme dark, light, high-contrast or none",
    when: Availability::Always,
    run: |context, argument| context.theme(argument),
};
