//! Costs of requests: prices, accounts, and a budget that no request can exceed.
//!
//! Each request that a model worked on has one line in the accounts. Money is counted in whole
//! billionths of a dollar, so sums do not depend on their order. Unknown values are never taken for
//! zero.

mod accounts;
mod budget_handle;
mod budget_keeper;
mod model_mismatch;
mod pricing;
mod recover_usage;
mod report;
mod request_meter;
mod reservations;
mod token_calibration;

pub(crate) use accounts::tokens;
pub use accounts::{Account, Accounts, Billing, UsageSource};
pub use pricing::{ModelPricing, PriceLookup, TokenRates, dollars, usd};
pub use recover_usage::{LOST_REPLY, RecoveredUsage, UnverifiedRecord, UnverifiedRecords};
pub use report::aligned;
pub use reservations::{
    Amount, Budget, BudgetRefusal, ReservationResult, Reservations, WorstCaseCost,
};

pub(crate) use budget_handle::BudgetHandle;
pub(crate) use budget_keeper::{BudgetKeeper, BudgetMsg};
pub(crate) use request_meter::{MeterArgs, MeteredReply, RequestMeter};
pub(crate) use token_calibration::TokenCalibration;
