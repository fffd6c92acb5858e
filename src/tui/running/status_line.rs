//! The status line command of the user, and the git branch: facts of the status row that are found
//! beside the event loop.

use std::sync::Arc;
use std::time::Duration;

use posse_actors::event::{Event, PermissionMode};
use posse_frontend::git_branch::git_branch;
use posse_frontend::status_line::{StatusFacts, StatusLineSchedule};

use crate::running::Tui;
use crate::running::session::RequestResult;
use crate::status::network_word;
use crate::theme::Role;

/// Reads of the git branch.
#[derive(Debug, Default)]
pub(super) struct BranchWatch {
    /// True if the branch may have changed since it was read.
    is_stale: bool,
    is_reading: bool,
}

/// The status line command: when it runs, and its failures.
#[derive(Debug, Default)]
pub(super) struct StatusLine {
    schedule: StatusLineSchedule,
    /// True if a failure was reported.
    is_reported: bool,
}

impl Tui<'_> {
    /// Notes that an event may have changed the branch: a tool call or a background job has ended.
    pub(super) fn notice_branch(&mut self, event: &Event) {
        let ended = matches!(
            event,
            Event::ToolCompleted { .. } | Event::ToolFailed { .. } | Event::JobEnded { .. }
        );
        self.branch.is_stale |= ended;
    }

    /// Makes the branch be read again.
    pub(super) fn forget_branch(&mut self) {
        self.branch.is_stale = true;
    }

    /// Starts to read the branch if it may have changed, on another thread and one at a time.
    pub(super) fn follow_branch(&mut self) {
        if !self.branch.is_stale || self.branch.is_reading {
            return;
        }
        self.branch = BranchWatch { is_stale: false, is_reading: true };
        let (folder, results) = (self.folder.clone(), self.results.clone());
        tokio::task::spawn_blocking(move || {
            results.blocking_send(RequestResult::Branch(git_branch(&folder))).ok();
        });
    }

    /// Shows the branch that was read.
    pub(super) fn show_branch(&mut self, branch: Option<String>) {
        self.branch.is_reading = false;
        self.app.view.status.branch = branch;
    }

    /// Time until the status line command starts; `None` if it does not.
    pub(super) fn status_line_wait(&self) -> Option<Duration> {
        self.options.status_line.as_ref()?;
        self.status_line.schedule.wait(self.now())
    }

    /// Adopts the state of the status row for the status line command. Called for each frame, not
    /// for each event.
    pub(super) fn observe_status(&mut self) {
        if self.options.status_line.is_some() {
            self.status_line.schedule.observe(self.status_facts());
        }
    }

    /// Starts the status line command if it is due, on another thread.
    pub(super) fn follow_status_line(&mut self) {
        let now = self.now();
        let Some(command) = &self.options.status_line else { return };
        let Some(input) = self.status_line.schedule.start(now) else { return };
        let (run, results) = (Arc::clone(&command.0), self.results.clone());
        tokio::task::spawn_blocking(move || {
            results.blocking_send(RequestResult::StatusLine(run(input))).ok();
        });
    }

    /// Shows the output of the status line command; an empty one or a failure shows nothing. The
    /// first failure is reported.
    pub(super) fn show_status_line(&mut self, output: Result<String, String>) {
        self.status_line.schedule.ended();
        if let Err(why) = &output
            && !std::mem::replace(&mut self.status_line.is_reported, true)
        {
            let text = format!("! ui.statusLine: {why}; further failures are not reported");
            self.app.view.note(Role::Warn, text);
        }
        self.app.status_line = output.ok().filter(|line| !line.trim().is_empty());
    }

    fn status_facts(&self) -> StatusFacts {
        let status = &self.app.view.status;
        StatusFacts {
            session: self.app.session.clone(),
            cwd: self.folder.to_string_lossy().into_owned(),
            provider: status.provider.clone(),
            model: status.model.clone(),
            effort: status.effort,
            agent: status.agent.clone(),
            permission_mode: status.permission_mode.map(PermissionMode::as_str),
            network: status.network.map(network_word),
            branch: status.branch.clone(),
            context: status.context,
            limit: status.limit,
            cost: status.cost,
            jobs: status.jobs,
        }
    }
}
