//! Execution of one command, from its start until all its processes have ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use nix::libc;
use nix::sys::stat::fstat;
use posse_actors::event::SandboxTier;
use posse_actors::ports::{Confinement, NetworkAccess};
use posse_base::or_pending;
use posse_base::secrets::key_patterns::KeyMask;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::capture::Capture;
use crate::environment;
use crate::guard::{Exemptions, Guard, LateFindings};
use crate::helper::{HelperShape, folder_path};
use crate::helper_output::MaskedPrefix;
use crate::init;
use crate::listeners::ListenerRequest;
use crate::mask::Mask;
use crate::memory;
use crate::output_chunks::OutputChunker;
use crate::plan::{Backend, Plan};
use crate::process_tree::ProcessTree;
use crate::spare_helper::ReadyHelper;
use crate::temporary::{SessionTemporary, TemporaryUse};
use crate::trial::Trial;
use crate::wire::{CommandExit, CommandStreams, HelperLine, HelperRequest};
use crate::{AtTimeout, Directory, Exit, ProcessOutcome, RunError, Sandbox, Spawn, Update};

/// Maximum time from sending the request until the enforcement report.
const PREPARATION_MAX: Duration = Duration::from_secs(10);

/// Time until the next escalation: from SIGTERM to SIGKILL, and between repeated SIGKILLs.
const TERMINATION_GRACE: Duration = Duration::from_millis(200);

/// Number of SIGKILLs to a command before posse stops waiting for its end.
const KILLS_MAX: u32 = 10;

/// Time for which posse reads the output of processes that survive the command.
const STRAGGLER_GRACE: Duration = Duration::from_millis(300);

/// Interval at which the memory use of a command is measured, and descendants of a command without
/// an init process are recorded.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Size in bytes of the buffer for reading output.
const READ_BYTES: usize = 32 << 10;

/// Maximum number of unprocessed bytes from a helper. A helper that exceeds it is no longer read.
const REPORT_BYTES_MAX: usize = 4 << 10;

/// Maximum number of bytes of a helper's output in an error message.
const SAID_BYTES_MAX: usize = 400;

const HIDDEN_DIRECTORY: &str = "the working directory is hidden from commands, because it can contain secrets; choose another one";

/// Folders of a command that is about to start.
#[derive(Clone, Copy)]
pub(crate) struct CommandPlace<'a> {
    /// Temporary folder of the session.
    pub(crate) temporary: &'a Arc<SessionTemporary>,
    /// The same, if helpers enter its namespaces.
    pub(crate) space: Option<&'a Arc<SessionTemporary>>,
    /// Working directory.
    pub(crate) directory: &'a OwnedFd,
    /// [`Spawn::scratch`] of the command.
    pub(crate) scratch: &'a Path,
}

/// Options of a run.
#[derive(Default)]
pub(crate) struct RunOptions<'a> {
    pub(crate) besides: Exemptions,
    /// Receiver of the findings that no outcome contains.
    pub(crate) late: Option<LateFindings>,
    /// Listeners to open in the network namespace of the command.
    pub(crate) listeners: Option<ListenerRequest>,
    /// Trial in which the command runs. `None`: it changes the workspace itself.
    pub(crate) trial: Option<&'a mut Trial>,
}

impl Sandbox {
    /// Runs `spawn` until none of its processes is left, and reports progress to `watch`. Stops
    /// waiting for processes that do not end when they are killed.
    ///
    /// Must be awaited on a thread that lives as long as the process, such as a runtime thread: the
    /// process is killed when the thread that started it ends. Dropping the future kills the
    /// process and its descendants.
    ///
    /// For commands configured by the user: they run even if the survey of protected files is
    /// incomplete. Commands of a model use [`run_judged`](Sandbox::run_judged).
    pub async fn run(
        &self,
        spawn: Spawn,
        watch: impl FnMut(Update) + Send,
    ) -> Result<ProcessOutcome, RunError> {
        let besides = Exemptions { unsurveyed: true, ..Exemptions::default() };
        self.run_judged(spawn, besides, None, None, watch).await
    }

