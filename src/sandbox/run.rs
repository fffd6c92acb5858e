//! One run of a process, from its start until nothing of it is left.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::stat::fstat;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until};

use crate::sandbox::capture::Capture;
use crate::sandbox::dialogue::Kept;
use crate::sandbox::helper::{self, Line};
use crate::sandbox::live::Live;
use crate::sandbox::mask::Mask;
use crate::sandbox::scratch::Scratch;
use crate::sandbox::tree::{Mark, Tree};
use crate::sandbox::{Directory, Exit, Outcome, RunError, Sandbox, Spawn, Update};

/// How long a process that was asked to end may take.
const TERMINATION_GRACE: Duration = Duration::from_millis(200);

/// How often a process is killed before it is given up.
const KILLS_MAX: u32 = 10;

/// How long output of processes that outlive the command is waited for.
const STRAGGLER_GRACE: Duration = Duration::from_millis(300);

/// How often the tree is looked at while it runs.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of one read.
const READ_BYTES: usize = 32 << 10;

/// Bytes that a helper may report.
const REPORT_BYTES_MAX: usize = 4 << 10;

impl Sandbox {
    /// Runs `spawn` until nothing of it is left, and tells `watch` what happens meanwhile.
    ///
    /// Must be awaited on a thread that lives as long as the process may, such as one of the
    /// runtime's: the process is killed when the thread that started it ends. Dropping the future
    /// kills the process and everything it has started.
    pub async fn run(
        &self,
        spawn: Spawn,
        mut watch: impl FnMut(Update) + Send,
    ) -> Result<Outcome, RunError> {
        // Dropped last, when nobody uses it any more.
        let scratch = Scratch::new(&spawn.scratch, &self.spare).map_err(start_error)?;
        let mut running = self.start(spawn, &scratch)?;
        running.attend(&mut watch).await.map_err(start_error)?;
        running.end(&mut watch).await
    }

    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    fn start(&self, spawn: Spawn, scratch: &Scratch) -> Result<Running, RunError> {
        let (output, output_end) = io::pipe().map_err(start_error)?;
        let (report, report_end) = io::pipe().map_err(start_error)?;
        let dialogue = spawn.dialogue.as_ref();
        let (errors, errors_end) =
            dialogue.map(|_| io::pipe()).transpose().map_err(start_error)?.unzip();
        let input = dialogue.map(|dialogue| dialogue.variable(scratch.path())).transpose();
        let input = input.map_err(start_error)?;
        self.watch.ensure(&self.helper, &self.family);
        let mark = Mark::new(&self.family);
        let mut command = std::process::Command::new(&self.helper);
        command
            .arg0("posse")
            .arg(helper::MARK)
            .arg(std::process::id().to_string())
            .arg(&spawn.program)
            .args(&spawn.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(["TMPDIR", "TMP", "TEMP"].map(|name| (name, scratch.path())))
            .envs(spawn.environment)
            .envs([mark.variable()])
            .envs(input)
            .stdin(Stdio::from(helper::report_end(report_end)))
            .stdout(Stdio::from(output_end.try_clone().map_err(start_error)?))
            .stderr(errors_end.map_or_else(|| Stdio::from(output_end), Stdio::from))
            .current_dir(directory(&spawn.directory)?);
        // The descriptors of the other ends are closed with the command, or reading never ends.
        let (child, tree) = Tree::start(mark, move || {
            let child = tokio::process::Command::from(command).spawn()?;
            let id = child.id().map_or(0, u32::cast_signed);
            Ok((child, id))
        })
        .map_err(start_error)?;
        let receiver =
            |end: io::PipeReader| Receiver::from_owned_fd(end.into()).map_err(start_error);
        let begin = Instant::now();
        Ok(Running {
            tree,
            child,
            output: Some(receiver(output)?),
            errors: errors.map(receiver).transpose()?,
            errors_text: Kept::new(dialogue, &self.secrets),
            report: Some(receiver(report)?),
            report_text: Vec::new(),
            is_enforced: false,
            failure: None,
            mask: Mask::new(&self.secrets),
            capture: Capture::new(spawn.output_bytes_max, spawn.spill, spawn.spill_bytes_max),
            live: Live::default(),
            status: None,
            forced: None,
            kills: 0,
            begin,
            last_output: begin,
            deadline: begin + spawn.timeout,
            look_at: begin + LOOK_INTERVAL,
        })
    }
}

/// A process and everything that is known of it.
struct Running {
    // Dropped first, so that nothing lives when the rest goes.
    tree: Tree,
    child: Child,
    output: Option<Receiver>,
    /// Standard error, if that is kept apart.
    errors: Option<Receiver>,
    errors_text: Kept,
    report: Option<Receiver>,
    report_text: Vec<u8>,
    is_enforced: bool,
    failure: Option<String>,
    mask: Mask,
    capture: Capture,
    live: Live,
    status: Option<ExitStatus>,
    /// Why we ended it, if we did.
    forced: Option<Exit>,
    kills: u32,
    begin: Instant,
    last_output: Instant,
    /// When to take the next step against it: to ask it to end, to kill it, to wait no longer.
    deadline: Instant,
    look_at: Instant,
}

impl Running {
    /// Reads, waits and keeps the time until the command has ended and its output is read.
    async fn attend(&mut self, watch: &mut (impl FnMut(Update) + Send)) -> io::Result<()> {
        let mut chunk = vec![0; READ_BYTES];
        let mut report = vec![0; 512];
        let mut errors = vec![0; if self.errors.is_some() { READ_BYTES } else { 0 }];
        let mut reads: u32 = 0;
        while self.status.is_none() || self.output.is_some() {
            let wake = self.live.due().map_or(self.look_at, |due| due.min(self.look_at));
            tokio::select! {
                // What is in force is known before anything is printed. The time is looked at
                // after each step, so a flood of output cannot keep it out.
                biased;
                length = read(&mut self.report, &mut report), if self.report.is_some() => {
                    self.take_report(&report[..length?], watch);
                }
                status = self.child.wait(), if self.status.is_none() => {
                    self.status = Some(status?);
                    self.deadline = Instant::now() + STRAGGLER_GRACE;
                }
                length = read(&mut self.output, &mut chunk), if self.output.is_some() => {
                    self.take_output(&chunk[..length?]);
                    reads = reads.wrapping_add(1);
                    if reads.is_multiple_of(16) {
                        // A command that prints without end must not keep others waiting.
                        tokio::task::yield_now().await;
                    }
                }
                length = read(&mut self.errors, &mut errors), if self.errors.is_some() => {
                    match length? {
                        0 => self.errors = None,
                        length => self.errors_text.push(&errors[..length]),
                    }
                }
                () = sleep_until(wake.min(self.deadline)) => {}
            }
            let now = Instant::now();
            if self.live.due().is_some_and(|due| due <= now) {
                self.live.take(false).map(Update::Output).into_iter().for_each(&mut *watch);
            }
            if self.look_at <= now {
                self.tree.look();
                self.look_at = now + LOOK_INTERVAL;
            }
            if self.deadline <= now && !self.press(now) {
                break;
            }
        }
        Ok(())
    }

