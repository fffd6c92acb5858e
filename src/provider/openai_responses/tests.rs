//! The adapter against a server that sends exact bytes: recorded replies and their results.

use std::sync::Arc;

use posse_actors::conversation::{Message, StopReason};
use posse_actors::ports::{Completion, ProviderError};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::connect;
use crate::profile::{Protocol, ProviderProfile, Settings};
use crate::testing::replies::{
    self, AttemptResult, calls_fit_the_stop_reason, class_and_cause, edited, edits, joined,
    put_together, recorded, shown,
};
use crate::testing::{Server, ServerStep, answer, ask, request, stream, stream_head};

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_str!(concat!("fixtures/", $name, ".sse")))
    };
}

const CALLS: &str = include_str!("fixtures/thinking_and_calls.sse");

fn profile(server: &Server) -> ProviderProfile {
    replies::profile(server, Protocol::Responses)
}

/// Asks a server that plays `script` once.
async fn once(script: Vec<ServerStep>) -> AttemptResult {
    replies::once(Protocol::Responses, script).await
}

#[tokio::test]
async fn decodes_recorded_replies() {
    let fixtures = [
        fixture!("text"),
        fixture!("thinking_and_calls"),
        fixture!("two_messages"),
        fixture!("max_tokens"),
        fixture!("content_filter"),
        fixture!("refusal"),
        fixture!("failed"),
        fixture!("error"),
        fixture!("only_at_the_end"),
        fixture!("later_versions"),
        fixture!("open_thinking"),
        fixture!("empty"),
    ];
    let all = recorded(Protocol::Responses, &fixtures).await;
    let streamed = once(stream(CALLS)).await;
    for (name, script) in [
        ("whole", answer("200 OK", "", include_str!("fixtures/whole.json"))),
        ("only at the end", stream(include_str!("fixtures/only_at_the_end.sse"))),
    ] {
        let (reply, deltas) = once(script).await;
        assert_eq!(shown(&reply), shown(&streamed.0), "{name}");
        assert_eq!(joined(&deltas), joined(&streamed.1), "{name}");
    }
    insta::assert_snapshot!(all);
}

#[tokio::test]
async fn sends_what_a_server_expects() {
    let server = Server::start([stream(CALLS)]).await;
    let provider = connect(profile(&server)).unwrap();
    ask(&*provider, request("hi")).await.0.unwrap();
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("POST /v1/responses HTTP/1.1\r\n"), "{}", seen.head);
    assert!(seen.head.contains("authorization: Bearer sk-test-0123456789\r\n"), "{}", seen.head);
    insta::assert_snapshot!(seen.body, @r#"{"model":"some-model","store":false,"stream":true,"include":["reasoning.encrypted_content"],"prompt_cache_key":"posse-c1a7ba0ed4791cca","input":[{"content":[{"text":"hi","type":"input_text"}],"role":"user","type":"message"}]}"#);
    let shown = format!("{:?} {}", provider.info(), provider.account());
    assert!(!shown.contains("0123456789"), "{shown}");
}

#[tokio::test]
async fn request_goes_to_the_configured_address() {
    let table =
        [("/v1", "/v1/responses"), ("/v1/", "/v1/responses"), ("/v1/responses", "/v1/responses")];
    let server = Server::start([]).await;
    for (path, expected) in table {
        let settings = json!({
            "type": "openai-responses", "baseURL": format!("{}{path}", server.address), "model": "m",
        });
        let settings: Settings = serde_json::from_value(settings).unwrap();
        let profile = ProviderProfile::resolve("mine", settings, |_| None).unwrap();
        let endpoint = connect(profile).unwrap().info().endpoint;
        assert_eq!(endpoint, format!("{}{expected}", server.address));
    }
}

#[tokio::test]
async fn thinking_is_returned_unchanged() {
    let server = Server::start([stream(CALLS), stream(CALLS), stream(CALLS), stream(CALLS)]).await;
    let provider = connect(profile(&server)).unwrap();
    let mut wanted = request("hi");
    let mut message = ask(&*provider, wanted.clone()).await.0.unwrap().message;
    for (nth, call) in message.tool_calls.iter_mut().enumerate() {
        call.id = posse_actors::conversation::CallId::new(format!("c{nth}"));
    }
    // As a journal keeps it.
    let kept = serde_json::to_string(&Message::Assistant(message)).unwrap();
    wanted.messages.push(Arc::new(serde_json::from_str(&kept).unwrap()));
    ask(&*provider, wanted.clone()).await.0.unwrap();
    let said = |nth: usize| {
        let body: Value = serde_json::from_str(&server.seen()[nth].body).unwrap();
        body["input"].clone()
    };
    let thought = json!({
        "type": "reasoning", "id": "rs_0", "encrypted_content": "gAAAAABpZW5jcnlwdGVk==",
        "summary": [{"type": "summary_text", "text": "Two files; I read both."}],
    });
    let kinds = |input: &Value| -> Vec<Value> {
        input.as_array().unwrap().iter().map(|item| item["type"].clone()).collect()
    };
    let rest = [
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ];
    assert_eq!(said(1)[1], thought);
    assert_eq!(kinds(&said(1))[2..], rest);
    // Another profile, or another model, does not see it.
    for other in [
        ProviderProfile { name: "other".to_owned(), ..profile(&server) },
        ProviderProfile { model: "other".to_owned(), ..profile(&server) },
    ] {
        let nth = server.seen().len();
        let other = connect(other).unwrap();
        ask(&*other, wanted.clone()).await.0.unwrap();
        assert_eq!(kinds(&said(nth))[1..], rest);
    }
}

