//! Effects of keys of a session: agents, skills, limits, images, queues, checkpoints.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{GREETING, Scenario, assert_each_changes, observed, with};
use crate::files::noise;
use crate::model_server::{ModelAnswer, ModelServer, calls, runs, says, text_of};
use crate::posse::{Machine, RunningPosse};

fn add_skill(folder: &Path, name: &str) {
    let folder = folder.join(name);
    fs::create_dir_all(&folder).unwrap();
    let text = format!("---\nname: {name}\ndescription: Greets.\n---\n\nSay hello.\n");
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

#[test]
fn keys_of_agents_and_skills_change_requests() {
    let scenario = Scenario {
        prepare: |machine| {
            add_skill(&machine.path("posse/config/skills"), "greet");
            add_skill(&machine.path("home/more"), "wave");
        },
        ..GREETING
    };
    let agent = json!({"description": "Helps.", "prompt": "Help.", "tools": []});
    let rows = [
        ("agents", json!({ "helper": agent })),
        ("defaultAgent", json!("plan")),
        ("skills.enabled", json!(false)),
        ("skills.disabled", json!(["greet"])),
        ("skills.folders", json!(["~/more"])),
    ];
    assert_each_changes(&scenario, &json!({"agentMode": "multi-agent"}), &rows);
}

#[test]
fn budget_and_time_limit_end_a_run() {
    let prices = json!({"scripted-1": {"inputPrice": 1_000_000, "outputPrice": 10_000_000}});
    let rows = [
        ("maxTurns", json!(2), "LIM001"),
        ("budget", json!({"maxCostMicroUsd": 50_000}), "LIM002"),
        ("timeout", json!("1s"), "LIM001"),
    ];
    for (key, value, code) in rows {
        let answer = match key {
            "timeout" => ModelAnswer::Hold(Vec::new()),
            _ => calls(&[("list_dir", json!({}))]),
        };
        let server = ModelServer::start_and_repeat(vec![answer]);
        let more = with(&json!({ "models": prices }), key, &value);
        let machine = Machine::configured(&server, &more, &json!({"maxTokens": 4096}));
        let ended = machine.posse(&["run", "look"]);
        assert_ne!(ended.code, Some(0), "{key}");
        assert!(ended.stderr.contains(code), "{key}: {}", ended.stderr);
        assert!(server.requests().len() < 100, "{key}");
    }
}

#[test]
fn keys_of_images_change_requests() {
    let scenario = Scenario {
        answers: || vec![says("a picture")],
        prepare: |machine| machine.write("noise.png", noise(64, 64)),
        runs: &[&["run", "--image", "noise.png", "look"]],
        acts: true,
    };
    let base = json!({"multimodal": {"detail": "auto"}});
    let rows = [("multimodal.detail", json!("low")), ("multimodal.maxImageBytes", json!(1024))];
    assert_each_changes(&scenario, &base, &rows);
    let small = observed(&scenario, &with(&base, "multimodal.maxImageBytes", &json!(1024)));
    assert!(!small.contains("data:image/"), "{small}");
}

/// The user's messages that each request adds, where two messages of `kind` are queued during the
/// first call of a task.
fn delivered(kind: &str, queue: &Value) -> Vec<Vec<String>> {
    let gate = runs("until [ -e gate ]; do sleep 0.05; done");
    let server = ModelServer::start_and_repeat(vec![gate, says("one"), says("two")]);
    let more = json!({"ui": {"queue": queue}});
    let machine = Machine::configured(&server, &more, &json!({}));
    let formats = ["run", "-y", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&formats);
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    let mut send = |line: Value| writeln!(stdin, "{line}").unwrap();
    send(json!({"type": "message", "content": "begin"}));
    running.wait_for("tool.started");
    for content in ["first", "second"] {
        send(json!({"type": kind, "content": content}));
        running.wait_for("message.queued");
    }
    machine.write("gate", "");
    drop(stdin);
    running.end().assert_code(0);
    let mut known = 0;
    let added = |request: &Value| {
        let messages = request["messages"].as_array().unwrap();
        let users = messages.iter().filter(|message| message["role"] == "user");
        let users: Vec<String> = users.map(|message| text_of(&message["content"])).collect();
        let new = users[known..].to_vec();
        known = users.len();
        new
    };
    server.requests().iter().map(added).collect()
}

#[test]
fn queued_messages_are_delivered_one_by_one_or_together() {
    // Adjacent messages can be sent as one; each is delivered with one request or with two.
    let requests = |kind: &str, queue: Value| {
        let added = delivered(kind, &queue);
        let with = |text: &str| {
            let found = added.iter().position(|new| new.iter().any(|one| one.contains(text)));
            found.unwrap_or_else(|| panic!("{text}: {added:?}"))
        };
        with("second") - with("first")
    };
    assert_eq!(requests("steer", json!({"steering": "all"})), 0);
    assert_eq!(requests("steer", json!({"steering": "one"})), 1);
    assert_eq!(requests("follow_up", json!({"followUp": "all"})), 0);
    assert_eq!(requests("follow_up", json!({"followUp": "one"})), 1);
}

/// Files with this name below `folder`.
fn files_named(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let find = |path: PathBuf| {
        if path.is_dir() {
            return files_named(&path, name);
        }
        let is_named = path.file_name().is_some_and(|known| known == name);
        is_named.then_some(path).into_iter().collect()
    };
    entries.flat_map(find).collect()
}

#[test]
fn old_or_large_checkpoints_are_removed() {
    // Numbers of the removed checkpoints with these settings: the first one is five days old.
    let removed = |settings: Value| -> usize {
        let answers = || vec![runs("touch x"), says("Done.")];
        let server = ModelServer::start([answers(), answers(), answers()].concat());
        let more = json!({ "checkpoints": settings });
        let machine = Machine::configured(&server, &more, &json!({}));
        for nth in 0..3 {
            machine.write("noise.png", [noise(800, 600), vec![nth]].concat());
            machine.posse(&["run", "--yes", "task"]).assert_code(0);
        }
        let records = files_named(&machine.path("posse/state"), "1.json");
        assert_eq!(records.len(), 1, "{records:?}");
        let mut record: Value = serde_json::from_slice(&fs::read(&records[0]).unwrap()).unwrap();
        record["takenMs"] = json!(record["takenMs"].as_u64().unwrap() - 5 * 24 * 3600 * 1000);
        fs::write(&records[0], record.to_string()).unwrap();
        let pruned = machine.posse(&["checkpoints", "prune", "--json"]);
        pruned.assert_code(0);
        let pruned: Value = serde_json::from_str(&pruned.stdout).unwrap();
        pruned["removed"].as_array().unwrap().len()
    };
    assert_eq!(removed(json!({})), 0);
    assert_eq!(removed(json!({"keepDays": 3})), 1);
    assert!(removed(json!({"maxStoreBytes": 1_048_576})) > 0);
}
