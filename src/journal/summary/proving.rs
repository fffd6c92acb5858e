//! Reads a journal whole for a list: whether it holds together, and what it has cost.

use std::path::Path;

use memchr::memmem;
use posse_actors::ledger::{Accounts, Salvaged};

use crate::journal::recovery;
use crate::journal::scan::parse;
use crate::journal::session_state::SessionState;
use crate::journal::summary::SessionSummary;
use crate::journal::verify::{Problem, emptied};
use crate::journal::walk::{beginning, walk};

/// What comes before the type of a record.
const TYPE: &[u8] = b"\"type\":\"";

/// Where in a line that stands, at the latest: only ids and the name of the session come before.
const TYPE_WITHIN: usize = 1024;

/// The type of a reply, to its end.
const REPLY: &[u8] = b"model.text\"";

/// What stands before the type where the record is not the main agent's.
const PARENT: &[u8] = b"\"parentInvocationId\":";

/// Beginnings of the types that say something about money.
const COUNTED: [&[u8]; 5] =
    [b"model.request", b"model.usage", b"budget.", b"session.resumed", b"agent.invocation."];

impl SessionSummary {
    /// Adds what only the whole journal says.
    pub(super) fn prove(&mut self, dir: &Path) {
        let mut accounts = Accounts::default();
        let mut replies = 0_u32;
        let walked = walk(dir, beginning(&self.id), &mut |line, head, _| {
            if counts(line) {
                accounts.push(&parse(line, head, &self.id));
            }
            replies += u32::from(is_reply(line));
            Ok(())
        });
        let Ok(walked) = walked else { return };
        let problem = Problem::of(&walked).filter(|problem| !problem.torn_tail);
        let gone = || emptied(dir, &walked).ok().flatten();
        let problem = problem.or_else(gone);
        if !matches!(self.state, SessionState::Finished) {
            accounts.settle();
        }
        if let Some(problem) = &problem {
            self.state = SessionState::of_problem(problem);
            for Salvaged { origin, event } in recovery::of_walk(dir, &walked, &accounts) {
                accounts.follow(origin.as_deref(), &event);
            }
        }
        // An end counts since the last time that another model, agent or provider was chosen.
        self.turns = self.turns.map(|last| last.max(replies));
        if accounts.total.requests > 0 {
            self.cost_nano_usd = accounts.total.known();
            self.unpriced_requests = accounts.total.unpriced;
        }
    }
}

/// Whether a record is about money.
fn counts(line: &[u8]) -> bool {
    let (_, kind) = kind_of(line);
    COUNTED.iter().any(|counted| kind.starts_with(counted))
}

/// Whether a record is a reply to the main agent.
fn is_reply(line: &[u8]) -> bool {
    let (before, kind) = kind_of(line);
    kind.starts_with(REPLY) && memmem::find(before, PARENT).is_none()
}

/// What comes before the type of a record, and what begins with it.
fn kind_of(line: &[u8]) -> (&[u8], &[u8]) {
    let beginning = &line[..line.len().min(TYPE_WITHIN)];
    memmem::find(beginning, TYPE)
        .map_or((beginning, &[]), |at| (&beginning[..at], &beginning[at + TYPE.len()..]))
}
