//! `/jobs`: lists background jobs, or stops one.

use crate::commands::{COMMAND, Command, CommandGroup, SessionQuery, after_word};

pub(super) const JOBS: Command = Command {
    name: "jobs",
    argument: "[stop ID]",
    help: "list background jobs; stop: stop one",
    group: CommandGroup::Work,
    run: |context, argument| {
        let (jobs, id) = (context.jobs(), after_word(argument, "stop").map(str::to_owned));
        context.query(SessionQuery::text(move |session| async move {
            jobs.asked(id.as_deref(), &session)
        }));
    },
    ..COMMAND
};
