//! A text buffer with a cursor, the usual editing actions and undo.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use crate::keymap::EditAction;
use crate::text::width;

/// Maximum number of undo steps.
const UNDO_MAX: usize = 200;

/// Maximum bytes of all undo steps together; a longer text is not saved for undo.
const UNDO_BYTES_MAX: usize = 1 << 20;

/// A text with a cursor between two characters or at an end.
#[derive(Debug, Default)]
pub(super) struct Text {
    written: String,
    /// Byte offset of the cursor.
    cursor: usize,
    /// Text that was cut last, for yank.
    killed: String,
    undo: Vec<(String, usize)>,
    /// True if the last action inserted text. Letters that follow are undone together with it.
    writing: bool,
}

impl Text {
    pub(super) fn as_str(&self) -> &str {
        &self.written
    }

    pub(super) fn split_at_cursor(&self) -> (&str, &str) {
        self.written.split_at(self.cursor)
    }

    /// Byte offset of the cursor.
    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Moves the cursor to a byte offset, which must be a boundary of characters.
    pub(super) fn go(&mut self, to: usize) {
        self.writing = false;
        self.cursor = to;
    }

    /// Text that was cut last.
    pub(super) fn killed(&self) -> &str {
        &self.killed
    }

    pub(super) fn set_killed(&mut self, text: String) {
        self.killed = text;
    }

    pub(super) fn insert(&mut self, text: &str) {
        let continues_word = self.writing && !text.contains(char::is_whitespace);
        if !continues_word {
            self.keep();
        }
        self.written.insert_str(self.cursor, text);
        self.cursor += text.len();
        self.writing = true;
    }

    /// Replaces the `bytes` bytes before the cursor with the text `with`.
    pub(super) fn replace_before(&mut self, bytes: usize, with: &str) {
        self.keep();
        let from = self.cursor.saturating_sub(bytes);
        self.written.replace_range(from..self.cursor, with);
        self.cursor = from + with.len();
    }

    pub(super) fn set(&mut self, text: &str) {
        self.keep();
        text.clone_into(&mut self.written);
        self.cursor = self.written.len();
    }

    pub(super) fn take(&mut self) -> String {
        self.undo.clear();
        self.cursor = 0;
        self.writing = false;
        std::mem::take(&mut self.written)
    }

    /// Replaces a backslash before the cursor, at the end of its line, with a line break. Returns
    /// `false` if there is none.
    pub(super) fn continues(&mut self) -> bool {
        let (before, after) = self.split_at_cursor();
        if !before.ends_with('\\') || !(after.is_empty() || after.starts_with('\n')) {
            return false;
        }
        self.keep();
        self.cursor -= 1;
        self.written.replace_range(self.cursor..=self.cursor, "\n");
        self.cursor += 1;
        true
    }

    /// Applies an action. Returns `false` if there was nothing to do, and for `Newline`, `Up` and
    /// `Down`, which the caller handles.
    pub(super) fn follow(&mut self, edit: EditAction) -> bool {
        self.writing = false;
        let line = self.line();
        let to = match edit {
            EditAction::Left => self.before(),
            EditAction::Right => self.after(),
            EditAction::WordLeft => self.word_before(),
            EditAction::WordRight => self.word_after(),
            EditAction::LineStart => line.start,
            EditAction::LineEnd => line.end,
            EditAction::Backspace => return self.remove(self.before(), self.cursor, false),
            EditAction::Delete => return self.remove(self.cursor, self.after(), false),
            EditAction::KillWord => return self.remove(self.word_before(), self.cursor, true),
            EditAction::KillWordRight => return self.remove(self.cursor, self.word_after(), true),
            EditAction::KillToStart => return self.remove(line.start, self.cursor, true),
            EditAction::KillToEnd if line.end == self.cursor => {
                return self.remove(self.cursor, self.after(), true);
            }
            EditAction::KillToEnd => return self.remove(self.cursor, line.end, true),
            EditAction::Yank => {
                let killed = self.killed.clone();
                self.keep();
                self.written.insert_str(self.cursor, &killed);
                self.cursor += killed.len();
                return !killed.is_empty();
            }
            EditAction::Undo => return self.undo(),
            EditAction::Newline | EditAction::Up | EditAction::Down => return false,
        };
        std::mem::replace(&mut self.cursor, to) != to
    }

