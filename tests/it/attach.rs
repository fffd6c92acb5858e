//! Front ends attached to a session of another process, with real programs, sockets and terminals.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, runs, says};
use crate::plain::Terminal;
use crate::posse::{FinishedRun, Machine, RunningPosse};

/// Timeout after which a test fails.
const STUCK: Duration = Duration::from_secs(30);

/// A command that waits for the file `go`.
const WAITS: &str = "while [ ! -e go ]; do sleep 0.02; done; echo went";

const LINES: [&str; 4] = ["--input-format", "stream-json", "--output-format", "stream-json"];

/// A program that takes instructions and prints events.
pub(crate) struct AttachClient {
    running: RunningPosse,
    stdin: ChildStdin,
}

impl AttachClient {
    pub(crate) fn start(machine: &Machine, args: &[&str]) -> AttachClient {
        let mut command = machine.command(&[args, &LINES].concat());
        command.stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let stdin = running.take_stdin();
        AttachClient { running, stdin }
    }

    /// Attaches to the only running session.
    pub(crate) fn join(machine: &Machine) -> AttachClient {
        let mut client = AttachClient::start(machine, &["attach"]);
        client.running.wait_for("attach.accepted");
        client
    }

    pub(crate) fn send(&mut self, instruction: &Value) {
        self.stdin.write_all(format!("{instruction}\n").as_bytes()).unwrap();
    }

    pub(crate) fn answer(&mut self, question: &Value, decision: &str) {
        let id = &question["requestId"];
        self.send(&json!({"type": "permission.answer", "requestId": id, "decision": decision}));
    }

    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        self.running.wait_for(kind)
    }

    pub(crate) fn close(self) -> FinishedRun {
        drop(self.stdin);
        self.running.end()
    }
}

/// Attaches to the only running session as an observer.
fn observe(machine: &Machine) -> RunningPosse {
    let args = ["attach", "--observe", "--output-format", "stream-json"];
    let mut running = RunningPosse::start(machine.command(&args));
    running.wait_for("attach.accepted");
    running
}

/// The session events, without the lines about the connection.
fn events(ended: &FinishedRun) -> Vec<Value> {
    let mut events = ended.events();
    events.retain(|event| !event["type"].as_str().unwrap().starts_with("attach."));
    events
}

/// Record numbers of these events.
fn records(events: &[Value]) -> Vec<u64> {
    events.iter().filter_map(|event| event["record"].as_u64()).collect()
}

/// Asserts that the events contain each record of the session from `first` on, once and in order.
#[track_caller]
fn assert_whole(machine: &Machine, events: &[Value], from: u64) {
    let journal = fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
    let stored = journal.lines().count() as u64;
    assert_eq!(records(events), (from..=stored).collect::<Vec<_>>());
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < STUCK, "{what} did not come");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The socket of the only session; waits for it to exist.
fn socket(machine: &Machine) -> PathBuf {
    let sessions = machine.path("posse/state/projects");
    wait_until("the session", || sessions.exists());
    let path = machine.session_dir().join("attach.sock");
    wait_until("the socket", || path.exists());
    path
}

/// A run that waits within a command until the test releases it.
fn waiting_run(machine: &Machine, more: &[&str]) -> RunningPosse {
    let args = [&["--yes", "--sandbox", "off"], more, &["wait"]].concat();
    let mut running = machine.start(&args);
    running.wait_for("tool.started");
    running
}

fn go(machine: &Machine) {
    machine.write("go", "");
}

