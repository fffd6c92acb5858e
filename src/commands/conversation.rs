//! The records of a conversation: those of a session and of the sessions of which it is a copy; and
//! those of its other branches, which have changed the same files.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use posse_actors::event::{Branch, Event, StoredRecord};

use crate::commands::resume::of_project;
use crate::commands::tree::{SESSIONS_MAX, related};
use crate::failure::Failure;
use crate::journal::state::StoredSession;
use crate::journal::{self, StateDir};

/// Maximum time until the first record of a session is stored, and the pause between two looks.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// A session of a conversation.
#[derive(Debug, Clone)]
pub(super) struct ConversationPart {
    /// The stored session.
    pub(super) session: StoredSession,
    /// Its records.
    pub(super) records: Vec<StoredRecord>,
    /// Number of the last record that the next part has copied; the maximum for the last part.
    pub(super) last_copied: u64,
}

/// A session, the sessions of which it is a copy, and its other branches.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    /// The sessions whose prompts belong to the conversation, the original first.
    pub(super) parts: Vec<ConversationPart>,
    /// Other branches.
    pub(super) branches: Vec<(StoredSession, Vec<StoredRecord>)>,
}

impl Conversation {
    /// Reads the session `id`. An original that is no longer stored or is damaged is left out, with
    /// those before it. `cwd`: working directory of the session.
    pub(super) fn read(state: &StateDir, cwd: &Path, id: &str) -> Result<Conversation, Failure> {
        let (session, records) = begun_session(state, id)?;
        let mut parts = vec![ConversationPart { session, records, last_copied: u64::MAX }];
        while parts.len() < SESSIONS_MAX
            && let Some(branch) = parts.last().and_then(|part| branch_of(&part.records))
            && parts.iter().all(|part| part.session.id != branch.session.as_str())
            && let Ok((session, records)) = journal::whole_session(state, branch.session.as_str())
        {
            parts.push(ConversationPart { session, records, last_copied: branch.record });
        }
        parts.reverse();
        let stored = of_project(state, cwd).unwrap_or_default();
        let related = related(&stored, id);
        let is_part = |id: &str| parts.iter().any(|part| part.session.id == id);
        let others = stored.iter().filter(|one| related.contains(&one.id) && !is_part(&one.id));
        let others = others.take(SESSIONS_MAX);
        let branches = others.filter_map(|one| journal::whole_session(state, &one.id).ok());
        let branches = branches.collect();
        Ok(Conversation { parts, branches })
    }

    /// Records that tell what has happened to the files, in the order of time: all of the session,
    /// and those of the others until it was last opened. What they change later is not a part of
    /// the conversation.
    pub(super) fn timeline(&self) -> Vec<(&StoredSession, &StoredRecord)> {
        let Some((current, originals)) = self.parts.split_last() else { return Vec::new() };
        let opened = current.records.iter().rev().find_map(|record| {
            let is_start =
                matches!(record.event, Event::SessionStarted { .. } | Event::SessionResumed { .. });
            is_start.then_some(record.ts)
        });
        let opened = opened.unwrap_or_default();
        let originals = originals.iter().map(|part| (&part.session, &part.records));
        let branches = self.branches.iter().map(|(session, records)| (session, records));
        let others = originals.chain(branches).map(|others| (others, opened));
        let all = others.chain([((&current.session, &current.records), u64::MAX)]);
        let mut timeline = Vec::new();
        for ((session, records), until) in all {
            // The clock can be set back; the records of a session keep their order.
            let mut time = 0;
            for record in records {
                time = record.ts.max(time);
                if time <= until {
                    timeline.push((time, session, record));
                }
            }
        }
        timeline.sort_by_key(|(time, ..)| *time);
        timeline.into_iter().map(|(_, session, record)| (session, record)).collect()
    }
}

/// Reads the records of a session. If it has just begun, its first record is waited for, which names
/// the original of a copy.
fn begun_session(
    state: &StateDir,
    id: &str,
) -> Result<(StoredSession, Vec<StoredRecord>), Failure> {
    let start = Instant::now();
    loop {
        let read = journal::whole_session(state, id)?;
        if !read.1.is_empty() || start.elapsed() > BEGINS_WITHIN {
            return Ok(read);
        }
        thread::sleep(PAUSE);
    }
}

/// Number of prompts that the copy with these records has taken over from its original. `None` if the
/// session is no copy, or its records do not say so.
pub(super) fn copied_prompts(records: &[StoredRecord]) -> Option<usize> {
    let prompts = records.iter().find_map(|record| match &record.event {
        Event::SessionForked { prompts, .. } => Some(*prompts),
        _ => None,
    });
    prompts.and_then(|prompts| usize::try_from(prompts).ok()).filter(|prompts| *prompts > 0)
}

/// The original of a session with these records; `None` if it is no copy.
fn branch_of(records: &[StoredRecord]) -> Option<Branch> {
    // A change of the model records another start, without the original.
    let start = records.iter().find_map(|record| match &record.event {
        Event::SessionStarted { forked_from, .. } => Some(forked_from.clone()),
        _ => None,
    });
    start.flatten()
}