    /// Runs `spawn` as [`run`](Sandbox::run) does, with the exemptions `besides`. Fails with
    /// [`RunError::NotPrepared`] if the survey of protected files is incomplete and `besides` does
    /// not permit that.
    ///
    /// `late` receives the findings that no outcome contains, also if the future is dropped.
    /// Without it, the next check reports those of a dropped future, and the others are logged.
    /// `listeners`: listeners to open in the network namespace of the command.
    pub async fn run_judged(
        &self,
        spawn: Spawn,
        besides: Exemptions,
        late: Option<LateFindings>,
        listeners: Option<ListenerRequest>,
        watch: impl FnMut(Update) + Send,
    ) -> Result<ProcessOutcome, RunError> {
        let options = RunOptions { besides, late, listeners, trial: None };
        self.run_with(spawn, options, watch).await
    }

    /// Returns `temporary` if helpers enter its namespaces. A command that is not confined sees the
    /// folder of the host.
    fn space_of(&self, temporary: &Arc<SessionTemporary>) -> Option<Arc<SessionTemporary>> {
        (self.backend() == Backend::Namespaces)
            .then(|| temporary.space(&self.helper).map(|_| Arc::clone(temporary)))
            .flatten()
    }

    /// Runs `spawn` as [`run_judged`](Sandbox::run_judged) does, in a trial if `options` has one.
    pub(crate) async fn run_with(
        &self,
        spawn: Spawn,
        options: RunOptions<'_>,
        mut watch: impl FnMut(Update) + Send,
    ) -> Result<ProcessOutcome, RunError> {
        let RunOptions { besides, late, listeners, mut trial } = options;
        let is_trial = trial.is_some();
        // Dropped last, when it is no longer used.
        let projects = self.surroundings.projects.as_ref();
        let of_session = self.temporary.of(&spawn.scratch, projects).map_err(start_error)?;
        // Other commands must not find there what a trial has seen.
        let of_trial = trial.as_ref().map(|trial| trial.temporary(&of_session)).transpose();
        let of_trial = of_trial.map_err(start_error)?;
        let temporary = of_trial.as_ref().unwrap_or(&of_session);
        let directory = opened(&spawn.directory)?;
        let space = self.space_of(temporary);
        let mut plan = self.plan(&spawn.confinement, directory.as_fd(), temporary.folder())?;
        if let Some(trial) = &mut trial {
            trial.cover(&mut plan)?;
        }
        let space = space.filter(|_| plan.backend == Backend::Namespaces);
        let measured =
            (plan.tier != SandboxTier::None && space.is_none()).then(|| temporary.enter());
        let scratch = spawn.scratch.clone();
        let place = CommandPlace {
            temporary,
            space: space.as_ref(),
            directory: &directory,
            scratch: &scratch,
        };
        // Dropped after the process, which must have ended before the check.
        let mut guard = self.guard(&mut plan, place, besides).await?;
        let is_hidden = || folder_path(directory.as_fd()).is_ok_and(|path| plan.hides(&path));
        if plan.tier == SandboxTier::Full && is_hidden() {
            guard.into_iter().for_each(Guard::take_back);
            return Err(RunError::NotPrepared { reason: HIDDEN_DIRECTORY.to_owned() });
        }
        if let Some(guard) = &mut guard {
            guard.late.clone_from(&late);
        }
        if let Some(trial) = trial {
            trial.mark_begin().await.map_err(start_error)?;
        }
        let covered_secrets = guard.as_mut().map(Guard::take_covered).unwrap_or_default();
        let shape = HelperShape::of(&plan);
        // With mounts, most of the slow preparation needs the mounts of this command.
        let expected = matches!(shape, HelperShape::Reduced { .. }).then(|| plan.clone());
        let space = space.as_ref();
        let mut running = self.start(spawn, temporary, space, &directory, plan, listeners)?;
        running.measured = measured;
        drop(directory);
        let next = if is_trial { self.space_of(&of_session) } else { space.cloned() };
        let meanwhile = || self.keep(shape, next.as_ref(), expected.clone());
        running.drive(&mut watch, &meanwhile).await.map_err(start_error)?;
        let mut ended = running.end(&mut watch).await;
        if let Some(path) = guard.as_ref().and_then(Guard::moved_secret) {
            ended = Err(RunError::Withheld {
                path: posse_base::failure::printable(&path.display().to_string()),
            });
        }
        let findings = match guard {
            Some(guard) => guard.check_effects().await,
            None => Vec::new(),
        };
        match &mut ended {
            Ok(outcome) => {
                outcome.findings = findings;
                outcome.covered_secrets = covered_secrets;
            }
            Err(_) => late.unwrap_or_default().report(findings),
        }
        if matches!(ended, Err(RunError::NotPrepared { .. })) && !is_trial {
            self.discard_probe_result();
        }
        ended
    }

