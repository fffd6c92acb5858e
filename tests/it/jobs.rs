//! Background jobs: start, paged output, notice of the end, and removal with the session.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says, text_of};
use crate::plain::Terminal;
use crate::posse::{FinishedRun, Machine, RunningPosse};
use crate::signals::{marker, sleeping};

/// Maximum time that a process of a job may survive its session, its agent or a stop.
const SURVIVAL_MAX: Duration = Duration::from_secs(2);

/// Commands run without permission requests.
const ARGS: [&str; 5] = ["--yes", "--sandbox", "off", "-p", "do it"];

/// Starts a background command.
fn starts(command: &str) -> ModelAnswer {
    calls(&[("bash", json!({"command": command, "background": true}))])
}

/// Id of the job that was started last.
fn job(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let texts = messages.iter().rev().map(|message| text_of(&message["content"]));
    let id = texts.into_iter().find_map(|text| {
        let (_, rest) = text.split_once("in the background as job ")?;
        Some(rest.split(['.', ' ']).next()?.to_owned())
    });
    id.unwrap_or_else(|| panic!("no job: {request}"))
}

/// Reads the output of the last job at its end or timeout.
fn reads(request: &Value) -> ModelAnswer {
    calls(&[("job_output", json!({"id": job(request), "waitSeconds": 20}))])
}

fn reads_at_once(request: &Value) -> ModelAnswer {
    calls(&[("job_output", json!({"id": job(request)}))])
}

fn stops(request: &Value) -> ModelAnswer {
    calls(&[("job_stop", json!({"id": job(request)}))])
}

/// Resumes the only session.
fn resume(machine: &Machine, prompt: &str) -> (FinishedRun, Vec<Value>) {
    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let ended = machine.posse(
        &[&["resume", &id, "--output-format", "stream-json"], &ARGS[..3], &["-p", prompt]].concat(),
    );
    let events = ended.events();
    (ended, events)
}

