//! The end of a conversation: its last prompts and what followed them, also from the sessions of
//! which it is a copy.

use std::collections::VecDeque;
use std::sync::Arc;

use memchr::memmem;
use posse_actors::conversation::{Message, SessionId, StopReason};
use posse_actors::event::{Event, StoredRecord};
use posse_base::failure::Failure;

use crate::commands::unreadable;
use crate::format::Head;
use crate::read::records;
use crate::scan::parse;
use crate::state::{StateDir, StoredSession, Within};
use crate::walk::ReadError;

/// Maximum number of prompts whose records are returned.
const PROMPTS_MAX: usize = 10;

/// Maximum number of records, and of their bytes in the journal; the oldest are left out.
const RECORDS_MAX: usize = 3000;
const BYTES_MAX: usize = 16 << 20;

/// Maximum number of sessions that are read: a copy, its original, and so on.
const SESSIONS_MAX: usize = 32;

/// The last records of a conversation.
#[derive(Debug, Default)]
pub struct LastPrompts {
    /// Records from one of the last prompts on, oldest first. Before the first prompt of a
    /// conversation there may be other records.
    pub records: Vec<StoredRecord>,
    /// Number of prompts before the records.
    pub earlier: usize,
    /// True if records after the first of these prompts were left out, because there are too many.
    pub is_cut: bool,
}

/// Reads the last prompts of the session `id` up to its record `last`, and the records after them.
/// Only lines that are returned, and those of prompts, are parsed. Damage ends a session earlier.
pub fn last_prompts(state: &StateDir, id: &str, last: u64) -> Result<LastPrompts, Failure> {
    let mut end = SessionEnd::default();
    end.read(&state.find(Within::Everywhere, id)?, last, PROMPTS_MAX)?;
    let mut whole = LastPrompts {
        records: std::mem::take(&mut end.records),
        earlier: end.earlier,
        is_cut: end.is_cut,
    };
    let mut prompts = end.prompts;
    for _ in 1..SESSIONS_MAX {
        let Some(origin) = end.origin.take() else { break };
        if prompts >= PROMPTS_MAX || whole.is_cut {
            whole.earlier += prompts_of(&origin.history);
            break;
        }
        end = origin.end(state, PROMPTS_MAX - prompts);
        prompts += end.prompts;
        whole.earlier += end.earlier;
        whole.is_cut = end.is_cut;
        whole.records.splice(..0, std::mem::take(&mut end.records));
    }
    Ok(whole)
}

/// Number of messages of the user in a history.
fn prompts_of(history: &[Arc<Message>]) -> usize {
    history.iter().filter(|message| matches!(&***message, Message::User { .. })).count()
}

/// The session of which another one is a copy, and the history that the copy took over.
struct Original {
    session: SessionId,
    last: u64,
    history: Vec<Arc<Message>>,
    /// The record of the copy that contains the history.
    copied: StoredRecord,
}

impl Original {
    /// The end of the original session. If it cannot be read any more, the history of the copy is
    /// used, which contains messages only.
    fn end(self, state: &StateDir, prompts_max: usize) -> SessionEnd {
        let mut end = SessionEnd::default();
        let read = state
            .find(Within::Everywhere, self.session.as_str())
            .and_then(|found| end.read(&found, self.last, prompts_max));
        if read.is_ok() { end } else { self.messages(prompts_max) }
    }

    fn messages(self, prompts_max: usize) -> SessionEnd {
        let mut end = SessionEnd::default();
        for message in self.history.iter().rev() {
            let event = match &**message {
                Message::User { content } => {
                    end.prompts += 1;
                    Event::UserMessage { content: content.clone(), message_id: None }
                }
                Message::Assistant(said) => Event::ModelReply {
                    turn: 0,
                    message: said.clone(),
                    stop_reason: StopReason::EndTurn,
                    model: None,
                },
                Message::System { .. } | Message::Tool { .. } => continue,
            };
            end.records.push(StoredRecord { event, origin: None, ..self.copied.clone() });
            if end.prompts == prompts_max {
                break;
            }
        }
        end.records.reverse();
        end.earlier = prompts_of(&self.history).saturating_sub(end.prompts);
        end
    }
}

