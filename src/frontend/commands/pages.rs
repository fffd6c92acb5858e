//! `/help`, `/keys`, `/status` and `/diff`: pages that each front end writes in its own way.

use crate::commands::{COMMAND, Command, Page};

pub(super) const HELP: Command = Command {
    name: "help",
    aliases: &["?"],
    help: "show commands and keys",
    run: |context, _| context.show(Page::Help),
    ..COMMAND
};

pub(super) const KEYS: Command = Command {
    name: "keys",
    aliases: &["hotkeys"],
    help: "show keys",
    run: |context, _| context.show(Page::Keys),
    ..COMMAND
};

pub(super) const STATUS: Command = Command {
    name: "status",
    help: "show session, provider, model and agent with their sources",
    run: |context, _| context.show(Page::Status),
    ..COMMAND
};

pub(super) const DIFF: Command = Command {
    name: "diff",
    help: "show the file changes of this session",
    run: |context, _| context.show(Page::Changes),
    ..COMMAND
};
