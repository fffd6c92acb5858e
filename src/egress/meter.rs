//! Bytes that a session sends to each domain, and their limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Mutex as AsyncMutex;

use crate::lock::lock;

/// Maximum number of domains with a meter of their own. Further ones share one.
const METERS_MAX: usize = 4096;

/// Counters of the bytes that a session has sent, by domain.
#[derive(Debug)]
pub(crate) struct UploadMeters {
    limit: u64,
    meters: Mutex<HashMap<String, Arc<UploadMeter>>>,
}

/// Counter of the bytes that a session has sent to a domain.
#[derive(Debug)]
pub(crate) struct UploadMeter {
    state: Mutex<Spent>,
    /// Held while a person is asked, so that parallel connections ask once.
    pub(crate) asking: AsyncMutex<()>,
}

#[derive(Debug)]
struct Spent {
    sent: u64,
    allowance: u64,
}

impl UploadMeters {
    pub(crate) fn new(limit: u64) -> UploadMeters {
        UploadMeters { limit, meters: Mutex::default() }
    }

    /// The limit of a domain until a person allows more.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the counter of `host`.
    pub(crate) fn of(&self, host: &str) -> Arc<UploadMeter> {
        let mut meters = lock(&self.meters);
        let is_full = meters.len() >= METERS_MAX && !meters.contains_key(host);
        let host = if is_full { "" } else { host };
        let new = || {
            let state = Mutex::new(Spent { sent: 0, allowance: self.limit });
            Arc::new(UploadMeter { state, asking: AsyncMutex::default() })
        };
        Arc::clone(meters.entry(host.to_owned()).or_insert_with(new))
    }
}

impl UploadMeter {
    /// Counts `bytes` that are about to be sent, and returns true; counts nothing and returns false
    /// if they exceed what is allowed.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        let total = state.sent.saturating_add(bytes);
        let fits = total <= state.allowance;
        if fits {
            state.sent = total;
        }
        fits
    }

    /// Number of bytes that were sent.
    pub(crate) fn sent(&self) -> u64 {
        lock(&self.state).sent
    }

    /// Allows `more` bytes from now on.
    pub(crate) fn allow(&self, more: u64) {
        let mut state = lock(&self.state);
        state.allowance = state.sent.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_the_limit_of_their_domain() {
        let meters = UploadMeters::new(10);
        let meter = meters.of("a.example");
        assert!(meter.take(10) && !meter.take(1));
        assert!(!meters.of("a.example").take(1) && meters.of("b.example").take(10));
        meter.allow(5);
        assert!(meter.take(5) && !meter.take(1));
        assert_eq!(meter.sent(), 15);
        meter.allow(u64::MAX);
        assert!(meter.take(u64::MAX - 15));
    }

    #[test]
    fn the_number_of_meters_is_bounded() {
        let meters = UploadMeters::new(1);
        for number in 0..METERS_MAX + 10 {
            meters.of(&number.to_string());
        }
        assert!(meters.meters.lock().unwrap().len() <= METERS_MAX + 1);
        let last = meters.of("another");
        assert!(last.take(1) && !meters.of("a third").take(1), "they share one");
    }
}