    /// Decides which tracked secrets a command in `directory` would see as they are, as if it
    /// started now, for [`Sandbox::hides`]. Returns the paths that it would not see as they are,
    /// each with its contents. `scratch`: temporary folder of the session.
    pub async fn decide_tracked(
        &self,
        directory: PathBuf,
        scratch: &Path,
    ) -> Result<Vec<PathBuf>, RunError> {
        let projects = self.surroundings.projects.as_ref();
        let temporary = self.temporary.of(scratch, projects).map_err(start_error)?;
        let directory = opened(&Directory::Path(directory))?;
        let space = self.space_of(&temporary);
        let confinement = Confinement {
            profile: "read-only".to_owned(),
            writable_roots: Vec::new(),
            network: NetworkAccess::Denied,
        };
        let mut plan = self.plan(&confinement, directory.as_fd(), temporary.folder())?;
        let space = space.as_ref();
        let place = CommandPlace { temporary: &temporary, space, directory: &directory, scratch };
        let guard = self.guard(&mut plan, place, Exemptions::default()).await?;
        guard.into_iter().for_each(Guard::take_back);
        let mut hidden = plan.hidden;
        hidden.extend(plan.replaced.into_iter().map(|file| file.target));
        Ok(hidden)
    }

    /// Runs a program of posse that changes nothing, at the place of a command that is about to
    /// start. It cannot read `hidden`, and the output is not redacted. There is no check afterwards,
    /// so `spawn` must have no writable roots.
    pub(crate) async fn run_before(
        &self,
        spawn: Spawn,
        place: CommandPlace<'_>,
        hidden: &[PathBuf],
    ) -> Result<ProcessOutcome, RunError> {
        let CommandPlace { temporary, space, directory, .. } = place;
        let mut plan = self.plan(&spawn.confinement, directory.as_fd(), temporary.folder())?;
        plan.hidden.extend(hidden.iter().cloned());
        let mut running = self.start(spawn, temporary, space, directory, plan, None)?;
        running.mask = Mask::new(&[]);
        running.drive(&mut |_| {}, &|| {}).await.map_err(start_error)?;
        running.end(&mut |_| {}).await
    }

    fn start(
        &self,
        spawn: Spawn,
        temporary: &SessionTemporary,
        space: Option<&Arc<SessionTemporary>>,
        directory: &OwnedFd,
        plan: Plan,
        listeners: Option<ListenerRequest>,
    ) -> Result<RunningCommand, RunError> {
        let listeners =
            listeners.filter(|_| plan.backend.tier() == SandboxTier::Full && !plan.network);
        let tier = plan.tier.clone();
        let mounted = plan.temporary.as_ref().map(|mount| mount.target.clone());
        let folder = mounted.unwrap_or_else(|| temporary.folder().to_owned()).into_os_string();
        let mut request = HelperRequest {
            plan,
            program: spawn.program,
            arguments: spawn.arguments,
            environment: self.environment.clone(),
            listen: listeners.as_ref().map(|request| request.ports.clone()).unwrap_or_default(),
        };
        let folders = ["TMPDIR", "TMP", "TEMP"].map(|name| (name.into(), folder.clone()));
        request.environment.extend(folders);
        if tier != SandboxTier::None {
            let home = self.environment.iter().find(|(name, _)| name == "HOME");
            let writable = &spawn.confinement.writable_roots;
            let caches = home.map(|(_, home)| {
                environment::caches(Path::new(home), writable, Path::new(&folder))
            });
            request.environment.extend(caches.into_iter().flatten());
        }
        request.environment.extend(spawn.environment);
        let dialogue = spawn.dialogue.as_ref();
        let prepared = dialogue.map(|dialogue| dialogue.prepare(temporary.folder())).transpose();
        let (errors, streams) = prepared.map_err(start_error)?.unzip();
        let channel = listeners.map(|listeners| listeners.channel);
        let descriptors = (directory, streams.as_ref(), channel.as_ref());
        let ready = self.acquire_helper(&mut request, descriptors, space)?;
        // Reading the pipe ends when the command has closed its end.
        drop(streams);
        drop(channel);
        let ReadyHelper { child, tree, output, control, .. } = ready;
        control.set_nonblocking(true).map_err(start_error)?;
        let begin = Instant::now();
        Ok(RunningCommand {
            tree,
            child,
            output: Some(Receiver::from_owned_fd(output.into()).map_err(start_error)?),
            control: Some(UnixStream::from_std(control).map_err(start_error)?),
            errors,
            errors_text: MaskedPrefix::new(dialogue, &self.secrets),
            said: Vec::new(),
            has_init: false,
            tier,
            is_enforced: false,
            failure: None,
            ended: None,
            is_asked_to_clear: false,
            cleared: 0,
            mask: Mask::new(&self.secrets),
            keys: spawn.masks_keys.then(KeyMask::default),
            capture: Capture::new(spawn.output_bytes_max, spawn.spill, spawn.spill_bytes_max),
            live: OutputChunker::default(),
            status: None,
            forced: None,
            stop: spawn.stop,
            kills: 0,
            begin,
            last_output: begin,
            timeout: spawn.timeout,
            at_timeout: spawn.at_timeout,
            memory_max: self.memory_max,
            measured: None,
            deadline: begin + PREPARATION_MAX,
            look_at: begin + LOOK_INTERVAL,
        })
    }

