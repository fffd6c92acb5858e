//! Budget of a running session: reservations, waiting attempts, and spending.

use std::collections::BTreeMap;

use crate::conversation::InvocationId;
use crate::cost::{Amount, Budget, BudgetRefusal};
use crate::ledger::accounts::Accounts;
use crate::ledger::budget_handle::{BudgetHandle, BudgetMsg, HeldReservation, ReservationReply};
use crate::ledger::reservations::{ReservationResult, Reservations, WorstCaseCost};
use crate::mailbox::answer;

/// Owner of the session's budget: accounts, reservations, and the shares of subagents.
pub(crate) struct BudgetKeeper {
    budget_handle: BudgetHandle,
    ledger: Reservations,
    accounts: Accounts,
    waiting: BTreeMap<u64, (WorstCaseCost, ReservationReply)>,
    /// Reservations within the share of each subagent that has one, from its first attempt on.
    shares: BTreeMap<InvocationId, Reservations>,
    /// Subagent of each attempt that counts against a share, by attempt number.
    owners: BTreeMap<u64, InvocationId>,
    /// Known cost of each subagent and auxiliary request in this process, in billionths of a
    /// dollar.
    costs: BTreeMap<InvocationId, u64>,
}

impl BudgetKeeper {
    /// Creates the owner of the budget. `accounts`: spending before this process.
    pub(crate) fn new(budget_handle: BudgetHandle, accounts: Accounts) -> BudgetKeeper {
        let ledger = Reservations::new(budget_handle.budget(), accounts.spent());
        BudgetKeeper {
            budget_handle,
            ledger,
            accounts,
            waiting: BTreeMap::new(),
            shares: BTreeMap::new(),
            owners: BTreeMap::new(),
            costs: BTreeMap::new(),
        }
    }

    pub(crate) fn budget_handle(&self) -> &BudgetHandle {
        &self.budget_handle
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Spent and reserved amount together.
    pub(crate) fn committed(&self) -> Amount {
        self.ledger.spent().plus(self.ledger.reserved())
    }

    /// Known cost of a subagent in this process, in billionths of a dollar; `None` if no cost is
    /// known.
    pub(crate) fn cost_of(&self, id: &InvocationId) -> Option<u64> {
        self.costs.get(id).copied()
    }

    /// Sets the maximum further cost of a subagent from now on, in billionths of a dollar; `None`
    /// removes the limit. Its earlier spending does not count.
    pub(crate) fn give_share(&mut self, id: &InvocationId, nano_usd: Option<u64>) {
        self.shares.remove(id);
        self.budget_handle.set_share(id, nano_usd);
    }

    pub(crate) fn take(&mut self, order: BudgetMsg) {
        match order {
            BudgetMsg::Reserve { whose, number, need, reply } => {
                self.waiting.insert(number, (need, reply));
                self.ask_share(whose, number, need);
            }
            BudgetMsg::Release { number } => self.settle(number, Amount::default()),
            BudgetMsg::Line { origin, usage, billing } => {
                let spent = self.accounts.add(Some(&origin), &usage, Some(&billing));
                if let Some(cost) = billing.cost_nano_usd
                    && origin.parent_invocation_id.is_some()
                {
                    let known = self.costs.entry(origin.invocation_id.clone()).or_default();
                    *known = known.saturating_add(cost);
                }
                self.settle(billing.request, spent);
            }
            BudgetMsg::Show(reply) => answer(reply, self.accounts.clone()),
        }
    }

    /// Reserves from the share of the subagent, if it has one, then from the session's budget.
    fn ask_share(&mut self, whose: InvocationId, number: u64, need: WorstCaseCost) {
        let Some(nano_usd) = self.budget_handle.share(&whose) else {
            return self.ask(number, need);
        };
        let budget = Budget { nano_usd: Some(nano_usd), tokens: None };
        let share = self
            .shares
            .entry(whose.clone())
            .or_insert_with(|| Reservations::new(budget, Amount::default()));
        let answer = share.ask(number, need);
        self.owners.insert(number, whose);
        self.reserve_shared(number, need, answer);
    }

    fn reserve_shared(&mut self, number: u64, need: WorstCaseCost, answer: ReservationResult) {
        match answer {
            ReservationResult::Waits => {}
            ReservationResult::Granted { output, .. } => {
                self.ask(number, WorstCaseCost { output, ..need });
            }
            ReservationResult::Refused(refused) => {
                let refused = BudgetRefusal { limit: BudgetRefusal::AGENTS, ..refused };
                self.tell(number, ReservationResult::Refused(refused));
            }
        }
    }

    fn ask(&mut self, number: u64, need: WorstCaseCost) {
        let mut answer = self.ledger.ask(number, need);
        // Without a budget nothing is reserved from it; reservations from a share still count.
        if let ReservationResult::Granted { output, amount } = &mut answer
            && self.owners.contains_key(&number)
        {
            *amount = need.amount(*output);
        }
        self.tell(number, answer);
    }

    fn settle(&mut self, number: u64, spent: Amount) {
        if let Some(whose) = self.owners.remove(&number)
            && let Some(share) = self.shares.get_mut(&whose)
        {
            for (number, answer) in share.settle(number, spent) {
                if let Some(need) = self.waiting.get(&number).map(|(need, _)| *need) {
                    self.reserve_shared(number, need, answer);
                }
            }
        }
        for (number, answer) in self.ledger.settle(number, spent) {
            self.tell(number, answer);
        }
    }

    fn tell(&mut self, number: u64, answer: ReservationResult) {
        let answer = match answer {
            ReservationResult::Waits => return,
            ReservationResult::Granted { output, amount } => {
                let budget_handle = self.budget_handle.clone();
                Ok(HeldReservation { budget_handle, number, output, amount, spent: false })
            }
            ReservationResult::Refused(refused) => {
                // The attempt is not made, so nothing will settle its reservation.
                if let Some(whose) = self.owners.remove(&number)
                    && let Some(share) = self.shares.get_mut(&whose)
                {
                    share.settle(number, Amount::default());
                }
                Err(refused)
            }
        };
        if let Some((_, reply)) = self.waiting.remove(&number) {
            // The requester is gone: the permit is dropped with the reply and released.
            reply.send(answer).ok();
        }
    }
}
