//! The budget: what is spent, what is held for requests that are out, and who waits for some of
//! it. Pure.
//!
//! What is settled and what is held together never exceed a cap as long as no request costs more
//! than was held for it; if one does, nothing is granted any more.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::ledger::pricing::{nano, part};

/// Pico-USD of a nano-USD.
const PICO_IN_NANO: u128 = 1000;

/// What a session may cost. `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Billionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nano_usd: Option<u64>,
    /// Tokens, read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl Budget {
    /// Whether there is any limit.
    pub fn is_limited(&self) -> bool {
        self.nano_usd.is_some() || self.tokens.is_some()
    }

    /// Whether there is none.
    pub fn is_unlimited(&self) -> bool {
        !self.is_limited()
    }
}

/// Money and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Billionths of a dollar.
    pub nano_usd: u64,
    /// Tokens, read and written.
    pub tokens: u64,
}

impl Amount {
    /// Both together; as much as there can be, if that is too much.
    #[must_use]
    pub fn plus(self, other: Amount) -> Amount {
        Amount {
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }
}

/// What a request may cost at worst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Tokens that it has at most.
    pub input: u64,
    /// What each of them costs at most, in micro-USD for a million; 0 if money does not matter.
    pub input_price: u64,
    /// What a token of the reply costs, in micro-USD for a million.
    pub output_price: u64,
    /// Tokens that its reply may have.
    pub output: u64,
    /// A reply with room for fewer is not worth asking for.
    pub output_min: u64,
}

impl Need {
    /// What it costs at worst with a reply of `output` tokens.
    pub fn amount(&self, output: u64) -> Amount {
        let pico =
            part(self.input, self.input_price).saturating_add(part(output, self.output_price));
        Amount { nano_usd: nano(pico), tokens: self.input.saturating_add(output) }
    }

    /// The longest reply that `left` pays for; `None` if there is not even enough to ask.
    fn affordable(&self, budget: Budget, left: Amount) -> Option<u64> {
        let mut output = self.output;
        if budget.nano_usd.is_some() {
            let money = u128::from(left.nano_usd) * PICO_IN_NANO;
            let rest = money.checked_sub(part(self.input, self.input_price))?;
            if let Some(tokens) = rest.checked_div(u128::from(self.output_price)) {
                output = output.min(u64::try_from(tokens).unwrap_or(u64::MAX));
            }
        }
        if budget.tokens.is_some() {
            output = output.min(left.tokens.checked_sub(self.input)?);
        }
        Some(output)
    }
}

/// Why a request is not made: the budget has no room for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the budget has no room for another request")]
pub struct BudgetRefusal {
    /// The limit's name in the configuration.
    pub limit: &'static str,
    /// The limit: billionths of a dollar, or tokens.
    pub cap: u64,
    /// What is spent of it, requests whose cost is not known at their worst.
    pub spent: u64,
    /// What the request could have cost at worst.
    pub needed: u64,
}

impl BudgetRefusal {
    /// The money that a session may cost.
    pub const MONEY: &'static str = "budget.maxCostMicroUsd";
    /// The tokens that it may use.
    pub const TOKENS: &'static str = "budget.maxTokens";
    /// The money that agents may cost that work for others; of one of them, its share.
    pub const AGENTS: &'static str = "delegation.maxCostMicroUsd";

    /// Whether the limit is one of money.
    pub fn is_money(&self) -> bool {
        matches!(self.limit, BudgetRefusal::MONEY | BudgetRefusal::AGENTS)
    }

