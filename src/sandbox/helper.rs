//! The helper: our own binary, started again, which prepares the process that becomes a command.
//!
//! An ordinary single-threaded program does what a closure between fork and exec must not. It
//! makes a new session, dies with its parent, resets signals, closes descriptors, reports what is
//! in force over its standard input, which is a pipe for that, and becomes the command. If the
//! report cannot be written, there is no command.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{Pid, close, dup2_stdin, getppid, setsid};

use crate::sandbox::{dialogue, watch};

/// The first argument that makes a process the helper.
pub(crate) const MARK: &str = "__posse_helper";

/// Exit code of a helper that did not become a command.
const NOT_PREPARED: u8 = 125;

/// Does the helper's or the watcher's work if this process was started as one. To be called first
/// thing in `main`.
///
/// `None` means that this process is neither. A helper that succeeds has become the command and
/// does not return; otherwise `main` must return the code at once.
pub fn helper_main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let mark = arguments.next()?;
    if mark == watch::MARK {
        return Some(watch::watcher_main(arguments));
    }
    if mark != MARK {
        return None;
    }
    // Without a pipe there is nobody to tell, and the code says enough.
    let Ok(report) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return Some(ExitCode::from(NOT_PREPARED));
    };
    let mut report = File::from(report);
    let failure = match become_command(&mut report, arguments) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    // The reader may be gone; the exit code remains.
    report.write_all(format!("failed {failure}\n").as_bytes()).ok();
    Some(ExitCode::from(NOT_PREPARED))
}

fn become_command(
    report: &mut File,
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<std::convert::Infallible, String> {
    let parent = arguments.next().and_then(|id| id.to_str()?.parse().ok()).map(Pid::from_raw);
    let (Some(parent), Some(program)) = (parent, arguments.next()) else {
        return Err("the helper was given no command".to_owned());
    };
    setsid().map_err(|error| format!("no new session: {error}"))?;
    let dies_with_parent = die_with(parent)?;
    reset_signals()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|error| format!("no core limit: {error}"))?;
    let input = std::env::var_os(dialogue::INPUT).unwrap_or_else(|| "/dev/null".into());
    let input = File::open(input).map_err(|error| format!("no standard input: {error}"))?;
    dup2_stdin(&input).map_err(|error| format!("no standard input: {error}"))?;
    drop(input);
    let closed = close_others(report.as_raw_fd())?;
    let enforced = format!(
        "enforced {{\"tier\":\"none\",\"session\":true,\"terminal\":false,\
         \"diesWithParent\":{dies_with_parent},\"descriptorsClosed\":{closed}}}\n"
    );
    report.write_all(enforced.as_bytes()).map_err(|error| format!("no report: {error}"))?;
    // `exec` also sets SIGPIPE to its default and empties the signal mask.
    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    let error = std::process::Command::new(program).args(arguments).exec();
    Err(format!("{error}"))
}

/// Ties this process's life to that of the thread that started it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with(parent: Pid) -> Result<bool, String> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| format!("no parent-death signal: {error}"))?;
    // It may have died before it could be asked for.
    if getppid() == parent { Ok(true) } else { Err("the parent is gone".to_owned()) }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn die_with(parent: Pid) -> Result<bool, String> {
    if getppid() == parent { Ok(false) } else { Err("the parent is gone".to_owned()) }
}

/// Undoes what our own parent may have ignored: `nohup`, or a shell that started us behind `&`.
fn reset_signals() -> Result<(), String> {
    for each in Signal::iterator() {
        if matches!(each, Signal::SIGKILL | Signal::SIGSTOP) {
            continue;
        }
        #[expect(unsafe_code, reason = "the only way to stop ignoring a signal")]
        // SAFETY: the default action is no code of ours, so nothing can run in a handler.
        let reset = unsafe { signal(each, SigHandler::SigDfl) };
        reset.map_err(|error| format!("{each} keeps its handler: {error}"))?;
    }
    Ok(())
}

/// Makes a file that may not grow further an error of the write, which can be reported, and not
/// our end. Commands have the signal's default action again.
pub fn survive_file_limits() {
    #[expect(unsafe_code, reason = "the only way to ignore a signal")]
    // SAFETY: to ignore is no code of ours, so nothing can run in a handler.
    let ignored = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    if let Err(error) = ignored {
        tracing::debug!(%error, "a file that grows too far ends this process");
    }
}

/// Closes everything but the standard streams and the report, and says how many that were.
pub(crate) fn close_others(report: RawFd) -> Result<usize, String> {
    let folder = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("open descriptors are unknown: {error}"))?;
    let open: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&descriptor: &RawFd| descriptor > 2 && descriptor != report)
        .collect();
    // The folder's own descriptor was among them and is closed by now.
    Ok(open.into_iter().filter(|&descriptor| close(descriptor).is_ok()).count())
}

/// The line that a helper wrote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// JSON text: what is in force.
    Enforced(String),
    /// Why there is no command.
    Failed(String),
}

/// Reads what a helper wrote until now, if the line is whole.
pub(crate) fn parse(line: &str) -> Option<Line> {
    if let Some(report) = line.strip_prefix("enforced ") {
        return Some(Line::Enforced(report.to_owned()));
    }
    line.strip_prefix("failed ").map(|reason| Line::Failed(reason.to_owned()))
}

/// The path that starts our own binary even after it was replaced or removed.
pub(crate) fn own_binary() -> std::io::Result<std::path::PathBuf> {
    let link = std::path::Path::new("/proc/self/exe");
    // The child that follows this link shares our memory until it does, so it finds our binary.
    if cfg!(target_os = "linux") && link.exists() {
        return Ok(link.to_owned());
    }
    std::env::current_exe()
}

/// The report pipe's writing end, as the helper's standard input.
pub(crate) fn report_end(writer: std::io::PipeWriter) -> OwnedFd {
    OwnedFd::from(writer)
}
