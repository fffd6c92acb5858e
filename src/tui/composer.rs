//! The prompt editor: a text of several lines with pastes, images and history. Pure: takes keys,
//! returns text and rows for the screen.
//!
//! It does not know the session: the caller decides the meaning of a text.

mod edit;
mod vim;

use crate::input::character;
use crate::keymap::EditAction;
use crate::text::{TextRow, break_rows, clipped, columns_of, row, sanitize, span};
use crate::theme::{Role, Theme};

use crossterm::event::{KeyCode, KeyEvent};
use posse_actors::conversation::ContentPart;
use ratatui::text::{Line, Span};

use edit::Text;
use vim::{Vim, VimMode, VimOutcome};

/// Maximum number of lines of a paste that is shown in full. A longer one is shown as a
/// placeholder.
const PASTE_LINES_MAX: usize = 10;
/// Maximum number of bytes of a paste that is shown in full.
const PASTE_BYTES_MAX: usize = 2000;

/// Maximum number of images in one prompt.
const IMAGES_MAX: usize = 10;

/// File name extensions of images.
const IMAGES: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// Maximum bytes of a text that may be a file name.
const NAME_BYTES_MAX: usize = 4096;

/// Returns `true` if a text looks like the file name of an image, as terminals paste it on drag and
/// drop: one line that ends with a known extension. The file system is not accessed.
pub(super) fn may_be_image(text: &str) -> bool {
    let name = text.trim();
    let end = name.trim_end_matches(['\'', '"']).to_ascii_lowercase();
    name.len() <= NAME_BYTES_MAX
        && !name.contains('\n')
        && IMAGES.iter().any(|known| end.ends_with(known) && end.len() > known.len())
}

/// Maximum number of texts in the history; the oldest are dropped.
const HISTORY_MAX: usize = 1000;

/// A draft that was put aside.
#[derive(Debug)]
pub(super) struct AsideDraft {
    text: String,
    /// The text with the placeholders of pastes replaced by the pastes.
    pub(super) whole: String,
    pastes: Vec<(String, String)>,
    images: Vec<(String, ContentPart)>,
}

/// The prompt editor: its text, pastes, images and history.
#[derive(Debug, Default)]
pub(super) struct Composer {
    text: Text,
    /// Long pastes: placeholder and text of each.
    pastes: Vec<(String, String)>,
    pasted: usize,
    /// Images: placeholder and content of each.
    images: Vec<(String, ContentPart)>,
    attached: usize,
    /// Images of the text that was submitted last.
    taken: Vec<ContentPart>,
    /// Submitted texts, also of earlier processes, oldest first.
    pub(super) history: Vec<String>,
    /// Index of the recalled history line, and the text before recalling; `None` if the text is not
    /// a recalled line.
    recalled: Option<(usize, String)>,
    /// Vim keys; `None` if they are not used.
    vim: Option<Vim>,
}

impl Composer {
    /// Creates an empty prompt with a history, oldest line first.
    pub(super) fn new(history: &[String]) -> Composer {
        Composer { history: history.to_vec(), ..Composer::default() }
    }

