//! `/undo` and `/rewind` over several prompts, and what they leave for `/diff` and `/tree`.

use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use crate::model_server::{ModelAnswer, ModelServer, calls, runs, says};
use crate::posse::Machine;
use crate::tui::Tmux;

/// Answers for two prompts: the first edits `price`, the second creates `a`, edits `price` and runs a
/// command that creates `note`.
fn two_prompts() -> Vec<ModelAnswer> {
    let edit = |from: &str, to: &str| {
        ("edit_file", json!({"path": "price", "oldString": from, "newString": to}))
    };
    vec![
        // A command that only reads needs no checkpoint.
        runs("ls"),
        calls(&[edit("one", "two")]),
        says("Done one."),
        calls(&[("write_file", json!({"path": "a", "content": "a\n"}))]),
        calls(&[edit("two", "three")]),
        runs("echo x > note"),
        says("Done two."),
    ]
}

fn machine(server: &ModelServer) -> Machine {
    let machine = Machine::with(server);
    machine.write("price", "one\n");
    machine
}

/// Content of `price`, and which of `a` and `note` exist.
fn state(machine: &Machine) -> String {
    let there = ["a", "note"].into_iter().filter(|name| machine.work(name).exists());
    let names: Vec<&str> = there.collect();
    format!("{} {}", machine.read("price").trim(), names.join(" ")).trim().to_owned()
}

/// Types `lines` into line mode after the two prompts. Returns the state of the files and the output.
fn typed(lines: &str) -> (String, String) {
    let answers = [two_prompts(), vec![says("Done three."), says("Done four.")]].concat();
    let server = ModelServer::start(answers);
    let machine = machine(&server);
    let input = format!("first\nsecond\n{lines}");
    let ended = machine.posse_with_input(&["plain", "--yes"], input.as_bytes());
    ended.assert_code(0);
    machine.verify();
    (state(&machine), ended.stderr)
}

#[test]
fn each_undo_takes_back_the_next_earlier_step() {
    for (lines, expected) in [("/undo\n", "two"), ("/undo\n/undo\n", "one")] {
        let (state, said) = typed(lines);
        assert_eq!(state, expected, "{said}");
        assert!(!said.contains("EDT004"), "{said}");
    }
    let (state, said) = typed("/undo\n/undo\n/undo\n");
    assert_eq!((state.as_str(), said.contains("UND001")), ("one", true), "{said}");
}

#[test]
fn a_return_of_files_is_taken_back_by_undo() {
    for (lines, expected) in [
        ("/rewind 2 files\n/undo\n", "three a note"),
        ("/rewind 1 both\n/undo\n", "three a note"),
        // Below the return are the steps before it.
        ("/rewind 2 files\n/undo\n/undo\n", "two"),
        ("/rewind 2 files\n/undo\n/undo\n/undo\n", "one"),
        // The conversation returned, and the files are still changed.
        ("/rewind 2 conversation\n/undo\n/undo\n", "one"),
    ] {
        let (state, said) = typed(lines);
        assert_eq!(state, expected, "{lines}: {said}");
    }
}

#[test]
fn an_undo_names_the_command_that_takes_it_back() {
    let (state, said) = typed("/undo\n/undo 3\n");
    assert!(said.contains("`/undo 3` takes the restore back"), "{said}");
    assert_eq!(state, "three a note", "{said}");
    let (state, said) = typed("/undo 99\n/undo it\n");
    assert!(said.contains("CKP002") && said.contains("number of a checkpoint"), "{said}");
    assert_eq!(state, "three a note");
}

#[test]
fn a_file_that_a_command_changed_as_well_is_taken_back() {
    let edit =
        || calls(&[("edit_file", json!({"path": "price", "oldString": "o", "newString": "O"}))]);
    let append = || runs("echo more >> price");
    for (answers, lines) in [
        (vec![edit(), append(), says("Done.")], "first\n/undo\n"),
        (vec![edit(), says("One."), append(), says("Two.")], "first\nsecond\n/undo\n/undo\n"),
    ] {
        let server = ModelServer::start(answers);
        let machine = machine(&server);
        let ended = machine.posse_with_input(&["plain", "--yes"], lines.as_bytes());
        ended.assert_code(0);
        assert_eq!(state(&machine), "one", "{}", ended.stderr);
    }
}

#[track_caller]
fn has_all(said: &str, wanted: &[&str]) {
    for one in wanted {
        assert!(said.contains(one), "{one}: {said}");
    }
}

#[test]
fn diff_compares_the_files_with_the_start_of_the_conversation() {
    let (_, said) = typed("/diff\n");
    has_all(
        &said,
        &["added a (+1 -0)\nadded note (+1 -0)\nmodified price (+1 -1)\n", "-one\n+three"],
    );
    for (lines, wanted) in [
        ("/undo\n/undo\n/diff\n", "No file differs from the start of this conversation."),
        ("/rewind 1 files\n/diff\n", "No file differs from the start of this conversation."),
        // The changes of the prompts that are kept are still there.
        ("/rewind 2 both\n/diff\n", "\nmodified price (+1 -1)\n\n--- a/price"),
        ("/rewind 2 conversation\n/diff\n", "added note (+1 -0)\nmodified price (+1 -1)"),
        ("/fork\n/diff\n", "added note (+1 -0)\nmodified price (+1 -1)"),
        ("/model other-1\n/diff\n", "added note (+1 -0)\nmodified price (+1 -1)"),
    ] {
        let (_, said) = typed(lines);
        assert!(said.contains(wanted), "{lines}: {said}");
    }
}

