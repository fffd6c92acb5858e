//! `/jobs`: lists background jobs, or stops one.

use crate::commands::{Availability, Command, SessionQuery, after_word};

pub(super) const JOBS: Command = Command {
    name: "jobs",
    aliases: &[],
    argument: "[stop ID]",
    help: "list background jobs; stop: stop one",
    when: Availability::Always,
    run: |context, argument| {
        let (jobs, id) = (context.jobs(), after_word(argument, "stop").map(str::to_owned));
        context.query(SessionQuery::text(move |session| async move {
            jobs.asked(id.as_deref(), &session)
        }));
    },
};
