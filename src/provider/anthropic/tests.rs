//! The adapter against a server that sends exact bytes: recorded replies and their results.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, Message, Reasoning, StopReason, ToolCall,
};
use posse_actors::ports::{Delta, ProviderError, Request, Thinking, TokenCount};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::connect;
use crate::profile::{Protocol, ProviderProfile, Settings};
use crate::testing::replies::{
    self, AttemptResult, calls_fit_the_stop_reason, class_and_cause, edited, edits, joined,
    put_together, recorded, shown,
};
use crate::testing::strict::{self, assert_valid};
use crate::testing::{Server, ServerStep, answer, ask, request, stream, stream_head};

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_str!(concat!("fixtures/", $name, ".sse")))
    };
}

const CALLS: &str = include_str!("fixtures/thinking_and_calls.sse");

fn profile(server: &Server) -> ProviderProfile {
    replies::profile(server, Protocol::Messages)
}

/// Asks a server that plays `script` once.
async fn once(script: Vec<ServerStep>) -> AttemptResult {
    replies::once(Protocol::Messages, script).await
}

#[tokio::test]
async fn decodes_recorded_replies() {
    let fixtures = [
        fixture!("text"),
        fixture!("thinking_and_calls"),
        fixture!("interleaved"),
        fixture!("hidden_thinking"),
        fixture!("max_tokens"),
        fixture!("refusal"),
        fixture!("silent_refusal"),
        fixture!("stop_sequence"),
        fixture!("pause_turn"),
        fixture!("context"),
        fixture!("later_versions"),
        fixture!("empty"),
        fixture!("overloaded"),
    ];
    let mut all = recorded(Protocol::Messages, &fixtures).await;
    let whole = include_str!("fixtures/whole.json");
    let (reply, deltas) = once(answer("200 OK", "", whole)).await;
    writeln!(all, "== whole\n{}\n{}", joined(&deltas), shown(&reply)).unwrap();
    insta::assert_snapshot!(all);
}

