//! Preparation and denial of `bash` calls; running is tested with the real helper in
//! `tests/it/exec.rs`.

use posse_actors::ports::CommandDeletions;
use serde_json::json;

use super::*;
use crate::testing::ToolFixture;

/// A workspace with these files.
fn desk(files: &[(&str, &str)]) -> ToolFixture {
    let desk = ToolFixture::new();
    for (path, text) in files {
        desk.put(path, text);
    }
    desk
}

fn prepared(desk: &ToolFixture, arguments: &Value) -> Result<Prepared, ToolError> {
    desk.prepare("bash", arguments)
}

#[test]
fn dry_run_names_the_exact_command() {
    let desk = desk(&[("sub/x", "")]);
    let arguments = json!({"command": "echo \u{1b}[1m\ncargo test", "workdir": "sub"});
    let action = prepared(&desk, &arguments).unwrap().action;
    assert_eq!(action.summary, "run echo \\u{1b}[1m… (in sub)");
    assert_eq!(action.detail, "echo \u{1b}[1m\ncargo test");
    let cwd = desk.path("work").canonicalize().unwrap().join("sub").display().to_string();
    let command = action.detail.clone();
    assert_eq!(
        action.operations,
        [Operation::Execute {
            command,
            cwd,
            links: Vec::new(),
            replaces: Vec::new(),
            deletions: CommandDeletions::default(),
            in_trial: false,
            secrets: posse_actors::ports::CommandSecrets::default()
        }]
    );
}

#[test]
fn digest_covers_command_folder_and_timeout() {
    let desk = desk(&[("sub/x", "")]);
    let mut digests = Vec::new();
    for arguments in [
        json!({"command": "ls"}),
        json!({"command": "ls "}),
        json!({"command": "ls", "workdir": "sub"}),
        json!({"command": "ls", "timeoutMs": 5000}),
    ] {
        let again = prepared(&desk, &arguments).unwrap().action.digest;
        assert_eq!(prepared(&desk, &arguments).unwrap().action.digest, again);
        digests.push(again);
    }
    std::fs::rename(desk.path("work").join("sub"), desk.path("work").join("old")).unwrap();
    desk.put("sub/x", "");
    let other = prepared(&desk, &json!({"command": "ls", "workdir": "sub"})).unwrap();
    digests.push(other.action.digest);
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 5);
}

#[test]
fn invalid_arguments_are_refused() {
    let desk = desk(&[("file", "")]);
    for (arguments, code) in [
        (json!({"command": ""}), "SH001"),
        (json!({"command": " \n\t"}), "SH001"),
        (json!({"command": "x".repeat(1 << 20)}), "SH002"),
        (json!({"command": "a\0b"}), "SH003"),
        (json!({"command": "ls", "workdir": ".."}), "ARG003"),
        (json!({"command": "ls", "workdir": "/"}), "ARG003"),
        (json!({"command": "ls", "workdir": "nowhere"}), "FIL001"),
    ] {
        let error = prepared(&desk, &arguments).unwrap_err();
        assert_eq!(error.code, code, "{error}");
    }
    assert!(prepared(&desk, &json!({"command": "ls", "workdir": "file"})).is_err());
}

#[test]
fn dry_run_is_refused_with_a_reason() {
    let desk = desk(&[]);
    for (arguments, reason) in [
        (json!({"background": true}), "dryRun cannot be combined with background"),
        (json!({"unprotect": [".git/config"]}), "dryRun cannot be combined with unprotect"),
        // The test binary is no helper, so there is no sandbox.
        (json!({}), "a trial needs the namespaces of posse, and the sandbox is nothing"),
    ] {
        let mut arguments = arguments;
        arguments["command"] = json!("ls");
        arguments["dryRun"] = json!(true);
        let error = prepared(&desk, &arguments).unwrap_err();
        assert!(error.code == "SH009" && error.message.contains(reason), "{error}");
    }
}

#[test]
fn timeout_is_bounded_and_reported() {
    let (seconds, limits) = (Duration::from_secs, CommandTimeouts::default());
    for (asked, given, is_noted) in [
        (None, seconds(120), false),
        (Some(5000.0), seconds(5), false),
        (Some(600_000.0), seconds(600), false),
        (Some(0.0), seconds(1), true),
        (Some(-1.0), seconds(1), true),
        (Some(1e9), seconds(600), true),
    ] {
        let (timeout, note) = timeout(asked, (limits.default, limits.maximum));
        assert_eq!((timeout, note.is_some()), (given, is_noted), "{asked:?}");
    }
}

#[test]
fn test_binary_is_no_helper_and_nothing_runs() {
    let desk = desk(&[]);
    let output = desk.call("bash", &json!({"command": "touch ran"})).unwrap();
    assert!(output.is_error);
    assert!(!desk.path("work").join("ran").exists());
}
