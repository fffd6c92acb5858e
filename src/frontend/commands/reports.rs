//! `/config`, `/doctor`, `/export`, `/sandbox` and `/tools`: commands that show a [`Report`];
//! `/export` writes a file.

use crate::Report;
use crate::commands::{Availability, COMMAND, Command, CommandGroup, ReportRequest};

pub(super) const CONFIG: Command = Command {
    name: "config",
    help: "show settings and their sources",
    group: CommandGroup::Program,
    run: |context, _| context.report(ReportRequest::list(Report::Config, "settings")),
    ..COMMAND
};

pub(super) const DOCTOR: Command = Command {
    name: "doctor",
    help: "check what posse needs here",
    group: CommandGroup::Program,
    run: |context, _| context.report(ReportRequest::list(Report::Doctor, "doctor")),
    ..COMMAND
};

pub(super) const EXPORT: Command = Command {
    name: "export",
    argument: "[FILE]",
    help: "export the session as Markdown, or as HTML if FILE ends in .html",
    when: Availability::Idle,
    run: |context, argument| {
        let report = Report::Export(argument.map(str::to_owned));
        context.report(ReportRequest::new(report, "export"));
    },
    ..COMMAND
};

pub(super) const SANDBOX: Command = Command {
    name: "sandbox",
    help: "show the confinement of commands",
    group: CommandGroup::Permissions,
    run: |context, _| context.report(ReportRequest::new(Report::Sandbox, "sandbox")),
    ..COMMAND
};

pub(super) const TOOLS: Command = Command {
    name: "tools",
    help: "list the tools of the model",
    group: CommandGroup::Work,
    run: |context, _| context.report(ReportRequest::list(Report::Tools, "tools")),
    ..COMMAND
};
