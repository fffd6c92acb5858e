//! Exiting the UI, and the warnings before it when a task or background work is running.

use std::time::Duration;

use posse_base::failure::Exit;

use crate::app::{App, CONFIRM_EXIT_WITHIN, Effect};
use crate::theme::Role;

/// Warnings that were shown on an attempt to exit.
#[derive(Debug, Default)]
pub(super) struct ExitState {
    /// Time of an attempt to exit while a task ran.
    pub(super) refused: Option<Duration>,
    /// The user was warned about background work; the next attempt exits.
    pub(super) warned: bool,
}

impl App {
    /// Exits. If background work would end with the session, the first call only shows a warning.
    pub(super) fn leave(&mut self) -> Vec<Effect> {
        let count = |count: usize, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            many => Some(format!("{many} {what}s")),
        };
        let background = [count(self.view.agents(), "agent"), count(self.jobs.count(), "job")];
        let background: Vec<String> = background.into_iter().flatten().collect();
        if background.is_empty() || self.leaving.warned {
            return vec![Effect::Leave(Exit::Done)];
        }
        self.leaving.warned = true;
        let text = format!(
            "! {} in the background would be stopped: Ctrl+D or /exit again exits",
            background.join(" and ")
        );
        self.view.note(Role::Warn, text);
        Vec::new()
    }

    /// Returns `true` shortly after an attempt to exit while a task runs.
    pub(super) fn exit_was_refused(&self, now: Duration) -> bool {
        self.leaving.refused.is_some_and(|at| now.saturating_sub(at) < CONFIRM_EXIT_WITHIN)
    }
}
