//! Reads the records of the running session for commands such as `/diff`.

use std::time::Duration;

use posse_actors::event::{Announcement, Event};
use posse_actors::root_session::SessionHandle;
use posse_base::failure::{printable, printable_lines};

/// Maximum time for reading the records of a session.
const READ_MAX: Duration = Duration::from_secs(20);

/// Maximum bytes of all diffs together, unless the latest alone is longer; the oldest diffs are
/// left out.
const DIFF_BYTES_MAX: usize = 4 << 20;

/// File changes as diffs, with control characters escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The diffs: one for each file that differs, or the latest single edits, oldest first.
    pub diffs: Vec<FileDiff>,
    /// A note about diffs that are missing or may be missing, with a newline; otherwise empty.
    pub remark: String,
    /// True if the diffs compare the present files with those at the start of the conversation;
    /// false if they are single edits.
    pub is_net: bool,
}

/// Diff of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileDiff {
    /// Heading: kind of the change, path, and the numbers of added and removed lines.
    pub title: String,
    /// The unified diff, or a sentence in place of it.
    pub text: String,
}

impl FileDiff {
    /// The diff `text` of an edit, with the path of its file as the heading.
    fn of_edit(text: String) -> FileDiff {
        let file = text.lines().find_map(|line| line.strip_prefix("+++ "));
        let title = file.map_or("a change", |file| file.strip_prefix("b/").unwrap_or(file));
        FileDiff { title: format!("change {title}"), text }
    }
}

impl Changes {
    /// The note and all diffs as one text. If there is no diff, a sentence says so.
    pub fn text(&self) -> String {
        let Changes { diffs, remark, is_net } = self;
        match (diffs.is_empty(), is_net) {
            (true, true) => {
                format!("No file differs from the start of this conversation.\n{remark}")
            }
            (true, false) => format!("No file was changed in this conversation.\n{remark}"),
            (false, true) => {
                let titles: Vec<&str> = diffs.iter().map(|diff| diff.title.as_str()).collect();
                format!("{remark}{}\n\n{}\n", titles.join("\n"), self.texts())
            }
            (false, false) => format!("{remark}{}\n", self.texts()),
        }
    }

    fn texts(&self) -> String {
        let texts: Vec<&str> = self.diffs.iter().map(|diff| diff.text.as_str()).collect();
        texts.join("\n\n")
    }
}

/// The differences from the start of the conversation, if they are known. Otherwise the single edits
/// of `session`, with a note that says why.
pub async fn changes(session: &SessionHandle, net: Result<Changes, String>) -> Changes {
    let why = match net {
        Ok(changes) => return changes,
        Err(why) => why,
    };
    let mut edits = edits(session).await;
    let note = format!(
        "(single edits of file tools, without what commands changed, because the files cannot be \
         compared with the start of the conversation: {})\n",
        printable(&why)
    );
    edits.remark.insert_str(0, &note);
    edits
}

/// Reads the diffs of successful tool calls, also those of subagents, from the records of
/// `session`. Changes by commands have no diffs. Waits at most 20 seconds; the note tells if that
/// was too short.
async fn edits(session: &SessionHandle) -> Changes {
    let mut diffs: Vec<FileDiff> = Vec::new();
    let (mut bytes, mut gone) = (0, 0);
    let whole = records(session, |announced| {
        let Event::ToolCompleted { metadata, .. } = announced.event() else { return };
        let Some(diff) = metadata["diff"].as_str().filter(|diff| !diff.is_empty()) else { return };
        let diff = printable_lines(diff.trim_end());
        bytes += diff.len();
        diffs.push(FileDiff::of_edit(diff));
        while bytes > DIFF_BYTES_MAX && diffs.len() > 1 {
            bytes -= diffs.remove(0).text.len();
            gone += 1;
        }
    });
    let unread = if whole.await { "" } else { UNREAD };
    let left_out = match gone {
        0 => String::new(),
        1 => "(1 change before these is in the journal)\n".to_owned(),
        gone => format!("({gone} changes before these are in the journal)\n"),
    };
    Changes { diffs, remark: left_out + unread, is_net: false }
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