#[tokio::test]
async fn sends_what_a_server_expects() {
    let server = Server::start([stream(CALLS)]).await;
    let provider = connect(profile(&server)).unwrap();
    ask(&*provider, request("hi")).await.0.unwrap();
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{}", seen.head);
    for line in ["x-api-key: sk-test-0123456789\r\n", "anthropic-version: 2023-06-01\r\n"] {
        assert!(seen.head.contains(line), "{}", seen.head);
    }
    assert!(!seen.head.contains("authorization"));
    insta::assert_snapshot!(seen.body, @r#"{"model":"some-model","max_tokens":32000,"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}"#);
    let shown = format!("{:?} {}", provider.info(), provider.account());
    assert!(!shown.contains("0123456789"), "{shown}");
}

#[tokio::test]
async fn request_goes_to_the_configured_address() {
    let table = [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/messages", "/v1/messages"),
        ("/api/anthropic", "/api/anthropic/v1/messages"),
        ("/v1beta/", "/v1beta/messages"),
        ("/voice", "/voice/v1/messages"),
    ];
    let server = Server::start([]).await;
    for (path, expected) in table {
        let settings = json!({
            "type": "anthropic", "baseURL": format!("{}{path}", server.address), "model": "m",
        });
        let settings: Settings = serde_json::from_value(settings).unwrap();
        let profile = ProviderProfile::resolve("mine", settings, |_| None).unwrap();
        let endpoint = connect(profile).unwrap().info().endpoint;
        assert_eq!(endpoint, format!("{}{expected}", server.address));
    }
}

#[tokio::test]
async fn configured_headers_are_sent() {
    let server = Server::start([stream(CALLS)]).await;
    let settings = json!({
        "type": "anthropic", "baseURL": server.address, "model": "m", "apiKey": "k-12345678",
        "auth": "bearer", "headers": {"anthropic-version": "2099-01-01", "anthropic-beta": "x"},
    });
    let settings: Settings = serde_json::from_value(settings).unwrap();
    let provider = connect(ProviderProfile::resolve("mine", settings, |_| None).unwrap()).unwrap();
    ask(&*provider, request("hi")).await.0.unwrap();
    let head = server.seen().remove(0).head;
    for line in
        ["authorization: Bearer k-12345678", "anthropic-version: 2099-01-01", "anthropic-beta: x"]
    {
        assert_eq!(head.matches(line).count(), 1, "{head}");
    }
    assert!(!head.contains("x-api-key") && !head.contains("2023-06-01"), "{head}");
}

#[tokio::test]
async fn thinking_is_returned_unchanged() {
    let server = Server::start([stream(CALLS), stream(CALLS), stream(CALLS)]).await;
    let provider = connect(profile(&server)).unwrap();
    let mut wanted = request("hi");
    let mut message = ask(&*provider, wanted.clone()).await.0.unwrap().message;
    for (nth, call) in message.tool_calls.iter_mut().enumerate() {
        call.id = CallId::new(format!("c{nth}"));
    }
    // As a journal keeps it.
    let kept = serde_json::to_string(&Message::Assistant(message)).unwrap();
    wanted.messages.push(Arc::new(serde_json::from_str(&kept).unwrap()));
    ask(&*provider, wanted.clone()).await.0.unwrap();
    let said = |nth: usize| {
        let body: Value = serde_json::from_str(&server.seen()[nth].body).unwrap();
        body["messages"][1]["content"].clone()
    };
    let thought = json!({
        "type": "thinking", "thinking": "Two files; I read both.",
        "signature": "EqoBCkgIARABGAIiQL2UpcVRUvlu==",
    });
    let kinds = |content: &Value| -> Vec<Value> {
        content.as_array().unwrap().iter().map(|block| block["type"].clone()).collect()
    };
    assert_eq!(said(1)[0], thought);
    assert_eq!(kinds(&said(1)), ["thinking", "text", "tool_use", "tool_use"]);
    // Another profile, or another model, does not see it.
    for other in [
        ProviderProfile { name: "other".to_owned(), ..profile(&server) },
        ProviderProfile { model: "other".to_owned(), ..profile(&server) },
    ] {
        let nth = server.seen().len();
        let other = connect(other).unwrap();
        ask(&*other, wanted.clone()).await.0.ok();
        assert_eq!(kinds(&said(nth)), ["text", "tool_use", "tool_use"]);
    }
}

/// Status, headers, type of the error, class, and the wait that it asks for.
type ErrorRow = (&'static str, &'static str, &'static str, &'static str, Option<u64>);

#[tokio::test]
async fn refused_thinking_is_left_out_of_all_later_requests() {
    let why = r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."}}"#;
    let server = Server::answering(move |request| {
        let body: Value = serde_json::from_str(&request.body).unwrap();
        assert_valid(strict::messages, request.body.as_bytes());
        let thinks = !body["thinking"].is_null() || request.body.contains("c2ln");
        Some(if thinks { answer("400 Bad Request", "", why) } else { stream(CALLS) })
    })
    .await;
    let mut profile = profile(&server);
    profile.quirks.thinking_budget = Some(2048);
    let provider = connect(profile).unwrap();
    let call = ToolCall {
        id: CallId::new("c1"),
        provider_id: None,
        name: "bash".to_owned(),
        arguments: "{}".to_owned(),
    };
    let signed = json!({"protocol": PROTOCOL, "profile": "mock", "model": "some-model",
        "items": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "bytes": 2}]});
    let said = |text: Option<&str>, reasoning, tool_calls| {
        let content = text.map(str::to_owned);
        Message::Assistant(AssistantMessage { content, reasoning, tool_calls })
    };
    let reasoning = Reasoning { text: "hm".to_owned(), field: None, opaque: Some(signed) };
    let user = |text: &str| Message::User { content: vec![ContentPart::text(text)] };
    let result = Message::Tool {
        tool_call_id: CallId::new("c1"),
        name: "bash".to_owned(),
        content: vec![ContentPart::text("done")],
        is_error: false,
    };
    // A closed tool loop of another model, and a turn of this one.
    let history = [
        user("go"),
        said(None, None, vec![call]),
        result,
        said(Some("ok"), Some(reasoning), Vec::new()),
        user("and now?"),
    ];
    let history = Request {
        messages: history.into_iter().map(Arc::new).collect(),
        thinking: Some(Thinking::High),
        ..request("")
    };
    for (requests, notices) in [(2, 1), (3, 0)] {
        let (reply, deltas) = ask(&*provider, history.clone()).await;
        reply.unwrap();
        assert_eq!(server.seen().len(), requests);
        let told = |delta: &&Delta| matches!(delta, Delta::Notice(text) if text.contains("without thinking"));
        assert_eq!(deltas.iter().filter(told).count(), notices, "{deltas:?}");
    }
}

