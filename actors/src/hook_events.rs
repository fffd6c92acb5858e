//! Running hooks and recording their results.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;

use crate::conversation::{ContentPart, cap_parts};
use crate::event::{Event, HookDecision};
use crate::ports::{Hook, HookInvocation, HookPayload, HookReport, HookResult};
use crate::transcript_writer::Transcript;

/// Maximum bytes of all hook notes that a model reads with one result.
const NOTES_BYTES_MAX: usize = 8 << 10;

/// Combined result of the hooks.
#[derive(Debug, Default)]
pub(crate) struct HookOutcome {
    /// Reason of a denial, with the hook's name.
    pub(crate) blocked: Option<String>,
    /// Replaced arguments, with the name of the hook.
    pub(crate) input: Option<(Value, String)>,
    /// Replacement of the output for the model.
    pub(crate) output: Option<Vec<ContentPart>>,
    /// Additional notes for the model.
    pub(crate) notes: Vec<String>,
}

/// Runs `hooks` and records each result. A panic counts as a denial where failed hooks may deny.
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
    /// The event has an outcome, which can be withheld or replaced.
    is_after: bool,
    output_bytes_max: usize,
}

impl HookOutcome {
    /// Adds one report; returns its record.
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
