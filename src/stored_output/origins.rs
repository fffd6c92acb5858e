//! Reads the journals of the sessions from which a session was forked: up to the fork, and without
//! writing.

use std::collections::VecDeque;

use posse_actors::event::Branch;

use crate::failure::printable;
use crate::journal::state::{StoredSession, Within};
use crate::journal::{self, StateDir};

use super::{
    BYTES_MAX, HistoryPage, append_event, branched, copied_outcome, is_main, outcome, write_message,
};

/// Maximum number of sessions that are followed in a chain of forks.
const ORIGINS_MAX: usize = 32;

/// Access to the journals of other sessions in the state directory.
#[derive(Debug, Clone)]
pub(super) struct Origins(pub(super) StateDir);

impl Origins {
    /// Runs `read` on a blocking thread and returns its result.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Origins) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let origins = self.clone();
        let done = crate::threads::run(move || read(&origins)).await;
        done.unwrap_or_else(|_| Err("reading the sessions crashed".to_owned()))
    }

    /// Finds the output of `call` in the sessions before a fork, from `branch` backwards. `copied`
    /// is the output in the history that the fork inherited: it is returned if it is complete, or
    /// if no session contains the call.
    pub(super) fn returned_before(
        &self,
        mut branch: Branch,
        call: &str,
        mut copied: Option<String>,
    ) -> Result<Option<String>, String> {
        for _ in 0..ORIGINS_MAX {
            // A complete copy needs no other session.
            if copied.as_ref().is_some_and(|text| !is_placeholder(text, call)) {
                return Ok(copied);
            }
            let found = self.find(&branch)?;
            // Lines without the call's id are skipped.
            let wanted = |line: &[u8]| {
                contains(line, call.as_bytes()) || contains(line, b"\"session.forked\"")
            };
            let (mut before, mut last) = (None, None);
            let read = journal::until(&found, branch.record, &wanted, &mut |record| {
                if let Some((at, history)) = branched(&record.event) {
                    (before, copied) = (Some(at), copied_outcome(history, call));
                }
                last = outcome(&record.event, call).or(last.take());
            });
            let problem = read.map_err(|failure| unreadable_note(&branch, &failure.what))?;
            match (last, before, problem) {
                (Some(text), ..) => return Ok(Some(text)),
                (None, _, Some(problem)) => return Err(unreadable_note(&branch, &problem)),
                (None, Some(before), None) => branch = before,
                (None, None, None) => return Ok(copied),
            }
        }
        Err(too_many())
    }

    /// Formats the messages before a fork, from `branch` backwards through all original sessions:
    /// about the last `room` bytes.
    pub(super) fn messages_before(&self, branch: Branch, room: usize) -> Result<String, String> {
        let mut text = String::new();
        let mut next = Some((branch, room));
        for _ in 0..ORIGINS_MAX {
            let Some((branch, room)) = next.take() else { return Ok(text) };
            let end = branch.record.saturating_add(1);
            if room == 0 {
                let session = Some(branch.session.as_str().to_owned());
                return Ok(HistoryPage { session, end }.pointer() + &text);
            }
            let told = match self.messages(&branch, end, room) {
                Ok(told) => told,
                Err(why) if text.is_empty() => return Err(why),
                Err(why) => return Ok(format!("({why})\n{text}")),
            };
            next = told.before.map(|before| (before, room.saturating_sub(told.text.len())));
            text = told.text + &text;
        }
        Ok(format!("({})\n{text}", too_many()))
    }

    /// Formats the messages of the original session `session` before record `end`: at most about
    /// one page. The search for that session begins at the fork `branch`; it is an error if the
    /// chain of forks does not contain the session.
    pub(super) fn page_of(
        &self,
        mut branch: Branch,
        session: &str,
        end: u64,
    ) -> Result<String, String> {
        for _ in 0..ORIGINS_MAX {
            if branch.session.as_str() == session {
                let end = end.min(branch.record.saturating_add(1));
                let told = self.messages(&branch, end, BYTES_MAX)?;
                let rest = BYTES_MAX.saturating_sub(told.text.len());
                let before = told
                    .before
                    .map_or(Ok(String::new()), |before| self.messages_before(before, rest));
                return Ok(before.unwrap_or_else(|why| format!("({why})\n")) + &told.text);
            }
            let found = self.find(&branch)?;
            let mut before = None;
            let wanted = |line: &[u8]| contains(line, b"\"session.forked\"");
            let read = journal::until(&found, branch.record, &wanted, &mut |record| {
                before = branched(&record.event).map(|(at, _)| at).or(before.take());
            });
            read.map_err(|failure| unreadable_note(&branch, &failure.what))?;
            let name = printable(session);
            branch = before
                .ok_or_else(|| format!("this session did not branch off from session {name}"))?;
        }
        Err(too_many())
    }

    /// Formats the messages of the session of `branch` before record `end`, and not after the fork:
    /// about the last `room` bytes.
    fn messages(&self, branch: &Branch, end: u64, room: usize) -> Result<SessionHistory, String> {
        let found = self.find(branch)?;
        let mut pieces: VecDeque<(u64, String)> = VecDeque::new();
        let (mut bytes, mut first) = (0, 1);
        let (mut before, mut copied) = (None, String::new());
        let last = end.saturating_sub(1).min(branch.record);
        let read = journal::until(&found, last, &|_| true, &mut |record| {
            if !is_main(record.origin.as_deref()) {
                return;
            }
            let mut piece = String::new();
            if let Some((at, history)) = branched(&record.event) {
                before = Some(at);
                for message in history {
                    write_message(message, &mut copied);
                }
                return;
            }
            append_event(&record.event, &mut piece);
            if !piece.is_empty() {
                bytes += piece.len();
                pieces.push_back((record.record, piece));
            }
            // A page contains at least one message, so that paging makes progress.
            while bytes > room && (pieces.len() > 1 || room < BYTES_MAX) {
                let Some((number, gone)) = pieces.pop_front() else { break };
                (bytes, first) = (bytes - gone.len(), number + 1);
            }
        });
        let problem = read.map_err(|failure| unreadable_note(branch, &failure.what))?;
        let mut text = String::with_capacity(bytes + 128);
        if first > 1 {
            let session = Some(branch.session.as_str().to_owned());
            text.push_str(&HistoryPage { session, end: first }.pointer());
            before = None;
        } else if let Some(at) = &before
            && let Err(why) = self.find(at)
        {
            text.extend(["(", &why, "; this is left of it:)\n", &copied]);
            before = None;
        }
        text.extend(pieces.into_iter().map(|(_, piece)| piece));
        if let Some(problem) = problem {
            text.extend(["(", &unreadable_note(branch, &problem), ")\n"]);
        }
        Ok(SessionHistory { text, before })
    }

    fn find(&self, branch: &Branch) -> Result<StoredSession, String> {
        let id = branch.session.as_str();
        let found = self.0.find(Within::Everywhere, id).ok();
        let found = found.filter(|found| found.id == id && journal::has_begun(&found.dir));
        found.ok_or_else(|| {
            let id = printable(id);
            format!("it is in session {id}, from which this one branched off, and that is gone")
        })
    }
}

/// Messages of one session as text. `before` is the fork at which earlier messages continue in
/// another session; `None` if there are none to read.
struct SessionHistory {
    text: String,
    before: Option<Branch>,
}

/// Returns true if `text` is only the reference with which compaction replaced the output of
/// `call`.
fn is_placeholder(text: &str, call: &str) -> bool {
    text.starts_with('[') && text.ends_with(&format!("read_file output:{call}]"))
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len().max(1)).any(|window| window == part)
}

fn unreadable_note(branch: &Branch, why: &str) -> String {
    let id = printable(branch.session.as_str());
    format!("session {id}, from which this one branched off, cannot be read: {}", printable(why))
}

fn too_many() -> String {
    format!("more than {ORIGINS_MAX} sessions branched off from one another")
}
