//! What to do after a failed attempt: wait, or give up. Pure.

use std::time::Duration;

use crate::limits::Limits;
use crate::ports::ProviderError;

/// What has happened to one request so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// Attempts made.
    pub(crate) made: u32,
    /// How many of them ended in a broken reply.
    pub(crate) broken: u32,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Retry { wait: Duration },
    GiveUp,
}

/// Decides after an attempt that ended in `error`. `left` is what remains of the patience, and
/// `jitter` a number in `0.0..1.0`.
pub(crate) fn decide(
    error: &ProviderError,
    attempts: Attempts,
    left: Duration,
    limits: &Limits,
    jitter: f64,
) -> Decision {
    let wait = match error {
        // Less than our own first wait is not advice but an invitation to hammer.
        ProviderError::Overloaded { retry_after: Some(asked), .. }
            if *asked >= limits.backoff_first =>
        {
            (*asked).min(limits.backoff_max)
        }
        ProviderError::Overloaded { .. } | ProviderError::Unreachable { .. } => {
            backoff(attempts.made, limits, jitter)
        }
        ProviderError::Broken { .. } if attempts.broken <= limits.broken_replies_max => {
            limits.backoff_first.mul_f64(jitter)
        }
        ProviderError::Broken { .. }
        | ProviderError::ContextFull { .. }
        | ProviderError::Unauthorized { .. }
        | ProviderError::QuotaExhausted { .. }
        | ProviderError::Rejected { .. }
        | ProviderError::Unasked { .. } => return Decision::GiveUp,
    };
    if wait > left { Decision::GiveUp } else { Decision::Retry { wait } }
}

/// Doubles from the first wait up to the longest, with the upper half spread: callers that failed
/// together do not come back together.
fn backoff(made: u32, limits: &Limits, jitter: f64) -> Duration {
    let doublings = made.saturating_sub(1).min(16);
    let whole = limits.backoff_first.saturating_mul(1 << doublings).min(limits.backoff_max);
    whole.mul_f64(0.5 + jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn overloaded(retry_after: Option<Duration>) -> ProviderError {
        ProviderError::Overloaded { retry_after, source: "busy".into() }
    }

    fn waits(error: &ProviderError, left: Duration) -> Vec<Option<Duration>> {
        let limits = Limits::default();
        let wait = |made| match decide(error, Attempts { made, broken: made }, left, &limits, 1.0) {
            Decision::Retry { wait } => Some(wait),
            Decision::GiveUp => None,
        };
        [1, 2, 3, 6].map(wait).to_vec()
    }

    #[test]
    fn waits_longer_each_time_and_not_beyond_the_patience() {
        assert_eq!(
            waits(&overloaded(None), 10 * SECOND),
            [Some(SECOND), Some(2 * SECOND), Some(4 * SECOND), None]
        );
    }

    #[test]
    fn does_as_the_provider_asks_within_reason() {
        assert_eq!(waits(&overloaded(Some(7 * SECOND)), 40 * SECOND), [Some(7 * SECOND); 4]);
        assert_eq!(waits(&overloaded(Some(3600 * SECOND)), 40 * SECOND), [Some(30 * SECOND); 4]);
    }

    #[test]
    fn does_not_hammer_a_provider_that_asks_for_it() {
        let own = waits(&overloaded(None), 40 * SECOND);
        assert_eq!(waits(&overloaded(Some(Duration::ZERO)), 40 * SECOND), own);
        assert_eq!(waits(&overloaded(Some(Duration::from_millis(1))), 40 * SECOND), own);
    }

    #[test]
    fn tries_a_broken_reply_once_more() {
        let broken = ProviderError::Broken { partial: String::new(), source: "cut".into() };
        assert_eq!(waits(&broken, 10 * SECOND), [Some(SECOND), None, None, None]);
    }

    #[test]
    fn does_not_repeat_what_cannot_help() {
        let hopeless = [
            ProviderError::ContextFull { source: "x".into() },
            ProviderError::Unauthorized { source: "x".into() },
            ProviderError::QuotaExhausted { retry_after: None, source: "x".into() },
            ProviderError::Rejected { source: "x".into() },
            ProviderError::Unasked { class: ProviderError::NO_VISION, source: "x".into() },
        ];
        for error in &hopeless {
            assert_eq!(waits(error, 60 * SECOND), [None; 4], "{}", error.class());
        }
    }
}
