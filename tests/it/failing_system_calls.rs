//! Runs a short task in which a system call fails: the n-th one of its kind in every thread and
//! process, by the fault injection of `strace`.
//!
//! A run must end with a documented exit code and an error text, without a panic and without
//! processes left behind. What it reports as done must be on disk and in the journal, and the
//! session must continue afterwards.
//!
//! By default only some values of n are tried. The whole matrix, with its progress:
//!
//! ```sh
//! POSSE_FAILING_CALLS=all cargo test --test it failing_system_calls -- --nocapture
//! ```
//!
//! `POSSE_FAILING_CALLS=openat:1-20` tries one kind, here with n from 1 to 20.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, runs, says};
use crate::posse::{FinishedRun, Machine, RunningPosse, process_in};

/// A kind of system calls, and the error that the kernel would report.
#[derive(Debug, Clone, Copy)]
struct CallKind {
    /// Used by `POSSE_FAILING_CALLS`.
    name: &'static str,
    /// Names for `strace`. A `?` marks a name that not every architecture has.
    calls: &'static str,
    error: &'static str,
}

const KINDS: [CallKind; 18] = [
    CallKind { name: "openat", calls: "openat", error: "EMFILE" },
    CallKind { name: "read", calls: "read", error: "EIO" },
    CallKind { name: "write", calls: "write,writev,pwrite64", error: "ENOSPC" },
    CallKind { name: "fsync", calls: "fsync,fdatasync", error: "EIO" },
    CallKind { name: "rename", calls: "?rename,renameat,renameat2", error: "EIO" },
    CallKind { name: "mkdir", calls: "?mkdir,mkdirat", error: "ENOSPC" },
    CallKind { name: "unlink", calls: "?unlink,?rmdir,unlinkat", error: "EACCES" },
    CallKind { name: "truncate", calls: "ftruncate,fallocate", error: "ENOSPC" },
    CallKind { name: "stat", calls: "statx,?newfstatat,fstat", error: "ENOMEM" },
    CallKind { name: "getdents", calls: "getdents64", error: "EIO" },
    CallKind { name: "socket", calls: "socket,socketpair", error: "EMFILE" },
    CallKind { name: "connect", calls: "connect", error: "ENETUNREACH" },
    CallKind { name: "send", calls: "sendto,sendmsg", error: "ENOBUFS" },
    CallKind { name: "receive", calls: "recvfrom,recvmsg", error: "ECONNRESET" },
    CallKind { name: "clone", calls: "?fork,?vfork,clone,clone3", error: "EAGAIN" },
    CallKind { name: "pipe", calls: "pipe2,eventfd2,epoll_create1", error: "EMFILE" },
    CallKind { name: "mount", calls: "mount,unshare,pivot_root", error: "ENOMEM" },
    CallKind { name: "wait", calls: "wait4,waitid", error: "ECHILD" },
];

/// Values of n that are tried for each kind by default.
const SAMPLE: usize = 2;

/// Documented exit codes of `posse run`.
const EXIT_CODES: [i32; 9] = [0, 1, 2, 3, 4, 5, 6, 8, 70];

const DONE: &str = "Everything is done.";

/// Effects of the task: file, contents, and the name of the tool.
const EFFECTS: [(&str, &str, &str); 3] = [
    ("new.txt", "written\n", "write_file"),
    ("notes", "after\n", "edit_file"),
    ("made", "by a command\n", "bash"),
];

/// A model that writes a file, edits one and runs a command, whatever the results are.
fn model(request: &Value) -> ModelAnswer {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    match messages.iter().filter(|message| message["role"] == "tool").count() {
        0 => calls(&[("write_file", json!({"path": "new.txt", "content": "written\n"}))]),
        1 => calls(&[(
            "edit_file",
            json!({"path": "notes", "oldString": "before\n", "newString": "after\n"}),
        )]),
        2 => runs("echo by a command > made"),
        _ => says(DONE),
    }
}

/// One run on its own machine.
struct Run {
    machine: Machine,
    server: ModelServer,
}

