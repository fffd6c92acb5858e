//! Notifications and the window title of line mode at a terminal.

use std::path::Path;
use std::time::Duration;

use posse_actors::outcome::Ending;
use posse_actors::root_session::TurnOutcome;
use posse_frontend::outcome::label;

use crate::plain::LineMode;
use crate::plain::run::is_own_call;

impl LineMode<'_> {
    /// Saves the window title and begins notifications of the first session.
    pub(super) async fn begin_notifications(&mut self, folder: &Path) {
        self.enter_notifier();
        self.notifier.set_folder(folder);
        let bytes = self.notifier.settings().save_title().to_vec();
        self.write_sequence(bytes).await;
        self.follow_attention("posse").await;
    }

    /// Begins notifications of the current session.
    pub(super) fn enter_notifier(&mut self) {
        self.notifier.enter(self.current.session.id().as_str(), None);
    }

    /// Restores the window title, and waits for the user's command for notifications.
    pub(super) async fn end_notifications(&mut self) {
        let bytes = self.notifier.settings().restore_title().to_vec();
        self.write_sequence(bytes).await;
        if let Some(warning) = self.notifier.finish().await {
            self.notify_failed(&warning).await;
        }
    }

    /// Updates the question that waits and the window title. `state`: the title if no question
    /// waits.
    pub(super) async fn follow_attention(&mut self, state: &str) {
        let waiting = self.questions.current();
        let state = if waiting.is_some() { "waiting for you" } else { state };
        self.notifier.question(waiting);
        let bytes = self.notifier.title(state);
        self.write_sequence(bytes).await;
    }

    /// Sends the notification that is due.
    pub(super) async fn notify(&mut self) {
        let bytes = self.notifier.due();
        self.write_sequence(bytes).await;
    }

    /// Sends a notification of the end of a long task, unless the user stopped it.
    pub(super) async fn task_ended(&mut self, outcome: Option<&TurnOutcome>, took: Duration) {
        let label = match outcome {
            _ if self.leaving.is_some() => return,
            Some(outcome) if outcome.ending == Ending::Interrupted || is_own_call(outcome) => {
                return;
            }
            Some(outcome) => label(&outcome.ending),
            None => "failed",
        };
        let bytes = self.notifier.ended_unseen(label, took);
        self.write_sequence(bytes).await;
    }

    async fn write_sequence(&mut self, bytes: Vec<u8>) {
        if self.stderr.is_terminal() {
            self.stderr.write_sequence(bytes).await;
        }
    }

    /// Shows that the user's command for notifications has failed.
    pub(super) async fn notify_failed(&mut self, warning: &str) {
        self.print(&format!("! {warning}\n")).await;
    }
}
