//! A mutex that outlives the panic of a thread that held it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex whose content stays usable after a panic: actors that crash share state with their
/// successors.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T>(Mutex<T>);

impl<T> Guarded<T> {
    pub(crate) fn new(content: T) -> Guarded<T> {
        Guarded(Mutex::new(content))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
