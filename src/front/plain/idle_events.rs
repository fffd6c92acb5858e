//! Events that arrive between tasks and are shown before the next task.

use posse_actors::event::Event;

use crate::plain::{Current, LineMode};

impl Current {
    /// Updates the lists of background jobs and of queued messages, and the mark of a restore, from an
    /// event.
    pub(super) fn update(&mut self, event: &Event) {
        self.jobs.follow(event);
        self.queue.follow(event);
        self.is_restored |= matches!(event, Event::CheckpointRestored { .. });
    }
}

impl LineMode<'_> {
    /// Shows the events since the last task: those of subagents, ends of jobs, and answers to tasks
    /// of attached front ends. Before the first task, shows all events since the start except text
    /// deltas. Does not wait for events.
    pub(super) async fn catch_up(&mut self) {
        while let Some(announcement) = self.current.events.try_next() {
            let origin = announcement.origin();
            let is_below = origin.is_some_and(|origin| origin.parent_invocation_id.is_some());
            let event = announcement.event();
            let is_heard = match event {
                Event::DelegationEnded { .. } | Event::JobEnded { .. } => true,
                Event::TextDelta { .. } => false,
                _ => is_below || self.totals.prompts == 0,
            };
            if is_heard {
                self.follow(&announcement).await;
            } else {
                self.current.update(event);
                self.note_work(&announcement);
            }
            if let Event::InvocationCompleted { .. } = event {
                // It was not shown live.
                self.progress.shown_live = false;
                self.show_answer(&announcement).await;
            }
        }
    }
}
