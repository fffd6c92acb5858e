//! `/memory` and `/forget`: reports of agents that later agents of the same name receive.

use posse_actors::outcome::Memories;
use posse_actors::root_session::SessionHandle;
use posse_base::failure::{printable, printable_lines};

use crate::commands::{COMMAND, Command, CommandGroup, SessionQuery};

pub(super) const MEMORY: Command = Command {
    name: "memory",
    brief: "show what agents have reported",
    help: "show what agents have reported; later agents of the same name receive it",
    group: CommandGroup::Work,
    run: |context, _| {
        context.query(SessionQuery::text(
            |session| async move { memories(&session.memories().await) },
        ));
    },
    ..COMMAND
};

pub(super) const FORGET: Command = Command {
    name: "forget",
    brief: "delete the memory of one agent, or of all",
    argument: "[NAME]",
    help: "delete that memory, of one agent or of all",
    group: CommandGroup::Work,
    run: |context, argument| {
        let agent = argument.map(str::to_owned);
        context.query(SessionQuery::text(|session| async move { forget(&session, agent).await }));
    },
    ..COMMAND
};

/// Deletes the memories of the agent with this name, `None`: of all agents. Returns a text with the
/// agents whose memories were deleted, and the remaining memories.
async fn forget(session: &SessionHandle, agent: Option<String>) -> String {
    let before = session.memories().await;
    let left = session.forget(agent.clone()).await;
    let mut gone: Vec<&str> = Vec::new();
    for memory in before.all().iter().filter(|one| !left.all().contains(one)) {
        if !gone.contains(&memory.agent.as_str()) {
            gone.push(&memory.agent);
        }
    }
    let left = if left.all().is_empty() { None } else { Some(memories(&left)) };
    forgotten(&gone, left.as_deref(), agent.as_deref())
}

/// Text of `/forget`. `gone`: agents whose memories were deleted; `left`: the remaining memories,
/// if any; `agent`: the argument of the command.
fn forgotten(gone: &[&str], left: Option<&str>, agent: Option<&str>) -> String {
    let names = printable(&gone.join(", "));
    match (gone.is_empty(), left, agent) {
        (true, _, None) => {
            "There is nothing to delete: no agent has reported anything.\n".to_owned()
        }
        (true, _, Some(agent)) => {
            let agent = printable(agent);
            format!("No agent {agent} has reported anything; /memory lists the reports.\n")
        }
        (false, None, _) => format!("Deleted: everything that agents have reported ({names}).\n"),
        (false, Some(left), _) => {
            format!("Deleted: the reports of {names}. Remaining:\n{left}")
        }
    }
}

fn memories(memories: &Memories) -> String {
    let mut text = String::new();
    for memory in memories.all() {
        let head = format!("{} ({})", memory.agent, memory.provider);
        text.extend([printable(&head).as_str(), "\n"]);
        for line in printable_lines(&memory.text()).lines() {
            text.extend(["  ", line, "\n"]);
        }
    }
    if text.is_empty() {
        text.push_str("No agent has reported anything.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forget_lists_deleted_and_remaining_memories() {
        let none: &[&str] = &[];
        let table = [
            (none, None, None, "There is nothing to delete: no agent has reported anything.\n"),
            (
                none,
                Some("worker (local)\n"),
                Some("x\u{1b}"),
                "No agent x\\u{1b} has reported anything; /memory lists the reports.\n",
            ),
            (
                &["explore", "worker"],
                None,
                None,
                "Deleted: everything that agents have reported (explore, worker).\n",
            ),
            (
                &["explore"],
                Some("worker (local)\n"),
                Some("explore"),
                "Deleted: the reports of explore. Remaining:\nworker (local)\n",
            ),
        ];
        for (gone, left, agent, said) in table {
            assert_eq!(forgotten(gone, left, agent), said);
        }
    }
}
