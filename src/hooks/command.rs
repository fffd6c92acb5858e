//! Runs one command hook: a process without a terminal, in the sandbox, with a time limit.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posse_actors::ports::{Confinement, HookInvocation, HookReport, HookResult, NetworkAccess};

use crate::failure::ErrorCode;
use crate::hooks::answer::{HookExit, HookInput, read, shown};
use crate::hooks::settings::CommandHook;
use crate::hooks::{hook_input, report};
use crate::sandbox::{
    Dialogue, Directory, Finding, ProcessOutcome, RunError, Sandbox, Spawn, finding_lines,
};

/// Maximum size of standard output in bytes. A hook that prints more is killed, which is a failure.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of bytes of standard error that are kept.
const ERRORS_BYTES_MAX: usize = 16 << 10;

/// Runs the command hooks of a session.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) cwd: PathBuf,
    pub(super) session_dir: PathBuf,
    /// Search path for programs.
    pub(super) path: OsString,
    /// Confinement of commands; a hook's network access may be narrower.
    pub(super) confinement: Confinement,
    /// Configuration files of posse. A hook that changes one is reported.
    pub(super) watched: Vec<PathBuf>,
    pub(super) count: AtomicU64,
}

/// Inode, modification time (seconds and nanoseconds) and size of a watched file. `None`: the file
/// is missing or inaccessible.
type ProgramStamp = Option<(u64, i64, i64, u64)>;

impl Runner {
    /// Runs `hook` and returns its report, which is a failure if the program cannot be started.
    /// Warnings about changes of watched and of protected files
    /// precede it.
    pub(super) async fn ask(
        &self,
        hook: &CommandHook,
        occasion: &HookInvocation,
        timeout: Duration,
    ) -> Vec<HookReport> {
        let begin = std::time::Instant::now();
        let before = self.stamps();
        let (answer, findings) = self.answer(hook, occasion, timeout).await;
        let duration = begin.elapsed();
        let warn = |text: &str| {
            let warning = report(&hook.name, HookResult::Warn, Some(shown(text)));
            HookReport { duration, ..warning }
        };
        // The last report decides, so warnings precede it.
        let mut reports: Vec<HookReport> =
            finding_lines(&findings).iter().map(|line| warn(line)).collect();
        let changed = self.watched.iter().zip(before.iter().zip(self.stamps()));
        let changed = changed.filter(|(_, (before, after))| *before != after);
        let changed: Vec<String> = changed.map(|(path, _)| path.display().to_string()).collect();
        if !changed.is_empty() {
            let text = format!(
                "HK007 {} changed while this hook ran; the session goes on with what it was \
                 started with",
                changed.join(", ")
            );
            reports.push(warn(&text));
        }
        reports.push(HookReport { duration, ..answer });
        reports
    }

    async fn answer(
        &self,
        hook: &CommandHook,
        occasion: &HookInvocation,
        timeout: Duration,
    ) -> (HookReport, Vec<Finding>) {
        let asked = HookInput {
            hook: &hook.name,
            event: hook.event,
            input: occasion.moment.call().map(|used| &used.input),
            blocks: hook.blocks,
        };
        let Some(program) = self.program(&hook.program) else {
            let text = format!("{} was not found", hook.program.display());
            return (asked.failed(ErrorCode::HookNotStarted, &text), Vec::new());
        };
        let spawn = self.spawn(hook, occasion, program, timeout);
        let outcome = match self.sandbox.run(spawn, |_| {}).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let failed = asked.failed(ErrorCode::HookNotStarted, &cannot_run(&error));
                return (failed, Vec::new());
            }
        };
        let ProcessOutcome { exit, output, errors, stragglers, findings, .. } = outcome;
        if let Some(spill) = &output.spill {
            // Too much output is an error; the file is not needed.
            std::fs::remove_file(spill).ok();
        }
        let output = [&output.head[..], &output.tail].concat();
        let timeout_ms = timeout.as_millis();
        let exit = HookExit { exit, output: &output, errors: &errors, stragglers, timeout_ms };
        (read(&asked, &exit), findings)
    }

    fn spawn(
        &self,
        hook: &CommandHook,
        occasion: &HookInvocation,
        program: PathBuf,
        timeout: Duration,
    ) -> Spawn {
        let cwd = self.cwd.display().to_string();
        let mut input = hook_input::json(occasion, &cwd).to_string().into_bytes();
        input.push(b'\n');
        let nth = self.count.fetch_add(1, Ordering::Relaxed);
        let network = if hook.network { self.confinement.network } else { NetworkAccess::Denied };
        Spawn {
            program,
            arguments: hook.arguments.iter().map(OsString::from).collect(),
            directory: Directory::Path(self.cwd.clone()),
            environment: vec![("POSSE_HOOK_EVENT".into(), hook.event.name().into())],
            confinement: Confinement { network, ..self.confinement.clone() },
            timeout,
            scratch: self.session_dir.join("tmp"),
            spill: self.session_dir.join("outputs").join(format!("hook-{nth}.txt")),
            output_bytes_max: OUTPUT_BYTES_MAX,
            spill_bytes_max: OUTPUT_BYTES_MAX as u64,
            dialogue: Some(Dialogue { input, errors_bytes_max: ERRORS_BYTES_MAX }),
            stop: None,
            masks_keys: false,
            at_timeout: None,
        }
    }

    /// Path of the program `name`. `None`: it does not exist. A name is searched in the absolute
    /// folders of `PATH` only: others depend on the working directory.
    fn program(&self, name: &Path) -> Option<PathBuf> {
        if name.is_absolute() {
            return name.exists().then(|| name.to_owned());
        }
        std::env::split_paths(&self.path)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    }

    fn stamps(&self) -> Vec<ProgramStamp> {
        let stamp = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
        };
        self.watched.iter().map(stamp).collect()
    }
}

fn cannot_run(error: &RunError) -> String {
    match error {
        RunError::Start { source } => format!("it could not be started: {source}"),
        RunError::NoDirectory => "the working directory is gone".to_owned(),
        RunError::NotPrepared { reason } if reason.contains("os error 2)") => format!(
            "it could not be run: {reason}; its interpreter is missing, or it lies where the \
             sandbox hides it: in posse's own folders or in /tmp"
        ),
        RunError::NotPrepared { reason } => format!("it could not be run: {reason}"),
        RunError::Withheld { .. } => error.to_string(),
    }
}
