//! What `bash` prepares and refuses; running is tested with the real helper in `tests/it/exec.rs`.

use serde_json::json;

use super::*;
use crate::tools::trial::Trial;

fn bash(trial: &Trial) -> Arc<dyn Tool> {
    // The running test binary is no helper, so nothing could run.
    tool(trial.env.clone(), Arc::new(Sandbox::new(Vec::new()).unwrap()))
}

async fn prepared(trial: &Trial, arguments: Value) -> Result<Prepared, ToolError> {
    trial.prepare(&bash(trial), arguments).await
}

#[tokio::test]
async fn says_exactly_what_would_run() {
    let trial = Trial::new(&[("sub/x", "")]);
    let arguments = json!({"command": "echo \u{1b}[1m\ncargo test", "workdir": "sub"});
    let action = prepared(&trial, arguments).await.unwrap().action;
    assert_eq!(action.summary, "run echo \\u{1b}[1m… (in sub)");
    assert_eq!(action.detail, "echo \u{1b}[1m\ncargo test");
    let cwd = trial.root().canonicalize().unwrap().join("sub").display().to_string();
    let command = action.detail.clone();
    assert_eq!(action.operations, [Operation::Execute { command, cwd }]);
}

#[tokio::test]
async fn the_digest_is_of_command_place_and_time() {
    let trial = Trial::new(&[("sub/x", "")]);
    let mut digests = Vec::new();
    for arguments in [
        json!({"command": "ls"}),
        json!({"command": "ls "}),
        json!({"command": "ls", "workdir": "sub"}),
        json!({"command": "ls", "timeoutMs": 5000}),
    ] {
        let again = prepared(&trial, arguments.clone()).await.unwrap().action.digest;
        assert_eq!(prepared(&trial, arguments).await.unwrap().action.digest, again);
        digests.push(again);
    }
    std::fs::rename(trial.root().join("sub"), trial.root().join("old")).unwrap();
    trial.write("sub/x", "");
    let other = prepared(&trial, json!({"command": "ls", "workdir": "sub"})).await.unwrap();
    digests.push(other.action.digest);
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 5);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let trial = Trial::new(&[("file", "")]);
    for (arguments, code) in [
        (json!({"command": ""}), "SH001"),
        (json!({"command": " \n\t"}), "SH001"),
        (json!({"command": "x".repeat(1 << 20)}), "SH002"),
        (json!({"command": "a\0b"}), "SH003"),
        (json!({"command": "ls", "workdir": ".."}), "ARG003"),
        (json!({"command": "ls", "workdir": "/"}), "ARG003"),
        (json!({"command": "ls", "workdir": "nowhere"}), "FIL001"),
    ] {
        let error = prepared(&trial, arguments).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
    }
    assert!(prepared(&trial, json!({"command": "ls", "workdir": "file"})).await.is_err());
}

#[test]
fn the_timeout_has_bounds_and_says_so() {
    let seconds = Duration::from_secs;
    for (asked, given, is_noted) in [
        (None, seconds(30), false),
        (Some(5000.0), seconds(5), false),
        (Some(600_000.0), seconds(600), false),
        (Some(0.0), seconds(1), true),
        (Some(-1.0), seconds(1), true),
        (Some(1e9), seconds(600), true),
    ] {
        let (timeout, note) = timeout(asked);
        assert_eq!((timeout, note.is_some()), (given, is_noted), "{asked:?}");
    }
}

#[tokio::test]
async fn a_test_binary_is_no_helper_and_nothing_runs() {
    let trial = Trial::new(&[]);
    let output = trial.call(&bash(&trial), json!({"command": "touch ran"})).await;
    assert!(output.is_error);
    assert!(!trial.root().join("ran").exists());
}

#[test]
fn the_specification_is_short() {
    let trial = Trial::new(&[]);
    let text = serde_json::to_string(bash(&trial).spec()).unwrap();
    assert!(text.len() <= 600, "{} bytes: {text}", text.len());
}
