//! What compacting keeps, and what it takes away.

use proptest::prelude::*;

use super::*;
use crate::conversation::{AssistantMessage, ToolCall};

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::User { content: vec![ContentPart::text(text)] })
}

fn says(text: &str) -> Arc<Message> {
    let said = AssistantMessage { content: Some(text.to_owned()), ..AssistantMessage::default() };
    Arc::new(Message::Assistant(said))
}

/// A call of `tool` on `path`, and its result.
fn call(id: &str, tool: &str, path: &str, output: &str) -> [Arc<Message>; 2] {
    let call = ToolCall {
        id: CallId::new(id),
        provider_id: None,
        name: tool.to_owned(),
        arguments: format!(r#"{{"path":"{path}"}}"#),
    };
    let said = AssistantMessage { tool_calls: vec![call], ..AssistantMessage::default() };
    let result = Message::Tool {
        tool_call_id: CallId::new(id),
        name: tool.to_owned(),
        content: vec![ContentPart::text(output)],
        is_error: false,
    };
    [Arc::new(Message::Assistant(said)), Arc::new(result)]
}

fn conversation() -> Vec<Arc<Message>> {
    let mut history = vec![user("read\nthe file")];
    history.extend(call("c1", "read_file", "src/a.rs", &"x".repeat(4000)));
    history.extend([says("It is full of x."), user("change it")]);
    history.extend(call("c2", "read_file", "src/a.rs", &"x".repeat(4000)));
    history.extend(call("c3", "edit_file", "src/a.rs", "done"));
    history.extend([says("Changed."), user("thanks"), says("Any time.")]);
    history
}

/// What providers insist on: each call has one result, right behind the reply, in order; and no
/// two messages of the user in a row, unless they were there before.
fn is_valid(history: &[Arc<Message>]) -> bool {
    let mut open = std::collections::VecDeque::new();
    let mut said_before = false;
    for message in history {
        match &**message {
            Message::Tool { tool_call_id, .. } => {
                if open.pop_front() != Some(tool_call_id.clone()) {
                    return false;
                }
            }
            Message::Assistant(_) | Message::User { .. } if !open.is_empty() => return false,
            Message::Assistant(said) => {
                open.extend(said.tool_calls.iter().map(|call| call.id.clone()));
                said_before = true;
            }
            Message::User { .. } => (),
            Message::System { .. } => return false,
        }
    }
    let begins = matches!(history.first().map(|message| &**message), Some(Message::User { .. }));
    open.is_empty() && (begins || !said_before)
}

#[test]
fn old_outputs_go_first_and_the_last_turns_stay() {
    let history = conversation();
    let goal = Goal { bytes_max: 5000, turns_kept: 2 };
    let compacted = compact(&history, goal).unwrap();
    assert_eq!((compacted.turns_removed, compacted.outputs_removed), (0, 1));
    assert_eq!(compacted.history.len(), history.len());
    assert_eq!(compacted.history[4..], history[4..]);
    let Message::Tool { content, .. } = &*compacted.history[2] else { panic!("no result") };
    assert_eq!(
        text_of(content),
        "[4000 bytes of output were removed. Call the tool again if needed.]"
    );
}

#[test]
fn old_turns_leave_what_was_asked_and_touched() {
    let compacted = compact(&conversation(), Goal { bytes_max: 0, turns_kept: 1 }).unwrap();
    assert_eq!((compacted.turns_removed, compacted.outputs_removed), (2, 0));
    let Message::User { content } = &*compacted.history[0] else { panic!("no prompt") };
    insta::assert_snapshot!(text_of(content), @r"
    [Earlier parts of this conversation were removed. What is left:]
    The user asked: read the file
    File touched: src/a.rs (read_file)
    You answered: It is full of x.
    The user asked: change it
    File touched: src/a.rs (read_file, edit_file)
    You answered: Changed.

    thanks
    ");
    assert!(is_valid(&compacted.history));
}

#[test]
fn a_second_time_the_first_summary_is_carried_on() {
    let mut history =
        compact(&conversation(), Goal { bytes_max: 0, turns_kept: 1 }).unwrap().history;
    let long = "Nothing. ".repeat(100);
    history.extend([user("and now?"), says(&long), user("go on"), says("With what?")]);
    let again = compact(&history, Goal { bytes_max: 0, turns_kept: 1 }).unwrap();
    let Message::User { content } = &*again.history[0] else { panic!("no prompt") };
    let text = text_of(content);
    assert_eq!(text.matches("[Earlier parts").count(), 1, "{text}");
    assert!(text.contains("The user asked: read the file\n"), "{text}");
    assert!(text.contains("The user asked: thanks\n"), "{text}");
    assert!(text.ends_with("go on"), "{text}");
}

#[test]
fn nothing_becomes_longer() {
    assert_eq!(compact(&[], Goal { bytes_max: 0, turns_kept: 2 }), None);
    let short = [user("hi"), says("hello"), user("bye"), says("bye")];
    assert_eq!(compact(&short, Goal { bytes_max: 0, turns_kept: 1 }), None);
}

/// Whether a message is kept, alone or behind the summary of what came before it.
fn ends_with(kept: Option<&Arc<Message>>, message: Option<&Arc<Message>>) -> bool {
    match (kept.map(|kept| &**kept), message.map(|message| &**message)) {
        (Some(Message::User { content: kept }), Some(Message::User { content })) => {
            kept.ends_with(content)
        }
        (kept, message) => kept == message,
    }
}

proptest! {
    #[test]
    fn what_was_valid_stays_valid(
        turns in prop::collection::vec((0..4usize, 0..3000usize, any::<bool>()), 0..12),
        bytes_max in 0..20_000usize,
        turns_kept in 0..4usize,
    ) {
        let mut history = Vec::new();
        for (nth, (calls, bytes, answered)) in turns.iter().enumerate() {
            history.push(user(&format!("prompt {nth}")));
            for count in 0..*calls {
                let id = format!("c{nth}-{count}");
                history.extend(call(&id, "read_file", &format!("f{count}"), &"y".repeat(*bytes)));
            }
            if *answered {
                history.push(says("done"));
            }
        }
        if let Some(compacted) = compact(&history, Goal { bytes_max, turns_kept }) {
            prop_assert!(is_valid(&compacted.history));
            prop_assert!(compacted.bytes_after < compacted.bytes_before);
            prop_assert!(ends_with(compacted.history.last(), history.last()));
            prop_assert_eq!(bytes_of(&compacted.history), compacted.bytes_after);
        }
    }
}
