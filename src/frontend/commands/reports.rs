//! `/config`, `/doctor`, `/export`, `/sandbox`, `/share` and `/tools`: commands that show a
//! [`Report`]; `/export` and `/share` write a file.

use std::path::Path;

use crate::commands::{Availability, COMMAND, Command, CommandGroup, ReportRequest};
use crate::{ExportTarget, Report};

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
    brief: "export the session as Markdown or HTML",
    argument: "[FILE]",
    help: "export the session as Markdown, or as HTML if FILE ends in .html",
    when: Availability::Idle,
    run: |context, argument| {
        let report = Report::Export(ExportTarget::named(argument));
        context.report(ReportRequest::new(report, "export"));
    },
    ..COMMAND
};

pub(super) const SHARE: Command = Command {
    name: "share",
    brief: "write the session as one HTML page",
    argument: "[FILE.html]",
    help: "write the session as one HTML page that needs no other file; known secrets are redacted; without FILE: in the state folder",
    when: Availability::Idle,
    run: |context, argument| {
        let is_html = |name: &str| {
            Path::new(name).extension().is_some_and(|end| end == "html" || end == "htm")
        };
        let target = match argument {
            Some(name) if is_html(name) => ExportTarget::File(name.to_owned()),
            Some(name) => ExportTarget::File(format!("{name}.html")),
            None => ExportTarget::Html,
        };
        context.report(ReportRequest::new(Report::Export(target), "share"));
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
