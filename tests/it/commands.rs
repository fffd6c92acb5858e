//! Runs every slash command in line mode and in the terminal UI. A command that is missing in one
//! of them, or that has no row here, fails.

use serde_json::json;

use crate::model_server::{ModelServer, calls, says};
use crate::plain::Terminal;
use crate::posse::Machine;
use crate::tui::Tmux;

/// Command, input, and expected output of line mode and of the terminal UI. A leading `>` means
/// that the terminal UI shows it in the viewer. The order allows to run them one after another.
const EXPECTED: &[(&str, &str, &str, &str)] = &[
    ("help", "/help", "!COMMAND", ">type to search"),
    ("keys", "/keys", "Ctrl+R looks for it", ">Ctrl+J"),
    ("status", "/status", "prompts   1", "built in"),
    ("rename", "/rename The notes", "title: The notes", "title: The notes"),
    ("context", "/context", "total", "/compact shortens"),
    ("cost", "/cost", "local/scripted-1", "local/scripted-1"),
    ("permissions", "/permissions", "grants revoke ID", "grants revoke ID"),
    ("sandbox", "/sandbox", "commands run with all of your rights", "confinement"),
    (
        "permission-mode",
        "/permission-mode",
        "only what rules and grants allow runs",
        "only what rules and grants allow runs",
    ),
    ("agents", "/agents", "reviewer", "reviewer"),
    ("diff", "/diff", "+made", ">+made"),
    ("copy", "/copy", "/export FILE writes", "(copied"),
    ("export", "/export notes.md", "written to", "written to"),
    ("share", "/share talk", "talk.html", "talk.html"),
    ("config", "/config", "defaultProvider", ">defaultProvider"),
    ("tools", "/tools", "read_file", ">read_file"),
    ("skills", "/skills", "deploy", ">deploy"),
    ("doctor", "/doctor", "terminal", ">terminal"),
    ("jobs", "/jobs", "No job runs in the background", "No job runs in the background"),
    ("todos", "/todos", "The model has no task list", "The model has no task list"),
    ("memory", "/memory", "No agent has reported", "No agent has reported"),
    ("forget", "/forget explore", "No agent explore has", "No agent explore has"),
    ("theme", "/theme dark", "Line mode has no themes", "theme: dark"),
    ("keymap", "/keymap", "has keys to change", "keys: select an action"),
    ("vim", "/vim", "has vim keys", "vim keys: Esc"),
    ("queue", "/queue", "No message is queued", "no message is queued"),
    ("stop", "/stop", "Nothing runs.", "(nothing runs)"),
    ("compact", "/compact", "nothing to remove", "nothing to remove"),
    ("undo", "/undo", "rm -- a.txt", "rm -- a.txt"),
    ("rewind", "/rewind", "2 files", "return to the state before a prompt"),
    ("tree", "/tree 9", "There is no row 9", "There is no row 9"),
    ("model", "/model other-1", "other-1 (/model)", "other-1 (/model)"),
    ("provider", "/provider local", "local (/provider)", "local (/provider)"),
    ("agent", "/agent plan", "plan (/agent)", "plan (/agent)"),
    ("thinking", "/thinking high", "thinking  high", "thinking: high"),
    ("init", "/init", "Hello.", "Hello."),
    ("review", "/review main", "Hello.", "Hello."),
    ("skill", "/skill deploy now", "Hello.", "Hello."),
    ("fork", "/fork", "fork of session", "(a copy of the session"),
    ("new", "/new", "session ", "(a new session"),
    ("resume", "/resume", "/resume ID resumes", "sessions here"),
    ("exit", "/exit", "", ""),
];

/// Command names in the reference, which is generated from the table.
fn names() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/commands.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let after = guide.split("<!-- commands -->").nth(1).unwrap();
    let rows = after.lines().filter_map(|line| line.strip_prefix("| `/"));
    rows.map(|row| row.split(['`', ' ']).next().unwrap().to_owned()).collect()
}

fn machine() -> (Machine, ModelServer) {
    let mut answers = vec![calls(&[("write_file", json!({"path": "a.txt", "content": "made\n"}))])];
    answers.extend(std::iter::repeat_with(|| says("Hello.")).take(8));
    let server = ModelServer::start(answers);
    let machine = Machine::with(&server);
    let folder = machine.path("home/.agents/skills/deploy");
    std::fs::create_dir_all(&folder).unwrap();
    let skill = "---\nname: deploy\ndescription: Does it.\n---\n\nDo it so.\n";
    std::fs::write(folder.join("SKILL.md"), skill).unwrap();
    (machine, server)
}

#[test]
fn every_command_in_the_table_is_tested() {
    let mut tried: Vec<&str> = EXPECTED.iter().map(|row| row.0).collect();
    let mut names = names();
    tried.sort_unstable();
    names.sort_unstable();
    assert_eq!(tried, names);
}

