//! `/help`, `/keys`, `/status` and `/diff`: pages that each front end writes in its own way.

use crate::Report;
use crate::commands::{COMMAND, Command, Page, ReportRequest};

pub(super) const HELP: Command = Command {
    name: "help",
    aliases: &["?"],
    argument: "[TOPIC]",
    help: "show commands and keys, or a topic of `posse help`",
    run: |context, argument| match argument {
        Some(topic) => {
            let report = Report::Help(topic.to_owned());
            context.report(ReportRequest::list(report, "help"));
        }
        None => context.show(Page::Help),
    },
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
