//! Failed attempts of a model request: the live row shows the last one, the transcript their number
//! when the provider answers or the request ends.

use std::time::Duration;

use posse_actors::event::Event;
use posse_frontend::pluralize;

use crate::text::{clipped, sanitize, width};
use crate::theme::Role;
use crate::view::View;
use crate::view::drawing::countdown;
use crate::view::tool::age;

/// Minimum columns of the cause in the live row.
const CAUSE_COLUMNS_MIN: usize = 20;

/// Attempts of one request that failed in a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FailedAttempts {
    provider: String,
    count: u32,
    /// Cause of the last failure.
    cause: String,
    /// Time of the first failure, counted from the start of the UI.
    since: Duration,
}

impl View {
    /// Counts a failed attempt, and notes the failed ones when the provider answers or the request ends.
    pub(super) fn follow_attempts(&mut self, event: &Event, now: Duration) {
        let then = match event {
            Event::ProviderRetry { provider, attempt, cause, .. } => {
                let since = self.failed_attempts.as_ref().map_or(now, |failed| failed.since);
                self.failed_attempts = Some(FailedAttempts {
                    provider: sanitize(provider),
                    count: *attempt,
                    cause: cause_without(provider, cause),
                    since,
                });
                return;
            }
            Event::TextDelta { .. } | Event::ThinkingDelta { .. } | Event::ModelReply { .. } => {
                "then it answered"
            }
            Event::ProviderFailover { .. } => "another model follows",
            Event::InvocationCancelled { .. } => "stopped",
            Event::SessionParked { .. } | Event::InvocationFailed { .. } => "gave up",
            _ => return,
        };
        self.note_failed_attempts(then, now);
    }

    /// Adds a line about the failed attempts to the transcript, if there were any. `then`: what happened
    /// after them.
    fn note_failed_attempts(&mut self, then: &str, now: Duration) {
        let Some(failed) = self.failed_attempts.take() else { return };
        let FailedAttempts { provider, count, cause, since } = failed;
        let attempts = pluralize(u64::from(count), "attempt");
        let text =
            format!("! {provider}: {attempts} failed in {} ({cause}); {then}", age(now, since));
        self.end_text();
        self.note(Role::Warn, text);
    }

    /// Number of attempts of the request that have failed.
    pub(super) fn failed_count(&self) -> u32 {
        self.failed_attempts.as_ref().map_or(0, |failed| failed.count)
    }
}

/// The cause of a failure without the name of the provider, in one line.
fn cause_without(provider: &str, cause: &str) -> String {
    sanitize(&cause.replacen(&format!("{provider}: "), "", 1)).replace('\n', " ")
}

/// A wait for the next attempt of a model request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RetryWait {
    provider: String,
    /// Time of the next attempt, counted from the start of the UI.
    until: Duration,
    /// Patience that remains after that attempt.
    patience: Duration,
    cause: String,
}

impl RetryWait {
    /// The wait that an event announces; `None` for other events.
    pub(super) fn of(event: &Event, now: Duration) -> Option<RetryWait> {
        let Event::ProviderWaiting { provider, wait_ms, patience_left_ms, cause, .. } = event
        else {
            return None;
        };
        Some(RetryWait {
            provider: provider.clone(),
            until: now + Duration::from_millis(*wait_ms),
            patience: Duration::from_millis(*patience_left_ms),
            cause: cause.clone(),
        })
    }

    /// The wait in one row of `columns`: the cause is cut first. `failed`: number of failed attempts;
    /// 0 if it is unknown.
    pub(super) fn text(&self, failed: u32, columns: usize, now: Duration) -> String {
        let left = self.until.saturating_sub(now);
        let attempt =
            if failed == 0 { String::new() } else { format!(" · attempt {failed} failed") };
        let next = match (left, self.patience) {
            (Duration::ZERO, _) => " · trying again".to_owned(),
            (_, Duration::ZERO) => format!(" · last retry in {}", countdown(left)),
            (_, patience) => {
                let end = age(patience + left, Duration::ZERO);
                format!(" · retry in {} · gives up in {end}", countdown(left))
            }
        };
        let head = format!("⏸ {}", sanitize(&self.provider));
        let cause = cause_without(&self.provider, &self.cause);
        let taken = width(&head) + width(&attempt) + width(&next) + 2;
        let room = columns.saturating_sub(taken).max(CAUSE_COLUMNS_MIN);
        let cause = if cause.is_empty() { cause } else { format!(": {}", clipped(&cause, room)) };
        clipped(&format!("{head}{cause}{attempt}{next}"), columns)
    }
}

#[cfg(test)]
mod tests;
