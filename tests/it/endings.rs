//! Ends of a run by signals, once and twice, and survival where required: exit code, session id at
//! both ends, complete records, no process left, within a time limit.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::socket::{Backlog, listen};
use serde_json::{Value, json};

use crate::byte_server::{ByteServer, DIALECTS, Move};
use crate::journal_lock::{has_namespaces, small_disk};
use crate::model_server::{
    ModelAnswer, ModelServer, calls, reply, runs, says, status, stream_bytes, text_event,
};
use crate::plain::Terminal;
use crate::posse::{Machine, RunningPosse, side_by_side};
use crate::signals::{eventually, marked, marker};

const SIGNALS: [(Signal, i32); 3] =
    [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)];

/// Additional time on a busy machine.
const SOON: Duration = Duration::from_secs(4);

/// Promised time of a cancelled wait.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Tries for a figure that load disturbs.
const TRIES: usize = 5;

/// Makes a run wait in the given way; returns the event after which it does. Commands sleep for the
/// given time.
fn wait(way: &str, sleep: &str) -> (ModelAnswer, Value, &'static str) {
    let half = || stream_bytes(text_event("half").as_bytes());
    let hook = json!([{"event": "PreToolUse", "command": ["sleep", sleep], "timeoutMs": 60_000}]);
    match way {
        "connecting" | "silence" => (ModelAnswer::Hold(Vec::new()), json!({}), "model.request"),
        "stream" => (ModelAnswer::Hold(half()), json!({}), "model.text.delta"),
        "retry" => {
            let busy = status("503 Busy", &["retry-after: 20"], "{}");
            (busy, json!({"patience": "10m"}), "provider.retry")
        }
        "question" => (runs("touch x"), json!({}), "permission.requested"),
        "hook" => (runs("true"), json!({ "hooks": hook }), "tool.requested"),
        "tool" => {
            let stuck =
                format!("trap '' TERM INT HUP; echo ready; while :; do sleep {sleep}; done");
            (runs(&stuck), json!({}), "tool.output.delta")
        }
        other => panic!("{other}"),
    }
}

#[test]
fn every_signal_ends_every_wait_as_documented() {
    let ways = ["silence", "stream", "retry", "tool"];
    let rows = ways.into_iter().flat_map(|way| SIGNALS.map(|signal| (way, signal)));
    let rows: Vec<_> = rows.flat_map(|row| [(row, 1), (row, 2), (row, 5)]).collect();
    for some in rows.chunks(6) {
        side_by_side(some.iter().copied(), |((way, (signal, code)), times)| {
            let sleep = marker();
            let (answer, settings, until) = wait(way, &sleep);
            let server = ModelServer::start(vec![answer]);
            let machine = Machine::configured(&server, &settings, &json!({}));
            let mut running = machine.start(&["-y", "go"]);
            running.wait_for(until);
            let begin = Instant::now();
            for _ in 0..times {
                // It may be gone before the last one.
                nix::sys::signal::kill(running.pid(), signal).ok();
                thread::sleep(Duration::from_millis(3));
            }
            let ended = running.end();
            let place = format!("{way}, {signal} {times} times");
            assert!(begin.elapsed() < SOON, "{place}: {:?}", begin.elapsed());
            assert_eq!(ended.code, Some(code), "{place}: {}", ended.stderr);
            let last = ended.events().pop().unwrap();
            let expected = ("session.ended", "interrupted", code);
            let last = (&last["type"], &last["reason"], &last["exitCode"]);
            assert_eq!(last, (&expected.0.into(), &expected.1.into(), &expected.2.into()));
            let id = machine.session_dir().file_name().unwrap().to_string_lossy().into_owned();
            let (first, end) = (format!("session {id} · build"), format!("posse resume {id}"));
            assert!(ended.stderr.starts_with(&first), "{place}: {}", ended.stderr);
            assert!(ended.stderr.lines().last().unwrap().contains(&end), "{}", ended.stderr);
            eventually("the end of the command", || marked(&sleep).is_empty());
            machine.verify();
        });
    }
}

