//! Leaving, and what stands in its way: something that runs, or that would end with the session.

use std::time::Duration;

use crate::failure::Exit;
use crate::tui::app::{AGAIN, App, Effect};
use crate::tui::theme::Role;

/// What was said to somebody who wanted to leave.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// When that was, while something runs.
    pub(super) refused: Option<Duration>,
    /// It was said what ends with the session; who wants to leave again, does.
    pub(super) warned: bool,
}

impl App {
    /// Leaves; first says what would end with the session, once.
    pub(super) fn leave(&mut self) -> Vec<Effect> {
        let count = |count: usize, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            many => Some(format!("{many} {what}s")),
        };
        let at_work = [count(self.view.agents(), "agent"), count(self.jobs.count(), "job")];
        let at_work: Vec<String> = at_work.into_iter().flatten().collect();
        if at_work.is_empty() || self.leaving.warned {
            return vec![Effect::Leave(Exit::Done)];
        }
        self.leaving.warned = true;
        let text = format!(
            "! {} in the background would end with the session: Ctrl+D or /exit again leaves",
            at_work.join(" and ")
        );
        self.view.note(Role::Warn, text);
        Vec::new()
    }

    /// Whether somebody wanted to leave a moment ago while something runs.
    pub(super) fn may_not_leave(&self, now: Duration) -> bool {
        self.leaving.refused.is_some_and(|at| now.saturating_sub(at) < AGAIN)
    }
}
