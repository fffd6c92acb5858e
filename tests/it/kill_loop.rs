//! Kills the program at random points of a session of two hundred calls and resumes it until the
//! session is done. No reported record is lost, no history is rejected by the model, and no call
//! runs twice.
//!
//! `POSSE_KILLS=10000 cargo test --workspace --test it kill_loop -- --nocapture` is the long loop.
//! It prints its progress; `POSSE_KILLS_FROM` continues from there.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::byte_server::{ByteServer, DIALECTS, Move};
use crate::model_server::{ModelAnswer, calls, reply, says};
use crate::posse::{Machine, RunningPosse, process_in};

/// Calls of the session.
const CALLS: usize = 200;

/// Default number of kills.
const KILLS: usize = 100;

/// Maximum output lines of a run before it is killed. A call has about nine.
const LINES_MAX: u64 = 220;

/// Maximum time before a run is killed at its start, in microseconds.
const MOMENT_MICROS_MAX: u64 = 120_000;

/// Maximum number of processes for one session: above it there is no progress.
const RUNS_MAX: usize = 400;

const DONE: &str = "All of it is done.";

/// Files with the effects of calls, one line for each call.
const TRACES: [&str; 2] = ["log", "notes"];

/// The model's reply after `results` results; deterministic.
fn turn(results: usize) -> ModelAnswer {
    if results >= CALLS {
        return says(DONE);
    }
    let label = format!("call-{results}");
    match results % 10 {
        0 | 5 => calls(&[("bash", json!({"command": format!("echo {label} >> log")}))]),
        // Two calls at once; their results do not matter.
        8 => calls(&[("read_file", json!({"path": "a"})), ("list_dir", json!({"path": "."}))]),
        _ => calls(&[(
            "edit_file",
            json!({
                "path": "notes", "oldString": "END\n", "newString": format!("{label}\nEND\n"),
            }),
        )]),
    }
}

fn model(request: &Value) -> Vec<Move> {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let results = messages.iter().filter(|message| message["role"] == "tool").count();
    let ModelAnswer::Reply { text, calls, finish } = turn(results) else { unreachable!("a reply") };
    vec![Move::Send(reply(&text, &calls, finish, true)), Move::Close]
}

/// Deterministic pseudo-random numbers for a seed.
struct Dice(u64);

