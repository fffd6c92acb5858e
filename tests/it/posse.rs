//! The program under test, with its own home, its own environment and a time limit.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::model_server::ModelServer;

/// Time limit of a run.
const HANG: Duration = Duration::from_secs(30);

/// A user's machine: a home, a state directory, a workspace.
#[derive(Debug)]
pub(crate) struct Machine {
    dir: TempDir,
}

impl Machine {
    /// A machine without configuration.
    pub(crate) fn new() -> Machine {
        let dir = tempfile::Builder::new().prefix("posse-it-").tempdir().unwrap();
        for folder in ["home", "work", "tmp", "posse/config"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        // Stops the search for the repository inside the temporary directory.
        fs::create_dir_all(dir.path().join("work/.git")).unwrap();
        Machine { dir }
    }

    /// A machine whose provider is `server`.
    pub(crate) fn with(server: &ModelServer) -> Machine {
        Machine::configured(server, &json!({}), &json!({}))
    }

    /// With further settings and settings of the provider. The permission mode is `ask`, so that a
    /// test in a terminal gets questions on every sandbox tier.
    pub(crate) fn configured(server: &ModelServer, more: &Value, profile: &Value) -> Machine {
        let machine = Machine::new();
        let mut provider = json!({
            "type": "openai-compatible", "baseURL": server.base_url(), "model": "scripted-1",
            "auth": "none",
        });
        merge(&mut provider, profile);
        let mut settings = json!({
            "defaultProvider": "local", "patience": "5s", "permissionMode": "ask",
            "providers": {"local": provider},
        });
        merge(&mut settings, more);
        machine.write_config(&settings.to_string());
        machine
    }

    /// Writes the user's configuration.
    pub(crate) fn write_config(&self, text: &str) {
        fs::write(self.path("posse/config/config.json"), text).unwrap();
    }

    /// A path on this machine.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// A path in the workspace.
    pub(crate) fn work(&self, relative: &str) -> PathBuf {
        self.path("work").join(relative)
    }

    /// Writes a file of the workspace.
    pub(crate) fn write(&self, relative: &str, contents: impl AsRef<[u8]>) {
        let path = self.work(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    /// Reads a file of the workspace.
    pub(crate) fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.work(relative)).unwrap()
    }

    /// The program, in the workspace, with only `PATH` from the environment.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posse"));
        command
            .args(args)
            .current_dir(self.path("work"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("POSSE_HOME", self.path("posse"))
            .env("TMPDIR", self.path("tmp"))
            // A value to redact, as on most machines: tools and models are wrapped because of it.
            .env("UNUSED_SERVICE_TOKEN", "unused-token-5f0c9a7e41")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A shell command line, in which `$0` is the program.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let program = self.command::<&str>(&[]);
        let mut command = Command::new("sh");
        command.args(["-c", line, env!("CARGO_BIN_EXE_posse")]);
        command.current_dir(self.path("work")).env_clear();
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn posse<S: AsRef<OsStr>>(&self, args: &[S]) -> FinishedRun {
        RunningPosse::start(self.command(args)).end()
    }

    /// Runs the program with this standard input.
    pub(crate) fn posse_with_input(&self, args: &[&str], input: &[u8]) -> FinishedRun {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let mut stdin = running.child.stdin.take().unwrap();
        let input = input.to_vec();
        // The program may stop reading before the end.
        thread::spawn(move || stdin.write_all(&input).ok());
        running.end()
    }

    /// Runs a task with `stream-json`, and returns its events as well.
    pub(crate) fn stream(&self, args: &[&str]) -> (FinishedRun, Vec<Value>) {
        let args = [&["run", "--output-format", "stream-json"], args].concat();
        let ended = self.posse(&args);
        let events = ended.events();
        (ended, events)
    }

    /// Starts a task with `stream-json`.
    pub(crate) fn start(&self, args: &[&str]) -> RunningPosse {
        let args = [&["run", "--output-format", "stream-json"], args].concat();
        RunningPosse::start(self.command(&args))
    }

    /// Folder of the only session.
    pub(crate) fn session_dir(&self) -> PathBuf {
        let projects = only_entry(&self.path("posse/state/projects"));
        only_entry(&projects.join("sessions"))
    }

    /// Fails unless every session of the workspace verifies.
    pub(crate) fn verify(&self) {
        let verified = self.posse(&["sessions", "verify"]);
        assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    }
}

fn only_entry(dir: &Path) -> PathBuf {
    let entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{}: {entries:?}", dir.display());
    entries[0].clone()
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        match value {
            Value::Null => drop(into.as_object_mut().unwrap().remove(key)),
            value => into[key] = value.clone(),
        }
    }
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct FinishedRun {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
    pub(crate) took: Duration,
}

impl FinishedRun {
    /// Fails unless the exit code is `code` and the output shows no crash.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for word in ["panicked at", "RUST_BACKTRACE", "crashed"] {
            assert!(!self.stderr.contains(word), "{}", self.stderr);
        }
    }

    /// Lines of standard output, each of which must be an event.
    pub(crate) fn events(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// A running process.
#[derive(Debug)]
pub(crate) struct RunningPosse {
    child: Child,
    lines: Receiver<String>,
    stderr: Receiver<String>,
    seen: Vec<String>,
    started: Instant,
    /// Time after which it is killed and the test fails.
    time_max: Duration,
}

impl RunningPosse {
    /// Starts a prepared command. Piped streams are read all the time.
    pub(crate) fn start(mut command: Command) -> RunningPosse {
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let (line, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                let mut reader = BufReader::new(stdout);
                let mut bytes = Vec::new();
                while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
                    // An incomplete line must not look like a complete one.
                    let text = String::from_utf8(std::mem::take(&mut bytes)).expect("UTF-8");
                    line.send(text).ok();
                }
            });
        }
        let (whole, stderr) = channel();
        if let Some(mut pipe) = child.stderr.take() {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).ok();
                whole.send(String::from_utf8_lossy(&bytes).into_owned()).ok();
            });
        }
        RunningPosse { child, lines, stderr, seen: Vec::new(), started, time_max: HANG }
    }

    /// Lets it run for up to `time_max` before the test fails.
    pub(crate) fn for_at_most(mut self, time_max: Duration) -> RunningPosse {
        self.time_max = time_max;
        self
    }

    /// Its standard input, if it is a pipe and was not taken.
    pub(crate) fn take_stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("no pipe")
    }

    /// Next line of standard output, with its newline. `None` at the end.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        let left = self.time_max.saturating_sub(self.started.elapsed());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.hangs("says nothing more"),
        }
    }

    /// Reads events up to the next one of this type, and returns it.
    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        while let Some(line) = self.next_line() {
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            if event["type"] == kind {
                return event;
            }
        }
        panic!("no {kind} came: {:?}", self.seen)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for its end; returns all output.
    pub(crate) fn end(mut self) -> FinishedRun {
        while self.next_line().is_some() {}
        let left = self.time_max.saturating_sub(self.started.elapsed());
        let stderr = match self.stderr.recv_timeout(left) {
            Ok(text) => text,
            // Standard error was not piped.
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => self.hangs("keeps its standard error"),
        };
        let status = self.wait();
        FinishedRun {
            stdout: self.seen.concat(),
            stderr,
            code: status.code(),
            took: self.started.elapsed(),
        }
    }

    /// Waits for the process, with any open streams.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let pid = self.pid();
        let (over, watch) = channel::<()>();
        let left = self.time_max.saturating_sub(self.started.elapsed());
        let watchdog = thread::spawn(move || {
            if watch.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                kill(pid, Signal::SIGKILL).ok();
                return false;
            }
            true
        });
        let status = self.child.wait().unwrap();
        drop(over);
        assert!(watchdog.join().unwrap(), "the process did not end: {:?}", self.seen);
        status
    }

    fn hangs(&mut self, what: &str) -> ! {
        self.child.kill().ok();
        let stderr = self.stderr.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        panic!("it {what}\nstdout: {}\nstderr: {stderr}", self.seen.concat());
    }
}

impl Drop for RunningPosse {
    fn drop(&mut self) {
        // Nothing to do if it was waited for.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// A process whose working directory is in that folder.
pub(crate) fn process_in(folder: &Path) -> Option<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
        })
        .find_map(|process| process.file_name().into_string().ok())
}

/// Checks every row of a table concurrently.
pub(crate) fn side_by_side<T: Send>(rows: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for row in rows {
            scope.spawn(move || check(row));
        }
    });
}
