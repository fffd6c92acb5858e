//! Sandbox: starts and confines processes. No other crate starts processes.
//!
//! Every process except the user's editor, the user's command for notifications and the watchdog starts as a helper: the posse binary,
//! started with `posix_spawn`, which confines itself and then executes the command. The helper
//! reports the limits that the kernel enforces; without that report the command does not run.
//! Dropping the future of [`Sandbox::run`] kills all processes of the command. If posse itself is
//! killed, a watchdog kills them (Linux only).

#[cfg(target_os = "linux")]
mod bubblewrap;
mod capture;
mod committed_files;
mod editor;
pub mod environment;
pub mod git_settings;
mod guard;
mod helper;
mod helper_output;
mod init;
mod kernel;
mod landlock;
mod listeners;
mod memory;
mod namespaces;

mod output_chunks;
mod plan;
mod planning;
pub mod private_git;
mod probe;
mod process_tree;
mod protect;
mod root_places;
mod run;
#[cfg(any(test, target_os = "macos"))]
mod seatbelt;
mod seccomp;
mod spare_helper;
mod syscalls;
mod temporary;
mod trial;
mod unsandboxed;
mod user_commands;
mod watchdog;
mod wire;

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use posse_actors::event::SandboxTier;
use posse_actors::ports::Confinement;
use posse_base::secrets::mask;
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::oneshot;

pub use capture::{Captured, create_output};
pub use editor::{edit, page};
pub use guard::{Exemptions, LateFindings, cancelled_checks};
pub use helper::{helper_main, survive_file_limits};
pub use helper_output::Dialogue;
pub use listeners::{ListenerReceiver, ListenerRequest, request_listeners};
pub use plan::Backend;
pub use planning::Surroundings;
pub use probe::{ProbeRequest, ProbeResult, Tried};
pub use protect::{
    CoveredSecret, Finding, GitReferences, ProtectAction, ProtectedChange, Protection,
    ProtectionMethod, SecretView, Survey, ToolWrites, Whose, Writing, covered_lines, finding_lines,
    is_entry_of_git, marks_folder, running_since,
};
pub use temporary::temporary_root;
pub use trial::{
    ChangeKind, FileKind, FileState, KeptTrial, RefusalReason, RefusedChange, TrialChange,
    TrialChanges, TrialContent, TriedCommand, obstacle, remove_abandoned_trial,
    remove_abandoned_trials,
};
pub use unsandboxed::{
    find_trusted_program, record_workspaces, record_workspaces_in, recorded_workspaces,
};
pub use user_commands::{run_clipboard_command, run_notify_command, run_status_command};

/// Starts processes. All of them use the same helper binary, base environment and secrets to
/// redact.
#[derive(Debug)]
pub struct Sandbox {
    helper: PathBuf,
    environment: Vec<(OsString, OsString)>,
    shell: PathBuf,
    secrets: Vec<SecretString>,
    surroundings: Surroundings,
    places: root_places::RootPlaces,
    probe: probe::Probe,
    temporary: temporary::Temporaries,
    family: process_tree::Family,
    watch: watchdog::Watch,
    kept: spare_helper::SpareHelper,
    protections: guard::Protections,
    /// Memory limit of each command in bytes. `None`: the default of
    /// [`Sandbox::with_memory_limit`].
    memory_max: Option<u64>,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kept.dismiss();
        // Runs borrow the sandbox, so only dying processes can be left.
        if self.family.is_gone() {
            self.watch.dismiss();
        }
    }
}

impl Sandbox {
    /// Creates a sandbox that uses the running binary as helper and redacts `secrets` in all
    /// output. It confines nothing until [`Sandbox::confined`] is called. Fails if the path of the
    /// running binary is unknown.
    pub fn new(secrets: Vec<SecretString>) -> io::Result<Sandbox> {
        Ok(Sandbox::with_helper(helper::own_binary()?, secrets))
    }

    /// Creates a sandbox as [`Sandbox::new`] does, but with the binary `helper` as helper. The
    /// `main` of that binary must call [`helper_main`] first.
    pub fn with_helper(helper: PathBuf, secrets: Vec<SecretString>) -> Sandbox {
        let environment = environment::of(std::env::vars_os());
        Sandbox {
            helper,
            environment,
            shell: shell(),
            secrets,
            surroundings: Surroundings::default(),
            places: root_places::RootPlaces::default(),
            probe: probe::Probe::new(ProbeRequest::Exactly(Backend::Nothing)),
            temporary: temporary::Temporaries::default(),
            family: process_tree::Family::new(),
            watch: watchdog::Watch::default(),
            kept: spare_helper::SpareHelper::default(),
            protections: guard::Protections::default(),
            memory_max: None,
        }
    }

