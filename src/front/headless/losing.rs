//! Shutdown signals, and loss of the reader of an output.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use crate::failure::Exit;
use crate::front::headless::{Front, HangUp};
use crate::front::progress::Progress;

/// Time limit for a message to a stalled terminal.
const STANDSTILL: Duration = Duration::from_millis(50);

/// Next step of an event loop after a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Continue.
    GoOn,
    /// The run was asked to stop and has a time limit for that.
    Stop,
    /// Exit at once.
    Leave,
}

impl Front {
    /// Handles a signal.
    pub(super) async fn told(&mut self, signal: Exit) -> Told {
        if signal == Exit::HangUp && self.goes_on() {
            self.detach().await;
            return Told::GoOn;
        }
        if self.stopped.replace(signal).is_some() {
            self.hurried = true;
            return Told::Leave;
        }
        self.session.interrupt();
        // The line may be incomplete: a question, or the terminal's `^C`.
        let mid_line = !self.progress.finish_line().is_empty();
        let start = if mid_line || self.stderr.is_terminal() { "\n" } else { "" };
        let text = format!("{start}! interrupted\n").into_bytes();
        // A stalled terminal must not keep the run from ending.
        tokio::time::timeout(STANDSTILL, self.stderr.write(text)).await.ok();
        Told::Stop
    }

    /// Checks whether the outputs still have readers.
    pub(super) async fn look_who_reads(&mut self) -> Told {
        let lost = self.stdout.is_broken();
        if self.goes_on() {
            if lost || self.stderr.is_broken() {
                self.detach().await;
            }
            return Told::GoOn;
        }
        if !lost || self.stopped.is_some() {
            return Told::GoOn;
        }
        // The answer has no reader any more. The end of a terminal is sometimes seen before its
        // signal.
        let vanished = self.stdout.is_terminal();
        self.stopped = Some(if vanished { Exit::HangUp } else { Exit::Failed });
        self.session.interrupt();
        Told::Stop
    }

    /// Returns `true` if the last output was lost and the stream was redirected since.
    pub(super) async fn look_again(&mut self) -> bool {
        let lost = self.goes_on() && self.stdout.is_broken();
        if lost {
            self.detach().await;
        }
        lost
    }

    /// Returns `true` if the run survives the loss of its terminal.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self.manner.hang_up, HangUp::GoesOn(_))
    }

    /// Continues without the streams that have no reader.
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
            self.progress = Progress::new(false, false).of_dry_run(self.manner.dry_run);
            let line = format!("session {} continues without its terminal\n", self.session.id());
            self.stderr.write(line.into_bytes()).await;
        }
    }

    /// Log file of a detached run, or `/dev/null` if it cannot be opened.
    fn log(&self) -> Option<File> {
        let HangUp::GoesOn(path) = &self.manner.hang_up else { return None };
        let append = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = path.as_ref().and_then(|path| append(path).ok());
        file.or_else(|| OpenOptions::new().write(true).open("/dev/null").ok())
    }
}
