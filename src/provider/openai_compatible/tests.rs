//! The adapter against a server that sends exact bytes.

mod calls;
mod faults;
mod gemini;
mod recorded;
mod silence;

use std::sync::Arc;

use posse_actors::conversation::{CallId, StopReason, ToolCall, Usage};
use posse_actors::ports::{Completion, Delta, ProviderError, Request};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::connect;
use crate::decode::Assembly;
use crate::http::Endpoint;
use crate::profile::{Protocol, ProviderProfile, Settings};
use crate::testing::replies::calls_fit_the_stop_reason;
use crate::testing::replies::{self, AttemptResult, class_and_cause, edited, edits};
use crate::testing::{Server, ServerStep, answer, ask, request, stream, stream_head};

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId::new(id),
        provider_id: (!id.is_empty()).then(|| id.to_owned()),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    }
}

fn sse(events: &[&str]) -> String {
    format!("data: {}\n\n", events.join("\n\ndata: "))
}

/// Asks a server that plays `script` once.
async fn once(script: Vec<ServerStep>) -> AttemptResult {
    replies::once(Protocol::ChatCompletions, script).await
}

async fn completed(script: Vec<ServerStep>) -> Completion {
    once(script).await.0.unwrap()
}

async fn failed(script: Vec<ServerStep>) -> ProviderError {
    once(script).await.0.unwrap_err()
}

const HELLO: &[&str] = &[
    r#"{"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
    r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
    r#"{"choices":[{"delta":{"content":"h\u00e9llo"}}]}"#,
    r#"{"choices":[{"delta":{"content":" wörld"}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"bash","arguments":""}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"command\":"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"ls\"}"}}]}}]}"#,
    r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":"5","prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}"#,
    "[DONE]",
];

/// An image in a result goes to models that see, and a marker to those that do not.
#[tokio::test]
async fn images_in_results_are_sent_or_marked() {
    use posse_actors::conversation::{AssistantMessage, ContentPart, Message};
    let asked = ToolCall { arguments: "{}".to_owned(), ..call("a", "read_file", "") };
    let image = ContentPart::ImageUrl {
        url: "data:image/png;base64,iVBORw0KGgo=".to_owned(),
        detail: None,
    };
    for no_vision in [false, true] {
        let server = Server::start([stream(sse(HELLO))]).await;
        let mut profile = server.profile();
        profile.quirks.no_vision = no_vision;
        let provider = connect(profile).unwrap();
        let mut wanted = request("look");
        wanted.messages.push(Arc::new(Message::Assistant(AssistantMessage {
            content: None,
            reasoning: None,
            tool_calls: vec![asked.clone()],
        })));
        wanted.messages.push(Arc::new(Message::Tool {
            tool_call_id: asked.id.clone(),
            name: asked.name.clone(),
            content: vec![ContentPart::text("a.png: PNG, 1x1"), image.clone()],
            is_error: false,
        }));
        ask(&*provider, wanted).await.0.unwrap();
        let body = server.seen()[0].body.clone();
        assert!(body.contains("a.png: PNG, 1x1"), "{body}");
        assert_eq!(body.contains("iVBORw0KGgo="), !no_vision, "{body}");
        assert_eq!(body.contains("[image left out: this model takes no images]"), no_vision);
    }
}

