//! `/undo` and `/rewind` of attached clients: files and conversation return where the session runs.

use std::fs;

use serde_json::{Value, json};

use crate::attach::{AttachClient, wait_until};
use crate::model_server::{ModelServer, runs, says};
use crate::plain::Terminal;
use crate::posse::Machine;
use crate::tui::Tmux;

fn machine_for_two_tasks() -> (Machine, ModelServer) {
    let server = ModelServer::start(vec![
        runs("echo 2 > a; touch made"),
        says("Done one."),
        runs("echo 3 > a"),
        says("Done two."),
        says("I see."),
    ]);
    let machine = Machine::with(&server);
    machine.write("a", "1\n");
    (machine, server)
}

/// True if the state after the last run is stored, so that later changes count as the user's.
fn is_stored(machine: &Machine) -> bool {
    let listed = machine.posse(&["checkpoints", "list", "--json"]).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    listed[0]["changes"].is_array()
}

/// Number of the user's calls that have ended in all sessions: each tells the model of itself.
fn ended_calls(machine: &Machine) -> usize {
    let project = fs::read_dir(machine.path("posse/state/projects")).unwrap().next().unwrap();
    let sessions = fs::read_dir(project.unwrap().path().join("sessions")).unwrap();
    let journals = sessions.map(|session| session.unwrap().path().join("session.jsonl"));
    let texts = journals.filter_map(|journal| fs::read_to_string(journal).ok());
    texts.map(|text| text.matches("\"type\":\"message.queued\"").count()).sum()
}

#[test]
fn an_attached_person_returns_files_and_conversation_of_line_mode() {
    let (machine, server) = machine_for_two_tasks();
    let mut owner = Terminal::run(&machine, &["plain", "--yes"], "xterm");
    owner.see("> ");
    owner.press("first task\r");
    owner.see(" · 2 turns");
    owner.see("> ");
    owner.press("second task\r");
    owner.see(" · 2 turns");
    owner.see("> ");
    wait_until("the state after the run", || is_stored(&machine));
    let mut observer = Terminal::run(&machine, &["attach", "--observe"], "xterm");
    observer.see("you observe");
    observer.press("/rewind 1 files\r");
    observer.see("(you observe: /exit leaves)");
    let mut person = Terminal::run(&machine, &["attach"], "xterm");
    person.see("you control it");
    person.see("Done two.");
    person.press("/rewind\r");
    person.see("2 files    first task");
    person.see("/rewind N files");
    person.press("/rewind 9 files\r");
    person.see("there is no prompt 9 in this conversation; fix: /rewind lists them");
    person.press("/rewind 2\r");
    person.see("/rewind 2 conversation  conversation only");
    assert_eq!(machine.read("a"), "3\n");
    person.press("/undo\r");
    owner.see(": /undo)");
    person.see("restore 1 file of checkpoint 2");
    wait_until("the file", || machine.read("a") == "2\n");
    wait_until("the end of the call", || ended_calls(&machine) == 1);
    person.press("/rewind 1 both\r");
    owner.see(": /rewind 1 both)");
    wait_until("the first state", || machine.read("a") == "1\n" && !machine.work("made").exists());
    // The person follows to the copy; the observer has seen the end.
    person.see("you control it");
    observer.see("the session has ended");
    assert_eq!(observer.end(), Some(0));
    wait_until("the end of the call", || ended_calls(&machine) == 2);
    person.press("and now?\r");
    person.see("I see.");
    let asked = server.requests().pop().unwrap()["messages"].to_string();
    assert!(!asked.contains("first task") && asked.contains("and now?"), "{asked}");
    assert!(!asked.contains("returned the files to an earlier state"), "{asked}");
    person.press("/exit\r");
    assert_eq!(person.end(), Some(0));
    owner.press("\r");
    owner.press("/exit\r");
    assert_eq!(owner.end(), Some(0));
    machine.verify();
}

#[test]
fn an_attached_program_returns_the_terminal_ui_to_a_prompt() {
    let (machine, _server) = machine_for_two_tasks();
    let tmux = Tmux::open(&machine, &["tui", "--yes"]);
    tmux.says("first task");
    tmux.wait_for("Done one.");
    tmux.wait_until("the state after the run", |_| is_stored(&machine));
    tmux.types("my draft");
    let mut client = AttachClient::join(&machine);
    client.send(&json!({"type": "rewind", "prompt": 7, "what": "files"}));
    let failed = client.wait_for("attach.failed");
    assert!(failed["message"].as_str().unwrap().contains("no prompt 7"), "{failed}");
    client.send(&json!({"type": "rewind", "prompt": 1, "what": "nothing"}));
    let failed = client.wait_for("attach.failed");
    assert!(failed["message"].as_str().unwrap().contains("expected one of both"), "{failed}");
    client.send(&json!({"type": "rewind", "prompt": 1, "what": "files"}));
    client.wait_for("attach.done");
    client.wait_for("checkpoint.restored");
    client.wait_for("message.queued");
    assert_eq!(machine.read("a"), "1\n");
    client.send(&json!({"type": "rewind", "prompt": 1, "what": "files"}));
    let failed = client.wait_for("attach.failed");
    assert!(failed["message"].as_str().unwrap().contains("no file was changed"), "{failed}");
    // The return, and then the run.
    for content in ["2\n", "1\n"] {
        client.send(&json!({"type": "undo"}));
        client.wait_for("attach.done");
        client.wait_for("message.queued");
        assert_eq!(machine.read("a"), content);
    }
    client.send(&json!({"type": "undo"}));
    let failed = client.wait_for("attach.failed");
    assert!(failed["message"].as_str().unwrap().contains("no change to undo"), "{failed}");
    client.send(&json!({"type": "undo", "checkpoint": 4}));
    client.wait_for("attach.done");
    client.wait_for("message.queued");
    assert_eq!(machine.read("a"), "2\n");
    machine.write("a", "of the user\n");
    client.send(&json!({"type": "rewind", "prompt": 1, "what": "all"}));
    let failed = client.wait_for("attach.failed");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("replaces what you have changed since: modify a"), "{failed}");
    assert_eq!(machine.read("a"), "of the user\n");
    client.send(&json!({"type": "rewind", "prompt": 1, "what": "all"}));
    client.wait_for("attach.done");
    client.wait_for("message.queued");
    assert_eq!(machine.read("a"), "1\n");
    client.send(&json!({"type": "rewind", "prompt": 1, "what": "conversation"}));
    client.wait_for("attach.done");
    client.wait_for("session.ended");
    tmux.wait_for("a copy of the session");
    assert!(tmux.screen().contains("my draft"), "{}", tmux.screen());
}

#[test]
fn a_run_of_a_program_returns_to_no_prompt_for_an_attached_client() {
    let server = ModelServer::start(vec![says("Done.")]);
    let machine = Machine::with(&server);
    let mut owner = AttachClient::start(&machine, &["run"]);
    owner.send(&json!({"type": "message", "content": "a task"}));
    owner.wait_for("agent.invocation.completed");
    let mut client = AttachClient::join(&machine);
    client.send(&json!({"type": "rewind", "prompt": 1, "what": "files"}));
    let failed = client.wait_for("attach.failed");
    assert!(failed["message"].as_str().unwrap().contains("only line mode"), "{failed}");
    owner.close().assert_code(0);
}
