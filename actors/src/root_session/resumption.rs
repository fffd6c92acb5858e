//! State from which a session is resumed, and the accounts and grants derived from it.

use crate::event::{Branch, Grant, SandboxTier};
use crate::ledger::{Accounts, RecoveredUsage};
use crate::replay::{Replayed, StartedWith};

/// State from which a session is resumed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resumption {
    /// Folded journal.
    pub replayed: Replayed,
    /// Branch point in another session, for a fork. `None`: it is the session of that journal.
    pub branch: Option<Branch>,
    /// Differences to the earlier configuration, in words.
    pub changed: Vec<String>,
    /// Damage of the journal, in one line.
    pub damage: Option<String>,
    /// Records after those of `replayed` are lost: see [`Replayed::mark_uncertain`].
    pub lost: bool,
    /// Spending in lost records.
    pub salvaged: Vec<RecoveredUsage>,
}

impl Resumption {
    /// Spending of the session, including lost records. A fork starts at zero: the original session
    /// has paid.
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

    /// True if there is unfinished work that needs no new prompt.
    pub fn is_unfinished(&self) -> bool {
        self.replayed.is_unfinished()
    }

    /// Session grants. Valid only in the same folder, under the same sandbox tier, and not in a
    /// fork.
    pub fn grants(&self, cwd: &str, tier: &SandboxTier) -> Vec<Grant> {
        let same = |then: &StartedWith| then.cwd == cwd && then.tier == *tier;
        if self.branch.is_some() || !self.replayed.started.as_ref().is_some_and(same) {
            return Vec::new();
        }
        self.replayed.grants.clone()
    }
}
