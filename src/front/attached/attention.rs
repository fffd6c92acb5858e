//! Notifications of an attached client for a person at a terminal: of a question that waits, and of
//! the end of a long task.

use std::time::{Duration, Instant};

use posse_actors::event::{Announcement, Event};

use crate::attached::person::Person;

/// Duration of the task of the main agent, as far as this client has seen it.
#[derive(Debug, Default)]
pub(super) struct TaskTime {
    begun: Option<Instant>,
}

impl TaskTime {
    /// Registers an event of the session. Returns how the task of the main agent ended and its
    /// duration, if `announcement` says so. `None` for a task that ended before this client
    /// attached, or that a person stopped.
    fn follow(&mut self, announcement: &Announcement) -> Option<(&'static str, Duration)> {
        let is_main = announcement.origin().is_some_and(|from| from.parent_invocation_id.is_none());
        if !is_main {
            return None;
        }
        match announcement.event() {
            Event::InvocationStarted { .. } => {
                self.begun = Some(Instant::now());
                None
            }
            Event::InvocationCompleted { .. } => Some(("done", self.begun.take()?.elapsed())),
            Event::InvocationFailed { .. } => Some(("failed", self.begun.take()?.elapsed())),
            Event::InvocationCancelled { .. } => {
                self.begun = None;
                None
            }
            _ => None,
        }
    }
}

impl Person<'_> {
    /// Sends a notification if `announcement` ends a long task. `is_new`: false for an event of the
    /// history.
    pub(super) async fn follow_attention(&mut self, announcement: &Announcement, is_new: bool) {
        self.notifier.follow(announcement.event());
        let ended = self.task.follow(announcement);
        if let Some((label, took)) = ended.filter(|_| is_new) {
            let bytes = self.notifier.ended_unseen(label, took);
            self.write_sequence(bytes).await;
        }
    }

    /// Registers the question that waits for this client now.
    pub(super) fn question_waits(&mut self) {
        self.notifier.question(self.questions.current());
    }

    /// Sends the notification that is due.
    pub(super) async fn notify(&mut self) {
        let bytes = self.notifier.due();
        self.write_sequence(bytes).await;
    }

    async fn write_sequence(&mut self, bytes: Vec<u8>) {
        if self.stderr.is_terminal() && !bytes.is_empty() {
            self.stderr.write_sequence(bytes).await;
        }
    }
}