    /// Takes the spare helper or starts a helper, and sends it `request`, to whose environment it
    /// adds the mark of the helper.
    fn acquire_helper(
        &self,
        request: &mut HelperRequest,
        (directory, streams, listeners): (&OwnedFd, Option<&CommandStreams>, Option<&OwnedFd>),
        space: Option<&Arc<SessionTemporary>>,
    ) -> Result<ReadyHelper, RunError> {
        let listeners = listeners.map(AsFd::as_fd);
        let shape = HelperShape::of(&request.plan);
        let environment = request.environment.len();
        if let Some(ready) = self.take_spare(shape, space) {
            request.environment.push(ready.mark.variable());
            ready.tree.wake();
            if request.send(&ready.control, directory.as_fd(), streams, listeners).is_ok() {
                return Ok(ready);
            }
            // It has just died. It cannot have executed anything that it did not read.
            request.environment.truncate(environment);
            ready.tree.dismiss();
        }
        let ready = match shape {
            HelperShape::Inner => self.bubblewrapped(&request.plan),
            _ => self.helper(shape, space),
        };
        let ready = ready.map_err(start_error)?;
        request.environment.push(ready.mark.variable());
        ready.tree.wake();
        if let Err(error) = request.send(&ready.control, directory.as_fd(), streams, listeners) {
            // A helper that does not read does not report either, which is handled later.
            tracing::debug!(%error, "the helper does not listen");
        }
        Ok(ready)
    }
}

/// A running command with its pipes, limits and state.
struct RunningCommand {
    // Dropped first, so that no process is left when the rest is dropped.
    tree: ProcessTree,
    child: Child,
    output: Option<Receiver>,
    control: Option<UnixStream>,
    /// Standard error of a [`Dialogue`](crate::Dialogue). `None` if it is part of the output.
    errors: Option<Receiver>,
    errors_text: MaskedPrefix,
    /// Bytes from the helper that do not form a complete line yet.
    said: Vec<u8>,
    /// True if an init process of posse (`init.rs`) accompanies the command and kills its
    /// descendants.
    has_init: bool,
    /// Tier that the enforcement report must state.
    tier: SandboxTier,
    is_enforced: bool,
    failure: Option<String>,
    /// Exit status of the command, reported by its init process. `None` before, or without one.
    ended: Option<CommandExit>,
    is_asked_to_clear: bool,
    /// Number of remaining processes that the init process killed.
    cleared: usize,
    mask: Mask,
    /// Redaction of text that looks like a key. `None` if it stays.
    keys: Option<KeyMask>,
    capture: Capture,
    live: OutputChunker,
    status: Option<ExitStatus>,
    /// Reason for which posse ended the command. `None` if posse did not.
    forced: Option<Exit>,
    /// Receiver of the request to stop the command. `None` if it cannot be stopped, or after the
    /// request.
    stop: Option<oneshot::Receiver<()>>,
    kills: u32,
    begin: Instant,
    last_output: Instant,
    /// Time limit of the command, counted from the enforcement report.
    timeout: Duration,
    /// Decision about the end of the time limit, not made yet. `None`: the command ends then.
    at_timeout: Option<AtTimeout>,
    /// Maximum number of bytes of memory. `None`: [`memory::default_limit`].
    memory_max: Option<u64>,
    /// Temporary folder of the session whose size is measured. `None` if the kernel limits it, or
    /// the command is not confined.
    measured: Option<TemporaryUse>,
    /// Time of the next call of `escalate`: SIGTERM, SIGKILL, or giving up.
    deadline: Instant,
    look_at: Instant,
}