/// The end of one session.
#[derive(Default)]
struct SessionEnd {
    records: Vec<StoredRecord>,
    prompts: usize,
    earlier: usize,
    is_cut: bool,
    /// The session of which this one is a copy, if there is one.
    origin: Option<Original>,
}

impl SessionEnd {
    fn read(
        &mut self,
        found: &StoredSession,
        last: u64,
        prompts_max: usize,
    ) -> Result<(), Failure> {
        let mut lines = LastLines { prompts_max, ..LastLines::default() };
        let read = records(found, &mut |line, head| {
            if head.record > last {
                return Err(std::io::Error::other("it is enough"));
            }
            if let Some(copied) = parsed_if(line, head, found, "\"type\":\"session.forked\"")
                && let Event::SessionForked { parent, parent_record, history, .. } = &copied.event
            {
                self.origin = Some(Original {
                    session: parent.clone(),
                    last: *parent_record,
                    history: history.clone(),
                    copied,
                });
                return Ok(());
            }
            let prompt = parsed_if(line, head, found, "\"type\":\"user.message\"");
            lines.add(line, head, prompt.as_ref().is_some_and(is_prompt));
            Ok(())
        });
        if let Err(ReadError::Journal(error)) = read {
            return Err(unreadable(found, &error));
        }
        (self.prompts, self.earlier, self.is_cut) = (lines.prompts, lines.earlier, lines.is_cut);
        self.records =
            lines.kept.iter().map(|line| parse(&line.text, line.head, &found.id)).collect();
        Ok(())
    }
}

/// Parses the line if it contains `word`.
fn parsed_if(line: &[u8], head: Head, found: &StoredSession, word: &str) -> Option<StoredRecord> {
    memmem::find(line, word.as_bytes()).map(|_| parse(line, head, &found.id))
}

/// Returns `true` for a prompt of the user: a message that was not queued, and no task of a
/// subagent.
fn is_prompt(record: &StoredRecord) -> bool {
    let of_child =
        record.origin.as_ref().is_some_and(|origin| origin.parent_invocation_id.is_some());
    matches!(record.event, Event::UserMessage { message_id: None, .. }) && !of_child
}

/// A line of the journal.
struct JournalLine {
    text: Vec<u8>,
    head: Head,
    is_prompt: bool,
}

/// Lines from one of the last prompts on.
#[derive(Default)]
struct LastLines {
    prompts_max: usize,
    kept: VecDeque<JournalLine>,
    bytes: usize,
    /// Number of prompts in `kept`, or before the lines that were left out because of their size.
    prompts: usize,
    earlier: usize,
    is_cut: bool,
}

impl LastLines {
    fn add(&mut self, line: &[u8], head: Head, is_prompt: bool) {
        self.bytes += line.len();
        self.prompts += usize::from(is_prompt);
        self.kept.push_back(JournalLine { text: line.to_owned(), head, is_prompt });
        while self.prompts > self.prompts_max {
            self.drop_first();
            // The lines up to the next prompt belong to the one that was dropped.
            while self.kept.front().is_some_and(|line| !line.is_prompt) {
                self.drop_first();
            }
            self.is_cut = false;
        }
        while self.kept.len() > RECORDS_MAX || self.bytes > BYTES_MAX && self.kept.len() > 1 {
            self.is_cut = true;
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some(gone) = self.kept.pop_front() else { return };
        self.bytes -= gone.text.len();
        self.prompts -= usize::from(gone.is_prompt);
        self.earlier += usize::from(gone.is_prompt);
    }
}

#[cfg(test)]
mod tests;
