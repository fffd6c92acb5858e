//! Whole tasks in the protocols besides Chat Completions: the program against a small server of
//! each, which rejects requests like the strictest one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::model_server::{NO_LIST, reply};
use crate::posse::{Machine, side_by_side};

#[path = "../../src/provider/testing/strict.rs"]
pub(crate) mod strict;

const MESSAGES: &str = include_str!("../../src/provider/anthropic/fixtures/thinking_and_calls.sse");
const RESPONSES: &str =
    include_str!("../../src/provider/openai_responses/fixtures/thinking_and_calls.sse");

/// A protocol, as a test needs it.
#[derive(Clone, Copy)]
pub(crate) struct TestDialect {
    pub(crate) kind: &'static str,
    /// Path of requests.
    path: &'static str,
    key_line: &'static str,
    pub(crate) check: fn(&Value) -> Result<(), String>,
    /// Thinking, text, and two calls.
    calls: &'static str,
    /// End of a reply that was cut off at the token limit.
    pub(crate) limit: &'static str,
    /// Part of the thinking that must be sent back.
    secret: &'static str,
    /// A final answer.
    pub(crate) says: fn(&str) -> String,
    refuses: fn() -> String,
    /// Event for an overload in the middle of a stream.
    overloaded: &'static str,
}

pub(crate) const DIALECTS: [TestDialect; 2] = [
    TestDialect {
        kind: "anthropic",
        path: "/v1/messages",
        key_line: "x-api-key: the-key-of-the-user",
        check: strict::messages,
        calls: MESSAGES,
        limit: "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\
                \"usage\":{\"output_tokens\":89}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
        secret: "EqoBCkgIARABGAIiQL2UpcVRUvlu==",
        says: |text| messages_reply(text, "end_turn"),
        refuses: || messages_reply("I will not", "refusal"),
        overloaded: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\
                     \"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
    },
    TestDialect {
        kind: "openai-responses",
        path: "/v1/responses",
        key_line: "authorization: Bearer the-key-of-the-user",
        check: strict::responses,
        calls: RESPONSES,
        limit: "data: {\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\
                \"incomplete_details\":{\"reason\":\"max_output_tokens\"}}}\n\n",
        secret: "gAAAAABpZW5jcnlwdGVk==",
        says: |text| responses_reply(text, &json!({"status": "completed"})),
        refuses: || {
            let why = json!({"reason": "content_filter"});
            responses_reply(
                "I will not",
                &json!({"status": "incomplete", "incomplete_details": why}),
            )
        },
        overloaded: "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\
                     \"message\":\"Overloaded\"}\n\n",
    },
];

/// Chat Completions, as tests of all protocols need it.
pub(crate) const CHAT: TestDialect = TestDialect {
    kind: "openai-compatible",
    path: "/v1/chat/completions",
    key_line: "authorization: Bearer the-key-of-the-user",
    check: strict::chat,
    calls: include_str!("../../src/provider/openai_compatible/fixtures/thinking_and_calls.sse"),
    limit: "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n",
    secret: "",
    says: |text| chat_stream(text, &[], "stop"),
    refuses: || chat_stream("I will not", &[], "content_filter"),
    overloaded: "data: {\"error\":{\"message\":\"Overloaded\",\"code\":503}}\n\n",
};

/// Body of a streamed reply of Chat Completions.
pub(crate) fn chat_stream(text: &str, calls: &[Value], finish: &'static str) -> String {
    let response = String::from_utf8(reply(text, calls, finish, true)).unwrap();
    response.split_once("\r\n\r\n").unwrap().1.to_owned()
}