/// Status, headers, code of the error, class, and the wait that it asks for.
type ErrorCase = (&'static str, &'static str, &'static str, &'static str, Option<u64>);

#[tokio::test]
async fn errors_are_classified_by_reaction() {
    let table: &[ErrorCase] = &[
        ("400 Bad Request", "", "invalid_request_error", "rejected", None),
        ("400 Bad Request", "", "invalid_prompt", "rejected", None),
        ("400 Bad Request", "", "content_filter", "filtered", None),
        ("400 Bad Request", "", "context_length_exceeded", "context_full", None),
        ("401 Unauthorized", "", "invalid_api_key", "unauthorized", None),
        ("404 Not Found", "", "model_not_found", "rejected", None),
        ("429 Too Many", "retry-after: 7\r\n", "rate_limit_exceeded", "rate_limited", Some(7)),
        ("429 Too Many", "", "insufficient_quota", "quota", None),
        ("500 Internal Server Error", "", "server_error", "overloaded", None),
        ("503 Unavailable", "retry-after: 3\r\n", "server_is_overloaded", "overloaded", Some(3)),
        ("503 Unavailable", "", "slow_down", "overloaded", None),
    ];
    for (status, headers, code, class, wait) in table {
        let error = json!({"message": "So it is", "type": "x", "param": null, "code": code});
        let script = answer(status, headers, &json!({ "error": error }).to_string());
        let refused = once(script).await.0.unwrap_err();
        assert_eq!(refused.class(), *class, "{status} {code}");
        assert!(refused.chain().ends_with("So it is"), "{}", refused.chain());
        if let ProviderError::Overloaded { retry_after, .. }
        | ProviderError::RateLimited { retry_after, .. } = refused
        {
            assert_eq!(retry_after.map(|wait| wait.as_secs()), *wait, "{status}");
        }
        let failed =
            json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
        let event = json!({"type": "error", "code": code, "message": "So it is", "param": null});
        let nested = json!({"type": "error", "error": error});
        for event in [failed.clone(), event, nested] {
            let refused = once(stream(format!("data: {event}\n\n"))).await.0.unwrap_err();
            assert_eq!(refused.class(), *class, "{event}");
            assert!(refused.chain().ends_with("So it is"), "{}", refused.chain());
        }
        // As the object of a reply that was not streamed.
        let whole = failed["response"].to_string();
        assert_eq!(once(answer("200 OK", "", &whole)).await.0.unwrap_err().class(), *class);
    }
}

#[tokio::test]
async fn garbage_ends_with_one_error() {
    let begun = &CALLS[..CALLS.find("event: response.output_item.done").unwrap()];
    let without = |kind: &str| {
        let events = CALLS.split_inclusive("\n\n");
        events.filter(|event| !event.starts_with(&format!("event: {kind}\n"))).collect::<String>()
    };
    let no_end = without("response.output_item.done");
    let cut = no_end.replace("; pwd\\\"}", "; pwd");
    let table = [
        (stream(""), "empty_reply: the reply is empty"),
        (stream(begun), "cut: the stream ended at byte"),
        (
            stream("data: [DONE]\n\n"),
            "empty_reply: the stream says that it is done, and nothing else",
        ),
        (stream("data: {oops\n\n"), "broken_reply: not a valid reply in the event"),
        (
            stream(
                "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"failed\"}}\n\n",
            ),
            "overloaded: reported an error in its reply: it says that it failed",
        ),
        (stream(&cut), "broken_reply: a call of the reply has no end"),
        (stream(without("response.completed")), "cut: the stream ended at byte"),
        (answer("200 OK", "", "{}"), "broken_reply: the reply does not say how it ended"),
        (answer("200 OK", "", "[]"), "broken_reply: "),
        (answer("200 OK", "", "<html>"), "not_the_provider: the reply is an HTML page"),
    ];
    for (script, expected) in table {
        let error = once(script).await.0.unwrap_err();
        let shown = class_and_cause(&error);
        assert!(shown.starts_with(expected), "{shown}\n{expected}");
    }
    // A server that forgets to end items whose arguments have an end.
    let reply = once(stream(no_end)).await.0.unwrap();
    assert_eq!((reply.stop_reason, reply.message.tool_calls.len()), (StopReason::ToolUse, 2));
    // One that sends calls only when they are whole.
    let whole = without("response.function_call_arguments.delta");
    let whole = once(stream(whole)).await.0.unwrap();
    assert_eq!(whole.message.tool_calls, reply.message.tool_calls);
}

