//! Circuit breaker with a queue of requests, one per model. Pure; times are monotonic.
//!
//! While the model answers, requests pass at once. After some failures in a row, or when the server
//! requests a wait, the breaker opens: a single request at a time probes the model, at intervals.
//! When the reply to a probe begins to arrive, the breaker becomes half-open and admits a few
//! requests; each further reply admits two more, so that the waiting requests do not return all at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Key of a model request in its provider client, the same for all its attempts. Later requests
/// have higher keys. Not the attempt number of the ledger.
pub(crate) type RequestKey = u64;

/// Failure threshold and probe interval of a circuit breaker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BreakerBounds {
    /// Consecutive failures that open the breaker.
    pub(crate) failures_max: u32,
    /// Minimum interval between two probes.
    pub(crate) probe_interval: Duration,
}

/// Permitted number of requests in flight at which a half-open breaker closes.
const HALF_OPEN_IN_FLIGHT_MAX: usize = 64;

/// Time limits of a waiting request (monotonic).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitLimits {
    /// Earliest time (monotonic) of its next attempt.
    pub(crate) not_before: Duration,
    /// Latest time (monotonic) of its next attempt. If the turn of the request would come later,
    /// the request is given up, unless `last` allows a last attempt.
    pub(crate) until: Duration,
    /// If the turn would come after `until`, the request may make a last attempt at `until`,
    /// provided that `last <= until` (monotonic). `None`: no last attempt, because a fallback is
    /// available or patience has ended.
    pub(crate) last: Option<Duration>,
}

/// Decision about a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Ask(RequestKey),
    /// Give the request up, because its turn comes too late. The time (monotonic) is that of its
    /// turn; `None` if unknown.
    GiveUp(RequestKey, Option<Duration>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerState {
    /// Closed: requests pass at once. `failures`: number of consecutive failures so far.
    Closed { failures: u32 },
    /// Open: no attempt before `until`, then one probe. `round`: number of failed probes.
    Open {
        until: Duration,
        /// End of the wait that the server requested: even a last attempt is not made before it.
        server_until: Duration,
        round: u32,
    },
    /// One probe is in flight, since the time `since`.
    Probing { key: RequestKey, since: Duration, round: u32 },
    /// Half-open: at most `in_flight_max` requests may be in flight.
    HalfOpen { in_flight_max: usize, round: u32 },
}

#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    bounds: BreakerBounds,
    state: BreakerState,
    /// Time of the last probe; `None` before the first.
    probed: Option<Duration>,
    in_flight: BTreeSet<RequestKey>,
    waiting: BTreeMap<RequestKey, WaitLimits>,
}

