//! Commands that show a report of the environment and nothing else.

use crate::Report;
use crate::commands::{Availability, Command, ReportRequest};

pub(super) const CONFIG: Command = Command {
    name: "config",
    aliases: &[],
    argument: "",
    help: "show settings and their sources",
    when: Availability::Always,
    run: |context, _| context.report(ReportRequest::list(Report::Config, "settings")),
};

pub(super) const DOCTOR: Command = Command {
    name: "doctor",
    aliases: &[],
    argument: "",
    help: "check what posse needs here",
    when: Availability::Always,
    run: |context, _| context.report(ReportRequest::list(Report::Doctor, "doctor")),
};

pub(super) const EXPORT: Command = Command {
    name: "export",
    aliases: &[],
    argument: "[FILE]",
    help: "export the session as Markdown, or as HTML if FILE ends in .html",
    when: Availability::Idle,
    run: |context, argument| {
        let report = Report::Export(argument.map(str::to_owned));
        context.report(ReportRequest::new(report, "export"));
    },
};

pub(super) const SANDBOX: Command = Command {
    name: "sandbox",
    aliases: &[],
    argument: "",
    help: "show the confinement of commands",
    when: Availability::Always,
    run: |context, _| context.report(ReportRequest::new(Report::Sandbox, "sandbox")),
};

pub(super) const TOOLS: Command = Command {
    name: "tools",
    aliases: &[],
    argument: "",
    help: "list the tools of the model",
    when: Availability::Always,
    run: |context, _| context.report(ReportRequest::list(Report::Tools, "tools")),
};
