//! Permission requests that are answered for the agent that asks.

use std::io::Write;
use std::process::{ChildStdin, Stdio};

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says};
use crate::plain::Terminal;
use crate::posse::{Machine, RunningPosse};

fn writes(path: &str) -> ModelAnswer {
    calls(&[("write_file", json!({"path": path, "content": "x"}))])
}

/// Two subagents of the same name, one after the other: the first makes two changes in a folder,
/// the second one.
fn two_workers() -> ModelServer {
    let delegates = || calls(&[("delegate_agent", json!({"agent": "worker", "task": "write"}))]);
    ModelServer::start(vec![
        delegates(),
        writes("d/a"),
        writes("d/b"),
        says("First."),
        delegates(),
        writes("d/c"),
        says("Second."),
        says("Done."),
    ])
}

fn multi_agent(server: &ModelServer) -> Machine {
    Machine::configured(server, &json!({"agentMode": "multi-agent"}), &json!({}))
}

fn start(machine: &Machine) -> (RunningPosse, ChildStdin) {
    let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&[&formats[..], &["write"]].concat());
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let stdin = running.take_stdin();
    (running, stdin)
}

fn answer(stdin: &mut ChildStdin, question: &Value, scope: &str) {
    let id = &question["requestId"];
    let answer = json!({
        "type": "permission.answer", "requestId": id, "decision": "allow", "scope": scope,
    });
    writeln!(stdin, "{answer}").unwrap();
}

#[test]
fn an_answer_for_an_agent_covers_its_next_call_and_not_that_of_its_successor() {
    let server = two_workers();
    let machine = multi_agent(&server);
    let (mut running, mut stdin) = start(&machine);
    let mut asked = Vec::new();
    // The start of each subagent, and one change of each.
    for scope in ["once", "agent", "once", "once"] {
        let question = running.wait_for("permission.requested");
        answer(&mut stdin, &question, scope);
        asked.push(question);
    }
    drop(stdin);
    let ended = running.end();
    ended.assert_code(0);
    let subjects: Vec<_> = asked.iter().map(|one| one["summary"].as_str().unwrap()).collect();
    assert!(subjects[1].contains("d/a") && subjects[3].contains("d/c"), "{subjects:?}");
    assert_eq!(asked[1]["scopes"], json!(["once", "agent", "session", "project"]));
    assert_eq!(asked[1]["agentPath"], asked[3]["agentPath"]);
    let granted = ended.events().into_iter().find(|event| event["scope"] == "agent").unwrap();
    let whose = json!({"agentPath": "build/worker", "invocationId": asked[1]["invocationId"]});
    assert_eq!(
        (&granted["type"], &granted["grant"]["agent"]),
        (&json!("permission.granted"), &whose)
    );
    assert_ne!(asked[1]["invocationId"], asked[3]["invocationId"]);
    for path in ["d/a", "d/b", "d/c"] {
        assert_eq!(machine.read(path), "x", "{path}");
    }
    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let exported = machine.posse(&["sessions", "export", &id]);
    exported.assert_code(0);
    let text = "allowed by user, for this agent until the session ends: write in ";
    assert!(exported.stdout.contains(text), "{}", exported.stdout);
    machine.verify();
}

#[test]
fn line_mode_offers_the_agent_and_lists_its_grant() {
    let server = two_workers();
    let machine = multi_agent(&server);
    let mut terminal = Terminal::run(&machine, &["plain", "--permission-mode", "ask"], "xterm");
    terminal.see("> ");
    terminal.press("write\r");
    for (about, key) in [("worker", "y"), ("d/a", "i"), ("worker", "y"), ("d/c", "y")] {
        terminal.see(about);
        terminal.see("[y] once  ");
        terminal.see("[i] for this agent  [s] for this session  ");
        terminal.press(&format!("{key}\r"));
    }
    terminal.see("Done.");
    terminal.see("> ");
    assert_eq!(machine.read("d/b"), "x");
    terminal.press("/permissions\r");
    terminal.see("allowed until this session ends");
    terminal.see("/d (for build/worker #");
    terminal.see(" alone)");
    terminal.see("> ");
    terminal.press("\u{4}");
    assert_eq!(terminal.end(), Some(0));
    machine.verify();
}

#[test]
fn a_session_with_one_agent_offers_no_answer_for_the_agent() {
    let server = ModelServer::start(vec![writes("d/a"), says("Done.")]);
    let machine = Machine::with(&server);
    let (mut running, mut stdin) = start(&machine);
    let question = running.wait_for("permission.requested");
    assert_eq!(question["scopes"], json!(["once", "session", "project"]));
    answer(&mut stdin, &question, "agent");
    let warning = running.wait_for("warning");
    let text = warning["message"].as_str().unwrap();
    assert!(text.contains("does not offer the scope `agent`"), "{text}");
    assert!(!machine.work("d/a").exists());
    answer(&mut stdin, &question, "once");
    drop(stdin);
    running.end().assert_code(0);
    assert_eq!(machine.read("d/a"), "x");
}
