//! What happens between tasks, of which a person hears before the next one.

use posse_actors::event::Event;

use crate::front::plain::{Current, Plain};

impl Current {
    /// Keeps up with what goes on beside, and with what waits.
    pub(super) fn keep_up(&mut self, event: &Event) {
        self.jobs.follow(event);
        self.queue.follow(event);
    }
}

impl Plain<'_> {
    /// What happened since the last task, of which only agents and the ends of jobs are heard.
    pub(super) async fn catch_up(&mut self) {
        while let Some(announcement) = self.current.events.try_next() {
            let origin = announcement.origin();
            let is_below = origin.is_some_and(|origin| origin.parent_invocation_id.is_some());
            let event = announcement.event();
            if is_below || matches!(event, Event::DelegationEnded { .. } | Event::JobEnded { .. }) {
                self.follow(&announcement).await;
            } else {
                self.current.keep_up(event);
            }
        }
    }
}
