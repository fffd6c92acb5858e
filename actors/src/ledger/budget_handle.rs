//! Requests reservations from the budget and returns the unused part.
//!
//! One actor keeps the ledger; many invocations use it. A reservation is released when dropped, so
//! a crash never leaks it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ractor::RpcReplyPort;
use tokio::sync::oneshot;

use crate::conversation::{InvocationId, Usage};
use crate::cost::{Amount, Billing, Budget, BudgetRefusal};
use crate::event::Origin;
use crate::guarded::Guarded;
use crate::ledger::accounts::Accounts;
use crate::ledger::reservations::WorstCaseCost;

pub(super) type ReservationReply = oneshot::Sender<Result<HeldReservation, BudgetRefusal>>;

/// Messages to the ledger.
pub(crate) enum BudgetMsg {
    /// A request would like to be made.
    Reserve { whose: InvocationId, number: u64, need: WorstCaseCost, reply: ReservationReply },
    /// The request was not sent, or the provider did no work for it.
    Release { number: u64 },
    /// A request has ended.
    Line { origin: Arc<Origin>, usage: Usage, billing: Box<Billing> },
    /// Request for the accounts.
    Show(RpcReplyPort<Accounts>),
}

type SendBudgetMsg = dyn Fn(BudgetMsg) + Send + Sync;

/// The way to the ledger. Cheap to clone.
#[derive(Clone)]
pub(crate) struct BudgetHandle {
    line: Arc<SendBudgetMsg>,
    budget: Budget,
    /// Of agents that may not spend all that is left: billionths of a dollar.
    shares: Arc<Guarded<BTreeMap<InvocationId, u64>>>,
    last: Arc<AtomicU64>,
    /// Models that answered where another one was asked: that one first.
    reported_mismatches: Arc<Guarded<BTreeSet<(String, String)>>>,
}

impl BudgetHandle {
    /// `last`: the highest number that a request has had.
    pub(crate) fn new(
        budget: Budget,
        last: u64,
        line: impl Fn(BudgetMsg) + Send + Sync + 'static,
    ) -> BudgetHandle {
        BudgetHandle {
            line: Arc::new(line),
            budget,
            shares: Arc::default(),
            last: Arc::new(AtomicU64::new(last)),
            reported_mismatches: Arc::default(),
        }
    }

    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    /// Budget handle for the requests of one invocation.
    pub(crate) fn budget_of(&self, id: &InvocationId) -> Budget {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Budget { nano_usd: least(self.budget.nano_usd, self.share(id)), ..self.budget }
    }

    /// Billionths of a dollar that this invocation may cost, if it may not spend all there is.
    pub(crate) fn share(&self, id: &InvocationId) -> Option<u64> {
        self.shares.lock().get(id).copied()
    }

    /// Sets the maximum cost of this invocation; `None` removes the limit.
    pub(crate) fn set_share(&self, id: &InvocationId, nano_usd: Option<u64>) {
        let mut shares = self.shares.lock();
        match nano_usd {
            Some(nano_usd) => shares.insert(id.clone(), nano_usd),
            None => shares.remove(id),
        };
    }

    /// A number that no request of the session has had.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// True once per pair of models: `answered` replied instead of `asked`.
    pub(crate) fn is_news(&self, asked: &str, answered: &str) -> bool {
        let mut known = self.reported_mismatches.lock();
        known.insert((asked.to_owned(), answered.to_owned()))
    }

    pub(crate) fn tell(&self, order: BudgetMsg) {
        (self.line)(order);
    }

    /// Reserves `need`. Waits while only requests in flight prevent it; each of these ends within
    /// its own time limits. Returns `None` if the session is gone.
    pub(crate) async fn permit(
        &self,
        whose: &InvocationId,
        number: u64,
        need: WorstCaseCost,
    ) -> Option<Result<HeldReservation, BudgetRefusal>> {
        let (reply, answer) = oneshot::channel();
        let whose = whose.clone();
        self.tell(BudgetMsg::Reserve { whose, number, need, reply });
        answer.await.ok()
    }
}

impl fmt::Debug for BudgetHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetHandle").field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// A part of the budget that is held for one request. Dropped, it is free again.
pub(crate) struct HeldReservation {
    pub(super) budget_handle: BudgetHandle,
    pub(super) number: u64,
    /// Tokens that the reply may have.
    pub(crate) output: u64,
    /// Reserved amount.
    pub(crate) amount: Amount,
    pub(super) spent: bool,
}

impl HeldReservation {
    /// The line of the accounts that follows settles it.
    pub(crate) fn spend(mut self) {
        self.spent = true;
    }
}

impl Drop for HeldReservation {
    fn drop(&mut self) {
        if !self.spent {
            self.budget_handle.tell(BudgetMsg::Release { number: self.number });
        }
    }
}
