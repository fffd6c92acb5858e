//! Signals that end a run: the first winds it down, the second gets out at once.

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
    /// Listens from now on. A signal that cannot be listened to keeps its default effect.
    pub(crate) fn listen() -> Signals {
        Signals {
            hang_up: signal(SignalKind::hangup()).ok(),
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
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
