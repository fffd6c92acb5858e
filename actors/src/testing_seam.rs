//! Injection of panics into actors, for tests. In other builds it has no effect.

#[cfg(any(test, feature = "testing"))]
mod armed {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, PoisonError};

    /// Table of panics to inject: an actor panics when it handles a message of a listed kind. Each
    /// session has its own table, so that tests do not disturb each other.
    #[derive(Debug, Clone, Default)]
    pub struct FailPoints(Arc<Mutex<HashMap<String, u32>>>);

    impl FailPoints {
        /// An empty table: nothing panics.
        pub fn none() -> FailPoints {
            FailPoints::default()
        }

        /// Makes `actor` panic when it handles a message of `kind`, for the next `times` messages.
        /// Replaces an earlier number for this actor and kind.
        pub fn arm(&self, actor: &str, kind: &str, times: u32) {
            let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            points.insert(format!("{actor}::{kind}"), times);
        }

        /// Total number of panics that are still to come, for all actors and kinds.
        pub fn left(&self) -> u32 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
        }

        pub(crate) fn hit(&self, actor: &str, kind: &str) {
            let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if points.is_empty() {
                return;
            }
            let Some(left) = points.get_mut(&format!("{actor}::{kind}")) else { return };
            if *left > 0 {
                *left -= 1;
                drop(points);
                panic!("fail point {actor}::{kind}");
            }
        }
    }
}

#[cfg(any(test, feature = "testing"))]
pub use armed::FailPoints;

#[cfg(not(any(test, feature = "testing")))]
mod disarmed {
    /// Replacement without function for builds without tests: nothing panics.
    #[derive(Debug, Clone, Default)]
    pub struct FailPoints;

    impl FailPoints {
        /// The only value: nothing panics.
        pub fn none() -> FailPoints {
            FailPoints
        }

        #[inline]
        #[expect(clippy::unused_self, reason = "the same shape as in tests")]
        pub(crate) fn hit(&self, _actor: &str, _kind: &str) {}
    }
}

#[cfg(not(any(test, feature = "testing")))]
pub use disarmed::FailPoints;
