//! What a run does when it is told to end, and when whoever looked at it goes away.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use crate::failure::Exit;
use crate::front::headless::{Front, OnHangup};
use crate::front::progress::ProgressPrinter;

/// How long a word to somebody who does not read is worth waiting.
const STANDSTILL: Duration = Duration::from_millis(50);

/// What a loop does after something from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalEffect {
    /// As before.
    GoOn,
    /// It was told to stop just now, and has a moment for that.
    Stop,
    /// At once.
    Leave,
}

impl Front {
    /// A signal came.
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
        // What stands there, a question or the `^C` of the terminal, is no whole line.
        let mid_line = !self.progress.finish_line().is_empty();
        let start = if mid_line || self.stderr.is_terminal() { "\n" } else { "" };
        let text = format!("{start}! interrupted\n").into_bytes();
        // A terminal that was told to stand still does not keep the run from ending.
        tokio::time::timeout(STANDSTILL, self.stderr.write(text)).await.ok();
        SignalEffect::Stop
    }

    /// Looks whether the streams still lead somewhere.
    pub(super) async fn look_who_reads(&mut self) -> SignalEffect {
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
        // Nobody reads the answer any more. The end of a terminal is sometimes seen before the
        // signal that tells of it.
        let vanished = self.stdout.is_terminal();
        self.stopped = Some(if vanished { Exit::HangUp } else { Exit::Failed });
        self.session.interrupt();
        SignalEffect::Stop
    }

    /// What was written just now went nowhere, and the stream leads somewhere else since.
    pub(super) async fn look_again(&mut self) -> bool {
        let lost = self.continues() && self.stdout.is_broken();
        if lost {
            self.detach().await;
        }
        lost
    }

    /// Whether the run outlives its terminal.
    pub(super) fn continues(&self) -> bool {
        matches!(self.manner.hang_up, OnHangup::GoesOn(_))
    }

    /// Goes on without the streams that lead nowhere.
    pub(super) async fn detach(&mut self) {
        let all = !std::mem::replace(&mut self.detached, true);
        let Some(log) = self.log() else { return };
        for stream in [&mut self.stdout, &mut self.stderr] {
            if stream.is_broken() || (all && stream.is_terminal()) {
                stream.move_to(&log);
            }
        }
        if all {
            // There is nothing to draw on any more.
            self.progress = ProgressPrinter::new(false, false).of_dry_run(self.manner.dry_run);
            let line = format!("session {} goes on without its terminal\n", self.session.id());
            self.stderr.write(line.into_bytes()).await;
        }
    }

    /// Where a run writes that has lost its terminal; nowhere, if that cannot be opened.
    fn log(&self) -> Option<File> {
        let OnHangup::GoesOn(path) = &self.manner.hang_up else { return None };
        let append = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = path.as_ref().and_then(|path| append(path).ok());
        file.or_else(|| OpenOptions::new().write(true).open("/dev/null").ok())
    }
}
