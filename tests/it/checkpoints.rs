//! Checkpoints through the program: what commands change can be listed, compared and taken back.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::attach::wait_until;
use crate::journal_lock::{has_namespaces, small_disk};
use crate::model_server::{ModelServer, calls, runs, says};
use crate::plain::Terminal;
use crate::posse::{Machine, RunningPosse, process_in};
use crate::tui::Tmux;

/// Longer than the pause in which a key is no answer to a question.
const SILENCE: Duration = Duration::from_millis(500);

/// Output of a command as JSON.
fn json_of(machine: &Machine, args: &[&str]) -> Value {
    let ended = machine.posse(&[args, &["--json"]].concat());
    ended.assert_code(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn changes(listed: &Value) -> Vec<(String, String)> {
    let rows = listed.as_array().unwrap().iter();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    rows.map(|row| (text(row, "path"), text(row, "change"))).collect()
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(path, change)| ((*path).to_owned(), (*change).to_owned())).collect()
}

#[test]
fn changes_of_commands_are_taken_back_and_that_as_well() {
    let server = ModelServer::start(vec![
        runs("echo new > made; echo after > changed; rm removed; mkdir d && mv moved d/"),
        calls(&[("write_file", json!({"path": "written", "content": "w\n"}))]),
        says("Done."),
        says("Nothing to do."),
        runs("echo more >> changed"),
        says("Done again."),
    ]);
    let machine = Machine::with(&server);
    machine.write("changed", "before\n");
    machine.write("removed", "r");
    machine.write("moved", "m");
    machine.write(".env", "SECRET=1\n");
    let (ended, events) = machine.stream(&["--yes", "first task\nwith details"]);
    ended.assert_code(0);
    let created: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "checkpoint.created").collect();
    assert_eq!(created.len(), 1);
    assert_eq!((&created[0]["checkpoint"], &created[0]["files"]), (&json!(1), &json!(3)));
    assert!(created[0]["leftOut"].as_str().unwrap().contains("1 secret file"), "{created:?}");
    machine.posse(&["run", "--yes", "a question"]).assert_code(0);
    machine.posse(&["run", "--yes", "second task"]).assert_code(0);
    let listed = json_of(&machine, &["checkpoints", "list"]);
    let rows = listed.as_array().unwrap();
    let titles: Vec<&str> = rows.iter().map(|row| row["title"].as_str().unwrap()).collect();
    assert_eq!(titles, ["second task", "first task"]);
    let first = [
        ("changed", "modified"),
        ("d/moved", "added"),
        ("made", "added"),
        ("moved", "deleted"),
        ("removed", "deleted"),
        ("written", "added"),
    ];
    assert_eq!(changes(&rows[1]["changes"]), pairs(&first));
    assert_eq!(changes(&json_of(&machine, &["checkpoints", "diff", "1", "--run"])), pairs(&first));
    let named = machine.posse(&["checkpoints", "diff", "1"]).stdout;
    for line in ["modified changed\n", "added    made\n", "deleted  moved\n"] {
        assert!(named.contains(line), "{named}");
    }
    let patch = machine.posse(&["checkpoints", "diff", "1", "--run", "--patch"]).stdout;
    assert!(patch.contains("--- a/moved\n+++ /dev/null\n@@ -1 +0,0 @@\n-m\n"), "{patch}");
    let patch = machine.posse(&["checkpoints", "diff", "2", "--patch"]).stdout;
    assert!(patch.contains("--- a/changed\n") && patch.contains("+more\n"), "{patch}");

    let undone = machine.posse(&["undo"]);
    undone.assert_code(0);
    assert!(undone.stdout.contains("  modified changed\n"), "{}", undone.stdout);
    assert_eq!(machine.read("changed"), "after\n");
    machine.posse(&["undo"]).assert_code(0);
    assert_eq!((machine.read("changed"), machine.read("removed")), ("before\n".into(), "r".into()));
    assert_eq!(machine.read("moved"), "m");
    for gone in ["made", "written", "d"] {
        assert!(!machine.work(gone).exists(), "{gone}");
    }
    assert_eq!(machine.read(".env"), "SECRET=1\n");
    let nothing = machine.posse(&["undo"]);
    nothing.assert_code(1);
    assert!(nothing.stderr.contains("UND001"), "{}", nothing.stderr);
    // The last restore is checkpoint 4; the one before it is 3.
    machine.posse(&["checkpoints", "restore", "4"]).assert_code(0);
    assert_eq!(
        (machine.read("changed"), machine.read("written")),
        ("after\n".into(), "w\n".into())
    );
    let restored = json_of(&machine, &["checkpoints", "restore", "3"]);
    assert_eq!((&restored["checkpoint"], &restored["undo"]), (&json!(3), &json!(6)));
    assert_eq!(machine.read("changed"), "after\nmore\n");
    machine.verify();
}

