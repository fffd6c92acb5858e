//! The ledger as the session keeps it: who waits for an answer, and what everything has cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use ractor::RpcReplyPort;
use tokio::sync::oneshot;

use crate::conversation::{InvocationId, Usage};
use crate::event::Origin;
use crate::ledger::accounts::{Accounts, Billing, tokens};
use crate::ledger::book::{Amount, Answer, Budget, Ledger, Need, Refused};
use crate::ledger::budget_handle::{BudgetHandle, Permit};
use crate::mailbox::answer;

type Reply = oneshot::Sender<Result<Permit, Refused>>;

/// What the keeper of the ledger is told.
pub(crate) enum BudgetMsg {
    /// A request would like to be made.
    Reserve { whose: InvocationId, number: u64, need: Need, reply: Reply },
    /// It was not made, or a provider did no work for it.
    Release { number: u64 },
    /// A request has ended.
    Line { origin: Arc<Origin>, usage: Usage, billing: Box<Billing> },
    /// Somebody wants to see the accounts.
    Show(RpcReplyPort<Accounts>),
}

/// The ledger of a running session.
pub(crate) struct BudgetKeeper {
    purse: BudgetHandle,
    ledger: Ledger,
    accounts: Accounts,
    waiting: BTreeMap<u64, Waiting>,
    /// Ledgers of agents that have a share, as soon as they have asked for some of it.
    shares: BTreeMap<InvocationId, Ledger>,
    /// Whose share a request is held of.
    owners: BTreeMap<u64, InvocationId>,
    /// What each agent that works for another has cost in this process, as far as it is known.
    costs: BTreeMap<InvocationId, u64>,
}

struct Waiting {
    need: Need,
    reply: Reply,
}

impl BudgetKeeper {
    /// `accounts`: what was spent before.
    pub(crate) fn new(purse: BudgetHandle, accounts: Accounts) -> BudgetKeeper {
        let ledger = Ledger::new(purse.budget(), accounts.spent());
        BudgetKeeper {
            purse,
            ledger,
            accounts,
            waiting: BTreeMap::new(),
            shares: BTreeMap::new(),
            owners: BTreeMap::new(),
            costs: BTreeMap::new(),
        }
    }

    pub(crate) fn purse(&self) -> &BudgetHandle {
        &self.purse
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// What is spent of the budget, and held of it.
    pub(crate) fn gone(&self) -> Amount {
        self.ledger.settled().plus(self.ledger.held())
    }

    /// What an agent that works for another has cost here so far in billionths of a dollar, if
    /// anything of that is known.
    pub(crate) fn cost_of(&self, id: &InvocationId) -> Option<u64> {
        self.costs.get(id).copied()
    }

    /// An agent begins, and may cost so much more than it has.
    pub(crate) fn give_share(&mut self, id: &InvocationId, nano_usd: Option<u64>) {
        self.shares.remove(id);
        self.purse.set_share(id, nano_usd);
    }

    pub(crate) fn take(&mut self, order: BudgetMsg) {
        match order {
            BudgetMsg::Reserve { whose, number, need, reply } => {
                self.waiting.insert(number, Waiting { need, reply });
                self.ask_share(whose, number, need);
            }
            BudgetMsg::Release { number } => self.settle(number, Amount::default()),
            BudgetMsg::Line { origin, usage, billing } => {
                self.accounts.add(Some(&origin), &usage, Some(&billing));
                if let Some(cost) = billing.cost_nano_usd
                    && origin.parent_invocation_id.is_some()
                {
                    let known = self.costs.entry(origin.invocation_id.clone()).or_default();
                    *known = known.saturating_add(cost);
                }
                let spent = match billing.charged {
                    Some(charged) => Amount { nano_usd: charged.nano_usd, tokens: charged.tokens },
                    None => Amount {
                        nano_usd: billing.cost_nano_usd.unwrap_or_default(),
                        tokens: tokens(&usage),
                    },
                };
                self.settle(billing.request, spent);
            }
            BudgetMsg::Show(reply) => answer(reply, self.accounts.clone()),
        }
    }

    /// First the share of the agent has to have room, if it has one, then the budget.
    fn ask_share(&mut self, whose: InvocationId, number: u64, need: Need) {
        let Some(nano_usd) = self.purse.share(&whose) else { return self.ask(number, need) };
        let budget = Budget { nano_usd: Some(nano_usd), tokens: None };
        let share = self
            .shares
            .entry(whose.clone())
            .or_insert_with(|| Ledger::new(budget, Amount::default()));
        let answer = share.ask(number, need);
        self.owners.insert(number, whose);
        self.shared(number, need, answer);
    }

    fn shared(&mut self, number: u64, need: Need, answer: Answer) {
        match answer {
            Answer::Waits => {}
            Answer::Granted { output, .. } => self.ask(number, Need { output, ..need }),
            Answer::Refused(refused) => {
                let refused = Refused { limit: Refused::AGENTS, ..refused };
                self.tell(number, Answer::Refused(refused));
            }
        }
    }

    fn ask(&mut self, number: u64, need: Need) {
        let answer = match self.ledger.ask(number, need) {
            // Without a budget nothing is held of it; what is held of a share is still said.
            Answer::Granted { output, .. } if self.owners.contains_key(&number) => {
                Answer::Granted { output, amount: need.amount(output) }
            }
            answer @ (Answer::Granted { .. } | Answer::Waits | Answer::Refused(_)) => answer,
        };
        self.tell(number, answer);
    }

    fn settle(&mut self, number: u64, spent: Amount) {
        if let Some(whose) = self.owners.remove(&number)
            && let Some(share) = self.shares.get_mut(&whose)
        {
            for (number, answer) in share.settle(number, spent) {
                if let Some(need) = self.waiting.get(&number).map(|waiting| waiting.need) {
                    self.shared(number, need, answer);
                }
            }
        }
        for (number, answer) in self.ledger.settle(number, spent) {
            self.tell(number, answer);
        }
    }

    fn tell(&mut self, number: u64, answer: Answer) {
        let answer = match answer {
            Answer::Waits => return,
            Answer::Granted { output, amount } => {
                Ok(Permit::new(&self.purse, number, output, amount))
            }
            Answer::Refused(refused) => {
                // Nothing is made, so nothing will settle it.
                if let Some(whose) = self.owners.remove(&number)
                    && let Some(share) = self.shares.get_mut(&whose)
                {
                    share.settle(number, Amount::default());
                }
                Err(refused)
            }
        };
        if let Some(Waiting { reply, .. }) = self.waiting.remove(&number) {
            // Nobody waits any more: what was granted is dropped with the answer, and free again.
            reply.send(answer).ok();
        }
    }
}
