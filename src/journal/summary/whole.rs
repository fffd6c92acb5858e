//! Reads a whole journal for a list of sessions: verifies it and adds up its cost.

use std::path::Path;

use memchr::memmem;
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

/// Beginning of a JSON member that only records of subagents have.
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
            replies += u32::from(is_reply(line));
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
    let (_, kind) = kind_of(line);
    COUNTED.iter().any(|counted| kind.starts_with(counted))
}

/// Returns true if `line` is a model reply of the main agent: its bytes before the type name no
/// parent invocation.
fn is_reply(line: &[u8]) -> bool {
    let (before, kind) = kind_of(line);
    kind.starts_with(REPLY) && memmem::find(before, PARENT).is_none()
}

/// Splits the beginning of a line: the bytes before the member `type`, and the bytes from the value
/// of `type` on. Without a type, the second part is empty.
fn kind_of(line: &[u8]) -> (&[u8], &[u8]) {
    let beginning = &line[..line.len().min(TYPE_WITHIN)];
    memmem::find(beginning, TYPE)
        .map_or((beginning, &[]), |at| (&beginning[..at], &beginning[at + TYPE.len()..]))
}
