//! End of a rate limit according to vendor-specific headers, used if a rate-limit error has no
//! `Retry-After` and states no other wait.
//!
//! The headers give the time of a full reset, not the time at which one more request fits, so a
//! long wait is cut short.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderMap;

use crate::classify::wording;

/// Longest wait computed from these headers. A longer one is shortened to it.
const RESET_WAIT_MAX: Duration = Duration::from_mins(5);

/// Header names of each limit: prefix and suffix around `remaining` or `reset`. Used by `OpenAI`
/// and Groq, Anthropic, `OpenRouter`, and the IETF draft.
const LIMITS: [(&str, &str); 8] = [
    ("x-ratelimit-", "-requests"),
    ("x-ratelimit-", "-tokens"),
    ("anthropic-ratelimit-requests-", ""),
    ("anthropic-ratelimit-tokens-", ""),
    ("anthropic-ratelimit-input-tokens-", ""),
    ("anthropic-ratelimit-output-tokens-", ""),
    ("x-ratelimit-", ""),
    ("ratelimit-", ""),
];

/// Numbers from this on are a time in seconds since 1970; smaller ones are a wait in seconds.
const MOMENT_FROM: f64 = 1e9;

/// Numbers from this on are a time in milliseconds since 1970.
const MOMENT_MS_FROM: f64 = 1e12;

/// Wait from `now` (wall clock) until the rate limit ends, at most [`RESET_WAIT_MAX`]. `None`: no
/// header states a plausible time. Of several exhausted limits the longest wait counts; if no limit
/// is marked as exhausted, the shortest wait.
pub(super) fn wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: String| super::header(headers, &name);
    let (mut used_up, mut others) = (None::<Duration>, None::<Duration>);
    for (begins, ends) in LIMITS {
        let Some(reset) = text(format!("{begins}reset{ends}")) else { continue };
        let Some(wait) = read(reset, now).filter(super::is_sane) else { continue };
        let remaining = text(format!("{begins}remaining{ends}"));
        let remaining = remaining.and_then(|left| left.parse::<f64>().ok());
        if remaining.is_some_and(|left| left <= 0.0) {
            used_up = Some(used_up.map_or(wait, |other| other.max(wait)));
        } else {
            others = Some(others.map_or(wait, |other| other.min(wait)));
        }
    }
    used_up.or(others).map(|wait| wait.min(RESET_WAIT_MAX))
}

/// Parses a header value as a wait: a duration such as `6m0s` or `20ms`, a number of seconds, or a
/// time after `now` (seconds or milliseconds since 1970, or RFC 3339).
fn read(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(number) = text.parse::<f64>() {
        let since = |seconds: f64| seconds - now.as_duration().as_secs_f64();
        let seconds = match number {
            ms if ms >= MOMENT_MS_FROM => since(ms / 1000.0),
            at if at >= MOMENT_FROM => since(at),
            seconds => seconds,
        };
        return Duration::try_from_secs_f64(seconds).ok();
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Duration::try_from(at.duration_since(now)).ok();
    }
    wording::duration(text)
}
