//! Reaction of a run to signals and to a lost terminal or reader.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use posse_base::failure::Exit;

use crate::headless::{Front, OnHangup};
use crate::progress::ProgressPrinter;

/// Maximum wait for a message to a blocked reader.
const STANDSTILL: Duration = Duration::from_millis(50);

/// Effect of an external event on the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalEffect {
    /// None.
    GoOn,
    /// The run was just stopped and has time to end.
    Stop,
    /// Exit at once.
    Leave,
}

impl Front {
    /// Handles a signal.
    pub(super) async fn on_signal(&mut self, signal: Exit) -> SignalEffect {
        if signal == Exit::HangUp && self.continues() {
            self.detach().await;
            return SignalEffect::GoOn;
        }
        if self.stopped.replace(signal).is_some() {
            self.hurried = true;
            return SignalEffect::Leave;
        }
        self.session.interrupt();
        // A permission request or the terminal's `^C` leaves an unfinished line.
        let mid_line = !self.progress.finish_line().is_empty();
        let start = if mid_line || self.stderr.is_terminal() { "\n" } else { "" };
        let text = format!("{start}! interrupted\n").into_bytes();
        // A terminal that is paused must not prevent the end.
        tokio::time::timeout(STANDSTILL, self.stderr.write(text)).await.ok();
        SignalEffect::Stop
    }

    /// Checks whether the outputs still have readers.
    pub(super) async fn check_readers(&mut self) -> SignalEffect {
        let lost = self.stdout.is_broken();
        if self.continues() {
            if lost || self.stderr.is_broken() {
                self.detach().await;
            }
            return SignalEffect::GoOn;
        }
        if !lost || self.stopped.is_some() {
            return SignalEffect::GoOn;
        }
        // The answer has no reader any more. The end of a terminal is sometimes noticed before its
        // signal.
        let vanished = self.stdout.is_terminal();
        self.stopped = Some(if vanished { Exit::HangUp } else { Exit::Failed });
        self.session.interrupt();
        SignalEffect::Stop
    }

    /// True if the last output was lost and the stream has been replaced since.
    pub(super) async fn is_output_replaced(&mut self) -> bool {
        let lost = self.continues() && self.stdout.is_broken();
        if lost {
            self.detach().await;
        }
        lost
    }

    /// True if the run survives its terminal.
    pub(super) fn continues(&self) -> bool {
        matches!(self.manner.hang_up, OnHangup::GoesOn(_))
    }

    /// Continues without the lost streams.
    pub(super) async fn detach(&mut self) {
        let all = !std::mem::replace(&mut self.detached, true);
        let Some(log) = self.log() else { return };
        for stream in [&mut self.stdout, &mut self.stderr] {
            if stream.is_broken() || (all && stream.is_terminal()) {
                stream.move_to(&log);
            }
        }
        if all {
            // There is no terminal to draw on any more.
            self.progress = ProgressPrinter::new(false, false).of_dry_run(self.manner.dry_run);
            let line = format!("session {} goes on without its terminal\n", self.session.id());
            self.stderr.write(line.into_bytes()).await;
        }
    }

    /// Log file of a run that lost its terminal; `None` if it cannot be opened.
    fn log(&self) -> Option<File> {
        let OnHangup::GoesOn(path) = &self.manner.hang_up else { return None };
        let append = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = path.as_ref().and_then(|path| append(path).ok());
        file.or_else(|| OpenOptions::new().write(true).open("/dev/null").ok())
    }
}
