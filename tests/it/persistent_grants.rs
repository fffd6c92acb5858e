//! Permissions that outlive a session: who they count for, how they end, and what happens to
//! those that a tool writes itself.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::{Machine, RunningPosse, side_by_side};

fn write(path: &str) -> crate::model_server::ModelAnswer {
    calls(&[("write_file", json!({"path": path, "content": "x\n"}))])
}

/// Runs a task whose questions are all answered like this. Returns the events.
fn answering(machine: &Machine, answer: &Value) -> Vec<Value> {
    let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&formats);
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    writeln!(stdin, r#"{{"type":"message","content":"go"}}"#).unwrap();
    while let Some(line) = running.next_line() {
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["type"] == "permission.requested" {
            let mut answer = answer.clone();
            answer["type"] = json!("permission.answer");
            answer["requestId"] = event["requestId"].clone();
            writeln!(stdin, "{answer}").unwrap();
        }
        if event["type"] == "agent.invocation.completed" {
            break;
        }
    }
    drop(stdin);
    let ended = running.end();
    ended.assert_code(0);
    ended.events()
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

/// The only kept grant there is.
fn kept(machine: &Machine) -> Value {
    let listed = machine.posse(&["grants", "list", "--json"]);
    listed.assert_code(0);
    let rows: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    rows[0].clone()
}

#[test]
fn project_grant_applies_in_the_next_session_until_revoked() {
    let script = || vec![write("src/a.rs"), says("done")];
    let server = ModelServer::start(script());
    let machine = Machine::with(&server);
    let events = answering(&machine, &json!({"decision": "allow", "scope": "project"}));
    assert_eq!(count(&events, "permission.requested"), 1);
    let row = kept(&machine);
    assert_eq!((&row["scope"], &row["counts"]), (&json!("project"), &json!(true)));
    assert_eq!(row["target"], machine.work("src").display().to_string());

    // No person is available, and none is needed.
    let again = |code| {
        let server = ModelServer::start(script());
        machine.write_config(&config(&server));
        fs::remove_file(machine.work("src/a.rs")).ok();
        machine.posse(&["run", "go"]).assert_code(code);
        assert_eq!(machine.work("src/a.rs").exists(), code == 0);
    };
    again(0);
    let id = row["id"].as_str().unwrap();
    machine.posse(&["grants", "revoke", id]).assert_code(0);
    again(4);
    machine.posse(&["grants", "revoke", id]).assert_code(2);
    machine.verify();
}

fn config(server: &ModelServer) -> String {
    let provider = json!({
        "type": "openai-compatible", "baseURL": server.base_url(), "model": "scripted-1",
        "auth": "none",
    });
    json!({"defaultProvider": "local", "patience": "5s", "providers": {"local": provider}})
        .to_string()
}

#[test]
fn disabled_grant_storage_stores_nothing() {
    for (settings, flag) in [
        (json!({"persistentGrants": {"enabled": false}}), None),
        (json!({"persistentGrants": {"scope": "session"}}), None),
        (json!({"persistentGrants": {"ttlMs": 0}}), None),
        (json!({}), Some("--no-persistent-grants")),
    ] {
        let server = ModelServer::start(vec![write("src/a.rs"), says("done")]);
        let machine = Machine::configured(&server, &settings, &json!({}));
        let args: Vec<&str> = flag.into_iter().chain(["go"]).collect();
        let mut running = machine.start(&[&args[..], &["--input-format", "stream-json"]].concat());
        let asked = running.wait_for("permission.requested");
        assert_eq!(asked["scopes"], json!(["once", "session"]), "{settings} {flag:?}");
        running.end();
        assert!(!machine.path("posse/state/authority").exists());
    }
}

#[test]
fn self_permission_tool_write_into_the_grants_is_an_alarm() {
    // CVE-2025-53773, self-permission: the agent writes the setting that approves itself.
    let append = |what: &str| format!("{what} >> \"$GRANTS\"");
    let forge = r##"sed -i 's#/src"#"#' "$GRANTS""##;
    for harm in [append("echo '{\"v\":1}'"), forge.to_owned(), "rm \"$GRANTS\"".to_owned()] {
        let server = ModelServer::start(vec![write("src/a.rs"), says("done")]);
        let machine = Machine::with(&server);
        answering(&machine, &json!({"decision": "allow", "scope": "project"}));
        let grants = machine.path("posse/state/authority/grants");
        let harm = harm.replace("$GRANTS", &grants.display().to_string());
        let server =
            ModelServer::start(vec![write("src/b.rs"), runs(&harm), write("src/c.rs"), says("x")]);
        // Confined, it could not reach them.
        let mut config: Value = serde_json::from_str(&config(&server)).unwrap();
        config["sandbox"] = json!({"mode": "off"});
        machine.write_config(&config.to_string());
        let events = answering(&machine, &json!({"decision": "allow", "scope": "once"}));
        let asked: Vec<&str> = events
            .iter()
            .filter(|event| event["type"] == "permission.requested")
            .map(|event| event["tool"].as_str().unwrap())
            .collect();
        assert_eq!(asked, ["bash", "write_file"], "the second write is asked about again: {harm}");
        let alarms: Vec<&Value> = events
            .iter()
            .filter(|event| event["type"] == "warning")
            .map(|event| &event["message"])
            .collect();
        assert_eq!(alarms.len(), 1, "{events:?}");
        assert!(alarms[0].as_str().unwrap().starts_with("CFG010: refusing to trust"), "{alarms:?}");
    }
}

#[test]
fn a_file_with_other_permissions_is_refused_with_the_fix() {
    use std::os::unix::fs::PermissionsExt;
    let server = ModelServer::start(vec![write("src/a.rs"), says("done")]);
    let machine = Machine::with(&server);
    answering(&machine, &json!({"decision": "allow", "scope": "project"}));
    let grants = machine.path("posse/state/authority/grants");
    fs::set_permissions(&grants, fs::Permissions::from_mode(0o666)).unwrap();
    let ended = machine.posse(&["grants", "list"]);
    ended.assert_code(3);
    let text = ended.stderr.replace(&grants.display().to_string(), "/state/authority/grants");
    insta::assert_snapshot!(text, @r"
    error[CFG010]: refusing to trust /state/authority/grants: others can read or change it (mode 0666)
      fix: chmod 600 /state/authority/grants
    ");
    let server = ModelServer::start(vec![write("src/b.rs"), says("done")]);
    machine.write_config(&config(&server));
    let ended = machine.posse(&["run", "go"]);
    ended.assert_code(4);
    assert!(ended.stderr.contains("CFG010: refusing to trust"), "{}", ended.stderr);
    fs::set_permissions(&grants, fs::Permissions::from_mode(0o600)).unwrap();
    let server = ModelServer::start(vec![write("src/b.rs"), says("done")]);
    machine.write_config(&config(&server));
    machine.posse(&["run", "go"]).assert_code(0);
}

#[test]
fn concurrent_processes_keep_both_grants() {
    let machine = Machine::new();
    side_by_side(0..4, |nth| {
        let server = ModelServer::start(vec![write(&format!("dir{nth}/a.rs")), says("done")]);
        let file = machine.path(&format!("config{nth}.json"));
        fs::write(&file, config(&server)).unwrap();
        let file = file.display().to_string();
        let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
        let mut command = machine.command(&[&formats[..], &["--config", &file, "go"]].concat());
        command.stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let mut stdin = running.take_stdin();
        let asked = running.wait_for("permission.requested");
        let id = &asked["requestId"];
        let answer = json!({"type": "permission.answer", "requestId": id, "decision": "allow",
            "scope": "project"});
        writeln!(stdin, "{answer}").unwrap();
        running.wait_for("agent.invocation.completed");
        drop(stdin);
        running.end().assert_code(0);
    });
    let listed = machine.posse(&["grants", "list", "--json"]);
    let rows: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 4, "{rows}");
}

#[test]
fn command_text_never_becomes_an_option() {
    // Output that imitates a sandbox error is ordinary output.
    let says_so = "echo 'bash: permission denied (sandbox: operation not permitted)'; exit 1";
    let server = ModelServer::start(vec![runs(says_so), says("done")]);
    let machine = Machine::with(&server);
    let events = answering(&machine, &json!({"decision": "allow", "scope": "once"}));
    assert_eq!(count(&events, "permission.requested"), 1);
    let result = &server.tool_results()[0];
    assert!(result.contains("permission denied"), "{result}");
    for offer in ["--sandbox off", "without the sandbox", "escalat", "retry"] {
        assert!(!result.to_lowercase().contains(offer), "{offer}: {result}");
        let offered = |event: &Value| {
            event["type"] != "tool.completed" && event.to_string().to_lowercase().contains(offer)
        };
        assert!(!events.iter().any(offered), "{offer}");
    }
}

#[test]
fn project_deny_rules_apply_with_user_allow_rules() {
    let machine = Machine::new();
    let rules = json!([
        { "tool": "bash", "decision": "allow" },
        { "tool": "Bash(ls:*)", "decision": "deny" },
    ]);
    let config = json!({ "permissions": rules }).to_string();
    machine.write(".posse/config.json", &config);
    let judged = |command: &str| {
        let ended = machine.posse(&["permissions", "check", command]);
        let judged: Value = serde_json::from_str(&ended.stdout).unwrap();
        (judged, ended.stderr)
    };
    let (before, notices) = judged("ls");
    assert_ne!(before["decision"], "deny", "not trusted yet");
    assert!(notices.contains("its rules that deny or ask are not in force either"), "{notices}");

    let shown: Value =
        serde_json::from_str(&machine.posse(&["trust", "show", "--json"]).stdout).unwrap();
    assert_eq!(shown["state"], "not trusted");
    let fates = shown["settings"].as_array().unwrap().iter().map(|row| &row["fate"]);
    assert_eq!(fates.collect::<Vec<_>>(), ["waits", "refused"]);
    let sha256 = shown["sha256"].as_str().unwrap();
    machine.posse(&["trust", "add", "--accept", sha256]).assert_code(0);

    let (after, notices) = judged("ls");
    assert_eq!(after["decision"], "deny");
    assert!(after.to_string().contains("the project's rules deny it"), "{after}");
    assert!(notices.contains("CFG005"), "{notices}");
    let (other, _) = judged("curl example.com");
    assert_ne!(other["decision"], "allow", "a repository widens nothing");

    machine.write(".posse/config.json", format!("{config} "));
    let (changed, notices) = judged("ls");
    assert_eq!(changed["decision"], before["decision"]);
    assert!(notices.contains("changed since you trusted this project"), "{notices}");
}
