//! The adapter against a server that says exact bytes.

use std::time::{Duration, Instant};

use posse_actors::conversation::{CallId, StopReason, ToolCall, Usage};
use posse_actors::ports::Delta;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::provider::decode::Assembly;
use crate::provider::profile::Settings;
use crate::provider::testing::{Server, Step, answer, ask, request, stream, stream_head};

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
async fn once(script: Vec<Step>) -> (Result<Completion, ProviderError>, Vec<Delta>) {
    let server = Server::start([script]).await;
    let mut profile = server.profile();
    profile.timeouts.idle_ms = 10_000;
    let provider = OpenAiCompatible::new(profile).unwrap();
    ask(&provider, request("hi")).await
}

async fn completed(script: Vec<Step>) -> Completion {
    once(script).await.0.unwrap()
}

async fn failed(script: Vec<Step>) -> ProviderError {
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
        let provider = OpenAiCompatible::new(profile).unwrap();
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
        ask(&provider, wanted).await.0.unwrap();
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
    // One read brought everything, or a few did: the pieces of one read are joined.
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
    let provider = OpenAiCompatible::new(server.profile()).unwrap();
    ask(&provider, request("hi")).await.0.unwrap();
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", seen.head);
    assert!(seen.head.contains("authorization: Bearer sk-test-0123456789\r\n"), "{}", seen.head);
    insta::assert_snapshot!(seen.body, @r#"{"model":"some-model","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}"#);
    let shown = format!("{provider:?} {:?}", provider.info());
    assert!(!shown.contains("0123456789"), "{shown}");
}

#[tokio::test]
async fn uses_a_connection_again() {
    let chunked = |body: &str| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        vec![
            Step::Send(format!("{head}{:x}\r\n{body}\r\n", body.len()).into()),
            Step::Send(b"0\r\n\r\n".to_vec()),
        ]
    };
    let server = Server::start([chunked(&sse(HELLO)), chunked(&sse(HELLO))]).await;
    let provider = OpenAiCompatible::new(server.profile()).unwrap();
    ask(&provider, request("one")).await.0.unwrap();
    ask(&provider, request("two")).await.0.unwrap();
    assert_eq!((server.seen().len(), server.connections()), (2, 1));
}

