//! Lookups: slow work beside the event loop, such as reading stored sessions. Progress is shown,
//! Esc cancels all lookups, and input that would interfere with a lookup stays in the prompt.

use std::time::Duration;

use crate::app::App;
use crate::text::{TextRow, clipped, row};
use crate::theme::Role;

/// Delay before the progress of a lookup is shown.
const SHOWN_AFTER: Duration = Duration::from_millis(150);

/// Maximum duration of a lookup; then it is cancelled.
const LOOKING_MAX: Duration = Duration::from_mins(1);

/// Maximum number of concurrent lookups.
const AT_ONCE_MAX: usize = 4;

/// A running lookup.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingLookup {
    /// Number that identifies the result; results of cancelled lookups are dropped.
    nth: u64,
    what: &'static str,
    /// True if submitted input has to wait, because the result may replace the session or start an
    /// undo.
    blocks_input: bool,
    since: Duration,
}

impl App {
    /// Registers a lookup that starts now. `blocks_input`: true if submitted text has to wait for
    /// it. Returns `false` and shows a note if too many lookups are running; the caller then starts
    /// none.
    pub(crate) fn start_lookup(
        &mut self,
        nth: u64,
        what: &'static str,
        blocks_input: bool,
        now: Duration,
    ) -> bool {
        let room = self.lookups.len() < AT_ONCE_MAX;
        if room {
            self.lookups.push(PendingLookup { nth, what, blocks_input, since: now });
        } else {
            self.view.note(Role::Warn, "(too many lookups are running; Esc cancels them)");
        }
        room
    }

    /// Removes a finished lookup. Returns `false` if it was cancelled or timed out, so its result
    /// must be dropped.
    pub(crate) fn finish_lookup(&mut self, nth: u64) -> bool {
        let at = self.lookups.iter().position(|lookups| lookups.nth == nth);
        at.map(|at| self.lookups.remove(at)).is_some()
    }

    /// Returns `true` if no task and no blocking lookup is running.
    pub(super) fn is_idle(&self) -> bool {
        !self.busy && !self.is_input_blocked()
    }

    /// Returns `true` if a running lookup blocks input.
    pub(super) fn is_input_blocked(&self) -> bool {
        self.lookups.iter().any(|lookups| lookups.blocks_input)
    }

    /// Cancels all lookups, with a note for each: their work continues, but the results are
    /// dropped. Returns `false` if there was none.
    pub(super) fn cancel_lookups(&mut self) -> bool {
        let given_up = std::mem::take(&mut self.lookups);
        for PendingLookup { what, .. } in &given_up {
            self.view.note(Role::Dim, format!("({what}: cancelled)"));
        }
        !given_up.is_empty()
    }

    pub(super) fn cancel_overdue_lookups(&mut self, now: Duration) {
        let overdue = |lookup: &mut PendingLookup| now.saturating_sub(lookup.since) >= LOOKING_MAX;
        for PendingLookup { what, .. } in self.lookups.extract_if(.., overdue) {
            let text = format!("({what}: timed out after {} s)", LOOKING_MAX.as_secs());
            self.view.note(Role::Warn, text);
        }
    }

    /// Time until the progress row changes; `None` if no lookup is running.
    pub(super) fn next_lookup_change(&self, now: Duration) -> Option<Duration> {
        let since = now.saturating_sub(self.lookups.last()?.since);
        let part = u64::from(since.subsec_nanos());
        Some(match SHOWN_AFTER.checked_sub(since) {
            Some(left) if !left.is_zero() => left,
            _ => Duration::from_nanos(1_000_000_000 - part),
        })
    }

    /// Progress row of the latest lookup; `None` if no lookup is running or it has just started.
    pub(super) fn lookup_row(&self, wide: usize, now: Duration) -> Option<TextRow> {
        let lookups = self.lookups.last()?;
        let since = now.saturating_sub(lookups.since);
        let text = format!("{} … {} s · Esc cancels it", lookups.what, since.as_secs());
        (since >= SHOWN_AFTER).then(|| row(self.theme, Role::Accent, clipped(&text, wide)))
    }
}

#[cfg(test)]
mod tests {
    use crate::app::Effect;
    use crossterm::event::{KeyCode, KeyEvent};

    use crate::input::ctrl;
    use crate::testing::TestScreen;

    #[test]
    fn keys_work_and_submitted_text_is_kept_during_a_lookup() {
        let mut stage = TestScreen::new();
        let now = stage.now;
        assert!(stage.app.start_lookup(1, "reading sessions", true, now));
        assert!(!stage.screen(60, 24).contains("reading"), "not shown yet");
        stage.later(2300);
        assert!(stage.screen(60, 24).contains("reading sessions … 2 s · Esc cancels it"));
        assert_eq!(stage.types("a task\n"), []);
        assert!(stage.screen(60, 24).contains("❯ a task"), "it stays in the prompt");
        assert!(stage.screen(60, 24).contains("(wait for the lookup"));
        stage.presses(ctrl('u'));
        assert_eq!(stage.types("/stop all\n"), []);
        assert!(stage.screen(60, 24).contains("❯ /stop all"), "it waits as well");
        stage.presses(ctrl('u'));
        assert_eq!(stage.types("/exit\n"), [Effect::Leave(posse_base::failure::Exit::Done)]);
        stage.presses(KeyEvent::from(KeyCode::Esc));
        assert!(stage.screen(60, 24).contains("cancelled"));
        assert!(!stage.app.finish_lookup(1), "its result comes too late");
        assert_ne!(stage.types("a task\n"), []);
    }

    #[test]
    fn other_lookups_do_not_block_input_and_are_bounded() {
        let mut stage = TestScreen::new();
        let now = stage.now;
        for nth in 0..4 {
            assert!(stage.app.start_lookup(nth, "collecting data", false, now));
        }
        assert!(!stage.app.start_lookup(4, "collecting data", false, now));
        assert_ne!(stage.types("a task\n"), []);
        assert!(stage.app.finish_lookup(2));
        stage.later(61_000);
        assert!(!stage.app.finish_lookup(1));
        assert!(stage.screen(60, 40).contains("timed out after 60 s"));
    }
}
