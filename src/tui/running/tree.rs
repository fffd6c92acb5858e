//! `/tree`: goes to a place among the branches of the conversation, or labels a prompt.

use posse_frontend::RewindExtent;
use posse_frontend::session_tree::{self, TreeRow};

use crate::running::Tui;
use crate::running::commands::READING_SESSIONS;
use crate::running::session::LookupResult;
use crate::theme::Role;

impl Tui<'_> {
    /// Starts a lookup that reads the tree.
    pub(super) fn look_up_tree(
        &mut self,
        found: impl FnOnce(Vec<TreeRow>) -> LookupResult + Send + 'static,
    ) {
        let rows = self.environment.tree(&self.app.session);
        self.look_up(READING_SESSIONS, rows, found);
    }

    /// Goes to the place of a row, as `/resume` and `/rewind` do, or labels its prompt.
    pub(super) fn use_tree_row(&mut self, rows: &[TreeRow], number: usize, label: Option<String>) {
        let row = match session_tree::row(rows, number) {
            Ok(row) => row,
            Err(missing) => return self.app.view.note(Role::Warn, missing),
        };
        if let Some(label) = label {
            if let Some(current) = &self.current {
                let text = session_tree::label(&current.session, row, &label);
                self.app.view.note(Role::Dim, text);
            }
            return;
        }
        let place = &row.place;
        match (place.is_current, place.prompt) {
            (true, None) => self.app.view.note(Role::Dim, "(you are in this session)"),
            (true, Some(number)) => {
                let points = self.environment.rewind_points(&self.app.session);
                let to = move |points| LookupResult::RewindExtents(number, points);
                self.look_up(READING_SESSIONS, points, to);
            }
            (false, None) => self.find_session(&place.session, false),
            (false, Some(number)) => {
                let extent = RewindExtent::Conversation;
                let ready = self.environment.rewind(&place.session, number, extent);
                let to = move |rewind| LookupResult::Rewind(number, extent, rewind);
                self.look_up(READING_SESSIONS, ready, to);
            }
        }
    }
}