/// Text of a stream with these events.
fn sse(events: &[Value]) -> String {
    events.iter().fold(String::new(), |text, event| format!("{text}data: {event}\n\n"))
}

/// The recorded stream up to the last piece of its last call.
fn cut_within_a_call() -> String {
    CALLS.split_inclusive("\n\n").take_while(|event| !event.contains("; pwd")).collect()
}

#[tokio::test]
async fn call_that_is_cut_at_the_token_limit_is_kept() {
    let end = |details: Value| {
        let response = json!({"status": "incomplete", "incomplete_details": details});
        format!("data: {}\n\n", json!({"type": "response.incomplete", "response": response}))
    };
    // The reason is missing with some servers.
    for details in [json!({"reason": "max_output_tokens"}), Value::Null, json!({})] {
        let script = stream(cut_within_a_call() + &end(details));
        let Completion { message, stop_reason, .. } = once(script).await.0.unwrap();
        assert_eq!(stop_reason, StopReason::MaxTokens);
        assert_eq!(message.content.as_deref(), Some("I will look at “both”."));
        let calls: Vec<(&str, &str)> = message
            .tool_calls
            .iter()
            .map(|call| (call.name.as_str(), call.arguments.as_str()))
            .collect();
        let expected = [("read_file", r#"{"path": "a.rs"}"#), ("bash", r#"{"command": "ls"#)];
        assert_eq!(calls, expected);
        // The thinking before the calls can be sent back with them.
        let items = message.reasoning.unwrap().opaque.unwrap()["items"].clone();
        assert_eq!(items.as_array().unwrap().len(), 4, "{items}");
    }
}

#[tokio::test]
async fn incomplete_reply_without_a_reason_keeps_its_text() {
    let text = json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Half of"});
    let incomplete = |status: Value| json!({"type": "response.incomplete", "response": status});
    let table = [
        (vec![text.clone(), incomplete(json!({"status": "incomplete"}))], Ok("Half of")),
        (
            vec![text.clone(), incomplete(json!({"incomplete_details": {"reason": "other"}}))],
            Ok("Half of"),
        ),
        (
            vec![incomplete(json!({"status": "incomplete"}))],
            Err("broken_reply: the reply is incomplete and has no content"),
        ),
    ];
    for (events, expected) in table {
        let body = sse(&events);
        match (once(stream(body)).await.0, expected) {
            (Ok(reply), Ok(text)) => {
                let said = (reply.stop_reason, reply.message.content.as_deref());
                assert_eq!(said, (StopReason::MaxTokens, Some(text)));
            }
            (Err(error), Err(expected)) => assert_eq!(class_and_cause(&error), expected),
            (reply, _) => panic!("{}", shown(&reply)),
        }
    }
    // As one object.
    let whole = json!({"status": "incomplete", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "Half of"}]},
    ]});
    let reply = once(answer("200 OK", "", &whole.to_string())).await.0.unwrap();
    let said = (reply.stop_reason, reply.message.content.as_deref());
    assert_eq!(said, (StopReason::MaxTokens, Some("Half of")));
}

#[tokio::test]
async fn refusal_of_a_whole_item_is_kept_after_an_earlier_one() {
    let item = |refusal: &str| json!({"type": "message", "content": [{"type": "refusal", "refusal": refusal}]});
    let done = |index: u64, item: &Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let delta = json!({"type": "response.refusal.delta", "output_index": 0, "delta": "Not this."});
    let end = json!({"type": "response.completed", "response": {"status": "completed"}});
    let two = json!({"type": "message", "content": [
        {"type": "refusal", "refusal": "Not this."}, {"type": "refusal", "refusal": " Nor that."},
    ]});
    let table = [
        vec![done(0, &item("Not this.")), done(1, &item(" Nor that.")), end.clone()],
        vec![delta, done(0, &item("Not this.")), done(1, &item(" Nor that.")), end.clone()],
        vec![done(0, &two), end],
    ];
    for events in table {
        let body = sse(&events);
        let reply = once(stream(body)).await.0.unwrap();
        let said = (reply.stop_reason, reply.message.content.as_deref());
        assert_eq!(said, (StopReason::ContentFilter, Some("Not this. Nor that.")), "{events:?}");
    }
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

proptest! {
    #[test]
    fn survives_malformed_events(edits in edits()) {
        if let Some(done) = put_together::<reply::ResponsesReply>(&edited(CALLS, edits)) {
            prop_assert!(calls_fit_the_stop_reason(&done));
        }
    }
}
