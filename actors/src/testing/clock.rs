//! Clocks for tests: one that the test advances, and one that follows tokio's clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::ports::{Clock, PortFuture};

/// Clock that stands still until the test advances it. Both of its clocks begin at 0, and its
/// jitter is 1 unless it was [`seeded`](ManualClock::seeded).
#[derive(Debug, Default)]
pub struct ManualClock(Mutex<ClockState>);

#[derive(Debug, Default)]
struct ClockState {
    now: Duration,
    /// Time of the wall clock minus the monotonic time, in milliseconds.
    ahead_ms: u64,
    /// State of the random numbers for jitter; if 0, the jitter is always 1.
    seed: u64,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
}

impl ManualClock {
    /// Advances both clocks by `by` and wakes the sleepers that are due.
    pub fn advance(&self, by: Duration) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now += by;
        let now = inner.now;
        for (_, wake) in inner.sleepers.extract_if(.., |(until, _)| *until <= now) {
            wake.send(()).ok();
        }
    }

    /// Sets the wall clock to the monotonic time plus `ms` milliseconds; the monotonic clock does
    /// not change.
    pub fn set_ahead(&self, ms: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ahead_ms = ms;
    }

    /// Creates a clock with random jitter, which is the same for the same `seed`.
    pub fn seeded(seed: u64) -> ManualClock {
        ManualClock(Mutex::new(ClockState { seed: seed.max(1), ..ClockState::default() }))
    }

    /// Time until the next wait is due; `None` if nothing waits. Cancelled waits do not count.
    pub fn next_wake(&self) -> Option<Duration> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sleepers.retain(|(_, wake)| !wake.is_closed());
        let next = inner.sleepers.iter().map(|(until, _)| *until).min()?;
        Some(next.saturating_sub(inner.now))
    }

    /// Number of waits that are neither over nor cancelled.
    pub fn sleepers(&self) -> usize {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sleepers.retain(|(_, wake)| !wake.is_closed());
        inner.sleepers.len()
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).now
    }

    fn wall_ms(&self) -> u64 {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        u64::try_from(inner.now.as_millis()).unwrap_or(u64::MAX).saturating_add(inner.ahead_ms)
    }

    fn sleep(&self, duration: Duration) -> PortFuture<()> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (wake, woken) = oneshot::channel();
        let until = inner.now + duration;
        inner.sleepers.push((until, wake));
        Box::pin(async move {
            woken.await.ok();
        })
    }

    fn jitter(&self) -> f64 {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.seed == 0 {
            return 1.0;
        }
        // xorshift
        inner.seed ^= inner.seed << 13;
        inner.seed ^= inner.seed >> 7;
        inner.seed ^= inner.seed << 17;
        f64::from(u32::try_from(inner.seed >> 32).unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Clock that follows tokio's clock, which a test may pause. Its wall clock and its jitter are
/// always 0.
#[derive(Debug)]
pub struct TokioClock {
    started: tokio::time::Instant,
}

impl Default for TokioClock {
    fn default() -> TokioClock {
        TokioClock { started: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: Duration) -> PortFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn jitter(&self) -> f64 {
        0.0
    }
}
