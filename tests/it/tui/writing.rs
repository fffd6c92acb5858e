//! Editing in the prompt: completion, history, editor, drafts, queued messages and shell commands.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use base64::Engine as _;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use super::{SILENCE, STUCK, Tmux};
use crate::model_server::{
    ModelAnswer, ModelServer, calls, says, stream_bytes, text_event, text_of,
};
use crate::posse::Machine;

/// A PNG image of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// User messages of the last request.
fn said(server: &ModelServer) -> Vec<String> {
    let request = server.requests().pop().unwrap();
    let messages = request["messages"].as_array().unwrap();
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.map(|message| text_of(&message["content"])).collect()
}

fn agrees(tmux: &Tmux) {
    tmux.wait_for("[n] no");
    thread::sleep(SILENCE);
    tmux.presses("y");
}

fn pastes(tmux: &Tmux, machine: &Machine, text: &str) {
    let file = machine.path("tmp/pasted");
    fs::write(&file, text).unwrap();
    tmux.run(&["load-buffer", file.to_str().unwrap()]);
    tmux.run(&["paste-buffer", "-p", "-t", "t"]);
}

#[test]
fn queued_message_is_edited_or_deleted() {
    let held = stream_bytes(text_event("This takes a").as_bytes());
    let server = ModelServer::start(vec![ModelAnswer::Hold(held), says("Here I am again.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("take your time");
    tmux.wait_for("This takes a");
    for text in ["first thought", "second thought"] {
        tmux.says(text);
        tmux.wait_for(&format!("⤷ at the next step: {text}"));
    }
    tmux.presses("M-Up");
    tmux.wait_for("❯ second thought");
    tmux.wait_until("one message", |screen| !screen.contains("step: second"));
    tmux.presses("C-u");
    tmux.says("/queue");
    tmux.wait_for("Delete deletes it");
    tmux.presses("DC");
    tmux.wait_until("no message", |screen| !screen.contains("first thought"));
    tmux.presses("Escape");
    tmux.wait_for("Stopped after ");
    tmux.says("still there?");
    tmux.wait_for("Here I am again.");
    let said = said(&server);
    let [first, note, last] = &said[..] else { panic!("{said:?}") };
    assert_eq!((first.as_str(), last.as_str()), ("take your time", "still there?"));
    assert!(note.contains("was cut off here"), "{note}");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    machine.verify();
}

#[test]
fn history_is_available_in_the_next_process() {
    let server = ModelServer::start(vec![says("Yes."), says("Again.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("remember the milk");
    tmux.wait_for("Done in ");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    drop(tmux);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
    tmux.presses("C-r");
    tmux.wait_for("history");
    tmux.types("milk");
    tmux.wait_for("▸ remember the milk");
    tmux.presses("Enter");
    tmux.wait_for("❯ remember the milk");
    tmux.presses("Enter");
    tmux.wait_for("Again.");
    assert_eq!(said(&server), ["remember the milk"]);
}

#[test]
fn commands_and_files_are_completed() {
    let server = ModelServer::start(vec![says("Read.")]);
    let machine = Machine::with(&server);
    machine.write(".gitignore", "built\n");
    machine.write("src/price.rs", "");
    machine.write("built/price.o", "");
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
    tmux.types("/stat");
    tmux.wait_for("▸ /status");
    tmux.presses("Tab");
    tmux.wait_for("❯ /status");
    tmux.presses("Enter");
    tmux.wait_for("built in");
    tmux.types("look at @pri");
    let screen = tmux.wait_for("⇥ src/price.rs");
    assert!(!screen.contains("price.o"), "{screen}");
    tmux.types(":10-20");
    tmux.wait_for("⇥ src/price.rs");
    tmux.presses("Tab");
    tmux.wait_for("❯ look at @src/price.rs:10-20");
    tmux.presses("Enter");
    tmux.wait_for("Read.");
    assert_eq!(said(&server), ["look at @src/price.rs:10-20 "]);
}

#[test]
fn shell_command_needs_permission_runs_and_is_reported_to_the_model() {
    let server = ModelServer::start(vec![says("I see.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("!echo one > made; cat made");
    let screen = tmux.wait_for("[n] no");
    assert!(screen.contains("│ echo one > made; cat made"), "{screen}");
    thread::sleep(SILENCE);
    tmux.presses("y");
    tmux.wait_for("└ exit 0");
    assert_eq!(machine.read("made"), "one\n");
    assert!(server.requests().is_empty(), "the model is asked nothing");
    // Escape stops it.
    tmux.says("!touch begun; sleep 600");
    agrees(&tmux);
    let begun = Instant::now();
    while !machine.work("begun").exists() {
        assert!(begun.elapsed() < STUCK, "it never began:\n{}", tmux.screen());
        thread::sleep(std::time::Duration::from_millis(20));
    }
    tmux.presses("Escape");
    tmux.wait_for("Stopped after ");
    tmux.says("what did I do?");
    tmux.wait_for("I see.");
    let said = said(&server);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("I ran this command myself") && said[0].contains("cat made"));
    assert!(said[1].contains("sleep 600") && said[1].contains("Cancelled while it ran"));
    assert_eq!(said[2], "what did I do?");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    machine.verify();
}

#[test]
fn external_editor_gets_the_terminal() {
    let server = ModelServer::start(vec![says("Read.")]);
    let machine = Machine::with(&server);
    let script = "stty -a > \"$0.stty\"\nprintf 'editor here\\n'\nread line\nprintf ' %s' \"$line\" >> \"$1\"\n";
    let editor = machine.path("tmp/editor");
    fs::write(&editor, script).unwrap();
    let variables = format!("TERM=tmux-256color TMUX=1 EDITOR='sh {}'", editor.display());
    let tmux = Tmux::with(&machine, &[], &variables);
    tmux.wait_for("❯ Describe a task");
    tmux.types("a draft");
    tmux.presses("C-g");
    tmux.wait_for("editor here");
    let stty = fs::read_to_string(machine.path("tmp/editor.stty")).unwrap();
    assert_eq!(stty, fs::read_to_string(machine.path("tmp/before")).unwrap());
    tmux.types("goes on");
    tmux.presses("Enter");
    tmux.wait_for("❯ a draft goes on");
    tmux.types("!");
    tmux.presses("Enter");
    tmux.wait_for("Read.");
    assert_eq!(said(&server), ["a draft goes on!"]);
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn message_during_a_command_of_the_user_is_shown_and_sent_when_it_ends() {
    let server = ModelServer::start(vec![says("Answered.")]);
    let machine = Machine::with(&server);
    mkfifo(&machine.work("gate"), Mode::S_IRWXU).unwrap();
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
    tmux.types("!cat gate");
    tmux.presses("Enter");
    tmux.wait_for("running · ");
    tmux.types("first");
    tmux.presses("Enter");
    tmux.wait_for("when the command ends: first");
    tmux.types("second");
    tmux.presses("Enter");
    tmux.wait_for("when the command ends: second");
    tmux.presses("M-Up");
    tmux.wait_for("❯ second");
    tmux.wait_until("one message", |screen| !screen.contains("ends: second"));
    fs::write(machine.work("gate"), "open").unwrap();
    tmux.wait_for("Answered.");
    assert_eq!(said(&server).last().map(String::as_str), Some("first"));
    let screen = tmux.wait_for("❯ second");
    assert!(
        !screen.contains("when the command ends") && !screen.contains("running · "),
        "{screen}"
    );
}

#[test]
fn message_returns_to_the_prompt_if_the_command_is_stopped() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
    tmux.types("!sleep 600");
    tmux.presses("Enter");
    tmux.wait_for("running · ");
    tmux.types("and then");
    tmux.presses("Enter");
    tmux.wait_for("when the command ends: and then");
    tmux.presses("Escape");
    tmux.wait_for("❯ and then");
    tmux.wait_until("the end", |screen| !screen.contains("running · "));
    assert!(server.requests().is_empty());
}

/// Draft files.
fn drafts(machine: &Machine) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![machine.path("posse")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if entry.file_name().to_string_lossy().starts_with("draft-") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn draft_survives_a_crash() {
    let server = ModelServer::start(vec![says("Yes.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
    tmux.types("half a thought");
    tmux.wait_for("❯ half a thought");
    let begun = Instant::now();
    let is_kept = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|t| t == "half a thought");
    while !drafts(&machine).iter().any(is_kept) {
        assert!(begun.elapsed() < STUCK, "it is not kept");
        thread::sleep(std::time::Duration::from_millis(20));
    }
    kill(tmux.pid(), Signal::SIGKILL).unwrap();
    tmux.wait_for("\nover");
    drop(tmux);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ half a thought");
    tmux.wait_for("is back in the prompt");
    tmux.presses("Enter");
    tmux.wait_for("Yes.");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    assert_eq!(drafts(&machine), Vec::<PathBuf>::new(), "what was sent is no draft any more");
}

#[test]
fn dropped_image_is_sent_to_the_model() {
    let server = ModelServer::start(vec![says("A pixel.")]);
    let machine = Machine::with(&server);
    let pixel = base64::engine::general_purpose::STANDARD.decode(PIXEL).unwrap();
    machine.write("a shot.png", pixel);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
    pastes(&tmux, &machine, &format!("'{}'", machine.work("a shot.png").display()));
    tmux.wait_for("❯ [image 1: a shot.png]");
    pastes(&tmux, &machine, "/not/there.png");
    tmux.wait_for("/not/there.png");
    tmux.presses("Enter");
    tmux.wait_for("A pixel.");
    let request = server.requests().pop().unwrap();
    let content = &request["messages"].as_array().unwrap().last().unwrap()["content"];
    assert_eq!(text_of(content), "[image 1: a shot.png]/not/there.png");
    let images = content.as_array().unwrap().iter().filter(|part| part["type"] == "image_url");
    assert_eq!(images.count(), 1, "{content}");
}

#[test]
fn image_of_the_clipboard_is_sent_and_a_paste_is_opened() {
    let server = ModelServer::start(vec![says("A pixel.")]);
    server.lists(json!({"data": [{"id": "scripted-1"}, {"id": "scripted-2"}]}));
    let machine = Machine::with(&server);
    let bin = machine.path("tmp/bin");
    fs::create_dir_all(&bin).unwrap();
    let script =
        format!("#!/bin/sh\n[ -e '{}/image' ] && echo {PIXEL} | base64 -d\n", bin.display());
    fs::write(bin.join("xclip"), script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bin.join("xclip"), executable).unwrap();
    let path = std::env::var("PATH").unwrap();
    let variables = format!("TERM=tmux-256color TMUX=1 DISPLAY=:0 PATH='{}:{path}'", bin.display());
    let tmux = Tmux::with(&machine, &[], &variables);
    tmux.wait_for("❯ Describe a task");
    tmux.presses("C-v");
    tmux.wait_for("the clipboard contains no image");
    fs::write(bin.join("image"), "").unwrap();
    tmux.presses("C-v");
    tmux.wait_for("❯ [image 1: clipboard]");
    let lines: Vec<String> = (1..=40).map(|nth| format!("line {nth} of it")).collect();
    pastes(&tmux, &machine, &lines.join("\n"));
    tmux.wait_for("[paste 1: 40 lines]");
    tmux.presses("C-o");
    tmux.wait_for("line 20 of it");
    tmux.presses("q");
    tmux.wait_for("❯ [image 1: clipboard][paste 1: 40 lines]");
    tmux.presses("Enter");
    tmux.wait_for("A pixel.");
    let request = server.requests().pop().unwrap();
    let content = &request["messages"].as_array().unwrap().last().unwrap()["content"];
    let images = content.as_array().unwrap().iter().filter(|part| part["type"] == "image_url");
    assert_eq!(images.count(), 1, "{content}");
    assert!(text_of(content).contains("line 40 of it"));
    // The list of sessions shows the last messages of one.
    tmux.says("/new");
    tmux.wait_for("a new session");
    tmux.says("/resume");
    tmux.wait_for("│ posse: A pixel.");
    tmux.presses("Escape");
    tmux.wait_until("the prompt", |screen| !screen.contains("Esc closes"));
    tmux.says("/model");
    let screen = tmux.wait_for("2 models listed by the provider");
    assert!(screen.contains("scripted-2"), "{screen}");
}

#[test]
fn undo_reverts_the_last_change_unless_the_file_changed_since() {
    let server = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "a.txt"}))]),
        calls(&[("write_file", json!({"path": "a.txt", "content": "new\n"}))]),
        calls(&[("write_file", json!({"path": "b.txt", "content": "made\n"}))]),
        says("Changed."),
    ]);
    let machine = Machine::with(&server);
    machine.write("a.txt", "old\r\n");
    let tmux = Tmux::open(&machine, &["tui", "--yes", "--sandbox", "off"]);
    tmux.says("change it");
    tmux.wait_for("Changed.");
    tmux.wait_for("Done in ");
    // The tool keeps a file's line ends.
    assert_eq!(machine.read("a.txt"), "new\r\n");
    tmux.says("/undo");
    tmux.wait_for("rm -- b.txt");
    tmux.wait_until("no file", |_| !machine.work("b.txt").exists());
    tmux.wait_for("❯ Describe a task");
    machine.write("a.txt", "mine\n");
    tmux.says("/undo");
    tmux.wait_for("was modified after the change");
    assert_eq!(machine.read("a.txt"), "mine\n");
    machine.write("a.txt", "new\r\n");
    tmux.says("/undo");
    tmux.wait_until("the old file", |_| machine.read("a.txt") == "old\r\n");
    tmux.wait_for("❯ Describe a task");
    tmux.says("/undo");
    tmux.wait_for("there is no change to undo");
}

#[test]
fn stored_session_is_resumed_or_forked() {
    let server = ModelServer::start(vec![says("One."), says("Two."), says("Three.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("the first task");
    tmux.wait_for("One.");
    tmux.wait_for("Done in ");
    tmux.says("/new");
    tmux.wait_for("(a new session");
    tmux.says("/resume");
    tmux.wait_for("sessions here");
    tmux.types("first");
    tmux.wait_for("▸");
    tmux.presses("Enter");
    tmux.wait_for("(a stored session");
    tmux.says("goes on");
    tmux.wait_for("Two.");
    tmux.wait_for("❯ Describe a task");
    assert_eq!(said(&server), ["the first task", "goes on"]);
    tmux.says("/fork");
    tmux.wait_for("(a copy of the session");
    tmux.says("another way");
    tmux.wait_for("Three.");
    assert_eq!(said(&server), ["the first task", "goes on", "another way"]);
    tmux.says("/resume no-such-session");
    tmux.wait_for("there is no session");
    tmux.wait_for("❯ Describe a task");
    tmux.presses("C-d");
    tmux.assert_ended(0);
}
