//! Time to compact a history of 2,000 messages by rules.
//!
//! `cargo bench --bench compaction`. Exits with 1 if a promised figure is missed.

#![expect(clippy::print_stdout, reason = "a report")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posse_actors::compaction::{CompactionGoal, compact};
use posse_actors::conversation::{AssistantMessage, CallId, ContentPart, Message, ToolCall};

/// Maximum of the median time for 2,000 messages.
const PROMISED: Duration = Duration::from_millis(50);

const ROUNDS: usize = 50;

fn main() -> ExitCode {
    let history = history(500);
    let goal = CompactionGoal {
        tokens_max: 10_000,
        turns_kept: 6,
        summary_tokens: 3000,
        keep: Some("word".to_owned()),
        ..CompactionGoal::default()
    };
    let mut took: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            let compacted = compact(&history, &goal);
            let took = begin.elapsed();
            assert!(compacted.is_some_and(|compacted| compacted.tokens_after <= goal.tokens_max));
            took
        })
        .collect();
    took.sort_unstable();
    let (median, worst) = (took[ROUNDS / 2], took[ROUNDS - 1]);
    println!("{} messages: median {median:?}, worst {worst:?}", history.len());
    if median <= PROMISED { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A history of `turns` prompts, each with a call, its output and an answer.
fn history(turns: usize) -> Vec<Arc<Message>> {
    let mut history = Vec::new();
    for nth in 0..turns {
        // Every fiftieth prompt is a standing rule, which compaction must keep.
        let rule = if nth % 50 == 0 { "never " } else { "" };
        let prompt = format!("prompt {nth}: {rule}{}", "word ".repeat(40));
        history.push(Arc::new(Message::User { content: vec![ContentPart::text(prompt)] }));
        let call = ToolCall {
            id: CallId::new(format!("c{nth}")),
            provider_id: None,
            name: "read_file".to_owned(),
            arguments: format!(r#"{{"path":"src/file{}.rs"}}"#, nth % 50),
        };
        let said = AssistantMessage { tool_calls: vec![call], ..AssistantMessage::default() };
        history.push(Arc::new(Message::Assistant(said)));
        history.push(Arc::new(Message::Tool {
            tool_call_id: CallId::new(format!("c{nth}")),
            name: "read_file".to_owned(),
            content: vec![ContentPart::text("line of code\n".repeat(300))],
            is_error: false,
        }));
        let content = Some("An answer. ".repeat(30));
        let said = AssistantMessage { content, ..AssistantMessage::default() };
        history.push(Arc::new(Message::Assistant(said)));
    }
    history
}