#[test]
fn the_first_of_two_front_ends_answers_and_the_other_is_notified() {
    let server = ModelServer::start(vec![runs("touch one"), runs("touch two"), says("Done.")]);
    let machine = Machine::with(&server);
    let mut owner = AttachClient::start(&machine, &["run"]);
    owner.send(&json!({"type": "message", "content": "make two files"}));
    let question = owner.wait_for("permission.requested");
    let mut joined = AttachClient::join(&machine);
    // The request was made before any client attached.
    assert_eq!(joined.wait_for("permission.requested")["requestId"], question["requestId"]);
    let name = format!("process {}", joined.running.pid());
    joined.answer(&question, "allow");
    let granted = owner.wait_for("permission.granted");
    assert_eq!((&granted["by"], &granted["answeredBy"]), (&json!("user"), &json!(name)));
    owner.answer(&question, "deny");
    let told = owner.wait_for("warning")["message"].as_str().unwrap().to_owned();
    assert!(told.contains(&format!("answered already by {name}")), "{told}");

    // The reverse case.
    let question = joined.wait_for("permission.requested");
    owner.answer(&question, "allow");
    assert_eq!(joined.wait_for("permission.granted").get("answeredBy"), None);
    joined.answer(&question, "deny");
    let failed = joined.wait_for("attach.failed")["message"].as_str().unwrap().to_owned();
    assert!(failed.contains("answered already"), "{failed}");
    owner.wait_for("agent.invocation.completed");
    let owner = owner.close();
    owner.assert_code(0);
    let joined = joined.close();
    joined.assert_code(0);
    assert!(machine.work("one").exists() && machine.work("two").exists());
    assert_whole(&machine, &events(&joined), 1);
    assert_eq!(records(&owner.events()), records(&events(&joined)));
    assert_eq!(events(&joined).last().unwrap()["type"], "session.ended");
    machine.verify();
}

