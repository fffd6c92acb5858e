//! What a terminal does to it: stops it, resizes it, pastes much, answers what nobody asked.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use super::{STUCK, Tmux};
use crate::model_server::{ModelServer, says, text_of};
use crate::posse::Machine;

/// How the terminal is set, seen from outside.
fn settings(tmux: &Tmux) -> String {
    let shown = tmux.run(&["display-message", "-p", "-t", "t", "#{pane_tty}"]);
    let tty = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    let output = Command::new("stty").args(["-F", &tty, "-a"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn it_is_stopped_and_goes_on() {
    let server = ModelServer::start(vec![says("Still here.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ a task");
    tmux.types("half a thought");
    tmux.wait_for("❯ half a thought");
    tmux.presses("C-z");
    let stat = format!("/proc/{}/stat", tmux.pid());
    let started = Instant::now();
    let stopped = || {
        let text = fs::read_to_string(&stat).unwrap();
        text.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    };
    while !stopped() {
        assert!(started.elapsed() < STUCK, "it does not stop");
        thread::sleep(Duration::from_millis(20));
    }
    // The shell has its terminal as it was, and nothing of ours on it.
    assert_eq!(settings(&tmux), fs::read_to_string(machine.path("tmp/before")).unwrap());
    tmux.wait_until("an empty place", |screen| !screen.contains('❯'));
    kill(tmux.pid(), Signal::SIGCONT).unwrap();
    tmux.wait_for("❯ half a thought");
    tmux.presses("Enter");
    tmux.wait_for("Still here.");
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn no_size_and_no_haste_stop_it() {
    let server = ModelServer::start(vec![says("Still here.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ a task");
    let sizes = [("1", "1"), ("500", "500"), ("2", "200"), ("300", "1"), ("7", "3")];
    for _ in 0..12 {
        for (columns, rows) in sizes {
            tmux.run(&["resize-window", "-t", "t", "-x", columns, "-y", rows]);
        }
    }
    tmux.run(&["resize-window", "-t", "t", "-x", "100", "-y", "30"]);
    tmux.wait_for("❯ a task");
    tmux.says("still there?");
    tmux.wait_for("Still here.");
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn ten_megabytes_are_pasted_whole() {
    let server = ModelServer::start(vec![says("Read.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ a task");
    let mut text = String::new();
    for nth in 0..10 << 14 {
        writeln!(text, "line {nth:058}").unwrap();
    }
    assert_eq!(text.len(), 10 << 20);
    let file = machine.path("tmp/pasted");
    fs::write(&file, &text).unwrap();
    tmux.run(&["load-buffer", file.to_str().unwrap()]);
    tmux.run(&["paste-buffer", "-p", "-t", "t"]);
    tmux.wait_for("[paste 1: 163840 lines]");
    tmux.presses("Enter");
    tmux.wait_for("Read.");
    let request = server.requests().pop().unwrap();
    let said = text_of(&request["messages"].as_array().unwrap().last().unwrap()["content"]);
    assert_eq!(said.len(), text.len());
    assert!(said == text, "it arrived as something else");
}

#[test]
fn answers_that_nobody_asked_for_are_no_keys() {
    let server = ModelServer::start(vec![says("Still here.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ a task");
    let answers: [&[u8]; 6] = [
        b"\x1b[?62;1;4c",
        b"\x1b[12;40R",
        b"\x1b]11;rgb:1e1e/2222/2a2a\x1b\\",
        b"\x1bP1+r544e=787465726d\x1b\\",
        b"\x1b]52;c;cm0gLXJmIC8NCg==\x07",
        b"\x1b[?2026;2$y",
    ];
    for answer in answers {
        let bytes: Vec<String> = answer.iter().map(|byte| format!("{byte:02x}")).collect();
        let keys: Vec<&str> = bytes.iter().map(String::as_str).collect();
        tmux.run(&[&["send-keys", "-t", "t", "-H"][..], &keys].concat());
    }
    tmux.says("only this");
    tmux.wait_for("Still here.");
    let request = server.requests().pop().unwrap();
    let said = text_of(&request["messages"].as_array().unwrap().last().unwrap()["content"]);
    assert_eq!(said, "only this");
    tmux.presses("C-d");
    tmux.assert_ended(0);
}
