//! Circuit breaker with a queue, one per model. Pure; times are monotonic.
//!
//! While the model answers, requests pass at once. After some failures in a row the breaker opens:
//! one request at a time probes, at long intervals. The first sign of life closes it step by step:
//! for two more requests, and two more after each of these, so that waiting requests do not return
//! all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A request, in the order of arrival.
pub(crate) type RequestKey = u64;

/// Limits of a breaker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BreakerBounds {
    /// Failures in a row that shut the gate.
    pub(crate) failures_max: u32,
    /// Between two probes at least.
    pub(crate) probe_interval: Duration,
}

/// Requests that may be out before the gate counts as open.
const ROOM_MAX: usize = 64;

/// Wait limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitLimits {
    /// Earliest time of its turn.
    pub(crate) not_before: Duration,
    /// Latest time of its turn; after it, the request gives up.
    pub(crate) until: Duration,
    /// Time of a last attempt if its turn would come after `until`, but not before this. `None`: no
    /// last attempt, because a fallback is available.
    pub(crate) last: Option<Duration>,
}

/// Decision about a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Ask(RequestKey),
    /// There will be no turn in time. The next one would be then, if that is known.
    GiveUp(RequestKey, Option<Duration>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open {
        failures: u32,
    },
    /// Open: no request before `until`, then one probe.
    Shut {
        until: Duration,
        /// Wait requested by the server: also no last attempt before this.
        bar: Duration,
        round: u32,
    },
    Probing {
        key: RequestKey,
        since: Duration,
        round: u32,
    },
    /// Half-open: maximum number of requests in flight.
    Opening {
        room: usize,
        round: u32,
    },
}

#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    bounds: BreakerBounds,
    gate: Gate,
    /// Time of the last probe.
    probed: Option<Duration>,
    out: BTreeSet<RequestKey>,
    waiting: BTreeMap<RequestKey, WaitLimits>,
}