    /// Takes the next step against a command whose time is up. `false`: wait no longer.
    fn press(&mut self, now: Instant) -> bool {
        if self.status.is_some() {
            return false;
        }
        if self.forced.is_none() {
            self.forced = Some(Exit::TimedOut);
            self.tree.terminate();
        } else if self.kills < KILLS_MAX {
            self.kills += 1;
            self.tree.kill_once(true);
        } else {
            // It hangs in the kernel, where no signal reaches it.
            return false;
        }
        self.deadline = now + TERMINATION_GRACE;
        true
    }

    fn take_output(&mut self, bytes: &[u8]) {
        let Running { mask, capture, live, .. } = self;
        if bytes.is_empty() {
            self.output = None;
            return;
        }
        self.last_output = Instant::now();
        let mut fits = true;
        mask.push(bytes, |bytes| {
            fits &= capture.push(bytes);
            live.push(bytes);
        });
        if !fits {
            self.output = None;
            if self.status.is_none() && self.forced.is_none() {
                self.forced = Some(Exit::OutputFull);
                self.tree.kill_once(true);
                self.deadline = Instant::now() + TERMINATION_GRACE;
            }
        }
    }

    fn take_report(&mut self, bytes: &[u8], watch: &mut impl FnMut(Update)) {
        if bytes.is_empty() || self.report_text.len() + bytes.len() > REPORT_BYTES_MAX {
            self.report = None;
            return;
        }
        self.report_text.extend_from_slice(bytes);
        while let Some(end) = self.report_text.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.report_text.drain(..=end).collect();
            match helper::parse(String::from_utf8_lossy(&line).trim_end()) {
                Some(Line::Enforced(report)) => {
                    let Ok(report) = serde_json::from_str::<serde_json::Value>(&report) else {
                        continue;
                    };
                    let tier = report["tier"].as_str().unwrap_or("none").to_owned();
                    self.is_enforced = true;
                    watch(Update::Enforced { tier, report });
                }
                Some(Line::Failed(reason)) => self.failure = Some(reason),
                None => {}
            }
        }
    }

