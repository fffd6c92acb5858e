//! Runs hooks and records their results.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;

use crate::conversation::{ContentPart, cap_parts};
use crate::event::{Event, HookDecision};
use crate::ports::{Hook, HookInvocation, HookPayload, HookReport, HookResult};
use crate::transcript_writer::Transcript;

/// Bytes of notes about hooks that a model reads with one result. The text of the note that reaches
/// this size is cut, and further notes are dropped; the hook's name and brackets come on top.
const NOTES_BYTES_MAX: usize = 8 << 10;

/// Combined result of all hooks that ran for one event.
#[derive(Debug, Default)]
pub(crate) struct HookOutcome {
    /// Reason of the first denial, with the hook's name; `None` if no hook denied.
    pub(crate) blocked: Option<String>,
    /// Arguments that replace those of the call, with the name of the hook; those of the last hook
    /// that changed them. `None` if no hook did.
    pub(crate) input: Option<(Value, String)>,
    /// Result that the model gets instead of the recorded one, from the last hook that replaced or
    /// withheld it. `None` if no hook did.
    pub(crate) output: Option<Vec<ContentPart>>,
    /// Notes for the model about warnings and changed arguments.
    pub(crate) notes: Vec<String>,
}

/// Runs the hooks for `occasion`, records each result, and combines the results. A result that a
/// hook replaces is cut to `output_bytes_max` bytes. A panic of the hook runner counts as a
/// failure, which denies where
/// [`HookEvent::may_fail_closed`](crate::event::HookEvent::may_fail_closed) is true.
pub(crate) async fn fire(
    hooks: Arc<dyn Hook>,
    transcript: Transcript,
    occasion: HookInvocation,
    output_bytes_max: usize,
) -> HookOutcome {
    let (origin, event) = (occasion.origin.clone(), occasion.moment.event());
    let used = occasion.moment.call();
    let place = HookContext {
        call: used.map(|used| (used.call_id.clone(), used.tool.clone())),
        is_after: matches!(
            occasion.moment,
            HookPayload::PostToolUse(..) | HookPayload::ToolError { .. }
        ),
        event,
        output_bytes_max,
    };
    // A port may also panic before it returns its future.
    let asked = AssertUnwindSafe(async move { hooks.fire(occasion).await }).catch_unwind().await;
    let reports = asked.unwrap_or_else(|_| {
        vec![HookReport {
            hook: "hooks".to_owned(),
            says: HookResult::Failed { code: "HK006".to_owned(), blocks: event.may_fail_closed() },
            message: Some("the hook runner crashed".to_owned()),
            metadata: Value::Null,
            duration: std::time::Duration::ZERO,
        }]
    });
    let mut hooked = HookOutcome::default();
    for report in reports {
        let fact = hooked.take(report, &place);
        transcript.note(origin.as_ref(), fact);
    }
    hooked
}

struct HookContext {
    event: crate::event::HookEvent,
    call: Option<(crate::conversation::CallId, String)>,
    /// True if the event follows a tool call, so that its result can be withheld or replaced.
    is_after: bool,
    output_bytes_max: usize,
}

impl HookOutcome {
    /// Adds the result of one hook, and returns the event that records it.
    fn take(&mut self, report: HookReport, place: &HookContext) -> Event {
        let HookReport { hook, says, message, metadata, duration } = report;
        let (call_id, tool) = place.call.clone().unzip();
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let mut output = None;
        if says.blocks() {
            let why = message.as_deref().unwrap_or("no reason was given");
            let why = format!("{why} (hook: {hook})");
            if place.is_after {
                output = Some(vec![ContentPart::text(format!("Result withheld: {why}"))]);
                self.output.clone_from(&output);
            }
            self.blocked.get_or_insert(why);
        }
        let event = place.event;
        let metadata = Some(metadata).filter(|metadata| !metadata.is_null()).map(Box::new);
        let fired = |decision, input: Option<Value>, output| Event::HookFired {
            hook: hook.clone(),
            event,
            call_id: call_id.clone(),
            tool: tool.clone(),
            decision,
            message: message.clone(),
            input: input.map(Box::new),
            output,
            metadata: metadata.clone(),
            duration_ms,
        };
        match says {
            HookResult::Pass => fired(HookDecision::Pass, None, None),
            HookResult::Warn => {
                self.note(&hook, message.as_deref().unwrap_or("warns"));
                fired(HookDecision::Warn, None, None)
            }
            HookResult::Block => fired(HookDecision::Block, None, output),
            HookResult::Input(input) => {
                let why = message.as_deref().unwrap_or("changed the arguments");
                self.note(&hook, &format!("{why}; what ran: {input}"));
                self.input = Some((input.clone(), hook.clone()));
                fired(HookDecision::Patch, Some(input), None)
            }
            HookResult::Output(mut content) => {
                cap_parts(&mut content, place.output_bytes_max);
                self.output = Some(content.clone());
                fired(HookDecision::Patch, None, Some(content))
            }
            HookResult::Failed { code, blocks } => Event::HookFailed {
                hook,
                event,
                call_id,
                tool,
                code,
                cause: message.unwrap_or_default(),
                blocked: blocks,
                output,
                duration_ms,
            },
        }
    }

    fn note(&mut self, hook: &str, text: &str) {
        let spent: usize = self.notes.iter().map(String::len).sum();
        let room = NOTES_BYTES_MAX.saturating_sub(spent);
        let text = &text[..text.floor_char_boundary(room)];
        if !text.is_empty() {
            self.notes.push(format!("(hook {hook}: {text})"));
        }
    }
}