#[test]
fn sigquit_ends_immediately_and_leaves_nothing() {
    let sleep = marker();
    let (answer, _, until) = wait("tool", &sleep);
    let server = ModelServer::start(vec![answer]);
    let machine = Machine::with(&server);
    let mut running = machine.start(&["-y", "go"]);
    running.wait_for(until);
    running.signal(Signal::SIGQUIT);
    assert_eq!(running.end().code, None);
    eventually("the end of the command", || marked(&sleep).is_empty());
    machine.verify();
}

#[test]
fn session_id_is_printed_at_start_and_end() {
    let answers = [says("done"), status("401 No", &[], "{}"), status("503 Busy", &[], "{}")];
    side_by_side(answers, |answer| {
        let server = ModelServer::start_and_repeat(vec![answer]);
        let machine = Machine::configured(&server, &json!({"patience": "500ms"}), &json!({}));
        for format in ["text", "json", "stream-json"] {
            let ended = machine.posse(&["run", "--output-format", format, "go"]);
            let first = ended.stderr.split_whitespace().nth(1).unwrap();
            let last = format!("session {first} · posse resume {first}");
            // A parked run also prints the scheduling line.
            let lines: Vec<_> =
                ended.stderr.lines().filter(|l| !l.starts_with("by itself")).collect();
            assert_eq!(lines.last(), Some(&&*last), "{}", ended.stderr);
        }
        let ended = machine.posse(&["run", "--no-transcript", "go"]);
        assert!(!ended.stderr.contains("posse resume"), "{}", ended.stderr);
    });
}

/// A server that answers when the test permits it.
fn gated(answers: Vec<ModelAnswer>) -> (ByteServer, Sender<()>) {
    let (open, gate) = channel();
    let mut answers = answers.into_iter();
    let server = ByteServer::start(&DIALECTS[0], move |_| {
        gate.recv().ok();
        let Some(ModelAnswer::Reply { text, calls, finish }) = answers.next() else {
            return vec![Move::Close];
        };
        vec![Move::Send(reply(&text, &calls, finish, true)), Move::Close]
    });
    (server, open)
}

fn machine_of(server: &ByteServer) -> Machine {
    let machine = Machine::new();
    machine.write_config(&server.config(&json!({})).to_string());
    machine
}

#[test]
fn inherited_ignored_sighup_stays_ignored() {
    let (server, open) = gated(vec![says("done")]);
    let machine = machine_of(&server);
    let mut running = RunningPosse::start(
        machine.shell("trap '' HUP; exec \"$0\" run --output-format stream-json go"),
    );
    running.wait_for("model.request");
    running.signal(Signal::SIGHUP);
    open.send(()).unwrap();
    let ended = running.end();
    ended.assert_code(0);
    assert_eq!(ended.events().pop().unwrap()["result"], "done");
}

#[test]
fn unattended_run_continues_without_its_terminal() {
    for closed in [true, false] {
        let write = calls(&[("write_file", json!({"path": "made", "content": "x"}))]);
        let (server, open) = gated(vec![write, says("It is done.")]);
        let machine = machine_of(&server);
        let mut terminal = Terminal::run(&machine, &["run", "--unattended", "-y", "go"], "xterm");
        let said = terminal.see("run.log");
        assert!(said.contains("unattended: continues without its terminal"), "{said}");
        eventually("the request", || server.requests().len() == 1);
        if closed {
            terminal.vanish();
        }
        terminal.signal(Signal::SIGHUP);
        let log = || {
            let log = machine.session_dir().join("run.log");
            fs::read_to_string(log).unwrap_or_default()
        };
        eventually("detaching", || log().contains("continues without its terminal"));
        for _ in 0..2 {
            open.send(()).unwrap();
        }
        assert_eq!(terminal.end(), Some(0));
        assert_eq!(machine.read("made"), "x");
        let log = log();
        assert!(log.contains("• write made"), "{log}");
        assert!(log.contains("It is done.\n"), "{log}");
        assert!(!log.contains('\u{1b}'), "{log}");
        assert!(log.lines().last().unwrap().contains("posse resume "), "{log}");
        machine.verify();
    }
}