impl Dice {
    fn next_number(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// One session on its own machine.
struct Session {
    seed: usize,
    dice: Dice,
    server: ByteServer,
    machine: Machine,
    /// Lines seen on standard output, by record number.
    said: HashMap<u64, Value>,
    kills: usize,
}

impl Session {
    fn new(seed: usize) -> Session {
        let server = ByteServer::start(&DIALECTS[0], model);
        let machine = Machine::new();
        machine.write_config(&server.config(&json!({"maxTurns": 999})).to_string());
        machine.write("notes", "END\n");
        machine.write("a", "some text\n");
        let dice = Dice((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Session { seed, dice, server, machine, said: HashMap::new(), kills: 0 }
    }

    /// The folder of the session and the records of its journal. `None` if it was killed before
    /// its first record.
    fn stored(&self) -> Option<(PathBuf, Vec<Value>)> {
        let projects = fs::read_dir(self.machine.path("posse/state/projects")).ok()?;
        let sessions = projects.flatten().map(|project| project.path().join("sessions"));
        let dirs = sessions.filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
        let stored = dirs.map(|dir| (dir.path(), records(&dir.path())));
        let mut stored: Vec<_> = stored.filter(|(_, records)| !records.is_empty()).collect();
        assert!(stored.len() <= 1, "{self}: {} sessions", stored.len());
        stored.pop()
    }

    fn journal(&self) -> Vec<Value> {
        self.stored().map(|(_, records)| records).unwrap_or_default()
    }

    /// Starts the next process: a new run, or a resumed one.
    fn start(&self) -> RunningPosse {
        let common = ["--output-format", "stream-json", "-y", "--max-turns", "999"];
        let (dir, journal) = self.stored().unwrap_or_default();
        let asked = journal.iter().any(|record| record["type"] == "user.message");
        let mut args: Vec<&str> = match dir.file_name().and_then(|id| id.to_str()) {
            None => vec!["run"],
            Some(id) => vec!["resume", id],
        };
        args.extend(common);
        if !asked {
            args.push("work");
        }
        let mut command = self.machine.command(&args);
        command.process_group(0);
        RunningPosse::start(command)
    }

    /// Lets a process run for a while and kills it. `true` if the session is done.
    fn run_and_kill(&mut self) -> bool {
        let mut running = self.start();
        if self.dice.next_number(10) < 3 {
            thread::sleep(Duration::from_micros(self.dice.next_number(MOMENT_MICROS_MAX)));
        } else {
            for _ in 0..=self.dice.next_number(LINES_MAX) {
                if running.next_line().is_none() {
                    break;
                }
            }
            thread::sleep(Duration::from_micros(self.dice.next_number(4000)));
        }
        let pid = running.pid();
        let whom = if self.dice.next_number(2) == 0 { pid } else { Pid::from_raw(-pid.as_raw()) };
        // The process may have ended already.
        kill(whom, Signal::SIGKILL).ok();
        let ended = running.end();
        for line in ended.stdout.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            self.note_line(line);
        }
        match ended.code {
            None => {
                self.kills += 1;
                // The answer may have been given without the end of the session.
                self.is_answered()
            }
            Some(0) => true,
            Some(code) => panic!("{self}: exit {code}: {}", ended.stderr),
        }
    }

    fn is_answered(&self) -> bool {
        let answered = |record: &Value| {
            record["type"] == "agent.invocation.completed" && record["result"] == DONE
        };
        self.journal().iter().any(answered)
    }

    /// Notes a complete line of standard output; readers may rely on it.
    fn note_line(&mut self, line: &str) {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{self}: {line}"));
        let Some(number) = line["record"].as_u64() else { return };
        let line = common(line);
        if let Some(before) = self.said.insert(number, line.clone()) {
            assert_eq!(before, line, "{self}: record {number} became another one");
        }
    }

    /// Asserts that every printed record is in the journal with the same contents.
    fn assert_kept(&self) {
        let kept: HashMap<u64, Value> = self
            .journal()
            .into_iter()
            .map(|record| (record["record"].as_u64().unwrap(), common(record)))
            .collect();
        for (number, line) in &self.said {
            assert_eq!(kept.get(number), Some(line), "{self}: record {number} is lost");
        }
    }

    /// Asserts that every call that is recorded as run has exactly one effect, and no call has
    /// two.
    fn assert_once(&self) {
        let mut traces: BTreeMap<String, usize> = BTreeMap::new();
        for file in TRACES {
            let text = fs::read_to_string(self.machine.work(file)).unwrap_or_default();
            for label in text.lines().filter(|line| *line != "END") {
                *traces.entry(label.to_owned()).or_default() += 1;
            }
        }
        let twice: Vec<_> = traces.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "{self}: ran twice: {twice:?}");
        let journal = self.journal();
        let of = |kind: &'static str| journal.iter().filter(move |record| record["type"] == kind);
        let ids = |kind: &'static str| of(kind).map(|record| record["callId"].clone());
        let (done, unknown): (Vec<_>, Vec<_>) =
            (ids("tool.completed").collect(), ids("tool.outcome_unknown").collect());
        for asked in of("tool.requested") {
            let (id, arguments) = (&asked["callId"], asked["arguments"].as_str().unwrap());
            let label = arguments.split(['"', ' ', '\\']).find(|word| word.starts_with("call-"));
            let Some(label) = label else { continue };
            let left = traces.get(label).copied().unwrap_or_default();
            if done.contains(id) {
                assert_eq!(left, 1, "{self}: {label} is said to have run");
            }
        }
        let started: Vec<_> = ids("tool.started").collect();
        for id in &unknown {
            assert!(started.contains(id), "{self}: {id} had not started");
            assert!(!done.contains(id), "{self}: {id} has two outcomes");
        }
        assert!(unknown.len() <= self.kills, "{self}: {} unknown outcomes", unknown.len());
        let results = done.len() + unknown.len() + of("tool.failed").count();
        assert_eq!(results, CALLS, "{self}: each call has one result");
    }

    /// Asserts that no process started by a command of this machine is still running.
    fn assert_alone(&self) {
        let begin = Instant::now();
        let here = self.machine.path("").canonicalize().unwrap();
        while let Some(pid) = process_in(&here) {
            assert!(begin.elapsed() < Duration::from_secs(10), "{self}: process {pid} is left");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills and resumes until the session is done. Returns the number of kills.
    fn play(mut self, on_kill: impl Fn()) -> usize {
        for run in 0.. {
            assert!(run < RUNS_MAX, "{self}: {run} processes and not done");
            let before = self.kills;
            let done = self.run_and_kill();
            if self.kills > before {
                on_kill();
            }
            self.assert_kept();
            if done {
                break;
            }
        }
        assert!(self.is_answered(), "{self}: it ends without its answer");
        self.assert_once();
        self.assert_alone();
        // Panics if one of the histories was rejected.
        self.server.requests();
        self.machine.verify();
        self.kills
    }
}

impl std::fmt::Display for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {} after {} kills", self.seed, self.kills)
    }
}

/// The complete lines of a journal: closed segments, then the active file.
fn records(dir: &Path) -> Vec<Value> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().flatten().map(|file| file.path()).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap().to_string_lossy();
        name.starts_with("session-") && name.ends_with(".jsonl")
    });
    files.sort();
    files.push(dir.join("session.jsonl"));
    let bytes: Vec<u8> = files.iter().filter_map(|file| fs::read(file).ok()).flatten().collect();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// The line without the members that only the journal or only the stream has.
fn common(mut line: Value) -> Value {
    for own in ["seq", "hash", "id"] {
        line.as_object_mut().unwrap().remove(own);
    }
    line
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
#[expect(clippy::print_stdout, reason = "the long loop says how far it is")]
fn a_session_killed_repeatedly_finishes() {
    let asked = number("POSSE_KILLS");
    let (from, until) = (number("POSSE_KILLS_FROM").unwrap_or(0), asked.unwrap_or(KILLS));
    let (killed, next) = (AtomicUsize::new(from), AtomicUsize::new(0));
    let (begin, sessions) = (Instant::now(), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from).max(2) {
            scope.spawn(|| {
                while killed.load(Ordering::Relaxed) < until {
                    // Each session gets its own seed, also in a continued loop.
                    let seed = from + next.fetch_add(1, Ordering::Relaxed);
                    let kills = Session::new(seed).play(|| {
                        let so_far = killed.fetch_add(1, Ordering::Relaxed) + 1;
                        if asked.is_some() && so_far.is_multiple_of(100) {
                            println!("{so_far} kills in {:.0?}", begin.elapsed());
                        }
                    });
                    sessions.lock().unwrap().push(kills);
                }
            });
        }
    });
    let sessions = sessions.into_inner().unwrap();
    println!("{} kills, sessions: {sessions:?}, {:.0?}", killed.into_inner(), begin.elapsed());
    let killed: usize = sessions.iter().sum();
    assert!(from + killed >= until, "{killed}");
    assert!(sessions.iter().all(|kills| *kills > 0), "each session was killed: {sessions:?}");
}