impl Run {
    fn new() -> Run {
        let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(model)]);
        let machine = Machine::with(&server);
        machine.write("notes", "before\n");
        Run { machine, server }
    }

    /// Runs the task with this failing call. Returns a progress text and the violations.
    fn try_failing(&self, kind: CallKind, n: usize) -> (String, Vec<String>) {
        let inject = format!("inject={}:error={}:when={n}", kind.calls, kind.error);
        let trace = self.machine.path("trace");
        let file = trace.to_str().unwrap();
        let run = AssertUnwindSafe(|| self.traced(&["-y", "-o", file, "-e", &inject]));
        let (ended, stderr) = match catch_unwind(run) {
            Ok(ended) => {
                let text = format!("exit {:?} after {:.1?}", ended.code, ended.took);
                ((text, self.violations(&ended)), ended.stderr)
            }
            Err(panic) => {
                self.kill_processes();
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                (("no end".to_owned(), vec!["it does not end".to_owned()]), text)
            }
        };
        let (text, mut violations) = ended;
        if let Some(reason) = impossible(&fs::read(&trace).unwrap(), &stderr) {
            return (format!("{text}, not judged: {reason}"), Vec::new());
        }
        if !violations.is_empty() {
            violations.push(stderr);
        }
        (text, violations)
    }

    /// Kills what `strace` leaves running when it is killed.
    fn kill_processes(&self) {
        let here = self.machine.path("").canonicalize().unwrap();
        while let Some(left) = process_in(&here) {
            kill(Pid::from_raw(left.parse().unwrap()), Signal::SIGKILL).ok();
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs the task below `strace` with these options.
    fn traced(&self, options: &[&str]) -> FinishedRun {
        let args = ["run", "--output-format", "stream-json", "-y", "work"];
        let program = self.machine.command(&args);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq"]).args(options);
        command.arg(env!("CARGO_BIN_EXE_posse")).args(args);
        command.current_dir(self.machine.path("work")).env_clear();
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        // The probe of the sandbox starts processes of its own, once for each state directory.
        command.env("POSSE_SANDBOX_BACKEND", "namespaces");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningPosse::start(command).end()
    }

    /// Violations of the promises of this file after a run.
    fn violations(&self, ended: &FinishedRun) -> Vec<String> {
        let mut found = Vec::new();
        let code = ended.code.unwrap_or(-1);
        if !EXIT_CODES.contains(&code) {
            found.push(format!("exit code {code}"));
        }
        if ended.stderr.contains("panicked at") {
            found.push("a panic".to_owned());
        }
        if code != 0 && ended.stderr.trim().is_empty() {
            found.push("a failure without a text".to_owned());
        }
        if code == 0 && !ended.stdout.contains(DONE) {
            found.push("success without the answer".to_owned());
        }
        if let Some(pid) = self.process_left() {
            found.push(format!("process {pid} is left"));
        }
        let journal = self.journal();
        found.extend(lost_records(&ended.stdout, &journal));
        found.extend(self.missing_effects(&journal));
        found.extend(self.unusable_session(&journal));
        found
    }

    /// The journal records of all sessions.
    fn journal(&self) -> Vec<Value> {
        let Ok(projects) = fs::read_dir(self.machine.path("posse/state/projects")) else {
            return Vec::new();
        };
        let sessions = projects.flatten().map(|project| project.path().join("sessions"));
        let sessions = sessions.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        sessions.flat_map(|session| records(&session.path().join("session.jsonl"))).collect()
    }

    /// Completed calls whose effect is not on disk.
    fn missing_effects(&self, journal: &[Value]) -> Vec<String> {
        let of = |kind: &'static str| journal.iter().filter(move |record| record["type"] == kind);
        let missing = of("tool.completed").filter_map(|done| {
            let asked = of("tool.requested").find(|asked| asked["callId"] == done["callId"])?;
            let (file, contents, tool) = EFFECTS.iter().find(|row| asked["name"] == row.2)?;
            // The model is told about a command that failed.
            let failed = *tool == "bash" && !done["content"].to_string().contains("exit code: 0");
            let there = fs::read_to_string(self.machine.work(file)).ok();
            (there.as_deref() != Some(contents) && !failed)
                .then(|| format!("{tool} is completed, {file} is {there:?}: {done}"))
        });
        missing.collect()
    }

    /// Continues the session without failing calls. It must end with its answer.
    fn unusable_session(&self, journal: &[Value]) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(first) = journal.first() {
            let id = first["sessionId"].as_str().unwrap_or_default();
            let resumed = self.machine.posse(&["resume", id, "-y", "go on"]);
            if resumed.code != Some(0) || !resumed.stdout.contains(DONE) {
                found.push(format!("it does not continue: {resumed:?}"));
            }
        }
        let verified = self.machine.posse(&["sessions", "verify"]);
        if verified.code != Some(0) {
            found.push(format!("the journal does not verify: {verified:?}"));
        }
        // Panics if a request was invalid.
        self.server.requests();
        found
    }

    /// A process that works in a folder of this machine, 10 s after the end of the run.
    fn process_left(&self) -> Option<String> {
        let begin = Instant::now();
        let here = self.machine.path("").canonicalize().unwrap();
        loop {
            let left = process_in(&here)?;
            if begin.elapsed() > Duration::from_secs(10) {
                return Some(left);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Reason why no kernel fails as in this run: it failed in the loader of programs, or a write to an
/// event descriptor, which always has room, did.
fn impossible(trace: &[u8], stderr: &str) -> Option<&'static str> {
    let trace = String::from_utf8_lossy(trace);
    let mut injected = trace.lines().filter(|line| line.ends_with("(INJECTED)"));
    // The line of a call that was interrupted in the trace lacks the descriptor.
    let wakes = injected.any(|line| line.contains("write(") && line.contains("[eventfd]>"))
        || stderr.contains("failed to wake I/O driver");
    if stderr.contains("error while loading shared libraries") {
        Some("the program was not loaded")
    } else if wakes {
        Some("a write to an event descriptor failed")
    } else {
        None
    }
}

/// Records on standard output that are not in the journal.
fn lost_records(stdout: &str, journal: &[Value]) -> Vec<String> {
    let kept: HashMap<_, _> =
        journal.iter().filter_map(|record| Some((record["record"].as_u64()?, record))).collect();
    let lines = stdout.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let lost = lines.filter_map(|line| {
        let line: Value = serde_json::from_str(line).expect("an event");
        let number = line["record"].as_u64()?;
        let same = kept.get(&number).is_some_and(|record| record["type"] == line["type"]);
        (!same).then(|| format!("record {number} is not in the journal: {line}"))
    });
    lost.collect()
}

/// The complete lines of a journal file.
fn records(file: &Path) -> Vec<Value> {
    let bytes = fs::read(file).unwrap_or_default();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// Highest number of calls of each kind in one thread, in a run without failures.
fn counts() -> Vec<(CallKind, usize)> {
    let run = Run::new();
    let trace = run.machine.path("trace");
    let all = KINDS.map(|kind| kind.calls).join(",");
    let ended = run.traced(&["-e", &format!("trace={all}"), "-o", trace.to_str().unwrap()]);
    ended.assert_code(0);
    assert_eq!(run.violations(&ended), Vec::<String>::new());
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in String::from_utf8_lossy(&fs::read(&trace).unwrap()).lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((call, _)) = call.trim_start().split_once('(') else { continue };
        *seen.entry((thread.to_owned(), call.to_owned())).or_default() += 1;
    }
    let count = |kind: &CallKind| {
        let names: Vec<_> =
            kind.calls.split(',').map(|name| name.trim_start_matches('?')).collect();
        let of_kind = seen.iter().filter(|((_, call), _)| names.contains(&call.as_str()));
        of_kind.map(|(_, count)| *count).max().unwrap_or_default()
    };
    KINDS.iter().map(|kind| (*kind, count(kind))).collect()
}

/// Up to `SAMPLE` values from 1 to `max`, spread evenly.
fn sample(max: usize) -> Vec<usize> {
    let wanted = SAMPLE.min(max);
    (1..=wanted).map(|nth| (max * (2 * nth - 1)).div_ceil(2 * wanted)).collect()
}

/// Kinds and values of n chosen by `POSSE_FAILING_CALLS`.
fn chosen(wanted: Option<&str>) -> Vec<(CallKind, usize)> {
    let all = counts().into_iter();
    let some: Vec<(CallKind, Vec<usize>)> = match wanted {
        None => all.map(|(kind, max)| (kind, sample(max))).collect(),
        Some("all") => all.map(|(kind, max)| (kind, (1..=max).collect())).collect(),
        Some(row) => {
            let (name, range) = row.split_once(':').unwrap_or((row, ""));
            let range = parse_range(range);
            all.filter(|(kind, _)| kind.name == name)
                .map(|(kind, max)| (kind, range.clone().unwrap_or(1..=max).collect()))
                .collect()
        }
    };
    assert!(!some.is_empty(), "no such kind: {wanted:?}");
    some.into_iter().flat_map(|(kind, ns)| ns.into_iter().map(move |n| (kind, n))).collect()
}

/// A range such as `3-9`, or one number.
fn parse_range(text: &str) -> Option<RangeInclusive<usize>> {
    let (from, until) = text.split_once('-').unwrap_or((text, text));
    Some(from.parse().ok()?..=until.parse().ok()?)
}

#[test]
#[expect(clippy::print_stdout, reason = "the whole matrix shows its progress")]
fn failing_system_calls_end_in_documented_ways() {
    let wanted = std::env::var("POSSE_FAILING_CALLS").ok();
    let rows = chosen(wanted.as_deref());
    let (count, begin) = (rows.len(), Instant::now());
    let (rows, failed) = (Mutex::new(rows.into_iter().enumerate()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((nth, (kind, n))) = rows.lock().unwrap().next() else { break };
                    let name = format!("{} {n}: {}", kind.name, kind.error);
                    let (text, violations) = Run::new().try_failing(kind, n);
                    if wanted.is_some() {
                        println!("{}/{count} {name}: {text}, {:.0?}", nth + 1, begin.elapsed());
                    }
                    if !violations.is_empty() {
                        failed.lock().unwrap().push(format!("{name}: {violations:#?}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {count} runs:\n{}", failed.len(), failed.join("\n"));
}

/// PID 1 of a command's namespaces mounts over `/dev` while its parent may still be starting.
#[test]
fn commands_run_when_the_null_device_opens_slowly() {
    let run = Run::new();
    let slow = ["-P", "/dev/null", "-e", "inject=openat:delay_enter=300000", "-o", "/dev/null"];
    let ended = run.traced(&slow);
    ended.assert_code(0);
    assert_eq!(run.machine.read("made"), "by a command\n");
}
