//! Reads the records of the running session for commands such as `/diff`.

use std::time::Duration;

use posse_actors::event::{Announcement, Event};
use posse_actors::root_session::SessionHandle;
use posse_base::failure::printable_lines;

/// Maximum time for reading the records of a session.
const READ_MAX: Duration = Duration::from_secs(20);

/// Maximum bytes of all diffs together, unless the latest alone is longer; the oldest diffs are
/// left out.
const DIFF_BYTES_MAX: usize = 4 << 20;

/// File changes as diffs, with control characters escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The latest diffs, oldest first.
    pub diffs: Vec<String>,
    /// A note about diffs that are missing or may be missing, with a newline; otherwise empty.
    pub remark: String,
}

impl Changes {
    /// The note and all diffs as one text. If there is no diff, a sentence says so.
    pub fn text(&self) -> String {
        if self.diffs.is_empty() {
            return format!("No file was changed in this conversation.\n{}", self.remark);
        }
        format!("{}{}\n", self.remark, self.diffs.join("\n\n"))
    }
}

/// Reads the diffs of successful tool calls, also those of subagents, from the records of
/// `session`. Changes by commands have no diffs. Waits at most 20 seconds; the note tells if that
/// was too short.
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
pub(crate) const UNREAD: &str = "(not all of the journal could be read in time)\n";

/// Reads all records that exist now and calls `follow` for each. Returns `false` if [`READ_MAX`]
/// passed before all of them were read; `true` also if the session ended the subscription before.
pub(crate) async fn records(
    session: &SessionHandle,
    mut follow: impl FnMut(&Announcement),
) -> bool {
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
