//! Arithmetic of a budget: spent amount, reservations of attempts in flight, and waiting attempts.
//! Pure.
//!
//! Spent and reserved amounts together never exceed a limit, as long as no attempt costs more than
//! its reservation. While they exceed it, nothing is granted.

use std::collections::{BTreeMap, VecDeque};

use crate::cost::{Amount, Budget, BudgetRefusal, PICO_IN_NANO, nano, part};

/// Worst case of one attempt of a model request: its maximum tokens and prices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorstCaseCost {
    /// Maximum input tokens.
    pub input: u64,
    /// Maximum price of an input token, in micro-USD per million tokens; 0 if unknown, which is
    /// possible only without a limit of money.
    pub input_price: u64,
    /// Price of an output token, in micro-USD per million tokens; 0 if unknown, which is possible
    /// only without a limit of money.
    pub output_price: u64,
    /// Maximum output tokens of the reply. The granted number is lower if the budget does not pay
    /// for them.
    pub output: u64,
    /// Minimum output tokens, or `output` if that is lower: an attempt for which the budget pays
    /// fewer is not granted.
    pub output_min: u64,
}

impl WorstCaseCost {
    /// Money and tokens of the attempt if the reply has `output` tokens.
    pub fn amount(&self, output: u64) -> Amount {
        let pico =
            part(self.input, self.input_price).saturating_add(part(output, self.output_price));
        Amount { nano_usd: nano(pico), tokens: self.input.saturating_add(output) }
    }

    /// Longest reply in tokens that the amount `left` of `budget` pays for, at most `self.output`.
    /// `None` if it does not even pay for the input.
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

/// Decision about the reservation for an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationResult {
    /// The reservation is granted.
    Granted {
        /// Maximum output tokens of the reply.
        output: u64,
        /// Reserved amount; zero without a limit.
        amount: Amount,
    },
    /// The attempt waits until other attempts end.
    Waits,
    /// The attempt is refused: it would not fit even if no other attempt had a reservation.
    Refused(BudgetRefusal),
}

/// A budget with its spent amount, its reservations, and the attempts that wait for one.
#[derive(Debug, Clone, Default)]
pub struct Reservations {
    budget: Budget,
    settled: Amount,
    held: BTreeMap<u64, Amount>,
    /// Waiting attempts in the order of their arrival.
    waiting: VecDeque<(u64, WorstCaseCost)>,
}

impl Reservations {
    /// Creates a budget of which `spent` is already used.
    pub fn new(budget: Budget, spent: Amount) -> Reservations {
        Reservations { budget, settled: spent, ..Reservations::default() }
    }

    /// Amount that was spent initially, plus that of all attempts that have ended since.
    pub fn spent(&self) -> Amount {
        self.settled
    }

    /// Sum of all reservations.
    pub fn reserved(&self) -> Amount {
        self.held.values().fold(Amount::default(), |sum, amount| sum.plus(*amount))
    }

    /// Reserves the worst case `need` for the attempt `id`, refuses the attempt, or queues it
    /// behind those that wait already. A later [`settle`](Reservations::settle) decides about a
    /// queued attempt.
    pub fn ask(&mut self, id: u64, need: WorstCaseCost) -> ReservationResult {
        let mut answer = self.decide(id, need);
        // Attempts are served in order.
        if matches!(answer, ReservationResult::Granted { .. }) && !self.waiting.is_empty() {
            self.held.remove(&id);
            answer = ReservationResult::Waits;
        }
        if answer == ReservationResult::Waits {
            self.waiting.push_back((id, need));
        }
        answer
    }

    /// Ends the attempt `id`: releases its reservation, if it has one, and adds the amount `spent`,
    /// which is zero if the attempt was not sent. Returns the decisions about waiting attempts that
    /// are possible now.
    pub fn settle(&mut self, id: u64, spent: Amount) -> Vec<(u64, ReservationResult)> {
        self.held.remove(&id);
        self.waiting.retain(|(waiting, _)| *waiting != id);
        self.settled = self.settled.plus(spent);
        let mut decided = Vec::new();
        while let Some((id, need)) = self.waiting.pop_front() {
            let answer = self.decide(id, need);
            if answer == ReservationResult::Waits {
                self.waiting.push_front((id, need));
                break;
            }
            decided.push((id, answer));
        }
        decided
    }

    fn decide(&mut self, id: u64, need: WorstCaseCost) -> ReservationResult {
        if !self.budget.is_limited() {
            return ReservationResult::Granted { output: need.output, amount: Amount::default() };
        }
        let floor = need.output_min.min(need.output);
        let free = self.left(self.settled.plus(self.reserved()));
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
            (Some(cap), other)
                if other.is_none() || spent.saturating_add(needed.nano_usd) > cap =>
            {
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
