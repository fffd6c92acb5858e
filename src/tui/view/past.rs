//! Shows the end of a stored conversation again, as it looked when it happened.

use std::time::Duration;

use posse_actors::event::{Event, Origin};
use posse_actors::outcome::Ending;
use posse_actors::root_session::TurnOutcome;
use posse_frontend::end_line::end_line;
use posse_frontend::past_conversation::{PastConversation, left_out_line};

use crate::theme::Role;
use crate::view::{Block, View};

/// Maximum number of blocks that are shown; the last ones are. A block is a prompt, a call, or a
/// paragraph of a reply.
const BLOCKS_MAX: usize = 300;

impl View {
    /// Appends a stored conversation to the transcript, with its outputs for the viewer. Calls that
    /// have not ended are left out: their session continues them.
    pub(crate) fn show_past(&mut self, past: &PastConversation, now: Duration) {
        let mut before = View { hides_thinking: self.hides_thinking, ..View::default() };
        let mut started = 0;
        for record in &past.records {
            let (event, origin) = (&record.event, record.origin.as_deref());
            before.wall_ms = record.ts;
            if let Event::ModelPartial { text, .. } = event {
                // It was received as deltas, which are not stored.
                before.show_text(text);
            }
            if is_shown_again(event) {
                before.follow(event, origin, now);
            }
            if origin.is_none_or(|origin| origin.parent_invocation_id.is_none()) {
                if matches!(event, Event::InvocationStarted { .. }) {
                    started = record.ts;
                }
                before.show_end(event, origin, record.ts.saturating_sub(started));
            }
        }
        before.end_text();
        before.blocks.retain(|block| !block.is_open());
        let cut = before.blocks.len().saturating_sub(BLOCKS_MAX);
        let gone = before.blocks.drain(..cut).filter(|block| matches!(block, Block::User(_)));
        let earlier = past.earlier_prompts + gone.count();
        let begins_with_prompt = matches!(before.blocks.front(), Some(Block::User(_)));
        let is_cut = (past.is_cut || cut > 0) && !begins_with_prompt;
        if let Some(line) = left_out_line(earlier, is_cut) {
            self.note(Role::Dim, line);
        }
        self.blocks.append(&mut before.blocks);
        self.outputs.add_before(before.outputs);
        if self.last_reply_bytes == 0 {
            self.last_reply = before.last_reply;
            self.last_reply_bytes = before.last_reply_bytes;
        }
        if self.todos.is_empty() {
            self.todos = before.todos;
        }
    }

    /// Shows how a run of the main agent ended, after `took_ms`.
    fn show_end(&mut self, event: &Event, origin: Option<&Origin>, took_ms: u64) {
        if origin.is_none() {
            return;
        }
        let (ending, turns, usage) = match event {
            Event::InvocationCompleted { result, turns, usage } => {
                (Ending::Answered(result.clone()), turns, usage)
            }
            Event::InvocationCancelled { turns, usage } => (Ending::Interrupted, turns, usage),
            Event::InvocationFailed { cause, .. } => {
                return self.note(Role::Bad, format!("error: {cause}"));
            }
            _ => return,
        };
        let (turns, usage) = (*turns, *usage);
        let outcome = TurnOutcome { ending, turns, usage, unanswered: 0, not_by_yes: 0 };
        self.note(Role::Dim, end_line(&outcome, Duration::from_millis(took_ms), None));
    }
}

