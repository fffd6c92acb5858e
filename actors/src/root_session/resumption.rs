//! State with which a session is resumed or forked, and the accounts and grants derived from it.

use crate::event::{Branch, Grant, PermissionMode, SandboxTier};
use crate::ledger::{Accounts, RecoveredUsage};
use crate::replay::{Replayed, StartedWith};

/// State with which a session is resumed or forked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resumption {
    /// Result of the fold of the journal.
    pub replayed: Replayed,
    /// Point in the original session, for a fork. `None`: the session of the journal itself is
    /// resumed.
    pub branch: Option<Branch>,
    /// Differences between the configuration of the earlier process and the current one, in words.
    pub changed: Vec<String>,
    /// One-line description of damage of the journal, which is recorded as a warning; `None` if
    /// there is none.
    pub damage: Option<String>,
    /// True if records after those of `replayed` are lost: see [`Replayed::mark_uncertain`].
    pub lost: bool,
    /// Usage records recovered from damage. A resumed session records them again, a fork ignores
    /// them.
    pub salvaged: Vec<RecoveredUsage>,
}

impl Resumption {
    /// Spending of the session, including recovered records. A fork starts at zero, because its
    /// spending belongs to the original session.
    pub fn accounts(&self) -> Accounts {
        if self.branch.is_some() {
            return Accounts::default();
        }
        let mut accounts = self.replayed.accounts.clone();
        accounts.settle();
        for RecoveredUsage { origin, event } in &self.salvaged {
            accounts.follow(origin.as_deref(), event);
        }
        accounts
    }

    /// True if the session can continue without a new prompt: see [`Replayed::is_unfinished`].
    pub fn is_unfinished(&self) -> bool {
        self.replayed.is_unfinished()
    }

    /// Permission mode of a session that is resumed or forked with the mode `start`: the stricter
    /// one of `start` and the mode of the journal. `None` if these are `plan` and `locked`, which
    /// cannot be combined.
    pub fn permission_mode(&self, start: PermissionMode) -> Option<PermissionMode> {
        let recorded = self.replayed.started.as_ref().and_then(|started| started.permission_mode);
        recorded.map_or(Some(start), |recorded| recorded.stricter(start))
    }

    /// Grants of the session and of its agents to restore. Empty if the working directory or the
    /// sandbox tier differs from the journal's, and in a fork. A subagent that is resumed keeps its
    /// invocation, and so its grants.
    pub fn grants(&self, cwd: &str, tier: &SandboxTier) -> Vec<Grant> {
        let same = |then: &StartedWith| then.cwd == cwd && then.tier == *tier;
        if self.branch.is_some() || !self.replayed.started.as_ref().is_some_and(same) {
            return Vec::new();
        }
        self.replayed.grants.clone()
    }
}