impl RunningCommand {
    /// Reads output and enforces deadlines until the command has ended and its output is read.
    ///
    /// Calls `meanwhile` once, after the enforcement report, while the command runs; never without
    /// a report.
    async fn drive(
        &mut self,
        watch: &mut (impl FnMut(Update) + Send),
        meanwhile: &(impl Fn() + Sync),
    ) -> io::Result<()> {
        let mut chunk = vec![0; READ_BYTES];
        let mut line = vec![0; 1024];
        let mut errors = vec![0; if self.errors.is_some() { READ_BYTES } else { 0 }];
        let mut reads: u32 = 0;
        while self.status.is_none() || self.output.is_some() {
            let wake = self.live.due().map_or(self.look_at, |due| due.min(self.look_at));
            tokio::select! {
                // The enforcement report precedes all output. The deadline is checked after each
                // step, so a flood of output cannot delay it.
                biased;
                length = read(&mut self.control, &mut line) => {
                    let was_enforced = self.is_enforced;
                    // An error here is equal to the end: the data before it counts.
                    self.take_report_bytes(&line[..length.unwrap_or_default()], watch);
                    if self.is_enforced && !was_enforced {
                        meanwhile();
                    }
                }
                status = self.child.wait(), if self.status.is_none() => {
                    self.status = Some(status?);
                    self.deadline = Instant::now() + STRAGGLER_GRACE;
                }
                length = read(&mut self.output, &mut chunk) => {
                    self.take_output(&chunk[..length?]);
                    reads = reads.wrapping_add(1);
                    if reads.is_multiple_of(16) {
                        // A command with endless output must not block other tasks.
                        tokio::task::yield_now().await;
                    }
                }
                length = read(&mut self.errors, &mut errors) => {
                    let length = length?;
                    self.errors_text.push(&errors[..length]);
                    if length == 0 {
                        self.errors = None;
                    }
                }
                _ = or_pending(self.stop.as_mut()) => {
                    self.stop = None;
                    if self.status.is_none() && self.ended.is_none() && self.forced.is_none() {
                        self.force(Exit::Stopped, Instant::now());
                    }
                }
                () = sleep_until(wake.min(self.deadline)) => {}
            }
            let now = Instant::now();
            if self.live.due().is_some_and(|due| due <= now) {
                self.live.take(false).map(Update::Output).into_iter().for_each(&mut *watch);
            }
            if self.look_at <= now {
                if !self.has_init {
                    self.tree.update();
                }
                self.limit_memory();
                self.limit_temporary();
                self.look_at = now + LOOK_INTERVAL;
            }
            if self.deadline <= now && !self.escalate(now) {
                break;
            }
        }
        Ok(())
    }

    /// Takes the next step after a deadline: terminate the command, kill it, or stop waiting.
    /// Returns `false` to stop waiting.
    fn escalate(&mut self, now: Instant) -> bool {
        if self.status.is_some() {
            return false;
        }
        if self.ended.is_some() && !self.is_asked_to_clear {
            self.ask_to_clear();
        } else if self.ended.is_none() && self.forced.is_none() {
            if let Some(limit) = self.longer_limit() {
                self.timeout = limit;
                self.deadline = self.begin + limit;
                return true;
            }
            self.force(Exit::TimedOut, now);
        } else if self.has_init && !self.is_asked_to_clear {
            self.ask_to_clear();
        } else if self.kills < KILLS_MAX {
            self.kills += 1;
            self.tree.kill_once(true);
        } else {
            // It hangs in the kernel and cannot receive signals.
            return false;
        }
        self.deadline = now + TERMINATION_GRACE;
        true
    }

