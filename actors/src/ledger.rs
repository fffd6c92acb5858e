//! Accounting of tokens and cost of a session, and a budget that reserves the worst case of each
//! attempt before it is sent.
//!
//! Each attempt on which a model worked or may have worked has one usage record in the accounts. A
//! model request with retries has several.

mod accounts;
mod budget_handle;
mod budget_keeper;
mod model_mismatch;
mod recover_usage;
mod report;
mod reservations;
mod token_calibration;

pub(crate) use accounts::tokens;
pub use accounts::{Account, Accounts};
pub use recover_usage::{LOST_REPLY, RecoveredUsage, UnverifiedRecord, UnverifiedRecords};
pub use report::aligned;
pub use reservations::{ReservationResult, Reservations, WorstCaseCost};

pub(crate) use budget_handle::{BudgetHandle, BudgetMsg, HeldReservation};
pub(crate) use budget_keeper::BudgetKeeper;
pub(crate) use model_mismatch::is_another;
pub(crate) use token_calibration::TokenCalibration;
