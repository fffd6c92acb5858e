//! What goes on while an agent thinks, and what it has to know of although the turn that began it is
//! not shown any more: agents and commands in the background, and questions that are open.

use crate::event::Origin;
use crate::tool_call::Services;

/// More than anybody keeps in mind.
const LINES_MAX: usize = 32;

impl Services {
    /// All of that below `origin`, a line each.
    pub(crate) fn background_work(&self, origin: &Origin) -> Vec<String> {
        let agents = self.desk.iter().flat_map(|desk| desk.background_work(origin));
        let work = self.tools.iter().flat_map(|tool| tool.background_work(origin));
        let open = self.book.open_below(origin);
        agents.chain(work).chain(open).take(LINES_MAX).collect()
    }
}
