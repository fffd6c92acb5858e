//! The selector of the branches of the conversation.

use posse_frontend::session_tree::TreeRow;

use crate::app::{App, Effect};
use crate::selector::{SelectorEntry, SelectorKind, in_one_line};

impl App {
    /// Opens the selector of the branches; the row at which the conversation stands is selected.
    pub(crate) fn open_tree(&mut self, rows: &[TreeRow]) {
        let entry = |(at, row): (usize, &TreeRow)| {
            SelectorEntry::new((at + 1).to_string(), in_one_line(&row.line()))
        };
        let entries = rows.iter().enumerate().map(entry).collect();
        let nothing = "(the session is not stored, so it has no branches)";
        self.open_selector(SelectorKind::Tree, "branches of the conversation", entries, nothing);
        if let (Some(selector), Some(here)) =
            (&mut self.selector, rows.iter().position(|row| row.is_here))
        {
            selector.chosen = here;
        }
    }

    /// Goes to the place of the row with this number.
    pub(super) fn go_to_tree_row(&mut self, number: &str) {
        self.view.push_user_input(format!("/tree {number}"));
        if let Ok(row) = number.parse() {
            self.effects.push(Effect::Tree(row, None));
        }
    }

    /// Puts the command that labels the prompt of this row into the prompt, for the label.
    pub(super) fn label_tree_row(&mut self, number: &str) {
        self.composer.set(&format!("/tree {number} "));
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use posse_frontend::session_tree::{TreePrompt, TreeSession, rows};

    use super::*;
    use crate::testing::TestScreen;

    fn opened() -> TestScreen {
        let prompt = |number, text: &str| TreePrompt {
            number,
            record: 2,
            text: text.to_owned(),
            label: None,
        };
        let mut stage = TestScreen::new();
        let session = TreeSession {
            id: "a".to_owned(),
            prompts: vec![prompt(1, "one"), prompt(2, "two")],
            ..TreeSession::default()
        };
        stage.app.open_tree(&rows(&[session], "a"));
        stage
    }

    #[test]
    fn enter_goes_to_the_row_and_a_key_labels_it() {
        let mut stage = opened();
        let screen = stage.screen(80, 24);
        assert!(screen.contains("▸ ●   2. two") && screen.contains("Ctrl+T labels it"), "{screen}");
        stage.presses(KeyEvent::from(KeyCode::Up));
        let effects = stage.presses(KeyEvent::from(KeyCode::Enter));
        assert_eq!(effects, [Effect::Tree(2, None)]);
        let mut stage = opened();
        stage.presses(KeyEvent::new(KeyCode::Char('t'), KeyModifiers::CONTROL));
        assert_eq!(stage.app.composer.shown(), "/tree 3 ");
        assert!(stage.app.selector.is_none() && stage.app.effects.is_empty());
    }
}