/// Returns `false` for events about the state of a process that has ended.
fn is_shown_again(event: &Event) -> bool {
    !matches!(
        event,
        Event::SessionResumed { .. }
            | Event::SessionParked { .. }
            | Event::PermissionModeChanged { .. }
            | Event::ConfigIgnored { .. }
            | Event::ProviderRetry { .. }
            | Event::ProviderWaiting { .. }
            | Event::ProviderSilent { .. }
            | Event::CheckpointProgress { .. }
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posse_actors::conversation::{
        AssistantMessage, CallId, ContentPart, SessionId, StopReason, Usage,
    };
    use posse_actors::event::{FORMAT_VERSION, RecordId, StoredRecord};
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{TestScreen, command_ended, origin};

    const DIFF: &str = "--- a/p.rs\n+++ b/p.rs\n@@ -1,1 +1,1 @@\n-a\n+b\n";

    fn past(events: Vec<Event>) -> PastConversation {
        let stored = |(event, record): (Event, u64)| StoredRecord {
            v: FORMAT_VERSION,
            record,
            ts: 1_795_300_000_000 + record * 1500,
            id: RecordId { process: 7, count: u32::try_from(record).unwrap() },
            session_id: SessionId::new("s"),
            origin: Some(Arc::new(origin("i1", None, "build"))),
            event,
        };
        let records = events.into_iter().zip(1..).map(stored).collect();
        PastConversation { records, earlier_prompts: 3, is_cut: false }
    }

    fn user(text: &str) -> Event {
        Event::UserMessage { content: vec![ContentPart::text(text)], message_id: None }
    }

    fn replied(text: &str) -> Event {
        let message =
            AssistantMessage { content: Some(text.to_owned()), ..AssistantMessage::default() };
        Event::ModelReply { turn: 1, message, stop_reason: StopReason::EndTurn, model: None }
    }

    fn call(id: &str, summary: &str, text: &str, metadata: Value) -> [Event; 3] {
        let (call_id, name) = (CallId::new(id), "tool".to_owned());
        let arguments = "{}".to_owned();
        let requested =
            Event::ToolRequested { call_id: call_id.clone(), name: name.clone(), arguments };
        let started = Event::ToolStarted {
            call_id: call_id.clone(),
            name: name.clone(),
            summary: summary.to_owned(),
            digest: String::new(),
            effect: true,
            coerced: Vec::new(),
        };
        let content = vec![ContentPart::text(text)];
        [
            requested,
            started,
            Event::ToolCompleted { call_id, name, content, metadata, duration_ms: 42 },
        ]
    }

    fn conversation() -> Vec<Event> {
        let mut events = vec![
            Event::InvocationStarted {
                provider: "p".to_owned(),
                model: "other".to_owned(),
                tools: Vec::new(),
            },
            user("Fix **it**"),
            replied("## Plan\n\nI *look*."),
        ];
        events.extend(call("c1", "run cargo test", "one\ntwo\n(exit 0, 42 ms)", command_ended(0)));
        events.extend(call("c2", "change p.rs (+1 -1)", "changed", json!({"diff": DIFF})));
        events.push(replied("Done, see `p.rs`."));
        events.push(Event::InvocationCompleted {
            result: "Done".to_owned(),
            turns: 2,
            usage: Usage::default(),
        });
        events.push(Event::SessionResumed { records: 9, with: None, changed: Vec::new() });
        events.push(user("go on"));
        events.extend(call("c3", "run sleep 9", "", json!({})).into_iter().take(2));
        events
    }

    #[test]
    fn a_resumed_conversation_looks_as_it_did() {
        let build = |stage: &mut TestScreen| {
            stage.app.view.show_past(&past(conversation()), stage.now);
        };
        insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
        let mut stage = TestScreen::new();
        build(&mut stage);
        let outputs: Vec<_> = stage.app.view.outputs.iter().map(|one| one.title.clone()).collect();
        assert_eq!(outputs, ["run cargo test", "change p.rs (+1 -1)"]);
        assert_eq!(stage.app.view.last_reply(), Ok("Done, see `p.rs`."));
        assert_eq!(stage.app.view.status.model, "large-5", "the current session's model");
    }

    #[test]
    fn reply_that_was_stopped_is_shown_with_its_text() {
        let (text, cause) = ("The cause is".to_owned(), "interrupted".to_owned());
        let partial = Event::ModelPartial { turn: 1, text, cause, in_history: true };
        let mut stage = TestScreen::new();
        stage.app.view.show_past(&past(vec![user("why"), partial]), stage.now);
        let screen = stage.screen(60, 20);
        assert!(screen.contains("❯ why\n\nThe cause is\n\n! "), "{screen}");
    }

    #[test]
    fn a_long_conversation_is_cut() {
        let mut events = vec![user("one"), user("two")];
        events.extend(
            (0..400).flat_map(|nth| {
                call(&format!("c{nth}"), &format!("run {nth}"), "", command_ended(0))
            }),
        );
        let mut stage = TestScreen::new();
        stage.app.view.show_past(&past(events), stage.now);
        let screen = stage.screen(60, 20);
        let first = "… 5 earlier prompts, the start of this run (/share writes";
        assert!(screen.starts_with(first), "{screen}");
        assert!(!screen.contains("• run 99\n") && screen.contains("• run 100\n"));
    }
}
