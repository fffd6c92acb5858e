//! One tool call, from the model's wish to its recorded outcome.

mod review;

pub use review::PermittedCall;
#[cfg(any(test, feature = "testing"))]
pub use review::permit_for_test;
