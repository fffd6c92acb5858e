//! What deserves a line of its own in every front end, in the same words. Nothing in them draws.

use posse_actors::event::{Begun, Event, HookDecision};
use posse_actors::ports::HookEvent;

use crate::failure::printable;
use crate::talk::outcome::clock_time;

/// What a person should know of what a hook did. What refuses a call or ends the run is told there.
pub(crate) fn of_hook(event: &Event) -> Option<String> {
    let text = match event {
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
            format!("! hook {hook} {what}{message}")
        }
        Event::HookFailed { hook, event, code, cause, blocked, .. } => {
            let counts = if *blocked { "; that counts as a no" } else { "" };
            format!("! hook {hook} failed at {}: {code} {cause}{counts}", event.name())
        }
        _ => return None,
    };
    Some(printable(&text))
}

/// Who is asked from now on, and why.
pub(crate) fn switch(event: &Event) -> String {
    let Event::ProviderFailover { from, from_model, to, to_model, class, cause, skipped } = event
    else {
        return String::new();
    };
    let (from, to) = (format!("{from_model} via {from}"), format!("{to_model} via {to}"));
    let (from, to) = (printable(&from), printable(&to));
    if class == "recovered" {
        return format!("! {to} answers again, and is asked instead of {from}");
    }
    let skipped = skipped.iter().map(|why| format!("\n  passed over {}", printable(why)));
    let skipped: String = skipped.collect();
    format!("! {to} is asked while {from} is away ({}){skipped}", printable(cause))
}

/// What may have happened, for whoever has to look: the call, its tool and since when.
pub(crate) fn unknown(tool: &str, begun: Option<&Begun>) -> String {
    match begun {
        Some(Begun { summary, started_ms }) => {
            let since = clock_time(*started_ms);
            format!("{}: {}, begun at {since}", printable(tool), printable(summary))
        }
        None => printable(tool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_call_has_no_known_end() {
        assert_eq!(unknown("bash", None), "bash");
        let begun = Begun { summary: "rm \u{1b}[2J".to_owned(), started_ms: 1_795_298_212_000 };
        let text = unknown("bash", Some(&begun));
        assert!(text.starts_with("bash: rm ") && !text.contains('\u{1b}'), "{text}");
        assert!(text.ends_with(&format!(", begun at {}", clock_time(1_795_298_212_000))), "{text}");
    }
}
