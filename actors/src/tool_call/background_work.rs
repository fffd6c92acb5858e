//! Background work that an agent must know after its start was removed from the history: subagents,
//! jobs, and open permission requests.

use crate::event::Origin;
use crate::tool_call::Services;

/// Maximum number of lines.
const LINES_MAX: usize = 32;

impl Services {
    /// Background work below `origin`, one line each.
    pub(crate) fn background_work(&self, origin: &Origin) -> Vec<String> {
        let agents = self
            .delegation_handle
            .iter()
            .flat_map(|delegation_handle| delegation_handle.background_work(origin));
        let work = self.tools.iter().flat_map(|tool| tool.background_work(origin));
        let open = self.book.open_below(origin);
        agents.chain(work).chain(open).take(LINES_MAX).collect()
    }
}