#[test]
fn diff_is_the_same_in_a_resumed_session_and_after_changes_of_the_user() {
    let server = ModelServer::start(two_prompts());
    let machine = machine(&server);
    machine.posse_with_input(&["plain", "--yes"], b"first\nsecond\n").assert_code(0);
    machine.write("price", "four\n");
    let ended = machine.posse_with_input(&["plain", "--yes", "--continue"], b"/diff\n");
    has_all(&ended.stderr, &["added note (+1 -0)\nmodified price (+1 -1)", "-one\n+four"]);
    machine.write("price", "one\n");
    std::fs::remove_file(machine.work("a")).unwrap();
    std::fs::remove_file(machine.work("note")).unwrap();
    let ended = machine.posse_with_input(&["plain", "--yes", "--continue"], b"/diff\n");
    has_all(&ended.stderr, &["No file differs from the start of this conversation."]);
}

#[test]
fn diff_names_changed_files_that_checkpoints_leave_out_without_their_content() {
    let content = json!({"path": "big.log", "content": "precious content\n"});
    let server = ModelServer::start(vec![
        calls(&[("write_file", content)]),
        runs("echo x > note"),
        says("Done."),
    ]);
    let machine = machine(&server);
    machine.write(".gitignore", "*.log\n");
    machine.write("old.pem", "secret key\n");
    let ended = machine.posse_with_input(&["plain", "--yes"], b"first\n/diff\n");
    let shown = ended.stderr.split("added note").nth(1).unwrap_or_default();
    assert!(!shown.is_empty(), "{}", ended.stderr);
    has_all(shown, &["changed big.log (not in the checkpoints)"]);
    has_all(&ended.stderr, &["checkpoints leave them out: 1 secret file"]);
    assert!(!shown.contains("precious"), "{shown}");
}

#[test]
fn diff_lists_single_edits_without_checkpoints_and_says_why() {
    let server = ModelServer::start(two_prompts());
    let off = json!({"checkpoints": {"enabled": false}});
    let machine = Machine::configured(&server, &off, &json!({}));
    machine.write("price", "one\n");
    let ended = machine.posse_with_input(&["plain", "--yes"], b"first\nsecond\n/diff\n");
    let why = "(single edits of file tools, without what commands changed, because the files cannot be \
               compared with the start of the conversation: `checkpoints.enabled` is false)";
    has_all(&ended.stderr, &[why, "-one\n+two", "-two\n+three"]);
}

#[test]
fn prompts_before_a_copy_can_be_returned_to() {
    let (state, said) = typed("/rewind 2 both\nthird\n/rewind\n/tree\n/rewind 1 both\n");
    assert_eq!(state, "one", "{said}");
    has_all(&said, &["1 file     first\n/rewind N", "  2  ", "0 files    third"]);
    has_all(&said, &["    1. first\n", "    2. second\n", "2. third\n", "the prompt was: first"]);
    // The conversation of the copy has two prompts; the original has one with the number 2 as well.
    let (state, said) = typed("/rewind 2 both\nthird\n/rewind 2 both\n/rewind\n/rewind 9 both\n");
    assert_eq!(state, "two", "{said}");
    has_all(&said, &["the prompt was: third", "there is no prompt 9 in this conversation"]);
}

#[test]
fn a_change_of_the_model_keeps_the_branches() {
    let lines = "/rewind 2 conversation\nthird\n/model other-1\nfourth\n/tree\n/rewind\n";
    let (_, said) = typed(lines);
    has_all(&said, &["1. first\n", "2. second\n", "2. third\n", "3. fourth\n"]);
    has_all(&said, &["  1  ", "  2  ", "  3  "]);
}

/// True if the prompt of the terminal UI is `text`.
fn composer_has(screen: &str, text: &str) -> bool {
    screen.rsplit("❯ ").next().is_some_and(|last| last.starts_with(&format!("{text}\n")))
}

#[test]
fn the_terminal_ui_lists_the_prompts_before_a_copy_and_the_net_changes() {
    let server = ModelServer::start(two_prompts());
    let machine = machine(&server);
    let tmux = Tmux::open(&machine, &["tui", "--yes"]);
    tmux.says("first");
    tmux.wait_for("Done one.");
    tmux.says("second");
    tmux.wait_for("Done two.");
    tmux.says("/diff");
    tmux.wait_for("1/3 added a (+1 -0)");
    tmux.presses("Right");
    tmux.presses("Right");
    tmux.wait_for("3/3 modified price (+1 -1)");
    tmux.presses("q");
    tmux.says("/rewind 2 both");
    // The prompt is put back.
    tmux.wait_until("the prompt", |screen| composer_has(screen, "second"));
    tmux.presses("C-u");
    tmux.presses("Escape");
    sleep(Duration::from_millis(500));
    tmux.presses("Escape");
    tmux.wait_for("1 file     first");
    tmux.presses("Enter");
    tmux.wait_for("return to the state before prompt 1");
    tmux.presses("Enter");
    tmux.wait_until("the files", |_| state(&machine) == "one");
    tmux.wait_until("the prompt", |screen| composer_has(screen, "first"));
    tmux.presses("C-u");
    tmux.says("/undo");
    tmux.wait_until("the files", |_| state(&machine) == "two");
    tmux.presses("C-u");
    tmux.says("/exit");
    tmux.assert_ended(0);
}
