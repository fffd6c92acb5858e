//! A session driven by another program: a small client, and the clients in the guide.

use std::fs;
use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};

use serde_json::{Value, json};

use crate::model_server::{
    ModelAnswer, ModelServer, calls, runs, says, stream_bytes, text_event, text_of,
};
use crate::posse::{FinishedRun, Machine, RunningPosse};

/// A client that sends instructions and receives events.
struct Client {
    running: RunningPosse,
    stdin: ChildStdin,
}

impl Client {
    fn start(machine: &Machine, args: &[&str]) -> Client {
        let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
        let mut command = machine.command(&[&formats, args].concat());
        command.stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let stdin = running.take_stdin();
        Client { running, stdin }
    }

    fn send(&mut self, instruction: &Value) {
        self.send_line(&instruction.to_string());
    }

    fn send_line(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn message(&mut self, text: &str) {
        self.send(&json!({"type": "message", "content": text}));
    }

    fn answer(&mut self, question: &Value, more: &Value) {
        let mut answer = json!({"type": "permission.answer", "requestId": question["requestId"]});
        for (key, value) in more.as_object().unwrap() {
            answer[key] = value.clone();
        }
        self.send(&answer);
    }

    fn wait_for(&mut self, kind: &str) -> Value {
        self.running.wait_for(kind)
    }

    /// Closes standard input and waits for the exit.
    fn close(self) -> FinishedRun {
        drop(self.stdin);
        self.running.end()
    }
}

#[track_caller]
fn assert_last(ended: &FinishedRun, reason: &str, code: i32) -> Value {
    ended.assert_code(code);
    let last = ended.events().pop().expect("no events");
    assert_eq!((&last["type"], &last["reason"]), (&json!("session.ended"), &json!(reason)));
    assert_eq!(last["exitCode"], code);
    last
}

#[test]
fn change_of_the_permission_mode_decides_open_requests_and_later_calls() {
    let write = |path: &str| calls(&[("write_file", json!({"path": path, "content": "x"}))]);
    let server = ModelServer::start(vec![
        write("covered"),
        says("one"),
        runs("sh -c 'touch denied'"),
        says("two"),
        write("planned"),
        says("three"),
    ]);
    let machine = Machine::with(&server);
    let mut client = Client::start(&machine, &[]);
    let mode = |mode: &str| json!({"type": "permission.mode", "mode": mode});
    client.message("one");
    client.wait_for("permission.requested");
    client.send(&mode("edits"));
    let changed = client.wait_for("permission.mode_changed");
    assert_eq!((&changed["from"], &changed["mode"]), (&json!("ask"), &json!("edits")));
    let withdrawn = client.wait_for("permission.withdrawn");
    assert!(withdrawn["reason"].as_str().unwrap().contains("permission mode"), "{withdrawn}");
    client.wait_for("agent.invocation.completed");
    // A command is still asked about, and runs without effect once the mode is `plan`.
    client.message("two");
    client.wait_for("permission.requested");
    client.send(&mode("plan"));
    client.wait_for("permission.withdrawn");
    client.wait_for("agent.invocation.completed");
    client.message("three");
    client.wait_for("tool.failed");
    client.wait_for("agent.invocation.completed");
    client.close().assert_code(0);
    let written = ["covered", "denied", "planned"].map(|name| machine.work(name).exists());
    assert_eq!(written, [true, false, false], "{:#?}", server.tool_results());
    assert!(server.tool_results()[2].contains("permission mode: plan"));
    machine.verify();
}

#[test]
fn client_prompts_twice_and_answers_a_permission_request() {
    let server = ModelServer::start(vec![
        runs("echo made > made.txt; echo secret-of-the-first-run"),
        says("Made it."),
        says("I remember."),
    ]);
    let machine = Machine::with(&server);
    let mut client = Client::start(&machine, &[]);
    client.message("make it");
    let question = client.wait_for("permission.requested");
    assert_eq!(question["tool"], "bash");
    client.answer(&question, &json!({"decision": "allow", "scope": "once"}));
    assert_eq!(client.wait_for("permission.granted")["by"], "user");
    assert_eq!(client.wait_for("agent.invocation.completed")["result"], "Made it.");
    client.send(&json!({"type": "message", "content": [{"type": "text", "text": "remember?"}]}));
    client.wait_for("agent.invocation.completed");
    let last = assert_last(&client.close(), "completed", 0);
    assert_eq!((&last["turns"], &last["result"]), (&json!(3), &json!("I remember.")));
    assert_eq!(machine.read("made.txt"), "made\n");
    // The second prompt includes the tool results of the first one.
    assert!(server.tool_results()[0].contains("secret-of-the-first-run"));
    machine.verify();
}

#[test]
fn denial_reason_reaches_the_model() {
    let server = ModelServer::start(vec![runs("rm -r ."), says("Then not.")]);
    let machine = Machine::with(&server);
    let mut client = Client::start(&machine, &["clean up"]);
    let question = client.wait_for("permission.requested");
    client.answer(&question, &json!({"decision": "deny", "reason": "too much at once"}));
    client.wait_for("agent.invocation.completed");
    assert_last(&client.close(), "completed", 0);
    assert!(server.tool_results()[0].contains("too much at once"), "{:?}", server.tool_results());
}

#[test]
fn steering_enters_after_the_calls_and_a_follow_up_after_the_answer() {
    let server =
        ModelServer::start(vec![runs("touch made"), says("Left, then."), says("Tested, too.")]);
    let machine = Machine::with(&server);
    let mut client = Client::start(&machine, &["go"]);
    let question = client.wait_for("permission.requested");
    client.send(&json!({"type": "steer", "content": "turn left"}));
    client.wait_for("message.queued");
    client.send(&json!({"type": "follow_up", "content": "and test it"}));
    client.wait_for("message.queued");
    client.answer(&question, &json!({"decision": "allow"}));
    let completed = client.wait_for("agent.invocation.completed");
    assert_eq!(completed["result"], "Tested, too.");
    assert_last(&client.close(), "completed", 0);
    let texts = |nth: usize| -> Vec<String> {
        let messages = server.requests()[nth]["messages"].as_array().unwrap().clone();
        messages[1..].iter().map(|message| text_of(&message["content"])).collect()
    };
    assert_eq!(texts(1).last().unwrap(), "turn left");
    assert_eq!(texts(2)[texts(2).len() - 2..], ["Left, then.", "and test it"]);
}

#[test]
fn interrupt_stops_the_turn_and_not_the_session() {
    let cut = ModelAnswer::Hold(stream_bytes(text_event("so far").as_bytes()));
    let server = ModelServer::start(vec![cut, says("Again.")]);
    let machine = Machine::with(&server);
    let mut client = Client::start(&machine, &["long work"]);
    client.wait_for("model.text.delta");
    client.send(&json!({"type": "interrupt"}));
    client.wait_for("agent.invocation.cancelled");
    // No task runs: a steering message becomes the next prompt.
    client.send(&json!({"type": "steer", "content": "once more"}));
    assert_eq!(client.wait_for("agent.invocation.completed")["result"], "Again.");
    assert_last(&client.close(), "completed", 0);
    machine.verify();
}

#[test]
fn last_prompt_determines_the_exit_code() {
    let cut = ModelAnswer::Hold(stream_bytes(text_event("so far").as_bytes()));
    let server = ModelServer::start(vec![says("Fine."), cut]);
    let machine = Machine::with(&server);
    let mut client = Client::start(&machine, &["one"]);
    client.wait_for("agent.invocation.completed");
    client.message("two");
    client.wait_for("model.text.delta");
    client.send(&json!({"type": "interrupt"}));
    client.wait_for("agent.invocation.cancelled");
    assert_last(&client.close(), "interrupted", 130);
}

#[test]
fn invalid_lines_are_reported_and_the_run_continues() {
    let server = ModelServer::start(vec![runs("touch made"), says("Done.")]);
    let machine = Machine::with(&server);
    let mut client = Client::start(&machine, &["go"]);
    let question = client.wait_for("permission.requested");
    let mut complaint = |line: &str| {
        client.send_line(line);
        client.wait_for("warning")["message"].as_str().unwrap().to_owned()
    };
    assert!(complaint("nonsense").starts_with("standard input, line 1: "));
    let unknown = complaint(r#"{"type":"mesage","content":"x"}"#);
    assert!(unknown.contains("line 2") && unknown.contains("`mesage`"), "{unknown}");
    let busy = complaint(r#"{"type":"message","content":"another"}"#);
    assert!(busy.contains("line 3") && busy.contains("steer"), "{busy}");
    let stale = r#"{"type":"permission.answer","requestId":"q0","decision":"allow"}"#;
    let stale = complaint(stale);
    assert!(stale.contains("line 4") && stale.contains("q0"), "{stale}");
    let scope = format!(
        r#"{{"type":"permission.answer","requestId":{},"decision":"allow","scope":"global"}}"#,
        question["requestId"]
    );
    let scope = complaint(&scope);
    assert!(scope.contains("line 5") && scope.contains("\"confirm\": \"global\""), "{scope}");
    let long = complaint(&"x".repeat((4 << 20) + 1));
    assert!(long.contains("line 6") && long.contains("longer than"), "{long}");
    client.answer(&question, &json!({"decision": "allow"}));
    client.wait_for("agent.invocation.completed");
    assert_last(&client.close(), "completed", 0);
}

#[test]
fn permission_request_at_end_of_input_is_denied() {
    let server = ModelServer::start(vec![runs("touch x"), runs("touch y"), says("Not allowed.")]);
    let machine = Machine::with(&server);
    let input = b"{\"type\":\"message\",\"content\":\"touch\"}";
    let args = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let ended = machine.posse_with_input(&args, input);
    let last = assert_last(&ended, "permission", 4);
    assert_eq!(last["result"], "Not allowed.");
    assert!(!machine.work("x").exists() && !machine.work("y").exists());
    assert!(server.tool_results()[0].contains("no user can be asked"));
}

#[test]
fn missing_task_and_mismatched_formats_are_usage_errors() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let args = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let ended = machine.posse_with_input(&args, b"\n");
    assert_last(&ended, "failed", 2);
    assert!(ended.stderr.contains("error[CLI002]"), "{}", ended.stderr);
    let ended = machine.posse_with_input(&args[..3], b"");
    ended.assert_code(2);
    assert!(ended.stderr.contains("--output-format stream-json"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

/// The code block of a guide that starts with this line.
fn block(guide: &str, first: &str) -> String {
    let text = fs::read_to_string(format!("{}/docs/guide/{guide}", env!("CARGO_MANIFEST_DIR")));
    let text = text.unwrap();
    let begin = text.find(first).unwrap_or_else(|| panic!("no {first:?} in {guide}"));
    let end = begin + text[begin..].find("\n```").unwrap() + 1;
    text[begin..end].to_owned()
}

/// Runs a script of a guide as a reader of the guide would.
fn follow(machine: &Machine, interpreter: &str, script: &str, args: &[&str]) -> FinishedRun {
    let file = machine.path("tmp/script");
    fs::write(&file, script).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_posse")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new(interpreter);
    command
        .arg(file)
        .args(args)
        .current_dir(machine.path("work"))
        .env("PATH", format!("{}:{path}", program.display()))
        .env("POSSE_HOME", machine.path("posse"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    RunningPosse::start(command).end()
}

#[test]
fn python_client_of_the_guide_works() {
    let server = ModelServer::start(vec![
        runs("ls"),
        runs("cargo test; rm a.txt"),
        says("One file: a.txt."),
        says("That one."),
    ]);
    let machine = Machine::with(&server);
    machine.write("a.txt", "a");
    let ended = follow(&machine, "python3", &block("scripting.md", "#!/usr/bin/env python3"), &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "One file: a.txt.\nThat one.\n");
    let results = server.tool_results();
    assert!(
        results[0].contains("a.txt") && results[1].contains("run the tests only"),
        "{results:?}"
    );
    assert!(machine.work("a.txt").exists());
}

#[test]
fn shell_client_of_the_guide_works() {
    let server = ModelServer::start(vec![
        calls(&[("write_file", json!({"path": "a.txt", "content": "a\n"}))]),
        runs("touch b.txt"),
        says("Wrote a.txt."),
    ]);
    let machine = Machine::with(&server);
    let script = block("scripting.md", "#!/usr/bin/env bash");
    let ended = follow(&machine, "bash", &script, &["write \"a\""]);
    assert_eq!(
        (ended.stdout.as_str(), ended.code),
        ("Wrote a.txt.\n", Some(0)),
        "{}",
        ended.stderr
    );
    assert_eq!(machine.read("a.txt"), "a\n");
    assert!(!machine.work("b.txt").exists());
    assert_eq!(text_of(&server.requests()[0]["messages"][1]["content"]), "write \"a\"");
}

#[test]
fn parts_of_a_list_are_granted_one_after_the_other() {
    let line = "ls && touch one && mkdir two";
    let server = ModelServer::start(vec![runs(line), runs(line), says("Done.")]);
    let machine = Machine::with(&server);
    let mut client = Client::start(&machine, &["go"]);
    for (part, rest) in [("touch one", true), ("mkdir two", false)] {
        let question = client.wait_for("permission.requested");
        let reason = question["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("a saved answer allows `{part}`")), "{reason}");
        assert!(!reason.contains("`ls`"), "{reason}");
        assert_eq!(reason.contains("the rest is asked next"), rest, "{reason}");
        assert!(!machine.work("two").exists());
        client.answer(&question, &json!({"decision": "allow", "scope": "session"}));
        let granted = client.wait_for("permission.granted");
        assert_eq!(granted["grant"]["target"], part);
        assert_eq!(granted["grantsPart"].as_bool().unwrap_or_default(), rest);
    }
    client.wait_for("agent.invocation.completed");
    assert_last(&client.close(), "completed", 0);
    assert!(machine.work("two").exists());
    // The second call needs no answer, and fails because the folder exists.
    assert!(server.tool_results()[1].contains("exists"), "{:?}", server.tool_results());
    machine.verify();
    let dir = machine.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap();
    machine.posse(&["replay", id]).assert_code(0);
}
