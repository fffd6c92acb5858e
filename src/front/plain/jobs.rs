//! Commands in the background, as a person sees them between and during tasks.

use std::fmt::Write as _;

use posse_actors::conversation::CallId;
use posse_actors::event::Event;

use crate::failure::printable;
use crate::front::plain::{Current, Plain};

impl Current {
    /// Keeps up with which there are.
    pub(super) fn follow_jobs(&mut self, event: &Event) {
        match event {
            Event::JobStarted { call_id, summary } => {
                self.jobs.push((call_id.clone(), summary.clone()));
            }
            Event::JobEnded { call_id, .. } => self.jobs.retain(|(id, _)| id != call_id),
            _ => (),
        }
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
                self.current.follow_jobs(event);
            }
        }
    }

    /// `/jobs` while nothing else runs.
    pub(super) async fn jobs(&mut self, which: Option<String>) {
        self.catch_up().await;
        self.list_jobs(which).await;
    }

    /// Lists them, or stops one.
    pub(super) async fn list_jobs(&mut self, which: Option<String>) {
        let Some(id) = which else {
            let mut text = String::new();
            for (id, summary) in &self.current.jobs {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{id}  {}", printable(summary));
            }
            if text.is_empty() {
                text.push_str("Nothing runs in the background.\n");
            }
            return self.say(&text).await;
        };
        let text = if self.current.jobs.iter().any(|(known, _)| known.as_str() == id) {
            self.current.session.stop_job(CallId::new(id));
            "(told to stop)\n".to_owned()
        } else {
            format!("No job {} runs; /jobs lists them.\n", printable(&id))
        };
        self.say(&text).await;
    }
}
