//! A text with a cursor: what the usual keys do to it, and the way back.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use crate::tui::keymap::Edit;
use crate::tui::text::width;

/// Steps that can be undone.
const UNDO_MAX: usize = 200;

/// Bytes of all of them.
const UNDO_BYTES_MAX: usize = 1 << 20;

/// A text with a cursor between two characters, or at an end.
#[derive(Debug, Default)]
pub(super) struct Text {
    written: String,
    /// In bytes.
    cursor: usize,
    /// What was removed last as a whole, to be put back.
    killed: String,
    undo: Vec<(String, usize)>,
    /// Letters that are written one after the other are undone together.
    writing: bool,
}

impl Text {
    pub(super) fn as_str(&self) -> &str {
        &self.written
    }

    pub(super) fn around(&self) -> (&str, &str) {
        self.written.split_at(self.cursor)
    }

    pub(super) fn insert(&mut self, text: &str) {
        let goes_on = self.writing && !text.contains(char::is_whitespace);
        if !goes_on {
            self.keep();
        }
        self.written.insert_str(self.cursor, text);
        self.cursor += text.len();
        self.writing = true;
    }

    /// Writes something else instead of the last `bytes` before the cursor.
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

    /// Makes a backslash before the cursor, at the end of its line, the end of the line.
    pub(super) fn continues(&mut self) -> bool {
        let (before, after) = self.around();
        if !before.ends_with('\\') || !(after.is_empty() || after.starts_with('\n')) {
            return false;
        }
        self.keep();
        self.cursor -= 1;
        self.written.replace_range(self.cursor..=self.cursor, "\n");
        self.cursor += 1;
        true
    }

    /// Does what a key means, and returns whether there was something to do.
    pub(super) fn follow(&mut self, edit: Edit) -> bool {
        self.writing = false;
        let line = self.line();
        let to = match edit {
            Edit::Left => self.before(),
            Edit::Right => self.after(),
            Edit::WordLeft => self.word_before(),
            Edit::WordRight => self.word_after(),
            Edit::LineStart => line.start,
            Edit::LineEnd => line.end,
            Edit::Backspace => return self.remove(self.before(), self.cursor, false),
            Edit::Delete => return self.remove(self.cursor, self.after(), false),
            Edit::KillWord => return self.remove(self.word_before(), self.cursor, true),
            Edit::KillWordRight => return self.remove(self.cursor, self.word_after(), true),
            Edit::KillToStart => return self.remove(line.start, self.cursor, true),
            Edit::KillToEnd if line.end == self.cursor => {
                return self.remove(self.cursor, self.after(), true);
            }
            Edit::KillToEnd => return self.remove(self.cursor, line.end, true),
            Edit::Yank => {
                let killed = self.killed.clone();
                self.keep();
                self.written.insert_str(self.cursor, &killed);
                self.cursor += killed.len();
                return !killed.is_empty();
            }
            Edit::Undo => return self.undo(),
            Edit::Newline | Edit::Up | Edit::Down => return false,
        };
        std::mem::replace(&mut self.cursor, to) != to
    }

    /// Moves to the line above; `false`: there is none.
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

    /// Moves to the line below; `false`: there is none.
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

    fn line(&self) -> std::ops::Range<usize> {
        let (before, after) = self.around();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = after.find('\n').map_or(self.written.len(), |at| self.cursor + at);
        start..end
    }

    fn before(&self) -> usize {
        let mut cursor = GraphemeCursor::new(self.cursor, self.written.len(), true);
        cursor.prev_boundary(&self.written, 0).ok().flatten().unwrap_or(0)
    }

    fn after(&self) -> usize {
        let mut cursor = GraphemeCursor::new(self.cursor, self.written.len(), true);
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

    fn remove(&mut self, from: usize, to: usize, kept: bool) -> bool {
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