    /// What is left.
    pub fn left(&self) -> u64 {
        self.cap.saturating_sub(self.spent)
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationResult {
    /// It may be made.
    Granted {
        /// Tokens that its reply may have.
        output: u64,
        /// What is held for it.
        amount: Amount,
    },
    /// Others have to end first.
    Waits,
    /// It may not be made, whoever else ends.
    Refused(BudgetRefusal),
}

/// Spent, held, and waited for.
#[derive(Debug, Clone, Default)]
pub struct Reservations {
    budget: Budget,
    settled: Amount,
    held: BTreeMap<u64, Amount>,
    /// In the order of their arrival.
    waiting: VecDeque<(u64, Need)>,
}

impl Reservations {
    /// A budget of which `spent` is gone already.
    pub fn new(budget: Budget, spent: Amount) -> Reservations {
        Reservations { budget, settled: spent, ..Reservations::default() }
    }

    /// What is spent.
    pub fn settled(&self) -> Amount {
        self.settled
    }

    /// What is held for requests that are out.
    pub fn held(&self) -> Amount {
        self.held.values().fold(Amount::default(), |sum, amount| sum.plus(*amount))
    }

    /// Asks for `need`. Whoever waits is told by [`settle`](Ledger::settle).
    pub fn ask(&mut self, id: u64, need: Need) -> ReservationResult {
        let answer = self.decide(id, need);
        match answer {
            // Nobody overtakes.
            ReservationResult::Granted { .. } if !self.waiting.is_empty() => {
                self.held.remove(&id);
                self.waiting.push_back((id, need));
                ReservationResult::Waits
            }
            ReservationResult::Waits => {
                self.waiting.push_back((id, need));
                ReservationResult::Waits
            }
            answer @ (ReservationResult::Granted { .. } | ReservationResult::Refused(_)) => answer,
        }
    }

    /// A request has ended and counts as `spent`; nothing, if it was never made. Says what becomes
    /// of those who waited. One that is not known, or was settled before, only counts.
    pub fn settle(&mut self, id: u64, spent: Amount) -> Vec<(u64, ReservationResult)> {
        self.held.remove(&id);
        self.waiting.retain(|(waiting, _)| *waiting != id);
        self.settled = self.settled.plus(spent);
        let mut decided = Vec::new();
        while let Some((id, need)) = self.waiting.pop_front() {
            match self.decide(id, need) {
                ReservationResult::Waits => {
                    self.waiting.push_front((id, need));
                    break;
                }
                answer @ (ReservationResult::Granted { .. } | ReservationResult::Refused(_)) => {
                    decided.push((id, answer));
                }
            }
        }
        decided
    }

    fn decide(&mut self, id: u64, need: Need) -> ReservationResult {
        if !self.budget.is_limited() {
            return ReservationResult::Granted { output: need.output, amount: Amount::default() };
        }
        let floor = need.output_min.min(need.output);
        let free = self.left(self.settled.plus(self.held()));
        if let Some(output) = need.affordable(self.budget, free).filter(|output| *output >= floor) {
            let amount = need.amount(output);
            self.held.insert(id, amount);
            return ReservationResult::Granted { output, amount };
        }
        let unspent = self.left(self.settled);
        let enough = need.affordable(self.budget, unspent).is_some_and(|output| output >= floor);
        if enough {
            ReservationResult::Waits
        } else {
            ReservationResult::Refused(self.refusal(need.amount(floor)))
        }
    }

    fn left(&self, gone: Amount) -> Amount {
        let Budget { nano_usd, tokens } = self.budget;
        Amount {
            nano_usd: nano_usd.unwrap_or(u64::MAX).saturating_sub(gone.nano_usd),
            tokens: tokens.unwrap_or(u64::MAX).saturating_sub(gone.tokens),
        }
    }

    fn refusal(&self, needed: Amount) -> BudgetRefusal {
        let Amount { nano_usd: spent, tokens: used } = self.settled;
        match (self.budget.nano_usd, self.budget.tokens) {
            (Some(cap), None) => {
                BudgetRefusal { limit: BudgetRefusal::MONEY, cap, spent, needed: needed.nano_usd }
            }
            (Some(cap), Some(_)) if spent.saturating_add(needed.nano_usd) > cap => {
                BudgetRefusal { limit: BudgetRefusal::MONEY, cap, spent, needed: needed.nano_usd }
            }
            (_, cap) => BudgetRefusal {
                limit: BudgetRefusal::TOKENS,
                cap: cap.unwrap_or_default(),
                spent: used,
                needed: needed.tokens,
            },
        }
    }
}

#[cfg(test)]
mod tests;
