//! Environment variables whose values providers of a trusted project may receive.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::posse::{FinishedRun, Machine, RunningPosse};

/// Value of the variable.
const VALUE: &str = "value-of-the-shared-token";

/// A provider that refuses one request and returns its headers.
fn refusing_provider() -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let headers: Vec<String> =
            lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        let answer =
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).unwrap();
        headers
    });
    (url, served)
}

/// A project that adds a provider at `url` with the key of the user's variable.
fn project(url: &str) -> Machine {
    let machine = Machine::new();
    let provider = json!({
        "type": "openai-compatible", "baseURL": url, "model": "m", "apiKeyEnv": "SHARED_TOKEN",
    });
    let settings = json!({"defaultProvider": "theirs", "providers": {"theirs": provider}});
    machine.write(".posse/config.json", settings.to_string());
    machine
}

fn digest(machine: &Machine) -> String {
    let shown = machine.posse(&["trust", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    shown["sha256"].as_str().unwrap().to_owned()
}

fn run(machine: &Machine, args: &[&str]) -> FinishedRun {
    let mut command = machine.command(&[&["run", "hello"], args].concat());
    command.env("SHARED_TOKEN", VALUE);
    RunningPosse::start(command).end()
}

#[test]
fn trusted_project_receives_no_variable_that_was_not_allowed() {
    for for_this_run in [true, false] {
        let (url, served) = refusing_provider();
        let machine = project(&url);
        if !for_this_run {
            machine.posse(&["trust", "add", "--accept", &digest(&machine)]).assert_code(0);
        }
        let ended = run(&machine, if for_this_run { &["--trust-project"] } else { &[] });
        assert_ne!(ended.code, Some(0));
        let notice = "\"providers.theirs.apiKeyEnv\" not used: `posse trust add` asks";
        assert!(ended.stderr.contains(notice), "{}", ended.stderr);
        let headers = served.join().unwrap();
        assert!(headers[0].starts_with("POST /v1/"), "{headers:?}");
        let sent = |line: &String| line.contains(VALUE) || line.starts_with("authorization");
        assert!(!headers.iter().any(sent), "{headers:?}");
        if !for_this_run {
            let shown = machine.posse(&["config", "show", "--origin"]).stdout;
            assert!(shown.contains("variable not allowed: ignored"), "{shown}");
        }
    }
}

#[test]
fn allowed_variable_is_sent_until_the_project_changes() {
    let (url, served) = refusing_provider();
    let machine = project(&url);
    let digest = digest(&machine);
    let unknown = ["trust", "add", "--accept", &digest, "--send-variable", "HOME"];
    let ended = machine.posse(&unknown);
    ended.assert_code(2);
    assert!(ended.stderr.contains("TRU008"), "{}", ended.stderr);
    let add = ["trust", "add", "--accept", &digest, "--send-variable", "SHARED_TOKEN", "--json"];
    let added: Value = serde_json::from_str(&machine.posse(&add).stdout).unwrap();
    assert_eq!(added["variables"], json!(["SHARED_TOKEN"]));
    let ended = run(&machine, &[]);
    assert_ne!(ended.code, Some(0));
    let headers = served.join().unwrap();
    let expected = format!("authorization: Bearer {VALUE}");
    assert!(headers.iter().any(|line| line.eq_ignore_ascii_case(&expected)), "{headers:?}");

    let changed = machine.read(".posse/config.json") + "\n";
    machine.write(".posse/config.json", changed);
    let ended = run(&machine, &[]);
    assert!(ended.stderr.contains("changed since you trusted this project"), "{}", ended.stderr);
}

#[test]
fn each_variable_is_a_question_of_its_own() {
    let machine = project("http://127.0.0.1:9/v1");
    for (answers, allowed) in [("y\\nn\\n", json!([])), ("y\\ny\\n", json!(["SHARED_TOKEN"]))] {
        // A terminal to ask on.
        let line = format!("printf '{answers}' | script -qec \"$0 trust add\" /dev/null");
        let ended = RunningPosse::start(machine.shell(&line)).end();
        let question = "send the value of SHARED_TOKEN to http://127.0.0.1:9/v1? [y/N]";
        assert!(ended.stdout.contains(question), "{}{}", ended.stdout, ended.stderr);
        let shown = machine.posse(&["trust", "show", "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!((&shown["state"], &shown["trustedVariables"]), (&json!("trusted"), &allowed));
    }
}
