//! A mutex that stays usable after a thread panicked while it held the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex that ignores poisoning: if a thread panics while it holds the lock, the content can
/// still be locked. Crashed actors share state with their successors.
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
