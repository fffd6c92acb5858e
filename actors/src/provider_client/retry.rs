//! Retry policy: decides after a failed attempt whether it is repeated, and when. Pure.

use std::time::Duration;

use crate::context::WindowCheck;
use crate::conversation::StopReason;
use crate::limits::Limits;
use crate::ports::{Completion, ProviderError};

/// Counters of the attempts of one model request so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// Number of attempts.
    pub(crate) made: u32,
    /// Number of attempts with an invalid or empty reply, or with a response that is not from the
    /// provider.
    pub(crate) broken: u32,
    /// Number of attempts with a reply that was cut off.
    pub(crate) cut: u32,
    /// Number of attempts with a reply that repeated itself without end.
    pub(crate) repeating: u32,
    /// Number of attempts that were refused as overloaded or over the rate limit, or got no
    /// response.
    pub(crate) refused: u32,
    /// Number of attempts since the last one that reached the provider.
    pub(crate) absent: u32,
}

impl Attempts {
    /// True if the maximum number of attempts is reached. `absent_max`: see
    /// [`absent_attempts_max`].
    pub(crate) fn are_spent(&self, absent_max: Option<u32>, limits: &Limits) -> bool {
        limits.attempts_max.is_some_and(|max| self.made >= max.max(1))
            || absent_max.is_some_and(|max| self.absent >= max.max(1))
    }

    /// Counts an attempt that failed with `error`.
    pub(crate) fn count(&mut self, error: &ProviderError) {
        self.absent = if error.is_absence() { self.absent + 1 } else { 0 };
        match error {
            ProviderError::Broken { .. }
            | ProviderError::Empty { .. }
            | ProviderError::NotTheProvider { .. } => self.broken += 1,
            ProviderError::Cut { .. } => self.cut += 1,
            ProviderError::Repeating { .. } => self.repeating += 1,
            ProviderError::Overloaded { .. }
            | ProviderError::RateLimited { .. }
            | ProviderError::NoServer { .. }
            | ProviderError::Unreachable { .. } => self.refused += 1,
            ProviderError::QuotaExhausted { .. }
            | ProviderError::ContextFull { .. }
            | ProviderError::Unauthorized { .. }
            | ProviderError::Filtered { .. }
            | ProviderError::Rejected { .. }
            | ProviderError::Unasked { .. } => {}
        }
    }
}

/// Maximum number of consecutive attempts that fail like `error`, because waiting is unlikely to
/// help: the address is wrong, or the server was not started. `None`: no such limit. `begins`: true
/// for the first request of a run; a server that has replied before is likely to come back.
pub(crate) fn absent_attempts_max(
    error: &ProviderError,
    begins: bool,
    limits: &Limits,
) -> Option<u32> {
    limits.absent_attempts_max.filter(|_| begins && error.is_absence())
}

/// The error for a reply of the provider `profile` that ended normally without text and calls;
/// `None` for any other reply.
pub(crate) fn empty_reply(completion: &Completion, profile: &str) -> Option<ProviderError> {
    let Completion { message, stop_reason, .. } = completion;
    let is_whole = matches!(stop_reason, StopReason::EndTurn | StopReason::ToolUse);
    if !is_whole || !message.is_empty() {
        return None;
    }
    let what = if message.reasoning.is_some() {
        "it has reasoning, but no text and no tool call"
    } else {
        "it has no text and no tool call"
    };
    Some(ProviderError::Empty { source: format!("{profile}: {what}").into() })
}

/// Converts an empty reply to a request near the context window into an overflow: the server had no
/// space for a reply. An empty reply to a streamed attempt stays, because the next attempt, without
/// streaming, may tell the cause. Every other error stays, too.
pub(crate) fn overflow_if_near(
    error: ProviderError,
    streamed: bool,
    size: Option<&WindowCheck>,
) -> ProviderError {
    let ProviderError::Empty { source } = error else { return error };
    if streamed || !size.is_some_and(WindowCheck::is_near) {
        return ProviderError::Empty { source };
    }
    let what = format!("{source}, and the request is near the context window");
    ProviderError::ContextFull { source: what.into() }
}

/// Decision after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Retry after `wait`. The failure does not concern other requests: an invalid reply, one that
    /// was cut off or repeated itself, or a response that is not from the provider.
    Again { wait: Duration },
    /// The model is unavailable, also for other requests. Retry after the wait `asked` that the
    /// server requests from all (after an exhausted quota with a random addition), or, if it is
    /// `None`, after `wait`.
    Refused { wait: Duration, asked: Option<Duration> },
    /// Do not retry.
    Final,
}

