//! Effects of `providers`, `models`, `retry` and the keys that choose a model.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{GREETING, Scenario, assert_each_changes};
use crate::model_server::{ModelAnswer, ModelServer, says, status, stream_bytes, text_event};
use crate::posse::{FinishedRun, Machine, RunningPosse, side_by_side};

#[test]
fn keys_that_choose_the_model_change_requests() {
    let base = json!({
        "profile": {"quirks": {"reasoningEffort": true}},
        "models": {"scripted-1": {"reasoning": true}},
    });
    let rows = [
        ("model", json!("other-1")),
        ("streaming.enabled", json!(false)),
        ("thinking", json!("low")),
    ];
    assert_each_changes(&GREETING, &base, &rows);

    let (one, other) = (ModelServer::start(vec![says("one")]), ModelServer::start(vec![says("b")]));
    let profile = json!({"baseURL": other.base_url(), "model": "other-1", "auth": "none"});
    let first = json!({"baseURL": one.base_url(), "model": "scripted-1", "auth": "none"});
    let more =
        json!({"defaultProvider": "second", "providers": {"local": first, "second": profile}});
    Machine::configured(&one, &more, &json!({})).posse(&["run", "hi"]).assert_code(0);
    assert_eq!((one.requests().len(), other.requests().len()), (0, 1));
}

#[test]
fn keys_of_the_profile_change_requests() {
    let base = json!({"profile": {"model": "scripted-1", "maxTokens": 2000}});
    let rows = [
        ("profile.model", json!("other-1")),
        ("profile.maxTokens", json!(1000)),
        ("profile.quirks", json!({"omitMaxTokens": true})),
    ];
    assert_each_changes(&GREETING, &base, &rows);

    // A prompt that is larger than the window is not sent.
    for (window, code) in [(100_000, 0), (4000, 1)] {
        let server = ModelServer::start(vec![says("hello")]);
        let profile = json!({"contextWindow": window});
        let machine = Machine::configured(&server, &json!({}), &profile);
        let ended = machine.posse(&["run", &"many words ".repeat(4000)]);
        ended.assert_code(code);
        assert_eq!(server.requests().len(), 1 - usize::try_from(code).unwrap(), "{window}");
    }
}

/// A server that answers each request like this; returns its address and a way to its heads.
fn server(answer: String) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, heads) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let mut reader = BufReader::new(&connection);
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|bytes| bytes > 2) {}
            sender.send(head.to_lowercase()).ok();
            (&connection).write_all(answer.as_bytes()).ok();
        }
    });
    (address, heads)
}

/// The first request of a run with this provider profile and this value of `A_KEY`.
fn head_of(profile: Value, variable: Option<&str>) -> String {
    let (address, heads) = server("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".into());
    let mut profile = profile;
    profile["baseURL"] = json!(address);
    profile["model"] = json!("scripted-1");
    let machine = Machine::new();
    let settings = json!({"defaultProvider": "local", "providers": {"local": profile}});
    machine.write_config(&settings.to_string());
    let file = machine.path("posse/config/config.json");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = machine.command(&["run", "hi"]);
    command.envs(variable.map(|value| ("A_KEY", value)));
    let ended = RunningPosse::start(command).end();
    heads.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("{}", ended.stderr))
}

#[test]
fn keys_of_headers_are_sent() {
    let rows = [
        (json!({"headers": {"X-Team": "blue"}, "auth": "none"}), None, "x-team: blue"),
        (json!({"apiKey": "key-in-the-file-1"}), None, "authorization: bearer key-in-the-file-1"),
        (json!({"apiKeyEnv": "A_KEY"}), Some("key-of-a-variable"), "bearer key-of-a-variable"),
        (json!({"apiKey": "key-in-the-file-1", "auth": "x-own"}), None, "x-own: key-in-the-file-1"),
        (
            json!({"apiKey": "key-in-the-file-1", "headers": {"Authorization": "Token own"}}),
            None,
            "authorization: token own",
        ),
    ];
    for (profile, variable, line) in rows {
        let head = head_of(profile.clone(), variable);
        assert!(head.contains(&format!("{line}\r\n")), "{profile}: {head}");
    }
}