    /// Sets the confinement of commands: `wanted` selects the mechanism, and `surroundings` are the
    /// folders of the session.
    #[must_use]
    pub fn confined(mut self, wanted: ProbeRequest, surroundings: Surroundings) -> Sandbox {
        self.probe = probe::Probe::new(wanted);
        self.places = root_places::RootPlaces::new(&surroundings);
        self.surroundings = surroundings;
        self
    }

    /// Sets the maximum number of bytes of memory and swap of each command, with all its processes.
    /// The default is three quarters of the memory of the machine or of the limit of this process's
    /// cgroup, if that is lower. A command that is found above it is killed; the use is measured
    /// once a second.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: u64) -> Sandbox {
        self.memory_max = Some(bytes);
        self
    }

    /// Mechanism that confines commands on this host: the configured one ([`ProbeRequest`]), a
    /// cached result, or the result of a trial, which blocks. Later calls return the same.
    pub fn backend(&self) -> Backend {
        self.probe.found(&self.helper).backend
    }

    /// True if the trials of this process found a weaker tier than full, but the cache file
    /// contains the full tier, which an earlier process found. False if the backend is configured
    /// or cached.
    pub fn is_weakened(&self) -> bool {
        self.probe.found(&self.helper).is_weakened
    }

    /// Trials of the probe, strongest mechanism first. Empty if the mechanism was configured, or
    /// cached by an earlier process.
    pub fn tried(&self) -> Vec<Tried> {
        self.probe.found(&self.helper).tried
    }

    /// Sandbox tier of [`Sandbox::backend`].
    pub fn tier(&self) -> SandboxTier {
        self.backend().tier()
    }

    /// Returns the program and the arguments that run `command` in the shell.
    pub fn shell_command(&self, command: &str) -> (PathBuf, Vec<OsString>) {
        // After `--` a command that begins with a dash is still a command.
        (self.shell.clone(), vec!["-c".into(), "--".into(), command.into()])
    }
}

/// A process to start.
#[derive(Debug)]
pub struct Spawn {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments, without the name of the program.
    pub arguments: Vec<OsString>,
    /// Working directory of the process.
    pub directory: Directory,
    /// Environment variables in addition to those that every process gets. They override variables
    /// of the same name.
    pub environment: Vec<(OsString, OsString)>,
    /// Confinement that the review permitted: profile, writable roots and network access.
    pub confinement: Confinement,
    /// Time limit, counted from the enforcement report. After it the process gets SIGTERM, then
    /// SIGKILL, unless [`Spawn::at_timeout`] lets it continue.
    pub timeout: Duration,
    /// Temporary folder of the session, which its processes share. It is created if it is missing,
    /// and removed when no sandbox uses it any more. With namespaces it stays empty: processes get
    /// a tmpfs, which other programs do not see.
    pub scratch: PathBuf,
    /// File that receives the output from its beginning, up to `spill_bytes_max`, if the output is
    /// longer than `output_bytes_max`. Must not exist.
    pub spill: PathBuf,
    /// Maximum size in bytes of the output in memory: half for its beginning, half for its end.
    pub output_bytes_max: usize,
    /// Maximum size of the output in bytes. A process that exceeds it is killed.
    pub spill_bytes_max: u64,
    /// Standard input and separate standard error of a hook process. `None` for other commands:
    /// they have no input, and their standard error is part of the output.
    pub dialogue: Option<Dialogue>,
    /// True if text in the output that looks like a key of a known service is redacted, beside the
    /// known secrets.
    pub masks_keys: bool,
    /// Stop request: a message, or dropping the sender, ends the process as the time limit does.
    /// `None` if the process cannot be stopped.
    pub stop: Option<oneshot::Receiver<()>>,
    /// Decision at the end of the time limit. `None`: the process ends.
    pub at_timeout: Option<AtTimeout>,
}

/// Decides, when the time limit of a process is over, if the process continues: returns its new time
/// limit, counted from the enforcement report, or `None` to end it. If it continues, its whole output
/// is in [`Spawn::spill`] from then on. Called at most once.
pub struct AtTimeout(Box<dyn FnOnce() -> Option<Duration> + Send>);

impl AtTimeout {
    /// Wraps the function that decides.
    pub fn new(decide: impl FnOnce() -> Option<Duration> + Send + 'static) -> AtTimeout {
        AtTimeout(Box::new(decide))
    }
}

impl std::fmt::Debug for AtTimeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtTimeout")
    }
}

