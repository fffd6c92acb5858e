//! A server that fails or sends invalid data ends a turn with one classified error: no panic, no
//! hang, and a session that verifies.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::model_server::{
    ModelAnswer, ModelServer, calls, calls_with_text, runs, says, status, stream, stream_bytes,
    text_event,
};
use crate::posse::{FinishedRun, Machine, RunningPosse, side_by_side};

/// Short enough for a test, long enough for a busy machine.
fn hurried(server: &ModelServer) -> Machine {
    let timeouts = json!({"timeouts": {"connect": "2s", "firstByte": "1s", "idle": "1s"}});
    Machine::configured(server, &json!({"patience": "2s"}), &timeouts)
}

/// Runs a task whose every request is answered like this.
fn always(answer: ModelAnswer) -> (FinishedRun, ModelServer, Machine) {
    let server = ModelServer::start_and_repeat(vec![answer]);
    let machine = hurried(&server);
    let ended = machine.posse(&["run", "say hello"]);
    (ended, server, machine)
}

/// Fails unless it ended with this code and one error of this class.
#[track_caller]
fn assert_ended(ended: &FinishedRun, exit: i32, class: &str) {
    ended.assert_code(exit);
    assert_eq!(ended.stdout, "");
    let errors: Vec<_> = ended.stderr.lines().filter(|line| line.starts_with("error[")).collect();
    assert_eq!(errors.len(), 1, "{}", ended.stderr);
    assert!(errors[0].starts_with(&format!("error[{class}]: ")), "{}", ended.stderr);
    assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    let strange = ended.stderr.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(strange, None, "{}", ended.stderr);
}

#[test]
fn server_refusals_are_classified() {
    let json = "content-type: application/json";
    let error = r#"{"error": {"message": "no, because \u001b[2J of reasons"}}"#;
    let html = "<html><body>Welcome to the hotel</body></html>";
    let table = [
        (status("401 Unauthorized", &[json], error), 3, "PRV003", 1),
        (status("403 Forbidden", &[json], error), 3, "PRV003", 1),
        (status("400 Bad Request", &[json], error), 1, "PRV004", 1),
        (status("404 Not Found", &["content-type: text/html"], html), 1, "PRV008", 1),
        (status("302 Found", &["location: http://127.0.0.1:1/"], ""), 1, "PRV007", 1),
        (status("307 Temporary Redirect", &["location: //elsewhere/v1"], ""), 1, "PRV007", 1),
        // A login page may be gone the next time: patience decides.
        (status("200 OK", &["content-type: text/html"], html), 1, "PRV008", 2),
        (status("200 OK", &[json], html), 1, "PRV008", 2),
        (status("501 Not Implemented", &["content-type: text/html"], html), 1, "PRV008", 2),
        (status("413 Too Large", &[json], error), 1, "PRV006", 1),
        (status("429 Too Many", &[json, "retry-after: 3600"], error), 5, "PRV001", 1),
    ];
    side_by_side(table, |(answer, exit, class, requests)| {
        let (ended, server, machine) = always(answer);
        assert_ended(&ended, exit, class);
        let made = server.requests().len();
        let expected = requests..=if requests == 1 { 1 } else { 12 };
        assert!(expected.contains(&made), "{made}: {}", ended.stderr);
        machine.verify();
    });
}

#[test]
fn spent_attempts_are_named_in_the_error_and_in_the_last_event() {
    let busy = status("503 Service Unavailable", &["content-type: application/json"], "{}");
    let server = ModelServer::start_and_repeat(vec![busy]);
    let settings = json!({"retry": {"maxAttempts": 2, "baseDelay": "10ms"}});
    let machine = Machine::configured(&server, &settings, &json!({}));
    let ended = machine.posse(&["run", "--output-format", "stream-json", "say hello"]);
    ended.assert_code(5);
    assert_eq!(server.requests().len(), 2);
    assert!(ended.stderr.contains("failed in all permitted attempts"), "{}", ended.stderr);
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["type"], "session.ended");
    assert_eq!(last["error"]["code"], "PRV001", "{last}");
    let (why, fix) = (&last["error"]["why"], &last["error"]["fix"]);
    assert!(why.as_str().unwrap().contains("2 attempts"), "{why}");
    assert!(fix.as_str().unwrap().contains("`retry.maxAttempts`"), "{fix}");
    assert!(!fix.as_str().unwrap().contains("`patience`"), "{fix}");
}

