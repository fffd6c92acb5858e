//! Access of attempts to the budget of the session: reservations, and reports of usage.
//!
//! The root session keeps the budget, and all invocations use it. A reservation is released when it
//! is dropped, so a crash cannot leak it.

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

/// Messages to the budget of the session.
pub(crate) enum BudgetMsg {
    /// Reserve the worst case `need` for the attempt `number` of the invocation `whose`.
    Reserve { whose: InvocationId, number: u64, need: WorstCaseCost, reply: ReservationReply },
    /// Release the reservation of the attempt `number`: it was not sent, or the provider did no
    /// work for it.
    Release { number: u64 },
    /// Add the usage record of an attempt that has ended.
    Line { origin: Arc<Origin>, usage: Usage, billing: Box<Billing> },
    /// Return the accounts.
    Show(RpcReplyPort<Accounts>),
}

type SendBudgetMsg = dyn Fn(BudgetMsg) + Send + Sync;

/// Handle of the session's budget. Cheap to clone.
#[derive(Clone)]
pub(crate) struct BudgetHandle {
    line: Arc<SendBudgetMsg>,
    budget: Budget,
    /// Maximum cost of each subagent that has a limit of its own, from its last start on, in
    /// billionths of a dollar.
    shares: Arc<Guarded<BTreeMap<InvocationId, u64>>>,
    last: Arc<AtomicU64>,
    /// Pairs of requested and answering model that were already reported to the user.
    reported_mismatches: Arc<Guarded<BTreeSet<(String, String)>>>,
}

impl BudgetHandle {
    /// Creates a handle that sends messages with `line`. `last`: the highest attempt number so far.
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

    /// Budget of one invocation: the session's budget, with the cost limited to the share of the
    /// invocation if it has one.
    pub(crate) fn budget_of(&self, id: &InvocationId) -> Budget {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Budget { nano_usd: least(self.budget.nano_usd, self.share(id)), ..self.budget }
    }

    /// Maximum cost of this invocation since its last start, in billionths of a dollar; `None` if
    /// it has no limit of its own.
    pub(crate) fn share(&self, id: &InvocationId) -> Option<u64> {
        self.shares.lock().get(id).copied()
    }

    /// Sets the maximum cost of this invocation since its last start, in billionths of a dollar;
    /// `None` removes the limit.
    pub(crate) fn set_share(&self, id: &InvocationId, nano_usd: Option<u64>) {
        let mut shares = self.shares.lock();
        match nano_usd {
            Some(nano_usd) => shares.insert(id.clone(), nano_usd),
            None => shares.remove(id),
        };
    }

    /// The next unused attempt number of the session (`Billing::request`). Each call uses one up.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns true only once for each pair of models: `asked` was requested and `answered`
    /// replied.
    pub(crate) fn is_news(&self, asked: &str, answered: &str) -> bool {
        let mut known = self.reported_mismatches.lock();
        known.insert((asked.to_owned(), answered.to_owned()))
    }

    pub(crate) fn tell(&self, order: BudgetMsg) {
        (self.line)(order);
    }

    /// Reserves the worst case `need` for the attempt `number`. Waits while only the reservations
    /// of other attempts prevent it. The inner `Err` is the refusal; `None` means that the session
    /// is gone.
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

/// Reservation of a part of the budget for one attempt. Dropping it releases the reservation.
pub(crate) struct HeldReservation {
    pub(super) budget_handle: BudgetHandle,
    pub(super) number: u64,
    /// Maximum tokens of the reply that the reservation pays for.
    pub(crate) output: u64,
    /// Reserved amount.
    pub(crate) amount: Amount,
    pub(super) spent: bool,
}

impl HeldReservation {
    /// Consumes the reservation without releasing it: the usage record of the attempt, which the
    /// caller sends next, settles it.
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
