//! `/tree` in line mode.

use posse_frontend::RewindExtent;
use posse_frontend::commands::Choice;
use posse_frontend::session_tree::{self, TreeRow};

use crate::plain::LineMode;

impl LineMode<'_> {
    /// Prints the branches of the conversation.
    pub(super) async fn show_tree(&mut self) {
        if let Some(rows) = self.tree_rows().await {
            self.print(&session_tree::text(&rows)).await;
        }
    }

    /// Goes to the place of a row, or labels its prompt.
    pub(super) async fn tree(&mut self, number: usize, label: Option<String>) {
        let Some(rows) = self.tree_rows().await else { return };
        let row = match session_tree::row(&rows, number) {
            Ok(row) => row,
            Err(missing) => return self.print(&format!("{missing}\n")).await,
        };
        if let Some(label) = label {
            let text = session_tree::label(&self.current.session, row, &label);
            return self.print(&format!("{text}\n")).await;
        }
        let place = &row.place;
        match (place.is_current, place.prompt) {
            (true, None) => self.print("You are in this session.\n").await,
            (true, Some(number)) => {
                self.list_choices(Choice::RewindExtent(number), false).await;
            }
            (false, None) => self.resume(&place.session, false).await,
            (false, Some(number)) => {
                self.rewind_of(&place.session, number, RewindExtent::Conversation).await;
            }
        }
    }

    async fn tree_rows(&mut self) -> Option<Vec<TreeRow>> {
        let id = self.current.session.id().to_string();
        self.run_job(self.sessions.tree(&id)).await
    }
}
