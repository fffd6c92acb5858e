//! Progress of a long verification on a terminal: one line that is overwritten.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use posse_base::failure::printable;
use posse_base::terminal::{self, TerminalWriter};

use crate::commands::size;

/// Time from the start of the command until the first progress is shown.
const QUIET: Duration = Duration::from_secs(1);

/// Progress line on standard error. Nothing is shown if standard error is not a terminal. The line
/// is erased on drop.
pub(super) struct ReadProgress {
    out: Option<TerminalWriter<io::Stderr>>,
    begun: Instant,
    shown: bool,
}

impl ReadProgress {
    pub(super) fn new() -> ReadProgress {
        let out = io::stderr().is_terminal().then(terminal::stderr);
        ReadProgress { out, begun: Instant::now(), shown: false }
    }

    /// Shows that `bytes` of session `id` are verified. Shows nothing during the first second.
    pub(super) fn report(&mut self, id: &str, bytes: u64) {
        if let Some(out) = &mut self.out
            && self.begun.elapsed() >= QUIET
        {
            self.shown = true;
            write!(out, "\r{}: {} checked\x1b[K", printable(id), size(bytes)).ok();
        }
    }
}

impl Drop for ReadProgress {
    fn drop(&mut self) {
        if let Some(out) = &mut self.out
            && self.shown
        {
            write!(out, "\r\x1b[K").ok();
        }
    }
}
