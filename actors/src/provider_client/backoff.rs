//! Waits of a model request between its attempts, and notices about the waits.

use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::guarded::Guarded;
use crate::limits::Limits;
use crate::ports::ProviderError;
use crate::provider_client::circuit_breaker::WaitLimits;
use crate::provider_client::retry::{Attempts, absent_attempts_max};
use crate::provider_client::{InFlightRequest, ModelRequest, State};

/// Minimum wait that is announced.
const ANNOUNCED_WAIT_MIN: Duration = Duration::from_millis(500);

/// Maximum time between two notices about the same wait.
const NOTICE_INTERVAL_MAX: Duration = Duration::from_mins(1);

/// Time at which the patience of a model request ends (monotonic). Shared by invocation and client,
/// so that a crash of the client does not extend it.
#[derive(Debug, Clone)]
pub(crate) struct Deadline(Arc<Guarded<Patience>>);

#[derive(Debug)]
struct Patience {
    ends: Duration,
    /// Time (monotonic) at which the current reply began to arrive, which suspends patience; `None`
    /// while no reply arrives.
    suspended: Option<Duration>,
}

impl Deadline {
    pub(crate) fn at(ends: Duration) -> Deadline {
        Deadline(Arc::new(Guarded::new(Patience { ends, suspended: None })))
    }

    pub(crate) fn get(&self) -> Duration {
        self.0.lock().ends
    }

    /// Suspends patience at `now`, because a reply begins to arrive.
    pub(super) fn suspend(&self, now: Duration) {
        self.0.lock().suspended.get_or_insert(now);
    }

    /// Resumes patience: moves its end by the time since `suspend`. No effect if it is not
    /// suspended.
    pub(super) fn resume(&self, now: Duration) {
        let mut patience = self.0.lock();
        if let Some(since) = patience.suspended.take() {
            patience.ends += now.saturating_sub(since);
        }
    }
}

impl ModelRequest {
    /// True for the first request of a run of the main agent.
    pub(super) fn begins(&self) -> bool {
        self.turn == 1 && self.origin.parent_invocation_id.is_none()
    }

    /// Computes the limits of the wait for the next attempt, which is not made before `not_before`.
    /// If it would come after the end of patience, a last attempt is made at that end, unless that
    /// end is before `last` or has passed, or a fallback is available. All times are monotonic.
    pub(super) fn waits(&self, now: Duration, not_before: Duration, last: Duration) -> WaitLimits {
        let deadline = self.deadline.get();
        let until = self.until.map_or(deadline, |until| until.min(deadline));
        // An attempt at the end of patience is the last one.
        let last = Some(last).filter(|_| self.until.is_none() && now < deadline);
        WaitLimits { not_before, until, last }
    }
}

impl InFlightRequest {
    /// Event about the last failure, whose next attempt begins after `wait_ms` (milliseconds).
    /// `None` if there was no failure, or if this was called for it before.
    pub(super) fn retry_event(&mut self, provider: &str, wait_ms: u64) -> Option<Event> {
        let error = self.error.as_ref().filter(|_| self.unannounced)?;
        self.unannounced = false;
        Some(Event::ProviderRetry {
            provider: provider.to_owned(),
            attempt: self.attempts.made,
            cause: ProviderError::chain(error),
            class: error.class().to_owned(),
            wait_ms,
        })
    }

    /// Patience that remains after the next attempt begins at `at` (monotonic). Zero if that
    /// attempt is the last one.
    fn patience_after(&self, at: Duration, limits: &Limits) -> Duration {
        let begins = self.question.begins();
        let error = self.error.as_ref();
        let absent_max = error.and_then(|error| absent_attempts_max(error, begins, limits));
        let next = Attempts {
            made: self.attempts.made + 1,
            absent: self.attempts.absent + 1,
            ..self.attempts
        };
        if next.are_spent(absent_max, limits) {
            return Duration::ZERO;
        }
        let absent = self.absent_since.map(|since| since.saturating_add(limits.absent_patience));
        let deadline = self.question.deadline.get();
        absent.map_or(deadline, |absent| absent.min(deadline)).saturating_sub(at)
    }
}

impl State {
    /// Announces failures that are retried, and the waits of all requests that are due for a
    /// notice.
    pub(super) fn announce_waits(&mut self, now: Duration) {
        for (key, open) in &mut self.open {
            if open.work.is_some() {
                continue;
            }
            let turn =
                self.breakers.get(&open.model_name).and_then(|breaker| breaker.turn_of(*key));
            // While another request probes: the earliest possible time.
            let at = turn.unwrap_or(now + self.args.limits.probe_interval);
            let wait = at.saturating_sub(now);
            let (origin, transcript) = (Arc::clone(&open.question.origin), &self.args.transcript);
            let Some(provider) = self.args.providers.get(open.question.model) else { continue };
            let provider = provider.info().profile;
            let (class, cause) = match (&open.error, self.open_causes.get(&open.model_name)) {
                (Some(error), _) => (error.class().to_owned(), ProviderError::chain(error)),
                (None, Some((class, reason))) => {
                    let error = ProviderError::of_class(class, reason.clone().into());
                    ((*class).to_owned(), error.chain())
                }
                (None, None) => (String::new(), String::new()),
            };
            let wait_ms = millis(wait);
            let retry = open.retry_event(&provider, wait_ms);
            let is_new = retry.is_some();
            if let Some(retry) = retry {
                transcript.note(Some(&origin), retry);
            }
            let is_due = open.next_notice_at.is_some_and(|at| at <= now);
            if (is_new || is_due) && wait >= ANNOUNCED_WAIT_MIN {
                let patience_left_ms = millis(open.patience_after(at, &self.args.limits));
                let waiting =
                    Event::ProviderWaiting { provider, wait_ms, patience_left_ms, class, cause };
                transcript.note(Some(&origin), waiting);
                open.next_notice_at = next_notice(now, wait);
            } else if is_due {
                open.next_notice_at = None;
            }
        }
    }
}

/// Time of the next notice about a wait that begins at `now`: after a quarter of the duration
/// `wait`, but at least 1 second and at most 1 minute. `None` if the wait ends before.
fn next_notice(now: Duration, wait: Duration) -> Option<Duration> {
    let apart = (wait / 4).clamp(Duration::from_secs(1), NOTICE_INTERVAL_MAX);
    (apart < wait).then_some(now + apart)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
