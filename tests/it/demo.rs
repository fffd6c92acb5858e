//! `posse demo` on a machine with nothing but a shell.

use std::fs;

use serde_json::Value;

use crate::posse::{FinishedRun, Machine, RunningPosse};

/// Runs the demo with an environment that only locates programs and temporary files.
fn demo(machine: &Machine, args: &[&str]) -> FinishedRun {
    let mut command = machine.command(&[&["demo"], args].concat());
    command.env_remove("HOME").env_remove("POSSE_HOME");
    // Any network access would fail at these proxies.
    for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env(proxy, "http://127.0.0.1:9/");
    }
    RunningPosse::start(command).end()
}

fn assert_nothing_left(machine: &Machine) {
    for folder in ["tmp", "home", "posse/config"] {
        let left: Vec<_> = fs::read_dir(machine.path(folder)).unwrap().collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    assert!(!machine.path("posse/state").exists());
}

#[test]
fn the_demo_repairs_the_sample() {
    let machine = Machine::new();
    let ended = demo(&machine, &[]);
    ended.assert_code(0);
    assert!(ended.stdout.contains("median.sh"), "{}", ended.stdout);
    assert!(ended.stderr.contains("hash chain intact"), "{}", ended.stderr);
    assert!(!ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
    assert_nothing_left(&machine);
}

#[test]
fn demo_runs_the_tests() {
    let machine = Machine::new();
    let ended = demo(&machine, &["--output-format", "stream-json"]);
    ended.assert_code(0);
    let events = ended.events();
    let bash = events.iter().filter(|e| e["type"] == "tool.completed" && e["name"] == "bash");
    let codes: Vec<_> = bash.map(|event| event["metadata"]["exitCode"].as_i64()).collect();
    assert_eq!(codes.first(), Some(&Some(1)), "{codes:?}");
    assert_eq!(codes.last(), Some(&Some(0)), "{codes:?}");
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["reason"]), (&"session.ended".into(), &"completed".into()));
    let changed: Vec<&Value> = events
        .iter()
        .filter(|e| e["type"] == "tool.completed" && e["name"] == "edit_file")
        .collect();
    assert!(!changed.is_empty());
    assert_nothing_left(&machine);
}

#[test]
fn the_demo_reports_a_missing_prerequisite() {
    let machine = Machine::new();
    let mut command = machine.command(&["demo"]);
    command.env("TMPDIR", machine.path("nowhere"));
    let ended = RunningPosse::start(command).end();
    ended.assert_code(1);
    assert!(ended.stderr.contains("error[DEM001]"), "{}", ended.stderr);
    assert!(ended.stderr.contains("TMPDIR"), "{}", ended.stderr);
}