#[test]
fn a_controller_prompts_steers_and_interrupts_and_may_leave() {
    let server = ModelServer::start(vec![
        says("First."),
        runs(WAITS),
        says("Second."),
        ModelAnswer::Hold(Vec::new()),
        says("Third."),
    ]);
    let machine = Machine::with(&server);
    let mut owner = AttachClient::start(&machine, &["run", "--yes", "--sandbox", "off"]);
    owner.send(&json!({"type": "message", "content": "first"}));
    owner.wait_for("agent.invocation.completed");
    let mut joined = AttachClient::join(&machine);
    // The session is idle: any message starts a turn.
    joined.send(&json!({"type": "steer", "content": "second"}));
    joined.wait_for("tool.started");
    joined.send(&json!({"type": "message", "content": "too early"}));
    let failed = joined.wait_for("attach.failed");
    assert_eq!(failed["line"], 2, "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("a turn is running"), "{failed}");
    joined.send(&json!({"type": "steer", "content": "and mind the gap"}));
    assert_eq!(joined.wait_for("attach.done")["line"], 3);
    go(&machine);
    joined.wait_for("message.delivered");
    assert_eq!(joined.wait_for("agent.invocation.completed")["result"], "Second.");
    joined.send(&json!({"type": "message", "content": "hang"}));
    joined.wait_for("model.request");
    joined.send(&json!({"type": "interrupt"}));
    joined.wait_for("agent.invocation.cancelled");
    let killed = joined.running;
    killed.signal(Signal::SIGKILL);
    drop(killed);
    owner.send(&json!({"type": "message", "content": "third"}));
    while owner.wait_for("agent.invocation.completed")["result"] != "Third." {}
    let ended = owner.close();
    ended.assert_code(0);
    let said: Vec<String> = ended
        .events()
        .iter()
        .filter(|event| event["type"] == "warning")
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect();
    assert!(said[0].ends_with("joined this session and may control it"), "{said:?}");
    assert!(said[1].ends_with("left this session"), "{said:?}");
    assert!(!machine.session_dir().join("attach.sock").exists());
}

#[test]
fn an_observer_sees_everything_and_can_do_nothing() {
    let server = ModelServer::start(vec![runs(WAITS), says("Done.")]);
    let machine = Machine::with(&server);
    let run = waiting_run(&machine, &[]);
    let observer = observe(&machine);
    let mut hidden = RawConnection::join(&socket(&machine), &machine, "observer");
    hidden.send(r#"{"type":"interrupt","all":true}"#);
    let answer = hidden.wait_for("attach.failed");
    let message = answer["message"].as_str().unwrap();
    assert!(message.starts_with("an observer cannot send instructions"), "{message}");
    // A client that vanishes changes nothing.
    let gone = observe(&machine);
    gone.signal(Signal::SIGKILL);
    drop(gone);
    go(&machine);
    let run = run.end();
    run.assert_code(0);
    let seen = observer.end();
    seen.assert_code(0);
    assert_whole(&machine, &events(&seen), 1);
    assert_eq!(records(&run.events()), records(&events(&seen)));
    assert_eq!(hidden.wait_for("session.ended")["reason"], "completed");
}

#[test]
fn a_client_that_reconnects_continues_after_its_last_record() {
    let server = ModelServer::start(vec![runs("echo a"), runs(WAITS), says("Done.")]);
    let machine = Machine::with(&server);
    let mut run = waiting_run(&machine, &[]);
    run.wait_for("tool.started");
    let all = machine.session_dir().join("session.jsonl");
    let stored = fs::read_to_string(all).unwrap().lines().count() as u64;
    for after in [1, 5, stored] {
        let after_text = after.to_string();
        let args =
            ["attach", "--observe", "--output-format", "stream-json", "--after", &after_text];
        let mut again = RunningPosse::start(machine.command(&args));
        assert_eq!(again.wait_for("attach.accepted")["after"], after);
        again.signal(Signal::SIGTERM);
        let ended = again.end();
        assert_eq!(ended.code, Some(143));
    }
    let mut late = RunningPosse::start(machine.command(&[
        "attach",
        "--observe",
        "--output-format",
        "stream-json",
        "--after",
        "5",
    ]));
    late.wait_for("attach.accepted");
    go(&machine);
    run.end().assert_code(0);
    assert_whole(&machine, &events(&late.end()), 6);
}

/// A connection made without the program: a token and lines.
struct RawConnection {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl RawConnection {
    fn connect(socket: &Path) -> RawConnection {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        RawConnection { stream, lines }
    }

    fn join(socket: &Path, machine: &Machine, role: &str) -> RawConnection {
        let token = token(machine);
        let mut joined = RawConnection::connect(socket);
        joined.send(&json!({"type": "attach", "v": 1, "token": token, "as": role}).to_string());
        joined.wait_for("attach.accepted");
        joined
    }

    fn send(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// `None` at the end of the connection.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        // A reset connection has ended, too.
        self.lines.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        Some(serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}")))
    }

    fn wait_for(&mut self, kind: &str) -> Value {
        while let Some(event) = self.next() {
            if event["type"] == kind {
                return event;
            }
        }
        panic!("no {kind} came")
    }
}

/// Token of a machine on which a client has attached before, or attaches now.
fn token(machine: &Machine) -> String {
    let path = machine.path("posse/state/attach.token");
    if !path.exists() {
        drop(observe(machine));
    }
    fs::read_to_string(path).unwrap()
}

#[test]
fn hostile_and_slow_clients_do_not_affect_the_session() {
    // Commands with much output, so that there is much to read.
    let many: Vec<ModelAnswer> = (0..20).map(|_| runs("seq 20000")).collect();
    let answers = [vec![runs(WAITS)], many, vec![says("Done.")]].concat();
    let server = ModelServer::start(answers);
    let machine = Machine::with(&server);
    let run = waiting_run(&machine, &[]);
    let socket = socket(&machine);
    let token = token(&machine);
    let found = socket.metadata().unwrap();
    assert_eq!((found.mode() & 0o7777, found.file_type().is_socket()), (0o600, true));

    let refused = |first: &[u8], code: &str| {
        let mut joined = RawConnection::connect(&socket);
        joined.stream.write_all(first).unwrap();
        let answer = joined.next().expect("an answer");
        assert_eq!((&answer["type"], &answer["code"]), (&json!("attach.refused"), &json!(code)));
        assert!(!answer.to_string().contains(&token), "{answer}");
        assert_eq!(joined.next(), None, "and nothing more");
    };
    refused(b"GET / HTTP/1.1\r\n\r\n", "ATT004");
    refused(b"\0\xff\xfe\n", "ATT004");
    refused(&[&vec![b'x'; 100_000][..], b"\n"].concat(), "ATT004");
    let hello = |token: &str, role: &str| {
        format!("{}\n", json!({"type": "attach", "v": 1, "token": token, "as": role})).into_bytes()
    };
    refused(&hello(&"0".repeat(64), "observer"), "ATT003");
    refused(&hello("", "controller"), "ATT003");
    refused(&hello(&token[..63], "controller"), "ATT003");
    refused(&hello(&token, "owner"), "ATT004");

    // Half a line, then silence for the rest of the test.
    let mut half = RawConnection::connect(&socket);
    half.stream.write_all(b"{\"type\":\"att").unwrap();
    // Attached clients that never read.
    let deaf: Vec<RawConnection> = (0..3)
        .map(|_| {
            let mut deaf = RawConnection::connect(&socket);
            deaf.stream.write_all(&hello(&token, "observer")).unwrap();
            deaf
        })
        .collect();
    // A line of 100 MB, then invalid lines until the host disconnects.
    let mut loud = RawConnection::join(&socket, &machine, "controller");
    let mut stream = loud.stream.try_clone().unwrap();
    let shouting = thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..100 {
            stream.write_all(&piece).unwrap();
        }
        stream.write_all(b"\n").unwrap();
        while stream.write_all(b"nonsense\n").is_ok() {}
    });
    let failed = loud.wait_for("attach.failed");
    let message = failed["message"].as_str().unwrap();
    assert!(message.starts_with("is longer than 4194304 bytes"), "{message}");
    let dropped = loud.wait_for("attach.dropped");
    assert!(dropped["message"].as_str().unwrap().contains("were invalid"), "{dropped}");
    shouting.join().unwrap();
    let grown = resident(&run);
    assert!(grown < 200 << 20, "{grown} bytes");

    // None of these clients delays the run.
    let reader = observe(&machine);
    let start = Instant::now();
    go(&machine);
    let ended = run.end();
    ended.assert_code(0);
    assert!(start.elapsed() < STUCK);
    assert_whole(&machine, &events(&reader.end()), 1);
    drop((half, deaf));
    machine.verify();
}

/// Resident memory of a process, in bytes.
fn resident(run: &RunningPosse) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/statm", run.pid())).unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_session_of_another_process_is_offered_and_not_taken() {
    let server = ModelServer::start(vec![runs(WAITS), says("Done.")]);
    let machine = Machine::with(&server);
    let none = machine.posse(&["attach"]);
    none.assert_code(8);
    assert!(none.stderr.contains("error[ATT001]"), "{}", none.stderr);
    let run = waiting_run(&machine, &[]);
    let id = machine.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    socket(&machine);
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let refused = machine.posse(&["resume", &id, "more"]);
        refused.assert_code(8);
        let owner = format!("is open in process {}", run.pid());
        assert!(refused.stderr.contains(&owner), "{}", refused.stderr);
        assert!(refused.stderr.contains(&format!("posse attach {id}")), "{}", refused.stderr);
        quickest = quickest.min(refused.took);
    }
    // The quickest of several: the machine may be busy.
    assert!(quickest < Duration::from_millis(200), "{quickest:?}");
    let list = machine.posse(&["sessions", "list"]);
    assert!(list.stdout.contains("running (attach)"), "{}", list.stdout);
    let list = machine.posse(&["sessions", "list", "--json"]);
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!((&list[0]["state"], &list[0]["attachable"]), (&json!("running"), &json!(true)));
    go(&machine);
    run.end().assert_code(0);
    let over = machine.posse(&["attach", &id]);
    over.assert_code(8);
    assert!(over.stderr.contains(&format!("posse resume {id}")), "{}", over.stderr);
    let list = machine.posse(&["sessions", "list", "--json"]);
    assert!(!list.stdout.contains("attachable"), "{}", list.stdout);
}

