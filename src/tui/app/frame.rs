//! Composition of the frame: the visible cells at one moment.

use std::time::Duration;

use posse_actors::event::{TodoItem, TodoStatus};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::app::{App, is_recent, shortcuts};
use crate::painter::ScreenFrame;
use crate::scrollback::Scrollback;
use crate::sgr::sgr_row;
use crate::terminal::ROWS_PER_FRAME_MIN;
use crate::text::{TextRow, clipped, row, sanitize, span, text_rows};
use crate::theme::{Role, Theme};
use crate::view::{QueuedMessage, todo_mark};

/// Text in an empty prompt.
const PLACEHOLDER: &str = "Describe a task (/ for commands, @ for files, ? for keys)";

/// Maximum number of queued messages that are shown.
const QUEUE_SHOWN_MAX: usize = 3;

/// Maximum rows of the preview of a session.
const PREVIEW_ROWS_MAX: usize = 8;

/// Maximum tasks of the list above the prompt, and minimum rows of a terminal that shows it.
const TASKS_SHOWN_MAX: usize = 5;
const TASK_ROWS_MIN: usize = 20;

/// Minimum rows of a terminal that shows the user's status line.
const STATUS_LINE_ROWS_MIN: usize = 10;

/// Rows above a permission request, as they were when it appeared.
#[derive(Debug, Clone)]
pub(super) struct FrozenRows {
    size: (u16, u16),
    rows: Vec<TextRow>,
}

impl App {
    /// Composes the next frame for a terminal of that size. Each finished row is part of one frame
    /// only; while the viewer is open, there are none. An open permission request closes the
    /// viewer.
    pub(crate) fn frame(&mut self, columns: u16, rows: u16, now: Duration) -> ScreenFrame {
        let (columns, rows) = (columns.max(1), rows.max(1));
        let (wide, high) = (usize::from(columns), usize::from(rows));
        if self.prompts.is_open() {
            (self.viewer, self.help) = (None, None);
        }
        if let Some(help) = &mut self.help {
            let live = cells(&help.rows(wide, high, self.theme), columns, rows);
            return ScreenFrame { live, alternate_screen: true, ..ScreenFrame::default() };
        }
        if let Some(viewer) = &mut self.viewer {
            let all = viewer.rows(wide, high, self.theme);
            let live = cells(&all, columns, rows);
            return ScreenFrame { live, alternate_screen: true, ..ScreenFrame::default() };
        }
        let frozen = self.frozen.as_ref().is_some_and(|frozen| frozen.size == (columns, rows));
        let mut finished = Vec::new();
        if !frozen {
            let rows_max = self.rows_per_frame.max(ROWS_PER_FRAME_MIN);
            finished = self.view.take_finished(wide, rows_max, self.theme, now);
        }
        let more = !frozen && self.view.has_finished();
        // All output before a permission request is shown above it.
        let asks = self.prompts.is_open() && !more;
        let (below, cursor) = if asks {
            (self.question(wide, high, now), None)
        } else {
            let (below, cursor) = self.prompt(wide, high, now);
            (below, Some(cursor))
        };
        let room = high.saturating_sub(below.len());
        let mut all = self.above(asks, (columns, rows), room, now);
        let offset = all.len();
        all.extend(below);
        // The lower rows always fit; upper rows are cut.
        let cut = all.len().saturating_sub(high);
        all.drain(..cut);
        let alternate_screen = self.scrollback.is_some();
        let mut lower = 0;
        if let Some(scrollback) = &mut self.scrollback {
            scrollback.add(std::mem::take(&mut finished));
            let before = scrollback.shown(high - all.len());
            lower = before.len();
            all.splice(0..0, before);
            all.resize(high, Line::default());
        }
        let live = cells(&all, columns, u16::try_from(all.len()).unwrap_or(rows));
        let cursor = cursor.map(|(x, y)| {
            let column = u16::try_from(x).unwrap_or(u16::MAX).min(columns - 1);
            let row = (lower + offset + y).saturating_sub(cut);
            (column, u16::try_from(row).unwrap_or(u16::MAX).min(live.area.height.saturating_sub(1)))
        });
        ScreenFrame { finished, live, cursor, alternate_screen, more }
    }

    /// Live rows above the prompt or, if `asks` is true, above the permission request. Rows above a
    /// request are stored on the first call, and returned again while the size stays the same.
    fn above(&mut self, asks: bool, size: (u16, u16), room: usize, now: Duration) -> Vec<TextRow> {
        let wide = usize::from(size.0);
        if let Some(frozen) = self.frozen.as_ref().filter(|frozen| asks && frozen.size == size) {
            let from = frozen.rows.len().saturating_sub(room);
            return frozen.rows[from..].to_vec();
        }
        let mut rows = self.view.live_rows(wide, room, self.theme, now);
        if asks {
            self.frozen = Some(FrozenRows { size, rows: rows.clone() });
            return rows;
        }
        self.frozen = None;
        let mut extra = self.view.banner(wide, self.theme, now);
        if let Some(note) = &self.view.mode_note {
            let note = text_rows(self.theme, Role::Dim, &sanitize(note), wide);
            extra.splice(..0, note);
        }
        if self.busy && usize::from(size.1) >= TASK_ROWS_MIN {
            extra.extend(todo_rows(self.view.open_todos(), wide, self.theme));
        }
        let mut add = |text: &str| extra.push(row(self.theme, Role::Dim, clipped(text, wide)));
        for waiting in self.view.queue.iter().take(QUEUE_SHOWN_MAX) {
            let when = waiting.timing(self.busy);
            add(&format!("⤷ {when}: {}", sanitize(&waiting.text).replace('\n', " ⏎ ")));
        }
        let left = self.view.queue.len().saturating_sub(QUEUE_SHOWN_MAX);
        if left > 0 {
            add(&format!("⤷ and {left} more"));
        }
        if self.view.queue.iter().any(QueuedMessage::is_own) {
            add("  Alt+Up edits the last one, /queue lists all");
        }
        let room = room.saturating_sub(extra.len() + 2);
        let cut = rows.len().saturating_sub(room);
        rows.drain(..cut);
        // A blank row separates these from the transcript.
        if !extra.is_empty() {
            rows.push(Line::default());
            rows.extend(extra);
        }
        rows
    }

