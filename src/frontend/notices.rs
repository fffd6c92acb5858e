//! Texts about hooks, failovers and calls with an unknown outcome, for every front end. Control
//! characters are escaped.

use posse_actors::event::{Event, HookDecision, HookEvent, StartedCall};
use posse_base::failure::printable;

use crate::outcome::clock_time;

/// Text for a hook that warned, failed, rejected the answer, changed the arguments or result of a
/// call, or withheld a result. `None` for other events and decisions; if a hook denies a call or
/// ends a run, that call or run reports it.
pub fn hook_notice(event: &Event) -> Option<String> {
    let text = match event {
        Event::HookFired { hook, event, tool, decision, message, output, .. } => {
            let tool = tool.as_deref().unwrap_or_default();
            let what = match (decision, event) {
                (HookDecision::Warn, _) => "warns".to_owned(),
                (HookDecision::Patch, HookEvent::PreToolUse) => {
                    format!("changed the arguments of {tool}")
                }
                (HookDecision::Patch, _) => format!("changed the result of {tool} for the model"),
                (HookDecision::Block, HookEvent::Stop) => {
                    "does not accept the answer yet".to_owned()
                }
                (HookDecision::Block, _) if output.is_some() => {
                    format!("withheld the result of {tool}")
                }
                _ => return None,
            };
            let message = message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
            format!("! hook {hook} {what}{message}")
        }
        Event::HookFailed { hook, event, code, cause, blocked, .. } => {
            let counts = if *blocked { "; counts as a denial" } else { "" };
            format!("! hook {hook} failed at {}: {code} {cause}{counts}", event.name())
        }
        _ => return None,
    };
    Some(printable(&text))
}

/// Text for a reply that was cut off for the reason `cause`. `in_history`: true if the model receives
/// the part that arrived.
pub fn partial_reply_notice(cause: &str, in_history: bool) -> String {
    if in_history {
        "! the reply was stopped; the model keeps the part above".to_owned()
    } else {
        format!("! the reply was cut off ({}); the model does not keep this part", printable(cause))
    }
}

/// Text for a provider failover with its cause and one line for each fallback that was skipped, or
/// for the recovery of a provider. Empty for other events.
pub fn failover_notice(event: &Event) -> String {
    let Event::ProviderFailover { from, from_model, to, to_model, class, cause, skipped } = event
    else {
        return String::new();
    };
    let (from, to) = (format!("{from_model} via {from}"), format!("{to_model} via {to}"));
    let (from, to) = (printable(&from), printable(&to));
    if class == "recovered" {
        return format!("! {to} has recovered and replaces {from}");
    }
    let skipped = skipped.iter().map(|why| format!("\n  skipped {}", printable(why)));
    let skipped: String = skipped.collect();
    format!("! failover to {to}: {from} is unavailable ({}){skipped}", printable(cause))
}

/// Describes a call whose outcome is unknown: tool, summary and start time. `begun` is `None` in
/// older journals; then only the tool is named.
pub fn unknown(tool: &str, begun: Option<&StartedCall>) -> String {
    match begun {
        Some(StartedCall { summary, started_ms }) => {
            let since = clock_time(*started_ms);
            format!("{}: {}, started at {since}", printable(tool), printable(summary))
        }
        None => printable(tool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_a_call_with_unknown_outcome() {
        assert_eq!(unknown("bash", None), "bash");
        let begun =
            StartedCall { summary: "rm \u{1b}[2J".to_owned(), started_ms: 1_795_298_212_000 };
        let text = unknown("bash", Some(&begun));
        assert!(text.starts_with("bash: rm ") && !text.contains('\u{1b}'), "{text}");
        assert!(
            text.ends_with(&format!(", started at {}", clock_time(1_795_298_212_000))),
            "{text}"
        );
    }
}