    /// Kills what the command has left behind, and sums up.
    async fn end(mut self, watch: &mut (impl FnMut(Update) + Send)) -> Result<Outcome, RunError> {
        let end = Instant::now();
        let stragglers = self.tree.clear().await;
        // Nobody is left to write, so what can be read at once is the rest.
        let mut chunk = vec![0; READ_BYTES];
        while let Some(length) = ready(self.report.as_ref(), &mut chunk) {
            self.take_report(&chunk[..length], watch);
        }
        while let Some(length) = ready(self.output.as_ref(), &mut chunk) {
            self.take_output(&chunk[..length]);
        }
        while let Some(length) = ready(self.errors.as_ref(), &mut chunk) {
            self.errors_text.push(&chunk[..length]);
        }
        if let Some(reason) = self.failure {
            return Err(RunError::NotPrepared { reason });
        }
        if !self.is_enforced {
            let reason = "nothing was reported as enforced".to_owned();
            return Err(RunError::NotPrepared { reason });
        }
        let Running { mut mask, mut capture, mut live, errors_text, .. } = self;
        mask.finish(|bytes| {
            capture.push(bytes);
            live.push(bytes);
        });
        live.take(true).map(Update::Output).into_iter().for_each(watch);
        let exit = self.forced.or_else(|| self.status.map(exit_of)).unwrap_or(Exit::TimedOut);
        Ok(Outcome {
            exit,
            output: capture.finish(),
            errors: errors_text.finish(),
            duration: end - self.begin,
            quiet: end.saturating_duration_since(self.last_output),
            stragglers,
        })
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    // A process that has ended has either a code or a signal.
    status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or(0)), Exit::Code)
}

/// Reads what there is, waiting for it. Nothing means the end.
async fn read(from: &mut Option<Receiver>, into: &mut [u8]) -> io::Result<usize> {
    match from {
        Some(receiver) => receiver.read(into).await,
        None => std::future::pending().await,
    }
}

/// Reads what there is, without waiting. `None` is the end, or as good as that.
fn ready(from: Option<&Receiver>, into: &mut [u8]) -> Option<usize> {
    from?.try_read(into).ok().filter(|&length| length > 0)
}

fn start_error(source: io::Error) -> RunError {
    RunError::Start { source }
}

/// The path to change to. That of a descriptor leads to the folder itself, wherever it is.
fn directory(directory: &Directory) -> Result<PathBuf, RunError> {
    match directory {
        Directory::Path(path) if path.is_dir() => Ok(path.clone()),
        Directory::Path(_) => Err(RunError::NoDirectory),
        Directory::Opened(descriptor) => {
            let stat = fstat(descriptor).map_err(|error| start_error(error.into()))?;
            if stat.st_nlink == 0 {
                return Err(RunError::NoDirectory);
            }
            let folder = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
            Ok(PathBuf::from(format!("{folder}/{}", descriptor.as_raw_fd())))
        }
    }
}