    /// New time limit of a command that may continue after its first one. Stores its output in the
    /// file.
    fn longer_limit(&mut self) -> Option<Duration> {
        if !self.is_enforced {
            return None;
        }
        let AtTimeout(decide) = self.at_timeout.take()?;
        // First, because the output may be read from the file as soon as the decision is made.
        self.capture.spill_now();
        decide()
    }

    /// Kills the command if its processes use more memory than it may, and records the reason
    /// [`Exit::MemoryFull`].
    fn limit_memory(&mut self) {
        if self.status.is_some() || self.forced.is_some() {
            return;
        }
        let limit = self.memory_max.or_else(memory::default_limit);
        if limit.is_some_and(|limit| memory::is_exceeded(limit, || self.tree.descendants())) {
            self.forced = Some(Exit::MemoryFull);
            self.tree.kill_once(true);
            self.deadline = Instant::now() + TERMINATION_GRACE;
        }
    }

    /// Kills the command if the measured temporary folder of the session is too large, and records
    /// the reason [`Exit::TemporaryFull`]. Starts the next measurement.
    fn limit_temporary(&mut self) {
        let Some(measured) = &self.measured else { return };
        if self.status.is_some() || self.forced.is_some() {
            return;
        }
        if measured.is_full() {
            self.forced = Some(Exit::TemporaryFull);
            self.tree.kill_once(true);
            self.deadline = Instant::now() + TERMINATION_GRACE;
        } else {
            measured.measure();
        }
    }

    /// Sends SIGTERM to the command's processes and records the reason. After a grace period,
    /// [`escalate`](RunningCommand::escalate) kills those that are left.
    fn force(&mut self, why: Exit, now: Instant) {
        self.forced = Some(why);
        if self.has_init {
            self.send_word(init::TERM_REQUEST);
        } else {
            self.tree.terminate();
        }
        self.deadline = now + TERMINATION_GRACE;
    }

