//! Gemini-specific behaviour of the compatible endpoint: signed thinking with calls, reasons for
//! withheld replies, and invalid calls.

use std::fmt::Write as _;

use posse_actors::conversation::Message;
use serde_json::{Value, json};

use super::*;
use crate::testing::strict::{self, assert_valid};

const CALLS: &str = include_str!("../fixtures/gemini_signed_calls.sse");
const BLOCKED: &str = include_str!("../fixtures/gemini_blocked_prompt.sse");
const FILTERED: &str = include_str!("../fixtures/gemini_safety.sse");
const NO_CALL: &str = include_str!("../fixtures/gemini_malformed_call.sse");

#[tokio::test]
async fn decodes_recorded_replies() {
    let all = replies::recorded(
        Protocol::ChatCompletions,
        &[
            ("signed calls", CALLS),
            ("blocked prompt", BLOCKED),
            ("safety", FILTERED),
            ("malformed call", NO_CALL),
            ("text", include_str!("../fixtures/gemini_text.sse")),
        ],
    );
    let mut all = all.await;
    // Its errors come in a list.
    let error = include_str!("../fixtures/gemini_error.json");
    let script = answer("429 Too Many Requests", "content-type: application/json\r\n", error);
    let error = replies::once(Protocol::ChatCompletions, script).await.0;
    writeln!(all, "== error\n{}", replies::shown(&error)).unwrap();
    insta::assert_snapshot!(all);
}

#[tokio::test]
async fn thought_signatures_return_with_their_calls_to_their_server_only() {
    let server = Server::start(std::iter::repeat_n(stream(CALLS), 4)).await;
    let provider = connect(server.profile()).unwrap();
    let mut wanted = request("hi");
    let mut message = ask(&*provider, wanted.clone()).await.0.unwrap().message;
    for (nth, call) in message.tool_calls.iter_mut().enumerate() {
        call.id = CallId::new(format!("c{nth}"));
    }
    // As a journal keeps it.
    let kept = serde_json::to_string(&Message::Assistant(message)).unwrap();
    wanted.messages.push(Arc::new(serde_json::from_str(&kept).unwrap()));
    ask(&*provider, wanted.clone()).await.0.unwrap();
    let calls = |nth: usize| -> Vec<Value> {
        let body = server.seen()[nth].body.clone();
        assert_valid(strict::chat, body.as_bytes());
        let body: Value = serde_json::from_str(&body).unwrap();
        body["messages"][1]["tool_calls"].as_array().unwrap().clone()
    };
    let signed = json!({"google": {"thought_signature": "CiQBc2lnbmVk+/=="}});
    assert_eq!(calls(1)[0]["extra_content"], signed);
    assert_eq!(calls(1)[1].get("extra_content"), None);
    for other in [
        ProviderProfile { name: "other".to_owned(), ..server.profile() },
        ProviderProfile { model: "other".to_owned(), ..server.profile() },
    ] {
        let nth = server.seen().len();
        ask(&*connect(other).unwrap(), wanted.clone()).await.0.unwrap();
        assert!(calls(nth).iter().all(|call| call.get("extra_content").is_none()));
    }
}