impl CircuitBreaker {
    pub(crate) fn new(bounds: BreakerBounds) -> CircuitBreaker {
        let gate = Gate::Open { failures: 0 };
        CircuitBreaker {
            bounds,
            gate,
            probed: None,
            out: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Breaker in unknown state: one request probes first.
    pub(crate) fn half_open(bounds: BreakerBounds, now: Duration) -> CircuitBreaker {
        let gate = Gate::Shut { until: now, bar: now, round: 0 };
        CircuitBreaker { gate, ..CircuitBreaker::new(bounds) }
    }

    /// Failed rounds since the gate shut, those that shut it included.
    pub(crate) fn rounds(&self) -> u32 {
        match self.gate {
            Gate::Open { failures } => failures,
            Gate::Shut { round, .. }
            | Gate::Probing { round, .. }
            | Gate::Opening { round, .. } => self.bounds.failures_max.saturating_add(round),
        }
    }

    pub(crate) fn wait(&mut self, key: RequestKey, waiting: WaitLimits) {
        self.out.remove(&key);
        self.waiting.insert(key, waiting);
    }

    /// Expected turn of `key`, if known.
    pub(crate) fn turn_of(&self, key: RequestKey) -> Option<Duration> {
        self.earliest(self.waiting.get(&key)?)
    }

    fn earliest(&self, waiting: &WaitLimits) -> Option<Duration> {
        let turn = self.regular(waiting)?;
        Some(if turn > waiting.until && self.has_last(waiting) { waiting.until } else { turn })
    }

    /// True if a request whose turn would come too late may make a last attempt. The probe interval
    /// and the server's wait still apply.
    fn has_last(&self, waiting: &WaitLimits) -> bool {
        let WaitLimits { until, last, not_before: _ } = *waiting;
        let allowed = last.is_some_and(|last| last <= until);
        let is_rare = || {
            self.probed
                .is_none_or(|probed| probed.saturating_add(self.bounds.probe_interval) <= until)
        };
        allowed
            && match self.gate {
                Gate::Open { .. } | Gate::Opening { .. } => true,
                Gate::Shut { bar, .. } => bar <= until && is_rare(),
                Gate::Probing { .. } => false,
            }
    }

    fn regular(&self, waiting: &WaitLimits) -> Option<Duration> {
        match self.gate {
            Gate::Open { .. } => Some(waiting.not_before),
            Gate::Shut { until, .. } => Some(waiting.not_before.max(until)),
            Gate::Probing { .. } => None,
            Gate::Opening { room, .. } => (self.out.len() < room).then_some(waiting.not_before),
        }
    }

    /// Next request to act now. Call until it returns none.
    pub(crate) fn turn(&mut self, now: Duration) -> Option<Admission> {
        let ready = |waiting: &WaitLimits| self.earliest(waiting).is_some_and(|at| at <= now);
        let ask = self.waiting.iter().find(|(_, waiting)| ready(waiting)).map(|(key, _)| *key);
        if let Some(key) = ask {
            self.waiting.remove(&key);
            self.out.insert(key);
            if let Gate::Shut { round, .. } = self.gate {
                self.gate = Gate::Probing { key, since: now, round };
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

    /// Time at which [`turn`](CircuitBreaker::turn) must be called again without other events.
    pub(crate) fn due(&self) -> Option<Duration> {
        let due = |waiting: &WaitLimits| self.earliest(waiting).unwrap_or(waiting.until);
        self.waiting.values().map(due).min()
    }

    /// The first of a reply has arrived.
    pub(crate) fn alive(&mut self, key: RequestKey) {
        if !self.out.contains(&key) {
            return;
        }
        match &mut self.gate {
            Gate::Open { failures } => *failures = 0,
            Gate::Probing { key: probe, round, .. } if *probe == key => {
                self.gate = Gate::Opening { room: 3, round: *round };
            }
            Gate::Opening { room, .. } => *room += 2,
            // Sent before the breaker opened; its result says nothing about the current state.
            Gate::Shut { .. } | Gate::Probing { .. } => {}
        }
        self.settle();
    }

    /// The request was answered, by a reply or by an error for which a retry is useless.
    pub(crate) fn answered(&mut self, key: RequestKey) {
        self.alive(key);
        self.out.remove(&key);
        self.settle();
    }

    /// The request failed in a way that says nothing about the next one.
    pub(crate) fn slipped(&mut self, key: RequestKey, now: Duration) {
        self.out.remove(&key);
        self.leave(key, now);
    }

    /// The request failed because the model is unavailable or busy. `wait`: its own wait; `asked`:
    /// wait that the server requests from all.
    pub(crate) fn refused(
        &mut self,
        key: RequestKey,
        wait: Duration,
        asked: Option<Duration>,
        now: Duration,
    ) {
        if !self.out.remove(&key) {
            return;
        }
        let interval = self.bounds.probe_interval;
        let until = now + asked.unwrap_or(wait).max(interval);
        let bar = now + asked.unwrap_or_default();
        self.gate = match self.gate {
            Gate::Open { failures } if failures + 1 < self.bounds.failures_max => match asked {
                Some(_) => Gate::Shut { until: bar, bar, round: 0 },
                None => Gate::Open { failures: failures + 1 },
            },
            Gate::Open { .. } => Gate::Shut { until, bar, round: 0 },
            Gate::Probing { key: probe, round, .. } if probe == key => {
                Gate::Shut { until, bar, round: round.saturating_add(1) }
            }
            Gate::Opening { round, .. } => Gate::Shut { until, bar, round },
            // One that asked before the gate shut: only the server's own words count.
            Gate::Shut { until, bar: before, round } => {
                Gate::Shut { until: until.max(bar), bar: before.max(bar), round }
            }
            probing @ Gate::Probing { .. } => probing,
        };
    }

    /// The request was cancelled.
    pub(crate) fn cancel(&mut self, key: RequestKey, now: Duration) {
        self.out.remove(&key);
        self.waiting.remove(&key);
        self.leave(key, now);
    }

    /// A probe that went without a word lets another one go, but not at once.
    fn leave(&mut self, key: RequestKey, now: Duration) {
        if let Gate::Probing { key: probe, since, round } = self.gate
            && probe == key
        {
            let until = now.max(since + self.bounds.probe_interval);
            self.gate = Gate::Shut { until, bar: now, round };
        }
        self.settle();
    }

    /// Retry on request of the user: one request may probe regardless of waits. Its result counts.
    pub(crate) fn retry_now(&mut self, now: Duration) {
        if let Gate::Shut { until, bar, .. } = &mut self.gate {
            *until = now.min(*until);
            *bar = now.min(*bar);
        }
    }

    fn settle(&mut self) {
        if let Gate::Opening { room, .. } = self.gate
            && (room >= ROOM_MAX || (self.waiting.is_empty() && self.out.is_empty()))
        {
            self.gate = Gate::Open { failures: 0 };
        }
    }
}

#[cfg(test)]
mod tests;