    fn question(&mut self, wide: usize, high: usize, now: Duration) -> Vec<TextRow> {
        let drafted = !self.composer.is_empty();
        let high = high.saturating_sub(usize::from(drafted) + 1);
        let mut rows = self.prompts.rows(wide, high, &self.view.status, self.theme, now);
        if drafted {
            let draft = sanitize(self.composer.shown()).replace('\n', " ⏎ ");
            let text = clipped(&format!("  your draft is kept: {draft}"), wide);
            rows.push(row(self.theme, Role::Dim, text));
        }
        rows
    }

    /// The prompt with its selector or completion list above and the status bar below. Returns the
    /// rows, and column and row of the cursor in them.
    fn prompt(&self, wide: usize, high: usize, now: Duration) -> (Vec<TextRow>, (usize, usize)) {
        let theme = self.theme;
        let mut rows: Vec<TextRow> = Vec::new();
        let mut filter = None;
        match &self.selector {
            Some(selector) => {
                rows.extend(selector.rows(wide, high, theme));
                // Typed letters go to the filter.
                filter = Some((selector.cursor_column(), rows.len() - 1));
                // The prompt and the status row stay visible.
                let room = high.saturating_sub(rows.len() + 4).min(PREVIEW_ROWS_MAX);
                rows.extend(selector.preview_rows(wide, room, theme));
            }
            None if high > 4 => rows.push(Line::from(span(theme, Role::Dim, "─".repeat(wide)))),
            None => (),
        }
        if self.composer.shown() == shortcuts::SIGN && self.selector.is_none() {
            let shown = shortcuts::rows(wide, &self.keymap, theme);
            // The prompt and the status row stay visible.
            rows.extend(shown.into_iter().take(high.saturating_sub(4)));
        }
        if let Some(completion) = &self.completion {
            rows.extend(completion.rows(wide, (high / 2).max(1), theme));
        }
        let hint = if filter.is_some() {
            ""
        } else if self.busy {
            "Enter: send at the next step · Alt+Enter: after the answer"
        } else {
            PLACEHOLDER
        };
        let own = self.status_line.as_deref().filter(|_| high >= STATUS_LINE_ROWS_MIN);
        let below = 1 + usize::from(own.is_some());
        let room = (high.saturating_sub(rows.len() + below)).clamp(1, (high / 2).max(1));
        let (written, cursor) = self.composer.rows(wide, room, hint, theme);
        let cursor = filter.unwrap_or((cursor.0, rows.len() + cursor.1));
        rows.extend(written);
        rows.extend(own.map(|line| sgr_row(line, wide, theme)));
        rows.push(self.last_row(wide, now));
        (rows, cursor)
    }

    fn last_row(&self, wide: usize, now: Duration) -> TextRow {
        let below = self.scrollback.as_ref().map_or(0, Scrollback::below);
        let warning = if let Some(name) = self.awaits_key_for {
            &format!("press the new key of {name} (Esc: change nothing)")
        } else if is_recent(self.cancelled, now) {
            if self.busy {
                "stopping … Ctrl+C again exits at once"
            } else {
                "Ctrl+C again exits (or Ctrl+D, /exit)"
            }
        } else if self.busy && is_recent(self.exit_refused, now) {
            "a task runs: Esc stops it, /exit stops it and exits"
        } else if below > 0 {
            &format!("{below} rows below: PgDn scrolls down")
        } else if self.stopping {
            "stopping …"
        } else {
            let lookup = self.lookup_row(wide, now);
            return lookup.unwrap_or_else(|| self.view.status.row(wide, self.theme));
        };
        row(self.theme, Role::Warn, clipped(warning, wide))
    }
}

/// Rows of the task list: those around the current task, at most [`TASKS_SHOWN_MAX`].
fn todo_rows(todos: &[TodoItem], columns: usize, theme: Theme) -> Vec<TextRow> {
    let is_open =
        |item: &TodoItem| matches!(item.status, TodoStatus::Pending | TodoStatus::InProgress);
    let current = todos.iter().position(is_open).unwrap_or_default();
    // One finished task is shown above the current one.
    let from = current.saturating_sub(1).min(todos.len().saturating_sub(TASKS_SHOWN_MAX));
    let shown = todos.iter().skip(from).take(TASKS_SHOWN_MAX);
    shown.map(|item| todo_row(item, columns, theme)).collect()
}

fn todo_row(item: &TodoItem, columns: usize, theme: Theme) -> TextRow {
    let (mark, role) = todo_mark(item.status);
    let text = format!("  {mark} {}", sanitize(&item.content).replace('\n', " "));
    row(theme, role, clipped(&text, columns))
}

/// Converts rows to cells.
fn cells(rows: &[TextRow], columns: u16, height: u16) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, height.max(1)));
    for (y, row) in (0..height).zip(rows) {
        // The background of a row extends to the right edge.
        buffer.set_style(Rect::new(0, y, columns, 1), Style { bg: row.style.bg, ..Style::new() });
        buffer.set_line(0, y, row, columns);
    }
    buffer
}