pub(crate) fn sse(events: &[Value]) -> String {
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

pub(crate) fn messages_reply(text: &str, stop_reason: &str) -> String {
    sse(&[
        json!({"type": "message_start", "message": {"model": "m-1", "usage": {
            "input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop_reason},
            "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ])
}

pub(crate) fn responses_reply(text: &str, end: &Value) -> String {
    let mut response = json!({"model": "m-1", "usage": {
        "input_tokens": 48, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 7}});
    for (key, value) in end.as_object().unwrap() {
        response[key] = value.clone();
    }
    let kind = format!("response.{}", end["status"].as_str().unwrap());
    sse(&[
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}),
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": text}),
        json!({"type": kind, "response": response}),
    ])
}

/// Behaviour of the server for one request.
pub(crate) enum ScriptedReply {
    /// A stream of this.
    Stream(String),
    /// A JSON object.
    Object(String),
    /// A status line with its headers, and no body.
    Status(&'static str),
}

#[derive(Debug, Default)]
struct RequestLog {
    heads: Vec<String>,
    bodies: Vec<Value>,
    complaints: Vec<String>,
}

/// A server that gives its answers in order.
pub(crate) struct WireServer {
    port: u16,
    seen: Arc<Mutex<RequestLog>>,
}

impl WireServer {
    pub(crate) fn start(dialect: TestDialect, answers: Vec<ScriptedReply>) -> WireServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(RequestLog::default()));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            let mut answers = answers.into_iter();
            for connection in listener.incoming().flatten() {
                // A client that is gone is part of some tests.
                serve(&connection, dialect, &mut answers, &shared).ok();
            }
        });
        WireServer { port, seen }
    }

    fn machine(&self, dialect: TestDialect) -> Machine {
        self.configured(dialect, &json!({}))
    }

    /// A machine whose provider is this server, with further settings.
    pub(crate) fn configured(&self, dialect: TestDialect, more: &Value) -> Machine {
        let machine = Machine::new();
        let mut config = json!({
            "defaultProvider": "local", "patience": "5s",
            "models": {"m": {"maxOutputTokens": 1000}},
            "providers": {"local": {
                "type": dialect.kind, "baseURL": format!("http://127.0.0.1:{}/v1", self.port),
                "model": "m", "apiKey": "the-key-of-the-user",
            }},
        });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        machine.write_config(&config.to_string());
        machine
    }

    /// The bodies so far. Fails if one of them made no sense.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.complaints, Vec::<String>::new());
        seen.bodies.clone()
    }
}

/// One request: its connection is closed behind it.
fn serve(
    connection: &TcpStream,
    dialect: TestDialect,
    answers: &mut impl Iterator<Item = ScriptedReply>,
    seen: &Mutex<RequestLog>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while reader.read_line(&mut head)? > 2 {}
    if head.starts_with("GET ") {
        return (&mut &*connection).write_all(NO_LIST);
    }
    let length = head.to_lowercase();
    let length = length.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let verdict = (dialect.check)(&request);
    let answer = {
        let mut seen = seen.lock().unwrap();
        seen.heads.push(head);
        seen.bodies.push(request);
        seen.complaints.extend(verdict.err());
        answers.next().unwrap_or_else(|| {
            seen.complaints.push("a request that the script does not know of".to_owned());
            ScriptedReply::Status("400 Bad Request")
        })
    };
    let mut writer = connection;
    let end = "connection: close\r\n\r\n";
    match answer {
        ScriptedReply::Stream(body) => {
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{end}{body}")
        }
        ScriptedReply::Object(body) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
            write!(writer, "{head}\r\ncontent-length: {}\r\n{end}{body}", body.len())
        }
        ScriptedReply::Status(status) => {
            write!(writer, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n{end}")
        }
    }
}

#[test]
fn thinking_calls_and_answers() {
    side_by_side(DIALECTS, |dialect| {
        let answers = vec![
            ScriptedReply::Stream(dialect.calls.to_owned()),
            ScriptedReply::Stream((dialect.says)("All done.")),
        ];
        let server = WireServer::start(dialect, answers);
        let machine = server.machine(dialect);
        machine.write("a.rs", "fn a() {}\n");
        let (ended, events) = machine.stream(&["-y", "look at both"]);
        ended.assert_code(0);
        let kinds = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!(events.last().unwrap()["result"], "All done.");
        assert!(
            kinds("model.thinking.delta") > 0 && kinds("model.text.delta") > 0,
            "{}",
            ended.stdout
        );

        let bodies = server.bodies();
        assert_eq!(bodies.len(), 2, "{}", dialect.kind);
        // One protocol insists on a bound.
        let bound = (dialect.kind == "anthropic").then(|| json!(1000));
        assert_eq!(bodies[0].get("max_tokens"), bound.as_ref());
        let second = bodies[1].to_string();
        // The thinking came back as it was, and so did both results.
        assert!(second.contains(dialect.secret), "{second}");
        assert!(second.contains("fn a() {}") && second.contains("work"), "{second}");
        let head = server.seen.lock().unwrap().heads[0].clone();
        assert!(head.starts_with(&format!("POST {} ", dialect.path)), "{head}");
        assert!(head.contains(dialect.key_line), "{head}");

        // Data that must be sent back is part of the record.
        let journal = std::fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
        assert!(journal.contains(dialect.secret));
        assert!(!journal.contains("the-key-of-the-user"));
        let usage = &events.last().unwrap()["usage"];
        assert!(usage["cachedInputTokens"].as_u64() >= Some(40), "{usage}");
        machine.verify();
    });
}

#[test]
fn fault_is_retried_and_nothing_repeats() {
    let said = "Half of an answer, and the rest of it.";
    side_by_side(DIALECTS, |dialect| {
        let whole = (dialect.says)(said);
        // In the middle of the events, behind the text.
        let at = whole.find(said).unwrap() + said.len();
        let at = at + whole[at..].find("\n\n").unwrap() + 2;
        let overloaded = format!("{}{}", &whole[..at], dialect.overloaded);
        for fault in [
            ScriptedReply::Stream(whole[..at].to_owned()),
            ScriptedReply::Stream(overloaded),
            ScriptedReply::Status("529 Overloaded\r\nretry-after: 1"),
        ] {
            let server =
                WireServer::start(dialect, vec![fault, ScriptedReply::Stream(whole.clone())]);
            let machine = server.machine(dialect);
            let (ended, events) = machine.stream(&["answer"]);
            ended.assert_code(0);
            assert_eq!(events.last().unwrap()["result"], said);
            let bodies = server.bodies();
            assert_eq!((bodies.len(), &bodies[0]), (2, &bodies[1]), "{}", dialect.kind);
            let retries = events.iter().filter(|event| event["type"] == "provider.retry");
            assert_eq!(retries.count(), 1, "{}", ended.stdout);
            machine.verify();
        }
    });
}

/// A streamed reply that thinks, and ends normally without text and calls.
fn thinking_only(dialect: TestDialect) -> String {
    let end = (dialect.says)("");
    match dialect.kind {
        "anthropic" => {
            let (start, end) = end.split_at(end.find("event: content_block_start").unwrap());
            let end = &end[end.find("event: message_delta").unwrap()..];
            let thinking = sse(&[
                json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "thinking", "thinking": ""}}),
                json!({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "thinking_delta", "thinking": "hm"}}),
                json!({"type": "content_block_stop", "index": 0}),
            ]);
            format!("{start}{thinking}{end}")
        }
        "openai-responses" => {
            let end = &end[end.find("event: response.completed").unwrap()..];
            let thinking = sse(&[
                json!({"type": "response.output_item.added", "output_index": 0,
                    "item": {"type": "reasoning", "summary": []}}),
                json!({"type": "response.reasoning_summary_text.delta", "output_index": 0,
                    "delta": "hm"}),
            ]);
            format!("{thinking}{end}")
        }
        _ => format!(
            "data: {}\n\n{end}",
            json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]})
        ),
    }
}