#[tokio::test]
async fn takes_an_object_where_it_wanted_a_stream_and_the_reverse() {
    let object = r#"{"choices":[{"message":{"content":"hello","tool_calls":[
        {"id":"x","function":{"name":"a","arguments":{"n":1}}},
        {"id":"x","function":{"name":"a","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    let (reply, deltas) = once(answer("200 OK", "", object)).await;
    let reply = reply.unwrap();
    assert_eq!(reply.message.tool_calls, [call("x", "a", r#"{"n":1}"#), call("x", "a", "{}")]);
    assert_eq!(reply.stop_reason, StopReason::ToolUse);
    assert_eq!(deltas, [Delta::Text("hello".to_owned())]);

    let server = Server::start([answer("200 OK", "", &sse(HELLO))]).await;
    let provider = OpenAiCompatible::new(server.profile()).unwrap();
    let (reply, deltas) = ask(&provider, Request { stream: false, ..request("hi") }).await;
    assert_eq!(reply.unwrap().message.content.as_deref(), Some("héllo wörld"));
    assert_eq!(deltas, []);
    assert!(!server.seen()[0].body.contains("stream"));
}

#[tokio::test]
async fn takes_a_cut_at_any_byte_for_a_cut() {
    let body = sse(HELLO);
    let finished = body.find("\"tool_calls\"}]}\n\n").unwrap() + "\"tool_calls\"}]}\n\n".len();
    let scripts = (0..body.len()).flat_map(|cut| {
        [Step::Close, Step::Reset]
            .map(|end| vec![stream_head(), Step::Send(body.as_bytes()[..cut].to_vec()), end])
    });
    let server = Server::start(scripts).await;
    let provider = OpenAiCompatible::new(server.profile()).unwrap();
    for cut in 0..body.len() {
        for end in ["close", "reset"] {
            let (reply, _) = ask(&provider, request("hi")).await;
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
                Err(other) => panic!("{end} at {cut}: {}", other.chain()),
            }
        }
    }
}

#[tokio::test]
async fn gives_the_same_reply_however_it_is_cut() {
    let body = sse(HELLO).replace('\n', "\r\n");
    let whole = completed(stream(&body)).await;
    let mut script = vec![stream_head()];
    script.extend(body.as_bytes().chunks(1).map(|byte| Step::Send(byte.to_vec())));
    assert_eq!(completed(script.into_iter().chain([Step::Close]).collect()).await, whole);
}

/// Id, name and arguments of a call.
type Shown = (&'static str, &'static str, &'static str);

#[tokio::test]
async fn tells_calls_apart() {
    let first = r#"{"choices":[{"delta":{"tool_calls":[%]}}]}"#;
    let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let piece = |pieces: &str| first.replace('%', pieces);
    let table: &[(&[&str], &[Shown])] = &[
        // Interleaved.
        (
            &[
                r#"{"index":1,"id":"b","function":{"name":"y","arguments":"{"}}"#,
                r#"{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}"#,
                r#"{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":"}"}}"#,
            ],
            &[("b", "y", "{}"), ("a", "x", "{}")],
        ),
        // The same id twice, and none at all.
        (
            &[
                r#"{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}"#,
                r#"{"index":1,"id":"a","function":{"name":"x","arguments":"{}"}}"#,
                r#"{"index":2,"function":{"name":"x","arguments":"{}"}}"#,
            ],
            &[("a", "x", "{}"), ("a", "x", "{}"), ("", "x", "{}")],
        ),
        // No index, each whole; then the same index for all.
        (
            &[
                r#"{"id":"a","function":{"name":"x","arguments":"{}"}},{"id":"b","function":{"name":"y","arguments":{"k":1}}}"#,
            ],
            &[("a", "x", "{}"), ("b", "y", r#"{"k":1}"#)],
        ),
        (
            &[
                r#"{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}"#,
                r#"{"index":0,"id":"b","function":{"name":"x","arguments":"{}"}}"#,
                r#"{"index":0,"id":"b","function":{"name":"x","arguments":"{}"}}"#,
            ],
            &[("a", "x", "{}"), ("b", "x", "{}"), ("b", "x", "{}")],
        ),
        // The name and the id again with every piece; no index anywhere.
        (
            &[
                r#"{"id":"a","function":{"name":"x","arguments":"{\"k\":"}}"#,
                r#"{"id":"a","function":{"name":"x","arguments":"1}"}}"#,
                r#"{"function":{"arguments":" "}}"#,
            ],
            &[("a", "x", "{\"k\":1} ")],
        ),
        // Numbers as strings, nonsense, null, and a call without a name.
        (
            &[
                r#"{"index":"0","id":7,"function":{"name":"x","arguments":null,"extra":[{}]}}"#,
                r#"null,5,{"index":9},{"index":0,"id":null,"function":{"name":null,"arguments":"{}"}}"#,
            ],
            &[("7", "x", "{}")],
        ),
    ];
    for (pieces, expected) in table {
        let mut events: Vec<String> = pieces.iter().map(|pieces| piece(pieces)).collect();
        events.push(end.to_owned());
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let reply = completed(stream(sse(&events))).await;
        let expected: Vec<ToolCall> =
            expected.iter().map(|(id, name, arguments)| call(id, name, arguments)).collect();
        assert_eq!(reply.message.tool_calls, expected);
        assert_eq!(reply.stop_reason, StopReason::ToolUse);
    }
}

#[tokio::test]
async fn stops_with_tool_use_exactly_when_there_is_a_call() {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"a\":"}}]}}]}"#;
    let text = r#"{"choices":[{"delta":{"content":"t"}}]}"#;
    let refusal = r#"{"choices":[{"delta":{"refusal":"no"}}]}"#;
    let table = [
        (vec![text], "stop", StopReason::EndTurn, 0),
        (vec![text], "tool_calls", StopReason::EndTurn, 0),
        (vec![], "tool_calls", StopReason::Error, 0),
        (vec![call], "stop", StopReason::ToolUse, 1),
        (vec![call], "tool_calls", StopReason::ToolUse, 1),
        (vec![call], "whatever", StopReason::ToolUse, 1),
        (vec![text, call], "length", StopReason::MaxTokens, 0),
        (vec![call], "content_filter", StopReason::ContentFilter, 0),
        (vec![text], "content_filter", StopReason::ContentFilter, 0),
        (vec![call], "content_filter: PROHIBITED_CONTENT", StopReason::ContentFilter, 0),
        (vec![], "SAFETY", StopReason::ContentFilter, 0),
        (vec![text], "RECITATION", StopReason::ContentFilter, 0),
        (vec![refusal], "stop", StopReason::ContentFilter, 0),
        (vec![text], "error", StopReason::Error, 0),
        (vec![], "stop", StopReason::EndTurn, 0),
    ];
    for (events, finish, stop_reason, calls) in table {
        let end = format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{finish}"}}]}}"#);
        let events: Vec<&str> = events.into_iter().chain([end.as_str()]).collect();
        let reply = completed(stream(sse(&events))).await;
        assert_eq!((reply.stop_reason, reply.message.tool_calls.len()), (stop_reason, calls));
    }
}

