//! End of a headless run: ends the session and writes the remaining output. A run that was stopped
//! waits only for a limited time if the disk or a reader is blocked.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posse_actors::outcome::Ending;
use posse_actors::root_session::{SessionEnding, TurnOutcome};
use posse_base::failure::{Exit, lines, printable};
use posse_frontend::outcome::{Verdict, output_error};
use posse_frontend::response::error_of;
use posse_frontend::signals::Signals;
use tokio::time::{Instant, Sleep, sleep};

use crate::headless::{Front, WIND_DOWN, no_deadline};
use crate::resume_hint::Again;

/// Time limit for the end of a session.
const PATIENT_END: Duration = Duration::from_secs(30);

/// Time limit for the end of a session after a second signal, or after a signal that arrives while
/// the session ends.
const HURRIED_END: Duration = Duration::from_millis(500);

impl Front {
    pub(super) async fn close(mut self, verdict: Verdict, outcome: Option<TurnOutcome>) -> Exit {
        let ending = SessionEnding {
            reason: verdict.reason.clone(),
            exit_code: i32::from(verdict.exit as u8),
            result: verdict.result.clone(),
            error: verdict.failure.as_ref().map(error_of),
        };
        let ended = self.end_session(ending).await;
        let patience = match (self.hurried, self.stopped) {
            (true, _) => HURRIED_END,
            (false, Some(_)) => WIND_DOWN,
            (false, None) => no_deadline(),
        };
        let (exit, goes_on) = (verdict.exit, self.continues());
        let mut signals = std::mem::replace(&mut self.signals, Signals::ignore_all());
        let mut limit = std::pin::pin!(sleep(patience));
        let mut last = std::pin::pin!(self.write_remaining(verdict, outcome, ended));
        loop {
            tokio::select! {
                biased;
                exit = &mut last => return exit,
                () = &mut limit => return exit,
                // A hangup at this point is noticed when output is written.
                signal = signals.next() => if signal != Exit::HangUp || !goes_on {
                    shorten_deadline(limit.as_mut());
                },
            }
        }
    }

    /// Ends the session. Returns true if it ended within [`PATIENT_END`], or [`HURRIED_END`] if the
    /// run was hurried. A signal shortens the limit, except a hangup that the run survives.
    async fn end_session(&mut self, ending: SessionEnding) -> bool {
        let session = self.session.clone();
        let mut end = std::pin::pin!(session.end(ending));
        let patience = if self.hurried { HURRIED_END } else { PATIENT_END };
        let mut limit = std::pin::pin!(sleep(patience));
        loop {
            tokio::select! {
                biased;
                () = &mut end => return true,
                () = &mut limit => return false,
                signal = self.signals.next() => {
                    if signal == Exit::HangUp && self.continues() {
                        self.detach().await;
                    } else {
                        self.hurried = true;
                        shorten_deadline(limit.as_mut());
                    }
                }
            }
        }
    }

    /// Writes the remaining events, the result, the resume hint and the worktrees that still exist.
    /// Returns the exit code of `verdict`, or `Exit::Failed` if that is success but standard output
    /// could not be written. `ended`: true if the session has ended, so that its event stream ends
    /// too.
    async fn write_remaining(
        mut self,
        mut verdict: Verdict,
        outcome: Option<TurnOutcome>,
        ended: bool,
    ) -> Exit {
        while let Some(announcement) =
            if ended { self.events.next().await } else { self.events.try_next() }
        {
            self.follow(&announcement).await;
        }
        if outcome.is_some() {
            // Hints depend on the shown events, the last of which has just arrived.
            verdict = self.verdict(outcome.as_ref());
        }
        let failures: Vec<_> = verdict.failure.iter().collect();
        let shown = format!("{}{}", self.progress.finish_line(), lines(&failures));
        self.stderr.write(shown.into_bytes()).await;
        self.print(&verdict, outcome.as_ref()).await;
        if self.continues() {
            self.stdout.flushed().await;
        }
        if self.is_output_replaced().await {
            self.print(&verdict, outcome.as_ref()).await;
        }
        let again = self.manner.again.as_ref();
        let mut farewell = again.map(|again| hint(again, outcome.as_ref())).unwrap_or_default();
        // Merged worktrees do not exist any more.
        for worktree in self.worktrees.iter().filter(|cwd| Path::new(cwd).is_dir()) {
            farewell.extend(["worktree kept: ", &printable(worktree), "\n"]);
        }
        let Front { stdout, mut stderr, .. } = self;
        let written = stdout.finish().await;
        if let Err(cause) = &written {
            stderr.write(lines(&[output_error(cause.clone())]).into_bytes()).await;
        }
        stderr.write(farewell.into_bytes()).await;
        // Standard error is not writable, so nothing can be reported.
        stderr.finish().await.ok();
        if written.is_err() && verdict.exit == Exit::Done { Exit::Failed } else { verdict.exit }
    }
}

/// Resume hint with the command. If the run is parked until a known time and the machine has a
/// scheduler, also a line that schedules the command.
fn hint(again: &Again, outcome: Option<&TurnOutcome>) -> String {
    let mut text = again.last_line() + "\n";
    let parked = outcome.and_then(|outcome| match outcome.ending {
        Ending::Parked { next_try_ms, .. } => next_try_ms,
        _ => None,
    });
    if let Some(at) = parked {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wait = Duration::from_millis(at).saturating_sub(now);
        if let Some(line) = again.later(wait) {
            text.extend(["by itself then: ", &line, "\n"]);
        }
    }
    text
}

/// Lets the time limit end in [`HURRIED_END`], unless it ends earlier.
fn shorten_deadline(mut limit: std::pin::Pin<&mut Sleep>) {
    let soon = Instant::now() + HURRIED_END;
    if limit.deadline() > soon {
        limit.as_mut().reset(soon);
    }
}
