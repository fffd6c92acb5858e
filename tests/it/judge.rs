//! `posse permissions check`: commands judged from outside, without running them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::posse::Machine;

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn judges_one_command_and_says_what_it_would_take() {
    let machine = Machine::new();
    let ended = machine.posse(&[
        "permissions",
        "check",
        "--grant",
        "git status",
        "git status && sudo env A=1 make x | wc -l",
    ]);
    ended.assert_code(0);
    let checked = &rows(&ended.stdout)[0];
    assert_eq!(checked["decision"], "ask");
    assert_eq!(checked["grant"], Value::Null);
    assert_eq!(checked["programs"], json!(["git", "sudo", "env", "make", "wc"]));
    assert_eq!(checked["needs"].as_array().unwrap().len(), 2);
    assert_eq!(checked["needs"][1]["grant"], "wc");
    let ended = machine.posse(&["permissions", "check", "git", "diff", "--stat"]);
    let checked = &rows(&ended.stdout)[0];
    assert_eq!(
        (&checked["command"], &checked["grant"]),
        (&json!("git diff --stat"), &json!("git diff"))
    );
}

#[test]
fn tells_the_decision_by_the_exit_code_if_asked_to() {
    let machine = Machine::new();
    for (command, code) in [("ls", 0), ("make", 4), ("rm -rf /", 1)] {
        let told =
            machine.posse(&["permissions", "check", "--exit-code", "--grant", "ls", command]);
        told.assert_code(code);
        machine.posse(&["permissions", "check", "--grant", "ls", command]).assert_code(0);
    }
    let ended = machine.posse(&["permissions", "check", "--grant", "a; b", "ls"]);
    ended.assert_code(2);
    assert!(ended.stderr.contains("USE011"), "{}", ended.stderr);
}

#[test]
fn scores_the_corpus_from_outside() {
    let corpus = include_str!("../corpus/bash-commands.jsonl");
    let machine = Machine::new();
    let mut arguments = vec!["permissions", "check", "--jsonl"];
    for grant in ["git status", "git log", "npm test", "cargo test", "ls", "cat"] {
        arguments.extend(["--grant", grant]);
    }
    let ended = machine.posse_with_input(&arguments, corpus.as_bytes());
    ended.assert_code(0);
    let (given, answered) = (rows(corpus), rows(&ended.stdout));
    assert_eq!(given.len(), answered.len());
    let mut wrong = String::new();
    for (row, checked) in given.iter().zip(&answered) {
        assert_eq!(row["command"], checked["command"]);
        let expected = row["expect"].as_str().unwrap().split('-').next().unwrap();
        if checked["decision"] != expected {
            writeln!(wrong, "{row} {checked}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn answers_lines_that_are_no_commands_without_allowing_them() {
    let machine = Machine::new();
    let input = b"{\"command\":\"ls\"}\nls\n\n{\"command\":7}\n{\"command\":\"ls\\u0000\"}\n\xff\n";
    let ended =
        machine.posse_with_input(&["permissions", "check", "--jsonl", "--grant", "ls"], input);
    ended.assert_code(2);
    let decisions: Vec<Value> =
        rows(&ended.stdout).iter().map(|row| row["decision"].clone()).collect();
    assert_eq!(decisions, ["allow", "ask", "ask", "deny", "ask"]);
    assert!(ended.stderr.contains("3 line(s)"), "{}", ended.stderr);
}
