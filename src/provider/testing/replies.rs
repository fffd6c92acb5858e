//! Test helpers for all dialects: one attempt, and a text form of its result.

use std::fmt::Write as _;

use posse_actors::conversation::StopReason;
use posse_actors::ports::{Completion, Delta, ProviderError};
use proptest::prelude::*;

use crate::connect;
use crate::decode::Assembly;
use crate::profile::{Protocol, ProviderProfile};
use crate::testing::{Server, ServerStep, ask, request, stream};

/// Result of one attempt.
pub(crate) type AttemptResult = (Result<Completion, ProviderError>, Vec<Delta>);

/// A profile for `server` with `protocol`.
pub(crate) fn profile(server: &Server, protocol: Protocol) -> ProviderProfile {
    ProviderProfile { protocol, ..server.profile() }
}

/// Makes one attempt with a server that plays `script`.
pub(crate) async fn once(protocol: Protocol, script: Vec<ServerStep>) -> AttemptResult {
    let server = Server::start([script]).await;
    ask(&*connect(profile(&server, protocol)).unwrap(), request("hi")).await
}

/// Full content of a reply, or its error.
pub(crate) fn shown(reply: &Result<Completion, ProviderError>) -> String {
    match reply {
        Ok(reply) => {
            let mut text = String::new();
            let Completion { message, stop_reason, usage, model } = reply;
            writeln!(text, "{stop_reason:?} {model:?}").unwrap();
            writeln!(text, "{}", serde_json::to_string_pretty(message).unwrap()).unwrap();
            writeln!(text, "{}", serde_json::to_string(usage).unwrap()).unwrap();
            text
        }
        Err(ProviderError::Cut { partial, source } | ProviderError::Broken { partial, source }) => {
            format!("{source} ({partial:?})\n")
        }
        Err(error) => format!("{}: {}\n", error.class(), error.chain()),
    }
}

/// Joined text of deltas, whose boundaries depend on timing.
pub(crate) fn joined(deltas: &[Delta]) -> String {
    let (mut thinking, mut text) = (String::new(), String::new());
    for delta in deltas {
        match delta {
            Delta::Text(piece) => text.push_str(piece),
            Delta::Thinking(piece) => thinking.push_str(piece),
            Delta::Notice(notice) => panic!("{notice}"),
            Delta::Usage(_) | Delta::Alive => {}
        }
    }
    format!("thinking {thinking:?}, text {text:?}")
}

/// Text of the results of recorded streams, each with its name.
pub(crate) async fn recorded(protocol: Protocol, fixtures: &[(&str, &str)]) -> String {
    let mut all = String::new();
    for (name, bytes) in fixtures {
        let (reply, deltas) = once(protocol, stream(bytes)).await;
        writeln!(all, "== {name}\n{}\n{}", joined(&deltas), shown(&reply)).unwrap();
    }
    all
}

/// Class of an error, and its cause without the provider's name.
pub(crate) fn class_and_cause(error: &ProviderError) -> String {
    let source = std::error::Error::source(error).unwrap().to_string();
    let source = source.strip_prefix("mock: ").expect("names the provider");
    format!("{}: {source}", error.class())
}

/// True if a reply that stops with `ToolUse` has a call, and one that stops with another reason has
/// none, unless it was cut off at the token limit.
pub(crate) fn calls_fit_the_stop_reason(reply: &Completion) -> bool {
    match reply.stop_reason {
        StopReason::ToolUse => !reply.message.tool_calls.is_empty(),
        StopReason::MaxTokens => true,
        _ => reply.message.tool_calls.is_empty(),
    }
}

/// Random edits for [`edited`]: each replaces the character at an index by a text.
pub(crate) fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, &'static str)>> {
    let edit = prop::sample::select(vec![
        "", "\"", "\\", "{", "}", "[", "]", "null", "7", ",", ":", "\\ud800", "\n", "é", "-1.5e9",
    ]);
    prop::collection::vec((any::<prop::sample::Index>(), edit), 1..6)
}

/// `text` after the edits `edits`.
pub(crate) fn edited(text: &str, edits: Vec<(prop::sample::Index, &'static str)>) -> String {
    let mut text = text.to_owned();
    for (at, edit) in edits {
        let at = text.floor_char_boundary(at.index(text.len()));
        let end = at + text[at..].chars().next().map_or(0, char::len_utf8);
        text.replace_range(at..end, edit);
    }
    text
}

/// Completion of an `A` from the events of a stream. `None`: it has a fault.
pub(crate) fn put_together<A: Assembly>(stream: &str) -> Option<Completion> {
    let mut reply = A::default();
    for data in stream.lines().filter_map(|line| line.strip_prefix("data: ")) {
        reply.event("", data).ok();
    }
    reply.complete().ok()
}
