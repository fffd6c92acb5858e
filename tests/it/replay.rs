//! A stored session is replayed without its model, with the same result.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{
    ModelAnswer, ModelServer, calls, calls_with_text, runs, says, status, stream, stream_bytes,
    text_event,
};
use crate::posse::{Machine, RunningPosse, side_by_side};

#[test]
fn a_real_session_replays_identically_without_effects() {
    let server = ModelServer::start(vec![
        calls(&[("list_dir", json!({"path": "."})), ("read_file", json!({"path": "missing"}))]),
        calls_with_text(&[("edit_file", "{broken"), ("no_such_tool", "{}")]),
        calls(&[("write_file", json!({"path": "a.txt", "content": "one\n"}))]),
        runs("cat a.txt; exit 7"),
        calls(&[("read_file", json!({"path": ".env"}))]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    machine.write(".env", "KEY=1\n");
    machine.posse(&["run", "-y", "work"]).assert_code(0);
    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let before = fs::read(machine.session_dir().join("session.jsonl")).unwrap();
    fs::remove_file(machine.work("a.txt")).unwrap();

    let again = machine.posse(&["replay", &id]);
    again.assert_code(0);
    assert_eq!(again.stdout, "identical: 1 prompt, 6 replies, 7 results\n");
    assert!(!machine.work("a.txt").exists(), "no tool did anything");
    let json = machine.posse(&["replay", &id, "--json"]);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["identical"], true);
    let lines = machine.posse(&["replay", &id, "--output-format", "stream-json"]).events();
    assert_eq!(lines[0]["type"], "session.started");
    assert_eq!(lines.last().unwrap()["type"], "replay");

    assert_eq!(fs::read(machine.session_dir().join("session.jsonl")).unwrap(), before);
    let listed = machine.posse(&["sessions", "list", "--json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed.len(), 1, "a replay is no session of its own");
}

/// Contents of a record that do not depend on time and place.
fn essence(record: &Value) -> Option<Value> {
    let kind = record["type"].as_str()?;
    let keys: &[&str] = match kind {
        "user.message" => &["content"],
        "model.text" => &["turn", "message", "stopReason"],
        "tool.requested" => &["callId", "name", "arguments"],
        "tool.completed" | "tool.failed" | "tool.outcome_unknown" => &["callId", "name", "content"],
        "agent.invocation.completed" => &["result", "turns", "usage"],
        _ => return None,
    };
    let kept = keys.iter().map(|key| ((*key).to_owned(), record[key].clone()));
    // A call with an unknown outcome is a failure in a replay.
    let kind = if kind == "tool.outcome_unknown" { "tool.failed" } else { kind };
    Some(json!({"type": kind, "of": kept.collect::<serde_json::Map<_, _>>()}))
}

#[test]
fn an_interrupted_and_killed_session_replays_identically() {
    let half = stream(text_event("I will look").as_bytes());
    let hold = ModelAnswer::Hold(stream_bytes(text_event("thinking").as_bytes()));
    let server = ModelServer::start(vec![
        calls(&[("list_dir", json!({"path": "."})), ("read_file", json!({"path": "a"}))]),
        half,
        calls(&[
            ("write_file", json!({"path": "b", "content": "one\n"})),
            ("read_file", json!({"path": "a"})),
            ("list_dir", json!({})),
        ]),
        hold,
        runs("cat b; exit 3"),
        says("All of it is done."),
    ]);
    let machine = Machine::with(&server);
    machine.write("a", "text\n");
    let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&formats);
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    let mut send = |line: Value| stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    send(json!({"type": "message", "content": "work"}));
    let question = running.wait_for("permission.requested");
    send(json!({"type": "permission.answer", "requestId": question["requestId"],
        "decision": "allow"}));
    while running.wait_for("model.text.delta")["text"] != "thinking" {}
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let ended = machine.posse(&["resume", &id, "-y"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "All of it is done.\n");

    let journal = fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
    let recorded: Vec<Value> =
        journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for kind in ["provider.retry", "model.text.partial", "permission.granted", "session.resumed"] {
        assert!(recorded.iter().any(|record| record["type"] == kind), "no {kind}: {journal}");
    }
    let again = machine.posse(&["replay", &id, "--output-format", "stream-json"]);
    again.assert_code(0);
    let replayed = again.events();
    let essential = |records: &[Value]| {
        let mut all: Vec<Value> = records.iter().filter_map(essence).collect();
        // The order in which parallel calls end varies.
        let is_outcome = |record: &Value| !record["of"]["content"].is_null();
        for some in all.chunk_by_mut(|a, b| is_outcome(a) && is_outcome(b)) {
            some.sort_by_key(|record| record["of"]["callId"].to_string());
        }
        all
    };
    assert_eq!(essential(&replayed), essential(&recorded));
    let again = machine.posse(&["replay", &id]);
    assert_eq!(again.stdout, "identical: 1 prompt, 4 replies, 6 results\n");
}

#[test]
fn replay_reports_a_missing_prompt_or_damage() {
    let server = ModelServer::start(vec![says("done")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "work"]).assert_code(0);
    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let journal = machine.session_dir().join("session.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    let first = whole.lines().next().unwrap();
    fs::write(&journal, format!("{first}\n")).unwrap();
    let ended = machine.posse(&["replay", &id]);
    ended.assert_code(8);
    assert!(ended.stderr.contains("RPL001"), "{}", ended.stderr);
    fs::write(&journal, whole.replacen("work", "wark", 1)).unwrap();
    let ended = machine.posse(&["replay", &id]);
    ended.assert_code(8);
    assert!(ended.stderr.contains("SES006"), "{}", ended.stderr);
}

#[test]
fn a_cassette_contains_no_secret() {
    let key = "sk-0123456789abcdef";
    let server = ModelServer::start(vec![
        calls(&[("bash", json!({"command": format!("echo {key} > out; cat out")}))]),
        says(&format!("Your key is {key}, keep it.")),
    ]);
    let profile = json!({"auth": "bearer", "apiKeyEnv": "MINE_KEY"});
    let machine = Machine::configured(&server, &json!({}), &profile);
    let prompt = format!("use {key} please");
    let mut command = machine.command(&["run", "--yes", "--record", "tape.jsonl", &prompt]);
    command.env("MINE_KEY", key);
    RunningPosse::start(command).end().assert_code(0);
    let tape = machine.read("tape.jsonl");
    assert!(!tape.contains(key) && !tape.contains("0123456789abcdef"), "{tape}");
    assert!(tape.contains("use ") && tape.contains(" please"), "{tape}");
    // It was sent all the same: the server receives the user's text.
    assert!(server.requests()[0].to_string().contains(key));
}

/// A machine whose provider `local` has the fallback `other`.
fn with_another(server: &ModelServer, other: &ModelServer) -> Machine {
    let provider = |server: &ModelServer, model: &str, fallback: &[&str]| {
        json!({"type": "openai-compatible", "baseURL": server.base_url(), "model": model,
            "auth": "none", "fallback": fallback})
    };
    let providers = json!({
        "local": provider(server, "scripted-1", &["other"]),
        "other": provider(other, "other-1", &[]),
    });
    Machine::configured(server, &json!({ "providers": providers }), &json!({}))
}

#[test]
fn failover_is_recorded_on_the_cassette_and_in_the_journal() {
    let limited = status("429 Too Many", &["retry-after: 3600"], "{}");
    let server = ModelServer::start_and_repeat(vec![limited]);
    let other = ModelServer::start(vec![
        calls(&[("list_dir", json!({"path": "."}))]),
        says("The other one says hello."),
    ]);
    let machine = with_another(&server, &other);
    machine.posse(&["run", "--record", "tape.jsonl", "say hello"]).assert_code(0);

    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let again = machine.posse(&["replay", &id, "--output-format", "stream-json"]);
    again.assert_code(0);
    let switch = again.events().into_iter().find(|record| record["type"] == "provider.failover");
    let switch = switch.expect("the switch is replayed");
    assert_eq!((&switch["from"], &switch["to"]), (&json!("local"), &json!("other")));
    assert_eq!(switch["class"], "rate_limited");

    // Each provider answers as recorded: the first one refuses again.
    let tape = format!("file://{}", machine.work("tape.jsonl").display());
    let played =
        |fallback: &[&str]| json!({"type": "replay", "baseURL": tape, "fallback": fallback});
    let settings = json!({"defaultProvider": "local", "patience": "5s", "providers": {
        "local": played(&["other"]), "other": played(&[]), "taped": played(&[])}});
    machine.write_config(&settings.to_string());
    let ended = machine.posse(&["run", "say hello"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "The other one says hello.\n");
    let names = "! failover to other-1 via other: scripted-1 via local is unavailable";
    assert!(ended.stderr.contains(names), "{}", ended.stderr);
    // One model for both.
    let ended = machine.posse(&["run", "--provider", "taped", "say hello"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "The other one says hello.\n");
    assert!(!ended.stderr.contains("failover to"), "{}", ended.stderr);
    // Another prompt is not on the cassette, which is an error.
    let ended = machine.posse(&["run", "--provider", "taped", "say goodbye"]);
    ended.assert_code(1);
    for words in ["error[PRV004]", "say hello", "say goodbye"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
}

#[test]
fn a_broken_reply_and_an_exhausted_budget_replay_identically() {
    let listing = || calls(&[("list_dir", json!({"path": "."}))]);
    let prices = json!({ "scripted-1": { "inputPrice": 1_000_000, "outputPrice": 10_000_000 } });
    let more = json!({ "models": prices, "maxTurns": 500 });
    // A budget for some more replies, and one for none.
    let budgets = ["0.10", "0.08"];
    let manners: [&[&str]; 2] = [&["resume", "--last", "-y"], &["-c", "-y", "look again"]];
    let signals = [Signal::SIGKILL, Signal::SIGTERM];
    let rows = signals.into_iter().flat_map(|signal| {
        budgets.into_iter().flat_map(move |budget| manners.map(|then| (signal, budget, then)))
    });
    side_by_side(rows, |(signal, budget, then)| {
        let hold = ModelAnswer::Hold(stream_bytes(text_event("thinking").as_bytes()));
        let server = ModelServer::start_and_repeat(vec![listing(), hold, listing()]);
        let machine = Machine::configured(&server, &more, &json!({"maxTokens": 4096}));
        let mut run = machine.start(&["-y", "--budget", budget, "look around"]);
        run.wait_for("tool.completed");
        run.wait_for("model.text.delta");
        run.signal(signal);
        run.wait();
        machine.posse(then).assert_code(6);
        let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
        let again = machine.posse(&["replay", &id]);
        let said = [again.stdout.clone(), again.stderr.clone()].concat();
        assert!(again.stdout.starts_with("identical: "), "{signal} {budget} {then:?}: {said}");
        again.assert_code(0);
    });
}