    fn take_output(&mut self, bytes: &[u8]) {
        let RunningCommand { mask, keys, capture, live, .. } = self;
        if bytes.is_empty() {
            self.output = None;
            if self.ended.is_some() {
                self.ask_to_clear();
            }
            return;
        }
        self.last_output = Instant::now();
        let mut fits = true;
        let mut take = |bytes: &[u8]| {
            fits &= capture.push(bytes);
            live.push(bytes);
        };
        mask.push(bytes, |bytes| match keys {
            Some(keys) => keys.push(bytes, &mut take),
            None => take(bytes),
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

    /// Tells the init process, once, to kill all processes of the command that are left.
    fn ask_to_clear(&mut self) {
        if !self.is_asked_to_clear {
            self.send_word(b"clear\n");
        }
        self.is_asked_to_clear = true;
    }

    fn send_word(&self, word: &[u8]) {
        // The init process may have ended, which is fine.
        self.control.as_ref().map(|control| control.try_write(word));
    }

    fn take_report_bytes(&mut self, bytes: &[u8], watch: &mut impl FnMut(Update)) {
        if bytes.is_empty() || self.said.len() + bytes.len() > REPORT_BYTES_MAX {
            self.control = None;
            return;
        }
        self.said.extend_from_slice(bytes);
        while let Some(end) = self.said.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.said.drain(..=end).collect();
            match HelperLine::parse(&line) {
                Some(HelperLine::Enforced(report)) => self.take_report(report, watch),
                Some(HelperLine::Failed(reason)) => self.failure = Some(reason),
                Some(HelperLine::Exited(ended)) => {
                    self.ended = Some(ended);
                    self.deadline = Instant::now() + STRAGGLER_GRACE;
                    if self.output.is_none() {
                        self.ask_to_clear();
                    }
                }
                Some(HelperLine::Cleared(killed)) => self.cleared = killed,
                None => {}
            }
        }
    }

    fn take_report(&mut self, report: serde_json::Value, watch: &mut impl FnMut(Update)) {
        let tier = SandboxTier::from(report["tier"].as_str().unwrap_or("none").to_owned());
        if tier != self.tier {
            self.failure = Some(format!("{tier} is in force and not {}", self.tier));
            self.tree.kill_once(true);
            return;
        }
        self.is_enforced = true;
        self.begin = Instant::now();
        self.last_output = self.begin;
        self.deadline = self.begin + self.timeout;
        self.has_init = report["init"] == true;
        watch(Update::Enforced { tier, report });
    }

    /// Kills remaining processes, reads their last output, and builds the outcome. Fails if the
    /// helper reported an error, or not the required confinement.
    async fn end(
        mut self,
        watch: &mut (impl FnMut(Update) + Send),
    ) -> Result<ProcessOutcome, RunError> {
        let end = Instant::now();
        let stragglers = self.tree.clear().await;
        // No writer is left, so the rest can be read at once.
        let mut chunk = vec![0; READ_BYTES];
        while let Some(length) =
            self.control.as_ref().and_then(|from| available(from.try_read(&mut chunk)))
        {
            self.take_report_bytes(&chunk[..length], watch);
        }
        let stragglers = stragglers + self.cleared;
        while let Some(length) =
            self.output.as_ref().and_then(|from| available(from.try_read(&mut chunk)))
        {
            self.take_output(&chunk[..length]);
        }
        while let Some(length) =
            self.errors.as_ref().and_then(|from| available(from.try_read(&mut chunk)))
        {
            self.errors_text.push(&chunk[..length]);
        }
        if let Some(reason) = self.failure {
            return Err(RunError::NotPrepared { reason });
        }
        if !self.is_enforced {
            // A program between posse and the helper, such as bubblewrap, prints its errors there.
            let printed = self.capture.finish().head;
            let printed = String::from_utf8_lossy(&printed[..printed.len().min(SAID_BYTES_MAX)]);
            let reason = match printed.trim() {
                "" if self.forced.is_some() => "it could not be prepared in time".to_owned(),
                "" => "nothing was reported as enforced".to_owned(),
                said => format!("nothing was reported as enforced: {said}"),
            };
            return Err(RunError::NotPrepared { reason });
        }
        let RunningCommand { mut mask, mut keys, mut capture, mut live, errors_text, .. } = self;
        let mut take = |bytes: &[u8]| {
            capture.push(bytes);
            live.push(bytes);
        };
        mask.finish(|bytes| match &mut keys {
            Some(keys) => keys.push(bytes, &mut take),
            None => take(bytes),
        });
        if let Some(keys) = &mut keys {
            keys.finish(&mut take);
        }
        live.take(true).map(Update::Output).into_iter().for_each(watch);
        let ended = match self.ended {
            Some(CommandExit::Code(code)) => Some(Exit::Code(code)),
            Some(CommandExit::Signal(signal)) => Some(Exit::Signal(signal)),
            None => self.status.map(exit_of),
        };
        let exit = self.forced.or(ended).unwrap_or(Exit::TimedOut);
        Ok(ProcessOutcome {
            exit,
            output: capture.finish(),
            errors: errors_text.finish(),
            duration: end - self.begin,
            quiet: end.saturating_duration_since(self.last_output),
            stragglers,
            findings: Vec::new(),
            covered_secrets: Vec::new(),
        })
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    // An ended process has either an exit code or a signal.
    status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or(0)), Exit::Code)
}

/// Reads available bytes from a stream and returns their number; 0 at the end of the stream. Never
/// completes if `from` is `None`.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, into: &mut [u8]) -> io::Result<usize> {
    or_pending(from.as_mut().map(|stream| stream.read(into))).await
}

/// Number of bytes of a non-blocking read. `None` at the end, on an error, or without data.
fn available(length: io::Result<usize>) -> Option<usize> {
    length.ok().filter(|&length| length > 0)
}

fn start_error(source: io::Error) -> RunError {
    RunError::Start { source }
}

/// Opens the working directory. Fails with [`RunError::NoDirectory`] if the path cannot be opened
/// as a folder, or the open folder was removed.
pub(crate) fn opened(directory: &Directory) -> Result<OwnedFd, RunError> {
    match directory {
        Directory::Path(path) => {
            let mut options = std::fs::File::options();
            options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC);
            Ok(options.open(path).map_err(|_| RunError::NoDirectory)?.into())
        }
        Directory::Opened(descriptor) => {
            let stat = fstat(descriptor).map_err(|error| start_error(error.into()))?;
            if stat.st_nlink == 0 {
                return Err(RunError::NoDirectory);
            }
            descriptor.try_clone().map_err(start_error)
        }
    }
}
