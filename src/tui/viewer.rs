//! The viewer: full outputs and diffs on the alternate screen.

use crate::diff;
use crate::input::{character, ctrl};
use crate::text::{TextRow, clipped, row, sanitize, text_rows};
use crate::theme::{Role, Theme};
use crate::view::Outputs;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use posse_frontend::session_records::{Changes, FileDiff};
use ratatui::text::Line;

/// Maximum characters of a text that is looked for.
const SEARCH_CHARS_MAX: usize = 100;

/// A page of the viewer.
#[derive(Debug, Clone)]
struct ViewerPage {
    title: String,
    text: String,
    is_diff: bool,
}

/// Search in the viewer.
#[derive(Debug, Default)]
struct ViewerSearch {
    /// The text that is looked for; empty if nothing is.
    text: String,
    /// True while the user types it.
    is_typing: bool,
    /// Direction of the next match, which is found when the rows are drawn: `true` forwards.
    wanted: Option<bool>,
    /// Row of the last match on the page.
    found: Option<usize>,
}

/// An open viewer.
#[derive(Debug, Default)]
pub(super) struct Viewer {
    pages: Vec<ViewerPage>,
    at: usize,
    scroll: usize,
    /// Number of rows of the page, and of its visible rows, when the viewer was last drawn.
    size: (usize, usize),
    search: ViewerSearch,
    /// Background job whose output is shown.
    job: Option<String>,
    /// True if the end of the page is shown, also after it has grown.
    at_end: bool,
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
        Some(Viewer { pages, at, ..Viewer::default() })
    }

    /// A viewer of one text.
    pub(super) fn of_text(title: &str, text: String) -> Viewer {
        let page = ViewerPage { title: title.to_owned(), text, is_diff: false };
        Viewer { pages: vec![page], ..Viewer::default() }
    }

    /// A viewer of the output of a background job. It shows the end until the user scrolls up.
    pub(super) fn of_job(job: &str, output: String) -> Viewer {
        let mut viewer = Viewer::of_text(&format!("job {job}"), String::new());
        (viewer.job, viewer.at_end) = (Some(job.to_owned()), true);
        viewer.update(output);
        viewer
    }

    /// Id of the background job whose output is shown.
    pub(super) fn job(&self) -> Option<&str> {
        self.job.as_deref()
    }

    /// Replaces the output of the job.
    pub(super) fn update(&mut self, output: String) {
        let text = if output.is_empty() { "(no output yet)".to_owned() } else { output };
        self.pages.iter_mut().for_each(|page| page.text.clone_from(&text));
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
        if self.search.is_typing {
            self.type_search(key);
            return true;
        }
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
            (_, Some('/')) => {
                self.search = ViewerSearch { is_typing: true, ..ViewerSearch::default() };
            }
            (_, Some('n')) if !self.search.text.is_empty() => self.search.wanted = Some(true),
            (_, Some('N')) if !self.search.text.is_empty() => self.search.wanted = Some(false),
            (KeyCode::Up, _) | (_, Some('k')) => self.scroll = self.scroll.saturating_sub(1),
            (KeyCode::Down | KeyCode::Enter, _) | (_, Some('j')) => self.scroll += 1,
            (KeyCode::PageUp, _) | (_, Some('b')) => self.scroll = self.scroll.saturating_sub(page),
            (KeyCode::PageDown, _) | (_, Some(' ')) => self.scroll += page,
            (KeyCode::Home, _) | (_, Some('g')) => self.scroll = 0,
            (KeyCode::End, _) | (_, Some('G')) => self.scroll = last,
            (KeyCode::Left, _) | (_, Some('p')) if self.at > 0 => {
                self.turn_to(self.at - 1);
            }
            (KeyCode::Right, _) | (_, Some('n')) if self.at + 1 < self.pages.len() => {
                self.turn_to(self.at + 1);
            }
            _ => (),
        }
        self.scroll = self.scroll.min(last);
        self.at_end = self.job.is_some() && self.scroll == last;
        true
    }

    fn turn_to(&mut self, page: usize) {
        (self.at, self.scroll, self.search.found) = (page, 0, None);
    }

    /// Handles a key while the search text is typed.
    fn type_search(&mut self, key: KeyEvent) {
        let search = &mut self.search;
        match key.code {
            KeyCode::Esc => *search = ViewerSearch::default(),
            _ if key == ctrl('c') => *search = ViewerSearch::default(),
            KeyCode::Enter => {
                search.is_typing = false;
                search.wanted = (!search.text.is_empty()).then_some(true);
            }
            KeyCode::Backspace => drop(search.text.pop()),
            _ if key == ctrl('u') => search.text.clear(),
            _ => {
                let room = search.text.chars().count() < SEARCH_CHARS_MAX;
                search.text.extend(character(key).filter(|_| room));
            }
        }
    }

    /// Scrolls to the next match of the search, if one is wanted: on this page or, after its last
    /// row, on the other pages.
    fn find(&mut self, columns: usize, theme: Theme) {
        let Some(forwards) = self.search.wanted.take() else { return };
        let wanted = self.search.text.to_lowercase();
        let count = self.pages.len();
        for turned in 0..=count {
            let rows = self.page_rows(columns, theme);
            let matches =
                |(_, row): &(usize, &TextRow)| text_of(row).to_lowercase().contains(&wanted);
            let before = self.search.found;
            let mut found = rows.iter().enumerate().filter(matches).map(|(at, _)| at);
            let next = if forwards {
                let from = before.map_or(if turned == 0 { self.scroll } else { 0 }, |at| at + 1);
                found.find(|at| *at >= from)
            } else {
                let end = before.unwrap_or(if turned == 0 { self.scroll } else { rows.len() });
                found.rfind(|at| *at < end)
            };
            if let Some(at) = next {
                (self.search.found, self.at_end) = (Some(at), false);
                // The match is not in the first row, so that its context is visible.
                self.scroll = at.saturating_sub(self.size.1 / 3);
                return;
            }
            let step = if forwards { 1 } else { count - 1 };
            self.turn_to((self.at + step) % count);
        }
    }

    fn page_rows(&self, columns: usize, theme: Theme) -> Vec<TextRow> {
        let Some(page) = self.pages.get(self.at) else { return Vec::new() };
        if page.is_diff {
            return diff::rows(&page.text, columns, usize::MAX, theme);
        }
        let text = sanitize(page.text.trim_end_matches('\n'));
        text_rows(theme, Role::Text, &text, columns)
    }

    /// Rows of the whole screen.
    pub(super) fn rows(&mut self, columns: usize, height: usize, theme: Theme) -> Vec<TextRow> {
        let room = height.saturating_sub(2).max(1);
        self.size.1 = room;
        self.find(columns, theme);
        let Some(page) = self.pages.get(self.at) else { return Vec::new() };
        let of = if self.pages.len() > 1 {
            format!("{}/{} ", self.at + 1, self.pages.len())
        } else {
            String::new()
        };
        let title = clipped(&format!("{of}{}", sanitize(&page.title).replace('\n', " ")), columns);
        let mut all = self.page_rows(columns, theme);
        self.size = (all.len(), room);
        let last = all.len().saturating_sub(room);
        self.scroll = if self.at_end { last } else { self.scroll.min(last) };
        if let Some(found) = self.search.found.and_then(|at| all.get_mut(at)) {
            *found = row(theme, Role::Selected, text_of(found));
        }
        let end = (self.scroll + room).min(all.len());
        let mut rows = vec![row(theme, Role::Strong, title)];
        let total = all.len();
        rows.extend(all.into_iter().skip(self.scroll).take(room));
        rows.resize(room + 1, Line::default());
        let shown = format!("rows {}–{end} of {total}", self.scroll + 1);
        let hint = self.hint(&shown);
        rows.push(row(theme, Role::Dim, clipped(&hint, columns)));
        rows
    }

    fn hint(&self, shown: &str) -> String {
        let ViewerSearch { text, is_typing, found, .. } = &self.search;
        if *is_typing {
            return format!("/{}▏ Enter finds it · Esc stops", sanitize(text));
        }
        let others = if self.pages.len() > 1 { " · ←→ others" } else { "" };
        let follows = if self.at_end { " · follows the job" } else { "" };
        let search = match (text.is_empty(), found) {
            (true, _) => "/ finds".to_owned(),
            (false, Some(_)) => format!("n N next \"{}\"", sanitize(text)),
            (false, None) => format!("\"{}\" is not there", sanitize(text)),
        };
        format!("{shown}{follows} · ↑↓ PgUp PgDn End{others} · {search} · q closes")
    }
}