impl CircuitBreaker {
    pub(crate) fn new(bounds: BreakerBounds) -> CircuitBreaker {
        let state = BreakerState::Closed { failures: 0 };
        CircuitBreaker {
            bounds,
            state,
            probed: None,
            in_flight: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Creates an open breaker for a model whose availability is unknown: one request may probe it
    /// at once, the others wait for its reply.
    pub(crate) fn half_open(bounds: BreakerBounds, now: Duration) -> CircuitBreaker {
        let state = BreakerState::Open { until: now, server_until: now, round: 0 };
        CircuitBreaker { state, ..CircuitBreaker::new(bounds) }
    }

    /// Number of consecutive failures. A breaker that is not closed counts as `failures_max`, also
    /// if it opened for another reason, plus the failed probes since.
    pub(crate) fn rounds(&self) -> u32 {
        match self.state {
            BreakerState::Closed { failures } => failures,
            BreakerState::Open { round, .. }
            | BreakerState::Probing { round, .. }
            | BreakerState::HalfOpen { round, .. } => {
                self.bounds.failures_max.saturating_add(round)
            }
        }
    }

    pub(crate) fn wait(&mut self, key: RequestKey, waiting: WaitLimits) {
        self.in_flight.remove(&key);
        self.waiting.insert(key, waiting);
    }

    /// Expected time (monotonic) of the next attempt of the waiting request `key`. `None` if
    /// unknown, because the attempt depends on those in flight, or if `key` does not wait.
    pub(crate) fn turn_of(&self, key: RequestKey) -> Option<Duration> {
        self.earliest(self.waiting.get(&key)?)
    }

    fn earliest(&self, waiting: &WaitLimits) -> Option<Duration> {
        let turn = self.regular(waiting)?;
        Some(if turn > waiting.until && self.has_last(waiting) { waiting.until } else { turn })
    }

    /// True if a request whose turn would come after `until` may make a last attempt at `until`.
    /// The interval between probes and the wait requested by the server still apply.
    fn has_last(&self, waiting: &WaitLimits) -> bool {
        let WaitLimits { until, last, not_before: _ } = *waiting;
        let allowed = last.is_some_and(|last| last <= until);
        let is_rare = || {
            self.probed
                .is_none_or(|probed| probed.saturating_add(self.bounds.probe_interval) <= until)
        };
        allowed
            && match self.state {
                BreakerState::Closed { .. } | BreakerState::HalfOpen { .. } => true,
                BreakerState::Open { server_until, .. } => server_until <= until && is_rare(),
                BreakerState::Probing { .. } => false,
            }
    }

    fn regular(&self, waiting: &WaitLimits) -> Option<Duration> {
        match self.state {
            BreakerState::Closed { .. } => Some(waiting.not_before),
            BreakerState::Open { until, .. } => Some(waiting.not_before.max(until)),
            BreakerState::Probing { .. } => None,
            BreakerState::HalfOpen { in_flight_max, .. } => {
                (self.in_flight.len() < in_flight_max).then_some(waiting.not_before)
            }
        }
    }

    /// Returns the next request that must be sent or given up at `now`. To be called until it
    /// returns `None`.
    pub(crate) fn turn(&mut self, now: Duration) -> Option<Admission> {
        let ready = |waiting: &WaitLimits| self.earliest(waiting).is_some_and(|at| at <= now);
        let ask = self.waiting.iter().find(|(_, waiting)| ready(waiting)).map(|(key, _)| *key);
        if let Some(key) = ask {
            self.waiting.remove(&key);
            self.in_flight.insert(key);
            if let BreakerState::Open { round, .. } = self.state {
                self.state = BreakerState::Probing { key, since: now, round };
                self.probed = Some(now);
            }
            return Some(Admission::Ask(key));
        }
        let hopeless = |waiting: &WaitLimits| match self.earliest(waiting) {
            Some(at) => at > waiting.until,
            None => waiting.until <= now,
        };
        let key = *self.waiting.iter().find(|(_, waiting)| hopeless(waiting))?.0;
        let waiting = self.waiting.remove(&key)?;
        Some(Admission::GiveUp(key, self.earliest(&waiting)))
    }

    /// Time (monotonic) at which [`turn`](CircuitBreaker::turn) must be called again if nothing
    /// else happens; `None` if no request waits.
    pub(crate) fn due(&self) -> Option<Duration> {
        let due = |waiting: &WaitLimits| self.earliest(waiting).unwrap_or(waiting.until);
        self.waiting.values().map(due).min()
    }

    /// Notes that the reply to the request `key` begins to arrive: the model is available.
    pub(crate) fn alive(&mut self, key: RequestKey) {
        if !self.in_flight.contains(&key) {
            return;
        }
        match &mut self.state {
            BreakerState::Closed { failures } => *failures = 0,
            BreakerState::Probing { key: probe, round, .. } if *probe == key => {
                self.state = BreakerState::HalfOpen { in_flight_max: 3, round: *round };
            }
            BreakerState::HalfOpen { in_flight_max, .. } => *in_flight_max += 2,
            // Sent before the breaker opened; its result says nothing about the current state.
            BreakerState::Open { .. } | BreakerState::Probing { .. } => {}
        }
        self.settle();
    }

    /// Ends the request `key`, which got a reply, or an error for which a retry is useless. Both
    /// show that the model is available.
    pub(crate) fn answered(&mut self, key: RequestKey) {
        self.alive(key);
        self.in_flight.remove(&key);
        self.settle();
    }

    /// Ends an attempt of the request `key`, which failed for a reason that does not concern other
    /// requests: an unusable reply, or one that was cut off.
    pub(crate) fn failed_alone(&mut self, key: RequestKey, now: Duration) {
        self.in_flight.remove(&key);
        self.abandon(key, now);
    }

    /// Ends an attempt of the request `key`, which failed because the model is overloaded, over a
    /// rate limit or quota, or unreachable. No effect if it is not in flight. `wait`: the backoff
    /// of this request; `asked`: wait that the server requests from all.
    pub(crate) fn refused(
        &mut self,
        key: RequestKey,
        wait: Duration,
        asked: Option<Duration>,
        now: Duration,
    ) {
        if !self.in_flight.remove(&key) {
            return;
        }
        let interval = self.bounds.probe_interval;
        let until = now + asked.unwrap_or(wait).max(interval);
        let server_until = now + asked.unwrap_or_default();
        self.state = match self.state {
            BreakerState::Closed { failures } if failures + 1 < self.bounds.failures_max => {
                match asked {
                    Some(_) => BreakerState::Open { until: server_until, server_until, round: 0 },
                    None => BreakerState::Closed { failures: failures + 1 },
                }
            }
            BreakerState::Closed { .. } => BreakerState::Open { until, server_until, round: 0 },
            BreakerState::Probing { key: probe, round, .. } if probe == key => {
                BreakerState::Open { until, server_until, round: round.saturating_add(1) }
            }
            BreakerState::HalfOpen { round, .. } => {
                BreakerState::Open { until, server_until, round }
            }
            // Sent before the breaker opened: only the wait requested by the server counts.
            BreakerState::Open { until, server_until: before, round } => BreakerState::Open {
                until: until.max(server_until),
                server_until: before.max(server_until),
                round,
            },
            probing @ BreakerState::Probing { .. } => probing,
        };
    }

    /// Removes the request `key`, which was cancelled.
    pub(crate) fn cancel(&mut self, key: RequestKey, now: Duration) {
        self.in_flight.remove(&key);
        self.waiting.remove(&key);
        self.abandon(key, now);
    }

    /// If the request `key` was the probe and ends without a result, opens the breaker again, so
    /// that another probe follows after the interval.
    fn abandon(&mut self, key: RequestKey, now: Duration) {
        if let BreakerState::Probing { key: probe, since, round } = self.state
            && probe == key
        {
            let until = now.max(since + self.bounds.probe_interval);
            self.state = BreakerState::Open { until, server_until: now, round };
        }
        self.settle();
    }

    /// Ends the wait of an open breaker, because the user wants an attempt: one request whose own
    /// backoff is over may probe now.
    pub(crate) fn retry_now(&mut self, now: Duration) {
        if let BreakerState::Open { until, server_until, .. } = &mut self.state {
            *until = now.min(*until);
            *server_until = now.min(*server_until);
        }
    }

    /// Closes the breaker and forgets the failures, unless another request waits or is in flight.
    pub(crate) fn reset_if_idle(&mut self) {
        if self.waiting.is_empty() && self.in_flight.is_empty() {
            *self = CircuitBreaker::new(self.bounds);
        }
    }

    fn settle(&mut self) {
        if let BreakerState::HalfOpen { in_flight_max, .. } = self.state
            && (in_flight_max >= HALF_OPEN_IN_FLIGHT_MAX
                || (self.waiting.is_empty() && self.in_flight.is_empty()))
        {
            self.state = BreakerState::Closed { failures: 0 };
        }
    }
}

#[cfg(test)]
mod tests;
