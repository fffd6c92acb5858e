//! `/compact`: shortens the history.

use posse_actors::root_session::SessionHandle;

use crate::commands::{Availability, COMMAND, Command, CommandGroup, QueryAnswer, SessionQuery};
use crate::context;
use crate::instruction::Instruction;

pub(super) const COMPACT: Command = Command {
    name: "compact",
    brief: "shorten the history",
    argument: "[WHAT]",
    help: "shorten the history; WHAT is kept",
    group: CommandGroup::Model,
    when: Availability::Idle,
    run: |context, argument| {
        let keep = argument.map(str::to_owned);
        let instruction = Instruction::Compact(keep.clone());
        let query = SessionQuery::new(|session| async move { compact(&session, keep).await });
        context.query(query.with_instruction(instruction));
    },
    ..COMMAND
};

/// Compacts the history and returns a summary for the user; an event announces the compaction as
/// well. If nothing, or too little, can be removed or the session refuses, returns a text about that. `keep`:
/// subject that the summary of the removed messages must preserve; `None`: no preference.
async fn compact(session: &SessionHandle, keep: Option<String>) -> QueryAnswer {
    match session.compact_keeping(keep).await {
        Ok(Some(compacted)) => QueryAnswer::Announced(context::compact_summary(&compacted)),
        Ok(None) => QueryAnswer::Text(format!("{}\n", context::NOTHING_TO_COMPACT)),
        Err(error) => QueryAnswer::Text(format!("{error}\n")),
    }
}
