//! `/jobs`: lists background jobs, or stops one.

use crate::commands::{COMMAND, Command, CommandGroup, SessionQuery, after_word};
use crate::jobs::Jobs;

pub(super) const JOBS: Command = Command {
    name: "jobs",
    argument: "[stop ID]",
    help: "list background jobs; stop: stop one",
    group: CommandGroup::Work,
    run: |context, argument| match after_word(argument, "stop") {
        Some(id) => {
            let query = asked(context.jobs(), Some(id.to_owned()));
            context.query(query);
        }
        None => context.list_jobs(),
    },
    ..COMMAND
};

/// Query that lists `jobs`, or stops the one with this id.
pub(super) fn asked(jobs: Jobs, id: Option<String>) -> SessionQuery {
    SessionQuery::text(move |session| async move { jobs.asked(id.as_deref(), &session) })
}
