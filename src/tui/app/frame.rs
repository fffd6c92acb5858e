//! What is to be seen at a moment, as cells.

use std::time::Duration;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::Line;

use crate::tui::app::App;
use crate::tui::painter::Frame;
use crate::tui::past::Past;
use crate::tui::terminal::PACE_MIN;
use crate::tui::text::{Row, clipped, harmless, row, span};
use crate::tui::theme::Role;
use crate::tui::view::Waiting;

/// Messages that wait and are shown.
const QUEUE_SHOWN_MAX: usize = 3;

/// The rows above a question, as they were when it appeared.
#[derive(Debug, Clone)]
pub(super) struct Frozen {
    size: (u16, u16),
    rows: Vec<Row>,
}

/// What is shown, and where.
#[derive(Debug, Clone)]
pub(in crate::tui) struct Shown {
    pub(in crate::tui) frame: Frame,
    /// On a screen of its own.
    pub(in crate::tui) apart: bool,
    /// More is finished than one frame takes.
    pub(in crate::tui) more: bool,
}

impl App {
    /// The next frame for a terminal of that many columns and rows.
    pub(in crate::tui) fn frame(&mut self, columns: u16, rows: u16, now: Duration) -> Shown {
        let (columns, rows) = (columns.max(1), rows.max(1));
        let (wide, high) = (usize::from(columns), usize::from(rows));
        if self.questions.is_open() {
            self.viewer = None;
        }
        if let Some(viewer) = &mut self.viewer {
            let all = viewer.rows(wide, high, self.theme);
            let live = cells(&all, columns, rows);
            let frame = Frame { finished: Vec::new(), live, cursor: None };
            return Shown { frame, apart: true, more: false };
        }
        let frozen = self.frozen.as_ref().is_some_and(|frozen| frozen.size == (columns, rows));
        let mut finished = Vec::new();
        if !frozen {
            finished = self.view.take_finished(wide, self.pace.max(PACE_MIN), self.theme, now);
        }
        let more = !frozen && self.view.has_finished();
        // What led to a question stands above it, whole.
        let asks = self.questions.is_open() && !more;
        let (below, cursor) = if asks {
            (self.question(wide, high, now), None)
        } else {
            let (below, cursor) = self.prompt(wide, high, now);
            (below, Some(cursor))
        };
        let room = high.saturating_sub(below.len());
        let above = self.above(asks, (columns, rows), room, now);
        let mut all: Vec<Row> = above;
        let offset = all.len();
        all.extend(below);
        // Whatever does not fit, what is below does.
        let cut = all.len().saturating_sub(high);
        all.drain(..cut);
        let apart = self.past.is_some();
        let mut lower = 0;
        if let Some(past) = &mut self.past {
            past.add(std::mem::take(&mut finished));
            let before = past.shown(high - all.len());
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
        Shown { frame: Frame { finished, live, cursor }, apart, more }
    }

    /// What goes on, above the prompt or the question.
    fn above(&mut self, asks: bool, size: (u16, u16), room: usize, now: Duration) -> Vec<Row> {
        let wide = usize::from(size.0);
        if let Some(frozen) = self.frozen.as_ref().filter(|frozen| asks && frozen.size == size) {
            let from = frozen.rows.len().saturating_sub(room);
            return frozen.rows[from..].to_vec();
        }
        let mut rows = self.view.live_rows(wide, room, self.theme, now);
        if asks {
            self.frozen = Some(Frozen { size, rows: rows.clone() });
            return rows;
        }
        self.frozen = None;
        let mut extra = self.view.banner(wide, self.theme, now);
        for waiting in self.view.queue().iter().take(QUEUE_SHOWN_MAX) {
            let when = waiting.when(self.busy);
            let text = format!("⤷ {when}: {}", harmless(&waiting.text).replace('\n', " ⏎ "));
            extra.push(row(self.theme, Role::Dim, clipped(&text, wide)));
        }
        let left = self.view.queue().len().saturating_sub(QUEUE_SHOWN_MAX);
        if left > 0 {
            extra.push(row(self.theme, Role::Dim, format!("⤷ and {left} more")));
        }
        if self.view.queue().iter().any(Waiting::is_own) {
            let text = clipped("  Alt+Up takes the last one back, /queue shows all", wide);
            extra.push(row(self.theme, Role::Dim, text));
        }
        let room = room.saturating_sub(extra.len() + 2);
        let cut = rows.len().saturating_sub(room);
        rows.drain(..cut);
        // What is shown above the prompt stands apart from what was before it.
        if !extra.is_empty() {
            rows.push(Line::default());
            rows.extend(extra);
        }
        rows
    }

    fn question(&mut self, wide: usize, high: usize, now: Duration) -> Vec<Row> {
        let drafted = !self.composer.is_empty();
        let high = high.saturating_sub(usize::from(drafted) + 1);
        let mut rows = self.questions.rows(wide, high, &self.status.tier, self.theme, now);
        if drafted {
            let draft = harmless(self.composer.shown()).replace('\n', " ⏎ ");
            let text = clipped(&format!("  what you were writing is kept: {draft}"), wide);
            rows.push(row(self.theme, Role::Dim, text));
        }
        rows
    }

    /// What is written, with what can be chosen above it and the state below.
    fn prompt(&self, wide: usize, high: usize, now: Duration) -> (Vec<Row>, (usize, usize)) {
        let theme = self.theme;
        let mut rows: Vec<Row> = Vec::new();
        match &self.selector {
            Some(selector) => rows.extend(selector.rows(wide, theme)),
            None if high > 4 => rows.push(Line::from(span(theme, Role::Dim, "─".repeat(wide)))),
            None => (),
        }
        if let Some(completion) = &self.completion {
            rows.extend(completion.rows(wide, (high / 3).max(1), theme));
        }
        let hint = if self.busy {
            "Enter says it at the next step, Alt+Enter after the answer"
        } else {
            "a task, or /help"
        };
        let room = (high.saturating_sub(rows.len() + 1)).clamp(1, (high / 2).max(1));
        let (written, cursor) = self.composer.rows(wide, room, hint, theme);
        let cursor = (cursor.0, rows.len() + cursor.1);
        rows.extend(written);
        rows.push(self.last_row(wide, now));
        (rows, cursor)
    }

    fn last_row(&self, wide: usize, now: Duration) -> Row {
        let theme = self.theme;
        if self.asks_to_leave(now) {
            let text = if self.busy {
                "stopping … Ctrl+C again leaves at once"
            } else {
                "Ctrl+C again leaves (or Ctrl+D, /exit)"
            };
            return row(theme, Role::Warn, clipped(text, wide));
        }
        if self.busy && self.may_not_leave(now) {
            let text = "something runs: Esc stops it, /exit stops it and leaves";
            return row(theme, Role::Warn, clipped(text, wide));
        }
        if let Some(below) = self.past.as_ref().map(Past::below).filter(|below| *below > 0) {
            let text = format!("{below} rows below: PgDn goes there");
            return row(theme, Role::Warn, clipped(&text, wide));
        }
        if self.stopping {
            return row(theme, Role::Warn, clipped("stopping …", wide));
        }
        self.looking_row(wide, now).unwrap_or_else(|| self.status.row(wide, theme))
    }
}

/// Rows as cells.
fn cells(rows: &[Row], columns: u16, height: u16) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, height.max(1)));
    for (y, row) in (0..height).zip(rows) {
        buffer.set_line(0, y, row, columns);
    }
    buffer
}
