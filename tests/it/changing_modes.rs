//! Permission modes that a person changes while a session runs, and who else has them.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, runs, says};
use crate::plain::Terminal;
use crate::posse::{Machine, RunningPosse};
use crate::tui::Tmux;

fn write(path: &str) -> ModelAnswer {
    calls(&[("write_file", json!({"path": path, "content": "x"}))])
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

#[test]
fn shift_tab_goes_to_the_next_mode_and_the_status_bar_shows_it() {
    let server = ModelServer::start(vec![
        write("edited"),
        says("Done one."),
        write("planned"),
        says("Done two."),
    ]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    let shows = |mode: &str| {
        let begin = format!("{mode} · scripted-1");
        let is_there = |screen: &str| screen.lines().any(|line| line.trim().starts_with(&begin));
        tmux.wait_until(&begin, is_there);
    };
    shows("ask");
    tmux.presses("BTab");
    shows("edits");
    tmux.says("one");
    tmux.wait_for("Done one.");
    assert!(machine.work("edited").exists());
    tmux.presses("BTab");
    shows("auto");
    tmux.presses("BTab");
    shows("plan");
    tmux.says("two");
    tmux.wait_for("Done two.");
    assert!(!machine.work("planned").exists());
    let result = &server.tool_results()[1];
    assert!(result.contains("the permission mode is plan"), "{result}");
    tmux.says("/permission-mode locked");
    shows("locked");
    tmux.presses("BTab");
    tmux.wait_for("the mode is locked: /permission-mode MODE leaves it");
    tmux.says("/permission-mode ask");
    shows("ask");
    tmux.presses("BTab");
    shows("edits");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    machine.verify();
}

#[test]
fn shift_tab_decides_an_open_question() {
    let server = ModelServer::start(vec![write("made"), says("It is made.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("make it");
    tmux.wait_for("[n] no");
    tmux.presses("BTab");
    tmux.wait_for("It is made.");
    assert!(machine.work("made").exists());
    tmux.presses("C-d");
    tmux.assert_ended(0);
    machine.verify();
}

#[test]
fn slash_command_shows_and_changes_the_mode() {
    let server =
        ModelServer::start(vec![write("planned"), says("No."), write("made"), says("Yes.")]);
    let machine = Machine::with(&server);
    let mut person = Terminal::run(&machine, &["plain"], "xterm");
    person.see("> ");
    person.press("/permission-mode plan\r");
    person.see("permission mode plan: nothing is changed");
    person.press("/permission-mode\r");
    person.see("> plan ");
    person.press("/permission-mode yolo\r");
    person.see("There is no permission mode \"yolo\"");
    person.press("try it\r");
    person.see("No.");
    assert!(!machine.work("planned").exists());
    person.press("/permission-mode edits\r");
    person.see("permission mode edits:");
    person.press("again\r");
    person.see("Yes.");
    assert!(machine.work("made").exists());
    person.press("/exit\r");
    assert_eq!(person.end(), Some(0));
    machine.verify();
}

/// A machine whose model delegates to `worker`, which writes a file and runs a command.
fn delegating() -> (Machine, ModelServer) {
    let task = json!({"agent": "worker", "task": "Write it"});
    let server = ModelServer::start(vec![
        calls(&[("delegate_agent", task)]),
        write("made"),
        runs("echo built > built"),
        says("Written."),
        says("All done."),
    ]);
    let machine = Machine::configured(&server, &json!({"agentMode": "multi-agent"}), &json!({}));
    (machine, server)
}

#[test]
fn subagent_has_the_mode_of_its_session() {
    // Mode and flag; answered questions; what exists afterwards.
    for (mode, yes, questions, made, built) in [
        ("auto", false, 0, true, true),
        ("edits", true, 2, true, true),
        ("plan", true, 1, false, false),
    ] {
        let (machine, server) = delegating();
        let flags: &[&str] = if yes { &["-y"] } else { &[] };
        let (ended, events) =
            machine.stream(&[flags, &["--permission-mode", mode, "do it"]].concat());
        ended.assert_code(0);
        let results = server.tool_results();
        let asked = of_type(&events, "permission.requested").len();
        assert_eq!(asked, questions, "{mode}: {results:#?}");
        let exist = [machine.work("made").exists(), machine.work("built").exists()];
        assert_eq!(exist, [made, built], "{mode}: {results:#?}");
        machine.verify();
    }
    let (machine, server) = delegating();
    machine.stream(&["--permission-mode", "locked", "do it"]).0.assert_code(0);
    let refused = &server.tool_results()[0];
    assert!(refused.contains("the permission mode is locked"), "{refused}");
}

#[test]
fn hooks_get_the_mode() {
    let server = ModelServer::start(vec![write("made"), says("Done.")]);
    let line = "cat > seen";
    let hook = json!({"name": "test", "event": "PreToolUse", "command": ["sh", "-c", line]});
    let machine = Machine::configured(&server, &json!({"hooks": [hook]}), &json!({}));
    machine.posse(&["run", "--permission-mode", "edits", "do it"]).assert_code(0);
    let seen: Value = serde_json::from_str(&machine.read("seen")).unwrap();
    assert_eq!(seen["permissionMode"], "edits");
}

#[test]
fn first_start_in_a_project_says_what_the_mode_means() {
    let machine = Machine::with(&ModelServer::start(vec![says("one")]));
    // Prints no such line, and so does not count.
    let headless = machine.posse(&["run", "hello"]);
    assert!(!headless.stderr.contains("--permission-mode changes it"), "{}", headless.stderr);
    let seen = |args: &[&str]| {
        let mut person = Terminal::run(&machine, &[&["plain"], args].concat(), "xterm");
        person.see("> ");
        person.press("/exit\r");
        assert_eq!(person.end(), Some(0));
        person.shown_now().to_owned()
    };
    let first = seen(&["--permission-mode", "auto"]);
    for part in [
        "permission mode auto: ",
        "Programs of yours that watch the workspace",
        "/permission-mode or --permission-mode changes it",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let second = seen(&["--permission-mode", "auto"]);
    assert!(!second.contains("Programs of yours"), "{second}");
}

#[test]
fn attaching_brings_only_a_stricter_mode() {
    let server = ModelServer::start(vec![says("one")]);
    let machine = Machine::with(&server);
    let lines = ["--input-format", "stream-json", "--output-format", "stream-json"];
    let start = |args: &[&str]| {
        let mut command = machine.command(&[args, &lines].concat());
        command.stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let stdin = running.take_stdin();
        (running, stdin)
    };
    let (mut owner, mut owner_input) = start(&["run", "--permission-mode", "edits"]);
    let message = json!({"type": "message", "content": "hello"});
    writeln!(owner_input, "{message}").unwrap();
    owner.wait_for("agent.invocation.completed");
    for (mode, changed) in [("auto", None), ("plan", Some("plan")), ("ask", None)] {
        let (mut guest, guest_input) = start(&["attach", "--permission-mode", mode]);
        guest.wait_for("attach.accepted");
        if let Some(changed) = changed {
            let event = owner.wait_for("permission.mode_changed");
            assert_eq!((&event["mode"], &event["from"]), (&json!(changed), &json!("edits")));
            assert!(event["changedBy"].as_str().unwrap().starts_with("process "));
        }
        drop(guest_input);
        guest.end().assert_code(0);
    }
    // Neither of these is stricter than the other one.
    let (guest, guest_input) = start(&["attach", "--permission-mode", "locked"]);
    drop(guest_input);
    let refused = guest.end();
    assert!(refused.stderr.contains("plan and locked cannot be combined"), "{}", refused.stderr);
    assert_ne!(refused.code, Some(0));
    let observer = machine.posse(&["attach", "--observe", "--permission-mode", "plan"]);
    observer.assert_code(2);
    drop(owner_input);
    let ended = owner.end();
    ended.assert_code(0);
    assert_eq!(of_type(&ended.events(), "permission.mode_changed").len(), 1);
    machine.verify();
}
