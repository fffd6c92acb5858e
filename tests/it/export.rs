//! Exporting, removing and listing sessions through the program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::Machine;

fn worked() -> (Machine, String) {
    let server = ModelServer::start(vec![
        runs("echo '<script>alert(1)</script>'; exit 4"),
        calls(&[("write_file", json!({"path": "a.txt", "content": "<b>one</b>\n"}))]),
        says("**Done**, see [this](javascript:alert(1)) <img src=x>"),
    ]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "-y", "do it <script>alert(0)</script>"]).assert_code(0);
    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    (machine, id)
}

#[test]
fn a_session_is_exported_as_html_and_markdown() {
    let (machine, id) = worked();
    let page = machine.path("page.html");
    let args = ["sessions", "export", &id, "--format", "html", "-o", page.to_str().unwrap()];
    let ended = machine.posse(&args);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "");
    assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o600);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    for bad in ["<script", "<img", "href=\"javascript"] {
        assert!(!html.contains(bad), "{bad}: {html}");
    }
    for wanted in ["exit 4", "<strong>Done</strong>", "&lt;b&gt;one&lt;/b&gt;", "--yes", &id] {
        assert!(html.contains(wanted), "{wanted}: {html}");
    }
    // An existing file is not overwritten.
    machine.posse(&args).assert_code(1);
    assert_eq!(fs::read_to_string(&page).unwrap(), html);

    let text = machine.posse(&["sessions", "export", &id[..12], "--format", "md"]);
    text.assert_code(0);
    assert!(text.stdout.contains("```diff\n") && text.stdout.contains("**Done**"));
    assert!(!text.stdout.contains("<img"), "{}", text.stdout);
    machine.posse(&["sessions", "export", "nothing-like-it"]).assert_code(8);
}

#[test]
fn a_damaged_session_is_exported_up_to_the_damage() {
    let (machine, id) = worked();
    let journal = machine.session_dir().join("session.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.replace("<b>one</b>", "<b>two</b>")).unwrap();
    let ended = machine.posse(&["sessions", "export", &id, "--format", "html"]);
    ended.assert_code(8);
    assert!(ended.stdout.contains("exit 4") && ended.stdout.contains("damaged"));
    assert!(ended.stderr.contains("SES006"), "{}", ended.stderr);
}

#[test]
fn removing_a_session_needs_confirmation() {
    let (machine, id) = worked();
    let ended = machine.posse(&["sessions", "rm", &id]);
    ended.assert_code(2);
    assert!(ended.stderr.contains("--yes"), "{}", ended.stderr);
    assert!(machine.session_dir().exists());
    let ended = machine.posse(&["sessions", "rm", &id, "--yes"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, format!("removed {id}\n"));
    let listed = machine.posse(&["sessions", "list", "--all", "--json"]);
    assert_eq!(listed.stdout.trim(), "[]");
    assert!(machine.work("a.txt").exists());
}

#[test]
fn lists_show_the_source_and_access_of_tools() {
    let machine = Machine::new();
    let tools = machine.posse(&["tools", "--json"]);
    tools.assert_code(0);
    let tools: Vec<Value> = serde_json::from_str(&tools.stdout).unwrap();
    let bash = tools.iter().find(|tool| tool["name"] == "bash").unwrap();
    assert_eq!((&bash["sideEffect"], &bash["source"]), (&json!("process"), &json!("builtin")));
    assert_eq!(bash["agents"], json!(["build", "worker"]));
    let with = |name: &str, machine: &Machine| -> Value {
        let tools = machine.posse(&["tools", "--json"]);
        let tools: Vec<Value> = serde_json::from_str(&tools.stdout).unwrap();
        tools.into_iter().find(|tool| tool["name"] == name).unwrap()
    };
    let delegating =
        ["delegate_agent", "agent_status", "agent_result", "agent_diff", "agent_merge"];
    for name in delegating {
        assert_eq!(with(name, &machine)["agents"], json!([]), "{name}");
    }
    assert_eq!(with("delegate_agent", &machine)["needs"], "agentMode multi-agent");
    assert_eq!(with("skill", &machine)["needs"], "a skill");
    machine.write_config(r#"{"agentMode": "multi-agent"}"#);
    assert_eq!(with("delegate_agent", &machine)["agents"], json!(["build"]));
    let agents = machine.posse(&["agents", "--json"]);
    agents.assert_code(0);
    let agents: Vec<Value> = serde_json::from_str(&agents.stdout).unwrap();
    assert_eq!(agents[0]["tools"], json!(["*"]), "`*` is said, and not meant by silence");
    for args in [["agents"].as_slice(), &["tools"], &["completions", "fish"], &["man"]] {
        let ended = machine.posse(args);
        ended.assert_code(0);
        assert!(ended.stdout.len() > 100, "{args:?}: {}", ended.stdout);
    }
    assert!(!machine.path("posse/state").exists(), "a list keeps nothing");
}

#[test]
fn the_size_of_a_session_includes_its_whole_folder() {
    let server = ModelServer::start(vec![runs("seq 1 60000"), says("done")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "-y", "count"]).assert_code(0);
    let outputs: u64 = fs::read_dir(machine.session_dir().join("outputs"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(outputs > 300_000, "{outputs}");
    let listed = machine.posse(&["sessions", "list", "--json"]);
    listed.assert_code(0);
    let sessions: Value = serde_json::from_str(&listed.stdout).unwrap();
    let session = if sessions.is_array() { &sessions[0] } else { &sessions["sessions"][0] };
    let (journal, total) = (session["bytes"].as_u64().unwrap(), session["totalBytes"].as_u64());
    assert!(total.unwrap() >= journal + outputs, "{session}");
    let table = machine.posse(&["sessions", "list"]);
    assert!(table.stdout.contains(" KiB"), "{}", table.stdout);
}
