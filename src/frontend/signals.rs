//! Reception of the signals that end a run. Front ends shut down at the first signal and exit at
//! once at the second one.
//!
//! A signal that was ignored when the process started stays ignored. `nohup` and scripts with
//! background jobs use that to protect a process from hangup and Ctrl+C.

use nix::libc;
use posse_base::failure::Exit;
use posse_base::or_pending;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receiver of SIGHUP, SIGINT and SIGTERM.
#[derive(Debug)]
pub struct Signals {
    hang_up: Option<Signal>,
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl Signals {
    /// Installs the handlers. A signal whose handler cannot be installed keeps its default action;
    /// an ignored one stays ignored.
    pub fn listen() -> Signals {
        let listen = |kind: SignalKind| {
            if is_ignored(kind.as_raw_value()) { None } else { signal(kind).ok() }
        };
        Signals {
            hang_up: listen(SignalKind::hangup()),
            interrupt: listen(SignalKind::interrupt()),
            terminate: listen(SignalKind::terminate()),
        }
    }

    /// Returns a receiver without handlers: [`Signals::next`] never returns.
    pub fn ignore_all() -> Signals {
        Signals { hang_up: None, interrupt: None, terminate: None }
    }

    /// Waits for the next signal and returns the exit code for it. Never returns if there is no
    /// handler. Cancel safe.
    pub async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = received(&mut self.hang_up) => Exit::HangUp,
            _ = received(&mut self.interrupt) => Exit::Interrupt,
            _ = received(&mut self.terminate) => Exit::Terminate,
        }
    }
}

/// Waits for `signal`; forever if it is `None`. Cancel safe.
pub async fn received(signal: &mut Option<Signal>) -> Option<()> {
    or_pending(signal.as_mut().map(Signal::recv)).await
}

/// Returns `true` if the process currently ignores this signal; `false` also if that cannot be
/// determined.
#[expect(unsafe_code, reason = "the only way to read the action without changing it")]
fn is_ignored(signal: i32) -> bool {
    // SAFETY: all bytes zero are a valid value of this plain struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is set, and the old one is written to a local variable.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}