#[tokio::test]
async fn streams_a_reply() {
    let (reply, deltas) = once(stream(sse(HELLO))).await;
    let reply = reply.unwrap();
    assert_eq!(reply.message.content.as_deref(), Some("héllo wörld"));
    assert_eq!(reply.message.tool_calls, [call("a", "bash", r#"{"command":"ls"}"#)]);
    let reasoning = reply.message.reasoning.unwrap();
    assert_eq!((&*reasoning.text, reasoning.field.as_deref()), ("hm", Some("reasoning_content")));
    assert_eq!(reply.stop_reason, StopReason::ToolUse);
    assert_eq!(reply.model.as_deref(), Some("m-1"));
    let usage = Usage {
        input_tokens: Some(10),
        output_tokens: Some(5),
        cached_input_tokens: Some(4),
        reasoning_tokens: Some(1),
        cache_write_tokens: None,
    };
    assert_eq!(reply.usage, Some(usage));
    // The pieces of one read are joined, so there are one or a few deltas.
    let joined: String = deltas
        .iter()
        .map(|delta| match delta {
            Delta::Text(text) | Delta::Thinking(text) | Delta::Notice(text) => text.as_str(),
            Delta::Usage(_) | Delta::Alive => "",
        })
        .collect();
    assert_eq!(joined, "hmhéllo wörld");
    assert!(deltas.len() <= 3, "{deltas:?}");
}

#[tokio::test]
async fn sends_what_a_server_expects() {
    let server = Server::start([stream(sse(HELLO))]).await;
    let provider = connect(server.profile()).unwrap();
    ask(&*provider, request("hi")).await.0.unwrap();
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", seen.head);
    assert!(seen.head.contains("authorization: Bearer sk-test-0123456789\r\n"), "{}", seen.head);
    insta::assert_snapshot!(seen.body, @r#"{"model":"some-model","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}"#);
    let shown = format!("{:?} {}", provider.info(), provider.account());
    assert!(!shown.contains("0123456789"), "{shown}");
}

#[test]
fn azure_takes_a_key_or_the_credentials_of_a_header() {
    let endpoint = |settings: serde_json::Value| {
        let mut all = json!({"baseURL": "https://mine.openai.azure.com/openai/v1", "model": "m"});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let settings: Settings = serde_json::from_value(all).unwrap();
        let profile = ProviderProfile::resolve("mine", settings, |_| None).unwrap();
        Endpoint::new(&profile, "/chat/completions")
    };
    for settings in [
        json!({"apiKey": "secret-0123456789"}),
        json!({"headers": {"api-key": "secret-0123456789"}}),
        json!({"headers": {"Authorization": "Bearer secret-0123456789"}}),
    ] {
        let endpoint = endpoint(settings.clone()).unwrap();
        assert!(!format!("{endpoint:?}").contains("0123456789"), "{settings}");
    }
    let failure = endpoint(json!({"headers": {"x-team": "one"}})).unwrap_err();
    assert_eq!(failure.what, "provider \"mine\" has no key");
}

#[tokio::test]
async fn connection_is_reused() {
    let chunked = |body: &str| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        vec![
            ServerStep::Send(format!("{head}{:x}\r\n{body}\r\n", body.len()).into()),
            ServerStep::Send(b"0\r\n\r\n".to_vec()),
        ]
    };
    let server = Server::start([chunked(&sse(HELLO)), chunked(&sse(HELLO))]).await;
    let provider = connect(server.profile()).unwrap();
    ask(&*provider, request("one")).await.0.unwrap();
    ask(&*provider, request("two")).await.0.unwrap();
    assert_eq!((server.seen().len(), server.connections()), (2, 1));
}

#[tokio::test]
async fn accepts_object_for_stream_and_stream_for_object() {
    let object = r#"{"choices":[{"message":{"content":"hello","tool_calls":[
        {"id":"x","function":{"name":"a","arguments":{"n":1}}},
        {"id":"x","function":{"name":"a","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    let (reply, deltas) = once(answer("200 OK", "", object)).await;
    let reply = reply.unwrap();
    assert_eq!(reply.message.tool_calls, [call("x", "a", r#"{"n":1}"#), call("x", "a", "{}")]);
    assert_eq!(reply.stop_reason, StopReason::ToolUse);
    assert_eq!(deltas, [Delta::Text("hello".to_owned())]);

    let server = Server::start([answer("200 OK", "", &sse(HELLO))]).await;
    let provider = connect(server.profile()).unwrap();
    let (reply, deltas) = ask(&*provider, Request { stream: false, ..request("hi") }).await;
    assert_eq!(reply.unwrap().message.content.as_deref(), Some("héllo wörld"));
    assert_eq!(deltas, []);
    assert!(!server.seen()[0].body.contains("stream"));
}

#[tokio::test]
async fn cut_at_any_byte_is_a_broken_reply() {
    let body = sse(HELLO);
    let finished = body.find("\"tool_calls\"}]}\n\n").unwrap() + "\"tool_calls\"}]}\n\n".len();
    let scripts = (0..body.len()).flat_map(|cut| {
        [ServerStep::Close, ServerStep::Reset]
            .map(|end| vec![stream_head(), ServerStep::Send(body.as_bytes()[..cut].to_vec()), end])
    });
    let server = Server::start(scripts).await;
    let provider = connect(server.profile()).unwrap();
    for cut in 0..body.len() {
        for end in ["close", "reset"] {
            let (reply, _) = ask(&*provider, request("hi")).await;
            match reply {
                Ok(reply) => {
                    assert!(cut >= finished, "{end} at {cut}: {reply:?}");
                    assert_eq!(reply.message.tool_calls[0].arguments, r#"{"command":"ls"}"#);
                }
                Err(
                    ProviderError::Cut { partial, source }
                    | ProviderError::Broken { partial, source },
                ) => {
                    assert!(end == "reset" || cut < finished, "{end} at {cut}: {source}");
                    assert!("héllo wörld".starts_with(&partial), "{end} at {cut}: {partial:?}");
                    assert!(source.to_string().starts_with("mock: "), "{source}");
                }
                Err(ProviderError::Unreachable { .. }) => assert_eq!(end, "reset", "at {cut}"),
                Err(ProviderError::Empty { .. }) => assert_eq!((end, cut), ("close", 0)),
                Err(other) => panic!("{end} at {cut}: {}", other.chain()),
            }
        }
    }
}

#[tokio::test]
async fn chunking_does_not_change_the_reply() {
    let body = sse(HELLO).replace('\n', "\r\n");
    let whole = completed(stream(&body)).await;
    let mut script = vec![stream_head()];
    script.extend(body.as_bytes().chunks(1).map(|byte| ServerStep::Send(byte.to_vec())));
    assert_eq!(completed(script.into_iter().chain([ServerStep::Close]).collect()).await, whole);
}

#[tokio::test]
async fn vendor_is_reached_by_configuration_alone() {
    let server = Server::start([stream(sse(HELLO))]).await;
    let settings = format!(
        r#"{{"baseURL":"{}/api/v3/","model":"new-1","apiKeyEnv":"NEW_KEY",
            "auth":{{"header":"x-new-key"}},"headers":{{"x-team":"blue"}},"maxTokens":100,
            "quirks":{{"maxTokensField":"max_new_tokens","noStreamUsage":true}}}}"#,
        server.address
    );
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    let profile = ProviderProfile::resolve("new", settings, |variable| {
        (variable == "NEW_KEY").then(|| "k-123".to_owned())
    })
    .unwrap();
    let provider = connect(profile).unwrap();
    let reply = ask(&*provider, request("hi")).await.0.unwrap();
    assert_eq!(reply.message.content.as_deref(), Some("héllo wörld"));
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("POST /api/v3/chat/completions "), "{}", seen.head);
    for line in ["x-new-key: k-123\r\n", "x-team: blue\r\n"] {
        assert!(seen.head.contains(line), "{}", seen.head);
    }
    assert!(!seen.head.contains("authorization"));
    insta::assert_snapshot!(seen.body, @r#"{"model":"new-1","stream":true,"max_new_tokens":100,"messages":[{"role":"user","content":"hi"}]}"#);
}

#[tokio::test]
async fn reads_a_long_stream_in_linear_time() {
    let delta = format!(
        "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"finish_reason\":null}}]}}\n\n",
        "word "
    );
    let body = delta.repeat(20_000) + &sse(&HELLO[7..]);
    let (reply, deltas) = once(stream(body)).await;
    assert_eq!(reply.unwrap().message.content.map(|text| text.len()), Some(100_000));
    assert!(deltas.len() < 5_000, "{} deltas", deltas.len());
}

proptest! {
    #[test]
    fn survives_malformed_chunks(edits in edits()) {
        let text = edited(&HELLO[..9].join("\n"), edits);
        for mode in [reply::DeltaMode::Stream, reply::DeltaMode::Whole] {
            let mut whole = reply::ChatReply::default();
            for line in text.lines() {
                whole.add(line, mode).ok();
            }
            let done = whole.complete().unwrap();
            prop_assert!(calls_fit_the_stop_reason(&done));
        }
    }
}
