//! `/context`: token usage of the context, by part of a request.

use posse_actors::root_session::SessionHandle;

use crate::commands::{COMMAND, Command, CommandGroup, SessionQuery};
use crate::context::table;
use crate::instruction::Instruction;

pub(super) const CONTEXT: Command = Command {
    name: "context",
    argument: "[--json]",
    help: "show the parts of a request, in tokens",
    group: CommandGroup::Model,
    run: |context, argument| {
        let json = argument == Some("--json");
        let query = SessionQuery::text(move |session| async move { usage(&session, json).await });
        context.query(query.with_instruction(Instruction::Context));
    },
    ..COMMAND
};

async fn usage(session: &SessionHandle, json: bool) -> String {
    match session.context().await {
        Some(used) if json => serde_json::to_string(&used).unwrap_or_default() + "\n",
        Some(used) => format!("{}/compact shortens the history\n", table(&used)),
        None => "The session has ended.\n".to_owned(),
    }
}
