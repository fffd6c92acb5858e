//! Several drafts: the text in the prompt is put aside and taken up again from a list.

use crate::app::App;
use crate::composer::AsideDraft;
use crate::selector::{SelectorEntry, SelectorKind, in_one_line};
use crate::theme::Role;

/// Maximum number of drafts that are put aside at the same time.
const DRAFTS_MAX: usize = 20;

impl App {
    /// Puts the draft aside. On an empty prompt, opens the list of drafts instead.
    pub(super) fn put_aside(&mut self) {
        if self.aside.len() >= DRAFTS_MAX && !self.composer.is_empty() {
            return self.view.note(Role::Warn, "(too many drafts are put aside)");
        }
        match self.composer.put_aside() {
            Some(draft) => {
                self.aside.push(draft);
                let text = match self.aside.len() {
                    1 => "(1 draft is put aside; the same key on an empty prompt lists it)"
                        .to_owned(),
                    count => format!(
                        "({count} drafts are put aside; the same key on an empty prompt lists them)"
                    ),
                };
                self.view.note(Role::Dim, text);
            }
            None => self.list_drafts(),
        }
    }

    /// Opens the selector of the drafts, the latest first.
    fn list_drafts(&mut self) {
        let entry = |(at, draft): (usize, &AsideDraft)| {
            SelectorEntry::new(at.to_string(), in_one_line(&draft.whole))
        };
        let entries = self.aside.iter().enumerate().rev().map(entry).collect();
        self.open_selector(SelectorKind::Drafts, "drafts", entries, "(no draft is put aside)");
    }

    fn take_draft(&mut self, value: &str) -> Option<AsideDraft> {
        let at: usize = value.parse().ok()?;
        (at < self.aside.len()).then(|| self.aside.remove(at))
    }

    /// Puts a draft back into the prompt. A text that is there is put aside.
    pub(super) fn take_up_draft(&mut self, value: &str) {
        let Some(draft) = self.take_draft(value) else { return };
        let written = self.composer.put_aside();
        self.aside.extend(written);
        self.composer.take_up(draft);
    }

    /// Deletes a draft, and shows the others.
    pub(super) fn delete_draft(&mut self, value: &str) {
        self.selector = None;
        if self.take_draft(value).is_some() && !self.aside.is_empty() {
            self.list_drafts();
        }
    }

    /// The text of the prompt, and those of the drafts that were put aside, to save them.
    pub(crate) fn drafts_text(&self) -> String {
        let mut text = self.composer.expanded_text();
        for draft in self.aside.iter().rev() {
            if !text.trim().is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&draft.whole);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use crate::testing::TestScreen;

    fn aside() -> KeyEvent {
        KeyEvent::new(KeyCode::Char('s'), KeyModifiers::ALT)
    }

    fn press(stage: &mut TestScreen, code: KeyCode) {
        stage.presses(KeyEvent::from(code));
    }

    #[test]
    fn drafts_are_put_aside_and_taken_up_with_their_pastes() {
        let mut stage = TestScreen::new();
        stage.types("first");
        stage.app.composer.paste(&"line\n".repeat(30));
        stage.presses(aside());
        assert!(stage.app.composer.is_empty());
        assert!(stage.screen(80, 24).contains("(1 draft is put aside"));
        stage.types("second");
        stage.presses(aside());
        stage.types("third");
        assert!(stage.app.drafts_text().starts_with("third\n\nsecond\n\nfirstline\n"));
        // On an empty prompt the key lists them, the latest first.
        stage.presses(aside());
        stage.presses(aside());
        let screen = stage.screen(80, 24);
        assert!(screen.contains("▸ third") && screen.contains("Enter takes it up"), "{screen}");
        press(&mut stage, KeyCode::Down);
        press(&mut stage, KeyCode::Delete);
        let screen = stage.screen(80, 24);
        assert!(!screen.contains("  second\n") && screen.contains("first"), "{screen}");
        press(&mut stage, KeyCode::Down);
        press(&mut stage, KeyCode::Enter);
        assert_eq!(stage.app.composer.shown(), "first[paste 1: 30 lines]");
        assert_eq!(stage.app.composer.expanded_text(), format!("first{}", "line\n".repeat(30)));
        // Taking up a draft puts a text that is there aside.
        stage.app.take_up_draft("0");
        assert_eq!(stage.app.composer.shown(), "third");
        assert_eq!(stage.app.aside.len(), 1);
        assert!(stage.app.aside[0].whole.starts_with("firstline"));
    }
}
