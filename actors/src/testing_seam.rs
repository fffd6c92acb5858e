//! Panic injection for tests. Compiled to nothing otherwise.

#[cfg(any(test, feature = "testing"))]
mod armed {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, PoisonError};

    /// Panics an actor when it handles a message of a given kind. Belongs to one session, so
    /// tests do not disturb each other.
    #[derive(Debug, Clone, Default)]
    pub struct FailPoints(Arc<Mutex<HashMap<String, u32>>>);

    impl FailPoints {
        /// No fail points.
        pub fn none() -> FailPoints {
            FailPoints::default()
        }

        /// Makes `actor` panic the next `times` times it handles a message of `kind`.
        pub fn arm(&self, actor: &str, kind: &str, times: u32) {
            let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            points.insert(format!("{actor}::{kind}"), times);
        }

        /// Number of panics that have not happened yet.
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
    /// No injected failures.
    #[derive(Debug, Clone, Default)]
    pub struct FailPoints;

    impl FailPoints {
        /// No fail points.
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