/// Working directory of a process to start.
#[derive(Debug)]
pub enum Directory {
    /// The folder at this path when the process starts.
    Path(PathBuf),
    /// This open folder, even if it was moved or renamed.
    Opened(OwnedFd),
}

/// Progress report of a running process.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// The helper has applied the required confinement, if any, and executes the program now. If
    /// the program cannot be executed, an error follows.
    Enforced {
        /// Sandbox tier in force.
        tier: SandboxTier,
        /// Enforcement report of the helper, as JSON.
        report: Value,
    },
    /// New output as text, with secrets redacted. Incomplete if the process prints more than 8 KiB
    /// in 30 ms: then the older bytes are dropped here.
    Output(String),
}

/// Result of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessOutcome {
    /// Reason for the end of the process.
    pub exit: Exit,
    /// Standard output and standard error in order of printing, with secrets redacted. With a
    /// [`Dialogue`], standard output only.
    pub output: Captured,
    /// Beginning of standard error, with secrets redacted. Empty without a [`Dialogue`].
    pub errors: Vec<u8>,
    /// Time from the enforcement report to the end of the process.
    pub duration: Duration,
    /// Time from the last output to the end of the process; from the enforcement report if the
    /// process printed nothing.
    pub quiet: Duration,
    /// Number of processes that the command left behind and that were killed.
    pub stragglers: usize,
    /// Changes of protected files that the check found, and the reaction to each.
    pub findings: Vec<Finding>,
    /// Secrets of the workspace that the process did not see as they are. Empty on the
    /// reduced tier, where they stay readable.
    pub covered_secrets: Vec<CoveredSecret>,
}

/// Reason for the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command exited with this code.
    Code(i32),
    /// The command was killed by this signal, which posse did not send.
    Signal(i32),
    /// The command was ended by posse after the time limit.
    TimedOut,
    /// The command was killed because its output exceeded [`Spawn::spill_bytes_max`].
    OutputFull,
    /// The command was killed because its processes used more memory than one command may use
    /// ([`Sandbox::with_memory_limit`]).
    MemoryFull,
    /// The command was killed because the temporary folder of the session became too large. It was
    /// emptied. Not with a tmpfs, in which writes fail instead.
    TemporaryFull,
    /// The command was ended by posse on request ([`Spawn::stop`]).
    Stopped,
}

impl Exit {
    /// Name of the signal, such as `SIGSEGV`, or `signal N` for a number without a name. `None`
    /// unless this is [`Exit::Signal`].
    pub fn signal_name(self) -> Option<String> {
        let Exit::Signal(number) = self else { return None };
        let known = nix::sys::signal::Signal::try_from(number);
        Some(known.map_or_else(|_| format!("signal {number}"), |known| known.as_str().to_owned()))
    }
}

/// Error that prevented a process from starting or from being observed to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system refused a process, descriptor, folder or memory that the start needs, or reading
    /// from the started process failed.
    #[error("the process cannot be started")]
    Start {
        /// Error of the operating system.
        source: io::Error,
    },
    /// The working directory cannot be opened, or no longer exists.
    #[error("the working directory is gone")]
    NoDirectory,
    /// The required confinement could not be planned, or was not enforced in time; the survey of
    /// protected files failed or was incomplete; or the program could not be executed.
    #[error("the process was not started: {reason}")]
    NotPrepared {
        /// Cause, as text.
        reason: String,
    },
    /// A secret, or a folder above it, was moved or changed while the command ran in a trial, so that
    /// the command may have seen it. Its result is dropped.
    #[error(
        "{path} was moved, removed or changed meanwhile, so the command may have seen a hidden file; its result is dropped"
    )]
    Withheld {
        /// The path, escaped for output.
        path: String,
    },
}

/// Converts an error into text with its context, for errors that a person reads.
trait Context<T> {
    /// Replaces the error by the text `what: error`.
    fn context(self, what: impl Display) -> Result<T, String>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, String> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}

/// Returns the path of bash, or `/bin/sh` if bash is not installed. Call it once per sandbox: the
/// search takes a system call for each possible path.
fn shell() -> PathBuf {
    find_program("bash", &["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"])
        .unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

/// Returns the path of the program `name`: the first existing file among `fixed`, then in the
/// folders of `PATH` that commands cannot write. `None` if there is none.
pub fn find_program(name: &str, fixed: &[&str]) -> Option<PathBuf> {
    let at_fixed_place = fixed.iter().map(PathBuf::from).find(|program| program.is_file());
    // Each folder of `PATH` is resolved, which costs system calls.
    at_fixed_place.or_else(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        find_trusted_program(OsStr::new(name), &path)
    })
}
