//! Budget of the session: accounts, shares of subagents, and the remaining amount.

use crate::conversation::InvocationId;
use crate::cost::Budget;
use crate::governor::BudgetLeft;
use crate::ledger::{Accounts, BudgetHandle, BudgetKeeper};

/// Number of billionths of a dollar in a millionth of a dollar.
pub(super) const NANO_IN_MICRO: u64 = 1000;

/// Budget and accounts of the session.
pub(super) struct SessionBudget {
    pub(super) keeper: BudgetKeeper,
    limits: Budget,
}

/// Total and remaining tokens and money of the session's budget. `None` means no limit; money is in
/// millionths of a dollar.
#[derive(Debug, PartialEq)]
pub(super) struct RemainingBudget {
    pub(super) tokens: Option<BudgetLeft>,
    pub(super) micro_usd: Option<BudgetLeft>,
}

impl SessionBudget {
    /// Creates the budget. `accounts`: spending before this process.
    pub(super) fn new(handle: BudgetHandle, accounts: Accounts) -> SessionBudget {
        let limits = handle.budget();
        SessionBudget { keeper: BudgetKeeper::new(handle, accounts), limits }
    }

    /// Known cost of a subagent in this process, in billionths of a dollar; `None` if no cost is
    /// known.
    pub(super) fn cost_of(&self, id: &InvocationId) -> Option<u64> {
        self.keeper.cost_of(id)
    }

    /// Limits the cost of a subagent from now on to `micro_usd` millionths of a dollar. `None`
    /// removes the limit.
    pub(super) fn give_share(&mut self, id: &InvocationId, micro_usd: Option<u64>) {
        let nano_usd = micro_usd.map(|micro_usd| micro_usd.saturating_mul(NANO_IN_MICRO));
        self.keeper.give_share(id, nano_usd);
    }

    /// Total budget of the session, and its part that is neither spent nor reserved.
    pub(super) fn left(&self) -> RemainingBudget {
        let Budget { nano_usd, tokens } = self.limits;
        let gone = self.keeper.committed();
        RemainingBudget {
            tokens: tokens.map(|max| left(max, gone.tokens, 1)),
            micro_usd: nano_usd.map(|max| left(max, gone.nano_usd, NANO_IN_MICRO)),
        }
    }
}

/// Budget `max` and its rest after `gone` was used, both divided by `unit` and rounded down. The
/// rest is at least 0.
fn left(max: u64, gone: u64, unit: u64) -> BudgetLeft {
    BudgetLeft { max: max / unit, left: max.saturating_sub(gone) / unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_budget_is_never_negative_and_rounded_down() {
        let table = [
            ((10, 0, 1), (10, 10)),
            ((10, 4, 1), (10, 6)),
            ((10, 11, 1), (10, 0)),
            ((5_999, 1_000, NANO_IN_MICRO), (5, 4)),
            ((5_000, 1, NANO_IN_MICRO), (5, 4)),
        ];
        for ((max, gone, unit), (whole, rest)) in table {
            let BudgetLeft { max: seen, left } = left(max, gone, unit);
            assert_eq!((seen, left), (whole, rest), "{max} {gone} {unit}");
        }
    }

    #[test]
    fn session_without_limits_has_no_remaining_budget() {
        let handle = BudgetHandle::new(Budget::default(), 0, |_| ());
        let budget = SessionBudget::new(handle, Accounts::default());
        assert_eq!(budget.left(), RemainingBudget { tokens: None, micro_usd: None });
        assert_eq!(budget.cost_of(&InvocationId::new("child")), None);
    }

    #[test]
    fn new_session_has_its_whole_budget() {
        let limits = Budget { nano_usd: Some(9_000), tokens: Some(50) };
        let handle = BudgetHandle::new(limits, 0, |_| ());
        let budget = SessionBudget::new(handle, Accounts::default());
        let (tokens, usd) = (budget.left().tokens.unwrap(), budget.left().micro_usd.unwrap());
        assert_eq!((tokens.max, tokens.left), (50, 50));
        assert_eq!((usd.max, usd.left), (9, 9));
    }
}
