//! Parts of a session that a replay does not execute, so that its result does not claim them.

use std::collections::HashSet;

use posse_actors::event::{Event, StoredRecord};
use serde::Serialize;

use crate::replaying::steps;

/// Numbers of recorded events that were not replayed. All are 0 if the whole session was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotReplayed {
    /// Subagents. Their results are those of the journal.
    pub(crate) subagents: usize,
    /// Model replies of subagents.
    pub(crate) replies: usize,
    /// Results of calls of subagents.
    pub(crate) results: usize,
    /// Compactions. The requests after one are not compared with the recorded ones.
    pub(crate) compactions: usize,
    /// Steps of the main agent after a point that a replay cannot reproduce, up to the end of their
    /// run.
    pub(crate) steps: usize,
}

impl NotReplayed {
    /// Counts the events in the records of a session.
    pub(crate) fn of(records: &[StoredRecord]) -> NotReplayed {
        let mut found = NotReplayed { steps: steps::skipped(records), ..NotReplayed::default() };
        let mut subagents = HashSet::new();
        for record in records {
            let child = record.origin.as_ref().filter(|of| of.parent_invocation_id.is_some());
            match (&record.event, child) {
                (Event::InvocationStarted { .. }, Some(child)) => {
                    subagents.insert(&child.invocation_id);
                }
                (Event::ModelReply { .. }, Some(_)) => found.replies += 1,
                (
                    Event::ToolCompleted { .. }
                    | Event::ToolFailed { .. }
                    | Event::ToolOutcomeUnknown { .. },
                    Some(_),
                ) => found.results += 1,
                (Event::ContextCompacted { .. }, None) => found.compactions += 1,
                _ => (),
            }
        }
        found.subagents = subagents.len();
        found
    }

    /// Returns true if the whole session was replayed.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == NotReplayed::default()
    }

    /// Lists what was not replayed: `2 subagents (5 replies, 3 results), 1 compaction`.
    pub(crate) fn text(&self) -> String {
        let counted = super::counted;
        let subagents = format!(
            "{} ({}, {})",
            counted(self.subagents, "subagent", "subagents"),
            counted(self.replies, "reply", "replies"),
            counted(self.results, "result", "results"),
        );
        let parts = [
            (self.subagents, subagents),
            (
                self.compactions,
                format!(
                    "{}, after which requests are not compared",
                    counted(self.compactions, "compaction", "compactions")
                ),
            ),
            (
                self.steps,
                format!(
                    "{} after a point that a replay cannot reproduce",
                    counted(self.steps, "step", "steps")
                ),
            ),
        ];
        let there = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text);
        there.collect::<Vec<_>>().join("; ")
    }
}
