//! Notifications and the window title, from the state of the UI.

use std::time::Duration;

use posse_actors::outcome::Ending;
use posse_frontend::outcome::label;

use crate::input::InputEvent;
use crate::running::Tui;
use crate::running::session::TaskSummary;
use crate::theme::Role;

impl Tui<'_> {
    /// Begins notifications of the current session. `title`: `None` if it has none yet.
    pub(super) fn enter_notifier(&mut self, title: Option<String>) {
        self.notifier.enter(&self.app.session, title);
        self.is_task_over = false;
    }

    /// Registers an input: a key press, or a report about the focus.
    pub(super) fn notice_input(&mut self, input: &InputEvent) {
        match input {
            InputEvent::Focus(focused) => {
                self.notifier.focus(*focused);
                // The user may have changed the branch in another window.
                self.forget_branch();
            }
            InputEvent::Key(_) | InputEvent::Paste(_) => self.notifier.key(),
            InputEvent::Background(_) => self.terminal.background_reported(),
            InputEvent::Gone => (),
        }
    }

    /// Updates the question that waits, the notification that is due, and the window title. Their
    /// bytes are written with the next frame.
    pub(super) fn follow_attention(&mut self) {
        self.notifier.question(self.app.prompts.current());
        self.is_task_over &= !self.app.busy;
        let state = if self.app.prompts.is_open() {
            "waiting for you"
        } else if self.app.busy {
            "working"
        } else if self.is_task_over {
            "done"
        } else {
            "posse"
        };
        let mut bytes = self.notifier.title(state);
        bytes.extend(self.notifier.due());
        self.dirty |= !bytes.is_empty();
        self.sequences.extend(bytes);
    }

    /// Registers the end of a task, unless the user stopped it or it was a call of the user's own
    /// that ended normally.
    pub(super) fn task_ended(&mut self, summary: &TaskSummary) {
        self.is_task_over = true;
        let label = match &summary.outcome {
            None => "failed",
            Some(outcome) if outcome.ending == Ending::Interrupted => return,
            Some(outcome)
                if outcome.turns == 0 && outcome.ending == Ending::Answered(String::new()) =>
            {
                return;
            }
            Some(outcome) => label(&outcome.ending),
        };
        self.notifier.ended(label, summary.took);
    }

    /// Shows that the user's command for notifications has failed.
    pub(super) fn notify_failed(&mut self, warning: &str) {
        self.app.view.note(Role::Warn, format!("! {warning}"));
        self.dirty = true;
    }

    /// Time until a notification is due; `None` if none is pending.
    pub(super) fn notification_wait(&self) -> Option<Duration> {
        self.notifier.wait()
    }
}
