//! Ways to stop a run from outside: the right code, the last line, and no process left.

use std::fs::{self, OpenOptions};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{Answer, ModelServer, runs, says, stream_bytes, text_event};
use crate::posse::{Ended, Machine, Running};

/// A stop is quick; this is what a busy machine may add.
const SOON: Duration = Duration::from_secs(4);

const SIGNALS: [(Signal, i32); 3] =
    [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)];

/// A server whose reply begins and does not go on.
fn endless() -> ModelServer {
    ModelServer::start(vec![Answer::Hold(stream_bytes(text_event("I think that").as_bytes()))])
}

/// A number of seconds that no other process sleeps.
fn marker() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let here = std::ptr::from_ref(&now) as usize;
    format!("9{}{}", now.as_nanos() % 1_000_000_000, here % 100_000)
}

/// Processes that have the marker in their command line.
fn marked(marker: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    pids.filter_map(|pid| {
        let pid = pid.to_str()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (pid != own && line.contains(marker)).then(|| format!("{pid} {line}"))
    })
    .collect()
}

/// Fails unless the stream has its last line, and it says how the process ended.
#[track_caller]
fn assert_last(ended: &Ended, code: i32) -> Value {
    ended.assert_code(code);
    let last = ended.events().pop().unwrap();
    assert_eq!(last["type"], "session.ended", "{last}");
    assert_eq!((&last["reason"], &last["exitCode"]), (&json!("interrupted"), &json!(code)));
    last
}

#[test]
fn stops_during_a_reply() {
    for (signal, code) in SIGNALS {
        let server = endless();
        let machine = Machine::with(&server);
        let mut running = machine.start(&["think"]);
        running.wait_for("model.text.delta");
        let begin = Instant::now();
        running.signal(signal);
        let ended = running.end();
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        assert_last(&ended, code);
        // What had arrived is kept, and the history stays valid.
        let partial = ended.events().into_iter().find(|e| e["type"] == "model.text.partial");
        assert_eq!(partial.unwrap()["text"], "I think that");
        machine.verify();
    }
}

#[test]
fn stops_a_command_and_everything_it_started() {
    for (signal, code) in SIGNALS {
        let sleep = marker();
        let command = format!(
            "sleep {sleep} & (setsid sleep {sleep} &) ; (trap '' TERM INT HUP; sleep {sleep}; \
             sleep {sleep}) & echo ready; wait"
        );
        let server = ModelServer::start(vec![runs(&command)]);
        let machine = Machine::with(&server);
        let mut running = machine.start(&["-y", "wait"]);
        running.wait_for("tool.output.delta");
        assert!(marked(&sleep).len() >= 3, "{:?}", marked(&sleep));
        let begin = Instant::now();
        running.signal(signal);
        let ended = running.end();
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        assert_eq!(marked(&sleep), Vec::<String>::new());
        assert_last(&ended, code);
        let kinds: Vec<_> = ended.events().iter().map(|event| event["type"].clone()).collect();
        let outcome = |kind: &&Value| {
            matches!(kind.as_str(), Some("tool.completed" | "tool.failed" | "tool.outcome_unknown"))
        };
        assert_eq!(kinds.iter().filter(outcome).count(), 1, "{kinds:?}");
        machine.verify();
    }
}

#[test]
fn leaves_nothing_running_when_it_is_killed() {
    let sleep = marker();
    let server = ModelServer::start(vec![runs(&format!("echo ready; sleep {sleep}"))]);
    let machine = Machine::with(&server);
    let mut running = machine.start(&["-y", "wait"]);
    running.wait_for("tool.output.delta");
    assert!(!marked(&sleep).is_empty());
    running.signal(Signal::SIGKILL);
    // Its standard output is closed when the last process that had it is gone.
    assert_eq!(running.end().code, None);
    let begin = Instant::now();
    while !marked(&sleep).is_empty() {
        assert!(begin.elapsed() < SOON, "{:?}", marked(&sleep));
        std::thread::yield_now();
    }
    machine.verify();
}

#[test]
fn gets_out_at_once_when_told_twice() {
    let server =
        ModelServer::start(vec![runs("trap '' TERM INT; echo ready; while :; do :; done")]);
    let machine = Machine::with(&server);
    let mut running = machine.start(&["-y", "wait"]);
    running.wait_for("tool.output.delta");
    let begin = Instant::now();
    running.signal(Signal::SIGINT);
    running.signal(Signal::SIGINT);
    let ended = running.end();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_last(&ended, 130);
    machine.verify();
}

#[test]
fn stops_while_it_waits_for_a_provider() {
    let busy = crate::model_server::status("503 Busy", &["retry-after: 20"], "{}");
    let server = ModelServer::start_and_repeat(vec![busy]);
    let machine = Machine::configured(&server, &json!({"patience": "10m"}), &json!({}));
    let mut running = machine.start(&["think"]);
    running.wait_for("provider.retry");
    let begin = Instant::now();
    running.signal(Signal::SIGINT);
    let ended = running.end();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_last(&ended, 130);
}

#[test]
fn says_nothing_but_the_code_in_text() {
    let server = endless();
    let machine = Machine::with(&server);
    let running = Running::start(machine.command(&["run", "think"]));
    server.wait_for_request();
    running.signal(Signal::SIGINT);
    let ended = running.end();
    ended.assert_code(130);
    assert_eq!(ended.stdout, "");
    assert!(ended.stderr.contains("\n! interrupted\n"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("error["), "{}", ended.stderr);
}

#[test]
fn ends_when_nobody_reads_the_answer() {
    for format in ["text", "json", "stream-json"] {
        let server = ModelServer::start_and_repeat(vec![says("hello")]);
        let machine = Machine::with(&server);
        let mut command = machine.command(&["run", "--output-format", format, "say hello"]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stdout(writer);
        let ended = Running::start(command).end();
        ended.assert_code(1);
        machine.verify();

        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = machine.command(&["run", "--output-format", format, "say hello"]);
        command.stdout(Stdio::from(full));
        let ended = Running::start(command).end();
        ended.assert_code(1);
        let error = "error[OUT001]: the answer could not be written\n  why: No space left";
        assert!(ended.stderr.contains(error), "{}", ended.stderr);
        machine.verify();

        let line = format!("exec \"$0\" run --output-format {format} 'say hello' >&-");
        let ended = Running::start(machine.shell(&line)).end();
        ended.assert_code(1);
        assert!(ended.stderr.contains("standard output is closed"), "{}", ended.stderr);
        machine.verify();

        let line = format!("exec \"$0\" run --output-format {format} 'say hello' 1<>/dev/null");
        Running::start(machine.shell(&line)).end().assert_code(0);
    }
}

#[test]
fn does_not_panic_when_help_or_lists_go_nowhere() {
    let machine = Machine::new();
    let lines: [&[&str]; 5] = [
        &["--version"],
        &["run", "--help"],
        &["config", "show"],
        &["sessions", "list"],
        &["sessions", "verify"],
    ];
    for args in lines {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = machine.command(args);
        command.stdout(Stdio::from(full));
        let ended = Running::start(command).end();
        assert_eq!(ended.code, Some(1), "{args:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    }
}
