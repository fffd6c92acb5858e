//! `/skills` and `/skill`: list skills, and run a task with one.

use crate::Report;
use crate::commands::{
    Availability, COMMAND, Command, CommandContext, CommandGroup, ReportRequest,
};

pub(super) const SKILLS: Command = Command {
    name: "skills",
    help: "list skills: instructions for kinds of task",
    group: CommandGroup::Work,
    run: |context, _| list(context),
    ..COMMAND
};

pub(super) const SKILL: Command = Command {
    name: "skill",
    argument: "NAME [TASK]",
    help: "run a task with a skill",
    group: CommandGroup::Work,
    when: Availability::Idle,
    run: |context, argument| match argument {
        Some(argument) => {
            let (name, task) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
            context.run_skill(name, task.trim());
        }
        None => list(context),
    },
    ..COMMAND
};

fn list(context: &mut dyn CommandContext) {
    context.report(ReportRequest::list(Report::Skills, "skills"));
}
