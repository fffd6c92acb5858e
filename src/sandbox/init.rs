//! Init process beside a command: reaps orphans, reports the exit status, and kills remaining
//! processes.
//!
//! It is PID 1 of the command's namespace. On the reduced tier, which has no PID namespace, it is a
//! child subreaper.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::Context as _;
use crate::wire::{CommandExit, HelperLine};

/// Time for which descendants may continue to run after the end of the command, unless posse
/// requests their end earlier. Also the interval between repeated kills.
const GRACE: Duration = Duration::from_secs(2);

/// Message from posse: send SIGTERM to all processes of the command. Any other message, and the end
/// of the connection, mean SIGKILL.
pub(crate) const TERM_REQUEST: &[u8] = b"term\n";

/// Number that is added to a signal number to form an exit code.
const SIGNALLED: i32 = 128;

/// Waits until `command` and all its descendants have ended, and kills the remaining ones after a
/// grace period or on request. Reports the exit status and the number of killed processes to
/// `control`. Returns the exit code of the command, or 128 plus the number of the signal that ended
/// it. The caller must have blocked SIGCHLD.
pub(crate) fn run_init(command: Pid, control: &UnixStream) -> Result<ExitCode, String> {
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let deaths = SignalFd::with_flags(&children(), flags).context("no signals")?;
    let mut house = House { command, ended: None, killed: None };
    let mut until: Option<Instant> = None;
    loop {
        // Before looking, so that no end in the meantime is missed.
        while let Ok(Some(_)) = deaths.read_signal() {}
        let had_ended = house.ended.is_some();
        let is_alone = house.reap();
        if let (false, Some(ended)) = (had_ended, house.ended) {
            // The parent no longer listens after it gave up.
            HelperLine::Exited(ended).write_line(control).ok();
            until = Some(Instant::now() + GRACE);
        }
        if is_alone {
            break;
        }
        let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
        if wait.is_some_and(|wait| wait.is_zero()) {
            house.kill();
        }
        if house.killed.is_some() {
            until = Some(Instant::now() + GRACE);
        }
        let timeout = wait.map_or(PollTimeout::NONE, |wait| {
            PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let mut polled = vec![PollFd::new(deaths.as_fd(), PollFlags::POLLIN)];
        if house.killed.is_none() {
            polled.push(PollFd::new(control.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("nothing to wait for: {error}")),
        }
        let is_said = polled.get(1).is_some_and(|control| control.any() == Some(true));
        if is_said {
            let mut control = control;
            let mut word = [0; 64];
            let length = control.read(&mut word).unwrap_or_default();
            if word[..length].starts_with(TERM_REQUEST) && house.ended.is_none() {
                House::ask_to_end();
            }
            // Anything else, including the end of the stream: the parent no longer waits.
            if word[..length] != *TERM_REQUEST {
                house.kill();
            }
        }
    }
    HelperLine::Cleared(house.killed.unwrap_or_default()).write_line(control).ok();
    let code = match house.ended {
        Some(CommandExit::Code(code)) => code,
        Some(CommandExit::Signal(signal)) => SIGNALLED + signal,
        None => SIGNALLED,
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Returns a signal set that contains only SIGCHLD.
pub(crate) fn children() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set
}

/// Command beside which the init process runs, its exit status (`None` while it runs), and the
/// number of kills.
struct House {
    command: Pid,
    ended: Option<CommandExit>,
    /// Number of killed processes without the command. `None` until killing has started.
    killed: Option<usize>,
}

impl House {
    /// Reaps all children that have ended: stores the exit status of the command, and counts the
    /// other killed ones. Returns true if no child is left.
    fn reap(&mut self) -> bool {
        loop {
            let (pid, ended) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, CommandExit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    (pid, CommandExit::Signal(signal as i32))
                }
                Ok(WaitStatus::StillAlive) => return false,
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => return true,
            };
            if pid == self.command {
                self.ended = Some(ended);
            } else if ended == CommandExit::Signal(Signal::SIGKILL as i32)
                && let Some(killed) = &mut self.killed
            {
                *killed += 1;
            }
        }
    }

    fn ask_to_end() {
        // There may be no process left.
        let everybody = Pid::from_raw(-1);
        let _ = kill(everybody, Signal::SIGTERM);
        let _ = kill(everybody, Signal::SIGCONT);
    }

    /// Kills all other processes of the PID namespace or, on the reduced tier, of the Landlock
    /// domain.
    fn kill(&mut self) {
        self.killed.get_or_insert(0);
        // There may be no process left.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    }
}
