//! Configuration commands, as typed by a user.

#![expect(clippy::disallowed_types, reason = "tests start the program plainly")]
#![expect(clippy::unwrap_used, reason = "what fails in a test should fail the test")]

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::model_server::{ModelServer, says};
use crate::posse::Machine;

/// A home and a folder to work in.
struct ConfigFixture {
    dir: TempDir,
}

struct CommandOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

impl ConfigFixture {
    fn new() -> ConfigFixture {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        ConfigFixture { dir }
    }

    fn posse(&self, args: &[&str]) -> CommandOutput {
        let output = Command::new(env!("CARGO_BIN_EXE_posse"))
            .args(args)
            .current_dir(self.dir.path().join("work"))
            .env_clear()
            .env("POSSE_HOME", self.dir.path().join("home"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(&self.dir.path().display().to_string(), "")
        };
        CommandOutput {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

#[test]
fn setting_is_changed_shown_with_its_origin_and_removed() {
    let desk = ConfigFixture::new();
    let ended = desk.posse(&["config", "edit", "maxTurns", "7"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert_eq!(ended.out, "set maxTurns = 7 in /home/config/config.json\n");
    let shown = desk.posse(&["config", "show", "--origin"]).out;
    assert!(shown.contains("maxTurns = 7  (/home/config/config.json:4)"), "{shown}");
    let ended = desk.posse(&["config", "edit", "--unset", "maxTurns"]);
    assert_eq!(ended.out, "removed maxTurns from /home/config/config.json\n");
    let shown = desk.posse(&["config", "show"]).out;
    assert!(!shown.contains("maxTurns =") && shown.contains("# maxTurns: no limit\n"), "{shown}");
}

#[test]
fn invalid_rule_is_refused_and_shown() {
    let desk = ConfigFixture::new();
    let half = r#"[{"tool":"bash"}]"#;
    let ended = desk.posse(&["config", "edit", "permissions", half]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(3), ""));
    assert!(ended.err.contains("error[CFG013]: permissions[0]"), "{}", ended.err);

    let folder = desk.dir.path().join("home/config");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.json"), format!(r#"{{ "permissions": {half} }}"#)).unwrap();
    for args in [&["config", "show"][..], &["doctor"], &["run", "hi"]] {
        let ended = desk.posse(args);
        let said = ended.out + &ended.err;
        assert!(said.contains("CFG013"), "{args:?}: {said}");
        assert_ne!(ended.code, Some(0), "{args:?}");
    }
    // A run that did not start leaves nothing behind.
    assert!(!desk.dir.path().join("home/state").exists());
}

#[test]
fn rule_for_an_unknown_tool_is_refused_at_its_place() {
    let rule = r#"{ "permissions": [{"tool": "wrte_file", "decision": "deny"}] }"#;
    let desk = ConfigFixture::new();
    let folder = desk.dir.path().join("home/config");
    fs::create_dir_all(&folder).unwrap();
    // The user's rule, and that of a trusted project.
    for (file, args) in [
        ("home/config/config.json", &["run", "hi"][..]),
        ("work/.posse/config.json", &["run", "--trust-project", "hi"]),
    ] {
        let path = desk.dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, rule).unwrap();
        let ended = desk.posse(args);
        assert_eq!(ended.code, Some(3), "{}", ended.err);
        for part in [
            "error[CFG013]: permissions[0] is not a rule: there is no tool \"wrte_file\"",
            &format!("where: /{file}:1"),
            "fix: did you mean \"write_file\"?",
        ] {
            assert!(ended.err.contains(part), "{part}: {}", ended.err);
        }
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn every_tool_can_be_named_in_a_rule() {
    let desk = ConfigFixture::new();
    let listed: Value = serde_json::from_str(&desk.posse(&["tools", "--json"]).out).unwrap();
    let listed = listed.as_array().unwrap();
    let names = listed.iter().flat_map(|tool| [&tool["name"], &tool["ruleGroup"]]);
    let rules: Vec<Value> = names
        .filter(|name| name.is_string())
        .map(|name| json!({"tool": name, "decision": "ask"}))
        .collect();
    assert!(rules.len() > 19, "{rules:?}");
    let ended = desk.posse(&["config", "edit", "permissions", &json!(rules).to_string()]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[test]
fn overridden_change_names_the_override() {
    let desk = ConfigFixture::new();
    for (key, value) in [
        ("defaultProvider", "mine"),
        ("providers.mine.baseURL", "http://localhost:1/v1"),
        ("providers.mine.auth", "none"),
        ("providers.mine.model", "one"),
    ] {
        let ended = desk.posse(&["config", "edit", key, value]);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{key}");
    }
    let state = desk.dir.path().join("home/state");
    fs::create_dir_all(&state).unwrap();
    let saved = r#"{ "version": 1, "provider": "mine", "model": "two" }"#;
    fs::write(state.join("preferences.json"), saved).unwrap();
    let ended = desk.posse(&["config", "edit", "providers.mine.model", "three"]);
    assert_eq!(
        ended.err,
        "note: model = \"two\" counts before it (saved preferences); \
         `posse config forget` forgets it\n"
    );
    let ended = desk.posse(&["config", "forget"]);
    let said =
        "removed the saved choice: provider mine, model two  (/home/state/preferences.json)\n";
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), said));
    assert!(!state.join("preferences.json").exists());
    let ended = desk.posse(&["config", "forget"]);
    assert_eq!(ended.out, "no choice is saved  (/home/state/preferences.json)\n");
    // A setting that conflicts with others is written, and the conflict is reported at once.
    let ended = desk.posse(&["config", "edit", "providers.mine.apiKey", "not-a-real-key"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.err.contains("error[CFG011]"), "{}", ended.err);
}

#[test]
fn misspelled_value_is_refused_with_a_suggestion() {
    let desk = ConfigFixture::new();
    let ended = desk.posse(&["config", "edit", "maxTurn", "7"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(3), ""));
    assert!(ended.err.contains("error[CFG002]") && ended.err.contains("maxTurns"), "{}", ended.err);
    assert!(!desk.dir.path().join("home").exists());
    assert_eq!(desk.posse(&["config", "edit", "maxTurns"]).code, Some(2));
}

#[test]
fn config_edit_accepts_another_file() {
    let desk = ConfigFixture::new();
    let ended = desk.posse(&["config", "edit", "--config", "other.json", "model", "m"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let written = fs::read_to_string(desk.dir.path().join("work/other.json")).unwrap();
    assert!(written.contains("\"model\": \"m\""), "{written}");
    let shown = desk.posse(&["config", "show", "--origin", "--config", "other.json"]).out;
    assert!(shown.contains("model = \"m\"  (other.json:4)"), "{shown}");
}

#[test]
fn schema_and_models_print_json() {
    let desk = ConfigFixture::new();
    let schema: Value = serde_json::from_str(&desk.posse(&["config", "schema"]).out).unwrap();
    let retry = &schema["properties"]["retry"]["properties"];
    assert_eq!(retry["maxDelay"]["default"], "30s");
    desk.posse(&["config", "edit", "models.mine.contextWindow", "8192"]);
    let listed: Value = serde_json::from_str(&desk.posse(&["models", "--json"]).out).unwrap();
    let mine = listed["models"].as_array().unwrap().iter().find(|model| model["model"] == "mine");
    assert_eq!(mine.unwrap()["contextWindow"], 8192);
    assert!(desk.posse(&["models"]).out.contains("gpt-5.1"));
}

#[test]
fn config_paths_are_printed_and_nothing_created() {
    let desk = ConfigFixture::new();
    let ended = desk.posse(&["config", "path"]);
    for place in ["/home/config/config.json  (none)", "/home/state/preferences.json  (none)"] {
        assert!(ended.out.contains(place), "{}", ended.out);
    }
    let ended = desk.posse(&["config", "edit"]);
    assert!(ended.out.starts_with("/home/config/config.json  (none yet)"), "{}", ended.out);
    assert!(!desk.dir.path().join("home").exists());
}

#[test]
fn no_arguments_without_a_terminal_is_a_usage_error() {
    let ended = ConfigFixture::new().posse(&[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("Usage"), "{}", ended.err);
}

#[test]
fn saved_choice_applies_only_where_defined() {
    let server = ModelServer::start(vec![says("Hello."), says("Still here."), says("Ok.")]);
    let machine = Machine::with(&server);
    let two = json!({ "baseURL": server.base_url(), "auth": "none", "model": "m-2" });
    machine.write("cfg.json", json!({ "providers": { "two": two } }).to_string());
    let plain = ["plain", "--config", "cfg.json"];
    machine.posse_with_input(&plain, b"/provider two\nhello\n/exit\n").assert_code(0);
    let saved = machine.path("posse/state/preferences.json");
    assert!(fs::read_to_string(&saved).unwrap().contains("\"two\""));

    let ended = machine.posse(&["run", "hi"]);
    ended.assert_code(0);
    assert!(ended.stdout.contains("Still here."), "{}", ended.stdout);
    let said: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("\"two\"")).collect();
    assert_eq!(said.len(), 1, "{}", ended.stderr);
    assert!(said[0].contains("preferences.json") && said[0].contains("posse config forget"));
    // A file named explicitly must exist.
    let ended = machine.posse(&["run", "--provider", "three", "hi"]);
    ended.assert_code(3);
    assert!(ended.stderr.contains("error[CFG024]"), "{}", ended.stderr);

    machine.posse_with_input(&plain, b"/provider default\n/exit\n").assert_code(0);
    assert!(!saved.exists());
    assert!(!machine.posse(&["config", "show"]).stderr.contains("two"));
    let chosen = b"/model m-9\nhello\n/model default\n/exit\n";
    machine.posse_with_input(&["plain"], chosen).assert_code(0);
    let left = fs::read_to_string(&saved).unwrap();
    assert!(!left.contains("m-9"), "{left}");
}

#[test]
fn session_list_counts_replies_of_every_model() {
    let server = ModelServer::start(vec![says("One."), says("Two.")]);
    let machine = Machine::with(&server);
    let lines = b"hello one\nhello two\n/model m2\n/exit\n";
    machine.posse_with_input(&["plain"], lines).assert_code(0);
    let ended = machine.posse(&["sessions", "list", "--json"]);
    let listed: Value = serde_json::from_str(&ended.stdout).unwrap();
    let turns = listed.pointer("/sessions/0/turns").or_else(|| listed.pointer("/0/turns"));
    assert_eq!(turns, Some(&Value::from(2)), "{}", ended.stdout);
}
