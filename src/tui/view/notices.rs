//! Events that deserve a line of their own, and the words for them.

use posse_actors::event::{Event, Grant, Scope};

use crate::talk::context;
use crate::talk::notices::{of_hook, switch};
use crate::talk::outcome::clock_time;
use crate::tui::theme::Role;

/// What begins every message of posse itself to the model.
const FROM_POSSE: &str = "(from posse, not from the user) ";

/// Characters of such a message that are shown.
const TOLD_CHARS_MAX: usize = 240;

/// What posse itself tells the model, for whoever reads along.
pub(super) fn brief(text: &str) -> String {
    let text = text.strip_prefix(FROM_POSSE).unwrap_or(text);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = text.chars().take(TOLD_CHARS_MAX).collect();
    let more = if cut.len() < text.len() { " …" } else { "" };
    cut + more
}

/// What an answer allows from now on, for how long, and how that is taken back.
pub(super) fn granted(grant: &Grant) -> String {
    let Grant { operation, target, scope } = grant;
    let (reach, back) = match scope {
        Scope::Once => ("once", ""),
        Scope::Session => {
            ("until this session ends", "/permissions lists it, /new begins without it")
        }
        Scope::Project => (
            "in this project until it expires",
            "posse grants list says when, posse grants revoke takes it back",
        ),
        Scope::Global => (
            "everywhere until it expires",
            "posse grants list says when, posse grants revoke takes it back",
        ),
    };
    format!("(allowed {reach}: {operation} {target}; {back})")
}

/// The line for an event, if it has one.
pub(super) fn of(event: &Event) -> Option<(Role, String)> {
    let text = match event {
        Event::ProviderRetry { provider, attempt, cause, wait_ms, .. } => {
            let wait = super::tool::lasted(*wait_ms);
            format!("! {provider}: attempt {attempt} failed ({cause}); again in {wait}")
        }
        Event::ProviderFailover { .. } => switch(event),
        Event::PermissionDenied { by, reason, rule, .. } if by == "nobody" => {
            let rule = rule.as_deref().map(|rule| format!("\n  rule: {rule}")).unwrap_or_default();
            format!("! denied: {reason}{rule}")
        }
        // The front end that shows this is never one that joined.
        Event::PermissionGranted { answered_by: Some(by), .. } => format!("! allowed by {by}"),
        Event::PermissionDenied { answered_by: Some(by), .. } => format!("! denied by {by}"),
        Event::ActorCrashed { actor, cause } => format!("! {actor} crashed: {cause}"),
        Event::ActorRestarted { actor, .. } => format!("! {actor} runs again"),
        Event::SessionParked { cause, next_try_ms, .. } => {
            let next = next_try_ms.map(|at| format!("; next try at {}", clock_time(at)));
            format!("! parked: {cause}{}", next.unwrap_or_default())
        }
        Event::SessionResumed { records, .. } => {
            return Some((Role::Dim, format!("(goes on from {records} records)")));
        }
        Event::ContextCompacted { .. } => {
            let text = format!("▤ {}", context::compacted(event)?);
            return Some((Role::Accent, text));
        }
        Event::LimitReached { limit, value, .. } => {
            format!("! the limit {limit} = {value} was reached")
        }
        Event::ConfigIgnored { code, message } => format!("! {code}: {message}"),
        Event::ContentFilter { .. } => "! the provider withheld the reply".to_owned(),
        Event::Warning { message } => format!("! {message}"),
        Event::JobStarted { call_id, .. } => {
            return Some((Role::Dim, format!("(job {call_id} runs in the background)")));
        }
        Event::JobEnded { call_id, summary, detail, findings, .. } => {
            let first = format!("! job {call_id} {detail}: {summary}");
            std::iter::once(&first).chain(findings).cloned().collect::<Vec<_>>().join("\n  ")
        }
        Event::HookFired { .. } | Event::HookFailed { .. } => of_hook(event)?,
        _ => return None,
    };
    Some((Role::Warn, text))
}
