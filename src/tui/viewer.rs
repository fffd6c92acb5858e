//! The viewer: full outputs and diffs on the alternate screen.

use crate::diff;
use crate::input::character;
use crate::text::{TextRow, clipped, row, sanitize, text_rows};
use crate::theme::{Role, Theme};
use crate::view::Outputs;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use posse_frontend::session_records::{Changes, FileDiff};
use ratatui::text::Line;

/// A page of the viewer.
#[derive(Debug, Clone)]
struct ViewerPage {
    title: String,
    text: String,
    is_diff: bool,
}

/// An open viewer.
#[derive(Debug)]
pub(super) struct Viewer {
    pages: Vec<ViewerPage>,
    at: usize,
    scroll: usize,
    /// Number of rows of the page, and of its visible rows, when the viewer was last drawn.
    size: (usize, usize),
}

impl Viewer {
    /// A viewer of tool outputs, with one page for each text and for each diff that is not empty,
    /// opened at the last page. `None` if there is no page.
    pub(super) fn of(outputs: &Outputs) -> Option<Viewer> {
        let page = |title: &String, text: &String, is_diff| ViewerPage {
            title: title.clone(),
            text: text.clone(),
            is_diff,
        };
        let pages = outputs.iter().flat_map(|output| {
            let diff = output.diff.as_ref().map(|diff| page(&output.title, diff, true));
            diff.into_iter().chain([page(&output.title, &output.text, false)])
        });
        Viewer::of_pages(pages.filter(|page| !page.text.is_empty()).collect())
    }

    /// A viewer opened at the last page. `None` if there is none.
    fn of_pages(pages: Vec<ViewerPage>) -> Option<Viewer> {
        let at = pages.len().checked_sub(1)?;
        Some(Viewer { pages, at, scroll: 0, size: (0, 0) })
    }

    /// A viewer of one text.
    pub(super) fn of_text(title: &str, text: String) -> Viewer {
        let page = ViewerPage { title: title.to_owned(), text, is_diff: false };
        Viewer { pages: vec![page], at: 0, scroll: 0, size: (0, 0) }
    }

    /// A viewer of file changes, one on each page: the differences from the start of the conversation
    /// from the first one, single edits from the last one. `None` if there are none.
    pub(super) fn of_changes(changes: Changes) -> Option<Viewer> {
        let page = |FileDiff { title, text }| ViewerPage { title, text, is_diff: true };
        let viewer = Viewer::of_pages(changes.diffs.into_iter().map(page).collect())?;
        let at = if changes.is_net { 0 } else { viewer.at };
        Some(Viewer { at, ..viewer })
    }

    /// Handles a key. Returns `false` if the key closes the viewer.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let page = self.size.1.saturating_sub(1).max(1);
        let last = self.size.0.saturating_sub(self.size.1);
        let letter = character(key);
        match (key.code, letter) {
            (KeyCode::Esc, _) | (_, Some('q')) => return false,
            (KeyCode::Char('o' | 'c' | 'd'), None)
                if key.modifiers.contains(KeyModifiers::CONTROL) =>
            {
                return false;
            }
            (KeyCode::Up, _) | (_, Some('k')) => self.scroll = self.scroll.saturating_sub(1),
            (KeyCode::Down | KeyCode::Enter, _) | (_, Some('j')) => self.scroll += 1,
            (KeyCode::PageUp, _) | (_, Some('b')) => self.scroll = self.scroll.saturating_sub(page),
            (KeyCode::PageDown, _) | (_, Some(' ')) => self.scroll += page,
            (KeyCode::Home, _) | (_, Some('g')) => self.scroll = 0,
            (KeyCode::End, _) | (_, Some('G')) => self.scroll = last,
            (KeyCode::Left, _) | (_, Some('p')) if self.at > 0 => {
                (self.at, self.scroll) = (self.at - 1, 0);
            }
            (KeyCode::Right, _) | (_, Some('n')) if self.at + 1 < self.pages.len() => {
                (self.at, self.scroll) = (self.at + 1, 0);
            }
            _ => (),
        }
        self.scroll = self.scroll.min(last);
        true
    }

    /// Rows of the whole screen.
    pub(super) fn rows(&mut self, columns: usize, height: usize, theme: Theme) -> Vec<TextRow> {
        let Some(page) = self.pages.get(self.at) else { return Vec::new() };
        let of = if self.pages.len() > 1 {
            format!("{}/{} ", self.at + 1, self.pages.len())
        } else {
            String::new()
        };
        let title = clipped(&format!("{of}{}", sanitize(&page.title).replace('\n', " ")), columns);
        let all = if page.is_diff {
            diff::rows(&page.text, columns, usize::MAX, theme)
        } else {
            let text = sanitize(page.text.trim_end_matches('\n'));
            text_rows(theme, Role::Text, &text, columns)
        };
        let room = height.saturating_sub(2).max(1);
        self.size = (all.len(), room);
        self.scroll = self.scroll.min(all.len().saturating_sub(room));
        let end = (self.scroll + room).min(all.len());
        let mut rows = vec![row(theme, Role::Strong, title)];
        let total = all.len();
        rows.extend(all.into_iter().skip(self.scroll).take(room));
        rows.resize(room + 1, Line::default());
        let others = if self.pages.len() > 1 { " · ←→ others" } else { "" };
        let hint = format!(
            "rows {}–{end} of {total} · ↑↓ PgUp PgDn Home End{others} · q closes",
            self.scroll + 1
        );
        rows.push(row(theme, Role::Dim, clipped(&hint, columns)));
        rows
    }
}
