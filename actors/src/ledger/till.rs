//! The ledger as the session keeps it: who waits for an answer, and what everything has cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use ractor::RpcReplyPort;
use tokio::sync::oneshot;

use crate::conversation::Usage;
use crate::event::Origin;
use crate::ledger::accounts::{Accounts, Billing, tokens};
use crate::ledger::book::{Amount, Answer, Ledger, Need, Refused};
use crate::ledger::purse::{Permit, Purse};
use crate::mailbox::answer;

type Reply = oneshot::Sender<Result<Permit, Refused>>;

/// What the keeper of the ledger is told.
pub(crate) enum Order {
    /// A request would like to be made.
    Reserve { number: u64, need: Need, reply: Reply },
    /// It was not made, or a provider did no work for it.
    Release { number: u64 },
    /// A request has ended.
    Line { origin: Arc<Origin>, usage: Usage, billing: Box<Billing> },
    /// Somebody wants to see the accounts.
    Show(RpcReplyPort<Accounts>),
}

/// The ledger of a running session.
pub(crate) struct Till {
    purse: Purse,
    ledger: Ledger,
    accounts: Accounts,
    waiting: BTreeMap<u64, Reply>,
}

impl Till {
    /// `accounts`: what was spent before.
    pub(crate) fn new(purse: Purse, accounts: Accounts) -> Till {
        let ledger = Ledger::new(purse.budget(), accounts.spent());
        Till { purse, ledger, accounts, waiting: BTreeMap::new() }
    }

    pub(crate) fn purse(&self) -> &Purse {
        &self.purse
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) fn take(&mut self, order: Order) {
        match order {
            Order::Reserve { number, need, reply } => {
                self.waiting.insert(number, reply);
                let answer = self.ledger.ask(number, need);
                self.tell(number, answer);
            }
            Order::Release { number } => self.settle(number, Amount::default()),
            Order::Line { origin, usage, billing } => {
                self.accounts.add(Some(&origin), &usage, Some(&billing));
                let spent = match billing.charged {
                    Some(charged) => Amount { nano_usd: charged.nano_usd, tokens: charged.tokens },
                    None => Amount {
                        nano_usd: billing.cost_nano_usd.unwrap_or_default(),
                        tokens: tokens(&usage),
                    },
                };
                self.settle(billing.request, spent);
            }
            Order::Show(reply) => answer(reply, self.accounts.clone()),
        }
    }

    fn settle(&mut self, number: u64, spent: Amount) {
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
            Answer::Refused(refused) => Err(refused),
        };
        if let Some(reply) = self.waiting.remove(&number) {
            // Nobody waits any more: what was granted is dropped with the answer, and free again.
            reply.send(answer).ok();
        }
    }
}
