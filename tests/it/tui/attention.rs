//! Notifications, window titles and terminal modes: the bytes that reach the terminal.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::{SILENCE, STUCK, Tmux};
use crate::model_server::{ModelServer, runs, says};
use crate::plain::Terminal;
use crate::posse::Machine;

/// Recording of all bytes that a program in tmux writes.
struct Recording(PathBuf);

impl Recording {
    fn of(tmux: &Tmux, machine: &Machine) -> Recording {
        let file = machine.path("tmp/raw");
        tmux.run(&["pipe-pane", "-t", "t", &format!("cat >> '{}'", file.display())]);
        Recording(file)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.0).unwrap_or_default()).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, what: &str) {
        let started = Instant::now();
        while !self.text().contains(what) {
            assert!(started.elapsed() < STUCK, "{what:?} was not sent:\n{:?}", self.text());
            thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn machine_with(notify: &Value) -> (ModelServer, Machine) {
    let server = ModelServer::start(vec![runs("touch made"), says("It is made.")]);
    let machine = Machine::configured(&server, &json!({ "notify": notify }), &json!({}));
    (server, machine)
}

/// Sends bytes that the terminal itself would send.
fn reports(tmux: &Tmux, bytes: &[&str]) {
    tmux.run(&[&["send-keys", "-t", "t", "-H"], bytes].concat());
}

const FOCUS_OUT: &[&str] = &["1b", "5b", "4f"];
const FOCUS_IN: &[&str] = &["1b", "5b", "49"];

fn allows(tmux: &Tmux) {
    tmux.wait_for("[n] no");
    thread::sleep(SILENCE);
    tmux.presses("y");
}

#[test]
fn kitty_without_focus_shows_the_question_and_the_end() {
    let (_server, machine) = machine_with(&json!({}));
    let tmux = Tmux::with(&machine, &[], "TERM=xterm-kitty");
    let recording = Recording::of(&tmux, &machine);
    tmux.wait_for("❯");
    reports(&tmux, FOCUS_OUT);
    tmux.says("make it");
    tmux.wait_for("[n] no");
    recording.wait_for("\u{1b}]2;waiting for you · work\u{7}");
    recording.wait_for("\u{1b}]99;i=posse:p=body:o=unfocused;waits for your answer: ");
    allows(&tmux);
    tmux.wait_for(" · 2 turns");
    recording.wait_for("\u{1b}]99;i=posse:p=body:o=unfocused;done after ");
    recording.wait_for("\u{1b}]2;done · work\u{7}");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    let sent = recording.text();
    let titles = sent.matches("\u{1b}]2;working · work\u{7}").count();
    assert!((1..=2).contains(&titles), "{titles} titles: {sent:?}");
    for sequence in ["\u{1b}[?1004l", "\u{1b}[<1u", "\u{1b}[23;2t"] {
        assert!(sent.contains(sequence), "{sequence:?} was not sent: {sent:?}");
    }
}

#[test]
fn unknown_terminal_gets_the_bell_and_only_while_it_is_not_focused() {
    let (_server, machine) = machine_with(&json!({ "title": false }));
    let tmux = Tmux::with(&machine, &[], "TERM=xterm-256color");
    let recording = Recording::of(&tmux, &machine);
    tmux.wait_for("❯");
    reports(&tmux, FOCUS_IN);
    tmux.says("make it");
    tmux.wait_for("[n] no");
    assert!(!recording.text().contains('\u{7}'), "{:?}", recording.text());
    allows(&tmux);
    // The focus is lost before the end.
    reports(&tmux, FOCUS_OUT);
    tmux.wait_for(" · 2 turns");
    recording.wait_for("\u{7}");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    // The background is asked for in every terminal.
    let sent = recording.text().replace("\u{1b}]11;?\u{1b}\\", "");
    assert_eq!(sent.matches('\u{7}').count(), 1, "{sent:?}");
    for sequence in ["\u{1b}]", "\u{1b}[>1u", "\u{1b}[<1u", "\u{1b}[22;2t"] {
        assert!(!sent.contains(sequence), "{sequence:?} was sent: {sent:?}");
    }
}

#[test]
fn question_rings_after_some_seconds_if_the_focus_is_unknown() {
    let (_server, machine) = machine_with(&json!({ "title": false }));
    let tmux = Tmux::open(&machine, &[]);
    let recording = Recording::of(&tmux, &machine);
    tmux.says("make it");
    tmux.wait_for("[n] no");
    recording.wait_for("\u{7}");
    tmux.presses("Escape");
    tmux.wait_for("Stopped after ");
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn tmux_gets_the_sequence_that_the_user_chose() {
    let notify = json!({ "title": false, "when": "always", "method": "osc9" });
    let (_server, machine) = machine_with(&notify);
    let tmux = Tmux::open(&machine, &[]);
    let recording = Recording::of(&tmux, &machine);
    tmux.says("make it");
    recording.wait_for("\u{1b}Ptmux;\u{1b}\u{1b}]9;posse: work: waits for your answer: ");
    let sent = recording.text();
    assert!(!sent.contains("\u{1b}[?1004h"), "the focus does not matter: {sent:?}");
    tmux.presses("C-c");
}

#[test]
fn users_command_gets_the_event_and_its_failure_is_one_warning() {
    let server = ModelServer::start(vec![says("One."), says("Two.")]);
    let machine = Machine::new();
    let file = machine.path("tmp/events");
    let script = format!("cat >> '{}'; echo >> '{0}'; exit 3", file.display());
    let notify = json!({
        "when": "always", "method": "none", "title": false,
        "command": ["/bin/sh", "-c", script],
    });
    let provider = json!({
        "type": "openai-compatible", "baseURL": server.base_url(), "model": "scripted-1",
        "auth": "none",
    });
    let config = json!({
        "version": 1, "notify": notify, "defaultProvider": "local",
        "providers": { "local": provider },
    });
    machine.write_config(&config.to_string());
    let tmux = Tmux::open(&machine, &[]);
    let recording = Recording::of(&tmux, &machine);
    tmux.says("first");
    tmux.wait_for("notify.command: `/bin/sh`: it ended with exit status: 3");
    tmux.says("second");
    tmux.wait_until("two ends", |screen| screen.matches(" · 1 turn").count() == 2);
    let started = Instant::now();
    let events = loop {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let events: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if events.len() == 2 {
            break events;
        }
        assert!(started.elapsed() < STUCK, "{text}");
        thread::sleep(std::time::Duration::from_millis(20));
    };
    for event in events {
        assert_eq!((&event["event"], &event["name"]), (&json!("end"), &json!("work")), "{event}");
        assert!(event["text"].as_str().unwrap().starts_with("done after "), "{event}");
    }
    tmux.presses("C-d");
    tmux.assert_ended(0);
    assert_eq!(tmux.all().matches("notify.command").count(), 1);
    assert!(!recording.text().contains('\u{7}'));
}

#[test]
fn run_and_line_mode_notify_at_a_terminal() {
    let (_server, machine) = machine_with(&json!({ "when": "always", "method": "osc777" }));
    let mut run = Terminal::run(&machine, &["run", "make it"], "xterm");
    run.see("\u{1b}]777;notify;posse: work;waits for your answer: ");
    run.see("allow? [y]");
    run.press("y\n");
    run.see("\u{1b}]777;notify;posse: work;done after ");
    assert_eq!(run.end(), Some(0));

    let (_server, machine) = machine_with(&json!({ "when": "always", "method": "osc777" }));
    let mut plain = Terminal::run(&machine, &["plain"], "xterm");
    plain.see("\u{1b}[22;2t\u{1b}]2;posse · work\u{7}");
    plain.see("> ");
    plain.press("make it\n");
    plain.see("\u{1b}]2;working · work\u{7}");
    plain.see("\u{1b}]2;waiting for you · work\u{7}");
    plain.see("\u{1b}]777;notify;posse: work;waits for your answer: ");
    plain.see("allow? [y]");
    plain.press("y\n");
    plain.see("\u{1b}]777;notify;posse: work;done after ");
    plain.see("> ");
    plain.press("/exit\n");
    plain.see("\u{1b}[23;2t");
    assert_eq!(plain.end(), Some(0));
}

#[test]
fn nothing_is_sent_to_a_dumb_terminal_or_a_pipe() {
    let (_server, machine) = machine_with(&json!({ "when": "always", "method": "osc9" }));
    let mut run = Terminal::run(&machine, &["run", "--yes", "make it"], "dumb");
    assert_eq!(run.end(), Some(0));
    assert!(!run.rest().contains('\u{1b}'), "{:?}", run.rest());

    let (_server, machine) = machine_with(&json!({ "when": "always", "method": "osc9" }));
    let ended = machine.posse(&["run", "--yes", "make it"]);
    ended.assert_code(0);
    let text = ended.stdout + &ended.stderr;
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text:?}");
}

#[test]
fn project_cannot_set_the_command() {
    let server = ModelServer::start(vec![says("Done.")]);
    let machine = Machine::with(&server);
    let command =
        json!({ "notify": { "command": ["/bin/sh", "-c", "touch pwned"], "when": "always" } });
    machine.write(".posse/config.json", command.to_string());
    let mut run = Terminal::run(&machine, &["run", "--trust-project", "hello"], "xterm");
    run.end();
    assert!(!machine.work("pwned").exists(), "{}", run.rest());
    assert!(run.rest().contains("notify.command"), "it is said: {}", run.rest());
}