    /// Returns `true` if the prompt is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.text.as_str().is_empty()
    }

    /// Text before the cursor.
    pub(super) fn before(&self) -> &str {
        self.text.split_at_cursor().0
    }

    /// Returns `true` if the text was recalled from the history and only the keys up and down were
    /// used since.
    pub(super) fn is_recalled(&self) -> bool {
        self.recalled.is_some()
    }

    /// Replaces the `bytes` bytes before the cursor with the text `with`.
    pub(super) fn complete(&mut self, bytes: usize, with: &str) {
        self.text.replace_before(bytes, with);
    }

    /// Inserts `text` before the text that is in the prompt, on lines of its own.
    pub(super) fn restore_text(&mut self, text: &str) {
        let written = self.text.as_str();
        let whole = if written.is_empty() { text.to_owned() } else { format!("{text}\n{written}") };
        self.recalled = None;
        self.text.set(&whole);
    }

    /// The text as displayed, with placeholders.
    pub(super) fn shown(&self) -> &str {
        self.text.as_str()
    }

    /// Inserts a character.
    pub(super) fn write(&mut self, c: char) {
        self.recalled = None;
        self.text.insert(c.encode_utf8(&mut [0; 4]));
    }

    /// Inserts a paste. A long one is shown as a placeholder and is submitted in full.
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

    /// Placeholder and text of the long paste on whose placeholder, or directly behind it, the cursor
    /// is; `None` if it is on none.
    pub(super) fn paste_at_cursor(&self) -> Option<(&str, &str)> {
        let (before, _) = self.text.split_at_cursor();
        let whole = self.text.as_str();
        self.pastes.iter().find_map(|(mark, text)| {
            let start = whole.find(mark)?;
            let is_on = (start..=start + mark.len()).contains(&before.len());
            is_on.then_some((mark.as_str(), text.as_str()))
        })
    }

    /// Applies an edit action; `Up` in the first line and `Down` in the last line browse the
    /// history. Returns `false` if nothing changed.
    pub(super) fn edit(&mut self, edit: EditAction) -> bool {
        if !matches!(edit, EditAction::Up | EditAction::Down) {
            self.recalled = None;
        }
        match edit {
            EditAction::Newline => {
                self.text.insert("\n");
                true
            }
            EditAction::Up => self.text.up() || self.browse_history(-1),
            EditAction::Down => self.text.down() || self.browse_history(1),
            other => self.text.follow(other),
        }
    }

    /// Handles a key without a binding: inserts its character, or four spaces for Tab. Other keys
    /// are ignored.
    pub(super) fn key(&mut self, key: KeyEvent) {
        if let Some(c) = character(key) {
            self.character(c);
        } else if key == KeyEvent::from(KeyCode::Tab) {
            self.text.insert("    ");
        }
    }

    /// Inserts a character or, in normal mode of the vim keys, carries out its command.
    fn character(&mut self, c: char) {
        match &mut self.vim {
            Some(vim) if vim.mode == VimMode::Normal => match vim.key(c, &mut self.text) {
                VimOutcome::Vertical(edit) => drop(self.edit(edit)),
                VimOutcome::Done => self.recalled = None,
            },
            _ => self.write(c),
        }
    }

    /// Uses vim keys, beginning in insert mode, or stops to.
    pub(super) fn use_vim_keys(&mut self, is_on: bool) {
        self.vim = is_on.then(Vim::default);
    }

    /// Returns `true` if vim keys are used.
    pub(super) fn has_vim_keys(&self) -> bool {
        self.vim.is_some()
    }

    /// Name of the mode of the vim keys; `None` without them.
    pub(super) fn vim_mode(&self) -> Option<&'static str> {
        self.vim.as_ref().map(|vim| match vim.mode {
            VimMode::Insert => "insert",
            VimMode::Normal => "normal",
        })
    }

    /// Returns `true` in normal mode of the vim keys.
    pub(super) fn is_in_normal_mode(&self) -> bool {
        self.vim.as_ref().is_some_and(|vim| vim.mode == VimMode::Normal)
    }

    /// Changes from insert mode of the vim keys to normal mode. Returns `false` if it was not in
    /// insert mode.
    pub(super) fn leave_insert_mode(&mut self) -> bool {
        let Some(vim) = self.vim.as_mut().filter(|vim| vim.mode == VimMode::Insert) else {
            return false;
        };
        vim.leave_insert(&mut self.text);
        true
    }

    /// Replaces a backslash directly before the cursor, at the end of its line, with a line break.
    /// Returns `false` if there is none.
    pub(super) fn continues(&mut self) -> bool {
        self.text.continues()
    }

    /// Returns the full text and clears the prompt and its undo steps. The images whose
    /// placeholders are in the text are then returned by [`take_images`](Composer::take_images).
    pub(super) fn take(&mut self) -> String {
        let whole = self.expanded_text();
        self.taken = Vec::new();
        for (mark, image) in std::mem::take(&mut self.images) {
            if self.text.as_str().contains(&mark) {
                self.taken.push(image);
            }
        }
        self.text.take();
        self.vim.iter_mut().for_each(Vim::insert);
        self.pastes.clear();
        self.recalled = None;
        whole
    }

    /// Takes the text with its pastes and images out of the prompt. `None` if the prompt is blank.
    pub(super) fn put_aside(&mut self) -> Option<AsideDraft> {
        if self.text.as_str().trim().is_empty() {
            return None;
        }
        let draft = AsideDraft {
            text: self.text.as_str().to_owned(),
            whole: self.expanded_text(),
            pastes: std::mem::take(&mut self.pastes),
            images: std::mem::take(&mut self.images),
        };
        self.set("");
        Some(draft)
    }

    /// Replaces the text by a draft that was put aside, with its pastes and images.
    pub(super) fn take_up(&mut self, draft: AsideDraft) {
        self.set(&draft.text);
        (self.pastes, self.images) = (draft.pastes, draft.images);
    }

    /// Takes the images of the text that was submitted last.
    pub(super) fn take_images(&mut self) -> Vec<ContentPart> {
        std::mem::take(&mut self.taken)
    }

    /// The text with the placeholders of pastes replaced by the pastes.
    pub(super) fn expanded_text(&self) -> String {
        let mut whole = self.text.as_str().to_owned();
        for (mark, text) in &self.pastes {
            whole = whole.replacen(mark, text, 1);
        }
        whole
    }

    /// Attaches an image, shown as a placeholder; it is sent as long as the text contains the
    /// placeholder. Returns `false` if there are too many images.
    pub(super) fn attach(&mut self, name: &str, image: ContentPart) -> bool {
        self.images.retain(|(mark, _)| self.text.as_str().contains(mark));
        if self.images.len() >= IMAGES_MAX {
            return false;
        }
        self.recalled = None;
        self.attached += 1;
        let name = name.trim().trim_end_matches(['\'', '"']).rsplit('/').next().unwrap_or_default();
        let mark = format!("[image {}: {}]", self.attached, clipped(&sanitize(name), 40));
        self.text.insert(&mark);
        self.images.push((mark, image));
        true
    }

    /// Adds a submitted text to the history, unless it equals the last entry.
    pub(super) fn remember(&mut self, text: &str) {
        if self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
            let gone = self.history.len().saturating_sub(HISTORY_MAX);
            self.history.drain(..gone);
        }
    }

    /// Replaces the text and forgets the pastes.
    pub(super) fn set(&mut self, text: &str) {
        self.pastes.clear();
        self.recalled = None;
        self.text.set(text);
    }

    fn browse_history(&mut self, step: isize) -> bool {
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

    /// Rows of the prompt, at most `rows_max` around the cursor, and the cursor's column and row in
    /// them. If rows above are left out, the first row gives their number instead of its text. An
    /// empty prompt shows `hint`.
    pub(super) fn rows(
        &self,
        columns: usize,
        rows_max: usize,
        hint: &str,
        theme: Theme,
    ) -> (Vec<TextRow>, (usize, usize)) {
        let mark = [span(theme, Role::User, "❯ ")];
        if self.is_empty() {
            let hint = clipped(hint, columns.saturating_sub(2));
            let hint = Line::from(vec![mark[0].clone(), span(theme, Role::Dim, hint)]);
            return (vec![hint], (2, 0));
        }
        let under = [Span::raw("  ")];
        let (before, after) = self.text.split_at_cursor();
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
            rows.extend(break_rows(&sanitize(line), columns, first, &under, theme));
        }
        // The cursor after the last column needs a row of its own.
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

/// Column and row of a cursor behind `before`, the part of its line before the cursor. The line is
/// broken into rows as in [`Composer::rows`].
fn cursor_in(before: &str, columns: usize) -> (usize, usize) {
    let under = [Span::raw("  ")];
    let rows = break_rows(&sanitize(before), columns, &under, &under, Theme::PLAIN);
    let last = rows.last().map_or(2, |row| columns_of(&row.spans));
    (last, rows.len() - 1)
}

#[cfg(test)]
mod tests;