#[test]
fn attach_needs_an_id_if_several_sessions_run() {
    let server = ModelServer::start_and_repeat(vec![runs(WAITS)]);
    let machine = Machine::with(&server);
    let runs: Vec<RunningPosse> = (0..2).map(|_| waiting_run(&machine, &[])).collect();
    let which = machine.posse(&["attach", "--observe"]);
    which.assert_code(2);
    assert!(which.stderr.contains("which session"), "{}", which.stderr);
    assert_eq!(which.stderr.matches("(now)").count(), 2, "{}", which.stderr);
    let away = machine.posse(&["attach", "--cwd", machine.path("home").to_str().unwrap()]);
    away.assert_code(8);
    assert!(away.stderr.contains("elsewhere there is"), "{}", away.stderr);
    for run in runs {
        run.signal(Signal::SIGKILL);
    }
}

#[test]
fn a_stopped_owner_is_reported_within_a_second() {
    let server = ModelServer::start(vec![runs(WAITS)]);
    let machine = Machine::with(&server);
    let run = waiting_run(&machine, &[]);
    run.signal(Signal::SIGSTOP);
    let start = Instant::now();
    let refused = machine.posse(&["attach", "--observe"]);
    let took = start.elapsed();
    refused.assert_code(8);
    let pid = run.pid();
    let what = format!("error[ATT007]: process {pid}, which owns the session, is stopped");
    assert!(refused.stderr.contains(&what), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("`kill -CONT {pid}`")), "{}", refused.stderr);
    // One second on an idle machine; the rest allows for load.
    assert!(took < Duration::from_secs(3), "{took:?}");
    run.signal(Signal::SIGCONT);
    let observer = observe(&machine);
    go(&machine);
    observer.end().assert_code(0);
}

