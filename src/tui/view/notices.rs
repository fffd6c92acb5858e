//! Texts for events that appear as notes in the transcript, such as retries, crashes and
//! compactions.

use posse_actors::event::{DecisionSource, Event, Grant, Scope};
use posse_actors::outcome::limit_text;
use posse_actors::text::clipped;
use posse_frontend::context;
use posse_frontend::notices::{failover_notice, hook_notice};
use posse_frontend::outcome::clock_time;
use posse_frontend::subagents::granted_agent;

use crate::theme::Role;

/// Prefix of every notice from posse to the model.
const FROM_POSSE: &str = "(from posse, not from the user) ";

/// Maximum characters of a displayed notice to the model, without the ellipsis of a longer one.
const NOTICE_CHARS_MAX: usize = 240;

/// Shortens a notice to the model for display: one line, without the prefix.
pub(super) fn brief(text: &str) -> String {
    let text = text.strip_prefix(FROM_POSSE).unwrap_or(text);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    clipped(&text, NOTICE_CHARS_MAX, " …")
}

/// Text of a grant: its scope and target, and how to revoke or avoid it.
pub(super) fn granted(grant: &Grant) -> String {
    let Grant { operation, target, scope, agent } = grant;
    let stored = "posse grants list shows it, posse grants revoke revokes it";
    let listed = "/permissions lists it, /new starts without it";
    let whose = agent.as_ref().map(|agent| format!("for {} ", granted_agent(agent)));
    let whose = whose.unwrap_or_default();
    let (reach, back) = match scope {
        Scope::Once => ("once", ""),
        Scope::Agent | Scope::Session => ("until this session ends", listed),
        Scope::Project => ("in this project until it expires", stored),
        Scope::Global => ("everywhere until it expires", stored),
    };
    format!("(allowed {whose}{reach}: {operation} {target}; {back})")
}

/// Role and text of the line for an event; `None` if the event has no such line.
pub(super) fn of(event: &Event) -> Option<(Role, String)> {
    let text = match event {
        Event::ProviderFailover { .. } => failover_notice(event),
        Event::PermissionDenied { by, reason, is_user_request: true, .. }
            if *by != DecisionSource::User =>
        {
            format!("! not answered: {reason}")
        }
        Event::PermissionDenied { reason, is_user_request: true, answered_by, .. } => {
            let by = answered_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            format!("! refused{by}: {reason}")
        }
        Event::PermissionDenied { by, reason, rule, .. } if *by == DecisionSource::Nobody => {
            let rule = rule.as_ref().map(|rule| format!("\n  rule: {rule}")).unwrap_or_default();
            format!("! denied: {reason}{rule}")
        }
        // This front end owns the session; a named answer comes from an attached one.
        Event::PermissionGranted { answered_by: Some(by), reply: Some(_), .. } => {
            format!("! answered by {by}")
        }
        Event::PermissionGranted { answered_by: Some(by), .. } => format!("! allowed by {by}"),
        Event::PermissionDenied { answered_by: Some(by), .. } => format!("! denied by {by}"),
        Event::ActorCrashed { actor, cause } => format!("! {actor} crashed: {cause}"),
        Event::ActorRestarted { actor, .. } => format!("! {actor} was restarted"),
        Event::SessionParked { cause, next_try_ms, .. } => {
            let next = next_try_ms.map(|at| format!("; retry at {}", clock_time(at)));
            format!("! parked: {cause}{}", next.unwrap_or_default())
        }
        Event::ContextCompacted { .. } => {
            let text = format!("▤ {}", context::compacted(event)?);
            return Some((Role::Accent, text));
        }
        Event::LimitReached { limit, value, .. } => {
            format!("! {}", limit_text(limit, *value))
        }
        Event::ContentFilter { .. } => "! the provider withheld the reply".to_owned(),
        Event::Warning { message } => format!("! {message}"),
        Event::JobStarted { call_id, .. } => {
            return Some((Role::Dim, format!("(job {call_id} runs in the background)")));
        }
        Event::JobEnded { call_id, summary, detail, findings, .. } => {
            let first = format!("! job {call_id} {detail}: {summary}");
            std::iter::once(&first).chain(findings).cloned().collect::<Vec<_>>().join("\n  ")
        }
        Event::HookFired { .. } | Event::HookFailed { .. } => hook_notice(event)?,
        _ => return None,
    };
    Some((Role::Warn, text))
}