#[test]
fn empty_reply_is_requested_again_in_one_piece() {
    side_by_side([DIALECTS[0], DIALECTS[1], CHAT], |dialect| {
        let whole = (dialect.says)("done");
        for empty in [(dialect.says)(""), thinking_only(dialect)] {
            // At the beginning of a run, and after calls.
            for before in [None, Some(dialect.calls.to_owned())] {
                let called = usize::from(before.is_some());
                let answers = before.into_iter().chain([empty.clone(), whole.clone()]);
                let answers = answers.map(ScriptedReply::Stream).collect();
                let server = WireServer::start(dialect, answers);
                let (ended, events) = server.machine(dialect).stream(&["answer"]);
                ended.assert_code(0);
                assert_eq!(events.last().unwrap()["result"], "done", "{}", dialect.kind);
                let streams: Vec<_> =
                    server.bodies().iter().map(|body| body["stream"] == true).collect();
                assert_eq!(streams[called..], [true, false], "{} {empty}", dialect.kind);
            }
        }
    });
}

#[test]
fn incomplete_call_is_not_run() {
    side_by_side(DIALECTS, |dialect| {
        let at = dialect.calls.find("; pwd").unwrap();
        let cut = ScriptedReply::Stream(dialect.calls[..at].to_owned());
        let server =
            WireServer::start(dialect, vec![cut, ScriptedReply::Stream((dialect.says)("Sorry."))]);
        let machine = server.machine(dialect);
        let (ended, events) = machine.stream(&["-y", "go"]);
        ended.assert_code(0);
        let started = events.iter().filter(|event| event["type"] == "tool.started");
        assert_eq!(started.count(), 0, "{}", ended.stdout);
        assert_eq!(server.bodies().len(), 2);
        machine.verify();
    });
}