#[test]
fn a_stale_socket_of_a_killed_process_is_replaced() {
    let server = ModelServer::start(vec![runs(WAITS), runs(WAITS), says("Done.")]);
    let machine = Machine::with(&server);
    let run = waiting_run(&machine, &[]);
    let left = socket(&machine);
    run.signal(Signal::SIGKILL);
    drop(run);
    assert!(left.exists());
    let list = machine.posse(&["sessions", "list", "--json"]);
    assert!(!list.stdout.contains("attachable"), "{}", list.stdout);
    machine.posse(&["attach"]).assert_code(8);
    let args = ["resume", "--last", "--yes", "--sandbox", "off", "--output-format", "stream-json"];
    let mut again = RunningPosse::start(machine.command(&args));
    again.wait_for("tool.started");
    let mut observer = observe(&machine);
    // The records of the killed process come first.
    observer.wait_for("session.resumed");
    go(&machine);
    again.end().assert_code(0);
    assert_whole(&machine, &events(&observer.end()), 1);
    assert!(!left.exists());
}

#[test]
fn a_session_without_journal_has_no_socket() {
    let server = ModelServer::start(vec![runs(WAITS), says("Done.")]);
    let machine = Machine::with(&server);
    let run = waiting_run(&machine, &["--no-transcript"]);
    machine.posse(&["attach"]).assert_code(8);
    let sockets = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_type().unwrap().is_socket()).count()
    };
    let scratch = fs::read_dir(machine.path("tmp")).unwrap().flatten();
    assert_eq!(scratch.map(|entry| sockets(&entry.path())).sum::<usize>(), 0);
    go(&machine);
    run.end().assert_code(0);
}

#[test]
fn a_sandboxed_command_reaches_neither_token_nor_socket() {
    for (backend, tier) in [("namespaces", "full"), ("landlock", "reduced")] {
        reaches_neither(backend, tier);
    }
}

fn reaches_neither(backend: &str, tier: &str) {
    let probe = r#"
for path in "$STATE/attach.token" "$DIR/attach.sock" "$DIR/session.jsonl"; do
  cat "$path" 2>/dev/null && echo "READ $path"
done
python3 -IS - "$DIR/attach.sock" <<'END'
import socket, sys
try:
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    print("CONNECTED")
except OSError as error:
    print("refused:", error)
END
"$POSSE" attach --output-format stream-json 2>&1 | head -c 2000
"#;
    let server = ModelServer::start(vec![
        runs(WAITS),
        calls(&[("bash", json!({"command": "sh probe.sh"}))]),
        says("Done."),
    ]);
    let machine = Machine::with(&server);
    let args = ["run", "--output-format", "stream-json", "--yes", "wait"];
    let mut command = machine.command(&args);
    command.env("POSSE_SANDBOX_BACKEND", backend);
    let mut run = RunningPosse::start(command);
    let started = run.wait_for("tool.started");
    let enforced = run.wait_for("sandbox.enforced");
    assert_eq!(enforced["tier"], tier, "{started} {enforced}");
    socket(&machine);
    let token = token(&machine);
    let head = format!(
        "STATE='{}' DIR='{}' POSSE='{}' POSSE_HOME='{}'\nexport POSSE_HOME\n",
        machine.path("posse/state").display(),
        machine.session_dir().display(),
        env!("CARGO_BIN_EXE_posse"),
        machine.path("posse").display(),
    );
    machine.write("probe.sh", head + probe);
    go(&machine);
    let ended = run.end();
    ended.assert_code(0);
    let results = server.tool_results();
    let seen = results.last().unwrap();
    assert!(seen.contains("refused:"), "the probe ran: {seen}");
    for word in [&token, "READ", "CONNECTED", "attach.accepted"] {
        assert!(!seen.contains(word), "{word}: {seen}");
    }
    let joined = ended.events().iter().any(|event| {
        event["message"].as_str().is_some_and(|said| said.contains("joined this session"))
    });
    assert!(!joined);
}

