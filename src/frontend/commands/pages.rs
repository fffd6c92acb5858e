//! `/help`, `/keys`, `/status` and `/diff`: pages that each front end writes in its own way.

use crate::commands::{Availability, Command, Page};

pub(super) const HELP: Command = Command {
    name: "help",
    aliases: &["?"],
    argument: "",
    help: "show commands and keys",
    when: Availability::Always,
    run: |context, _| context.show(Page::Help),
};

pub(super) const KEYS: Command = Command {
    name: "keys",
    aliases: &["hotkeys"],
    argument: "",
    help: "show keys",
    when: Availability::Always,
    run: |context, _| context.show(Page::Keys),
};

pub(super) const STATUS: Command = Command {
    name: "status",
    aliases: &[],
    argument: "",
    help: "show session, provider, model and agent with their sources",
    when: Availability::Always,
    run: |context, _| context.show(Page::Status),
};

pub(super) const DIFF: Command = Command {
    name: "diff",
    aliases: &[],
    argument: "",
    help: "show the file changes of this session",
    when: Availability::Always,
    run: |context, _| context.show(Page::Changes),
};
