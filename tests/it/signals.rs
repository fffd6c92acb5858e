//! Ways to stop a run from outside: the right code, the last line, and no process left.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, runs, says, stream_bytes, text_event};
use crate::posse::{FinishedRun, Machine, RunningPosse};

/// Additional time on a busy machine.
const SOON: Duration = Duration::from_secs(4);

const SIGNALS: [(Signal, i32); 3] =
    [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)];

/// A server whose reply starts and then stays silent.
fn endless() -> ModelServer {
    ModelServer::start(vec![ModelAnswer::Hold(stream_bytes(text_event("I think that").as_bytes()))])
}

/// A number of seconds that no other process sleeps.
pub(crate) fn marker() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let here = std::ptr::from_ref(&now) as usize;
    format!("9{}{}", now.as_nanos() % 1_000_000_000, here % 100_000)
}

/// Processes that have the marker in their command line.
pub(crate) fn marked(marker: &str) -> Vec<String> {
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

/// Number of sleeping processes with that duration.
pub(crate) fn sleeping(marker: &str) -> usize {
    let line = format!("sleep {marker}");
    let is_sleep = |marked: &String| marked.split_once(' ').unwrap().1.trim_end() == line;
    marked(marker).iter().filter(|marked| is_sleep(marked)).count()
}

/// The processes for which `test` holds, given their folders.
fn processes(test: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_pid = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    pids.filter(is_pid).filter(|pid| test(&Path::new("/proc").join(pid))).collect()
}

/// True if a file of `/proc` has an entry with this prefix.
fn has_entry(file: &Path, start: &str) -> bool {
    let whole = fs::read(file).unwrap_or_default();
    whole.split(|&byte| byte == 0).any(|entry| entry.starts_with(start.as_bytes()))
}

/// Processes that carry the mark of a call of that runtime.
fn of_calls(runtime: Pid) -> Vec<String> {
    let start = format!("POSSE_CALL={runtime}.");
    processes(|folder| has_entry(&folder.join("environ"), &start))
}

/// The watchers of that runtime.
fn watchers(runtime: Pid) -> Vec<String> {
    let start = format!("{runtime}.");
    processes(|folder| {
        let line = folder.join("cmdline");
        has_entry(&line, "__posse_watch") && has_entry(&line, &start)
    })
}

/// Targets of a process's descriptors, in order.
fn descriptors(pid: &str) -> Vec<String> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut open: Vec<_> = folder.into_iter().flatten().flatten().map(|fd| fd.path()).collect();
    open.sort();
    let targets = open.iter().filter_map(|fd| fs::read_link(fd).ok());
    let name = |target: PathBuf| target.display().to_string();
    // A pipe's name continues with its number.
    targets.map(|target| name(target).split(':').next().unwrap().to_owned()).collect()
}

