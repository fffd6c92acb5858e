//! What requests cost: prices, accounts, and a budget that no request can break.
//!
//! Each request that a model worked on has one line in the accounts, however it ended. Money is
//! counted in whole billionths of a dollar, so that sums do not depend on their order. What is
//! unknown is never taken for zero.

mod accounts;
mod book;
mod budget_handle;
mod budget_keeper;
mod estimate;
mod meter;
mod price;
mod report;
mod salvage;
mod stranger;

pub(crate) use accounts::tokens;
pub use accounts::{Account, Accounts, Billing, Counted};
pub use book::{Amount, Answer, Budget, Ledger, Need, Refused};
pub use price::{Price, Rates, Tariff, dollars, usd};
pub use report::aligned;
pub use salvage::{Doubted, LOST_REPLY, Salvaged, Unproved};

pub(crate) use budget_handle::BudgetHandle;
pub(crate) use budget_keeper::{BudgetKeeper, BudgetMsg};
pub(crate) use estimate::Gauge;
pub(crate) use meter::{Answered, Meter, MeterArgs};
