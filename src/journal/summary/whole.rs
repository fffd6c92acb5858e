//! Reads a whole journal for a list of sessions: verifies it and adds up its cost.

use std::path::Path;

use memchr::memmem;
use posse_actors::event::StoredRecord;
use posse_actors::ledger::Accounts;

use crate::recovery::recover;
use crate::scan::parse;
use crate::session_state::SessionState;
use crate::summary::SessionSummary;
use crate::verify::{Problem, empty_journal};
use crate::walk::{start_of, walk};

/// Beginning of the JSON member with the type of a record.
const TYPE: &[u8] = b"\"type\":\"";

/// Number of bytes at the beginning of a line that are searched for the type. Only the members of
/// the head and the session id come before it.
const TYPE_WITHIN: usize = 1024;

/// Type of a model reply, with the closing quotation mark.
const REPLY: &[u8] = b"model.text\"";

/// Beginning of a JSON member that the origin of a subagent has.
const PARENT: &[u8] = b"\"parentInvocationId\":";

/// Prefixes of the record types that affect the cost.
const COUNTED: [&[u8]; 5] =
    [b"model.request", b"model.usage", b"budget.", b"session.resumed", b"agent.invocation."];

impl SessionSummary {
    /// Sets the values that need the whole journal: the cost, the number of replies if an end was
    /// recorded, and the state if the journal is damaged, empty or of a later version. Changes
    /// nothing if the journal cannot be read.
    pub(super) fn read_whole(&mut self, dir: &Path) {
        let mut accounts = Accounts::default();
        let mut replies = 0_u32;
        let walked = walk(dir, start_of(&self.id), &mut |line, head, _| {
            if counts(line) {
                accounts.push(&parse(line, head, &self.id));
            }
            replies += u32::from(is_reply(line, || parse(line, head, &self.id)));
            Ok(())
        });
        let Ok(walked) = walked else { return };
        let problem = Problem::of(&walked).filter(|problem| !problem.torn_tail);
        let gone = || empty_journal(dir, &walked).ok().flatten();
        let problem = problem.or_else(gone);
        if !matches!(self.state, SessionState::Finished) {
            accounts.settle();
        }
        if let Some(problem) = &problem {
            self.state = SessionState::of_problem(problem);
            accounts.add_recovered(&recover(dir, &walked, &accounts, true));
        }
        // An end counts only since the last change of model, agent or provider.
        self.turns = self.turns.map(|last| last.max(replies));
        if accounts.total.requests > 0 {
            self.cost_nano_usd = accounts.total.known_cost();
            self.unpriced_requests = accounts.total.unpriced;
        }
    }
}

/// Returns true if the record in `line` affects the cost.
fn counts(line: &[u8]) -> bool {
    let kind = kind_of(line);
    COUNTED.iter().any(|counted| kind.starts_with(counted))
}

/// Returns true if `line` is a model reply of the main agent. `record`, which parses the line, is
/// called only if the line of a reply has a member with the name [`PARENT`]: the origin comes after
/// the message, which can have members of any name.
fn is_reply(line: &[u8], record: impl FnOnce() -> StoredRecord) -> bool {
    if !kind_of(line).starts_with(REPLY) {
        return false;
    }
    let is_child = || record().origin.is_some_and(|origin| origin.parent_invocation_id.is_some());
    memmem::find(line, PARENT).is_none() || !is_child()
}

/// Returns the beginning of a line from the value of the member `type` on; empty without a type.
fn kind_of(line: &[u8]) -> &[u8] {
    let beginning = &line[..line.len().min(TYPE_WITHIN)];
    memmem::find(beginning, TYPE).map_or(&[], |at| &beginning[at + TYPE.len()..])
}