/// Waits until `check` holds; fails after the maximum lifetime of leftovers.
#[track_caller]
pub(crate) fn eventually(what: &str, check: impl Fn() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < Duration::from_secs(5), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asserts that the stream has its last line with the exit code.
#[track_caller]
fn assert_last(ended: &FinishedRun, code: i32) -> Value {
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
        // The partial text is kept, and the history stays valid.
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
fn stopped_command_is_checked_before_the_session_ends() {
    for (signal, code) in SIGNALS {
        let server = ModelServer::start(vec![runs("sh plant.sh; echo ready; sleep 60; true")]);
        let machine = Machine::with(&server);
        machine.write("plant.sh", "echo x > .envrc\n");
        let mut running = machine.start(&["-y", "wait"]);
        running.wait_for("tool.output.delta");
        let begin = Instant::now();
        running.signal(signal);
        let ended = running.end();
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        assert_last(&ended, code);
        let is_finding = |event: &Value| {
            let message = event["message"].as_str().unwrap_or_default();
            event["type"] == "warning" && message.contains("SBX010") && message.contains(".envrc")
        };
        assert_eq!(ended.events().iter().filter(|event| is_finding(event)).count(), 1, "{ended:?}");
        assert!(!machine.work(".envrc").exists());
        machine.verify();
    }
}

#[test]
fn leaves_nothing_running_when_it_is_killed() {
    let sleep = marker();
    // A shell becomes its last command, so the sleep in the foreground must not be the last. One
    // leaves the group, and one the session.
    let command = format!("setsid sleep {sleep} & sleep {sleep} & echo ready; sleep {sleep}; true");
    let server = ModelServer::start(vec![runs(&command)]);
    let machine = Machine::with(&server);
    let mut running = machine.start(&["-y", "wait"]);
    running.wait_for("tool.output.delta");
    let pid = running.pid();
    // The shell, and three sleeps.
    eventually("start", || sleeping(&sleep) >= 3 && of_calls(pid).len() >= 4);
    running.signal(Signal::SIGKILL);
    // Its standard output is closed when the last process that had it is gone.
    assert_eq!(running.end().code, None);
    eventually("end", || marked(&sleep).is_empty() && of_calls(pid).is_empty());
    eventually("the end of the watcher", || watchers(pid).is_empty());
    machine.verify();
}

#[test]
fn effects_of_a_command_are_reported_after_posse_was_killed() {
    let planted = "sh plant.sh; echo ready; sleep 300";
    let answers = vec![runs(planted), runs("true"), says("first"), runs("true"), says("second")];
    let server = ModelServer::start(answers);
    let machine = Machine::with(&server);
    machine.write("plant.sh", "echo planted > .envrc\n");
    let mut running = machine.start(&["-y", "wait"]);
    running.wait_for("tool.output.delta");
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    let (next, events) = machine.stream(&["-y", "go on"]);
    next.assert_code(0);
    let expected = ".envrc has changed since a command started that was not checked";
    let is_report = |event: &&Value| {
        event["message"].as_str().is_some_and(|message| message.contains(expected))
    };
    assert_eq!(events.iter().filter(is_report).count(), 1, "{next:?}");
    let told = |server: &ModelServer| server.tool_results().last().unwrap().contains(expected);
    assert!(told(&server));
    assert_eq!(machine.read(".envrc"), "planted\n");
    let (again, _) = machine.stream(&["-y", "go on"]);
    again.assert_code(0);
    assert!(!told(&server), "{again:?}");
}

#[test]
fn kill_ends_commands_of_that_process_only() {
    let start = |sleep: &str| {
        let command = format!("setsid sleep {sleep} & echo ready; sleep {sleep}; true");
        let server = ModelServer::start(vec![runs(&command)]);
        let machine = Machine::with(&server);
        let mut running = machine.start(&["-y", "wait"]);
        running.wait_for("tool.output.delta");
        eventually("start", || sleeping(sleep) >= 2);
        (running, server, machine)
    };
    let (sleep, other_sleep) = (marker(), marker());
    let (running, _server, _machine) = start(&sleep);
    let (other, _other_server, _other_machine) = start(&other_sleep);
    let (pid, other_pid) = (running.pid(), other.pid());
    let before = of_calls(other_pid);
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    eventually("end", || marked(&sleep).is_empty() && watchers(pid).is_empty());
    // A helper for its next command may have come in the meantime.
    let after = of_calls(other_pid);
    assert!(before.iter().all(|process| after.contains(process)), "{before:?} {after:?}");
    assert_eq!((sleeping(&other_sleep), watchers(other_pid).len()), (2, 1));
    other.signal(Signal::SIGTERM);
    assert_last(&other.end(), 143);
    eventually("end", || marked(&other_sleep).is_empty() && watchers(other_pid).is_empty());
}

#[test]
fn watchdog_runs_only_after_the_first_command() {
    let hold = || ModelAnswer::Hold(stream_bytes(text_event("I think that").as_bytes()));
    for (answers, expected) in [(vec![hold()], 0), (vec![runs("true"), runs("true"), hold()], 1)] {
        let server = ModelServer::start(answers);
        let machine = Machine::with(&server);
        let mut running = machine.start(&["-y", "think"]);
        running.wait_for("model.text.delta");
        let pid = running.pid();
        eventually("start", || watchers(pid).len() == expected);
        for watcher in watchers(pid) {
            // It keeps nothing open that another process could wait for.
            eventually("closing", || descriptors(&watcher) == ["pipe", "/dev/null", "/dev/null"]);
            let environment = fs::read(format!("/proc/{watcher}/environ")).unwrap();
            assert_eq!(String::from_utf8_lossy(&environment), "");
            // Signals of a terminal go to a group, and it is not in that.
            let group = nix::unistd::getpgid(Some(Pid::from_raw(watcher.parse().unwrap())));
            assert_ne!(group, nix::unistd::getpgid(Some(pid)));
        }
        running.signal(Signal::SIGTERM);
        assert_last(&running.end(), 143);
        eventually("the end of the watcher", || watchers(pid).is_empty());
    }
}

#[test]
fn file_size_limit_is_an_error_not_a_signal() {
    let server = ModelServer::start_and_repeat(vec![says("hello")]);
    let machine = Machine::with(&server);
    let plain = machine.command(&["run", "say hello"]);
    // The limit counts blocks of half a kibibyte or of a whole one.
    let mut limited = std::process::Command::new("/bin/sh");
    limited.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""]).arg(plain.get_program());
    limited.args(plain.get_args()).current_dir(machine.work("")).env_clear();
    limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = RunningPosse::start(limited).end();
    // A signal would leave no code.
    assert!(ended.code.is_some(), "{}", ended.stderr);
    assert!(ended.stderr.contains("journal"), "{}", ended.stderr);
}

