//! Process execution and confinement: the only module that starts processes.
//!
//! A process is started by `posix_spawn` of our own binary, which runs as the helper, puts the
//! confinement in force and then executes the command. Only what the helper reports counts as
//! enforced; without a report no command runs. Dropping the future of a run kills every process
//! that the command has started; if posse itself is killed, the watchdog kills them.

#[cfg(target_os = "linux")]
mod bubblewrap;
mod capture;
mod dialogue;
mod editor;
pub(crate) mod environment;
mod guard;
mod helper;
mod init;
mod kernel;
mod landlock;
mod live;
mod namespaces;
mod plan;
mod planning;
mod probe;
mod protect;
mod run;
mod scratch;
#[cfg(any(test, target_os = "macos"))]
mod seatbelt;
mod seccomp;
mod spare;
mod syscalls;
mod tree;
mod watch;
mod wire;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posse_actors::ports::Confinement;
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::secrets::mask;

pub use capture::Captured;
pub use dialogue::Dialogue;
pub use editor::edit;
pub use guard::Besides;
pub use helper::{helper_main, survive_file_limits};
pub use plan::{Backend, Tier};
pub use planning::Surroundings;
pub use probe::{Found, Tried, Wanted};
pub use protect::{Action, Finding, Held, Protection, Survey, What, Whose, Writing, Written};

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
    family: tree::Family,
    watch: watch::Watch,
    kept: spare::Kept,
    protections: guard::Protections,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kept.dismiss();
        // A run borrows the sandbox, so only processes that are already being killed can be left.
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
            probe: probe::Probe::new(Wanted::Exactly(Backend::Nothing)),
            spare: scratch::Spare::default(),
            family: tree::Family::new(),
            watch: watch::Watch::default(),
            kept: spare::Kept::default(),
            protections: guard::Protections::default(),
        }
    }

    /// Enables confinement for all later runs, as far as this host supports it.
    #[must_use]
    pub fn confined(mut self, wanted: Wanted, surroundings: Surroundings) -> Sandbox {
        self.probe = probe::Probe::new(wanted);
        self.surroundings = surroundings;
        self
    }

    /// Backend that confines commands on this host. Probed on the first call.
    pub fn backend(&self) -> Backend {
        self.probe.found(&self.helper).backend
    }

    /// Backends probed to select the current one. Empty if an earlier process cached the result.
    pub fn tried(&self) -> Vec<Tried> {
        self.probe.found(&self.helper).tried
    }

    /// Sandbox tier: `none`, `reduced` or `full`.
    pub fn tier(&self) -> &'static str {
        self.backend().tier().as_str()
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
    /// Folder in which the temporary folder of the process is created.
    pub scratch: PathBuf,
    /// File that receives the output once it is longer than `output_bytes_max`.
    pub spill: PathBuf,
    /// Maximum output kept in memory, in bytes.
    pub output_bytes_max: usize,
    /// Output size in bytes at which the process is killed.
    pub spill_bytes_max: u64,
    /// Standard input and separate standard error, for hooks. Other commands have no input.
    pub dialogue: Option<Dialogue>,
    /// Stops the process, like the time limit does, when a value arrives or the sender is dropped.
    pub stop: Option<oneshot::Receiver<()>>,
}

/// A working directory.
#[derive(Debug)]
pub enum Directory {
    /// The folder that has this path when the process starts.
    Path(PathBuf),
    /// An open folder, even if it was moved.
    Opened(OwnedFd),
}

/// Progress of a running process.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// The process was prepared and this confinement is in force.
    Enforced {
        /// `none`, `reduced` or `full`.
        tier: String,
        /// Details of the enforced confinement.
        report: Value,
    },
    /// Piece of the output.
    Output(String),
}

/// Result of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Exit status.
    pub exit: Exit,
    /// Standard output and standard error, in the order of printing. With a [`Dialogue`], standard
    /// output only.
    pub output: Captured,
    /// Beginning of the standard error of a [`Dialogue`].
    pub errors: Vec<u8>,
    /// Run time.
    pub duration: Duration,
    /// Time since the last output when the process ended.
    pub quiet: Duration,
    /// Number of processes that the command left behind and that were killed.
    pub stragglers: usize,
    /// Changes to protected files, and whether they were undone.
    pub findings: Vec<Finding>,
}

/// Exit status of a process. Determined exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Exited with this code.
    Code(i32),
    /// Killed by this signal, which posse did not send.
    Signal(i32),
    /// Killed at the time limit.
    TimedOut,
    /// Killed because the output exceeded `spill_bytes_max`.
    OutputFull,
    /// Stopped on request ([`Spawn::stop`]).
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
        /// Error of the system call.
        source: io::Error,
    },
    /// The working directory no longer exists.
    #[error("the working directory is gone")]
    NoDirectory,
    /// The helper could not put the required confinement in force, or could not start the program.
    #[error("the process was not started: {reason}")]
    NotPrepared {
        /// Reason reported by the helper.
        reason: String,
    },
}

/// Path of the shell, determined once: a search costs eight failed calls per command.
///
/// Fixed paths come first, so that a folder in `PATH` that a command can write to cannot replace
/// the shell of the next command.
fn shell() -> PathBuf {
    let fixed = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let searched = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("bash"));
    fixed
        .into_iter()
        .chain(searched)
        .find(|candidate| is_file(candidate))
        .unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}