#[test]
fn unattended_run_without_terminal_still_obeys_signals() {
    let sleep = marker();
    let server = ModelServer::start(vec![runs(&format!("echo ready; sleep {sleep}"))]);
    let machine = Machine::with(&server);
    let mut terminal = Terminal::run(&machine, &["run", "--unattended", "-y", "go"], "xterm");
    eventually("the command", || !marked(&sleep).is_empty());
    terminal.vanish();
    let log = || fs::read_to_string(machine.session_dir().join("run.log")).unwrap_or_default();
    eventually("detaching", || log().contains("continues without its terminal"));
    assert!(!marked(&sleep).is_empty(), "the command goes on");
    terminal.signal(Signal::SIGTERM);
    assert_eq!(terminal.end(), Some(143));
    eventually("the end of the command", || marked(&sleep).is_empty());
    assert!(log().contains("! interrupted"), "{}", log());
    machine.verify();
}

#[test]
fn unattended_run_continues_without_a_reader() {
    for format in ["text", "json", "stream-json"] {
        let (server, open) = gated(vec![says("It is done.")]);
        let machine = machine_of(&server);
        let mut command =
            machine.command(&["run", "--unattended", "--output-format", format, "go"]);
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer).stderr(Stdio::piped());
        let running = RunningPosse::start(command);
        drop(reader);
        open.send(()).unwrap();
        running.end().assert_code(0);
        machine.verify();
        if format == "stream-json" {
            let log = fs::read_to_string(machine.session_dir().join("run.log")).unwrap();
            assert!(log.contains(r#""type":"session.ended""#), "{log}");
        }
    }
}

#[test]
fn lost_terminal_ends_an_attended_run() {
    let server =
        ModelServer::start(vec![ModelAnswer::Hold(stream_bytes(text_event("so far").as_bytes()))]);
    let machine = Machine::with(&server);
    let mut terminal = Terminal::run(&machine, &["run", "go"], "xterm");
    terminal.see("so far");
    terminal.vanish();
    assert_eq!(terminal.end(), Some(129));
    machine.verify();
}

#[test]
fn suspended_run_continues() {
    for signal in [Signal::SIGTSTP, Signal::SIGSTOP] {
        let half = text_event("half and ");
        let (sent, rest) = (stream_bytes(half.as_bytes()), (DIALECTS[0].says)("half"));
        let server = ByteServer::start(&DIALECTS[0], move |_| {
            let pause = Move::Pause(Duration::from_millis(700));
            let rest = rest.clone().into_bytes();
            vec![Move::Send(sent.clone()), pause, Move::Send(rest), Move::Close]
        });
        let machine = Machine::new();
        let mut config = server.config(&json!({}));
        config["providers"]["local"]["timeouts"] = json!({"idle": "1s"});
        machine.write_config(&config.to_string());
        let mut running = machine.start(&["go"]);
        running.wait_for("model.text.delta");
        running.signal(signal);
        // Longer than silence is borne. What came meanwhile has come.
        thread::sleep(Duration::from_millis(1800));
        running.signal(Signal::SIGCONT);
        let ended = running.end();
        ended.assert_code(0);
        let events = ended.events();
        assert_eq!(events.last().unwrap()["result"], "half and half", "{signal}");
        // Data that arrived while the process was stopped may be requested again.
        let retries = events.iter().filter(|event| event["type"] == "provider.retry").count();
        assert!(retries <= 1, "{signal}: {}", ended.stdout);
    }
}

#[test]
fn replaced_binary_does_not_affect_a_run() {
    for gone in [true, false] {
        let (server, open) = gated(vec![runs("echo x > made"), runs("cat made"), says("done")]);
        let machine = machine_of(&server);
        let program = machine.path("posse-copy");
        fs::copy(env!("CARGO_BIN_EXE_posse"), &program).unwrap();
        let with = machine.command(&["run", "--output-format", "stream-json", "-y", "go"]);
        let mut command = std::process::Command::new(&program);
        command.args(with.get_args()).current_dir(machine.work("")).env_clear();
        command.envs(with.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = RunningPosse::start(command);
        running.wait_for("model.request");
        fs::remove_file(&program).unwrap();
        if !gone {
            fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
        }
        for _ in 0..3 {
            open.send(()).unwrap();
        }
        let ended = running.end();
        ended.assert_code(0);
        assert_eq!(machine.read("made"), "x\n");
        assert_eq!(ended.events().pop().unwrap()["result"], "done");
    }
}

#[test]
fn blocked_reader_does_not_prevent_exit() {
    let flood: String = (0..2000_u32).map(|nth| text_event(&nth.to_string().repeat(500))).collect();
    for (times, driven) in [(1, false), (2, false), (1, true)] {
        let server = ModelServer::start(vec![ModelAnswer::Hold(stream_bytes(flood.as_bytes()))]);
        let machine = Machine::with(&server);
        let formats = ["run", "--output-format", "stream-json", "go"];
        let mut args = formats.to_vec();
        if driven {
            args.extend(["--input-format", "stream-json"]);
        }
        let mut command = machine.command(&args);
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer).stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let _held = running.take_stdin();
        server.wait_for_request();
        // Long enough for more than the pipe and the queue behind it hold.
        thread::sleep(Duration::from_secs(1));
        let begin = Instant::now();
        for _ in 0..times {
            running.signal(Signal::SIGTERM);
            thread::sleep(Duration::from_millis(20));
        }
        let status = running.wait();
        assert_eq!(status.code(), Some(143), "{times}");
        assert!(begin.elapsed() < SOON + Duration::from_secs(2), "{:?}", begin.elapsed());
        drop(reader);
        machine.verify();
    }
}

/// A program that drives a run, so that it can stop the work without ending the session.
struct Driver {
    running: RunningPosse,
    stdin: std::process::ChildStdin,
}

impl Driver {
    fn start(machine: &Machine, args: &[&str]) -> Driver {
        let common = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
        Driver::of(machine.command(&[&common, args].concat()))
    }

    fn of(mut command: std::process::Command) -> Driver {
        command.stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let stdin = running.take_stdin();
        let mut driver = Driver { running, stdin };
        driver.send(&json!({"type": "message", "content": "go"}));
        driver
    }

    fn send(&mut self, line: &Value) {
        use std::io::Write;
        self.stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Time until the run ends after a signal.
    fn interrupt(mut self) -> Duration {
        let begin = Instant::now();
        self.send(&json!({"type": "interrupt"}));
        self.running.wait_for("agent.invocation.cancelled");
        begin.elapsed()
    }
}

/// A port with a full backlog: a connection attempt waits.
fn unanswered() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listen(&listener.as_fd(), Backlog::new(0).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    // The backlog is full when a connection attempt waits.
    let inside = (0..8).map_while(connect).collect();
    (address, listener, inside)
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures, for whoever wants them")]
fn every_wait_is_cancelled_within_bounds() {
    let table: [(&str, &[&str]); 7] = [
        ("connecting", &["-y"]),
        ("silence", &["-y"]),
        ("stream", &["-y"]),
        ("retry", &["-y"]),
        ("question", &[]),
        ("hook", &["-y"]),
        ("tool", &["-y"]),
    ];
    let mut took = Vec::new();
    for (way, args) in table {
        let mut best = Duration::MAX;
        for _ in 0..TRIES {
            best = best.min(cancelled(way, args));
            if best <= AT_ONCE {
                break;
            }
        }
        took.push((way, best));
    }
    println!("{took:?}");
    let late: Vec<_> = took.iter().filter(|(_, took)| *took > AT_ONCE).collect();
    assert!(late.is_empty(), "{late:?}");
}

/// Time to cancel a wait.
fn cancelled(way: &str, args: &[&str]) -> Duration {
    let sleep = marker();
    let (answer, settings, until) = wait(way, &sleep);
    let server = ModelServer::start(vec![answer]);
    let full = (way == "connecting").then(unanswered);
    let profile = match &full {
        Some((address, ..)) => json!({"baseURL": format!("http://{address}/v1")}),
        None => json!({}),
    };
    let machine = Machine::configured(&server, &settings, &profile);
    let mut driver = Driver::start(&machine, args);
    driver.running.wait_for(until);
    match way {
        "silence" => server.wait_for_request(),
        "hook" => eventually("the hook", || !marked(&sleep).is_empty()),
        // The request is on its way a moment after it was recorded.
        "connecting" => thread::sleep(Duration::from_millis(50)),
        _ => (),
    }
    let took = driver.interrupt();
    eventually("the end of what ran", || marked(&sleep).is_empty());
    took
}

#[test]
fn wait_for_disk_space_is_cancelled_at_once() {
    if !has_namespaces() {
        return;
    }
    let fill = "dd if=/dev/zero of=\"$POSSE_HOME/state/filler\" bs=1k count=2600 2>/dev/null\n";
    let args = "run --input-format stream-json --output-format stream-json -y --sandbox off";
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let write = calls(&[("write_file", json!({"path": "made", "content": "x"}))]);
        let server = ModelServer::start_and_repeat(vec![write]);
        let machine = Machine::with(&server);
        let mut driver = Driver::of(small_disk(&machine, fill, args));
        let warning = driver.running.wait_for("warning");
        let said = warning["message"].as_str().unwrap();
        assert!(said.contains("hardly any room"), "{said}");
        best = best.min(driver.interrupt());
        assert!(!machine.work("made").exists(), "nothing began without room");
        if best <= AT_ONCE {
            break;
        }
    }
    assert!(best <= AT_ONCE, "{best:?}");
}

/// Runs three commands with a limit of free descriptors, besides the three standard ones.
fn with_descriptors(machine: &Machine, free: usize) -> crate::posse::FinishedRun {
    let line = format!("ulimit -n {}; exec \"$0\" run -y go", free + 3);
    RunningPosse::start(machine.shell(&line)).end()
}

#[test]
fn descriptor_exhaustion_is_reported_and_loses_nothing() {
    let command = |nth: usize| runs(&format!("echo call-{nth} >> log"));
    let rows = (4..40).chain([61]);
    side_by_side(rows, |free| {
        let answers = vec![command(0), command(1), command(2), says("done")];
        let server = ModelServer::start_and_repeat(answers);
        let machine = Machine::with(&server);
        let ended = with_descriptors(&machine, free);
        let said = &ended.stderr;
        assert!(!said.contains("panicked"), "{free}: {said}");
        let sessions = machine.posse(&["sessions", "list", "--json"]);
        if said.contains("error[INT004]") {
            // The test may have inherited some descriptors.
            assert!(free < 24 && said.contains("ulimit -n"), "{free}: {said}");
            assert_eq!((ended.code, &*sessions.stdout), (Some(3), "[]\n"), "{free}: {said}");
            return;
        }
        assert!(free >= 16, "{free}: {said}");
        // Every failure is named, and every effect is recorded.
        let log = fs::read_to_string(machine.work("log")).unwrap_or_default();
        let done = log.lines().count();
        if done < 3 {
            assert!(said.contains("Too many open files"), "{free}: {said}");
        }
        let dir = machine.session_dir();
        let journal = fs::read_to_string(dir.join("session.jsonl")).unwrap();
        let ran = journal.lines().filter(|line| line.contains(r#""type":"tool.completed""#));
        assert_eq!(ran.count(), done, "{free}: {said}");
        assert!(free < 60 || (ended.code, done) == (Some(0), 3), "{free}: {said}");
        machine.verify();
    });
}
