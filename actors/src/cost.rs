//! Prices, budgets, and the billing part of a record.
//!
//! Money is counted in whole billionths of a dollar, so sums do not depend on the order of
//! addition. An unknown count or cost is `None`, not zero; sums count such attempts separately.

mod pricing;

use serde::{Deserialize, Serialize};

use crate::conversation::Usage;

pub use pricing::{ModelPricing, PriceLookup, TokenRates, dollars, usd};
pub(crate) use pricing::{PICO_IN_NANO, nano, part};

/// Limits of the spending of a session or of one invocation. `None` means no limit.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Maximum cost in billionths of a dollar.
    pub nano_usd: Option<u64>,
    /// Maximum number of input and output tokens together.
    pub tokens: Option<u64>,
}

impl Budget {
    /// True if money or tokens are limited.
    pub fn is_limited(&self) -> bool {
        self.nano_usd.is_some() || self.tokens.is_some()
    }

    /// True if neither money nor tokens are limited.
    pub fn is_unlimited(&self) -> bool {
        !self.is_limited()
    }
}

/// Refusal of an attempt: the remaining budget does not pay for its input and the shortest reply
/// that is worth an attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the budget has no room for another request")]
pub struct BudgetRefusal {
    /// Name of the exceeded limit in the configuration.
    pub limit: &'static str,
    /// Value of the limit, in billionths of a dollar or in tokens.
    pub cap: u64,
    /// Amount already spent, without reservations of attempts in flight, in the unit of `cap`. An
    /// attempt of unknown cost counts as its worst case.
    pub spent: u64,
    /// Amount that the refused attempt needs at least, in the unit of `cap`: its maximum input and
    /// the minimum length of its reply.
    pub needed: u64,
}

impl BudgetRefusal {
    /// Name of the limit of a session's cost.
    pub const MONEY: &'static str = "budget.maxCostMicroUsd";
    /// Name of the limit of a session's tokens.
    pub const TOKENS: &'static str = "budget.maxTokens";
    /// Name of the limit of the cost of all subagents; also used for the share of one subagent.
    pub const AGENTS: &'static str = "delegation.maxCostMicroUsd";

    /// True if `cap`, `spent` and `needed` are billionths of a dollar; false if they are tokens.
    pub fn is_money(&self) -> bool {
        matches!(self.limit, BudgetRefusal::MONEY | BudgetRefusal::AGENTS)
    }

    /// The amount of the limit that is not spent, including the amount reserved for attempts in
    /// flight.
    pub fn left(&self) -> u64 {
        self.cap.saturating_sub(self.spent)
    }
}

/// Billing part of a `model.usage` record: model, outcome and cost of one attempt.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Billing {
    /// Number of the attempt in the session, from 1; 0 in recovered records of versions without
    /// numbers.
    pub request: u64,
    /// Provider profile of the attempt.
    pub provider: String,
    /// The requested model.
    pub model: String,
    /// Model that the reply names as its author; `None` if it names none, or the requested one.
    pub answered_by: Option<String>,
    /// Number of the attempt for its model request, from 1. An attempt above 1 is a retry.
    pub attempt: u32,
    /// `answered`, or the reason why there is no complete reply: `cut`, `interrupted`, `crashed`, …
    pub outcome: String,
    /// Origin of the token counts of the record.
    pub counted: UsageSource,
    /// Token counts reported by the server that are implausible and therefore not used; `None` if
    /// the counts are used or there are none.
    pub claimed: Option<Usage>,
    /// Version of the price table used for the cost; `None` if no price is known.
    pub prices: Option<String>,
    /// Cost in billionths of a dollar; `None` if the price or the token counts are unknown.
    pub cost_nano_usd: Option<u64>,
    /// Amount that counts against the budget in place of the tokens and cost of this record: the
    /// reserved worst case, or an amount that the repair of a damaged journal computed. `None`: the
    /// tokens and the cost of this record count.
    pub charged: Option<Amount>,
}

/// An amount of money and of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Amount {
    /// Money in billionths of a dollar. Checkpoints of earlier versions write the name in snake
    /// case.
    #[serde(alias = "nano_usd")]
    pub nano_usd: u64,
    /// Input and output tokens.
    pub tokens: u64,
}

impl Amount {
    /// Sum of two amounts. A sum that overflows becomes the maximum.
    #[must_use]
    pub fn plus(self, other: Amount) -> Amount {
        Amount {
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }
}

/// Origin and reliability of token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider reported the numbers of input and of output tokens.
    Reported,
    /// The provider reported only one of these numbers, or counts of a reply that was then cut off.
    Partly,
    /// The provider reported neither of these numbers.
    #[default]
    Unknown,
    /// The provider reported implausible counts, or the record is not verified.
    Doubtful,
}