#[test]
fn changes_of_the_user_are_shown_before_they_are_touched() {
    let server = ModelServer::start(vec![runs("echo posse > a"), says("Done.")]);
    let machine = Machine::with(&server);
    machine.write("a", "1\n");
    machine.write("b", "1\n");
    machine.posse(&["run", "--yes", "task"]).assert_code(0);
    machine.write("b", "mine\n");
    let refused = machine.posse(&["undo"]);
    refused.assert_code(4);
    assert!(
        refused.stderr.contains("CKP004") && refused.stderr.contains(": b"),
        "{}",
        refused.stderr
    );
    assert_eq!((machine.read("a"), machine.read("b")), ("posse\n".into(), "mine\n".into()));
    machine.posse(&["undo", "--keep-mine"]).assert_code(0);
    assert_eq!((machine.read("a"), machine.read("b")), ("1\n".into(), "mine\n".into()));
    machine.posse(&["checkpoints", "restore", "1", "--yes"]).assert_code(0);
    assert_eq!(machine.read("b"), "1\n");
    machine.posse(&["checkpoints", "restore", "3"]).assert_code(0);
    assert_eq!(machine.read("b"), "mine\n");
    let unknown = machine.posse(&["checkpoints", "restore", "99"]);
    unknown.assert_code(2);
    assert!(unknown.stderr.contains("CKP002"), "{}", unknown.stderr);
}

