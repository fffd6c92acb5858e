//! A session with many agents from beginning to end: two explore in parallel, one writes in a
//! worktree and asks at the root, posse is killed and resumed, the changes are merged, and the cost
//! equals the server's count.

use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says};
use crate::posse::{FinishedRun, Machine, RunningPosse};
use crate::worktree::{git, id_in, machine_with, task, texts};

/// $1 per million input tokens, $10 per million output tokens, in micro-USD; the server reports 100
/// and 10 for each request.
const NANO_USD_FOR_A_REQUEST: usize = 100 * 1000 + 10 * 10_000;

/// Next action of each of the four agents.
fn next(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    let gives = |agent: &str, task: &str| ("delegate_agent", json!({"agent": agent, "task": task}));
    match (task(request).as_str(), results.len()) {
        ("mend it", 0) => calls(&[gives("explore", "find it"), gives("reviewer", "judge it")]),
        ("mend it", 2) => {
            let (tool, mut arguments) = gives("worker", "write it");
            arguments["isolation"] = json!("worktree");
            calls(&[(tool, arguments)])
        }
        ("mend it", 3) => calls(&[("agent_merge", json!({"id": id_in(&results[2])}))]),
        ("mend it", _) => says("It is mended."),
        ("find it", 0) => calls(&[("grep", json!({"pattern": "two"}))]),
        ("find it", _) => says("It is `f:3`."),
        ("judge it", 0) => calls(&[("read_file", json!({"path": "f"}))]),
        ("judge it", _) => says("`f:3` is wrong."),
        ("write it", 0) => {
            let new = json!({"path": "f", "oldString": "two", "newString": "three"});
            calls(&[("edit_file", new)])
        }
        ("write it", 1) => calls(&[("bash", json!({"command": "touch begun; sleep 3600"}))]),
        ("write it", 2) => {
            calls(&[("write_file", json!({"path": "notes", "content": "mended\n"}))])
        }
        (_, _) => says("written"),
    }
}

/// Follows a driven run and says yes to every request, until `over`.
fn follow(
    machine: &Machine,
    args: &[&str],
    over: impl Fn(&Value) -> bool,
    finish: impl FnOnce(&RunningPosse),
) -> (FinishedRun, Vec<(String, String)>) {
    let formats = ["--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&[args, &formats].concat());
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    let mut asked = Vec::new();
    while let Some(line) = running.next_line() {
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["type"] == "permission.requested" {
            let text = |key: &str| event[key].as_str().unwrap().to_owned();
            asked.push((text("agentPath"), text("tool")));
            let yes = json!({
                "type": "permission.answer", "requestId": event["requestId"],
                "decision": "allow", "scope": "once",
            });
            stdin.write_all(format!("{yes}\n").as_bytes()).unwrap();
        }
        if over(&event) {
            break;
        }
    }
    finish(&running);
    drop(stdin);
    (running.end(), asked)
}

fn is_of(event: &Value, kind: &str, path: &str) -> bool {
    event["type"] == kind && event["agentPath"] == path
}

#[test]
fn agents_are_approved_killed_resumed_merged_and_accounted() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(next)]);
    let machine = machine_with(
        &server,
        &json!({
            "agentMode": "multi-agent",
            "models": {"scripted-1": {"inputPrice": 1_000_000, "outputPrice": 10_000_000}},
        }),
    );
    let asleep =
        |event: &Value| is_of(event, "tool.started", "build/worker") && event["name"] == "bash";
    let (killed, asked) =
        follow(&machine, &["run", "mend it"], asleep, |run| run.signal(Signal::SIGKILL));
    let pairs = |asked: &[(String, String)]| -> Vec<String> {
        asked.iter().map(|(path, tool)| format!("{path}: {tool}")).collect()
    };
    // Reads need no permission; everything else is asked at the root, with its path.
    assert_eq!(
        pairs(&asked),
        ["build: delegate_agent", "build/worker: edit_file", "build/worker: bash"]
    );
    let events = killed.events();
    let at = |kind: &str, path: &str| {
        events.iter().position(|event| is_of(event, kind, path)).unwrap_or(usize::MAX)
    };
    let began =
        ["build/explore", "build/reviewer"].map(|path| at("agent.invocation.started", path));
    let ended =
        ["build/explore", "build/reviewer"].map(|path| at("agent.invocation.completed", path));
    assert!(began.iter().max() < ended.iter().min(), "side by side: {began:?} {ended:?}");
    assert_eq!(machine.read("f"), "one\nmiddle\ntwo\n", "the workspace is as it was");

    let dir = machine.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap().to_owned();
    let mended = |event: &Value| is_of(event, "agent.invocation.completed", "build");
    let (ended, asked) = follow(&machine, &["resume", &id], mended, |_| ());
    ended.assert_code(0);
    assert_eq!(pairs(&asked), ["build/worker: write_file", "build: agent_merge"]);
    let last = ended.events().pop().unwrap();
    assert_eq!(
        (&last["type"], &last["result"]),
        (&json!("session.ended"), &json!("It is mended."))
    );
    assert_eq!(machine.read("f"), "one\nmiddle\nthree\n");
    assert_eq!(machine.read("notes"), "mended\n");
    assert_eq!(git(&machine, &["status", "--porcelain"]), " M f\n?? notes\n");
    let requests = server.requests();
    let of_worker: Vec<Vec<String>> = requests
        .iter()
        .filter(|request| task(request) == "write it")
        .map(|request| texts(request, "tool"))
        .collect();
    assert_eq!(of_worker.len(), 4, "no request was made twice");
    assert!(of_worker[2][1].contains("Whether it took effect is not known"), "{:?}", of_worker[2]);

    // The ledger equals the server's count, request by request and agent by agent.
    let count = requests.len();
    assert_eq!(count, 4 + 2 + 2 + 4);
    let shown = machine.posse(&["sessions", "show", &id, "--cost", "--json", "-v"]);
    shown.assert_code(0);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["total"]["nanoUsd"], json!(count * NANO_USD_FOR_A_REQUEST));
    assert_eq!(shown["total"]["usage"]["inputTokens"], json!(count * 100));
    assert_eq!(shown["requests"].as_array().unwrap().len(), count);
    let by_agent = shown["agents"].as_array().unwrap().iter();
    let sum: u64 = by_agent.map(|agent| agent["nanoUsd"].as_u64().unwrap()).sum();
    assert_eq!(json!(sum), shown["total"]["nanoUsd"]);
    machine.verify();
}