#[test]
fn second_signal_exits_at_once() {
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
fn signal_stops_a_wait_for_a_provider() {
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
fn text_output_has_only_the_exit_code() {
    let server = endless();
    let machine = Machine::with(&server);
    let running = RunningPosse::start(machine.command(&["run", "think"]));
    server.wait_for_request();
    running.signal(Signal::SIGINT);
    let ended = running.end();
    ended.assert_code(130);
    assert_eq!(ended.stdout, "");
    assert!(ended.stderr.contains("\n! interrupted\n"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("error["), "{}", ended.stderr);
}

#[test]
fn closed_stdout_ends_the_run() {
    for format in ["text", "json", "stream-json"] {
        let server = ModelServer::start_and_repeat(vec![says("hello")]);
        let machine = Machine::with(&server);
        let mut command = machine.command(&["run", "--output-format", format, "say hello"]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stdout(writer);
        let ended = RunningPosse::start(command).end();
        ended.assert_code(1);
        machine.verify();

        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = machine.command(&["run", "--output-format", format, "say hello"]);
        command.stdout(Stdio::from(full));
        let ended = RunningPosse::start(command).end();
        ended.assert_code(1);
        let error = "error[OUT001]: the answer could not be written\n  why: No space left";
        assert!(ended.stderr.contains(error), "{}", ended.stderr);
        machine.verify();

        let line = format!("exec \"$0\" run --output-format {format} 'say hello' >&-");
        let ended = RunningPosse::start(machine.shell(&line)).end();
        ended.assert_code(1);
        assert!(ended.stderr.contains("standard output is closed"), "{}", ended.stderr);
        machine.verify();

        let line = format!("exec \"$0\" run --output-format {format} 'say hello' 1<>/dev/null");
        RunningPosse::start(machine.shell(&line)).end().assert_code(0);
    }
}

#[test]
fn closed_stdout_does_not_panic_help_and_lists() {
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
        let ended = RunningPosse::start(command).end();
        assert_eq!(ended.code, Some(1), "{args:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    }
}
