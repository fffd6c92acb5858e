//! Answers to slash commands that query the running session, as text for every front end.
//!
//! Each query takes as long as the session needs to answer; a front end that draws runs it in a
//! separate task.

use std::fmt::Write as _;
use std::time::Duration;

use posse_actors::event::{Announcement, Event, Grant, Scope};
use posse_actors::outcome::Memories;
use posse_actors::root_session::{SessionHandle, UserCall};
use posse_base::failure::{printable, printable_lines};
use serde_json::json;

use crate::context;
use crate::subagents::SubagentTable;

/// Maximum time for reading the records of a session.
const READ_MAX: Duration = Duration::from_secs(20);

/// Maximum bytes of diffs that are shown; the latest are kept.
const DIFF_BYTES_MAX: usize = 4 << 20;

/// Token usage and cost so far, by model and by agent.
pub async fn cost(session: &SessionHandle) -> String {
    match session.accounts().await {
        Some(accounts) if accounts.total.requests > 0 => accounts.table(printable),
        _ => "No model was used yet.\n".to_owned(),
    }
}

/// Token usage of the context, by part of a request.
pub async fn context(session: &SessionHandle, json: bool) -> String {
    match session.context().await {
        Some(used) if json => serde_json::to_string(&used).unwrap_or_default() + "\n",
        Some(used) => format!("{}/compact shortens the history\n", context::table(&used)),
        None => "The session has ended.\n".to_owned(),
    }
}

/// Compacts the history and returns a summary. `Err`: the reason why nothing was removed.
pub async fn compact(session: &SessionHandle, keep: Option<String>) -> Result<String, String> {
    match session.compact_keeping(keep).await {
        Ok(Some(compacted)) => Ok(context::compact_summary(&compacted)),
        Ok(None) => Err("There is nothing to remove yet.\n".to_owned()),
        Err(error) => Err(format!("{error}\n")),
    }
}

/// Memories that agents have reported.
pub async fn memory(session: &SessionHandle) -> String {
    memories(&session.memories().await)
}

/// Deletes the memories of one agent or of all, and returns a summary of what was deleted and what
/// is left.
pub async fn forget(session: &SessionHandle, agent: Option<String>) -> String {
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

/// Subagents of this conversation.
pub async fn subagents(session: &SessionHandle) -> String {
    let mut workers = SubagentTable::default();
    let whole = records(session, |announced| {
        workers.follow(announced.event(), announced.origin());
    });
    let rest = if whole.await { "" } else { UNREAD };
    workers.table() + rest
}

/// Grants that last until the session ends, and how to revoke them.
pub async fn session_grants(session: &SessionHandle) -> String {
    let mut grants: Vec<Grant> = Vec::new();
    let whole = records(session, |announced| {
        if let Event::PermissionGranted { grant: Some(grant), .. } = announced.event()
            && grant.scope == Scope::Session
            && !grants.contains(grant)
        {
            grants.push(grant.clone());
        }
    });
    let rest = if whole.await { "" } else { UNREAD };
    let mut text = "allowed until this session ends\n".to_owned();
    for Grant { operation, target, .. } in &grants {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {} {}", printable(operation), printable(target));
    }
    text.push_str(if grants.is_empty() {
        "  nothing\n"
    } else {
        "  none of these can be revoked alone: /new starts without them, and so does a session that\n  \
         is resumed elsewhere or in another sandbox\n"
    });
    text + rest
}

/// File changes as diffs, with control characters escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The latest diffs, oldest first.
    pub diffs: Vec<String>,
    /// A note about diffs that are missing; empty if there is none.
    pub remark: String,
}

impl Changes {
    /// The note and all diffs as one text.
    pub fn text(&self) -> String {
        if self.diffs.is_empty() {
            return format!("No file was changed in this conversation.\n{}", self.remark);
        }
        format!("{}{}\n", self.remark, self.diffs.join("\n\n"))
    }
}

/// Every file change of this conversation.
pub async fn changes(session: &SessionHandle) -> Changes {
    let mut diffs: Vec<String> = Vec::new();
    let (mut bytes, mut gone) = (0, 0);
    let whole = records(session, |announced| {
        let Event::ToolCompleted { metadata, .. } = announced.event() else { return };
        let Some(diff) = metadata["diff"].as_str().filter(|diff| !diff.is_empty()) else { return };
        let diff = printable_lines(diff.trim_end());
        bytes += diff.len();
        diffs.push(diff);
        while bytes > DIFF_BYTES_MAX && diffs.len() > 1 {
            bytes -= diffs.remove(0).len();
            gone += 1;
        }
    });
    let unread = if whole.await { "" } else { UNREAD };
    let left_out = match gone {
        0 => String::new(),
        1 => "(1 change before these is in the journal)\n".to_owned(),
        gone => format!("({gone} changes before these are in the journal)\n"),
    };
    Changes { diffs, remark: left_out + unread }
}

/// Note for records that could not be read in time.
const UNREAD: &str = "(not all of the journal could be read in time)\n";

/// Passes all records so far to `follow`. Returns `false` if the time was not enough for all of
/// them.
async fn records(session: &SessionHandle, mut follow: impl FnMut(&Announcement)) -> bool {
    let last = session.last_record();
    if last == 0 {
        return true;
    }
    let mut stored = session.subscribe_after(0);
    let read = async {
        while let Some(announced) = stored.next().await {
            follow(&announced);
            if announced.record().is_some_and(|record| record >= last) {
                return;
            }
        }
    };
    tokio::time::timeout(READ_MAX, read).await.is_ok()
}

/// Builds the `bash` call for a command that the user typed.
pub fn own_call(command: &str) -> UserCall {
    UserCall {
        tool: "bash".to_owned(),
        arguments: json!({ "command": command }).to_string(),
        said: format!(
            "I ran this command myself, beside our conversation:\n\n```\n{command}\n```\n\n\
             What came of it:"
        ),
    }
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
