//! A stored session runs again without its model, and is the same.

use std::fs;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, calls_with_text, runs, says};
use crate::posse::Machine;

#[test]
fn a_real_session_is_the_same_again_and_touches_nothing() {
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

#[test]
fn a_session_without_a_prompt_or_with_damage_says_so() {
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
fn a_cassette_holds_no_secret_whoever_said_it() {
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
    crate::posse::Running::start(command).end().assert_code(0);
    let tape = machine.read("tape.jsonl");
    assert!(!tape.contains(key) && !tape.contains("0123456789abcdef"), "{tape}");
    assert!(tape.contains("use ") && tape.contains(" please"), "{tape}");
    // It was sent all the same: the server sees what the user wrote.
    assert!(server.requests()[0].to_string().contains(key));
}
