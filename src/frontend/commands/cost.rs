//! `/cost`: token usage and cost so far, by model and by agent.

use posse_actors::root_session::SessionHandle;
use posse_base::failure::printable;

use crate::commands::{COMMAND, Command, CommandGroup, SessionQuery};

pub(super) const COST: Command = Command {
    name: "cost",
    aliases: &["usage"],
    help: "show tokens and cost so far, by model and by agent",
    group: CommandGroup::Model,
    run: |context, _| {
        context.query(SessionQuery::text(|session| async move { cost(&session).await }));
    },
    ..COMMAND
};

async fn cost(session: &SessionHandle) -> String {
    match session.accounts().await {
        Some(accounts) if accounts.total.requests > 0 => accounts.table(printable),
        _ => "No model was used yet.\n".to_owned(),
    }
}