#[test]
fn empty_stream_of_a_long_request_tells_its_cause_in_one_piece() {
    let words = r#"{"error": {"message": "This model's maximum context length is 4096 tokens"}}"#;
    let server = ModelServer::start(vec![
        stream(b""),
        status("400 Bad Request", &["content-type: application/json"], words),
    ]);
    let machine = hurried(&server);
    let ended = machine.posse(&["run", "say hello"]);
    assert_ended(&ended, 1, "PRV006");
    let streams: Vec<_> =
        server.requests().iter().map(|request| request["stream"] == true).collect();
    assert_eq!(streams, [true, false], "{}", ended.stderr);
    machine.verify();
}

#[test]
fn empty_reply_is_never_a_success() {
    let thinking = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]});
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let only_thinking = format!("data: {thinking}\n\ndata: {stop}\n\ndata: [DONE]\n\n");
    let table = [
        (says(""), "it has no text and no tool call"),
        (stream(only_thinking.as_bytes()), "it has reasoning, but no text and no tool call"),
    ];
    side_by_side(table.to_vec(), |(answer, why)| {
        let (ended, server, machine) = always(answer);
        assert_ended(&ended, 5, "PRV001");
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
        let streams: Vec<_> =
            server.requests().iter().map(|request| request["stream"] == true).collect();
        assert_eq!(streams[..2], [true, false], "{}", ended.stderr);
        machine.verify();
    });
}

