//! Listing of stored sessions: all commands agree, damage hides no cost, and "the newest" is
//! unambiguous.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says, status, stream_bytes};
use crate::posse::Machine;

fn prices() -> Value {
    json!({ "scripted-1": { "inputPrice": 1_000_000, "outputPrice": 10_000_000 } })
}

fn listing() -> ModelAnswer {
    calls(&[("list_dir", json!({"path": "."}))])
}

fn listed(machine: &Machine) -> Vec<Value> {
    let ended = machine.posse(&["sessions", "list", "--json"]);
    ended.assert_code(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn journal(machine: &Machine) -> (PathBuf, String) {
    let dir = machine.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap().to_owned();
    (dir.join("session.jsonl"), id)
}

/// A machine with sessions last used this many minutes ago, in the order of their start.
fn machine_with(server: &ModelServer, used: &[u64]) -> (Machine, Vec<PathBuf>) {
    let machine = Machine::with(server);
    let mut dirs = Vec::new();
    for (nth, minutes) in used.iter().enumerate() {
        machine.posse(&["run", &format!("task {nth}")]).assert_code(0);
        let all = listed(&machine).into_iter().map(|summary| {
            let place = format!(
                "posse/state/projects/{}/sessions/{}",
                summary["project"].as_str().unwrap(),
                summary["id"].as_str().unwrap()
            );
            machine.path(&place)
        });
        let new = all.into_iter().find(|dir| !dirs.contains(dir)).unwrap();
        let file = fs::File::options().append(true).open(new.join("session.jsonl")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(minutes * 60)).unwrap();
        dirs.push(new);
    }
    (machine, dirs)
}

fn id_of(dir: &Path) -> String {
    dir.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn an_emptied_or_removed_journal_is_damage_with_a_fix() {
    let server = ModelServer::start_and_repeat(vec![says("Hello.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "say hello"]).assert_code(0);
    let (file, id) = journal(&machine);
    machine.posse(&["sessions", "verify"]).assert_code(0);
    for (what, ruin) in [
        ("the journal is empty", Box::new(|| fs::write(&file, "").unwrap()) as Box<dyn Fn()>),
        ("the journal is missing", Box::new(|| fs::remove_file(&file).unwrap())),
    ] {
        ruin();
        let verified = machine.posse(&["sessions", "verify"]);
        verified.assert_code(8);
        let said = &verified.stdout;
        assert!(said.contains(&format!("{id}  damaged")) && said.contains(what), "{said}");
        assert!(said.contains("in session.jsonl") && said.contains("fix: put "), "{said}");
        assert!(said.contains(&format!("`posse sessions rm {id}`")), "{said}");
        let json = machine.posse(&["sessions", "verify", "--json"]);
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json[0]["problem"]["kind"], "empty", "{json:#}");
        assert_eq!(listed(&machine)[0]["state"], "empty");
        let shown = machine.posse(&["sessions", "show", &id]);
        shown.assert_code(8);
        assert!(shown.stdout.contains("state: empty"), "{}", shown.stdout);
        assert!(shown.stderr.contains("fix: put "), "{}", shown.stderr);
        // `-c` cannot select it, which is reported.
        let again = machine.posse(&["-c", "more"]);
        again.assert_code(8);
        assert!(again.stderr.contains(&id), "{}", again.stderr);
    }
}

#[test]
fn a_budget_does_not_grow_because_the_journal_is_damaged() {
    let server = ModelServer::start_and_repeat(vec![listing()]);
    let more = json!({ "models": prices(), "maxTurns": 500 });
    let machine = Machine::configured(&server, &more, &json!({"maxTokens": 4096}));
    let (ended, events) = machine.stream(&["--budget", "0.06", "look around"]);
    ended.assert_code(6);
    let spent = events.last().unwrap()["costNanoUsd"].as_u64().unwrap();
    let (file, id) = journal(&machine);
    // One byte of the first result is flipped: the records after it are not proved any more.
    let text = fs::read_to_string(&file).unwrap();
    let at = text.find("\"tool.completed\"").unwrap();
    let mut bytes = text.into_bytes();
    bytes[at + 1] = b'T';
    fs::write(&file, bytes).unwrap();

    let cost = machine.posse(&["sessions", "show", &id, "--cost", "--json"]);
    cost.assert_code(8);
    let cost: Value = serde_json::from_str(&cost.stdout).unwrap();
    assert_eq!(cost["total"]["nanoUsd"], spent, "{cost:#}");
    assert!(cost["total"]["unpriced"].as_u64().unwrap() > 0, "a line is lost: it is an at least");
    let summary = &listed(&machine)[0];
    assert_eq!((&summary["state"], &summary["costNanoUsd"]), (&json!("damaged"), &json!(spent)));
    let text = machine.posse(&["sessions", "list"]).stdout;
    assert!(text.contains("> $0.0") && text.contains("damaged"), "{text}");

    // Repairing the journal does not restore the budget, even if the run then fails.
    machine.posse(&["-c", "look again", "--agent", "nobody"]).assert_code(3);
    assert!(file.with_file_name("session.jsonl.damaged-1").exists());
    let asked = server.requests().len();
    for _ in 0..2 {
        let again = machine.posse(&["-c", "look again", "--output-format", "stream-json"]);
        again.assert_code(6);
        assert_eq!(server.requests().len(), asked, "{}", again.stderr);
        let said = &again.stderr;
        assert!(said.contains("its budget of $0.06 still applies; "), "{said}");
        assert!(said.contains("the budget of $0.06 is too small"), "{said}");
        let last = again.events().pop().unwrap();
        assert_eq!(last["costNanoUsd"], spent);
        machine.verify();
    }
    assert_eq!(listed(&machine)[0]["costNanoUsd"], spent);
}

#[test]
fn lists_the_cost_of_a_killed_session() {
    let server = ModelServer::start(vec![
        listing(),
        ModelAnswer::Hold(stream_bytes(
            b"data: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n",
        )),
    ]);
    let machine = Machine::configured(&server, &json!({ "models": prices() }), &json!({}));
    let mut run = machine.start(&["-y", "look"]);
    run.wait_for("tool.completed");
    run.wait_for("model.text.delta");
    run.signal(Signal::SIGKILL);
    run.wait();
    let summary = &listed(&machine)[0];
    assert_eq!(summary["state"], "killed");
    assert_eq!(
        (&summary["costNanoUsd"], &summary["unpricedRequests"]),
        (&json!(200_000), &json!(1))
    );
    let text = machine.posse(&["sessions", "list"]).stdout;
    assert!(text.contains("> $0.0002"), "{text}");
}

#[test]
fn all_commands_agree_on_damaged_and_newer_journals() {
    let server = ModelServer::start_and_repeat(vec![says("Hello.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "say hello"]).assert_code(0);
    let (file, id) = journal(&machine);
    let whole = fs::read_to_string(&file).unwrap();
    // The end is valid, so only a reader of the whole journal detects it.
    let damaged = whole.replacen("say hello", "say HELLO", 1);
    for (text, state, word) in
        [(damaged, "damaged", "damaged"), (newer(&whole), "newer", "newer version")]
    {
        fs::write(&file, text).unwrap();
        let verified = machine.posse(&["sessions", "verify"]);
        verified.assert_code(8);
        assert!(verified.stdout.contains(&format!("{id}  {word}  ")), "{}", verified.stdout);
        let summary = &listed(&machine)[0];
        assert_eq!(summary["state"], state, "{summary:#}");
        let text = machine.posse(&["sessions", "list"]).stdout;
        assert!(text.contains(word), "{text}");
        let shown = machine.posse(&["sessions", "show", &id]);
        shown.assert_code(8);
        assert!(shown.stdout.contains(&format!("state: {word}")), "{}", shown.stdout);
    }
}

/// The same journal with a final line of a later version.
fn newer(text: &str) -> String {
    use sha2::{Digest, Sha256};
    let last = text.lines().last().unwrap();
    let (body, hash) = last.strip_suffix("\"}").unwrap().split_once(",\"hash\":\"").unwrap();
    let record: Value = serde_json::from_str(last).unwrap();
    let number = record["record"].as_u64().unwrap();
    let body = body.replacen("{\"v\":1,", "{\"v\":99,", 1).replacen(
        &format!("\"record\":{number},"),
        &format!("\"record\":{},", number + 1),
        1,
    );
    let digest = Sha256::new().chain_update(hash).chain_update(&body).finalize();
    let hex: String =
        digest[..16].iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    format!("{text}{body},\"hash\":\"{hex}\"}}\n")
}

#[test]
fn the_newest_session_is_the_last_used_everywhere() {
    let server = ModelServer::start_and_repeat(vec![says("Hello.")]);
    let (machine, dirs) = machine_with(&server, &[10, 30, 20]);
    let ids: Vec<Value> = listed(&machine).iter().map(|summary| summary["id"].clone()).collect();
    assert_eq!(ids, [0, 2, 1].map(|nth: usize| json!(id_of(&dirs[nth]))));
    let again = machine.posse(&["-c", "more"]);
    again.assert_code(0);
    assert!(again.stderr.contains(&id_of(&dirs[0])), "{}", again.stderr);
    let unsaid = machine.posse(&["resume"]);
    unsaid.assert_code(2);
    let offered = [0, 2, 1].map(|nth: usize| format!("`{}`", id_of(&dirs[nth]))).join(", ");
    assert!(unsaid.stderr.contains(&offered), "{}", unsaid.stderr);
}

#[test]
fn an_unusable_newest_session_suggests_another_one() {
    let server = ModelServer::start_and_repeat(vec![says("Hello.")]);
    let (machine, dirs) = machine_with(&server, &[10, 20, 30]);
    // Neither the newest session nor the one before it can be resumed.
    for dir in &dirs[..2] {
        let file = dir.join("session.jsonl");
        let before = file.metadata().unwrap().modified().unwrap();
        let text = fs::read_to_string(&file).unwrap().replacen("\"ts\":", "\"tS\":", 1);
        fs::write(&file, text).unwrap();
        fs::File::options().append(true).open(&file).unwrap().set_modified(before).unwrap();
    }
    let asked = server.requests().len();
    let again = machine.posse(&["-c", "more"]);
    again.assert_code(8);
    let said = &again.stderr;
    assert!(said.contains(&format!("`-c` means session `{}`", id_of(&dirs[0]))), "{said}");
    let instead = format!("`posse resume {}` resumes the one before it", id_of(&dirs[2]));
    assert!(said.contains(&instead) && said.contains("(task 2)"), "{said}");
    assert_eq!(server.requests().len(), asked, "nobody has said that another one will do");
    machine.posse(&["resume", &id_of(&dirs[2]), "more"]).assert_code(0);
}

#[test]
fn a_parked_session_is_not_listed_as_running() {
    let busy = status("529 Overloaded", &["retry-after: 3600"], "{}");
    let server = ModelServer::start_and_repeat(vec![busy]);
    let machine = Machine::configured(&server, &json!({"patience": "1s"}), &json!({}));
    machine.posse(&["run", "say hello"]).assert_code(5);
    let (file, _) = journal(&machine);
    let summary = &listed(&machine)[0];
    assert_eq!((&summary["state"], &summary["owner"]), (&json!("parked"), &Value::Null));
    // An interactive front end keeps the session while it waits.
    let lock =
        fs::File::options().read(true).write(true).open(file.with_file_name("lock")).unwrap();
    lock.lock().unwrap();
    let summary = &listed(&machine)[0];
    assert_eq!(summary["state"], "parked");
    assert!(summary["owner"].is_string(), "{summary:#}");
}
