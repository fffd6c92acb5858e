//! Commands that only read: they run without a permission request, in a sandbox that cannot write.

use serde_json::{Value, json};

use crate::model_server::{ModelServer, runs, says};
use crate::posse::Machine;

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

#[test]
fn commands_that_only_read_run_without_a_question() {
    let server = ModelServer::start(vec![
        runs("ls src && wc -l src/main.rs | cut -d' ' -f1"),
        runs("cd src && sed -n '1,2p' main.rs | sort -r; git branch --show-current"),
        runs("cat main.rs > copy.rs"),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    machine.write("src/main.rs", "fn main() {}\n// end\n");
    let (ended, events) = machine.stream(&["look"]);
    // The third command writes, and no person is there to be asked.
    ended.assert_code(4);
    assert_eq!(count(&events, "permission.requested"), 1, "{events:#?}");
    let results = server.tool_results();
    assert!(results[0].contains("main.rs\n2"), "{results:?}");
    assert!(results[1].contains("fn main() {}\n// end"), "{results:?}");
    assert!(results[2].contains("redirects"), "{results:?}");
    assert!(!machine.work("copy.rs").exists());
    machine.verify();
}

/// Settings of a repository can make git run a program. It cannot write.
#[test]
fn program_of_a_repositorys_settings_cannot_write_without_a_question() {
    let server = ModelServer::start(vec![runs("git status --short; git diff"), says("done")]);
    let machine = Machine::with(&server);
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b.example"]).args(args);
        assert!(command.current_dir(machine.path("work")).status().unwrap().success(), "{args:?}");
    };
    git(&["init", "-q"]);
    machine.write("a.txt", "a\n");
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "a"]);
    machine.write("a.txt", "b\n");
    machine.write("tool.sh", "#!/bin/sh\ntouch written\necho ran\n");
    let path = machine.work("tool.sh");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    git(&["config", "diff.external", "./tool.sh"]);
    let (ended, events) = machine.stream(&["look"]);
    ended.assert_code(0);
    assert_eq!(count(&events, "permission.requested"), 0, "{events:#?}");
    let results = server.tool_results();
    assert!(results[0].contains("M a.txt") && results[0].contains("ran"), "{results:?}");
    assert!(!machine.work("written").exists());
}

#[test]
fn permission_check_judges_in_the_given_mode() {
    let machine = Machine::new();
    for (mode, expected) in [(None, "ask"), (Some("locked"), "ask"), (Some("ask"), "allow")] {
        let mode = mode.map(|mode| ["--permission-mode", mode]);
        let args: Vec<&str> =
            ["permissions", "check"].into_iter().chain(mode.into_iter().flatten()).collect();
        let ended = machine.posse(&[&args[..], &["ls", "src"]].concat());
        ended.assert_code(0);
        let checked: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(checked["decision"], json!(expected), "{args:?}");
    }
}
