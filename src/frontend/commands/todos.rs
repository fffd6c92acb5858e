//! `/todos`: the task list of the model.

use std::fmt::Write as _;

use posse_actors::event::{Event, TodoItem, todo_progress};
use posse_actors::root_session::SessionHandle;
use posse_base::failure::printable;

use crate::commands::{COMMAND, Command, CommandGroup, SessionQuery};
use crate::session_records::{UNREAD, records};

pub(super) const TASK_LIST: Command = Command {
    name: "todos",
    help: "show the task list of the model",
    group: CommandGroup::Work,
    run: |context, _| {
        context.query(SessionQuery::text(|session| async move { list(&session).await }));
    },
    ..COMMAND
};

/// Text with the latest list of the main agent in the records.
async fn list(session: &SessionHandle) -> String {
    let mut last: Vec<TodoItem> = Vec::new();
    let whole = records(session, |announced| {
        let of_main = announced.origin().is_none_or(|origin| origin.parent_invocation_id.is_none());
        if let Event::TodosUpdated { todos } | Event::SessionForked { todos, .. } =
            announced.event()
            && of_main
        {
            last.clone_from(todos);
        }
    });
    let rest = if whole.await { "" } else { UNREAD };
    if last.is_empty() {
        return format!("The model has no task list.\n{rest}");
    }
    let mut text = printable(&todo_progress(&last)) + "\n";
    for item in &last {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", printable(&item.line()));
    }
    text + rest
}