#[tokio::test]
async fn ignores_what_it_does_not_know() {
    let body = format!(
        "\u{feff}: hi\r\nid: 3\r\nretry: x\r\nnonsense\r\n\r\n{}",
        sse(&[
            r#"{"type":"ping"}"#,
            r#"{"choices":null,"x":{"y":[1,2,{"z":null}]}}"#,
            r#"{"choices":[{"delta":"odd","finish_reason":null,"logprobs":{}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"text","text":"ok"},{"type":"odd"},7]}}]}"#,
            r#"{"choices":[{"delta":null,"message":{"content":"ok again, whole"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":1000000000},"error":null}"#,
        ])
    );
    let reply = completed(stream(body)).await;
    assert_eq!(reply.message.content.as_deref(), Some("ok"));
    assert_eq!(reply.usage, Some(Usage::default()));
}

#[tokio::test]
async fn bears_halves_of_characters() {
    let events = [
        r#"{"choices":[{"delta":{"content":"a\ud83d"}}]}"#,
        r#"{"choices":[{"delta":{"content":"\ude00 \ud83d\ude00 \\ud83d ü"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"k\":\"\udfff\"}"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    ];
    let reply = completed(stream(sse(&events))).await.message;
    assert_eq!(reply.content.as_deref(), Some("a\u{fffd}\u{fffd} \u{1f600} \\ud83d ü"));
    assert_eq!(reply.tool_calls, [call("a", "x", "{\"k\":\"\u{fffd}\"}")]);
}

#[tokio::test]
async fn ends_garbage_with_one_error() {
    let text = r#"{"choices":[{"delta":{"content":"abc"}}]}"#;
    let huge = format!("data: {}", "x".repeat(17 * 1024 * 1024));
    let table: Vec<(Vec<Step>, &str)> = vec![
        (stream(""), "broken_reply: the reply is empty"),
        (stream("   \r\n\n"), "broken_reply: the reply is empty"),
        (stream(b"\0\xff\xfe garbage"), "cut: the stream ended at byte 11"),
        (stream("hello"), "cut: the stream ended at byte 5"),
        (
            stream(sse(&[text, "{\"choices\": [oops"])),
            "broken_reply: not a valid reply in the event at byte 49",
        ),
        (
            stream(sse(&[text, "{\"a\":\"\0\"}"])),
            "broken_reply: not a valid reply in the event at byte 49",
        ),
        (stream(sse(&[text])), "cut: the stream ended at byte 49"),
        (
            stream(sse(&["[DONE]"])),
            "broken_reply: the stream says that it is done, and nothing else",
        ),
        (stream(huge), "broken_reply: an event is larger than 16777216 bytes (the line at byte 0)"),
        (
            answer("200 OK", "", "{\"choices\":"),
            "broken_reply: not a valid reply in the event at byte 0",
        ),
        (answer("200 OK", "", "[]"), "broken_reply: the reply has no choices"),
        (answer("200 OK", "", "{}"), "broken_reply: the reply has no choices"),
        (answer("200 OK", "", "{\"choices\":[]}"), "broken_reply: the reply has no choices"),
        (answer("200 OK", "", ""), "broken_reply: the reply is empty"),
        (answer("204 No Content", "", ""), "broken_reply: the reply is empty"),
        (
            answer("200 OK", "content-type: text/html; charset=utf-8\r\n", "hi"),
            "not_the_provider: the reply is an HTML page",
        ),
        (answer("200 OK", "", "\n<!doctype html>"), "not_the_provider: the reply is an HTML page"),
        (vec![Step::Send(b"SSH-2.0-OpenSSH\r\n".to_vec()), Step::Close], "unreachable: "),
        (vec![Step::Close], "unreachable: "),
        (vec![Step::Reset], "unreachable: "),
        (
            stream(sse(&[r#"{"error":{"message":"down","code":502}}"#])),
            "overloaded: reported an error in its reply: down",
        ),
        (
            stream(sse(&[r#"{"choices":[{"error":{"message":"down","code":502}}]}"#])),
            "overloaded: reported",
        ),
        (stream("event: error\ndata: oh no\n\n"), "overloaded: reported an error in its reply: "),
        (
            answer("200 OK", "", r#"{"error":{"message":"maximum context length is 5"}}"#),
            "context_full: ",
        ),
        (
            answer("302 Found", "location: https://evil.example/v1\r\n", ""),
            "redirected: refused to follow a redirect (302) to https://evil.example/v1",
        ),
    ];
    for (script, expected) in table {
        let error = failed(script).await;
        let source = std::error::Error::source(&error).unwrap().to_string();
        let source = source.strip_prefix("mock: ").expect("names the provider");
        let shown = format!("{}: {source}", error.class());
        assert!(shown.starts_with(expected), "{shown}\n{expected}");
        if let ProviderError::Broken { partial, .. } | ProviderError::Cut { partial, .. } = error {
            assert!(partial == "abc" || partial.is_empty(), "{partial}");
        }
    }
}

/// An event stream that begins with `text`, in one piece with its head.
fn begun(text: &str, then: Step) -> Vec<Step> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    vec![Step::Send(format!("{head}{text}").into()), then]
}

#[tokio::test]
async fn measures_silence_between_content() {
    let text = sse(&[r#"{"choices":[{"delta":{"content":"abc"}}]}"#]);
    let again = |bytes: &str| Step::Repeat(bytes.into(), Duration::from_millis(5));
    let scripts = [
        begun("", Step::Stall),
        begun("", again("d")),
        begun("", again("\n")),
        begun(&text, Step::Stall),
        begun(&text, again(": ping\n\n")),
        begun(&text, again("data: {\"type\":\"ping\"}\n\n")),
    ];
    let server = Server::start(scripts).await;
    let mut profile = server.profile();
    profile.timeouts.idle_ms = 100;
    let provider = OpenAiCompatible::new(profile).unwrap();
    for expected in [None, None, None, Some("abc"), Some("abc"), Some("abc")] {
        let began = Instant::now();
        let error = ask(&provider, request("hi")).await.0.unwrap_err();
        assert!(began.elapsed() >= Duration::from_millis(95));
        assert!(error.chain().ends_with("no content for 0.1 s"), "{}", error.chain());
        match (error, expected) {
            (ProviderError::Unreachable { .. }, None) => {}
            (ProviderError::Cut { partial, .. }, Some(text)) => assert_eq!(partial, text),
            (error, _) => panic!("{}", error.chain()),
        }
    }
}

#[tokio::test]
async fn tells_silence_from_pings() {
    let text = sse(&[r#"{"choices":[{"delta":{"content":"abc"}}]}"#]);
    let pings = Step::Repeat(": ping\n\n".into(), Duration::from_millis(5));
    let server = Server::start([begun(&text, Step::Stall), begun(&text, pings)]).await;
    let mut profile = server.profile();
    (profile.timeouts.silence_ms, profile.timeouts.idle_ms) = (500, 1000);
    let provider = OpenAiCompatible::new(profile).unwrap();
    for expected in ["not a byte for 0.5 s", "no content for 1 s"] {
        let error = ask(&provider, request("hi")).await.0.unwrap_err();
        assert!(error.chain().ends_with(expected), "{}", error.chain());
        assert_eq!(error.class(), "cut");
    }
}

#[tokio::test]
async fn waits_only_so_long_for_an_answer_to_begin() {
    let server = Server::start([vec![Step::Stall]]).await;
    let mut profile = server.profile();
    profile.timeouts.header_ms = 50;
    let provider = OpenAiCompatible::new(profile).unwrap();
    let error = ask(&provider, request("hi")).await.0.unwrap_err();
    assert_eq!(error.class(), "unreachable");
    assert!(error.chain().ends_with("no answer within 0.05 s"), "{}", error.chain());
}

#[tokio::test]
async fn does_not_wait_for_an_end_that_does_not_come() {
    let done = sse(HELLO);
    let finished = sse(&HELLO[..8]);
    let scripts = [done, finished].map(|body| begun(&body, Step::Stall));
    let server = Server::start(scripts).await;
    let mut profile = server.profile();
    profile.timeouts.idle_ms = 200;
    let provider = OpenAiCompatible::new(profile).unwrap();
    for _ in 0..2 {
        let reply = ask(&provider, request("hi")).await.0.unwrap();
        assert_eq!(reply.stop_reason, StopReason::ToolUse);
    }
}

#[tokio::test]
async fn says_nothing_secret() {
    let body = r#"{"error":{"message":"bad key sk-test-0123456789\u001b[2J"}}"#;
    let error = failed(answer("401 Unauthorized", "", body)).await;
    assert_eq!(
        error.chain(),
        "the provider does not accept the credentials: mock: answered 401: bad key \
         [secret]\\u{1b}[2J"
    );
    assert!(!format!("{error:?}").contains("0123456789"));
}

#[tokio::test]
async fn reports_a_server_that_is_not_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let provider = OpenAiCompatible::new(Profile::new("gone", &address, "m", None)).unwrap();
    let error = ask(&provider, request("hi")).await.0.unwrap_err();
    assert_eq!(error.class(), "unreachable");
    assert!(error.chain().contains("refused"), "{}", error.chain());
}

#[tokio::test]
async fn talks_to_a_vendor_from_configuration_alone() {
    let server = Server::start([stream(sse(HELLO))]).await;
    let settings = format!(
        r#"{{"baseURL":"{}/api/v3/","model":"new-1","apiKeyEnv":"NEW_KEY",
            "auth":{{"header":"x-new-key"}},"headers":{{"x-team":"blue"}},"maxTokens":100,
            "quirks":{{"maxTokensField":"max_new_tokens","noStreamUsage":true}}}}"#,
        server.address
    );
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    let profile = Profile::resolve("new", settings, |variable| {
        (variable == "NEW_KEY").then(|| "k-123".to_owned())
    })
    .unwrap();
    let provider = crate::provider::live(profile).unwrap();
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

#[tokio::test]
async fn closes_the_connection_when_nobody_waits_any_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let provider = OpenAiCompatible::new(Profile::new("mock", &address, "m", None)).unwrap();
    let (deltas, mut heard) = tokio::sync::mpsc::channel(8);
    let attempt = tokio::spawn(provider.complete(request("hi"), deltas));
    let (mut connection, _) = listener.accept().await.unwrap();
    let body = sse(&HELLO[..4]);
    let start = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    connection.write_all(format!("{start}{body}").as_bytes()).await.unwrap();
    assert!(heard.recv().await.is_some());
    attempt.abort();
    assert!(attempt.await.unwrap_err().is_cancelled());
    let mut rest = Vec::new();
    // Ends when the client has left.
    connection.read_to_end(&mut rest).await.ok();
    assert!(String::from_utf8_lossy(&rest).starts_with("POST "));
}

proptest! {
    #[test]
    fn survives_pieces_that_are_almost_right(
        edits in prop::collection::vec((any::<prop::sample::Index>(), edit()), 1..6),
    ) {
        let mut text = HELLO[..9].join("\n");
        for (at, edit) in edits {
            let mut at = at.index(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let end = at + text[at..].chars().next().map_or(0, char::len_utf8);
            text.replace_range(at..end, edit);
        }
        for mode in [reply::Mode::Stream, reply::Mode::Whole] {
            let mut whole = Reply::default();
            for line in text.lines() {
                whole.add(line, mode).ok();
            }
            let done = whole.complete().unwrap();
            let wants_tools = done.stop_reason == StopReason::ToolUse;
            prop_assert_eq!(wants_tools, !done.message.tool_calls.is_empty());
        }
    }
}

fn edit() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "", "\"", "\\", "{", "}", "[", "]", "null", "7", ",", ":", "\\ud800", "\n", "é", "-1.5e9",
    ])
}