/// Decides after an attempt that failed with `error`. `refusals`: number of consecutive failures of
/// the model over all requests; `jitter`: random number in `0.0..1.0`.
pub(crate) fn decide(
    error: &ProviderError,
    attempts: Attempts,
    refusals: u32,
    limits: &Limits,
    jitter: f64,
) -> RetryDecision {
    let own = |count: u32| backoff(count, limits, jitter);
    // A server's wait below our own first wait would only cause more load.
    let sane = |asked: Duration| asked >= limits.backoff_first && asked <= limits.retry_after_max;
    match error {
        ProviderError::Overloaded { retry_after, .. } => {
            let asked = retry_after.filter(|asked| sane(*asked));
            let asked = asked.map(|asked| asked.min(limits.backoff_max));
            RetryDecision::Refused { wait: own(attempts.refused.max(refusals)), asked }
        }
        ProviderError::RateLimited { retry_after, .. } => {
            let asked = retry_after.filter(|asked| sane(*asked));
            RetryDecision::Refused { wait: own(attempts.refused.max(refusals)), asked }
        }
        ProviderError::Unreachable { .. } | ProviderError::NoServer { .. } => {
            RetryDecision::Refused { wait: own(attempts.refused.max(refusals)), asked: None }
        }
        ProviderError::QuotaExhausted { retry_after: Some(asked), .. }
            if *asked <= limits.retry_after_max =>
        {
            // All clients' quotas are reset at the same moment, so spread the retries.
            let spread = limits.backoff_max.mul_f64(jitter);
            RetryDecision::Refused { wait: Duration::ZERO, asked: Some(*asked + spread) }
        }
        ProviderError::Cut { .. } if attempts.cut <= limits.cut_replies_max => {
            RetryDecision::Again { wait: own(attempts.cut) }
        }
        ProviderError::Repeating { .. } if attempts.repeating <= limits.repeating_replies_max => {
            RetryDecision::Again { wait: own(attempts.repeating) }
        }
        ProviderError::Broken { .. }
        | ProviderError::Empty { .. }
        | ProviderError::NotTheProvider { .. } => {
            RetryDecision::Again { wait: own(attempts.broken) }
        }
        ProviderError::Cut { .. }
        | ProviderError::Repeating { .. }
        | ProviderError::QuotaExhausted { .. }
        | ProviderError::ContextFull { .. }
        | ProviderError::Unauthorized { .. }
        | ProviderError::Filtered { .. }
        | ProviderError::Rejected { .. }
        | ProviderError::Unasked { .. } => RetryDecision::Final,
    }
}

