//! Follows the output of a background job that the viewer shows.

use std::time::Duration;

use crate::running::Tui;
use crate::running::session::RequestResult;

/// Time between two reads of the output.
const READ_INTERVAL: Duration = Duration::from_millis(500);

/// Reads of the output.
#[derive(Debug, Default)]
pub(super) struct JobWatch {
    /// Time of the next read, counted from the start of the UI; `None` if no job is shown.
    due: Option<Duration>,
    is_reading: bool,
    /// True if the job had ended before the last read, which then was complete.
    is_complete: bool,
}

impl Tui<'_> {
    /// Starts to read the output again if it is due, on another thread and one read at a time.
    pub(super) fn follow_job(&mut self) {
        let now = self.now();
        let Some(job) = self.app.viewed_job().map(str::to_owned) else {
            self.job_watch =
                JobWatch { is_reading: self.job_watch.is_reading, ..JobWatch::default() };
            return;
        };
        let due = *self.job_watch.due.get_or_insert(now + READ_INTERVAL);
        if due > now || self.job_watch.is_reading || self.job_watch.is_complete {
            return;
        }
        let is_complete = !self.app.jobs.has(&job);
        self.job_watch = JobWatch { due: Some(now + READ_INTERVAL), is_reading: true, is_complete };
        let (read, results) = (self.environment.job_output(&job), self.results.clone());
        tokio::task::spawn_blocking(move || {
            results.blocking_send(RequestResult::JobOutput(job, read().ok())).ok();
        });
    }

    /// Shows the output that was read.
    pub(super) fn show_job_output(&mut self, job: &str, output: Option<String>) {
        self.job_watch.is_reading = false;
        if let Some(output) = output {
            self.app.update_job(job, output);
        }
    }

    /// Time until the next read; `None` if there is none.
    pub(super) fn job_wait(&self) -> Option<Duration> {
        let JobWatch { due, is_reading, is_complete } = &self.job_watch;
        let due = due.filter(|_| !is_reading && !is_complete)?;
        Some(due.saturating_sub(self.now()))
    }
}
