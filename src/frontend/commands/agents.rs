//! `/agents`: all agents, and the subagents of this session.

use posse_actors::root_session::SessionHandle;

use crate::Report;
use crate::commands::{COMMAND, Command, CommandGroup, ReportRequest};
use crate::session_records::{UNREAD, records};
use crate::subagents::SubagentTable;

pub(super) const AGENTS: Command = Command {
    name: "agents",
    help: "list all agents, and the subagents of this session",
    group: CommandGroup::Work,
    run: |context, _| {
        let request = ReportRequest::new(Report::Agents, "agents");
        context.report(request.followed_by(|session| async move { subagents(&session).await }));
    },
    ..COMMAND
};

/// Table of the subagents of this conversation, read from the records of the session.
async fn subagents(session: &SessionHandle) -> String {
    let mut workers = SubagentTable::default();
    let whole = records(session, |announced| {
        workers.follow(announced.event(), announced.origin());
    });
    let rest = if whole.await { "" } else { UNREAD };
    format!("\n{}{rest}", workers.table())
}