fn text_of(row: &TextRow) -> String {
    row.spans.iter().map(|span| span.content.as_ref()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(viewer: &mut Viewer) -> String {
        viewer.rows(100, 7, Theme::PLAIN).iter().map(|row| text_of(row) + "\n").collect()
    }

    fn types(viewer: &mut Viewer, text: &str) {
        for c in text.chars() {
            let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
            assert!(viewer.key(KeyEvent::from(code)));
        }
    }

    fn lines(from: usize, to: usize) -> String {
        let lines: Vec<String> = (from..to).map(|nth| format!("line {nth}\n")).collect();
        lines.concat()
    }

    #[test]
    fn text_is_found_on_all_pages() {
        let page = |text: String| ViewerPage { title: "t".to_owned(), text, is_diff: false };
        let pages = vec![page(lines(0, 30)), page("no Line 25 here\n".to_owned())];
        let mut viewer = Viewer::of_pages(pages).unwrap();
        screen(&mut viewer);
        types(&mut viewer, "/");
        assert!(screen(&mut viewer).contains("/▏ Enter finds it"));
        types(&mut viewer, "LINE 25\n");
        let shown = screen(&mut viewer);
        assert!(shown.starts_with("2/2 t\nno Line 25") && shown.contains("n N next"), "{shown}");
        types(&mut viewer, "n");
        let shown = screen(&mut viewer);
        assert!(shown.starts_with("1/2 t\nline 24\nline 25\n"), "{shown}");
        types(&mut viewer, "N");
        assert!(screen(&mut viewer).starts_with("2/2"));
        types(&mut viewer, "/zzz\n");
        assert!(screen(&mut viewer).contains("\"zzz\" is not there"));
        types(&mut viewer, "/q");
        viewer.key(KeyEvent::from(KeyCode::Esc));
        assert!(!viewer.key(KeyEvent::from(KeyCode::Esc)), "the second Esc closes");
    }

    #[test]
    fn output_of_a_job_is_followed_until_the_user_scrolls() {
        let mut viewer = Viewer::of_job("c1", lines(0, 9));
        assert!(screen(&mut viewer).contains("line 8\n"));
        viewer.update(lines(0, 20));
        let shown = screen(&mut viewer);
        assert!(shown.contains("line 19\n") && shown.contains("follows the job"), "{shown}");
        viewer.key(KeyEvent::from(KeyCode::Up));
        viewer.update(lines(0, 30));
        assert!(screen(&mut viewer).contains("line 18\n"));
        viewer.key(KeyEvent::from(KeyCode::End));
        viewer.update(lines(0, 40));
        assert!(screen(&mut viewer).contains("line 39\n"));
    }
}
