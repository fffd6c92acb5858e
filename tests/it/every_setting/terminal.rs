//! Effects of `ui` and `notify` in a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, runs, says, stream_bytes, text_event};
use crate::posse::Machine;
use crate::tui::Tmux;

fn machine_with(server: &ModelServer, settings: &Value) -> Machine {
    Machine::configured(server, settings, &json!({}))
}

#[test]
fn bound_key_submits() {
    let server = ModelServer::start(vec![says("It is sent.")]);
    let machine = machine_with(&server, &json!({"ui": {"keybindings": {"submit": "ctrl+s"}}}));
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯");
    tmux.types("do it");
    tmux.wait_for("do it");
    tmux.presses("C-s");
    tmux.wait_for("It is sent.");
}

#[test]
fn theme_changes_the_colours() {
    let screen = |theme: &str| {
        let server = ModelServer::start(vec![says("## Title\n\nSome `code`.")]);
        let machine = machine_with(&server, &json!({"ui": {"theme": theme}}));
        let tmux = Tmux::open(&machine, &[]);
        tmux.says("do it");
        tmux.wait_for(" · 1 turn");
        let shown = tmux.run(&["capture-pane", "-p", "-e", "-t", "t"]);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let heading = text.lines().find(|line| line.contains("Title"));
        heading.unwrap_or_else(|| panic!("{text}")).to_owned()
            + text.lines().find(|line| line.contains("code")).unwrap()
    };
    let screens = ["dark", "light", "none"].map(screen);
    assert!(screens[2].len() < screens[0].len(), "{screens:?}");
    assert_ne!(screens[0], screens[1]);
}

#[test]
fn thinking_is_shown_or_hidden() {
    let thinking = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "pondering"}}]});
    let thinking = format!("data: {thinking}\n\n");
    let held = |text: &str| ModelAnswer::Hold(stream_bytes(format!("{thinking}{text}").as_bytes()));

    let server = ModelServer::start(vec![held("")]);
    let machine = machine_with(&server, &json!({"ui": {"showThinking": true}}));
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("think");
    tmux.wait_for("pondering");

    // The text after it shows that it arrived.
    let server = ModelServer::start(vec![held(&text_event("Visible text"))]);
    let machine = machine_with(&server, &json!({"ui": {"showThinking": false}}));
    let tmux = Tmux::open(&machine, &[]);
    let raw = machine.path("tmp/raw");
    tmux.run(&["pipe-pane", "-t", "t", &format!("cat > '{}'", raw.display())]);
    tmux.says("think");
    tmux.wait_for("Visible text");
    assert!(!String::from_utf8_lossy(&fs::read(raw).unwrap()).contains("pondering"));
}

#[test]
fn window_title_can_be_left_alone() {
    let title = |shown: bool| {
        let server = ModelServer::start(vec![says("Done with it.")]);
        let machine = machine_with(&server, &json!({"notify": {"title": shown}}));
        let tmux = Tmux::open(&machine, &[]);
        tmux.says("do it");
        tmux.wait_for(" · 1 turn");
        let title = tmux.run(&["display-message", "-p", "-t", "t", "#{pane_title}"]);
        String::from_utf8_lossy(&title.stdout).trim().to_owned()
    };
    assert!(title(true).starts_with("done · "), "{}", title(true));
    assert!(!title(false).starts_with("done · "), "{}", title(false));
}