#[test]
fn line_mode_has_every_command() {
    let (machine, _server) = machine();
    let mut typed = "make it\n".to_owned();
    for &(_, line, ..) in EXPECTED {
        typed.extend([line, "\n"]);
    }
    let ended = machine.posse_with_input(&["plain", "--yes", "--sandbox", "off"], typed.as_bytes());
    ended.assert_code(0);
    let shown = ended.stderr.clone() + &ended.stdout;
    assert!(!shown.contains("There is no /"), "{shown}");
    let mut rest = ended.stderr.as_str();
    for &(name, _, says, _) in EXPECTED {
        // The model's answers are on standard output.
        if says == "Hello." {
            assert_eq!(ended.stdout.matches(says).count(), 4, "{shown}");
            continue;
        }
        let at = rest.find(says).unwrap_or_else(|| panic!("/{name}: no {says:?} in:\n{rest}"));
        rest = &rest[at + says.len()..];
    }
    assert!(!machine.work("a.txt").exists(), "it was taken back");
    assert!(machine.read("notes.md").contains("make it"));
    machine.verify();
}

#[test]
fn the_terminal_ui_has_every_command() {
    let (machine, server) = machine();
    let tmux = Tmux::open(&machine, &["tui", "--yes", "--sandbox", "off"]);
    tmux.says("make it");
    tmux.wait_for("Done in ");
    for &(name, line, _, says) in EXPECTED {
        if name == "exit" {
            break;
        }
        let (viewer, says) = match says.strip_prefix('>') {
            Some(says) => (true, says),
            None => (false, says),
        };
        // Earlier output is removed from the scrollback.
        tmux.run(&["clear-history", "-t", "t"]);
        let before = tmux.all().matches(says).count();
        tmux.says(line);
        tmux.wait_until(says, |_| {
            let all = tmux.all();
            viewer && (all.contains("q closes") || all.contains("Esc closes"))
                || !viewer && all.matches(says).count() > before
        });
        let screen = tmux.screen();
        assert!(!screen.contains("There is no /"), "{name}: {screen}");
        if viewer {
            if name != "doctor" && name != "config" {
                assert!(screen.contains(says), "{name}: {screen}");
            }
            tmux.presses("Escape");
        } else if matches!(name, "resume" | "rewind" | "keymap" | "permission-mode") {
            tmux.presses("Escape");
            tmux.wait_until("the prompt", |screen| !screen.contains("Esc closes"));
            continue;
        }
        tmux.wait_for("❯ Describe a task");
    }
    assert!(!machine.work("a.txt").exists(), "it was taken back");
    // The model received the skill and the task.
    let asked = server.requests().pop().unwrap().to_string();
    assert!(asked.contains("Do it so.") && asked.contains("now"), "{asked}");
    tmux.says("/exit");
    tmux.assert_ended(0);
}

#[test]
fn session_list_has_titles_and_closing_it_is_no_error() {
    let (machine, _server) = machine();
    machine.posse(&["run", "--yes", "the first task"]).assert_code(0);
    // This session has no prompt.
    machine.posse_with_input(&["plain"], b"/status\n").assert_code(0);
    machine.posse_with_input(&["plain"], b"/skill deploy to staging\n").assert_code(0);
    let mut terminal = Terminal::run(&machine, &["resume"], "xterm");
    let list = terminal.see("type to filter");
    assert!(list.contains("/skill deploy to staging") && list.contains("the first task"), "{list}");
    assert!(list.contains("2 of 2") && !list.contains("skill_content"), "{list}");
    terminal.press("\u{1b}");
    assert_eq!(terminal.end(), Some(0));
    assert!(terminal.is_cooked());
    let rest = terminal.rest();
    assert!(!rest.contains("CLI012") && !rest.contains("error"), "{rest}");
    // Line mode shows the same list.
    let ended = machine.posse_with_input(&["plain"], b"/resume\n");
    assert!(ended.stderr.contains("  /skill deploy to staging\n"), "{}", ended.stderr);
}

#[test]
fn line_mode_resumes_a_stored_session() {
    let (machine, server) = machine();
    machine.posse(&["run", "--yes", "the first task"]).assert_code(0);
    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let typed = format!("/resume {}\n!echo by hand\nand now?\n/resume no-such\n", &id[..12]);
    let ended = machine.posse_with_input(&["plain", "--yes", "--sandbox", "off"], typed.as_bytes());
    ended.assert_code(0);
    assert!(ended.stderr.contains("resumed after"), "{}", ended.stderr);
    assert!(ended.stderr.contains("  │ by hand"), "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no session `no-such`"), "{}", ended.stderr);
    let asked = server.requests().pop().unwrap().to_string();
    for part in ["the first task", "I ran this command myself", "by hand", "and now?"] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
}
