//! Notifications of a headless run at a terminal: a question that waits, and the end of a long run.

use std::time::Duration;

use posse_actors::outcome::Ending;
use posse_actors::root_session::TurnOutcome;
use posse_frontend::outcome::label;

use crate::headless::Front;

impl Front {
    /// Registers the question that waits now.
    pub(super) fn follow_question(&mut self) {
        let questions = self.questions.as_ref();
        self.notifier.question(questions.and_then(|questions| questions.current()));
    }

    /// Sends the notification that is due.
    pub(super) async fn notify(&mut self) {
        let bytes = self.notifier.due();
        self.write_notification(bytes).await;
    }

    /// Sends a notification of the end of a long run, and waits for the user's command. A run that
    /// the user stopped sends none.
    pub(super) async fn notify_end(&mut self, outcome: Option<&TurnOutcome>, took: Duration) {
        let label = match outcome {
            _ if self.stopped.is_some() => return,
            Some(outcome) if outcome.ending == Ending::Interrupted => return,
            Some(outcome) => label(&outcome.ending),
            None => "failed",
        };
        let bytes = self.notifier.ended_unseen(label, took);
        self.write_notification(bytes).await;
        if let Some(warning) = self.notifier.finish().await {
            self.notify_failed(&warning).await;
        }
    }

    async fn write_notification(&mut self, bytes: Vec<u8>) {
        // A detached run has lost its terminal.
        if self.stderr.is_terminal() {
            self.stderr.write_sequence(bytes).await;
        }
    }

    /// Shows that the user's command for notifications has failed.
    pub(super) async fn notify_failed(&mut self, warning: &str) {
        let text = format!("{}! {warning}\n", self.progress.finish_line());
        self.stderr.write(text.into_bytes()).await;
    }
}
