//! Signals that end a run: the first winds it down, the second gets out at once.
//!
//! What was ignored when the process began stays ignored: that is how `nohup` and the background
//! jobs of a script say that a hang-up, or the user's Ctrl+C, is not meant for it.

use nix::libc;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Exit;

/// Hang-up, interrupt and terminate.
#[derive(Debug)]
pub(crate) struct Signals {
    hang_up: Option<Signal>,
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl Signals {
    /// Listens from now on. A signal that cannot be listened to keeps its default effect, and one
    /// that is ignored stays so.
    pub(crate) fn listen() -> Signals {
        let listen = |kind: SignalKind| {
            if is_ignored(kind.as_raw_value()) { None } else { signal(kind).ok() }
        };
        Signals {
            hang_up: listen(SignalKind::hangup()),
            interrupt: listen(SignalKind::interrupt()),
            terminate: listen(SignalKind::terminate()),
        }
    }

    /// Hears nothing.
    pub(crate) fn deaf() -> Signals {
        Signals { hang_up: None, interrupt: None, terminate: None }
    }

    /// The exit code of the next signal. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Exit {
        tokio::select! {
            () = received(&mut self.hang_up) => Exit::HangUp,
            () = received(&mut self.interrupt) => Exit::Interrupt,
            () = received(&mut self.terminate) => Exit::Terminate,
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether whoever started the process had this signal ignored.
#[expect(unsafe_code, reason = "the only way to ask without changing it")]
fn is_ignored(signal: i32) -> bool {
    // SAFETY: all bytes zero are a valid value of this plain struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is given, and the old one is written to a place that is ours.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}
