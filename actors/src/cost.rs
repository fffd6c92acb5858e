//! Prices, budgets, and the billing part of a record.
//!
//! Money is counted in whole billionths of a dollar, so sums do not depend on their order. Unknown
//! values are never taken for zero.

mod pricing;

use serde::{Deserialize, Serialize};

use crate::conversation::Usage;

pub use pricing::{ModelPricing, PriceLookup, TokenRates, dollars, usd};
pub(crate) use pricing::{PICO_IN_NANO, nano, part};

/// Limits of a session. `None` means no limit.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Billionths of a dollar.
    pub nano_usd: Option<u64>,
    /// Tokens, read and written.
    pub tokens: Option<u64>,
}

impl Budget {
    /// True if there is any limit.
    pub fn is_limited(&self) -> bool {
        self.nano_usd.is_some() || self.tokens.is_some()
    }

    /// True if there is no limit.
    pub fn is_unlimited(&self) -> bool {
        !self.is_limited()
    }
}

/// Refusal of a request that does not fit into the budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the budget has no room for another request")]
pub struct BudgetRefusal {
    /// The limit's name in the configuration.
    pub limit: &'static str,
    /// The limit: billionths of a dollar, or tokens.
    pub cap: u64,
    /// Spent amount; requests of unknown cost count as their worst case.
    pub spent: u64,
    /// Worst case of the refused request.
    pub needed: u64,
}

impl BudgetRefusal {
    /// The money that a session may cost.
    pub const MONEY: &'static str = "budget.maxCostMicroUsd";
    /// The tokens that it may use.
    pub const TOKENS: &'static str = "budget.maxTokens";
    /// The money that agents may cost that work for others; of one of them, its share.
    pub const AGENTS: &'static str = "delegation.maxCostMicroUsd";

    /// True if the limit is one of money.
    pub fn is_money(&self) -> bool {
        matches!(self.limit, BudgetRefusal::MONEY | BudgetRefusal::AGENTS)
    }

    /// Remaining amount.
    pub fn left(&self) -> u64 {
        self.cap.saturating_sub(self.spent)
    }
}

/// Billing part of a `model.usage` record: model, outcome and cost of one request.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Billing {
    /// Its number in the session, from 1.
    pub request: u64,
    /// The provider profile.
    pub provider: String,
    /// The model that was asked.
    pub model: String,
    /// The model that answered, if that is another.
    pub answered_by: Option<String>,
    /// Number of the attempt within its turn, from 1; above 1 it is a retry.
    pub attempt: u32,
    /// `answered`, or why there is no answer: `cut`, `interrupted`, `crashed`, …
    pub outcome: String,
    /// Source of the figures.
    pub counted: UsageSource,
    /// Figures reported by the server, if they are implausible.
    pub claimed: Option<Usage>,
    /// Price table that was used, if prices are known.
    pub prices: Option<String>,
    /// Cost in billionths of a dollar, if known.
    pub cost_nano_usd: Option<u64>,
    /// Amount that counts against the budget if it is not the cost: the worst case.
    pub charged: Option<Amount>,
}

/// Money and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Amount {
    /// Billionths of a dollar. Checkpoints of earlier versions have the other name.
    #[serde(alias = "nano_usd")]
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

/// Source of token figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider reported them.
    Reported,
    /// Reported in part, then the reply was cut off.
    Partly,
    /// Not reported.
    #[default]
    Unknown,
    /// Reported but implausible.
    Doubtful,
}
