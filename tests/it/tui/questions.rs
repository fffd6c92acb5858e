//! Keys of permission requests, and letters and lists that must not be taken for something else.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::{SILENCE, Tmux};
use crate::model_server::{ModelServer, calls, runs, says, text_of};
use crate::posse::Machine;

#[test]
fn slowly_typed_words_open_no_list() {
    let server = ModelServer::start(vec![says("Done."), says("Done too."), says("And this.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯");
    for (nth, word) in ["make", "please", "add"].into_iter().enumerate() {
        for (at, letter) in word.char_indices() {
            tmux.types(&letter.to_string());
            tmux.wait_for(&format!("❯ {}", &word[..=at]));
            // Longer than any pause between two keys that ever had a meaning.
            thread::sleep(Duration::from_millis(200));
        }
        tmux.presses("Enter");
        tmux.wait_until("the answer", |screen| screen.matches(" · 1 turn").count() == nth + 1);
    }
    tmux.presses("C-d");
    tmux.assert_ended(0);
    let prompts: Vec<String> = server
        .requests()
        .iter()
        .map(|request| text_of(&request["messages"].as_array().unwrap().last().unwrap()["content"]))
        .collect();
    assert_eq!(prompts, ["make", "please", "add"]);
    assert!(!machine.path("posse/state/preferences.json").exists());
}

#[test]
fn list_takes_only_its_entries_and_a_model_is_saved_after_its_answer() {
    let server = ModelServer::start(vec![says("Here.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯");
    tmux.presses("M-m");
    tmux.wait_for("▸ scripted-1 ✓");
    tmux.types("akethetestspass");
    tmux.wait_for("nothing matches; /model NAME uses one that is not listed");
    tmux.presses("Enter");
    tmux.presses("Escape");
    tmux.wait_until("the list closes", |screen| !screen.contains("type to filter"));
    assert!(!tmux.screen().contains("akethetestspass"), "{}", tmux.screen());
    tmux.says("/model other-2");
    tmux.wait_for("(saved for later starts once the model has answered)");
    let saved = machine.path("posse/state/preferences.json");
    assert!(!saved.exists());
    tmux.says("hello");
    tmux.wait_for(" · 1 turn");
    let text = fs::read_to_string(&saved).unwrap();
    assert!(text.contains("other-2") && text.contains("local"), "{text}");
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn model_receives_the_reason_of_a_refusal() {
    let server = ModelServer::start(vec![runs("npm install"), says("Then with pnpm.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("install it");
    tmux.wait_for("[r]");
    thread::sleep(SILENCE);
    // A key that is not offered says so and is not kept.
    tmux.presses("7");
    tmux.wait_for("[7] is not offered here");
    assert!(!tmux.screen().contains("your draft is kept"), "{}", tmux.screen());
    thread::sleep(SILENCE);
    tmux.presses("r");
    tmux.wait_for("no, because: ");
    tmux.types("use pnpm here");
    tmux.wait_for("no, because: use pnpm here");
    tmux.presses("Enter");
    tmux.wait_for("Then with pnpm.");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    let request = server.requests().pop().unwrap();
    let mut messages = request["messages"].as_array().unwrap().iter();
    let result = messages.rfind(|message| message["role"] == "tool").unwrap();
    let text = text_of(&result["content"]);
    assert!(text.contains("the user said no: use pnpm here"), "{text}");
    machine.verify();
}

#[test]
fn end_shows_the_end_of_a_long_change() {
    let lines: Vec<String> = (0..240).map(|nth| format!("line {nth}\n")).collect();
    let content = lines.concat();
    let script = vec![
        calls(&[("write_file", json!({ "path": "long.txt", "content": content }))]),
        says("Written."),
    ];
    let server = ModelServer::start(script);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("write it");
    tmux.wait_for("End shows the end; then you can allow it");
    thread::sleep(SILENCE);
    tmux.presses("End");
    tmux.wait_for("line 239");
    tmux.wait_for("[y] yes, once");
    tmux.presses("y");
    tmux.wait_for("Written.");
    assert_eq!(machine.read("long.txt"), content);
    assert!(!tmux.screen().contains("❯ y"), "{}", tmux.screen());
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn stop_all_can_be_entered_while_a_question_waits() {
    let server = ModelServer::start(vec![runs("touch made")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("make it");
    tmux.wait_for("[n] no");
    thread::sleep(SILENCE);
    for (at, letter) in "/stop all".char_indices() {
        tmux.types(&letter.to_string());
        tmux.wait_for(&format!("your draft is kept: {}", "/stop all"[..=at].trim_end()));
    }
    tmux.presses("Enter");
    tmux.wait_for("Stopped after ");
    assert!(!machine.work("made").exists());
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

/// A screen shows the keys, and they count.
fn answers(tmux: &Tmux, shown: &str, key: &str) {
    tmux.wait_for(shown);
    thread::sleep(SILENCE);
    tmux.presses(key);
}

#[test]
fn hunks_of_an_edit_are_taken_one_by_one_and_changed_in_the_editor() {
    let edit = |line: u32, new: &str| json!({"oldString": format!("l{line}\n"), "newString": new});
    let edits = [edit(2, "second\n"), edit(20, "twentieth\n"), edit(30, "last\n")];
    let call = ("multi_edit", json!({"path": "a.rs", "edits": edits}));
    let server = ModelServer::start(vec![calls(&[call]), says("Done.")]);
    let machine = Machine::with(&server);
    let before = (1..=30).map(|line| format!("l{line}\n")).collect::<Vec<_>>().concat();
    machine.write("a.rs", &before);
    // Fails once.
    let script = "[ -e \"$0.failed\" ] || { : > \"$0.failed\"; exit 1; }\n\
                  case $1 in *.rs) sed -i s/twentieth/20th/ \"$1\";; esac\n";
    let editor = machine.path("tmp/editor");
    fs::write(&editor, script).unwrap();
    let variables = format!("TERM=tmux-256color TMUX=1 VISUAL='sh {}'", editor.display());
    let tmux = Tmux::with(&machine, &[], &variables);
    tmux.says("edit it");
    answers(&tmux, "[h] hunk by hunk", "h");
    answers(&tmux, "hunk 1 of 3", "n");
    answers(&tmux, "hunk 2 of 3", "e");
    tmux.wait_for("it ended with an error");
    assert_eq!(machine.read("a.rs"), before);
    answers(&tmux, "hunk 2 of 3", "e");
    answers(&tmux, "hunk 3 of 3", "a");
    tmux.wait_for(" · 2 turns");
    let expected = before.replace("l20\n", "20th\n").replace("l30\n", "last\n");
    assert_eq!(machine.read("a.rs"), expected);
    assert!(server.tool_results()[0].contains("2 of 3 hunks applied"));
    tmux.presses("C-d");
    tmux.assert_ended(0);
}
