//! `/help`, `/keys`, `/status` and `/diff`: pages that each front end writes in its own way.

use crate::commands::{COMMAND, Command, CommandGroup, Page, ReportRequest};

pub(super) const HELP: Command = Command {
    name: "help",
    brief: "show commands and keys",
    aliases: &["?"],
    argument: "[TOPIC]",
    help: "show commands and keys, or a topic of `posse help`",
    group: CommandGroup::Program,
    run: |context, argument| match argument {
        Some(topic) => {
            context.report(ReportRequest::guide(topic));
        }
        None => context.show(Page::Help),
    },
    ..COMMAND
};

pub(super) const KEYS: Command = Command {
    name: "keys",
    aliases: &["hotkeys"],
    help: "show keys",
    group: CommandGroup::Program,
    run: |context, _| context.show(Page::Keys),
    ..COMMAND
};

pub(super) const STATUS: Command = Command {
    name: "status",
    brief: "show session, provider, model and agent",
    help: "show session, provider, model and agent with their sources",
    group: CommandGroup::Program,
    run: |context, _| context.show(Page::Status),
    ..COMMAND
};

pub(super) const DIFF: Command = Command {
    name: "diff",
    brief: "show how files differ from the start",
    help: "show how the files differ from the start of the conversation",
    group: CommandGroup::Files,
    run: |context, _| context.show(Page::Changes),
    ..COMMAND
};