    /// Moves the cursor to the line above. Returns `false` if there is none.
    pub(super) fn up(&mut self) -> bool {
        let line = self.line();
        if line.start == 0 {
            return false;
        }
        let column = width(&self.written[line.start..self.cursor]);
        self.cursor = line.start - 1;
        self.go_to(column);
        true
    }

    /// Moves the cursor to the line below. Returns `false` if there is none.
    pub(super) fn down(&mut self) -> bool {
        let line = self.line();
        if line.end == self.written.len() {
            return false;
        }
        let column = width(&self.written[line.start..self.cursor]);
        self.cursor = line.end + 1;
        self.go_to(column);
        true
    }

    fn go_to(&mut self, column: usize) {
        let line = self.line();
        let mut taken = 0;
        self.cursor = line.end;
        for (at, grapheme) in self.written[line.clone()].grapheme_indices(true) {
            if taken >= column {
                self.cursor = line.start + at;
                break;
            }
            taken += width(grapheme);
        }
    }

    pub(super) fn line(&self) -> std::ops::Range<usize> {
        let (before, after) = self.split_at_cursor();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = after.find('\n').map_or(self.written.len(), |at| self.cursor + at);
        start..end
    }

    pub(super) fn before(&self) -> usize {
        let mut cursor = GraphemeCursor::new(self.cursor, self.written.len(), true);
        cursor.prev_boundary(&self.written, 0).ok().flatten().unwrap_or(0)
    }

    pub(super) fn after(&self) -> usize {
        self.after_of(self.cursor)
    }

    /// End of the character at `at`.
    pub(super) fn after_of(&self, at: usize) -> usize {
        let mut cursor = GraphemeCursor::new(at, self.written.len(), true);
        cursor.next_boundary(&self.written, 0).ok().flatten().unwrap_or(self.written.len())
    }

    fn word_before(&self) -> usize {
        let before = &self.written[..self.cursor];
        let word = before.trim_end_matches(|c: char| !c.is_alphanumeric());
        word.trim_end_matches(char::is_alphanumeric).len()
    }

    fn word_after(&self) -> usize {
        let after = &self.written[self.cursor..];
        let word = after.trim_start_matches(|c: char| !c.is_alphanumeric());
        self.written.len() - word.trim_start_matches(char::is_alphanumeric).len()
    }

    /// Removes a range, and keeps it for yank if `kept` is true. Returns `false` if it is empty.
    pub(super) fn remove(&mut self, from: usize, to: usize, kept: bool) -> bool {
        if from >= to {
            return false;
        }
        self.keep();
        let removed: String = self.written.drain(from..to).collect();
        self.cursor = from;
        if kept {
            self.killed = removed;
        }
        true
    }

    fn keep(&mut self) {
        self.writing = false;
        if self.written.len() > UNDO_BYTES_MAX {
            return;
        }
        self.undo.push((self.written.clone(), self.cursor));
        let mut bytes: usize = self.undo.iter().map(|(text, _)| text.len()).sum();
        let mut gone = self.undo.len().saturating_sub(UNDO_MAX);
        for (text, _) in self.undo.iter().skip(gone) {
            if bytes <= UNDO_BYTES_MAX {
                break;
            }
            bytes -= text.len();
            gone += 1;
        }
        self.undo.drain(..gone);
    }

    fn undo(&mut self) -> bool {
        let Some((text, cursor)) = self.undo.pop() else { return false };
        (self.written, self.cursor) = (text, cursor);
        true
    }
}
