//! Sandbox: the only place that starts processes, and their confinement.
//!
//! A process is started by `posix_spawn` of the posse binary, which prepares it as a helper and
//! executes the command. The helper's enforcement report counts; without a report the command does
//! not run. Dropping the future of a run kills all its processes; if posse itself is killed, a
//! watchdog does it.

#[cfg(target_os = "linux")]
mod bubblewrap;
mod capture;
mod editor;
pub mod environment;
mod guard;
mod helper;
mod helper_output;
mod init;
mod kernel;
mod landlock;
mod namespaces;
mod output_chunks;
mod plan;
mod planning;
mod probe;
mod process_tree;
mod protect;
mod run;
mod scratch;
#[cfg(any(test, target_os = "macos"))]
mod seatbelt;
mod seccomp;
mod spare_helper;
mod syscalls;
mod watchdog;
mod wire;

use std::ffi::OsString;
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
pub use editor::edit;
pub use guard::Exemptions;
pub use helper::{helper_main, survive_file_limits};
pub use helper_output::Dialogue;
pub use plan::Backend;
pub use planning::Surroundings;
pub use probe::{ProbeRequest, ProbeResult, Tried};
pub use protect::{
    Finding, ProtectAction, ProtectedChange, Protection, ProtectionMethod, Survey, ToolWrites,
    Whose, Writing,
};
pub use scratch::open_up;

/// Starts processes, all with the same helper, environment and secrets.
#[derive(Debug)]
pub struct Sandbox {
    helper: PathBuf,
    environment: Vec<(OsString, OsString)>,
    shell: PathBuf,
    secrets: Vec<SecretString>,
    surroundings: Surroundings,
    probe: probe::Probe,
    spare: scratch::Spare,
    family: process_tree::Family,
    watch: watchdog::Watch,
    kept: spare_helper::SpareHelper,
    protections: guard::Protections,
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
    /// Creates a sandbox that uses the running binary as helper, redacts `secrets` in all output
    /// and confines nothing.
    pub fn new(secrets: Vec<SecretString>) -> io::Result<Sandbox> {
        Ok(Sandbox::with_helper(helper::own_binary()?, secrets))
    }

    /// Creates a sandbox with another binary as its helper. Its `main` must call [`helper_main`]
    /// first.
    pub fn with_helper(helper: PathBuf, secrets: Vec<SecretString>) -> Sandbox {
        let environment = environment::of(std::env::vars_os());
        Sandbox {
            helper,
            environment,
            shell: shell(),
            secrets,
            surroundings: Surroundings::default(),
            probe: probe::Probe::new(ProbeRequest::Exactly(Backend::Nothing)),
            spare: scratch::Spare::default(),
            family: process_tree::Family::new(),
            watch: watchdog::Watch::default(),
            kept: spare_helper::SpareHelper::default(),
            protections: guard::Protections::default(),
        }
    }

    /// Confines later commands, as far as this host supports it.
    #[must_use]
    pub fn confined(mut self, wanted: ProbeRequest, surroundings: Surroundings) -> Sandbox {
        self.probe = probe::Probe::new(wanted);
        self.surroundings = surroundings;
        self
    }

    /// Mechanism that confines commands here, probed on first use.
    pub fn backend(&self) -> Backend {
        self.probe.found(&self.helper).backend
    }

    /// True if the full tier was available at an earlier start, and is not now.
    pub fn is_weakened(&self) -> bool {
        self.probe.found(&self.helper).is_weakened
    }

    /// Trials of the probe. Empty if an earlier process has cached the result.
    pub fn tried(&self) -> Vec<Tried> {
        self.probe.found(&self.helper).tried
    }

    /// Sandbox tier.
    pub fn tier(&self) -> SandboxTier {
        self.backend().tier()
    }

    /// Program and arguments that run `command` in the shell.
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
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Working directory.
    pub directory: Directory,
    /// Variables added to those that every process gets.
    pub environment: Vec<(OsString, OsString)>,
    /// Permitted confinement.
    pub confinement: Confinement,
    /// Time limit.
    pub timeout: Duration,
    /// Parent of its temporary folder.
    pub scratch: PathBuf,
    /// File for output beyond `output_bytes_max`.
    pub spill: PathBuf,
    /// Maximum output kept in memory, in bytes.
    pub output_bytes_max: usize,
    /// Output size in bytes at which the process is killed.
    pub spill_bytes_max: u64,
    /// Input and output of a hook process; other commands have no input.
    pub dialogue: Option<Dialogue>,
    /// Stops it like its time limit, on a message or when the sender is dropped.
    pub stop: Option<oneshot::Receiver<()>>,
}

/// A working directory.
#[derive(Debug)]
pub enum Directory {
    /// The folder at this path when the process starts.
    Path(PathBuf),
    /// This open folder, wherever it was moved.
    Opened(OwnedFd),
}

/// Event of a running process.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// It was prepared; these limits are in force.
    Enforced {
        /// Sandbox tier.
        tier: SandboxTier,
        /// Details of the enforced confinement.
        report: Value,
    },
    /// Piece of the output.
    Output(String),
}

/// Result of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessOutcome {
    /// Exit status.
    pub exit: Exit,
    /// Output: standard output and standard error in order of printing. Of a [`Dialogue`], standard
    /// output only.
    pub output: Captured,
    /// Beginning of standard error of a [`Dialogue`].
    pub errors: Vec<u8>,
    /// Duration.
    pub duration: Duration,
    /// Time since its last output at its end.
    pub quiet: Duration,
    /// Number of processes that the command left behind and that were killed.
    pub stragglers: usize,
    /// Changes of protected files and their handling.
    pub findings: Vec<Finding>,
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Exited with this code.
    Code(i32),
    /// Killed by this signal, which posse did not send.
    Signal(i32),
    /// Killed after its time limit.
    TimedOut,
    /// Killed after exceeding the output limit.
    OutputFull,
    /// Stopped ([`Spawn::stop`]).
    Stopped,
}

impl Exit {
    /// Name of the signal, such as `SIGSEGV`.
    pub fn signal_name(self) -> Option<String> {
        let Exit::Signal(number) = self else { return None };
        let known = nix::sys::signal::Signal::try_from(number);
        Some(known.map_or_else(|_| format!("signal {number}"), |known| known.as_str().to_owned()))
    }
}

/// Error that prevented a process from starting.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The host has no process, descriptor, folder or memory left for it.
    #[error("the process cannot be started")]
    Start {
        /// Error of the system.
        source: io::Error,
    },
    /// The working directory no longer exists.
    #[error("the working directory is gone")]
    NoDirectory,
    /// The helper could not put the required confinement in force, or could not start the program.
    #[error("the process was not started: {reason}")]
    NotPrepared {
        /// Error of the helper.
        reason: String,
    },
}

/// Text of an error with its context, for errors that a person reads.
trait Context<T> {
    /// Puts `what` before the error.
    fn context(self, what: impl Display) -> Result<T, String>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, String> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}

/// Path of the shell, determined once: a search costs eight failed calls per command.
fn shell() -> PathBuf {
    find_program("bash", &["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"])
        .unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

/// Path of the program `name`: one of `fixed`, or in an absolute folder of `PATH`.
///
/// Fixed paths come first, so that a folder in `PATH` that a command can write to cannot replace
/// the program.
pub fn find_program(name: &str, fixed: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let searched = folders.map(|folder| folder.join(name));
    fixed.iter().map(PathBuf::from).chain(searched).find(|program| program.is_file())
}
