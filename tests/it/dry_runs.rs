//! Argument `dryRun` of `bash`: the model tries a command, reads its output and its changes, and
//! nothing is changed.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, runs, says};
use crate::posse::{Machine, RunningPosse};
use crate::trying::{assert_nothing_is_left, digest, wait_for_layer, with_repository};

fn tries(command: &str) -> ModelAnswer {
    calls(&[("bash", json!({"command": command, "dryRun": true}))])
}

fn machine_for(steps: Vec<ModelAnswer>) -> (Machine, ModelServer) {
    let server = ModelServer::start(steps);
    let machine = with_repository(Machine::with(&server));
    (machine, server)
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

#[test]
fn model_reads_the_changes_and_nothing_is_changed_or_asked() {
    let command = "echo said; echo more >> a; rm d/b; echo x > new; chmod 755 tool.sh";
    for mode in ["plan", "ask", "edits", "auto"] {
        let (machine, server) = machine_for(vec![tries(command), says("done")]);
        let before = digest(&machine.path("work"));
        let (ended, events) = machine.stream(&["--permission-mode", mode, "try it"]);
        ended.assert_code(0);
        let result = server.tool_results().remove(0);
        for part in [
            "said\n(exit 0, ",
            "dry run: the workspace was not changed; in the trial: ",
            "1 added, 1 modified, 1 deleted, 1 with other permissions\n",
            "modified a\n",
            "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n a\n+more\n",
            "deleted  d/b\n",
            "added    new\n",
            "mode     tool.sh (mode 644 to 755)\n",
        ] {
            assert!(result.contains(part), "{mode}: {part:?} is not in {result}");
        }
        assert_eq!(digest(&machine.path("work")), before, "{mode}");
        for kind in ["permission.requested", "checkpoint.created"] {
            assert!(of_type(&events, kind).is_empty(), "{mode}: {kind}");
        }
        let started = of_type(&events, "tool.started");
        assert_eq!(started[0]["effect"], false, "{mode}: {started:?}");
        assert!(started[0]["summary"].as_str().unwrap().starts_with("try echo said"));
        let ended = of_type(&events, "tool.completed");
        assert_eq!(ended[0]["metadata"]["dryRun"], true, "{ended:?}");
        assert_nothing_is_left(&machine);
        machine.verify();
    }
}

/// No other command can find there what a dry run has written.
#[test]
fn temporary_files_of_a_dry_run_are_dropped() {
    let write = "echo x > /tmp/kept; echo y > $TMPDIR/kept; ls /tmp $TMPDIR | wc -l";
    let steps =
        vec![runs("echo z > /tmp/earlier"), tries(write), tries("ls -A /tmp"), runs("ls -A /tmp")];
    let (machine, server) = machine_for([steps, vec![says("done")]].concat());
    let (ended, _) = machine.stream(&["--yes", "--permission-mode", "auto", "try it"]);
    ended.assert_code(0);
    let results = server.tool_results();
    assert!(results[1].contains("(exit 0, "), "{results:?}");
    assert!(!results[2].contains("kept") && !results[2].contains("earlier"), "{results:?}");
    assert!(results[3].contains("earlier") && !results[3].contains("kept"), "{results:?}");
    assert_nothing_is_left(&machine);
}

#[test]
fn dry_run_allows_nothing_that_the_mode_plan_denies() {
    for (mode, command, reason) in [
        ("locked", "make", "the permission mode is locked"),
        ("auto", "curl http://127.0.0.1:1/", "a dry run is judged as in the mode plan: "),
        ("auto", "touch .envrc", "a dry run is judged as in the mode plan: "),
        ("ask", "cat .env", "is hidden from commands; work without its content"),
    ] {
        let (machine, server) = machine_for(vec![tries(command), says("done")]);
        let (ended, events) = machine.stream(&["--permission-mode", mode, "try it"]);
        ended.assert_code(0);
        let result = server.tool_results().remove(0);
        assert!(result.contains(reason), "{mode} {command}: {result}");
        assert!(of_type(&events, "permission.requested").is_empty());
        assert!(!machine.work(".envrc").exists());
    }
}

#[test]
fn the_command_itself_is_asked_about_after_its_dry_run() {
    let command = "echo more >> a";
    let (machine, server) = machine_for(vec![tries(command), runs(command), says("done")]);
    let (ended, events) = machine.stream(&["do it"]);
    ended.assert_code(4);
    assert_eq!(of_type(&events, "permission.requested").len(), 1);
    assert!(server.tool_results()[0].contains("\n+more\n"));
    assert_eq!(machine.read("a"), "a\n");
}

#[test]
fn dry_run_is_refused_where_commands_cannot_be_tried() {
    for backend in ["bubblewrap", "landlock", "nothing"] {
        let (machine, server) = machine_for(vec![tries("echo x > a"), says("done")]);
        let mut command = machine.command(&["run", "try it"]);
        command.env("POSSE_SANDBOX_BACKEND", backend);
        RunningPosse::start(command).end().assert_code(0);
        let result = server.tool_results().remove(0);
        let reason = format!("a trial needs the namespaces of posse, and the sandbox is {backend}");
        assert!(result.contains("SH009") && result.contains(&reason), "{result}");
        assert_eq!(machine.read("a"), "a\n");
    }
    let steps = vec![tries("echo x > a"), says("done")];
    let (machine, server) = machine_for(steps);
    machine.posse(&["run", "--sandbox", "off", "try it"]).assert_code(0);
    let result = server.tool_results().remove(0);
    assert!(result.contains("SH009") && result.contains("the sandbox is nothing"), "{result}");
    assert_eq!(machine.read("a"), "a\n");
}

#[test]
fn differences_of_a_trial_are_named() {
    let (machine, server) = machine_for(vec![
        tries("git mv src src2"),
        tries("python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 9))'"),
        says("done"),
    ]);
    machine.posse(&["run", "try it"]).assert_code(0);
    let results = server.tool_results();
    assert!(results[0].contains("cannot rename a folder that existed before"), "{}", results[0]);
    assert!(results[0].contains("no file is changed"), "{}", results[0]);
    assert!(results[1].contains("a trial has no network"), "{}", results[1]);
    assert!(machine.work("src/main.rs").exists());
}

#[test]
fn result_is_bounded_and_keys_in_it_are_redacted() {
    let key = format!("ghp_{}", &"a1B2c3D4e5".repeat(4)[..36]);
    machine_result(&format!("echo token={key} > conf"), |result| {
        assert!(result.contains("added    conf") && !result.contains("a1B2c3D4e5"), "{result}");
    });
    machine_result("seq 200000 | tee many", |result| {
        assert!(result.len() < 80_000, "{}", result.len());
        assert!(result.contains("bytes cut …]") && !result.contains("read_file output:"));
        assert!(
            result.contains("in the trial: 1 added\n") && result.contains("added    many\n"),
            "{result}"
        );
    });
}

fn machine_result(command: &str, check: impl Fn(&str)) {
    let (machine, server) = machine_for(vec![tries(command), says("done")]);
    machine.posse(&["run", "try it"]).assert_code(0);
    check(&server.tool_results()[0]);
    assert_nothing_is_left(&machine);
}

#[test]
fn dry_run_of_a_killed_process_can_be_made_again_and_its_trial_is_removed() {
    let command = "echo x > a; test -e go || exec sleep 600";
    let (machine, server) = machine_for(vec![tries(command), tries(command), says("done")]);
    let mut running = machine.start(&["try it"]);
    wait_for_layer(&machine, "a");
    running.signal(Signal::SIGKILL);
    running.wait();
    assert_eq!(machine.read("a"), "a\n");
    let trials = machine.session_dir().join("trials");
    assert_eq!(fs::read_dir(&trials).unwrap().count(), 1);
    machine.write("go", "");
    let resumed = machine.posse(&["resume", "--last"]);
    assert_eq!(resumed.code, Some(0), "{}{}", resumed.stdout, resumed.stderr);
    let results = server.tool_results();
    assert!(results[0].contains("It changes nothing, so it can be made again"), "{}", results[0]);
    assert!(results[1].contains("modified a\n"), "{}", results[1]);
    let began = Instant::now();
    while fs::read_dir(&trials).unwrap().count() > 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "a trial stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(machine.read("a"), "a\n");
}
