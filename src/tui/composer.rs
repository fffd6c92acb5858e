//! Where the user writes: a text of several lines, pastes, and what was written before. Pure: keys
//! in, what it means out; rows for the screen.
//!
//! It knows nothing of the session: what a text means is decided by whoever it is handed to.

mod edit;

use crate::tui::input::{Code, Key};
use crate::tui::keymap::Edit;
use crate::tui::text::{Row, break_rows, clipped, harmless, row, row_width, span};
use crate::tui::theme::{Role, Theme};

use posse_actors::conversation::ContentPart;
use ratatui_core::text::{Line, Span};

use edit::Text;

/// A paste of more lines, or more bytes, is shown as a mark.
const PASTE_LINES_MAX: usize = 10;
const PASTE_BYTES_MAX: usize = 2000;

/// Images that go with one text.
const IMAGES_MAX: usize = 10;

/// What names of images end with.
const IMAGES: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 4096;

/// Whether a text may be the name of an image, as terminals paste one that is dropped on them.
pub(super) fn may_be_image(text: &str) -> bool {
    let name = text.trim();
    let end = name.trim_end_matches(['\'', '"']).to_ascii_lowercase();
    name.len() <= NAME_BYTES_MAX
        && !name.contains('\n')
        && IMAGES.iter().any(|known| end.ends_with(known) && end.len() > known.len())
}

/// Lines that can be recalled.
const HISTORY_MAX: usize = 1000;

/// What a key did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing: it has another meaning, or none.
    Ignored,
    /// The text or the cursor changed.
    Changed,
}

/// What is written, and what was.
#[derive(Debug, Default)]
pub(super) struct Composer {
    text: Text,
    /// Long pastes, behind the marks that stand for them.
    pastes: Vec<(String, String)>,
    pasted: usize,
    /// Images, behind the marks that stand for them.
    images: Vec<(String, ContentPart)>,
    attached: usize,
    /// Those of what was taken last.
    taken: Vec<ContentPart>,
    history: Vec<String>,
    /// Which line of the history is shown, and what was written before.
    recalled: Option<(usize, String)>,
}

impl Composer {
    /// With what was written in earlier processes, oldest first.
    pub(super) fn new(history: &[String]) -> Composer {
        Composer { history: history.to_vec(), ..Composer::default() }
    }

    /// Whether nothing is written.
    pub(super) fn is_empty(&self) -> bool {
        self.text.as_str().is_empty()
    }

    /// What stands before the cursor.
    pub(super) fn before(&self) -> &str {
        self.text.around().0
    }

    /// Whether what is written was written earlier, and only looked at so far.
    pub(super) fn is_recalled(&self) -> bool {
        self.recalled.is_some()
    }

    /// What was written earlier, oldest first.
    pub(super) fn history(&self) -> &[String] {
        &self.history
    }

    /// Writes something else instead of the last `bytes` before the cursor.
    pub(super) fn complete(&mut self, bytes: usize, with: &str) {
        self.text.replace_before(bytes, with);
    }

    /// Puts something before what is written.
    pub(super) fn bring_back(&mut self, text: &str) {
        let written = self.text.as_str();
        let whole = if written.is_empty() { text.to_owned() } else { format!("{text}\n{written}") };
        self.recalled = None;
        self.text.set(&whole);
    }

    /// What is written, as it is shown: pastes are marks.
    pub(super) fn shown(&self) -> &str {
        self.text.as_str()
    }

    /// Writes a character.
    pub(super) fn write(&mut self, c: char) {
        self.recalled = None;
        self.text.insert(c.encode_utf8(&mut [0; 4]));
    }

    /// Takes a paste. A long one is shown as a mark and is whole when it is sent.
    pub(super) fn paste(&mut self, text: &str) {
        self.recalled = None;
        let lines = text.lines().count();
        if lines <= PASTE_LINES_MAX && text.len() <= PASTE_BYTES_MAX {
            self.text.insert(text);
            return;
        }
        self.pasted += 1;
        let size =
            if lines > 1 { format!("{lines} lines") } else { format!("{} bytes", text.len()) };
        let mark = format!("[paste {}: {size}]", self.pasted);
        self.text.insert(&mark);
        self.pastes.push((mark, text.to_owned()));
    }

    /// Follows a key of the table.
    pub(super) fn edit(&mut self, edit: Edit) -> Outcome {
        if !matches!(edit, Edit::Up | Edit::Down) {
            self.recalled = None;
        }
        let changed = match edit {
            Edit::Newline => {
                self.text.insert("\n");
                true
            }
            Edit::Up => self.text.up() || self.recall(-1),
            Edit::Down => self.text.down() || self.recall(1),
            other => self.text.follow(other),
        };
        if changed { Outcome::Changed } else { Outcome::Ignored }
    }

    /// Follows a key that stands in no table: one that writes.
    pub(super) fn key(&mut self, key: Key) -> Outcome {
        match key.writes() {
            Some(c) => {
                self.write(c);
                Outcome::Changed
            }
            None if key == Key::plain(Code::Tab) => {
                self.text.insert("    ");
                Outcome::Changed
            }
            None => Outcome::Ignored,
        }
    }

