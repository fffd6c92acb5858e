//! `posse doctor` on working and broken machines.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::{Value, json};

use crate::posse::{Machine, RunningPosse};

/// Answers one request with this status and body. Returns its first line and its headers.
fn server(status: &str, body: &str) -> (u16, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        stream.write_all(response.as_bytes()).unwrap();
        head
    });
    (port, served)
}

fn machine(port: u16) -> Machine {
    let machine = Machine::new();
    let config = json!({
        "defaultProvider": "local",
        "providers": {"local": {
            "type": "openai-compatible", "baseURL": format!("http://127.0.0.1:{port}/v1"),
            "model": "m-1", "apiKey": "the-key-of-the-user",
        }},
    });
    machine.write_config(&config.to_string());
    machine
}

fn report(machine: &Machine, args: &[&str], code: i32) -> Vec<Value> {
    let ended = machine.posse(&[&["doctor", "--json"], args].concat());
    ended.assert_code(code);
    assert!(!ended.stdout.contains("the-key-of-the-user"), "{}", ended.stdout);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["ok"], json!(code == 0));
    report["checks"].as_array().unwrap().clone()
}

fn check<'a>(checks: &'a [Value], area: &str, name: &str) -> &'a Value {
    let wanted = |check: &&Value| check["area"] == area && check["name"] == name;
    checks.iter().find(wanted).unwrap_or_else(|| panic!("{checks:?}"))
}

#[test]
fn a_working_machine_has_no_problems() {
    // No server listens there; without `--online` none is queried.
    let machine = machine(9);
    let checks = report(&machine, &[], 0);
    assert_eq!(check(&checks, "providers", "for a run")["status"], "good");
    assert_eq!(check(&checks, "sandbox", "commands")["status"], "good");
    let confinement = check(&checks, "sandbox", "confinement");
    assert_eq!(confinement["status"], "good", "{confinement}");
    for wall in ["outside", "own", "network", "signals", "namespaces"] {
        assert_eq!(check(&checks, "sandbox", wall)["status"], "good", "{checks:?}");
    }
    assert!(checks.iter().all(|check| check["area"] != "online"));
    assert!(!machine.path("posse/state").exists(), "it makes nothing");
    let text = machine.posse(&["doctor"]);
    text.assert_code(0);
    assert!(text.stdout.contains("no problems; runs can start"), "{}", text.stdout);
}

#[test]
fn the_sandbox_is_the_one_that_the_environment_selects() {
    let machine = machine(9);
    let doctor = |backend: &str, args: &[&str]| {
        let mut command = machine.command(&[&["doctor"], args].concat());
        command.env("POSSE_SANDBOX_BACKEND", backend);
        RunningPosse::start(command).end()
    };
    let landlock = doctor("landlock", &["--json"]);
    let report: Value = serde_json::from_str(&landlock.stdout).unwrap();
    let confinement = check(report["checks"].as_array().unwrap(), "sandbox", "confinement");
    assert!(confinement.to_string().contains("tier reduced"), "{confinement}");
    for args in [&[][..], &["policies"]] {
        let ended = doctor("bogus", args);
        ended.assert_code(2);
        assert!(ended.stderr.contains("SBX002"), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("one of namespaces, bubblewrap, landlock, nothing"));
    }
    // This sentence of the reference is written by hand.
    let page = machine.posse(&["help", "POSSE_SANDBOX_BACKEND"]).stdout;
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("namespaces, bubblewrap, landlock or nothing"), "{page}");
}