#[tokio::test]
async fn errors_are_classified_by_reaction() {
    let table: &[ErrorRow] = &[
        ("400 Bad Request", "", "invalid_request_error", "rejected", None),
        ("401 Unauthorized", "", "authentication_error", "unauthorized", None),
        ("402 Payment Required", "", "billing_error", "quota", None),
        ("403 Forbidden", "", "permission_error", "unauthorized", None),
        ("404 Not Found", "", "not_found_error", "rejected", None),
        ("409 Conflict", "", "conflict_error", "overloaded", None),
        ("413 Too Large", "", "request_too_large", "context_full", None),
        ("429 Too Many", "retry-after: 7\r\n", "rate_limit_error", "rate_limited", Some(7)),
        ("429 Too Many", "", "rate_limit_error", "rate_limited", None),
        ("500 Internal Server Error", "", "api_error", "overloaded", None),
        ("503 Unavailable", "", "api_error", "overloaded", None),
        ("504 Timeout", "", "timeout_error", "overloaded", None),
        ("529 Overloaded", "retry-after: 3\r\n", "overloaded_error", "overloaded", Some(3)),
        ("529 Overloaded", "", "overloaded_error", "overloaded", None),
    ];
    for (status, headers, kind, class, wait) in table {
        let error = json!({
            "type": "error", "error": {"type": kind, "message": "So it is"}, "request_id": "req_1",
        });
        let in_stream = format!("event: error\ndata: {error}\n\n");
        let script = answer(status, headers, &error.to_string());
        let failed = once(script).await.0.unwrap_err();
        assert_eq!(failed.class(), *class, "{status} {kind}");
        assert!(failed.chain().contains("So it is"), "{}", failed.chain());
        if let ProviderError::Overloaded { retry_after, .. }
        | ProviderError::RateLimited { retry_after, .. } = failed
        {
            assert_eq!(retry_after.map(|wait| wait.as_secs()), *wait, "{status}");
        }
        let failed = once(stream(in_stream)).await.0.unwrap_err();
        assert_eq!(failed.class(), *class, "{kind} in a stream");
        // As the object of a reply that was not streamed.
        let failed = once(answer("200 OK", "", &error.to_string())).await.0.unwrap_err();
        assert_eq!(failed.class(), *class, "{kind} in a reply");
    }
    let worded = [
        ("prompt is too long: 210000 tokens > 200000 maximum", "context_full"),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
            "context_full",
        ),
        ("Your credit balance is too low to access the Anthropic API.", "quota"),
        ("You have reached your specified API usage limits.", "quota"),
        ("messages.3: `tool_use` ids were found without `tool_result` blocks", "rejected"),
        ("Output blocked by content filtering policy", "filtered"),
    ];
    for (message, class) in worded {
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
        let failed = once(answer("400 Bad Request", "", &error.to_string())).await.0.unwrap_err();
        assert_eq!(failed.class(), class, "{message}");
    }
}

/// The recorded stream up to the last piece of its last call.
fn cut_within_a_call() -> String {
    CALLS.split_inclusive("\n\n").take_while(|event| !event.contains("; pwd")).collect()
}