#[test]
fn a_user_attaches_answers_steers_and_detaches() {
    let server = ModelServer::start(vec![
        runs("touch one"),
        runs("touch two"),
        runs(WAITS),
        says("It is **done**."),
    ]);
    let machine = Machine::with(&server);
    let mut owner = AttachClient::start(&machine, &["run"]);
    owner.send(&json!({"type": "message", "content": "make\u{1b}[2J files"}));
    owner.wait_for("permission.requested");
    let mut person = Terminal::run(&machine, &["attach"], "xterm");
    let head = person.see("you control it");
    assert!(head.contains("in process"), "{head}");
    // The history so far and the open permission request.
    person.see("> make\\u{1b}[2J files");
    person.see("? run touch one");
    person.see("allow? [y] once");
    person.press("y\r");
    person.see("? run touch two");
    assert!(machine.work("one").exists());
    person.see("allow? [y] once");
    // The other front end answers first.
    let second = loop {
        let question = owner.wait_for("permission.requested");
        if question["detail"].as_str().unwrap().contains("two") {
            break question;
        }
    };
    owner.answer(&second, "deny");
    person.see("(denied where the session runs)");
    person.see("? run while");
    person.see("allow? [y] once");
    person.press("y\r");
    owner.wait_for("tool.started");
    person.press("mind the gap\r");
    person.see("> (at the next step) mind the gap");
    person.press("/model other\r");
    person.see("only be done where the session runs");
    person.press("\u{3}");
    person.see("(left; the session continues)");
    assert_eq!(person.end(), Some(0));
    assert!(person.is_cooked());

    // A later client that only observes.
    let mut later = Terminal::run(&machine, &["attach", "--observe"], "xterm");
    later.see("you observe");
    later.press("stop!\r");
    later.see("(you observe: /exit leaves)");
    go(&machine);
    later.see("It is **done**.");
    owner.wait_for("agent.invocation.completed");
    owner.close().assert_code(0);
    later.see("(the session has ended: completed)");
    assert_eq!(later.end(), Some(0));
    assert!(!machine.work("two").exists());
}

#[test]
fn an_attached_person_is_notified_of_questions_and_of_the_end() {
    let server = ModelServer::start(vec![runs("touch one"), says("Made.")]);
    let notify = json!({ "notify": { "title": false, "when": "always", "method": "osc9" } });
    let machine = Machine::configured(&server, &notify, &json!({}));
    let mut owner = AttachClient::start(&machine, &["run"]);
    owner.send(&json!({"type": "message", "content": "make a file"}));
    owner.wait_for("permission.requested");
    let mut person = Terminal::run(&machine, &["attach"], "xterm");
    person.see("you control it");
    person.see("? run touch one");
    person.see("\u{1b}]9;posse: work: waits for your answer: ");
    person.see("allow? [y] once");
    person.press("y\r");
    person.see("\u{1b}]9;posse: work: done after");
    owner.wait_for("agent.invocation.completed");
    owner.close().assert_code(0);
    assert_eq!(person.end(), Some(0));
}

