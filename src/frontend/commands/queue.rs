//! `/queue`: lists queued messages, deletes one, changes its text or moves it.

use posse_actors::root_session::SessionHandle;
use posse_base::failure::printable;

use crate::commands::{COMMAND, Choice, Command, SessionQuery, after_word};
use crate::queue::{Queue, QueueEdit};
use crate::session_records::{UNREAD, records};

/// Usage of the changes.
const USAGE: &str = "write /queue, /queue drop N, /queue edit N TEXT or /queue move N M; N and M count your messages\n";

pub(super) const QUEUE: Command = Command {
    name: "queue",
    brief: "list queued messages, edit or delete them",
    argument: "[drop N | edit N TEXT | move N M]",
    help: "list queued messages to edit or delete them; drop, edit, move: change the Nth",
    run: |context, argument| {
        let (word, rest) = argument.and_then(|all| all.split_once(' ')).unwrap_or_default();
        let (number, rest) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
        let edit = match (word, rest.trim()) {
            ("edit", text) if !text.is_empty() => QueueEdit::Text(text.to_owned()),
            ("move", to) => match to.parse() {
                Ok(to) => QueueEdit::MoveTo(to),
                Err(_) => return context.tell(USAGE.to_owned()),
            },
            ("edit", _) => return context.tell(USAGE.to_owned()),
            _ => {
                return match after_word(argument, "drop") {
                    Some(number) => context.withdraw(number),
                    None => context.choose(Choice::QueuedMessage),
                };
            }
        };
        let number = number.to_owned();
        context.query(SessionQuery::text(|session| async move {
            change(&session, &number, &edit).await
        }));
    },
    ..COMMAND
};

/// Changes the message of the user with this number. Returns a text for the user.
async fn change(session: &SessionHandle, number: &str, edit: &QueueEdit) -> String {
    let mut queue = Queue::default();
    if !records(session, |announced| queue.follow(announced.event())).await {
        return UNREAD.to_owned();
    }
    let requeue = queue.own_message(number).and_then(|id| queue.requeue(id, edit));
    let Some(requeue) = requeue else {
        let number = printable(number);
        return format!("No message {number} of yours waits; /queue lists them.\n");
    };
    match session.requeue(requeue.old, requeue.new).await {
        Some(_) => "(changed)\n".to_owned(),
        None => "(too late: it was said already)\n".to_owned(),
    }
}
