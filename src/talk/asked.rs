//! What a person asks of the session that goes on, in words: the same in every front end.
//!
//! Nothing here waits longer than the session takes to answer; whoever draws asks beside.

use std::fmt::Write as _;
use std::time::Duration;

use posse_actors::delegation::Memories;
use posse_actors::event::{Announcement, Event, Grant, Scope};
use posse_actors::root_session::{SessionHandle, UserCall};
use serde_json::json;

use crate::failure::{printable, printable_lines};
use crate::talk::context;
use crate::talk::workers::Workers;

/// How long the records of a session are read for an answer.
const READ_MAX: Duration = Duration::from_secs(20);

/// Bytes of changes that are shown, the last ones.
const DIFF_BYTES_MAX: usize = 4 << 20;

/// Tokens and money so far, by model and by agent.
pub(crate) async fn cost(session: &SessionHandle) -> String {
    match session.accounts().await {
        Some(accounts) if accounts.total.requests > 0 => accounts.table(printable),
        _ => "No model was asked for anything yet.\n".to_owned(),
    }
}

/// What a request is made of.
pub(crate) async fn context(session: &SessionHandle, json: bool) -> String {
    match session.context().await {
        Some(used) if json => serde_json::to_string(&used).unwrap_or_default() + "\n",
        Some(used) => format!("{}/compact makes the history shorter\n", context::table(&used)),
        None => "The session has ended.\n".to_owned(),
    }
}

/// Makes the history shorter; what became of it. `Err`: why it stays as it is.
pub(crate) async fn compact(
    session: &SessionHandle,
    keep: Option<String>,
) -> Result<String, String> {
    match session.compact_keeping(keep).await {
        Ok(Some(compacted)) => Ok(context::made_shorter(&compacted)),
        Ok(None) => Err("There is nothing to remove yet.\n".to_owned()),
        Err(error) => Err(format!("{error}\n")),
    }
}

/// What agents have reported.
pub(crate) async fn memory(session: &SessionHandle) -> String {
    memories(&session.memories().await)
}

/// Forgets that, of one agent or of all; what that was, and what is left.
pub(crate) async fn forget(session: &SessionHandle, agent: Option<String>) -> String {
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

/// `gone`: the agents. `left`: what is left, in words, if something is. `agent`: which was meant.
fn forgotten(gone: &[&str], left: Option<&str>, agent: Option<&str>) -> String {
    let names = printable(&gone.join(", "));
    match (gone.is_empty(), left, agent) {
        (true, _, None) => {
            "There is nothing to forget: no agent has reported anything.\n".to_owned()
        }
        (true, _, Some(agent)) => {
            let agent = printable(agent);
            format!("No agent {agent} has reported anything; /memory shows who has.\n")
        }
        (false, None, _) => format!("Forgotten: all that agents have reported ({names}).\n"),
        (false, Some(left), _) => {
            format!("Forgotten: what {names} has reported. What is left:\n{left}")
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

/// Agents that worked for others in this conversation.
pub(crate) async fn workers(session: &SessionHandle) -> String {
    let mut workers = Workers::default();
    let whole = records(session, |announced| {
        workers.follow(announced.event(), announced.origin());
    });
    let rest = if whole.await { "" } else { UNREAD };
    workers.table() + rest
}

/// What is allowed until the session ends, and how that is taken back.
pub(crate) async fn session_grants(session: &SessionHandle) -> String {
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
        "  none of these can be taken back alone: /new begins without them, and a session that\n  \
         goes on elsewhere or in another sandbox does so, too\n"
    });
    text + rest
}

/// Changes of files, each as a diff that cannot draw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The last ones, oldest first.
    pub(crate) diffs: Vec<String>,
    /// What else is to be known, if something is.
    pub(crate) remark: String,
}

impl Changes {
    /// All of them, one below the other.
    pub(crate) fn text(&self) -> String {
        if self.diffs.is_empty() {
            return format!("No file was changed in this conversation.\n{}", self.remark);
        }
        format!("{}{}\n", self.remark, self.diffs.join("\n\n"))
    }
}

/// Every change of a file in this conversation.
pub(crate) async fn changes(session: &SessionHandle) -> Changes {
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

/// Said where the records could not be read to their end in time.
const UNREAD: &str = "(not all of the journal could be read in time)\n";

/// Hands all records so far to `follow`. `false`: there was no time for all of them.
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

/// A command of the user's own, as a call.
pub(crate) fn own_call(command: &str) -> UserCall {
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
    fn what_is_forgotten_is_said() {
        let none: &[&str] = &[];
        let table = [
            (none, None, None, "There is nothing to forget: no agent has reported anything.\n"),
            (
                none,
                Some("worker (local)\n"),
                Some("x\u{1b}"),
                "No agent x\\u{1b} has reported anything; /memory shows who has.\n",
            ),
            (
                &["explore", "worker"],
                None,
                None,
                "Forgotten: all that agents have reported (explore, worker).\n",
            ),
            (
                &["explore"],
                Some("worker (local)\n"),
                Some("explore"),
                "Forgotten: what explore has reported. What is left:\nworker (local)\n",
            ),
        ];
        for (gone, left, agent, said) in table {
            assert_eq!(forgotten(gone, left, agent), said);
        }
    }
}
