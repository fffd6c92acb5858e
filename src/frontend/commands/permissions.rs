//! `/permissions`: rules, grants, and how to revoke them.

use std::fmt::Write as _;

use posse_actors::event::{Event, Grant, Scope};
use posse_actors::root_session::SessionHandle;
use posse_base::failure::printable;

use crate::Report;
use crate::commands::{COMMAND, Command, CommandGroup, ReportRequest};
use crate::session_records::{UNREAD, records};
use crate::subagents::granted_agent;

pub(super) const PERMISSIONS: Command = Command {
    name: "permissions",
    brief: "show how permissions are decided, and grants",
    help: "show how permissions are decided, current grants, and how to revoke them",
    group: CommandGroup::Permissions,
    run: |context, _| {
        let request = ReportRequest::new(Report::Permissions, "permissions");
        let grants = request.followed_by(|session| async move {
            let mode = session.permission_mode();
            let text = format!("permission mode {mode}: {}\n\n", mode.about());
            text + &session_grants(&session).await
        });
        context.report(grants);
    },
    ..COMMAND
};

/// Text with the grants of the scopes session and agent in the records, and how to get rid of them. Notes if not
/// all records could be read in time.
async fn session_grants(session: &SessionHandle) -> String {
    let mut grants: Vec<Grant> = Vec::new();
    let whole = records(session, |announced| {
        if let Event::PermissionGranted { grant: Some(grant), .. } = announced.event()
            && matches!(grant.scope, Scope::Agent | Scope::Session)
            && !grants.contains(grant)
        {
            grants.push(grant.clone());
        }
    });
    let rest = if whole.await { "" } else { UNREAD };
    let mut text = "allowed until this session ends\n".to_owned();
    for Grant { operation, target, agent, .. } in &grants {
        let only = agent.as_ref().map(|agent| format!(" (for {} alone)", granted_agent(agent)));
        let only = printable(&only.unwrap_or_default());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {} {}{only}", printable(operation), printable(target));
    }
    text.push_str(if grants.is_empty() {
        "  nothing\n"
    } else {
        "  none of these can be revoked alone: /new starts without them, and so does a session that\n  \
         is resumed elsewhere or in another sandbox\n"
    });
    text + rest
}