#[test]
fn an_unattended_run_survives_its_terminal_and_can_be_attached() {
    let server = ModelServer::start(vec![runs(WAITS), says("Finished alone.")]);
    let machine = Machine::with(&server);
    let args = ["run", "--unattended", "--yes", "--sandbox", "off", "wait"];
    let mut terminal = Terminal::run(&machine, &args, "xterm");
    terminal.see("while [ ! -e go ]");
    terminal.vanish();
    let log = machine.session_dir().join("run.log");
    wait_until("the log", || log.exists());
    let observer = observe(&machine);
    let person = RunningPosse::start(machine.command(&["attach", "--observe"]));
    go(&machine);
    let seen = observer.end();
    seen.assert_code(0);
    assert_whole(&machine, &events(&seen), 1);
    assert_eq!(events(&seen).last().unwrap()["exitCode"], 0);
    let person = person.end();
    person.assert_code(0);
    assert_eq!(person.stdout, "Finished alone.\n");
    // `--yes` answered it without a question.
    assert!(!person.stderr.contains("waits for an answer"), "{}", person.stderr);
    assert!(
        person.stderr.contains("> wait") && person.stderr.contains("exit 0"),
        "{}",
        person.stderr
    );
}

#[test]
fn line_mode_shows_turns_of_attached_front_ends() {
    let server = ModelServer::start(vec![
        says("Mine."),
        runs("touch theirs"),
        says("Theirs."),
        says("With another model."),
    ]);
    let machine = Machine::with(&server);
    let mut owner = Terminal::run(&machine, &["plain"], "xterm");
    owner.see("> ");
    owner.press("mine\r");
    owner.see(" · 1 turn");
    let reader = observe(&machine);
    let mut joined = AttachClient::join(&machine);
    joined.send(&json!({"type": "message", "content": "theirs"}));
    owner.see("another front end has given a task");
    owner.press("\r");
    owner.see("? run touch theirs");
    owner.see("allow? [y] once");
    owner.press("y\r");
    owner.see("Theirs.");
    joined.wait_for("permission.granted");
    while joined.wait_for("agent.invocation.completed")["result"] != "Theirs." {}
    assert!(machine.work("theirs").exists());
    // The same journal continues with another model, and so does the observer.
    owner.see("> ");
    owner.press("/model other\r");
    owner.see("model     other");
    joined.wait_for("session.ended");
    owner.see("> ");
    owner.press("again\r");
    owner.see("With another model.");
    owner.see("> ");
    owner.press("/exit\r");
    assert_eq!(owner.end(), Some(0));
    let seen = reader.end();
    seen.assert_code(0);
    let events = events(&seen);
    let journal = fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
    let stored = journal.lines().count() as u64;
    assert_eq!(records(&events), (1..=stored).collect::<Vec<_>>());
    let ends = events.iter().filter(|event| event["type"] == "session.ended");
    let reasons: Vec<_> = ends.map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, ["switched", "completed"]);
}

#[test]
fn line_mode_writes_nothing_after_an_open_question() {
    let server = ModelServer::start(vec![runs("touch one"), says("Done.")]);
    let machine = Machine::with(&server);
    let mut owner = Terminal::run(&machine, &["plain"], "xterm");
    owner.see("> ");
    owner.press("make it\r");
    owner.see("[N] no: ");
    let joined = AttachClient::join(&machine);
    let between = owner.see("joined this session");
    assert!(between.starts_with("\r\n"), "{between:?}");
    // The open request is shown again and can be answered.
    owner.see("[N] no: ");
    owner.press("y\r");
    owner.see(" · 2 turns");
    assert!(machine.work("one").exists());
    joined.close();
    owner.see("> ");
    owner.press("\u{4}");
    assert_eq!(owner.end(), Some(0));
}

#[test]
fn answers_to_tasks_of_other_front_ends_are_shown_while_typing() {
    let server = ModelServer::start(vec![says("Mine."), says("Theirs."), says("Mine again.")]);
    let machine = Machine::with(&server);
    let mut owner = Terminal::run(&machine, &["plain"], "xterm");
    owner.see("> ");
    owner.press("mine\r");
    owner.see(" · 1 turn");
    let mut joined = AttachClient::join(&machine);
    joined.send(&json!({"type": "message", "content": "theirs"}));
    owner.see("another front end has given a task");
    while joined.wait_for("agent.invocation.completed")["result"] != "Theirs." {}
    owner.press("and mine\r");
    owner.see("Theirs.");
    owner.see("Mine again.");
    owner.see("> ");
    owner.press("\u{4}");
    assert_eq!(owner.end(), Some(0));
}
