//! Reaction of a run to signals and to a lost terminal or reader.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use posse_base::failure::Exit;

use crate::headless::{Front, OnHangup};
use crate::progress::ProgressPrinter;

/// Maximum time for writing the note that the run was interrupted, if its reader is blocked.
const STANDSTILL: Duration = Duration::from_millis(50);

/// Effect of a signal, or of the loss of a reader, on the main loop of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalEffect {
    /// The loop continues.
    GoOn,
    /// The run was just stopped; the loop waits for a limited time until it has ended.
    Stop,
    /// The loop ends at once.
    Leave,
}

impl Front {
    /// Handles the signal with this exit code. A hangup that the run survives only detaches the run
    /// from its terminal. Any other signal stops the run, or ends the loop if the run was stopped
    /// already.
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

    /// Checks if the outputs still have readers. If a reader is gone, a run that survives a hangup
    /// detaches. Any other run is stopped if the reader of standard output is gone: returns `Stop`,
    /// or `GoOn` if it was stopped before.
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

    /// Replaces standard output if its reader is gone and the run survives that. Returns true if it
    /// was replaced: the last output was lost and must be written again.
    pub(super) async fn is_output_replaced(&mut self) -> bool {
        let lost = self.continues() && self.stdout.is_broken();
        if lost {
            self.detach().await;
        }
        lost
    }

    /// True if the run survives a hangup of its terminal.
    pub(super) fn continues(&self) -> bool {
        matches!(self.manner.hang_up, OnHangup::GoesOn(_))
    }

    /// Moves lost output streams to the log file. The first call moves streams at a terminal as
    /// well, ends live output, and writes a note that the session goes on.
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
            let line = format!("session {} continues without its terminal\n", self.session.id());
            self.stderr.write(line.into_bytes()).await;
        }
    }

    /// Opens the log file of a run that lost its terminal, or `/dev/null` if there is no log file
    /// or it cannot be opened. `None` if the run does not survive a hangup, or if neither can be
    /// opened.
    fn log(&self) -> Option<File> {
        let OnHangup::GoesOn(path) = &self.manner.hang_up else { return None };
        let append = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = path.as_ref().and_then(|path| append(path).ok());
        file.or_else(|| OpenOptions::new().write(true).open("/dev/null").ok())
    }
}