#[tokio::test]
async fn call_that_is_cut_at_the_token_limit_is_kept() {
    let end = "data: {\"type\":\"content_block_stop\",\"index\":3}\n\n\
               data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\n\
               data: {\"type\":\"message_stop\"}\n\n";
    let reply = once(stream(cut_within_a_call() + end)).await.0.unwrap();
    assert_eq!(reply.stop_reason, StopReason::MaxTokens);
    let message = reply.message;
    let calls: Vec<(&str, &str)> = message
        .tool_calls
        .iter()
        .map(|call| (call.name.as_str(), call.arguments.as_str()))
        .collect();
    let expected = [("read_file", r#"{"path": "a.rs"}"#), ("bash", r#"{"command": "ls"#)];
    assert_eq!(calls, expected);
    // The thinking before the calls can be sent back with them.
    let items = message.reasoning.unwrap().opaque.unwrap()["items"].clone();
    let kinds: Vec<&str> =
        items.as_array().unwrap().iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds[kinds.len() - 2..], ["tool_use", "tool_use"], "{items}");
}

#[tokio::test]
async fn garbage_ends_with_one_error() {
    let begun = &CALLS[..CALLS.find("event: content_block_stop").unwrap()];
    let no_end = CALLS.replace(
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n",
        "",
    );
    let cut = no_end.replace("; pwd\\\"}", "; pwd");
    let table = [
        (stream(""), "empty_reply: the reply is empty"),
        (stream(begun), "cut: the stream ended at byte"),
        (
            stream("data: {\"type\":\"message_stop\"}\n\n"),
            "empty_reply: the stream says that it is done, and nothing else",
        ),
        (
            stream("event: message_start\ndata: {oops\n\n"),
            "broken_reply: not a valid reply in the event",
        ),
        (
            stream(
                "data: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
            ),
            "broken_reply: not a valid reply in the event at byte 0: a piece of a block that never began",
        ),
        (stream(&cut), "broken_reply: a call of the reply has no end"),
        (answer("200 OK", "", "{}"), "broken_reply: the reply does not say why it stops"),
        (answer("200 OK", "", "[]"), "broken_reply: "),
        (answer("200 OK", "", "<html>"), "not_the_provider: the reply is an HTML page"),
    ];
    for (script, expected) in table {
        let error = once(script).await.0.unwrap_err();
        let shown = class_and_cause(&error);
        assert!(shown.starts_with(expected), "{shown}\n{expected}");
    }
    // A server that forgets to end a block whose arguments have an end.
    let reply = once(stream(no_end)).await.0.unwrap();
    assert_eq!((reply.stop_reason, reply.message.tool_calls.len()), (StopReason::ToolUse, 2));
}

#[tokio::test]
async fn chunking_does_not_change_the_reply() {
    let body = CALLS.replace('\n', "\r\n");
    let whole = once(stream(&body)).await.0.unwrap();
    let mut script = vec![stream_head()];
    script.extend(body.as_bytes().chunks(3).map(|bytes| ServerStep::Send(bytes.to_vec())));
    assert_eq!(
        once(script.into_iter().chain([ServerStep::Close]).collect()).await.0.unwrap(),
        whole
    );
}

#[tokio::test]
async fn pings_are_not_content() {
    let start = &CALLS[..CALLS.find("event: content_block_start").unwrap()];
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let server = Server::start([vec![
        ServerStep::Send(format!("{head}{start}").into()),
        ServerStep::Repeat(ping.into(), Duration::from_millis(5)),
    ]])
    .await;
    let mut profile = profile(&server);
    profile.timeouts.idle_ms = Some(100);
    let provider = connect(profile).unwrap();
    let error = ask(&*provider, request("hi")).await.0.unwrap_err();
    assert!(error.chain().ends_with("no content for 0.1 s (timeouts.idle)"), "{}", error.chain());
}

#[tokio::test]
async fn token_counting_endpoint_is_used() {
    let server = Server::start([
        answer("200 OK", "", r#"{"input_tokens": 2095}"#),
        answer("200 OK", "", "{}"),
        answer("404 Not Found", "", r#"{"error":{"type":"not_found_error","message":"no"}}"#),
    ])
    .await;
    let provider = connect(profile(&server)).unwrap();
    let counted = provider.count_tokens(request("hi")).await.unwrap();
    assert_eq!(counted, TokenCount { tokens: 2095, is_exact: true });
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("POST /v1/messages/count_tokens HTTP/1.1\r\n"), "{}", seen.head);
    insta::assert_snapshot!(seen.body, @r#"{"model":"some-model","messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}"#);
    let class = async || provider.count_tokens(request("hi")).await.unwrap_err().class();
    assert_eq!((class().await, class().await), ("broken_reply", "rejected"));
}

proptest! {
    #[test]
    fn survives_malformed_events(edits in edits()) {
        if let Some(done) = put_together::<reply::AnthropicReply>(&edited(CALLS, edits)) {
            prop_assert!(calls_fit_the_stop_reason(&done));
        }
    }
}