#[test]
fn settings_of_the_user_turn_checkpoints_off_and_limit_them() {
    let answers = || vec![runs("touch x"), says("Done.")];
    let server = ModelServer::start([answers(), answers(), answers()].concat());
    let off = json!({"checkpoints": {"enabled": false}});
    let machine = Machine::configured(&server, &off, &json!({}));
    machine.posse(&["run", "--yes", "task"]).assert_code(0);
    assert_eq!(json_of(&machine, &["checkpoints", "list"]), json!([]));
    let small = json!({"checkpoints": {"maxFileBytes": 1024, "maxStoreBytes": 1_048_576}});
    let machine = Machine::configured(&server, &small, &json!({}));
    machine.write("large", vec![b'x'; 2000]);
    for _ in 0..2 {
        machine.posse(&["run", "--yes", "task"]).assert_code(0);
    }
    let listed = json_of(&machine, &["checkpoints", "list"]);
    assert_eq!(listed[0]["leftOut"]["largeNames"], json!(["large"]));
    assert_eq!(json_of(&machine, &["checkpoints", "prune"])["removed"], json!([]));
    fs::remove_file(machine.work("large")).unwrap();
    // A project cannot change these settings.
    machine.write(".posse/config.json", r#"{"checkpoints": {"enabled": false}}"#);
    let shown = machine.posse(&["config", "show", "--trust-project"]);
    assert!(shown.stderr.contains("CFG005"), "{}", shown.stderr);
}

#[test]
fn sessions_without_a_transcript_leave_no_checkpoints() {
    let server = ModelServer::start(vec![runs("touch x"), says("Done.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "--yes", "--no-transcript", "task"]).assert_code(0);
    assert_eq!(json_of(&machine, &["checkpoints", "list"]), json!([]));
}

#[test]
fn line_mode_undoes_commands_and_rewinds() {
    let server = ModelServer::start(vec![
        runs("echo one > made; echo 2 > a"),
        says("Done one."),
        runs("rm a; echo two > made"),
        says("Done two."),
        says("I see."),
    ]);
    let machine = Machine::with(&server);
    machine.write("a", "1\n");
    let typed = "first task\nsecond task\n/undo\n/rewind\n/rewind 1\n/rewind 1 both\nand now?\n";
    let ended = machine.posse_with_input(&["plain", "--yes"], typed.as_bytes());
    ended.assert_code(0);
    let said = ended.stderr;
    assert!(said.contains("• restore 2 files of checkpoint 2"), "{said}");
    assert!(said.contains("2 files    first task"), "{said}");
    assert!(said.contains("0 files    second task"), "{said}");
    assert!(said.contains("/rewind 1 conversation  conversation only"), "{said}");
    assert!(said.contains("the prompt was: first task"), "{said}");
    assert_eq!(machine.read("a"), "1\n");
    assert!(!machine.work("made").exists());
    // The conversation ends before the first prompt, when the files were as they are now.
    let asked = server.requests().pop().unwrap()["messages"].to_string();
    assert!(!asked.contains("first task") && asked.contains("and now?"), "{asked}");
    assert!(!asked.contains("returned the files to an earlier state"), "{asked}");
    machine.verify();
}

#[test]
fn files_return_in_the_mode_plan_if_a_person_allows_it() {
    let server = ModelServer::start(vec![runs("echo 2 > a"), says("Done.")]);
    let machine = Machine::with(&server);
    machine.write("a", "1\n");
    machine.posse(&["run", "--yes", "change it"]).assert_code(0);
    let mut terminal =
        Terminal::run(&machine, &["plain", "--continue", "--permission-mode", "plan"], "xterm");
    terminal.see("> ");
    let sessions = || json_of(&machine, &["sessions", "list"]).as_array().unwrap().len();
    // A refusal leaves files and conversation as they are. A wider answer would allow the model more.
    for (answer, content, count) in [("n\r", "2\n", 1), ("y\r", "1\n", 2)] {
        terminal.press("/rewind 1 both\r");
        terminal.see("restore 1 file of checkpoint 1");
        terminal.see("[y] once  [N] no");
        assert_eq!((machine.read("a").as_str(), sessions()), ("2\n", 1));
        sleep(SILENCE);
        terminal.press(answer);
        terminal.see(if count == 1 {
            "the conversation stays as it is"
        } else {
            "the prompt was:"
        });
        terminal.see("> ");
        assert_eq!((machine.read("a").as_str(), sessions()), (content, count));
    }
    terminal.press("/exit\r");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn escape_twice_rewinds_in_the_terminal_ui() {
    let server = ModelServer::start(vec![runs("echo 2 > a; touch made"), says("Done.")]);
    let machine = Machine::with(&server);
    machine.write("a", "1\n");
    let tmux = Tmux::open(&machine, &["tui", "--yes"]);
    tmux.says("change it");
    tmux.wait_for("Done in ");
    let is_stored = || json_of(&machine, &["checkpoints", "list"])[0]["changes"].is_array();
    tmux.wait_until("the state after the run", |_| is_stored());
    machine.write("mine", "of the user\n");
    tmux.presses("Escape");
    // Keys that arrive together are one key with Alt.
    sleep(SILENCE);
    tmux.presses("Escape");
    tmux.wait_for("return to the state before a prompt");
    assert!(tmux.screen().contains("3 files    change it"), "{}", tmux.screen());
    tmux.presses("Enter");
    tmux.wait_for("return to the state before prompt 1");
    tmux.types("the conversation stays");
    tmux.presses("Enter");
    tmux.wait_for("restore 2 files of checkpoint 1; not restored: mine");
    tmux.wait_for("restored 2 files of checkpoint 1: modified a, deleted made");
    tmux.wait_for("not restored: mine: you changed it since");
    tmux.wait_for("`/rewind N all` restores also what the user has changed");
    tmux.wait_until("the files", |_| machine.read("a") == "1\n");
    assert!(!machine.work("made").exists());
    // The record with which the call of the restore ends.
    let journal = machine.session_dir().join("session.jsonl");
    tmux.wait_until("the end of the call", |_| {
        fs::read_to_string(&journal).unwrap().contains("\"type\":\"message.queued\"")
    });
    // A change of the user is touched only if the user says so.
    assert_eq!(machine.read("mine"), "of the user\n");
    tmux.says("/rewind 1 all");
    tmux.wait_for("/rewind 1 all replaces what you have changed since in:");
    tmux.wait_for("delete mine");
    tmux.wait_for("▸ leave all files as they are");
    tmux.presses("Enter");
    tmux.wait_for("(nothing was restored)");
    assert_eq!(machine.read("mine"), "of the user\n");
    tmux.says("/rewind 1 all");
    tmux.wait_for("▸ leave all files as they are");
    tmux.presses("Down");
    tmux.wait_for("▸ replace these files");
    tmux.presses("Enter");
    tmux.wait_until("the file of the user", |_| !machine.work("mine").exists());
    tmux.says("/exit");
    tmux.assert_ended(0);
    machine.posse(&["checkpoints", "restore", "3"]).assert_code(0);
    assert_eq!(machine.read("mine"), "of the user\n");
}

/// In the mode `auto` no permission request shows the files.
#[test]
fn changes_of_the_user_are_shown_before_they_are_replaced() {
    if !has_namespaces() {
        return;
    }
    let server = ModelServer::start(vec![runs("echo 2 > a"), says("Done.")]);
    let machine = Machine::with(&server);
    machine.write("a", "1\n");
    machine.write("precious", "old\n");
    let mut terminal = Terminal::run(&machine, &["plain", "--permission-mode", "auto"], "xterm");
    terminal.see("> ");
    terminal.press("change it\r");
    terminal.see("Done in ");
    terminal.see("> ");
    let is_stored = || json_of(&machine, &["checkpoints", "list"])[0]["changes"].is_array();
    wait_until("the state after the run", is_stored);
    machine.write("precious", "new\n");
    terminal.press("/rewind 1 all\r");
    terminal.see("/rewind 1 all replaces what you have changed since in:");
    terminal.see("  modify precious");
    terminal.see("Nothing was restored. /rewind 1 all again restores them.");
    terminal.see("> ");
    assert_eq!(machine.read("precious"), "new\n");
    // Further changes are shown before they are replaced as well.
    machine.write("later", "new\n");
    terminal.press("/rewind 1 all\r");
    terminal.see("  delete later");
    terminal.see("> ");
    assert!(machine.work("later").exists());
    terminal.press("/rewind 1 all\r");
    terminal.see("restored 3 files of checkpoint 1: ");
    terminal.see("`/undo 2` takes the restore back");
    terminal.see("> ");
    // The copy of the session ends before the mode was changed, and has the stricter mode.
    terminal.press("/permission-mode edits\r");
    terminal.see("permission mode edits: ");
    terminal.press("/rewind 1 conversation\r");
    terminal.see("the prompt was: change it");
    terminal.press("/status\r");
    terminal.see("mode      edits");
    assert_eq!((machine.read("a").as_str(), machine.read("precious").as_str()), ("1\n", "old\n"));
    terminal.press("/exit\r");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_disk_that_fills_stops_the_effect_and_not_the_session() {
    if !has_namespaces() {
        return;
    }
    let server = ModelServer::start(vec![runs("touch made"), says("I cannot.")]);
    let machine = Machine::with(&server);
    // More than the disk of 3 MiB, and not compressible.
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    machine.write("large", noise.take(6 << 20).collect::<Vec<u8>>());
    let command = small_disk(&machine, "", "run --yes --sandbox off task");
    let ended = RunningPosse::start(command).end();
    ended.assert_code(0);
    assert!(ended.stdout.contains("I cannot."), "{}{}", ended.stdout, ended.stderr);
    assert!(!machine.work("made").exists());
    let told = server.tool_results().remove(0);
    assert!(told.contains("Not started") && told.contains("no space is left"), "{told}");
}

/// A task that only reads ends long before the present state is stored.
#[test]
fn nothing_of_a_checkpoint_is_left_after_the_end() {
    let look = || calls(&[("list_dir", json!({"path": "."}))]);
    let server = ModelServer::start(vec![look(), says("Done.")]);
    let machine = Machine::with(&server);
    let mut state = 1_u32;
    let mut noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    for at in 0..60 {
        machine.write(&format!("large/{at}"), noise.by_ref().take(1 << 20).collect::<Vec<u8>>());
    }
    machine.posse(&["run", "--yes", "look around"]).assert_code(0);
    let found = process_in(&machine.path("posse"));
    assert_eq!(found, None, "a process works after the end");
    let projects = fs::read_dir(machine.path("posse/state/projects")).unwrap();
    let mut stores = 0;
    for project in projects.flatten() {
        let git = project.path().join("checkpoints/git");
        // On a slow machine the session ends before the store is opened.
        let names = |folder: &str| {
            let entries = fs::read_dir(git.join(folder)).into_iter().flatten();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap())
        };
        let is_unfinished = |name: &String| name.starts_with("tmp_") || name.contains("crash");
        let left: Vec<String> =
            names(".").chain(names("objects/pack")).filter(is_unfinished).collect();
        assert_eq!(left, Vec::<String>::new());
        stores += 1;
    }
    assert_eq!(stores, 1);
}
