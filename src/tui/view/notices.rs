//! Events that deserve a line of their own, and the words for them.

use posse_actors::event::{Event, HookDecision};
use posse_actors::ports::HookEvent;

use crate::talk::outcome::clock_time;
use crate::tui::theme::Role;

/// The line for an event, if it has one.
pub(super) fn of(event: &Event) -> Option<(Role, String)> {
    let text = match event {
        Event::ProviderRetry { provider, attempt, cause, wait_ms, .. } => {
            let wait = super::tool::lasted(*wait_ms);
            format!("! {provider}: attempt {attempt} failed ({cause}); again in {wait}")
        }
        Event::ProviderFailover { class, .. } => switch(event, class == "recovered"),
        Event::PermissionDenied { by, reason, rule, .. } if by == "nobody" => {
            let rule = rule.as_deref().map(|rule| format!("\n  rule: {rule}")).unwrap_or_default();
            format!("! denied: {reason}{rule}")
        }
        Event::ActorCrashed { actor, cause } => format!("! {actor} crashed: {cause}"),
        Event::ActorRestarted { actor, .. } => format!("! {actor} runs again"),
        Event::SessionParked { cause, next_try_ms, .. } => {
            let next = next_try_ms.map(|at| format!("; next try at {}", clock_time(at)));
            format!("! parked: {cause}{}", next.unwrap_or_default())
        }
        Event::SessionResumed { records, .. } => {
            return Some((Role::Dim, format!("(goes on from {records} records)")));
        }
        Event::ContextCompacted {
            bytes_before,
            bytes_after,
            turns_removed,
            outputs_removed,
            ..
        } => {
            let text = format!(
                "▤ the history became shorter: {bytes_before} → {bytes_after} bytes, \
                 {turns_removed} turns and {outputs_removed} outputs removed; the journal keeps them"
            );
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

fn switch(event: &Event, is_back: bool) -> String {
    let Event::ProviderFailover { from, from_model, to, to_model, cause, skipped, .. } = event
    else {
        return String::new();
    };
    let (from, to) = (format!("{from_model} via {from}"), format!("{to_model} via {to}"));
    if is_back {
        return format!("! {to} answers again, and is asked instead of {from}");
    }
    let skipped = skipped.iter().map(|why| format!("\n  passed over {why}"));
    let skipped = skipped.collect::<Vec<_>>().concat();
    format!("! {to} is asked while {from} is away ({cause}){skipped}")
}

fn of_hook(event: &Event) -> Option<String> {
    match event {
        Event::HookFired { hook, event, tool, decision, message, output, .. } => {
            let tool = tool.as_deref().unwrap_or_default();
            let what = match (decision, event) {
                (HookDecision::Warn, _) => "warns".to_owned(),
                (HookDecision::Patch, HookEvent::PreToolUse) => {
                    format!("changed the arguments of {tool}")
                }
                (HookDecision::Patch, _) => format!("changed what the model reads of {tool}"),
                (HookDecision::Block, HookEvent::Stop) => {
                    "does not accept the answer yet".to_owned()
                }
                (HookDecision::Block, _) if output.is_some() => {
                    format!("withheld the result of {tool}")
                }
                _ => return None,
            };
            let message = message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
            Some(format!("! hook {hook} {what}{message}"))
        }
        Event::HookFailed { hook, event, code, cause, blocked, .. } => {
            let counts = if *blocked { "; that counts as a no" } else { "" };
            Some(format!("! hook {hook} failed at {}: {code} {cause}{counts}", event.name()))
        }
        _ => None,
    }
}
