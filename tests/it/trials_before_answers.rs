//! Trials that a person asks for before the answer to a permission request.

use std::io::Write;
use std::process::{ChildStdin, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::attach::AttachClient;
use crate::model_server::{ModelAnswer, ModelServer, runs, says};
use crate::plain::Terminal;
use crate::posse::{Machine, RunningPosse};
use crate::trying::{assert_nothing_is_left, digest, wait_for_layer, with_repository};
use crate::worktree::{in_bash, machine as machine_with_agents, trees};

const COMMAND: &str = "echo said; echo more >> a; echo x > .envrc";

/// A session that a program drives.
pub(crate) struct Driver {
    pub(crate) running: RunningPosse,
    pub(crate) stdin: ChildStdin,
}

impl Driver {
    pub(crate) fn start(machine: &Machine, backend: Option<&str>) -> Driver {
        let args = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
        let mut command = machine.command(&args);
        command.stdin(Stdio::piped());
        backend.map(|backend| command.env("POSSE_SANDBOX_BACKEND", backend));
        let mut running = RunningPosse::start(command);
        let stdin = running.take_stdin();
        let mut driver = Driver { running, stdin };
        driver.send(&json!({"type": "message", "content": "do it"}));
        driver
    }

    pub(crate) fn send(&mut self, instruction: &Value) {
        self.stdin.write_all(format!("{instruction}\n").as_bytes()).unwrap();
    }

    pub(crate) fn answer(&mut self, request: &Value, decision: &str) {
        let id = &request["requestId"];
        let answer = json!({"type": "permission.answer", "requestId": id, "decision": decision});
        self.send(&answer);
    }

    pub(crate) fn asked(&mut self) -> Value {
        self.running.wait_for("permission.requested")
    }
}

fn machine_for(command: &str) -> (Machine, ModelServer) {
    let server = ModelServer::start(vec![runs(command), says("done")]);
    let machine = with_repository(Machine::with(&server));
    (machine, server)
}

#[test]
fn person_keeps_drops_or_repeats_a_trial() {
    for (decision, content, result) in [
        (
            "keep",
            "a\nmore\n",
            "the user kept its changes: 1 of 2\nnot kept: .envrc: it is protected",
        ),
        ("allow", "a\nmore\n", "(exit 0"),
        ("deny", "a\n", "Denied: "),
    ] {
        let (machine, server) = machine_for(COMMAND);
        let before = digest(&machine.path("work"));
        let mut driver = Driver::start(&machine, None);
        let first = driver.asked();
        assert_eq!(first["trial"], "try", "{first}");
        driver.answer(&first, "try");
        let tried = driver.running.wait_for("permission.tried");
        assert_eq!(tried["requestId"], first["requestId"]);
        assert_eq!((&tried["isFailed"], &tried["exitCode"]), (&json!(false), &json!(0)));
        let listed = json!([
            {"path": ".envrc", "change": "added", "type": "file", "bytesAfter": 2},
            {"path": "a", "change": "modified", "type": "file", "bytesBefore": 2, "bytesAfter": 7},
        ]);
        assert_eq!(tried["changes"], listed);
        assert!(tried["output"].as_str().unwrap().contains("said\n"), "{tried}");
        let again = driver.asked();
        assert_eq!((&again["requestId"], &again["trial"]), (&first["requestId"], &json!("keep")));
        for part in ["said\n", "\n+more\n", "added    .envrc\n", "can behave differently"] {
            assert!(again["detail"].as_str().unwrap().contains(part), "{part}: {again}");
        }
        assert_eq!(digest(&machine.path("work")), before, "{decision}");
        driver.answer(&again, decision);
        drop(driver.stdin);
        let ended = driver.running.end();
        let told = server.tool_results().remove(0);
        assert!(told.contains(result), "{decision}: {told}");
        assert_eq!(machine.read("a"), content, "{decision}");
        assert_nothing_is_left(&machine);
        let events = ended.events();
        let position = |kind: &str| events.iter().position(|event| event["type"] == kind);
        if decision == "keep" {
            // The intent and the checkpoint come before the changes.
            assert!(position("checkpoint.created") < position("tool.started"));
            assert!(position("tool.started") < position("tool.completed"));
            assert!(!machine.work(".envrc").exists());
            machine.posse(&["undo", "--yes"]).assert_code(0);
            assert_eq!(machine.read("a"), "a\n");
        }
        machine.verify();
    }
}

#[test]
fn trial_is_not_offered_where_it_is_not_possible() {
    for (backend, command) in [(Some("landlock"), "make"), (None, "curl -s http://127.0.0.1:1/")] {
        let (machine, _server) = machine_for(command);
        let mut driver = Driver::start(&machine, backend);
        let asked = driver.asked();
        assert_eq!(asked["trial"].as_str(), backend.map_or(Some("try"), |_| None), "{asked}");
        if backend.is_some() {
            driver.answer(&asked, "try");
            let warning = driver.running.wait_for("warning");
            assert!(warning["message"].as_str().unwrap().contains("cannot be tried"), "{warning}");
        }
        driver.answer(&asked, "deny");
        drop(driver.stdin);
        driver.running.end();
    }
}

#[test]
fn interrupted_trial_leaves_nothing() {
    let (machine, _server) = machine_for("echo x > a; exec sleep 600");
    let before = digest(&machine.path("work"));
    let mut driver = Driver::start(&machine, None);
    let asked = driver.asked();
    driver.answer(&asked, "try");
    wait_for_layer(&machine, "a");
    driver.send(&json!({"type": "interrupt"}));
    let withdrawn = driver.running.wait_for("permission.withdrawn");
    assert_eq!(
        (&withdrawn["targetType"], &withdrawn["targetName"]),
        (&json!("tool"), &json!("bash"))
    );
    drop(driver.stdin);
    driver.running.end();
    assert_eq!(digest(&machine.path("work")), before);
    assert_nothing_is_left(&machine);
}

#[test]
fn request_is_asked_again_without_its_trial_after_a_kill() {
    let (machine, _server) = machine_for(COMMAND);
    let mut driver = Driver::start(&machine, None);
    let asked = driver.asked();
    driver.answer(&asked, "try");
    let again = driver.asked();
    assert_eq!(again["trial"], "keep");
    driver.running.signal(Signal::SIGKILL);
    driver.running.wait();
    let args = ["resume", "--last", "--input-format", "stream-json"];
    let mut command = machine.command(&[&args[..], &["--output-format", "stream-json"]].concat());
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let stdin = running.take_stdin();
    let mut driver = Driver { running, stdin };
    let resumed = driver.asked();
    assert_eq!((&resumed["requestId"], &resumed["trial"]), (&asked["requestId"], &json!("try")));
    assert_eq!(resumed["detail"], COMMAND);
    // The folder of the killed process is not in the way.
    driver.answer(&resumed, "try");
    let again = driver.asked();
    assert_eq!(again["trial"], "keep", "{again}");
    driver.answer(&again, "deny");
    drop(driver.stdin);
    driver.running.end();
    assert_eq!(machine.read("a"), "a\n");
    assert_nothing_is_left(&machine);
    machine.verify();
}

#[test]
fn person_at_a_terminal_tries_and_keeps() {
    let (machine, _server) = machine_for("echo new >> a");
    let mut terminal = Terminal::run(&machine, &["run", "do it"], "xterm");
    terminal.see("[t] try it first");
    terminal.press("t\n");
    terminal.see("the workspace is not changed");
    terminal.see("+new");
    terminal.see("[k] keep the trial");
    terminal.press("k\n");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(machine.read("a"), "a\nnew\n");
    assert_nothing_is_left(&machine);
}

#[test]
fn attached_person_tries_and_keeps() {
    let (machine, server) = machine_for(COMMAND);
    let mut driver = Driver::start(&machine, None);
    let asked = driver.asked();
    let mut person = Terminal::run(&machine, &["attach"], "xterm");
    person.see("[t] try it first");
    person.press("t\r");
    person.see("the workspace is not changed");
    let tried = driver.running.wait_for("permission.tried");
    assert_eq!(tried["requestId"], asked["requestId"]);
    assert!(tried["triedBy"].as_str().unwrap().starts_with("process "), "{tried}");
    person.see("+more");
    person.see("[k] keep the trial");
    assert_eq!(machine.read("a"), "a\n");
    person.press("k\r");
    let granted = driver.running.wait_for("permission.granted");
    assert_eq!((&granted["keepsTrial"], &granted["answeredBy"]), (&json!(true), &tried["triedBy"]));
    drop(driver.stdin);
    driver.running.end().assert_code(0);
    assert_eq!(person.end(), Some(0));
    assert_eq!(machine.read("a"), "a\nmore\n");
    assert!(!machine.work(".envrc").exists());
    assert!(server.tool_results()[0].contains("the user kept its changes"));
    assert_nothing_is_left(&machine);
    machine.verify();
}

#[test]
fn attached_program_tries_and_drops() {
    let (machine, _server) = machine_for(COMMAND);
    let before = digest(&machine.path("work"));
    let mut driver = Driver::start(&machine, None);
    driver.asked();
    let mut client = AttachClient::join(&machine);
    let asked = client.wait_for("permission.requested");
    client.answer(&asked, "try");
    let tried = client.wait_for("permission.tried");
    assert!(tried["diff"].as_str().unwrap().contains("\n+more\n"), "{tried}");
    let again = client.wait_for("permission.requested");
    assert_eq!((&again["requestId"], &again["trial"]), (&asked["requestId"], &json!("keep")));
    client.answer(&again, "deny");
    client.wait_for("permission.denied");
    drop(driver.stdin);
    driver.running.end();
    client.close().assert_code(0);
    assert_eq!(digest(&machine.path("work")), before);
    assert_nothing_is_left(&machine);
}

/// The command of a subagent changes its worktree only, and so does its trial.
#[test]
fn command_of_a_subagent_in_a_worktree_is_tried() {
    for decision in ["keep", "allow", "deny"] {
        let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(in_bash)]);
        let machine = machine_with_agents(&server);
        let args = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
        let mut command = machine.command(&args);
        command.stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let stdin = running.take_stdin();
        let mut driver = Driver { running, stdin };
        let content = "echo said; echo more >> g; echo new > made; echo x > .envrc";
        driver.send(&json!({"type": "message", "content": content}));
        let asked = driver.asked();
        assert!(asked["agentPath"].as_str().unwrap().contains("worker"), "{asked}");
        assert_eq!(asked["trial"], "try", "{asked}");
        let [tree] = &trees(&machine)[..] else { panic!("{:?}", trees(&machine)) };
        let (workspace, copy) = (digest(&machine.path("work")), digest(tree));
        driver.answer(&asked, "try");
        let tried = driver.running.wait_for("permission.tried");
        assert_eq!(tried["isFailed"], false, "{tried}");
        assert!(tried["output"].as_str().unwrap().contains("said\n"), "{tried}");
        let changes = tried["diff"].as_str().unwrap();
        for part in ["\n+more\n", "added    made\n", "added    .envrc\n"] {
            assert!(changes.contains(part), "{part}: {changes}");
        }
        assert!(!changes.contains("worktrees"), "paths are relative to the worktree: {changes}");
        let again = driver.asked();
        assert_eq!((&again["requestId"], &again["trial"]), (&asked["requestId"], &json!("keep")));
        assert_eq!((digest(&machine.path("work")), digest(tree)), (workspace, copy.clone()));
        driver.answer(&again, decision);
        driver.running.wait_for("agent.invocation.completed");
        let text = |file: &str| std::fs::read_to_string(tree.join(file)).ok();
        let is_changed = decision != "deny";
        let told = server.tool_results();
        assert_eq!(text("made").as_deref(), is_changed.then_some("new\n"), "{decision}: {told:#?}");
        // A worktree without changes is removed.
        assert_eq!(text("g").as_deref() == Some("g\nmore\n"), is_changed, "{decision}");
        assert_eq!(text(".envrc"), None, "{decision}: it is protected");
        assert_eq!(machine.read("g"), "g\n", "{decision}");
        drop(driver.stdin);
        driver.running.end();
        assert_nothing_is_left(&machine);
        machine.verify();
    }
}
