//! Streams cut at every byte in every protocol, and the following request.
//!
//! For any cut, no incomplete call runs, text is not repeated after the next attempt, and every
//! possible history is accepted by the strictest server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, Message, StopReason, ToolCall,
};
use posse_actors::ports::{Completion, Delta, ProviderError, Request};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::anthropic;
use crate::decode::{self, Assembly, ChunkSource, Patience};
use crate::encoder::Encoder;
use crate::message_origin::MessageOrigin;
use crate::opaque::Owner;
use crate::openai_compatible;
use crate::openai_responses;
use crate::profile::ProviderProfile;
use crate::silence_timeout::Brought;
use crate::testing::strict::{self, assert_valid};

const TEXT: &str = "I will look at “both”.";
const THOUGHT: &str = "Two files; I read both.";
const CALLS: [(&str, &str); 2] =
    [("read_file", r#"{"path": "a.rs"}"#), ("bash", r#"{"command": "ls; pwd"}"#)];

const CHAT: &str = include_str!("../openai_compatible/fixtures/thinking_and_calls.sse");
const RESPONSES: &str = include_str!("../openai_responses/fixtures/thinking_and_calls.sse");
const MESSAGES: &str = include_str!("../anthropic/fixtures/thinking_and_calls.sse");

/// Source of the bytes up to the cut, followed by the end of the connection or an error.
struct Cut(VecDeque<Bytes>, Result<(), String>);

impl ChunkSource for Cut {
    async fn next(&mut self) -> Brought {
        match self.0.pop_front() {
            Some(chunk) => Ok(Some(chunk)),
            None => self.1.clone().map(|()| None),
        }
    }
}

type Encode = dyn Fn(&Request) -> Vec<u8>;

/// Recorded stream of one protocol, with the encoder and the validator of its requests.
struct RecordedDialect {
    stream: &'static str,
    check: fn(&Value) -> Result<(), String>,
    encode: Box<Encode>,
    owner: Owner,
}

type CutOutcome = (Result<Completion, ProviderError>, String);

/// Reads a stream that ends after `at` bytes. Returns the reply or error, and the visible text that
/// was streamed.
async fn read<A: Assembly>(stream: &str, at: usize, end: Result<(), String>) -> CutOutcome {
    let (tx, mut rx) = mpsc::channel(4096);
    let chunks = stream.as_bytes()[..at].chunks(700).map(Bytes::copy_from_slice).collect();
    let origin = MessageOrigin::new("mine", String::new());
    let mut source = Cut(chunks, end);
    let patience = Patience { silence: Duration::from_mins(1), idle: Duration::from_mins(1) };
    let reply = decode::read::<A>(&mut source, &origin, patience, Some(&tx)).await;
    drop(tx);
    let mut said = String::new();
    while let Some(delta) = rx.recv().await {
        if let Delta::Text(text) = delta {
            said.push_str(&text);
        }
    }
    (reply, said)
}

fn request(messages: Vec<Arc<Message>>) -> Request {
    Request { messages, ..super::request("") }
}

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::User { content: vec![ContentPart::text(text)] })
}

/// Gives the calls ids as the kernel does, as in a history.
fn minted(mut message: AssistantMessage) -> AssistantMessage {
    for (nth, call) in message.tool_calls.iter_mut().enumerate() {
        call.id = CallId::new(format!("c1-{nth}"));
    }
    message
}

fn result(call: &ToolCall) -> Arc<Message> {
    Arc::new(Message::Tool {
        tool_call_id: call.id.clone(),
        name: call.name.clone(),
        content: vec![ContentPart::text("done")],
        is_error: false,
    })
}