#[test]
fn online_asks_the_configured_server_with_its_key() {
    let (port, served) = server("200 OK", r#"{"data":[{"id":"m-1"}]}"#);
    let checks = report(&machine(port), &["--online"], 0);
    let online = check(&checks, "online", "local");
    assert_eq!(online["detail"], "responds and lists the model m-1");
    let head = served.join().unwrap();
    assert_eq!(head[0], "GET /v1/models HTTP/1.1");
    let key =
        |line: &String| line.eq_ignore_ascii_case("authorization: Bearer the-key-of-the-user");
    assert!(head.iter().any(key), "{head:?}");
    let asked = checks.iter().filter(|check| check["area"] == "online").count();
    assert_eq!(asked, 1, "presets that nobody configured are left alone");
}

#[test]
fn online_suggests_a_fix_for_a_failing_server() {
    let body = r#"{"error":{"message":"wrong key the-key-of-the-user"}}"#;
    let (port, served) = server("401 Unauthorized", body);
    let checks = report(&machine(port), &["--online"], 3);
    served.join().unwrap();
    let online = check(&checks, "online", "local");
    assert_eq!(online["status"], "problem");
    assert!(online["fix"].as_str().unwrap().contains("renew the key"), "{online}");

    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let checks = report(&machine(closed), &["--online"], 3);
    let online = check(&checks, "online", "local");
    assert!(online["fix"].as_str().unwrap().contains("check the network"), "{online}");
}

#[test]
fn a_broken_configuration_is_reported_with_everything_else() {
    let machine = Machine::new();
    machine.write_config("{\"modle\": 1,\n\"maxTurns\": 0}");
    let checks = report(&machine, &["--online"], 3);
    let problems: Vec<_> = checks
        .iter()
        .filter(|check| check["area"] == "configuration" && check["status"] == "problem")
        .collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(check(&checks, "sandbox", "commands")["status"], "good");
}

#[test]
fn policies_are_those_of_the_permission_mode() {
    let machine = Machine::new();
    let effect = |mode: &str, section: &str, what: &str| {
        let config = json!({
            "permissions": [{"tool": "Bash(cargo test:*)", "decision": "allow"}],
            "permissionMode": mode,
        });
        machine.write_config(&config.to_string());
        let ended = machine.posse(&["doctor", "policies", "--json"]);
        ended.assert_code(0);
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        let parts = report[section].as_array().unwrap();
        let found = parts.iter().find(|part| part["what"].as_str().unwrap().contains(what));
        found.unwrap_or_else(|| panic!("{report:#}"))["effect"].as_str().unwrap().to_owned()
    };
    for (name, change, each_time, start, allows) in [
        ("plan", "deny", "deny", "start: ask", "unused"),
        ("ask", "ask", "ask", "start: ask", "allow"),
        ("edits", "allow", "ask", "start: ask", "allow"),
        ("auto", "allow", "ask", "start: allow, at another provider ask", "allow"),
        ("locked", "deny", "deny", "start: deny", "allow"),
    ] {
        assert_eq!(effect(name, "otherwise", "changing files"), change, "{name}");
        assert_eq!(effect(name, "eachTime", "unprotect"), each_time, "{name}");
        assert_eq!(effect(name, "agents", "worker"), start, "{name}");
        assert_eq!(effect(name, "rules", "cargo test"), allows, "{name}");
    }
}

#[test]
fn policies_show_each_part_with_its_source() {
    let machine = Machine::new();
    let config = json!({
        "permissions": [
            {"tool": "Bash(cargo test:*)", "decision": "allow"},
            {"tool": "bash", "match": {"commandPrefix": "npm"}, "decision": "deny", "reason": "no"},
        ],
        "sandbox": {"network": "deny"},
        "hooks": [{"event": "PreToolUse", "name": "lint", "command": ["true"], "onFailure": "block"}],
    });
    machine.write_config(&config.to_string());
    machine.write(
        ".posse/config.json",
        r#"{"permissions": [{"tool": "edit_file", "decision": "ask"}]}"#,
    );
    machine.write(
        ".posse/agents/checker.md",
        "---\ndescription: Checks.\ntools: [grep]\n---\nCheck.\n",
    );
    let ended = machine.posse(&["doctor", "policies", "--json"]);
    ended.assert_code(0);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let part = |section: &str, what: &str| {
        let parts = report[section].as_array().unwrap();
        let found = parts.iter().find(|part| part["what"].as_str().unwrap().contains(what));
        found.unwrap_or_else(|| panic!("{section}: {what}: {report:#}")).clone()
    };
    assert_eq!(part("never", "secret files")["effect"], "deny");
    assert_eq!(part("eachTime", "protected files")["effect"], "ask");
    // Denials come first, whatever the order in the file.
    assert_eq!(report["rules"][0]["effect"], "deny");
    let allow = part("rules", "cargo test");
    assert!(allow["from"].as_str().unwrap().contains("config.json"), "{allow}");
    let network = part("confinement", "sandbox.network");
    assert!(network["from"].as_str().unwrap().contains("config.json"), "{network}");
    assert_eq!(part("trust", "settings, agents and skills")["effect"], "not trusted");
    assert_eq!(part("trust", "setting permissions")["effect"], "ignored");
    assert_eq!(part("trust", "agent checker")["effect"], "ignored");
    assert!(part("agents", "plan")["what"].as_str().unwrap().contains("read-only"));
    assert_eq!(part("hooks", "lint")["effect"], "may deny");
    let example = |command: &str| {
        let examples = report["examples"].as_array().unwrap();
        examples.iter().find(|one| one["command"] == command).unwrap()["decision"].clone()
    };
    assert_eq!(example("npm install"), "deny");
    assert_eq!(example("rm -rf build"), "ask");
    assert_eq!(example("sudo rm -rf /"), "deny");

    // With trust, the project's rule counts too, and its agent is there.
    let ended = machine.posse(&["doctor", "policies", "--trust-project"]);
    ended.assert_code(0);
    let text = &ended.stdout;
    assert!(text.contains("ask    edit_file (the trusted project)"), "{text}");
    assert!(text.contains("checker: tools grep"), "{text}");
    assert!(text.contains("1. never allowed") && text.contains("--trust-project"), "{text}");
}
