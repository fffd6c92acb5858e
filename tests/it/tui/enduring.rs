//! Robustness against the terminal: suspending, resizing, large pastes, unrequested replies.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use super::{Tmux, variables_of};
use crate::model_server::{ModelServer, says, text_of};
use crate::posse::Machine;

/// Settings of the terminal, read from outside.
fn settings(tmux: &Tmux) -> String {
    let shown = tmux.run(&["display-message", "-p", "-t", "t", "#{pane_tty}"]);
    let tty = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    let output = Command::new("stty").args(["-F", &tty, "-a"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn suspend_and_resume_by_the_shell() {
    let server = ModelServer::start(vec![says("Still here.")]);
    let machine = Machine::with(&server);
    // Only an interactive shell can suspend its child.
    let tmux = Tmux::start(machine.path("tmp"), "env PS1='shell> ' sh -i");
    tmux.wait_for("shell>");
    let before = settings(&tmux);
    let (work, own) = (machine.path("work"), variables_of(&machine));
    let program = env!("CARGO_BIN_EXE_posse");
    let line = format!(
        "clear; cd '{}'; env -i {own} TERM=tmux-256color TMUX=1 '{program}'",
        work.display()
    );
    tmux.types(&line);
    tmux.presses("Enter");
    tmux.wait_for("❯ Describe a task");
    tmux.types("half a thought");
    tmux.wait_for("❯ half a thought");
    tmux.presses("C-z");
    let screen = tmux.wait_for("Stopped");
    assert!(!screen.contains('❯'), "nothing of ours is left:\n{screen}");
    // The shell may use other line-editing settings.
    let lines = |text: &str| text.split(';').skip(1).collect::<String>().contains(" -icrnl");
    assert_eq!(lines(&settings(&tmux)), lines(&before));
    tmux.types("fg");
    tmux.presses("Enter");
    tmux.wait_for("❯ half a thought");
    tmux.presses("Enter");
    tmux.wait_for("Still here.");
    tmux.presses("C-d");
    tmux.wait_until("the shell", |screen| screen.trim_end().ends_with("shell>"));
    assert_eq!(settings(&tmux), before);
}

#[test]
fn survives_rapid_extreme_resizes() {
    let server = ModelServer::start(vec![says("Still here.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
    let sizes = [("1", "1"), ("500", "500"), ("2", "200"), ("300", "1"), ("7", "3")];
    for _ in 0..12 {
        for (columns, rows) in sizes {
            tmux.run(&["resize-window", "-t", "t", "-x", columns, "-y", rows]);
        }
    }
    tmux.run(&["resize-window", "-t", "t", "-x", "100", "-y", "30"]);
    tmux.wait_for("❯ Describe a task");
    tmux.says("still there?");
    tmux.wait_for("Still here.");
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn ten_megabyte_paste_arrives_complete() {
    let server = ModelServer::start(vec![says("Read.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
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
fn unrequested_terminal_replies_are_not_keys() {
    let server = ModelServer::start(vec![says("Still here.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
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