#[test]
fn status_line_command_of_the_user_is_shown() {
    let server = ModelServer::start(vec![says("Done with it.")]);
    let script = r#"sed 's/.*"branch":"\([^"]*\)".*"used_tokens":\([0-9a-z]*\).*/\x1b[31mon \1, \x1b[2J\2 tokens/'"#;
    let command = json!(["sh", "-c", script]);
    let machine = machine_with(&server, &json!({"ui": {"statusLine": command}}));
    let marker = machine.path("tmp/project-ran");
    let project = json!({"ui": {"statusLine": ["touch", marker]}});
    fs::create_dir_all(machine.path("work/.posse")).unwrap();
    fs::write(machine.path("work/.posse/config.json"), project.to_string()).unwrap();
    fs::create_dir_all(machine.path("work/.git")).unwrap();
    fs::write(machine.path("work/.git/HEAD"), "ref: refs/heads/try-it\n").unwrap();
    let tmux = Tmux::open(&machine, &[]);
    let screen = tmux.wait_for("on try-it, null tokens");
    assert!(screen.contains("⎇ try-it"), "{screen}");
    tmux.says("do it");
    tmux.wait_for("Done with it.");
    // The tokens of the answer are known to the command soon after it.
    tmux.wait_until("tokens", |screen| {
        screen.contains(" tokens") && !screen.contains("null tokens")
    });
    assert!(!marker.exists(), "a project cannot set the command");
}

/// A command of a model may have put a program into a folder of the workspace that is in `PATH`.
#[test]
fn status_line_command_is_not_taken_from_the_workspace() {
    let server = ModelServer::start(Vec::new());
    let machine = machine_with(&server, &json!({"ui": {"statusLine": ["shown-status"]}}));
    for (place, text) in [("work/.venv/bin", "planted"), ("tools", "of the user")] {
        let program = machine.path(place).join("shown-status");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, format!("#!/bin/sh\necho {text} in $(pwd)\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let [planted, own] = ["work/.venv/bin", "tools"].map(|place| machine.path(place));
    let variables =
        format!("TERM=tmux-256color TMUX=1 PATH={}:{}:$PATH", planted.display(), own.display());
    let tmux = Tmux::with(&machine, &[], &variables);
    let screen = tmux.wait_for("of the user in ");
    assert!(!screen.contains("planted") && !screen.contains("/work\n"), "{screen}");
}

/// A program that a command left in a workspace stays there, so sessions elsewhere must not start it.
#[test]
fn status_line_command_is_not_taken_from_another_workspace() {
    let server = ModelServer::start(vec![runs("true"), says("Done.")]);
    let machine = machine_with(&server, &json!({"ui": {"statusLine": ["shown-status"]}}));
    let folders = ["first/.venv/bin", "tools"].map(|place| machine.path(place));
    for (folder, text) in folders.iter().zip(["planted", "of the user"]) {
        fs::create_dir_all(folder).unwrap();
        let program = folder.join("shown-status");
        fs::write(&program, format!("#!/bin/sh\necho {text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let first = machine.path("first");
    machine.posse(&["run", "--yes", "--cwd", first.to_str().unwrap(), "go"]).assert_code(0);
    let [planted, own] = folders;
    let variables =
        format!("TERM=tmux-256color TMUX=1 PATH={}:{}:$PATH", planted.display(), own.display());
    let screen = Tmux::with(&machine, &[], &variables).wait_for("of the user");
    assert!(!screen.contains("planted"), "{screen}");
}

#[test]
fn vim_keys_and_a_changed_key_work_in_a_terminal() {
    let server = ModelServer::start(vec![says("It is sent.")]);
    let machine = machine_with(&server, &json!({"ui": {"vim": true}}));
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("insert · ");
    tmux.types("/keymap");
    tmux.presses("Enter");
    tmux.wait_for("select an action");
    tmux.types("submit");
    tmux.presses("Enter");
    tmux.wait_for("press the new key of submit");
    tmux.presses("C-s");
    tmux.wait_for("saved in ui.keybindings");
    let config = fs::read_to_string(machine.path("posse/config/config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["ui"]["keybindings"]["submit"], "ctrl+s");
    tmux.types("say not it");
    tmux.presses("Escape");
    tmux.wait_for("normal · ");
    tmux.types("bbdw");
    tmux.wait_for("❯ say it");
    tmux.presses("C-s");
    tmux.wait_for("It is sent.");
    tmux.wait_for("insert · ");
}