async fn cut_everywhere<A: Assembly>(dialect: &RecordedDialect) {
    let whole = read::<A>(dialect.stream, dialect.stream.len(), Ok(())).await;
    let whole_reply = whole.0.unwrap();
    assert_eq!((whole.1.as_str(), whole_reply.stop_reason), (TEXT, StopReason::ToolUse));
    assert_eq!(whole_reply.message.reasoning.as_ref().unwrap().text, THOUGHT);
    let mut checked = None;
    for at in 0..dialect.stream.len() {
        for end in [Ok(()), Err("reset".to_owned())] {
            let (reply, said) = read::<A>(dialect.stream, at, end).await;
            let start = vec![user("go")];
            let histories: Vec<Vec<Arc<Message>>> = match reply {
                Ok(reply) => {
                    // Everything except the very end had arrived.
                    assert_eq!(reply.message, whole_reply.message, "at {at}");
                    let mut message = minted(reply.message);
                    dialect.owner.sign(&mut message);
                    let called: Vec<(&str, &str)> = message
                        .tool_calls
                        .iter()
                        .map(|call| (call.name.as_str(), call.arguments.as_str()))
                        .collect();
                    assert_eq!(called, CALLS, "at {at}");
                    assert_eq!(said, TEXT, "at {at}");
                    let results: Vec<_> = message.tool_calls.iter().map(result).collect();
                    let said = vec![Arc::new(Message::Assistant(message))];
                    // All results are there, or the process died in between.
                    (0..=results.len())
                        .map(|count| [&start[..], &said, &results[..count]].concat())
                        .collect()
                }
                Err(ProviderError::Cut { partial, .. } | ProviderError::Broken { partial, .. }) => {
                    assert_eq!(partial, said, "at {at}");
                    assert!(TEXT.starts_with(&said), "at {at}: {said}");
                    let kept = AssistantMessage { content: Some(partial), ..Default::default() };
                    let kept = vec![Arc::new(Message::Assistant(kept))];
                    // The reply is dropped, or its visible part is kept.
                    let after = [user("go on")];
                    vec![
                        start.clone(),
                        [&start[..], &kept].concat(),
                        [&start[..], &kept, &after].concat(),
                    ]
                }
                Err(ProviderError::Unreachable { .. } | ProviderError::Empty { .. }) => {
                    assert_eq!(said, "", "at {at}");
                    vec![start]
                }
                Err(other) => panic!("at {at}: {}", other.chain()),
            };
            // Most cuts leave the same history as the one before.
            if checked.replace(histories.clone()) == Some(histories.clone()) {
                continue;
            }
            for history in histories {
                assert_valid(dialect.check, &(dialect.encode)(&request(history)));
            }
        }
    }
}

#[tokio::test]
async fn chat_completions_cut_at_every_byte() {
    let owner = Owner::new(openai_compatible::PROTOCOL, "mine", "m");
    let profile = ProviderProfile::new("mine", "https://h.example/v1", "m", None);
    let encoder = Encoder::<openai_compatible::encode::ChatDialect>::new(profile);
    let dialect = RecordedDialect {
        stream: CHAT,
        check: strict::chat,
        encode: Box::new(move |request| encoder.encode(request, true).unwrap().bytes),
        owner,
    };
    cut_everywhere::<openai_compatible::reply::ChatReply>(&dialect).await;
}

#[tokio::test]
async fn anthropic_messages_cut_at_every_byte() {
    let mut profile = ProviderProfile::new("mine", "https://h.example/v1", "m", None);
    profile.quirks.thinking_budget = Some(2048);
    let owner = Owner::new(anthropic::PROTOCOL, "mine", "m");
    let encoder = Encoder::<anthropic::encode::MessagesDialect>::new(profile);
    let dialect = RecordedDialect {
        stream: MESSAGES,
        check: strict::messages,
        encode: Box::new(move |request| encoder.encode(request, true).unwrap().bytes),
        owner,
    };
    cut_everywhere::<anthropic::reply::AnthropicReply>(&dialect).await;
}

#[tokio::test]
async fn openai_responses_cut_at_every_byte() {
    let profile = ProviderProfile::new("mine", "https://h.example/v1", "m", None);
    let owner = Owner::new(openai_responses::PROTOCOL, "mine", "m");
    let encoder = Encoder::<openai_responses::encode::ResponsesDialect>::new(profile);
    let dialect = RecordedDialect {
        stream: RESPONSES,
        check: strict::responses,
        encode: Box::new(move |request| encoder.encode(request, true).unwrap().bytes),
        owner,
    };
    cut_everywhere::<openai_responses::reply::ResponsesReply>(&dialect).await;
}