/// Backoff with full jitter after `count` failures: `min(backoff_first * 2^(count - 1),
/// backoff_max) * jitter`, but at least `backoff_first / 10`. The randomness keeps requests that
/// failed together from returning together.
fn backoff(count: u32, limits: &Limits, jitter: f64) -> Duration {
    let doublings = count.saturating_sub(1).min(16);
    let whole = limits.backoff_first.saturating_mul(1 << doublings).min(limits.backoff_max);
    whole.mul_f64(jitter).max(limits.backoff_first / 10)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::context::{ContextBudget, ContextMeter, ContextSettings};
    use crate::conversation::{AssistantMessage, ContentPart, Message, Reasoning};
    use crate::ports::ProviderInfo;

    const SECOND: Duration = Duration::from_secs(1);

    fn overloaded(retry_after: Option<Duration>) -> ProviderError {
        ProviderError::Overloaded {
            kind: crate::ports::OverloadKind::Overload,
            retry_after,
            source: "busy".into(),
        }
    }

    fn limited(retry_after: Option<Duration>) -> ProviderError {
        ProviderError::RateLimited { retry_after, source: "slow down".into() }
    }

    fn after(error: &ProviderError, made: u32) -> RetryDecision {
        let attempts =
            Attempts { made, broken: made, cut: made, repeating: made, refused: made, absent: 0 };
        decide(error, attempts, 0, &Limits::default(), 1.0)
    }

    #[test]
    fn wait_grows_with_each_attempt() {
        let waits = [1, 2, 3, 6, 7, 99].map(|made| after(&overloaded(None), made));
        let wait = |seconds| RetryDecision::Refused { wait: seconds * SECOND, asked: None };
        assert_eq!(waits, [wait(1), wait(2), wait(4), wait(30), wait(30), wait(30)]);
    }

    #[test]
    fn retry_after_is_honoured_within_bounds() {
        let asked = |error: &ProviderError| match after(error, 1) {
            RetryDecision::Refused { asked, .. } => asked,
            other @ (RetryDecision::Again { .. } | RetryDecision::Final) => panic!("{other:?}"),
        };
        let hour = Duration::from_hours(1);
        assert_eq!(asked(&overloaded(Some(7 * SECOND))), Some(7 * SECOND));
        assert_eq!(asked(&overloaded(Some(hour))), Some(30 * SECOND), "it may be back sooner");
        assert_eq!(asked(&limited(Some(hour))), Some(hour));
        for insane in [Duration::ZERO, Duration::from_millis(1), 25 * 24 * hour] {
            assert_eq!(asked(&limited(Some(insane))), None, "{insane:?}");
            assert_eq!(asked(&overloaded(Some(insane))), None, "{insane:?}");
        }
        let quota = |retry_after| ProviderError::QuotaExhausted { retry_after, source: "q".into() };
        assert_eq!(asked(&quota(Some(hour))), Some(hour + 30 * SECOND));
        assert_eq!(after(&quota(None), 1), RetryDecision::Final);
    }

    #[test]
    fn invalid_reply_is_retried_within_patience_and_broken_reply_a_few_times() {
        let broken = ProviderError::Broken { partial: String::new(), source: "x".into() };
        let cut = ProviderError::Cut { partial: String::new(), source: "x".into() };
        let again = |error| [1, 2, 5, 6, 99].map(|made| after(error, made) != RetryDecision::Final);
        let empty = ProviderError::Empty { source: "x".into() };
        let strange = ProviderError::NotTheProvider { source: "x".into() };
        for error in [&broken, &empty, &strange] {
            assert_eq!(again(error), [true; 5], "{}", error.class());
        }
        assert_eq!(again(&cut), [true, true, true, false, false]);
        let looping = ProviderError::Repeating { partial: String::new(), source: "x".into() };
        assert_eq!(again(&looping), [true, true, false, false, false]);
        let wait = |seconds| RetryDecision::Again { wait: seconds * SECOND };
        assert_eq!([1, 2, 3, 9].map(|made| after(&broken, made)), [1, 2, 4, 30].map(wait));
    }

    #[test]
    fn attempts_without_a_server_are_limited_at_the_beginning_of_a_run() {
        let none = || ProviderError::NoServer { source: "x".into() };
        let foreign = || ProviderError::NotTheProvider { source: "x".into() };
        let silent = || ProviderError::Unreachable { source: "x".into() };
        let limits = |absent_attempts_max| Limits { absent_attempts_max, ..Limits::default() };
        // Errors of the attempts, limits, whether the run begins, and the attempts that are made.
        let table = [
            (vec![none(), none(), none(), none()], limits(Some(3)), true, 3),
            (vec![none(), none(), none(), none()], limits(Some(3)), false, 4),
            (vec![none(), none(), none(), none()], limits(None), true, 4),
            (vec![foreign(), foreign(), foreign()], limits(Some(2)), true, 2),
            (vec![none(), foreign(), none(), none()], limits(Some(3)), true, 3),
            // A server that was there in between begins the count again.
            (vec![none(), none(), silent(), none(), none()], limits(Some(3)), true, 5),
            (vec![silent(), silent(), silent(), silent()], limits(Some(1)), true, 4),
            (vec![none(), none()], limits(Some(0)), true, 1),
        ];
        for (row, (errors, limits, begins, expected)) in table.into_iter().enumerate() {
            let mut attempts = Attempts::default();
            let is_last = |error: &ProviderError| {
                attempts.made += 1;
                attempts.count(error);
                attempts.are_spent(absent_attempts_max(error, begins, &limits), &limits)
            };
            let count = errors.len();
            let made = errors.iter().position(is_last).map_or(count, |last| last + 1);
            assert_eq!(made, expected, "row {row}");
        }
    }

    #[test]
    fn empty_reply_near_the_window_is_an_overflow_once_it_is_not_streamed() {
        let check = |window: u64| {
            let check = WindowCheck {
                meter: ContextMeter::default(),
                settings: ContextSettings {
                    windows: Some(Arc::new(move |_| Some(window))),
                    ..ContextSettings::default()
                },
                info: ProviderInfo {
                    profile: "p".to_owned(),
                    model: "m".to_owned(),
                    endpoint: String::new(),
                },
            };
            let content = vec![ContentPart::text("x".repeat(16_000))];
            let history = [Arc::new(Message::User { content })];
            let WindowCheck { meter, settings, .. } = &check;
            meter.read(&history, &[], &ContextBudget::main(), settings, None);
            check
        };
        let empty = || ProviderError::Empty { source: "nothing came".into() };
        let broken = || ProviderError::Broken { partial: String::new(), source: "x".into() };
        let (near, far) = (check(4096), check(100_000));
        let table = [
            (empty(), false, Some(&near), "context_full"),
            (empty(), true, Some(&near), "empty_reply"),
            (empty(), false, Some(&far), "empty_reply"),
            (empty(), false, None, "empty_reply"),
            (broken(), false, Some(&near), "broken_reply"),
        ];
        for (row, (error, streamed, size, class)) in table.into_iter().enumerate() {
            let error = overflow_if_near(error, streamed, size);
            assert_eq!(error.class(), class, "row {row}");
        }
    }

    #[test]
    fn permanent_errors_are_not_retried() {
        let hopeless = [
            ProviderError::ContextFull { source: "x".into() },
            ProviderError::Unauthorized { source: "x".into() },
            ProviderError::Filtered { source: "x".into() },
            ProviderError::Rejected { source: "x".into() },
            ProviderError::Unasked { class: ProviderError::NO_VISION, source: "x".into() },
        ];
        for error in &hopeless {
            assert_eq!(after(error, 1), RetryDecision::Final, "{}", error.class());
        }
    }

    #[test]
    fn attempts_can_be_limited() {
        let limits = |attempts_max| Limits { attempts_max, ..Limits::default() };
        let spent =
            |made, max| Attempts { made, ..Attempts::default() }.are_spent(None, &limits(max));
        assert_eq!([spent(1, Some(2)), spent(2, Some(2)), spent(1, Some(0))], [false, true, true]);
        assert!(!spent(u32::MAX, None));
    }

    proptest! {
        #[test]
        fn no_wait_exceeds_its_maximum(
            count in 0_u32..200, refusals in 0_u32..200, jitter in 0.0_f64..1.0,
            asked in prop::option::of(0_u64..10_000_000),
        ) {
            let limits = Limits::default();
            let retry_after = asked.map(Duration::from_secs);
            let attempts = Attempts { made: count, refused: count, ..Attempts::default() };
            for error in [overloaded(retry_after), limited(retry_after)] {
                let RetryDecision::Refused { wait, asked } =
                    decide(&error, attempts, refusals, &limits, jitter)
                else {
                    return Err(TestCaseError::fail("a refusal is never final"));
                };
                prop_assert!(wait <= limits.backoff_max && wait >= limits.backoff_first / 10);
                prop_assert!(asked.is_none_or(|asked| asked <= limits.retry_after_max));
                prop_assert!(asked.is_none_or(|asked| asked >= limits.backoff_first));
            }
        }
    }

    #[test]
    fn reply_that_ends_without_text_and_calls_is_an_error() {
        use StopReason::{ContentFilter, EndTurn, Error, MaxTokens, ToolUse};
        let plain = "it has no text and no tool call";
        let thinking = "it has reasoning, but no text and no tool call";
        let table = [
            (EndTurn, None, false, Some(plain)),
            (EndTurn, Some(""), false, Some(plain)),
            (EndTurn, Some(" \n"), false, Some(plain)),
            (EndTurn, None, true, Some(thinking)),
            (ToolUse, None, false, Some(plain)),
            (EndTurn, Some("yes"), true, None),
            // These have their own endings.
            (MaxTokens, None, true, None),
            (ContentFilter, None, false, None),
            (Error, None, false, None),
        ];
        for (stop_reason, text, thinks, expected) in table {
            let completion = Completion {
                message: AssistantMessage {
                    content: text.map(str::to_owned),
                    reasoning: thinks.then(Reasoning::default),
                    tool_calls: Vec::new(),
                },
                stop_reason,
                usage: None,
                model: None,
            };
            let error = empty_reply(&completion, "p").map(|error| (error.class(), error.reason()));
            let expected = expected.map(|what| ("empty_reply", format!("p: {what}")));
            assert_eq!(error, expected, "{stop_reason:?} {text:?} {thinks}");
        }
    }
}
