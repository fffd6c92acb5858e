//! Resumed sessions: after `kill -9`, after parking, as a fork, and refused where resuming is not
//! possible.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{
    ModelAnswer, ModelServer, calls, runs, says, status, stream_bytes, text_event,
};
use crate::plain::Terminal;
use crate::posse::{FinishedRun, Machine, RunningPosse, side_by_side};

/// Id of the only session.
fn id(machine: &Machine) -> String {
    machine.session_dir().file_name().unwrap().to_string_lossy().into_owned()
}

/// Ids of all sessions, oldest first.
fn ids(machine: &Machine) -> Vec<String> {
    let listed = machine.posse(&["sessions", "list", "--all", "--json"]);
    let mut ids: Vec<String> = serde_json::from_str::<Vec<Value>>(&listed.stdout)
        .unwrap()
        .iter()
        .map(|session| session["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

fn has(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

/// Contents of the messages of `role` in a request.
fn contents(request: &Value, role: &str) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap();
    let of_role = messages.iter().filter(|message| message["role"] == role);
    of_role.map(|message| message["content"].to_string()).collect()
}

/// A session that was killed during a command that had already taken effect.
fn killed_in_a_command(server: &ModelServer, machine: &Machine) {
    let mut running = machine.start(&["--yes", "--sandbox", "off", "count"]);
    running.wait_for("tool.started");
    let begin = Instant::now();
    while !machine.work("count").exists() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the command does not run");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.signal(Signal::SIGKILL);
    running.wait();
    server.wait_for_request();
}

#[test]
fn reports_an_unknown_outcome_and_repeats_no_call() {
    let server =
        ModelServer::start(vec![runs("echo once >> count; sleep 30"), says("It was done.")]);
    let machine = Machine::with(&server);
    killed_in_a_command(&server, &machine);
    let id = id(&machine);
    let shown = machine.posse(&["sessions", "show", &id]);
    let state = "state: killed, can be resumed, with 1 call of unknown outcome: bash: ";
    assert!(shown.stdout.contains(state), "{}", shown.stdout);
    let args = ["resume", &id, "--output-format", "stream-json", "--yes", "--sandbox", "off"];
    let ended = machine.posse(&args);
    ended.assert_code(0);
    let events = ended.events();
    assert_eq!(events[0]["type"], "session.resumed", "{}", events[0]);
    assert_eq!((has(&events, "tool.outcome_unknown"), has(&events, "tool.started")), (1, 0));
    let last = events.last().unwrap();
    assert_eq!((&last["result"], &last["turns"]), (&json!("It was done."), &json!(2)));
    assert_eq!(machine.read("count"), "once\n");
    let told = contents(&server.requests()[1], "tool");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("Whether it took effect is not known"), "{told:?}");
    // The model, the user and the output stream get the command and its start time.
    let begun =
        |text: &str| text.contains("echo once >> count; sleep 30") && text.contains("begun at 20");
    assert!(begun(&told[0]), "{told:?}");
    let unknown = events.iter().find(|event| event["type"] == "tool.outcome_unknown").unwrap();
    assert!(unknown["begun"]["summary"].as_str().unwrap().contains("echo once"), "{unknown}");
    assert!(unknown["begun"]["startedMs"].as_u64().unwrap() <= unknown["ts"].as_u64().unwrap());
    assert!(ended.stderr.contains(&format!("session {id}")), "{}", ended.stderr);
    machine.verify();
    machine.posse(&["replay", &id]).assert_code(0);
    let shown = machine.posse(&["sessions", "show", &id]);
    assert!(shown.stdout.ends_with("state: finished\n"), "{}", shown.stdout);
    // The session has ended now, and nothing is left to resume.
    let again = machine.posse(&["resume", &id]);
    again.assert_code(2);
    assert!(again.stderr.contains("SES013") && again.stderr.contains(&id), "{}", again.stderr);
}

#[test]
fn every_front_end_names_commands_with_unknown_outcome() {
    type ResumeCase<'a> = (&'a [&'a str], fn(&FinishedRun) -> &str);
    let rows: [ResumeCase<'_>; 3] = [
        (&["resume"], |ended| &ended.stderr),
        (&["resume", "--output-format", "json"], |ended| &ended.stdout),
        (&["plain", "-c"], |ended| &ended.stderr),
    ];
    side_by_side(rows, |(args, shown)| {
        let command = "echo once >> count; sleep 30";
        let server = ModelServer::start(vec![runs(command), says("It was done.")]);
        let machine = Machine::with(&server);
        killed_in_a_command(&server, &machine);
        let id = id(&machine);
        let args = match args {
            ["resume", rest @ ..] => [&["resume", id.as_str()], rest].concat(),
            other => other.to_vec(),
        };
        let ended = machine.posse(&args);
        ended.assert_code(0);
        let shown = shown(&ended);
        assert!(shown.contains(command), "{args:?}: {shown}");
        if args.contains(&"json") {
            let summary: Value = serde_json::from_str(shown).unwrap();
            let unknown = &summary["outcomeUnknown"][0];
            assert_eq!(unknown["tool"], "bash");
            assert!(unknown["startedMs"].as_u64().unwrap() > 1_700_000_000_000, "{unknown}");
        } else {
            assert!(shown.contains("✗ bash: ") && shown.contains(", started at 20"), "{shown}");
            assert!(shown.contains("Look before doing it again"), "{shown}");
        }
        let shown = machine.posse(&["sessions", "show", &id]);
        let line = "the outcome of `bash` is unknown: ";
        assert!(shown.stdout.contains(line), "{}", shown.stdout);
    });
}

#[test]
fn a_resumed_session_continues_with_a_new_task() {
    let server = ModelServer::start(vec![says("One."), says("Two."), says("Three.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "first"]).assert_code(0);
    let id = id(&machine);
    let ended = machine.posse(&["resume", &id[..15], "and", "second"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "Two.\n");
    let ended = machine.posse(&["run", "-c", "and third"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "Three.\n");
    let requests = server.requests();
    assert_eq!(contents(&requests[2], "user"), [r#""first""#, r#""and second""#, r#""and third""#]);
    assert_eq!(contents(&requests[2], "assistant"), [r#""One.""#, r#""Two.""#]);
    assert_eq!(ids(&machine).len(), 1);
    machine.verify();
}

#[test]
fn a_fork_leaves_the_original_session_unchanged() {
    let server = ModelServer::start(vec![says("One."), says("Otherwise.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "first"]).assert_code(0);
    let journal = machine.session_dir().join("session.jsonl");
    let before = fs::read(&journal).unwrap();
    let ended = machine.posse(&["-c", "--fork", "another way"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "Otherwise.\n");
    assert_eq!(fs::read(&journal).unwrap(), before);
    let ids = ids(&machine);
    assert_eq!(ids.len(), 2);
    let parent = journal.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let child = ids.iter().find(|id| **id != parent).unwrap();
    let first = machine.posse(&["sessions", "show", child, "--json"]).events().remove(0);
    assert_eq!(first["forkedFrom"]["session"], json!(parent), "{first}");
    assert_eq!(contents(&server.requests()[1], "user"), [r#""first""#, r#""another way""#]);
    machine.verify();
    machine.posse(&["replay", child]).assert_code(0);
    let exported = machine.posse(&["sessions", "export", child]);
    for part in ["One.", "another way", "Otherwise.", &parent] {
        assert!(exported.stdout.contains(part), "{part}: {}", exported.stdout);
    }
    // The fork can be resumed itself.
    let shown = machine.posse(&["resume", child]);
    assert!(shown.stderr.contains("SES013"), "{}", shown.stderr);
}

#[test]
fn a_parked_session_resumes_with_full_patience() {
    let busy = status("503 Service Unavailable", &[], "{}");
    let server = ModelServer::start_and_repeat(vec![busy]);
    let machine = Machine::configured(&server, &json!({"patience": "300ms"}), &json!({}));
    // A machine with timers.
    fs::create_dir_all(machine.path("bin")).unwrap();
    fs::write(machine.path("bin/systemd-run"), "").unwrap();
    let mut command = machine.command(&["run", "fix it"]);
    command.env("PATH", machine.path("bin"));
    let parked = RunningPosse::start(command).end();
    parked.assert_code(5);
    let id = id(&machine);
    assert!(parked.stderr.contains(&format!("posse resume {id}")), "{}", parked.stderr);
    let line = parked.stderr.lines().find(|line| line.contains("systemd-run")).unwrap();
    for part in ["--on-active=", "--working-directory=", "-E POSSE_HOME", "--unattended"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let shown = machine.posse(&["sessions", "show", &id]);
    assert!(shown.stdout.contains("state: parked until "), "{}", shown.stdout);
    drop(server);
    let server = ModelServer::start(vec![says("Fixed.")]);
    let config = fs::read_to_string(machine.path("posse/config/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["providers"]["local"]["baseURL"] = json!(server.base_url());
    machine.write_config(&config.to_string());
    let ended = machine.posse(&["resume", &id, "--unattended"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "Fixed.\n");
    assert_eq!(contents(&server.requests()[0], "user"), [r#""fix it""#]);
    machine.posse(&["replay", &id]).assert_code(0);
    machine.verify();
}

#[test]
fn resume_is_refused_while_another_process_owns_the_session() {
    let held = stream_bytes(text_event("I think").as_bytes());
    let server = ModelServer::start(vec![ModelAnswer::Hold(held), says("Mine.")]);
    let machine = Machine::with(&server);
    let mut running = machine.start(&["think"]);
    running.wait_for("model.text.delta");
    let id = id(&machine);
    let refused = machine.posse(&["resume", &id, "and now"]);
    refused.assert_code(8);
    let pid = running.pid().to_string();
    assert!(
        refused.stderr.contains(&pid) && refused.stderr.contains("SES015"),
        "{}",
        refused.stderr
    );
    let shown = machine.posse(&["sessions", "show", &id]);
    let state = format!("state: running (process {pid})");
    assert!(shown.stdout.contains(&state), "{}", shown.stdout);
    // A fork does not need the lock.
    let branch = machine.posse(&["resume", &id, "--fork", "and now"]);
    branch.assert_code(0);
    running.signal(Signal::SIGTERM);
    running.end().assert_code(143);
    machine.verify();
}

#[test]
fn a_session_belongs_to_its_project() {
    let server = ModelServer::start(vec![says("One."), says("Two."), says("Three.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "first"]).assert_code(0);
    let id = id(&machine);
    fs::create_dir_all(machine.path("work/sub")).unwrap();
    fs::create_dir_all(machine.path("other/.git")).unwrap();
    let from = |folder: &str, args: &[&str]| -> FinishedRun {
        let mut command = machine.command(args);
        command.current_dir(machine.path(folder));
        RunningPosse::start(command).end()
    };
    let refused = from("other", &["resume", &id, "second"]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("SES017"), "{}", refused.stderr);
    let nothing = from("other", &["-c", "second"]);
    nothing.assert_code(8);
    assert!(nothing.stderr.contains("SES014"), "{}", nothing.stderr);
    // From within the project it continues in its original folder.
    let within = from("work/sub", &["-c", "second"]);
    within.assert_code(0);
    assert!(within.stderr.contains("resumed in"), "{}", within.stderr);
    // It continues in another folder only with `--cwd`.
    let moved = machine.path("other").display().to_string();
    let moved = from("work", &["resume", &id, "--cwd", &moved, "third"]);
    moved.assert_code(0);
    assert!(moved.stderr.contains("the directory is"), "{}", moved.stderr);
    assert_eq!(ids(&machine).len(), 1);
}

#[test]
fn resume_needs_an_unambiguous_id() {
    let server = ModelServer::start_and_repeat(vec![says("Well.")]);
    let machine = Machine::with(&server);
    let nothing = machine.posse(&["resume"]);
    nothing.assert_code(8);
    machine.posse(&["run", "first"]).assert_code(0);
    machine.posse(&["run", "second"]).assert_code(0);
    let ids = ids(&machine);
    let unsaid = machine.posse(&["resume"]);
    unsaid.assert_code(2);
    assert!(ids.iter().all(|id| unsaid.stderr.contains(id.as_str())), "{}", unsaid.stderr);
    let ambiguous = machine.posse(&["resume", "20", "and now"]);
    ambiguous.assert_code(8);
    assert!(ambiguous.stderr.contains("matches 2 sessions"), "{}", ambiguous.stderr);
    let unknown = machine.posse(&["resume", "nope", "and now"]);
    unknown.assert_code(8);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn resume_keeps_the_settings_unless_a_flag_changes_them() {
    let server = ModelServer::start_and_repeat(vec![says("Well.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "--agent", "plan", "--model", "scripted-2", "first"]).assert_code(0);
    machine.posse(&["run", "-c", "second"]).assert_code(0);
    let told = machine.posse(&["run", "-c", "--model", "scripted-3", "--agent", "build", "third"]);
    told.assert_code(0);
    for words in ["the model is scripted-3; it was scripted-2", "the agent is build", "new tools"] {
        assert!(told.stderr.contains(words), "{words}: {}", told.stderr);
    }
    let models: Vec<Value> = server.requests().iter().map(|r| r["model"].clone()).collect();
    assert_eq!(models, ["scripted-2", "scripted-2", "scripted-3"]);
}

#[test]
fn resume_continues_after_the_last_proven_record() {
    let server = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "a.txt"}))]),
        says("Read."),
        says("Again."),
    ]);
    let machine = Machine::with(&server);
    machine.write("a.txt", "content\n");
    machine.posse(&["run", "read it"]).assert_code(0);
    let journal = machine.session_dir().join("session.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    // One byte of the final answer is flipped.
    let damaged = text.replacen("Read.", "Reed.", 1);
    assert_ne!(damaged, text);
    fs::write(&journal, damaged).unwrap();
    let ended = machine.posse(&["resume", "--last", "--output-format", "json"]);
    ended.assert_code(0);
    assert!(ended.stdout.contains("Again."), "{}", ended.stdout);
    assert!(ended.stderr.contains("damaged-1"), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("journal repaired").count(), 1, "{}", ended.stderr);
    assert!(machine.session_dir().join("session.jsonl.damaged-1").exists());
    // The call had ended, so it does not run again.
    assert_eq!(contents(&server.requests()[2], "tool").len(), 1);
    machine.verify();
}

/// Two sessions, the second one killed while the model replies.
#[test]
fn calls_with_damaged_records_do_not_run_again() {
    let deploys = calls(&[("bash", json!({"command": "echo deploy >> deployed.log"}))]);
    for fork in [false, true] {
        let server = ModelServer::start(vec![deploys.clone(), says("Done."), says("I looked.")]);
        let machine = Machine::with(&server);
        machine.posse(&["run", "-y", "--sandbox", "off", "deploy once"]).assert_code(0);
        let journal = machine.session_dir().join("session.jsonl");
        let text = fs::read_to_string(&journal).unwrap();
        fs::write(&journal, text.replacen("\"tool.started\"", "\"tool.stortad\"", 1)).unwrap();
        let mut args = vec!["resume", "--last", "-y", "--sandbox", "off"];
        args.extend(fork.then_some("--fork"));
        machine.posse(&args).assert_code(0);
        assert_eq!(machine.read("deployed.log"), "deploy\n");
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        let [result] = &contents(&requests[2], "tool")[..] else { panic!("{}", requests[2]) };
        assert!(result.contains("It may have run. Look before"), "{result}");
        let told = contents(&requests[2], "user").pop().unwrap();
        assert!(told.contains("was damaged") && told.contains("Look at how"), "{told}");
    }
}

fn two_sessions(machine: &Machine) {
    machine.posse(&["run", "write the docs"]).assert_code(0);
    let mut running = machine.start(&["fix the test"]);
    running.wait_for("model.text.delta");
    running.signal(Signal::SIGKILL);
    running.wait();
}

#[test]
fn a_user_selects_a_session_from_a_list() {
    let held = stream_bytes(text_event("I think").as_bytes());
    let server = ModelServer::start(vec![
        says("One."),
        ModelAnswer::Hold(held),
        says("Done."),
        says("More."),
    ]);
    let machine = Machine::with(&server);
    two_sessions(&machine);
    let mut terminal = Terminal::run(&machine, &["resume"], "xterm");
    terminal.see("Which session do you want to resume?");
    let shown = terminal.see("up/down");
    let (newest, oldest) = (shown.find("fix the test"), shown.find("write the docs"));
    assert!(newest.is_some() && newest < oldest, "{shown}");
    // The interrupted turn continues by itself.
    terminal.press("TEST\r");
    terminal.see("❯ fix the test");
    terminal.see("Done.");
    terminal.see("Describe a task");
    terminal.press("and more\r");
    terminal.see("More.");
    terminal.see("Describe a task");
    terminal.press("/exit\r");
    assert_eq!(terminal.end(), Some(0));
    assert!(terminal.is_cooked());
    let last = contents(&server.requests()[3], "user");
    assert_eq!(last, [r#""fix the test""#, r#""and more""#]);
    machine.verify();
}

#[test]
fn a_user_may_cancel_the_selection() {
    let server = ModelServer::start(vec![says("One.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "write the docs"]).assert_code(0);
    for (keys, code) in [("\u{1b}", 0), ("\u{3}", 130)] {
        let mut terminal = Terminal::run(&machine, &["resume"], "xterm");
        terminal.see("up/down");
        terminal.press(keys);
        assert_eq!(terminal.end(), Some(code));
        assert!(terminal.is_cooked());
    }
}

#[test]
fn a_dumb_terminal_gets_a_numbered_list() {
    let server = ModelServer::start(vec![says("One."), says("Two.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "write the docs"]).assert_code(0);
    let mut terminal = Terminal::run(&machine, &["resume"], "dumb");
    let list = terminal.see("which one?");
    assert!(list.contains("  1  ") && !list.contains('\u{1b}'), "{list:?}");
    terminal.press("1\n");
    terminal.see("you: write the docs");
    terminal.see("> ");
    terminal.press("go on\r");
    terminal.see("Two.");
    terminal.press("/exit\r");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn line_mode_resumes_a_session() {
    let server = ModelServer::start(vec![says("One."), says("Two.")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "--agent", "plan", "first"]).assert_code(0);
    let ended = machine.posse_with_input(&["plain", "-c"], b"second\n");
    ended.assert_code(0);
    assert!(ended.stdout.contains("Two."), "{}", ended.stdout);
    assert!(ended.stderr.contains("agent     plan"), "{}", ended.stderr);
    assert_eq!(contents(&server.requests()[1], "user"), [r#""first""#, r#""second""#]);
    assert_eq!(ids(&machine).len(), 1);
    machine.verify();
}

#[test]
fn last_line_resumes_with_the_configuration_of_the_run() {
    let server = ModelServer::start_and_repeat(vec![says("hi")]);
    let machine = Machine::with(&server);
    let config = fs::read_to_string(machine.path("posse/config/config.json")).unwrap();
    machine.write("my config.json", config.replace("scripted-1", "other-1"));
    machine.write_config("{}");
    let ended = machine.posse(&["run", "--config", "my config.json", "--dry-run", "-y", "say hi"]);
    ended.assert_code(0);
    let line = ended.stderr.lines().last().unwrap();
    let (_, command) = line.split_once(" · posse ").unwrap();
    let flags = format!("--config '{}' --dry-run", machine.work("my config.json").display());
    assert!(command.ends_with(&flags), "{command}");
    let resumed = machine.shell(&format!("\"$0\" {command} -p 'once more'")).output().unwrap();
    let stderr = String::from_utf8_lossy(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("other-1 via local") && stderr.contains("dry run"), "{stderr}");
}