    /// A line that ends with a backslash goes on: the backslash becomes the end of the line.
    pub(super) fn continues(&mut self) -> bool {
        self.text.continues()
    }

    /// What is written, whole, and nothing is written any more.
    pub(super) fn take(&mut self) -> String {
        let whole = self.whole();
        self.taken = Vec::new();
        for (mark, image) in std::mem::take(&mut self.images) {
            if self.text.as_str().contains(&mark) {
                self.taken.push(image);
            }
        }
        self.text.take();
        self.pastes.clear();
        self.recalled = None;
        whole
    }

    /// Images of what was taken last, once.
    pub(super) fn take_images(&mut self) -> Vec<ContentPart> {
        std::mem::take(&mut self.taken)
    }

    /// What is written, with the pastes that marks stand for.
    pub(super) fn whole(&self) -> String {
        let mut whole = self.text.as_str().to_owned();
        for (mark, text) in &self.pastes {
            whole = whole.replacen(mark, text, 1);
        }
        whole
    }

    /// Takes an image, shown as a mark; it goes with what is written as long as the mark stands
    /// there. `false`: there are too many.
    pub(super) fn attach(&mut self, name: &str, image: ContentPart) -> bool {
        self.images.retain(|(mark, _)| self.text.as_str().contains(mark));
        if self.images.len() >= IMAGES_MAX {
            return false;
        }
        self.recalled = None;
        self.attached += 1;
        let name = name.trim().trim_end_matches(['\'', '"']).rsplit('/').next().unwrap_or_default();
        let mark = format!("[image {}: {}]", self.attached, clipped(&harmless(name), 40));
        self.text.insert(&mark);
        self.images.push((mark, image));
        true
    }

    /// Remembers what was sent.
    pub(super) fn remember(&mut self, text: &str) {
        if self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
            let gone = self.history.len().saturating_sub(HISTORY_MAX);
            self.history.drain(..gone);
        }
    }

    /// Puts something there to go on with.
    pub(super) fn set(&mut self, text: &str) {
        self.pastes.clear();
        self.recalled = None;
        self.text.set(text);
    }

    fn recall(&mut self, step: isize) -> bool {
        let end = self.history.len();
        let (at, draft) = match self.recalled.take() {
            Some((at, draft)) => (at, draft),
            None => (end, self.text.as_str().to_owned()),
        };
        let Some(next) = at.checked_add_signed(step).filter(|next| *next <= end && end > 0) else {
            if at < end {
                self.recalled = Some((at, draft));
            }
            return false;
        };
        if next == at {
            return false;
        }
        match self.history.get(next) {
            Some(line) => {
                self.text.set(line);
                self.recalled = Some((next, draft));
            }
            None => self.text.set(&draft),
        }
        true
    }

    /// The rows of it, at most `rows_max` around the cursor, and where the cursor is in them.
    pub(super) fn rows(
        &self,
        columns: usize,
        rows_max: usize,
        hint: &str,
        theme: Theme,
    ) -> (Vec<Row>, (usize, usize)) {
        let mark = [span(theme, Role::User, "❯ ")];
        if self.is_empty() {
            let hint = clipped(hint, columns.saturating_sub(2));
            let hint = Line::from(vec![mark[0].clone(), span(theme, Role::Dim, hint)]);
            return (vec![hint], (2, 0));
        }
        let under = [Span::raw("  ")];
        let (before, after) = self.text.around();
        let mut rows = Vec::new();
        let mut cursor = (2, 0);
        let line_of_cursor = before.matches('\n').count();
        let column_of_cursor = before.rsplit('\n').next().unwrap_or_default();
        let whole = format!("{before}{after}");
        for (nth, line) in whole.split('\n').enumerate() {
            let first = if nth == 0 { &mark } else { &under };
            if nth == line_of_cursor {
                cursor = cursor_in(column_of_cursor, columns);
                cursor.1 += rows.len();
            }
            rows.extend(break_rows(&harmless(line), columns, first, &under, theme));
        }
        // Behind the last column there is no room for the cursor.
        while rows.len() <= cursor.1 {
            rows.push(Line::from(under.to_vec()));
        }
        if rows.len() > rows_max {
            let from = (cursor.1 + 1).saturating_sub(rows_max).min(rows.len() - rows_max);
            rows = rows.split_off(from);
            rows.truncate(rows_max);
            cursor.1 -= from;
            if from > 0 {
                let more = format!("  ↑ {from} more");
                rows[0] = row(theme, Role::Dim, more);
            }
        }
        (rows, cursor)
    }
}

/// Column and row of a cursor behind `before`, broken like the text itself.
fn cursor_in(before: &str, columns: usize) -> (usize, usize) {
    let under = [Span::raw("  ")];
    let rows = break_rows(&harmless(before), columns, &under, &under, Theme::Plain);
    let last = rows.last().map_or(2, row_width);
    (last, rows.len() - 1)
}

#[cfg(test)]
mod tests;
