//! Background jobs as far as events have reported them, and the text of `/jobs`.

use std::fmt::Write as _;

use posse_actors::conversation::CallId;
use posse_actors::event::Event;
use posse_actors::root_session::SessionHandle;
use posse_base::failure::printable;
use serde_json::{Value, json};

/// Running background jobs: the call id and the summary of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jobs(Vec<(CallId, String)>);

impl Jobs {
    /// Adds a job that has started and removes one that has ended; ignores other events.
    pub fn follow(&mut self, event: &Event) {
        match event {
            Event::JobStarted { call_id, summary } if !self.has(call_id.as_str()) => {
                self.0.push((call_id.clone(), summary.clone()));
            }
            // A lost job may have been started by an earlier process.
            Event::JobEnded { call_id, .. } => self.0.retain(|(id, _)| id != call_id),
            _ => (),
        }
    }

    /// Call id and summary of each running job, in the order in which they started.
    pub fn running(&self) -> impl Iterator<Item = (&CallId, &str)> {
        self.0.iter().map(|(id, summary)| (id, summary.as_str()))
    }

    /// Number of running jobs.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The running jobs for programs: call id and summary of each.
    pub fn list(&self) -> Vec<Value> {
        self.0.iter().map(|(id, summary)| json!({"callId": id, "summary": summary})).collect()
    }

    /// True if a job with this call id is running.
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|(known, _)| known.as_str() == id)
    }

    /// Carries out `/jobs` and returns its text. `which`: id of a running job, which the session is
    /// told to stop; `None` lists the running jobs. An unknown id stops nothing, and the text says
    /// so. Control characters are escaped.
    pub fn asked(&self, which: Option<&str>, session: &SessionHandle) -> String {
        match which {
            None => self.table(),
            Some(id) if self.has(id) => {
                session.stop_job(CallId::new(id));
                format!("(stopping job {})\n", printable(id))
            }
            Some(id) => format!("There is no running job {}; /jobs lists them.\n", printable(id)),
        }
    }

    fn table(&self) -> String {
        let mut text = String::new();
        for (id, summary) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{id}  {}", printable(summary));
        }
        if text.is_empty() {
            text.push_str("No job runs in the background.\n");
        } else {
            text.push_str("/jobs stop ID stops one.\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::event::JobEnd;

    use super::*;

    fn started(id: &str) -> Event {
        Event::JobStarted { call_id: CallId::new(id), summary: "run \u{1b}[2Jserve".to_owned() }
    }

    #[test]
    fn ended_jobs_are_not_listed() {
        let mut jobs = Jobs::default();
        assert_eq!(jobs.table(), "No job runs in the background.\n");
        for id in ["c1", "c2", "c1"] {
            jobs.follow(&started(id));
        }
        assert_eq!(jobs.count(), 2);
        assert!(!jobs.table().contains('\u{1b}'), "{}", jobs.table());
        jobs.follow(&Event::JobEnded {
            call_id: CallId::new("c1"),
            summary: String::new(),
            end: JobEnd::Exited,
            detail: "exit 0".to_owned(),
            exit_code: Some(0),
            bytes: 0,
            duration_ms: 1,
            findings: Vec::new(),
        });
        assert!(jobs.table().starts_with("c2  run "), "{}", jobs.table());
    }
}
