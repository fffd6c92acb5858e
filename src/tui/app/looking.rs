//! What is looked up on another thread: that it goes on is shown, Esc gives it up, and what would
//! disturb it stays in the prompt.

use std::time::Duration;

use crate::tui::app::App;
use crate::tui::text::{Row, clipped, row};
use crate::tui::theme::Role;

/// Before this nobody wonders.
const SHOWN_AFTER: Duration = Duration::from_millis(150);

/// How long it may take.
const LOOKING_MAX: Duration = Duration::from_mins(1);

/// What may be looked up at once.
const AT_ONCE_MAX: usize = 4;

/// What is looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looking {
    /// Tells its answer from those that nobody waits for any more.
    nth: u64,
    what: &'static str,
    /// What comes of it changes the conversation.
    holds: bool,
    since: Duration,
}

impl App {
    /// Something is looked up from now on. `holds`: what is sent meanwhile has to wait. `false`: so
    /// much is looked up already that it is not.
    pub(in crate::tui) fn look(
        &mut self,
        nth: u64,
        what: &'static str,
        holds: bool,
        now: Duration,
    ) -> bool {
        let room = self.looking.len() < AT_ONCE_MAX;
        if room {
            self.looking.push(Looking { nth, what, holds, since: now });
        } else {
            self.view.note(Role::Warn, "(one moment: enough is looked up; Esc gives it up)");
        }
        room
    }

    /// It was. `false`: nobody waits for it any more.
    pub(in crate::tui) fn looked(&mut self, nth: u64) -> bool {
        let at = self.looking.iter().position(|looking| looking.nth == nth);
        at.map(|at| self.looking.remove(at)).is_some()
    }

    /// Whether nothing goes on that something else would disturb.
    pub(super) fn is_idle(&self) -> bool {
        !self.busy && !self.is_held()
    }

    /// Whether something is looked up that what is sent now would disturb.
    pub(super) fn is_held(&self) -> bool {
        self.looking.iter().any(|looking| looking.holds)
    }

    /// Answers are not waited for any more. `false`: nothing was looked up.
    pub(super) fn give_up(&mut self) -> bool {
        let given_up = std::mem::take(&mut self.looking);
        for Looking { what, .. } in &given_up {
            self.view.note(Role::Dim, format!("({what}: given up)"));
        }
        !given_up.is_empty()
    }

    pub(super) fn give_up_when_overdue(&mut self, now: Duration) {
        let (overdue, left) = std::mem::take(&mut self.looking)
            .into_iter()
            .partition(|looking| now.saturating_sub(looking.since) >= LOOKING_MAX);
        self.looking = left;
        let overdue: Vec<Looking> = overdue;
        for Looking { what, .. } in overdue {
            let text = format!("({what}: given up after {} s)", LOOKING_MAX.as_secs());
            self.view.note(Role::Warn, text);
        }
    }

    /// When the row about it changes.
    pub(super) fn looking_changes(&self, now: Duration) -> Option<Duration> {
        let since = now.saturating_sub(self.looking.last()?.since);
        let part = u64::from(since.subsec_nanos());
        Some(match SHOWN_AFTER.checked_sub(since) {
            Some(left) if !left.is_zero() => left,
            _ => Duration::from_nanos(1_000_000_000 - part),
        })
    }

    /// The row about it.
    pub(super) fn looking_row(&self, wide: usize, now: Duration) -> Option<Row> {
        let looking = self.looking.last()?;
        let since = now.saturating_sub(looking.since);
        let text = format!("{} … {} s · Esc gives it up", looking.what, since.as_secs());
        (since >= SHOWN_AFTER).then(|| row(self.theme, Role::Accent, clipped(&text, wide)))
    }
}

#[cfg(test)]
mod tests {
    use crate::tui::app::Effect;
    use crate::tui::input::{Code, Key};
    use crate::tui::testing::Stage;

    #[test]
    fn keys_are_followed_and_what_is_sent_is_kept() {
        let mut stage = Stage::new();
        let now = stage.now;
        assert!(stage.app.look(1, "reading what is stored", true, now));
        assert!(!stage.screen(60, 24).contains("reading"), "nobody wonders yet");
        stage.later(2300);
        assert!(stage.screen(60, 24).contains("reading what is stored … 2 s · Esc gives it up"));
        assert_eq!(stage.types("a task\n"), []);
        assert!(stage.screen(60, 24).contains("❯ a task"), "it stays in the prompt");
        assert!(stage.screen(60, 24).contains("(one moment"));
        stage.presses(Key::ctrl('u'));
        assert_eq!(stage.types("/exit\n"), [Effect::Leave(crate::failure::Exit::Done)]);
        stage.presses(Key::plain(Code::Esc));
        assert!(stage.screen(60, 24).contains("given up"));
        assert!(!stage.app.looked(1), "its answer comes too late");
        assert_ne!(stage.types("a task\n"), []);
    }

    #[test]
    fn what_changes_nothing_holds_nobody_and_has_its_bounds() {
        let mut stage = Stage::new();
        let now = stage.now;
        for nth in 0..4 {
            assert!(stage.app.look(nth, "looking around", false, now));
        }
        assert!(!stage.app.look(4, "looking around", false, now));
        assert_ne!(stage.types("a task\n"), []);
        assert!(stage.app.looked(2));
        stage.later(61_000);
        assert!(!stage.app.looked(1));
        assert!(stage.screen(60, 40).contains("given up after 60 s"));
    }
}