#[test]
fn endless_reply_is_stopped_and_named() {
    // The server never ends it.
    let pieces: String = (0..600).map(|_| text_event("I am sorry. ")).collect();
    let (ended, server, machine) = always(ModelAnswer::Hold(stream_bytes(pieces.as_bytes())));
    assert_ended(&ended, 5, "PRV010");
    // At most three, if patience lasts.
    assert!((2..=3).contains(&server.requests().len()), "{}", ended.stderr);
    for words in ["the same 12 bytes came", "set `temperature` of the provider"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    machine.verify();
}

#[test]
fn server_that_passes_no_tools_on_is_named() {
    let call =
        "<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>";
    let server = ModelServer::start(vec![says(call)]);
    let ended = hurried(&server).posse(&["run", "-y", "say hello"]);
    ended.assert_code(0);
    let warning = "scripted-1 wrote a call of bash as text, so nothing ran";
    assert!(ended.stderr.contains(warning), "{}", ended.stderr);

    let json = "content-type: application/json";
    let error = r#"{"error": {"message": "tools param requires --jinja flag", "code": 500}}"#;
    let (ended, server, machine) = always(status("500 Server Error", &[json], error));
    assert_ended(&ended, 1, "PRV004");
    assert_eq!(server.requests().len(), 1);
    assert!(ended.stderr.contains("the server offers this model no tools"), "{}", ended.stderr);
    machine.verify();
}

/// The error that a run ended with.
fn error_of(ended: &FinishedRun) -> &str {
    let error = ended.stderr.split_once("error[").unwrap().1;
    error.split_once("\nsession ").map_or(error, |(error, _)| error)
}

#[test]
fn foreign_html_page_is_reported() {
    let portal = "<html>log in to the hotel's network</html>";
    let (ended, ..) = always(status("200 OK", &["content-type: text/html"], portal));
    let error = error_of(&ended);
    insta::assert_snapshot!(error, @r"
    PRV008]: the server that answered is not the provider
      why: the answer is not from the provider: local: the reply is an HTML page (a login page of the network, or a wrong baseURL)
      fix: log in to the network, or correct `baseURL` (it often ends with /v1) and `type`
    ");
}

/// A machine whose provider has another one to take over.
fn with_another(server: &ModelServer, other: &ModelServer) -> Machine {
    let provider = |server: &ModelServer, model: &str, fallback: &[&str]| {
        json!({
            "baseURL": server.base_url(), "model": model, "auth": "none", "fallback": fallback,
        })
    };
    let providers = json!({
        "local": provider(server, "scripted-1", &["other"]),
        "other": provider(other, "other-1", &[]),
    });
    Machine::configured(server, &json!({ "providers": providers }), &json!({}))
}

#[test]
fn failover_is_reported() {
    let limited = status("429 Too Many", &["retry-after: 3600"], "{}");
    let server = ModelServer::start_and_repeat(vec![limited]);
    let other = ModelServer::start_and_repeat(vec![says("hello")]);
    let machine = with_another(&server, &other);
    let ended = machine.posse(&["run", "say hello"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "hello\n");
    let names = "! failover to other-1 via other: scripted-1 via local is unavailable";
    assert!(ended.stderr.contains(names), "{}", ended.stderr);
    assert_eq!((server.requests().len(), other.requests().len()), (1, 1));
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
    machine.verify();
}

#[test]
fn secrets_in_fallback_replies_are_masked() {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let limited = status("429 Too Many", &["retry-after: 3600"], "{}");
    let server = ModelServer::start_and_repeat(vec![limited]);
    let other = ModelServer::start_and_repeat(vec![says(&format!("it is {SECRET}"))]);
    let machine = with_another(&server, &other);
    let mut command = machine.command(&["run", "tell me"]);
    command.env("MY_SERVICE_TOKEN", SECRET);
    let ended = RunningPosse::start(command).end();
    ended.assert_code(0);
    assert_eq!(ended.stdout, "it is [secret]\n");
}

#[test]
fn refused_request_does_not_fail_over() {
    for refused in ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "413 Too Large"] {
        let server = ModelServer::start_and_repeat(vec![status(refused, &[], "{}")]);
        let other = ModelServer::start_and_repeat(vec![says("hello")]);
        let ended = with_another(&server, &other).posse(&["run", "say hello"]);
        assert_ne!(ended.code, Some(0), "{refused}");
        assert_eq!((server.requests().len(), other.requests().len()), (1, 0), "{refused}");
    }
}

#[test]
fn exhausted_patience_parks_with_the_next_attempt() {
    let limited = status("429 Too Many", &["retry-after: 3600"], "{}");
    let server = ModelServer::start_and_repeat(vec![limited]);
    let (ended, events) = hurried(&server).stream(&["say hello"]);
    ended.assert_code(5);
    let parked = events.iter().find(|event| event["type"] == "session.parked").unwrap();
    assert_eq!(parked["class"], "provider.rate_limited");
    let away = parked["nextTryMs"].as_u64().unwrap() - parked["ts"].as_u64().unwrap();
    assert!((3_590_000..3_610_000).contains(&away), "{away}");
    assert_eq!(events.last().unwrap()["reason"], "parked");
    assert!(ended.stderr.contains("the run is parked"), "{}", ended.stderr);
}

#[test]
fn transient_fault_is_retried() {
    let half = ModelAnswer::Reply { text: "half".into(), calls: Vec::new(), finish: "stop" };
    let overloaded = |words| status(words, &["content-type: text/plain"], "busy");
    let table: Vec<(&str, Vec<ModelAnswer>)> = vec![
        ("500", vec![overloaded("500 Internal Server Error"), says("hello")]),
        ("503", vec![overloaded("503 Unavailable"), says("hello")]),
        ("429", vec![status("429 Slow Down", &["retry-after: 1"], "{}"), says("hello")]),
        ("empty", vec![ModelAnswer::Raw(Vec::new()), says("hello")]),
        ("reset", vec![ModelAnswer::Reset(Vec::new()), says("hello")]),
        ("cut", vec![stream(text_event("hal").as_bytes()), says("hello")]),
        ("silence", vec![ModelAnswer::Hold(Vec::new()), says("hello")]),
        ("garbage", vec![stream(b"data: {\"choices\": [{\n\n"), says("hello")]),
        ("fine", vec![half]),
    ];
    side_by_side(table, |(name, answers)| {
        let count = answers.len();
        let server = ModelServer::start(answers);
        let machine = hurried(&server);
        let (ended, events) = machine.stream(&["say hello"]);
        ended.assert_code(0);
        assert_eq!(server.requests().len(), count, "{name}");
        let retries: Vec<_> =
            events.iter().filter(|event| event["type"] == "provider.retry").collect();
        assert_eq!(retries.len(), count - 1, "{name}: {}", ended.stdout);
        let wanted = if name == "fine" { "half" } else { "hello" };
        assert_eq!(events.last().unwrap()["result"], wanted, "{name}");
        machine.verify();
    });
}

/// Streams that are no replies: the name, and the bytes after the head.
fn rubbish() -> Vec<(&'static str, Vec<u8>)> {
    let event = |json: &str| format!("data: {json}\n\n").into_bytes();
    let noise: Vec<u8> =
        (0..4096_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let mut endless = b"data: ".to_vec();
    endless.resize(18 << 20, b'x');
    vec![
        ("nothing", Vec::new()),
        ("only a comment", b": hello\n\n".to_vec()),
        ("noise", noise),
        ("NUL", vec![0; 1000]),
        ("no blank line", b"data: {\"choices\": []}\n".to_vec()),
        ("not JSON", event("well, hello")),
        ("another shape", event("[1, 2, 3]")),
        ("a number", event("7")),
        ("half an event", b"data: {\"choices\": [{\"delta\": {\"content\": \"h".to_vec()),
        ("split UTF-8", b"data: {\"choices\": [{\"delta\": {\"content\": \"\xc3".to_vec()),
        ("done at once", event("[DONE]")),
        ("a line of 18 MB", endless),
        ("deep", event(&"[".repeat(200_000))),
        ("an error in the stream", event(r#"{"error": {"message": "the server burns"}}"#)),
        ("truncated JSON", b"{\"choices\": [{\"message\": {\"content\": \"h".to_vec()),
        ("JSON of nothing", b"{}".to_vec()),
        ("comments for ever", b": ping\n\n".repeat(100_000)),
    ]
}

#[test]
fn survives_random_bytes() {
    side_by_side(rubbish(), |(name, body)| {
        let (ended, server, machine) = always(stream(&body));
        assert_ended(&ended, 5, "PRV001");
        let attempts = server.requests().len();
        // As far as patience lets it.
        assert!((2..=12).contains(&attempts), "{name}: {attempts} attempts: {}", ended.stderr);
        machine.verify();
    });
}

#[test]
fn error_names_the_provider_and_byte_offset() {
    let body = [text_event("hello "), "data: {\"choices\": [}\n\n".to_owned()].concat();
    let (ended, server, machine) = always(stream(body.as_bytes()));
    assert_ended(&ended, 5, "PRV001");
    assert!(server.requests().len() >= 2);
    let error = error_of(&ended);
    insta::assert_snapshot!(error, @r"
    PRV001]: the provider sent only invalid replies
      why: the reply broke off or made no sense: local: not a valid reply in the event at byte 62: expected value at line 1 column 14
      fix: check `type` (the protocol) of the provider, or try again later; the session is kept
    ");
    // The partial text is kept.
    let id = machine.session_dir().file_name().unwrap().to_owned();
    let shown = machine.posse(&["sessions".as_ref(), "show".as_ref(), id.as_os_str()]);
    assert!(shown.stdout.contains("hello"), "{}", shown.stdout);
}

#[test]
fn silent_or_unreachable_server_fails() {
    let begun = stream_bytes(text_event("hel").as_bytes());
    for answer in
        [ModelAnswer::Hold(Vec::new()), ModelAnswer::Hold(begun.clone()), ModelAnswer::Reset(begun)]
    {
        let (ended, _, machine) = always(answer);
        assert_ended(&ended, 5, "PRV001");
        machine.verify();
    }
    // A port that was just free, and is closed again.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = ModelServer::start(Vec::new());
    let address = json!({"baseURL": format!("http://127.0.0.1:{port}/v1")});
    let machine = Machine::configured(&server, &json!({"patience": "2s"}), &address);
    let ended = machine.posse(&["run", "say hello"]);
    assert_ended(&ended, 5, "PRV001");
    assert!(ended.stderr.contains("again in"), "{}", ended.stderr);
}

#[test]
fn all_stream_variants_are_decoded() {
    let delta = |text: &str| json!({"choices": [{"delta": {"content": text}}]}).to_string();
    let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}"#;
    let odd = r#"{"id":7,"choices":[{"index":"0","delta":{"content":"hel","x":[]}}],"usage":{"prompt_tokens":"12"}}"#;
    let table = [
        ("CRLF", format!("data: {}\r\n\r\ndata: {finish}\r\n\r\n", delta("hello"))),
        ("CR", format!("data: {}\r\rdata: {finish}\r\r", delta("hello"))),
        ("BOM", format!("\u{feff}data: {}\n\ndata: {finish}\n\n", delta("hello"))),
        ("no space", format!("data:{}\n\ndata:{finish}\n\n", delta("hello"))),
        (
            "unknown",
            format!(
                "event: ping\nid: 3\nretry: 1\nfoo\ndata: {{\"type\":\"ping\"}}\n\ndata: {odd}\n\n\
             data: {}\n\ndata: {finish}\n\n",
                delta("lo")
            ),
        ),
        (
            "storm",
            format!("{}data: {}\n\ndata: {finish}\n\n", ":\n".repeat(50_000), delta("hello")),
        ),
    ];
    for (name, body) in table {
        let (ended, ..) = always(stream(body.as_bytes()));
        ended.assert_code(0);
        assert_eq!(ended.stdout, "hello\n", "{name}");
    }
}

#[test]
fn missing_usage_is_unknown() {
    let finish = r#"data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let server = ModelServer::start(vec![stream(format!("{finish}\n\n").as_bytes())]);
    let (ended, events) = hurried(&server).stream(&["say hi"]);
    ended.assert_code(0);
    let last = events.last().unwrap();
    let unknown = json!({"inputTokens": null, "outputTokens": null});
    assert_eq!((&last["usage"], &last["costUsd"]), (&unknown, &Value::Null));
}

#[test]
fn invalid_calls_are_not_run() {
    let server = ModelServer::start(vec![
        calls_with_text(&[
            ("bash", "{\"command\": \"touch made\""),
            ("bash", "{\"command\": \"touch made\"} and then some"),
            ("bash", "{\"command\": {\"a\": 1}}"),
            ("bash", "[]"),
            ("bash", ""),
            ("bsah", "{\"command\": \"touch made\"}"),
            ("write_file", "null"),
        ]),
        says("sorry"),
    ]);
    let machine = hurried(&server);
    let ended = machine.posse(&["run", "-y", "go"]);
    ended.assert_code(0);
    assert!(!machine.work("made").exists());
    insta::assert_snapshot!(server.tool_results().join("\n---\n"), @r#"
    ARG001 the arguments are not valid JSON: EOF while parsing an object at line 1 column 24
    ---
    ARG001 the arguments are not valid JSON: trailing characters at line 1 column 27
    ---
    ARG001 command: must be string, not object
    ---
    ARG001 the arguments must be an object, not array
    ---
    ARG001 command: required string is missing
    ---
    Unknown tool: "bsah". Available tools: ask_user, bash, edit_file, glob, grep, job_output, job_stop, list_dir, multi_edit, present_plan, read_file, todo_write, write_file
    ---
    ARG001 path: required string is missing; content: required string is missing
    "#);
    machine.verify();
}

#[test]
fn refuses_arguments_of_any_size() {
    let huge = format!("{{\"command\": \"{}\"}}", "x".repeat(9 << 20));
    let server = ModelServer::start(vec![calls_with_text(&[("bash", &huge)]), says("sorry")]);
    let machine = hurried(&server);
    let ended = machine.posse(&["run", "-y", "go"]);
    ended.assert_code(0);
    assert!(server.tool_results()[0].len() < 2000);
    machine.verify();
}

#[test]
fn repeated_mistake_ends_the_run() {
    let server =
        ModelServer::start_and_repeat(vec![calls(&[("read_file", json!({"path": "no"}))])]);
    let machine = hurried(&server);
    let ended = machine.posse(&["run", "go"]);
    assert_ended(&ended, 1, "LOOP001");
    assert_eq!(server.requests().len(), 3);
    machine.verify();
}

#[test]
fn distinguishes_withheld_and_truncated_replies() {
    let finished = |finish| ModelAnswer::Reply { text: "no".into(), calls: Vec::new(), finish };
    let (ended, server, _) = always(finished("content_filter"));
    assert_ended(&ended, 1, "PRV005");
    assert_eq!(server.requests().len(), 1);

    let (ended, ..) = always(finished("length"));
    ended.assert_code(6);
    assert!(ended.stderr.contains("error[LIM001]"), "{}", ended.stderr);

    // A call whose arguments were cut off by the limit is not run.
    let mut cut = runs("touch made");
    if let ModelAnswer::Reply { calls, finish, .. } = &mut cut {
        calls[0]["function"]["arguments"] = json!("{\"command\": \"touch made\"");
        *finish = "length";
    }
    let server = ModelServer::start_and_repeat(vec![cut]);
    let machine = hurried(&server);
    let ended = machine.posse(&["run", "-y", "go"]);
    ended.assert_code(6);
    assert!(!machine.work("made").exists());
    machine.verify();
}

#[test]
fn echoed_key_is_masked() {
    let key = "sk-live-0123456789abcdef";
    let error = format!("{{\"error\": {{\"message\": \"Incorrect API key: {key}\"}}}}");
    let json = "content-type: application/json";
    let server = ModelServer::start(vec![status("401 No", &[json], &error)]);
    let profile = json!({"apiKey": key, "auth": "bearer"});
    let machine = Machine::configured(&server, &json!({}), &profile);
    let (ended, _) = machine.stream(&["say hello"]);
    ended.assert_code(3);
    let journal = std::fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
    for text in [&ended.stdout, &ended.stderr, &journal] {
        assert!(!text.contains(key), "{text}");
    }
}