#[test]
fn output_limit_of_the_model_is_sent_by_messages() {
    let limit = |facts: Value, kind: &str| {
        let server = ModelServer::start_and_repeat(vec![status("400 Bad Request", &[], "{}")]);
        let more = json!({"models": {"scripted-1": facts}});
        Machine::configured(&server, &more, &json!({"type": kind})).posse(&["run", "hi"]);
        server.requests()[0].clone()
    };
    let small = limit(json!({"maxOutputTokens": 777}), "anthropic");
    assert_eq!(small["max_tokens"], 777, "{small}");
    assert_ne!(limit(json!({"maxOutputTokens": 2777}), "anthropic")["max_tokens"], 777);
    // Another protocol has another limit.
    assert!(
        limit(json!({"maxOutputTokens": 777}), "openai-compatible").get("max_tokens").is_none()
    );
}

/// A run against a server that always answers like this.
fn attempted(answer: ModelAnswer, more: &Value, profile: &Value) -> (FinishedRun, Vec<Value>) {
    let server = ModelServer::start_and_repeat(vec![answer]);
    Machine::configured(&server, more, profile).stream(&["say hello"])
}

#[test]
fn timeouts_end_an_attempt() {
    let begun = stream_bytes(text_event("hel").as_bytes());
    let rows = [
        ("firstByte", json!({"firstByte": "300ms"}), ModelAnswer::Hold(Vec::new())),
        ("silence", json!({"silence": "300ms"}), ModelAnswer::Hold(begun.clone())),
        ("idle", json!({"idle": "300ms"}), ModelAnswer::Hold(begun)),
    ];
    side_by_side(rows, |(name, timeouts, answer)| {
        let more = json!({"retry": {"maxAttempts": 1}});
        let (ended, _) = attempted(answer, &more, &json!({"timeouts": timeouts}));
        ended.assert_code(5);
        assert!(ended.took < Duration::from_secs(20), "{name}: {:?}", ended.took);
    });

    // A listener whose queue is full accepts no further connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let wait = Duration::from_millis(200);
    let mut queued = Vec::new();
    while let Ok(connection) = TcpStream::connect_timeout(&address, wait) {
        queued.push(connection);
    }
    let server = ModelServer::start(Vec::new());
    let profile = json!({
        "baseURL": format!("http://{address}/v1"), "timeouts": {"connect": "300ms"},
    });
    let more = json!({"retry": {"maxAttempts": 1}});
    let ended = Machine::configured(&server, &more, &profile).posse(&["run", "hi"]);
    ended.assert_code(5);
    assert!(ended.stderr.contains("in time"), "{}", ended.stderr);
    assert!(ended.took < Duration::from_secs(8), "{:?}", ended.took);
}

#[test]
fn waits_for_a_provider_are_those_of_its_keys() {
    let waits = |settings: &Value, profile: Value| -> Vec<u64> {
        let busy = status("503 Unavailable", &[], "busy");
        let (ended, events) = attempted(busy, settings, &profile);
        ended.assert_code(5);
        let retries = events.iter().filter(|event| event["type"] == "provider.retry");
        retries.filter_map(|event| event["waitMs"].as_u64()).collect()
    };
    // Each wait is random; the first is below baseDelay, and the limit doubles up to maxDelay.
    let first = waits(&json!({"retry": {"baseDelay": "20ms"}}), json!({}));
    assert!(first[0] <= 20 && first[1] <= 40, "{first:?}");
    let bounded = waits(&json!({"retry": {"maxDelay": "30ms"}}), json!({}));
    assert!(bounded[0] <= 30 && bounded[1] <= 30, "{bounded:?}");
    let long = waits(&json!({"retry": {"baseDelay": "1h", "maxDelay": "1h"}}), json!({}));
    // A wait that is longer than the patience ends the run at once.
    assert!(long.len() < first.len() && long.iter().all(|wait| *wait > 40), "{long:?}");
    let began = Instant::now();
    waits(&json!({"patience": "10m"}), json!({"patience": "500ms"}));
    assert!(began.elapsed() < Duration::from_secs(20), "that of the provider counts");
}

/// The type of scripted tasks is used by all parts.
#[test]
fn greeting_is_the_same_in_each_run() {
    let twice = Scenario { answers: || vec![says("a"), says("b")], ..GREETING };
    assert_each_changes(&twice, &json!({}), &[]);
}
