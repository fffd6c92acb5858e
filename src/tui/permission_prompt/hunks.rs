//! Hunks of the current request: keys, and the return from the editor.

use crossterm::event::KeyEvent;
use ratatui::text::Span;

use super::{KeyOutcome, PermissionPrompts};
use crate::hunk_form::{self, HunkForm, HunkKey};
use crate::text::{TextRow, escape_invisible, span, wrap};
use crate::theme::{Role, Theme};

impl PermissionPrompts {
    /// Shows the first hunk. Returns `false` if the request has no hunks.
    pub(super) fn begin_hunks(&mut self) -> bool {
        let end_seen = self.end_seen;
        let form = self.open.front_mut().and_then(|open| open.hunks.as_mut());
        let Some(form) = form else { return false };
        form.begin(end_seen);
        self.show_other_text();
        true
    }

    /// Takes the current hunk with the text that the user has edited. `Decided` after the last hunk.
    pub(crate) fn set_hunk(&mut self, text: String) -> KeyOutcome {
        let form = self.open.front_mut().and_then(|open| open.hunks.as_mut());
        match form.map(|form| form.set_text(text)) {
            Some(Ok(key)) => self.apply_hunk_key(key),
            Some(Err(why)) => {
                self.hint = Some(why);
                KeyOutcome::Taken
            }
            None => KeyOutcome::Taken,
        }
    }

    /// The hunks of the current request, while the user answers them.
    pub(super) fn hunks(&self) -> Option<&HunkForm> {
        self.open.front()?.hunks.as_ref().filter(|form| form.walk().is_some())
    }

    /// Returns from the hunks to the request as a whole. Returns `false` if it is answered as a whole
    /// already.
    pub(super) fn leave_hunks(&mut self) -> bool {
        let form = self.open.front_mut().and_then(|open| open.hunks.as_mut());
        let Some(whole_seen) = form.and_then(HunkForm::leave) else { return false };
        self.show_other_text();
        self.end_seen = whole_seen;
        true
    }

    /// Prepares the display of another text of the same request: it has a quiet period of its own.
    fn show_other_text(&mut self) {
        (self.quiet_period, self.scroll, self.end_seen) = (None, 0, false);
        (self.unoffered, self.hint, self.confirming) = (None, None, false);
    }

    fn apply_hunk_key(&mut self, key: HunkKey) -> KeyOutcome {
        match key {
            HunkKey::Next => self.show_other_text(),
            HunkKey::Back => {
                self.leave_hunks();
            }
            HunkKey::Decided(decision) => return self.close(decision),
            HunkKey::Edit(draft) => return KeyOutcome::EditHunk(draft),
            HunkKey::NotSeen => self.hint = Some("not all of it was shown yet".to_owned()),
            HunkKey::NotOffered => self.hint = Some("that key is not offered here".to_owned()),
        }
        KeyOutcome::Taken
    }

    /// Handles a key while hunks are answered. No key belongs to the prompt editor then.
    pub(super) fn answer_hunk(&mut self, key: KeyEvent, counts: bool) -> KeyOutcome {
        let end_seen = self.end_seen;
        let form = self.open.front_mut().and_then(|open| open.hunks.as_mut());
        match form.filter(|_| counts).map(|form| form.key(key, end_seen)) {
            Some(key) => {
                self.hint = None;
                self.apply_hunk_key(key)
            }
            None => KeyOutcome::Taken,
        }
    }

    /// Rows with the keys of a hunk. `dim`: true while keys do not count.
    pub(super) fn hunk_keys(&self, columns: usize, theme: Theme, dim: bool) -> Vec<TextRow> {
        let (strong, text) = if dim { (Role::Dim, Role::Dim) } else { (Role::Strong, Role::Text) };
        let mut spans = Vec::new();
        for (key, what) in hunk_form::KEYS {
            spans.push(span(theme, strong, format!("[{key}]")));
            spans.push(span(theme, text, format!(" {what}  ")));
        }
        if let Some(hint) = &self.hint {
            spans.push(span(theme, Role::Warn, format!("· {}", escape_invisible(hint))));
        }
        wrap(&spans, columns, &[Span::raw("  ")], &[Span::raw("  ")])
    }
}

#[cfg(test)]
mod tests;