/// True if the process runs.
fn lives(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

/// Waits until `check` holds.
#[track_caller]
fn eventually(what: &str, within: Duration, check: impl Fn() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < within, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process ids in `file`, once there are `count` of them.
fn pids(file: &Path, count: usize) -> Vec<String> {
    let read = || -> Vec<String> {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    eventually("writing its process ids", Duration::from_secs(20), || read().len() >= count);
    read()
}

/// A process that has left its session, was started twice, and ignores signals.
const STUBBORN: &str = "trap '' TERM HUP INT; echo $BASHPID >> pids; \
    setsid bash -c 'trap \"\" TERM HUP; echo $BASHPID >> pids; while :; do sleep 0.1; done' & \
    (setsid bash -c 'trap \"\" TERM HUP; echo $BASHPID >> pids; while :; do sleep 0.1; done' &) & \
    while :; do sleep 0.1; done";

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn run(machine: &Machine, more: &[&str]) -> (FinishedRun, Vec<Value>) {
    machine.stream(&[&ARGS[..], more].concat())
}

#[test]
fn job_starts_at_once_is_read_in_parts_and_its_end_reported() {
    let server = ModelServer::start(vec![
        starts("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 3"),
        ModelAnswer::By(reads_at_once),
        calls(&[("bash", json!({"command": "touch go"}))]),
        ModelAnswer::By(reads),
        ModelAnswer::By(reads_at_once),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    let (ended, events) = run(&machine, &[]);
    ended.assert_code(0);
    let results = server.tool_results();
    let [begun, first, _, last, again] = &results[..] else { panic!("{results:?}") };
    let id = begun.split("job ").nth(1).unwrap().split('.').next().unwrap();
    assert!(begun.starts_with("It runs in the background as job c"), "{begun}");
    // The first line may or may not be there already.
    assert!(first.contains("running for"), "{first}");
    let told = [first.as_str(), last].concat();
    assert_eq!(told.matches("one\n").count(), 1, "{told}");
    assert!(last.contains("two\n") && last.contains("exit 3 after"), "{last}");
    assert!(last.ends_with("8 of 8 bytes read)"), "{last}");
    assert!(again.starts_with(&format!("(job {id}: exit 3")), "{again}");
    assert!(again.contains("nothing new; 8 of 8"), "{again}");
    // The output belongs to the call, and everything is in the journal in order.
    let started = of_type(&events, "job.started");
    assert_eq!(started.len(), 1);
    assert_eq!(started[0]["callId"], *id);
    let printed: String = of_type(&events, "tool.output.delta")
        .iter()
        .filter(|delta| delta["callId"] == *id)
        .map(|delta| delta["text"].as_str().unwrap())
        .collect();
    assert_eq!(printed, "one\ntwo\n");
    let over = of_type(&events, "job.ended");
    assert_eq!(over.len(), 1);
    assert_eq!((&over[0]["end"], &over[0]["exitCode"]), (&json!("exited"), &json!(3)));
    assert_eq!(over[0]["bytes"], 8);
    let at = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    assert!(at("sandbox.enforced") < at("job.started"));
    assert!(at("job.started") < at("tool.completed"));
    machine.verify();
}

#[test]
fn command_that_exceeds_the_default_limit_becomes_a_job() {
    let endless = "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 3";
    let server = ModelServer::start(vec![
        calls(&[("bash", json!({"command": endless}))]),
        calls(&[("bash", json!({"command": "touch go"}))]),
        ModelAnswer::By(reads),
        says("done"),
    ]);
    let more = json!({"tools": {"bash": {"timeout": "1s"}}});
    let machine = Machine::configured(&server, &more, &json!({}));
    let (ended, events) = run(&machine, &[]);
    ended.assert_code(0);
    let results = server.tool_results();
    let [continued, _, last] = &results[..] else { panic!("{results:?}") };
    assert!(continued.starts_with("one\n(job c"), "{continued}");
    assert!(continued.contains("still runs after 1 s and continues in the background as job c"));
    assert!(last.starts_with("two\n") && last.contains("exit 3 after"), "{last}");
    assert!(last.ends_with("8 of 8 bytes read)"), "{last}");
    let count = |kind: &str| of_type(&events, kind).len();
    assert_eq!((count("job.started"), count("job.ended"), count("sandbox.enforced")), (1, 1, 2));
    machine.verify();
}

#[test]
fn command_with_a_requested_limit_is_ended() {
    let call = json!({"command": "echo one; sleep 100", "timeoutMs": 1000});
    let server = ModelServer::start(vec![calls(&[("bash", call)]), says("done")]);
    let machine = Machine::with(&server);
    let (ended, events) = run(&machine, &[]);
    ended.assert_code(0);
    let result = &server.tool_results()[0];
    assert!(result.contains("killed after its timeout of 1000 ms"), "{result}");
    assert_eq!(of_type(&events, "job.started").len(), 0);
}

#[test]
fn command_is_ended_at_the_default_limit_if_no_job_may_run() {
    let call = json!({"command": "echo one; sleep 100"});
    let more = json!({"tools": {"bash": {"timeout": "1s", "jobs": 1}}});
    let server = ModelServer::start(vec![
        starts("sleep 100"),
        calls(&[("bash", call)]),
        ModelAnswer::By(stops),
        says("done"),
    ]);
    let machine = Machine::configured(&server, &more, &json!({}));
    let (ended, events) = run(&machine, &[]);
    ended.assert_code(0);
    let result = &server.tool_results()[1];
    assert!(result.contains("killed after its timeout of 1000 ms"), "{result}");
    assert_eq!(of_type(&events, "job.started").len(), 1);
}

#[test]
fn end_of_a_run_ends_commands_before_and_after_their_limit() {
    let endless = "echo $$ >> pids; exec sleep 1000";
    let server = ModelServer::start(vec![
        calls(&[("bash", json!({"command": endless}))]),
        calls(&[("bash", json!({"command": endless, "timeoutMs": 600_000}))]),
    ]);
    let more = json!({"tools": {"bash": {"timeout": "1s"}}});
    let machine = Machine::configured(&server, &more, &json!({}));
    let (ended, _) = run(&machine, &["--timeout", "4s"]);
    assert_ne!(ended.code, Some(0));
    // The job and the command end with the session.
    for pid in pids(&machine.work("pids"), 2) {
        eventually("the command has ended", SURVIVAL_MAX, || !lives(&pid));
    }
}

#[test]
fn job_end_is_a_message_at_the_next_step() {
    let server = ModelServer::start(vec![
        starts("echo ready"),
        calls(&[(
            "bash",
            json!({"command": "while ! grep -q '\"type\":\"job.ended\"' ../posse/state/projects/*/sessions/*/session.jsonl; do sleep 0.02; done"}),
        )]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    let (ended, events) = run(&machine, &[]);
    ended.assert_code(0);
    let requests = server.requests();
    let messages = requests.last().unwrap()["messages"].as_array().unwrap();
    let said = messages.iter().skip(2).find(|message| message["role"] == "user");
    let text = text_of(&said.unwrap_or_else(|| panic!("{messages:?}"))["content"]);
    assert!(text.starts_with("(from posse, not from the user) Background job c"), "{text}");
    assert!(text.contains("has ended: exit 0") && text.contains("6 bytes printed"), "{text}");
    assert_eq!(of_type(&events, "message.queued").len(), 1);
}

#[test]
fn job_processes_end_with_stop_session_or_kill() {
    // Stopped by the model.
    let server = ModelServer::start(vec![
        starts(STUBBORN),
        ModelAnswer::By(stops_when_written),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    let (ended, events) = run(&machine, &[]);
    ended.assert_code(0);
    let results = server.tool_results();
    assert!(results[1].contains(": stopped after"), "{results:?}");
    assert_eq!(of_type(&events, "job.ended")[0]["end"], "stopped");
    for pid in pids(&machine.work("pids"), 3) {
        assert!(!lives(&pid), "{pid} lives although job_stop has returned");
    }

    // Stopped with its session, which was done.
    let server = ModelServer::start(vec![starts(STUBBORN), ModelAnswer::By(waits_until_written)]);
    let machine = Machine::with(&server);
    let (ended, events) = run(&machine, &[]);
    ended.assert_code(0);
    for pid in pids(&machine.work("pids"), 3) {
        assert!(!lives(&pid), "{pid} lives although the session has ended");
    }
    let over = of_type(&events, "job.ended");
    assert_eq!(over[0]["end"], "session_ended", "{over:?}");
    assert_eq!(events.last().unwrap()["type"], "session.ended");

    // Killed with posse.
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGHUP] {
        let server = ModelServer::start(vec![starts(STUBBORN), ModelAnswer::Hold(Vec::new())]);
        let machine = Machine::with(&server);
        let mut running = machine.start(&ARGS);
        running.wait_for("job.started");
        let pids = pids(&machine.work("pids"), 3);
        running.signal(signal);
        running.wait();
        eventually(&format!("the end of what {signal} leaves"), SURVIVAL_MAX, || {
            pids.iter().all(|pid| !lives(pid))
        });
    }
}

/// Answers when the job has written all of its process ids.
fn waits_until_written(_: &Value) -> ModelAnswer {
    std::thread::sleep(Duration::from_secs(1));
    says("done")
}

fn stops_when_written(request: &Value) -> ModelAnswer {
    std::thread::sleep(Duration::from_secs(1));
    stops(request)
}

#[test]
fn resumed_session_reports_lost_jobs() {
    let server = ModelServer::start(vec![
        starts("echo listening; while :; do sleep 0.1; done"),
        ModelAnswer::Hold(Vec::new()),
        says("I see."),
        says("Hm."),
    ]);
    let machine = Machine::with(&server);
    let mut running = machine.start(&ARGS);
    running.wait_for("job.started");
    // The result of the call is on disk before it is announced.
    running.wait_for("tool.completed");
    server.wait_for_request();
    server.wait_for_request();
    running.signal(Signal::SIGKILL);
    running.wait();
    let (ended, events) = resume(&machine, "and now?");
    ended.assert_code(0);
    let over = of_type(&events, "job.ended");
    assert_eq!(over.len(), 1, "{events:?}");
    assert_eq!(over[0]["end"], "lost");
    let requests = server.requests();
    let said = requests.last().unwrap()["messages"].to_string();
    assert!(said.contains("does not run any more: it ended with the process"), "{said}");
    assert!(said.contains("read_file output:c"), "{said}");
    machine.verify();
    // It is reported once.
    let (_, events) = resume(&machine, "hm");
    assert_eq!(of_type(&events, "job.ended").len(), 0);
}

#[test]
fn number_of_jobs_is_limited() {
    let wait = "while :; do sleep 0.1; done";
    let server = ModelServer::start(vec![starts(wait), starts(wait), starts(wait), says("done")]);
    let more = json!({"tools": {"bash": {"jobs": 2}}});
    let machine = Machine::configured(&server, &more, &json!({}));
    let (ended, events) = run(&machine, &[]);
    ended.assert_code(0);
    let refused = &server.tool_results()[2];
    assert!(refused.starts_with("JOB001 2 commands run in the background (c"), "{refused}");
    assert!(refused.contains("tools.bash.jobs is 2; nothing was run"), "{refused}");
    assert_eq!(of_type(&events, "job.started").len(), 2);
    assert_eq!(of_type(&events, "job.ended").len(), 2);

    // With none allowed there are no job tools, and no request mentions them.
    let server = ModelServer::start(vec![starts(wait), says("done")]);
    let more = json!({"tools": {"bash": {"jobs": 0}}});
    let machine = Machine::configured(&server, &more, &json!({}));
    run(&machine, &[]).0.assert_code(0);
    let first = server.requests()[0]["tools"].to_string();
    assert!(!first.contains("job_") && !first.contains("background"), "{first}");
    let refused = &server.tool_results()[0];
    assert!(refused.starts_with("ARG001 unknown field \"background\""), "{refused}");
}

#[test]
fn job_tools_need_the_bash_tool() {
    let server = ModelServer::start(vec![says("done")]);
    let machine = Machine::with(&server);
    run(&machine, &["--agent", "plan"]).0.assert_code(0);
    let tools = server.requests()[0]["tools"].to_string();
    assert!(!tools.contains("job_") && !tools.contains("\"bash\""), "{tools}");
}

#[test]
fn background_commands_have_the_same_permissions() {
    let server = ModelServer::start(vec![starts("touch made"), says("done")]);
    let machine = Machine::with(&server);
    // No person can be asked.
    let (ended, events) = machine.stream(&["-p", "do it"]);
    ended.assert_code(4);
    assert_eq!(of_type(&events, "job.started").len(), 0);
    assert!(!machine.work("made").exists());
    let denied = &server.tool_results()[0];
    assert!(denied.starts_with("Denied: "), "{denied}");
}

#[test]
fn long_output_stays_bounded_and_secrets_stay_hidden() {
    let server = ModelServer::start(vec![
        starts("for i in $(seq 20000); do echo line $i; done; echo key $MY_API_KEY end"),
        ModelAnswer::By(reads),
        ModelAnswer::By(|request| calls(&[("job_output", json!({"id": job(request), "from": 0}))])),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    let mut command =
        machine.command(&[&["run", "--output-format", "stream-json"], &ARGS[..]].concat());
    command.env("MY_API_KEY", "sk-not-for-anybody");
    let ended = RunningPosse::start(command).end();
    ended.assert_code(0);
    let results = server.tool_results();
    let [_, newest, oldest] = &results[..] else { panic!("{results:?}") };
    assert!(newest.starts_with("[… ") && newest.contains("output:c"), "{newest}");
    assert!(newest.contains("key ") && !newest.contains("sk-not-for-anybody"), "{newest}");
    assert!(newest.contains("line 20000\n") && !newest.contains("line 1\n"), "{newest}");
    assert!(oldest.starts_with("line 1\n") && !oldest.contains("line 20000"), "{oldest}");
    assert!(newest.len() < 40_000 && oldest.len() < 40_000);
    assert!(!ended.stdout.contains("sk-not-for-anybody"));
}

#[test]
fn an_interrupt_stops_the_turn_and_not_the_job() {
    let server = ModelServer::start(vec![
        starts("echo $$ > pids; while :; do sleep 0.1; done"),
        ModelAnswer::Hold(Vec::new()),
        ModelAnswer::By(stops),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    let args = [
        "run",
        "--output-format",
        "stream-json",
        "--input-format",
        "stream-json",
        "--yes",
        "--sandbox",
        "off",
    ];
    let mut command = machine.command(&args);
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    let mut say = |line: Value| {
        use std::io::Write;
        writeln!(stdin, "{line}").unwrap();
    };
    say(json!({"type": "message", "content": "do it"}));
    running.wait_for("job.started");
    let pid = pids(&machine.work("pids"), 1).remove(0);
    server.wait_for_request();
    server.wait_for_request();
    say(json!({"type": "interrupt"}));
    running.wait_for("agent.invocation.cancelled");
    assert!(lives(&pid));
    say(json!({"type": "message", "content": "go on"}));
    running.wait_for("job.ended");
    drop(stdin);
    let ended = running.end();
    assert!(!lives(&pid));
    assert!(ended.stdout.contains("session.ended"), "{}", ended.stdout);
}

/// Jobs of a subagent end with it.
#[test]
fn job_of_a_subagent_ends_with_it() {
    fn next(request: &Value) -> ModelAnswer {
        let messages = request["messages"].as_array().unwrap();
        let results = messages.iter().filter(|message| message["role"] == "tool").count();
        let task = messages[1]["content"].to_string();
        let is_main = !task.contains("gives you this task");
        match (is_main, results) {
            (true, 0) => calls(&[("delegate_agent", json!({"agent": "worker", "task": "go"}))]),
            (true, _) => ModelAnswer::Hold(Vec::new()),
            (false, 0) => starts(STUBBORN),
            (false, _) => {
                std::thread::sleep(Duration::from_secs(1));
                says("It runs.")
            }
        }
    }
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(next)]);
    let more = json!({
        "agentMode": "multi-agent", "delegation": {"defaultInvocationDecision": "allow"},
    });
    let machine = Machine::configured(&server, &more, &json!({}));
    let mut running = machine.start(&["--yes", "--sandbox", "off", "-p", "serve it"]);
    let started = running.wait_for("job.started");
    assert_eq!(started["agentPath"], "build/worker");
    let pids = pids(&machine.work("pids"), 3);
    running.wait_for("agent.delegation.ended");
    eventually("the end of the child's job", SURVIVAL_MAX, || pids.iter().all(|pid| !lives(pid)));
    let over = running.wait_for("job.ended");
    assert_eq!((&over["end"], &over["agentPath"]), (&json!("stopped"), &json!("build/worker")));
    running.signal(Signal::SIGINT);
    assert_eq!(running.end().code, Some(130));
}

/// Sleeps in four processes that have left their session, forked twice, or ignore termination
/// signals.
fn sleeps(marker: &str) -> String {
    format!(
        "trap '' TERM HUP INT; setsid sleep {marker} & \
         (setsid sh -c 'sleep {marker} & exec sleep {marker}' &) ; sleep {marker}; sleep {marker}"
    )
}

/// In every sandbox tier, background commands are sandboxed, and none of their processes survives.
#[test]
fn jobs_of_every_tier_are_confined_and_die_with_their_session() {
    for (backend, tier) in [("namespaces", "full"), ("bubblewrap", "full"), ("landlock", "reduced")]
    {
        let sleep = marker();
        let command =
            format!("(echo x > $HOME/escaped) 2>/dev/null; echo in > made; {}", sleeps(&sleep));
        let server = ModelServer::start(vec![starts(&command), says("begun")]);
        let machine = Machine::with(&server);
        let formats = ["--input-format", "stream-json", "--output-format", "stream-json"];
        let mut command = machine.command(&[&["run", "--yes"][..], &formats].concat());
        command.env("POSSE_SANDBOX_BACKEND", backend).stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let mut stdin = running.take_stdin();
        writeln!(stdin, "{}", json!({"type": "message", "content": "go"})).unwrap();
        let enforced = running.wait_for("sandbox.enforced");
        assert_eq!(
            (&enforced["tier"], &enforced["report"]["backend"]),
            (&json!(tier), &json!(backend))
        );
        running.wait_for("agent.invocation.completed");
        let within = Duration::from_secs(20);
        eventually(&format!("{backend}: all sleep"), within, || sleeping(&sleep) >= 4);
        drop(stdin);
        let ended = running.end();
        ended.assert_code(0);
        eventually(&format!("{backend}: nobody sleeps"), SURVIVAL_MAX, || sleeping(&sleep) == 0);
        assert_eq!(machine.read("made"), "in\n");
        assert!(!machine.path("home/escaped").exists(), "{backend}");
        machine.verify();
    }
}

/// A run that outlives its terminal keeps its job until the run ends.
#[test]
fn an_unattended_run_keeps_its_job_without_its_terminal_and_ends_it() {
    let sleep = marker();
    let waits = "while [ ! -e go ]; do sleep 0.02; done; echo went";
    let server = ModelServer::start(vec![
        starts(&sleeps(&sleep)),
        calls(&[("bash", json!({"command": waits}))]),
        says("It is done."),
    ]);
    let machine = Machine::with(&server);
    let args = ["run", "--unattended", "--yes", "--sandbox", "off", "go"];
    let mut terminal = Terminal::run(&machine, &args, "xterm");
    let within = Duration::from_secs(20);
    eventually("all sleep", within, || sleeping(&sleep) >= 4);
    eventually("the second command", within, || server.requests().len() == 2);
    terminal.vanish();
    terminal.signal(Signal::SIGHUP);
    let log = || fs::read_to_string(machine.session_dir().join("run.log")).unwrap_or_default();
    eventually("detaching", within, || log().contains("continues without its terminal"));
    assert!(sleeping(&sleep) >= 4, "the job goes on with its run");
    fs::write(machine.work("go"), "").unwrap();
    assert_eq!(terminal.end(), Some(0));
    eventually("nobody sleeps", SURVIVAL_MAX, || sleeping(&sleep) == 0);
    assert!(log().contains("It is done."), "{}", log());
    machine.verify();
}

/// Jobs that move the folder with a secret all the time: away and back, and in exchange for another
/// folder with a secret.
const MOVES: [&str; 4] = [
    "os.rename('a', 'b'); os.mkdir('a'); open('a/.env', 'w').close()\n  os.remove('a/.env')\n  \
     os.rmdir('a'); os.rename('b', 'a')",
    "os.rename('a', 'b'); os.rename('b', 'a')",
    "ctypes.CDLL(None).renameat2(-100, b'a', -100, b'd', 2)",
    // In `l` a link has the name of the secret.
    "ctypes.CDLL(None).renameat2(-100, b'a', -100, b'l', 2)",
];

/// A command that may write, and one that only reads.
const READS: [&str; 2] = ["python3 reads.py", "grep -r KEY a b d l; echo read"];

/// Runs 12 commands that print all files that they find again and again, beside a job that runs
/// `moves` in a loop.
fn reads_beside(moves: &str, reads_with: &str, dry_run: bool) -> Vec<String> {
    let moves = format!("import ctypes, os, time\nwhile True:\n  {moves}\n");
    let mut answers = vec![starts("python3 moves.py")];
    let reads = "import os\nfor _ in range(20):\n  for folder in ('a', 'b', 'd', 'l'):\n    try:\n      \
                 print(open(folder + '/.env').read())\n    except OSError:\n      pass\n\
                 print('read')\n";
    // Each is another command: the same failing one is not repeated for ever.
    let run = |number: usize| {
        let command = format!("{reads_with} {number}");
        calls(&[("bash", json!({"command": command, "dryRun": dry_run}))])
    };
    answers.extend((0..12).map(run));
    answers.push(says("done"));
    let server = ModelServer::start(answers);
    let machine = Machine::with(&server);
    machine.write("moves.py", moves);
    machine.write("reads.py", reads);
    for folder in ["a", "d"] {
        machine.write(&format!("{folder}/.env"), "KEY=hidden-from-commands\n");
    }
    fs::create_dir(machine.work("l")).unwrap();
    symlink("nowhere", machine.work("l/.env")).unwrap();
    let ended = machine.posse(&["run", "--permission-mode", "auto", "--yes", "go"]);
    ended.assert_code(0);
    server.tool_results()
}

#[test]
fn secret_that_a_job_moves_is_never_shown() {
    let runs = [
        (MOVES[0], READS[0], false),
        (MOVES[1], READS[0], false),
        (MOVES[2], READS[0], false),
        (MOVES[3], READS[0], false),
        (MOVES[1], READS[1], false),
        (MOVES[1], READS[0], true),
        (MOVES[2], READS[0], true),
    ];
    for (moves, reads_with, dry_run) in runs {
        let results = reads_beside(moves, reads_with, dry_run);
        let is_shown = |text: &&String| text.to_lowercase().contains("hidden-from-commands");
        assert_eq!(results.iter().find(is_shown), None, "{moves} {dry_run}");
        // Commands ran, or were refused for this reason.
        let ran = results[1..].iter().filter(|text| text.contains("read")).count();
        let is_refused = |text: &&String| {
            let code = if text.contains("SH006") { "moved or removed while" } else { "SH010" };
            text.contains(code)
        };
        let refused = results.iter().filter(is_refused).count();
        assert_eq!((results.len(), ran + refused), (13, 12), "{moves} {dry_run} {results:?}");
    }
}

#[test]
fn dry_run_is_shown_beside_a_job_that_moves_nothing() {
    let results = reads_beside("open('d/new', 'a').close(); time.sleep(0.01)", READS[0], true);
    let ran = results.iter().filter(|text| text.contains("read\n")).count();
    assert_eq!(ran, 12, "{results:?}");
    assert!(!results.iter().any(|text| text.contains("hidden-from-commands")), "{results:?}");
}
