//! Tables with columns as wide as their content. A table that does not fit is shown cell by cell.

use pulldown_cmark::Alignment;
use ratatui::text::{Line, Span};

use crate::text::{TextRow, columns_of, span, wrap};
use crate::theme::{Role, Theme};

type Cell = Vec<Span<'static>>;

/// A table that is being parsed.
#[derive(Debug)]
pub(super) struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Cell>>,
    has_head: bool,
}

impl Table {
    /// An empty table with these alignments.
    pub(super) fn new(alignments: Vec<Alignment>) -> Table {
        Table { alignments, rows: Vec::new(), has_head: false }
    }

    /// Splits `left` blank columns of a cell into columns before and after its text, by the
    /// alignment.
    fn blanks(&self, column: usize, left: usize) -> (usize, usize) {
        match self.alignments.get(column) {
            Some(Alignment::Right) => (left, 0),
            Some(Alignment::Center) => (left / 2, left - left / 2),
            Some(Alignment::Left | Alignment::None) | None => (0, left),
        }
    }

    pub(super) fn begin_head(&mut self) {
        self.has_head = true;
        self.begin_row();
    }

    pub(super) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn add(&mut self, cell: Cell) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    pub(super) fn rows(&self, room: usize, theme: Theme) -> Vec<TextRow> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let wide = |nth: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(nth));
            cells.map(|cell| columns_of(cell)).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..count).map(wide).collect();
        if widths.iter().sum::<usize>() + 3 * count.saturating_sub(1) > room {
            return self.rows_by_cell(room, theme);
        }
        let mut rows = Vec::new();
        for (nth, row) in self.rows.iter().enumerate() {
            let mut spans: Vec<Span<'static>> = Vec::new();
            for (column, wide) in widths.iter().enumerate() {
                if column > 0 {
                    spans.push(span(theme, Role::Dim, " │ "));
                }
                let none = Vec::new();
                let cell = row.get(column).unwrap_or(&none);
                let is_head = self.has_head && nth == 0;
                let (before, behind) = self.blanks(column, wide - columns_of(cell));
                if before > 0 {
                    spans.push(Span::raw(" ".repeat(before)));
                }
                spans.extend(cell.iter().cloned().map(|mut span| {
                    if is_head {
                        span.style = span.style.patch(theme.style(Role::Strong));
                    }
                    span
                }));
                if column + 1 < widths.len() && behind > 0 {
                    spans.push(Span::raw(" ".repeat(behind)));
                }
            }
            rows.push(Line::from(spans));
            if self.has_head && nth == 0 {
                let rules: Vec<String> = widths.iter().map(|wide| "─".repeat(*wide)).collect();
                rows.push(Line::from(span(theme, Role::Dim, rules.join("─┼─"))));
            }
        }
        rows
    }

    /// Renders each cell in rows of its own, after the title of its column.
    fn rows_by_cell(&self, room: usize, theme: Theme) -> Vec<TextRow> {
        let mut rows = Vec::new();
        let titles = self.rows.first().filter(|_| self.has_head);
        for (nth, row) in self.rows.iter().skip(usize::from(self.has_head)).enumerate() {
            if nth > 0 {
                rows.push(Line::from(span(theme, Role::Dim, "─".repeat(room.min(8)))));
            }
            for (column, cell) in row.iter().enumerate() {
                let mut spans: Vec<Span<'static>> = Vec::new();
                if let Some(title) = titles.and_then(|titles| titles.get(column)) {
                    let text: String = title.iter().map(|span| span.content.as_ref()).collect();
                    spans.push(span(theme, Role::Strong, format!("{text}: ")));
                }
                spans.extend(cell.iter().cloned());
                rows.extend(wrap(&spans, room, &[], &[]));
            }
        }
        rows
    }
}