#[test]
fn model_is_told_that_its_call_was_cut_off_at_the_token_limit() {
    side_by_side(DIALECTS, |dialect| {
        let events = dialect.calls.split_inclusive("\n\n");
        let begun: String = events.take_while(|event| !event.contains("; pwd")).collect();
        let cut = ScriptedReply::Stream(begun + dialect.limit);
        let says = ScriptedReply::Stream((dialect.says)("Shorter, then."));
        let server = WireServer::start(dialect, vec![cut, says]);
        let machine = server.machine(dialect);
        let (ended, events) = machine.stream(&["-y", "go"]);
        ended.assert_code(0);
        let started = events.iter().filter(|event| event["type"] == "tool.started");
        assert_eq!(started.count(), 0, "{}", ended.stdout);
        let second = server.bodies()[1].to_string();
        let told = "Not run: the reply was cut off. Make the call again, shorter.";
        assert_eq!(second.matches(told).count(), 2, "{second}");
        assert!(second.contains(dialect.secret), "{second}");
        machine.verify();
    });
}

#[test]
fn refusal_is_not_an_answer() {
    side_by_side(DIALECTS, |dialect| {
        let server = WireServer::start(dialect, vec![ScriptedReply::Stream((dialect.refuses)())]);
        let machine = server.machine(dialect);
        let ended = machine.posse(&["run", "do what is not done"]);
        ended.assert_code(1);
        assert_eq!(ended.stdout, "");
        assert!(ended.stderr.contains("error[PRV005]"), "{}", ended.stderr);
        assert_eq!(server.bodies().len(), 1);
    });
}

#[test]
fn rejected_key_names_the_provider() {
    side_by_side(DIALECTS, |dialect| {
        let server = WireServer::start(dialect, vec![ScriptedReply::Status("401 Unauthorized")]);
        let ended = server.machine(dialect).posse(&["run", "hello"]);
        ended.assert_code(3);
        assert!(ended.stderr.contains("error[PRV003]"), "{}", ended.stderr);
    });
}

/// The strictest server detects errors.
#[test]
fn protocol_checker_detects_violations() {
    let chat = json!({"messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "function": {"name": "x", "arguments": "{}"}}]},
    ]});
    assert!(strict::chat(&chat).is_err());
    let message = |role: &str, block: Value| json!({"role": role, "content": [block]});
    let text = |text: &str| json!({"type": "text", "text": text});
    for turns in [
        json!([]),
        json!([message("assistant", text("a"))]),
        json!([message("user", text(" "))]),
        json!([message("user", text("a")), message("user", text("b")), message("user", text("c"))]),
        json!([message(
            "user",
            json!({"type": "tool_result", "tool_use_id": "c", "content": "x"})
        )]),
    ] {
        let request = json!({"model": "m", "max_tokens": 1, "messages": turns});
        assert!(strict::messages(&request).is_err(), "{request}");
    }
    for items in [
        json!([]),
        json!([{"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}]),
        json!([{"type": "function_call_output", "call_id": "c", "output": "x"}]),
        json!([{"type": "reasoning", "encrypted_content": "x", "summary": []}]),
    ] {
        let request = json!({"model": "m", "store": false, "input": items});
        assert!(strict::responses(&request).is_err(), "{request}");
    }
    let valid = json!({"model": "m", "max_tokens": 1, "messages": [message("user", text("a"))]});
    strict::assert_valid(strict::messages, valid.to_string().as_bytes());
}
