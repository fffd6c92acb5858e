//! Tables with columns as wide as their content. In a table that does not fit, the text of wide columns
//! wraps; if there is too little room for that, it is shown cell by cell.

use pulldown_cmark::Alignment;
use ratatui::text::{Line, Span};

use crate::text::{TextRow, columns_of, span, width, wrap};
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

    /// Renders the table in rows of at most `room` columns.
    pub(super) fn rows(&self, room: usize, theme: Theme) -> Vec<TextRow> {
        let natural = self.natural_widths();
        let between = 3 * natural.len().saturating_sub(1);
        let least: Vec<usize> = (0..natural.len()).map(|nth| self.least_width(nth)).collect();
        let Some(widths) = shared_widths(&natural, &least, room.saturating_sub(between)) else {
            return self.rows_by_cell(room, theme);
        };
        let is_wrapped = widths != natural;
        let mut rows = Vec::new();
        for (nth, row) in self.rows.iter().enumerate() {
            let is_head = self.has_head && nth == 0;
            rows.extend(self.row(row, is_head, &widths, theme));
            let is_last = nth + 1 == self.rows.len();
            // Without a rule it would not be seen where a row of several lines ends.
            if is_head || (is_wrapped && !is_last) {
                let rules: Vec<String> = widths.iter().map(|wide| "─".repeat(*wide)).collect();
                rows.push(Line::from(span(theme, Role::Dim, rules.join("─┼─"))));
            }
        }
        rows
    }

    /// Fewest columns that the text of a column can have to be readable: no word of usual length is
    /// broken.
    fn least_width(&self, nth: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(nth));
        let longest = |cell: &Cell| {
            let text: String = cell.iter().map(|span| span.content.as_ref()).collect();
            text.split(' ').map(width).max().unwrap_or_default()
        };
        cells.map(longest).max().unwrap_or_default().clamp(WRAPPED_MIN, WORD_MAX)
    }

    /// Width of each column without wrapping.
    fn natural_widths(&self) -> Vec<usize> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let wide = |nth: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(nth));
            cells.map(|cell| columns_of(cell)).max().unwrap_or_default()
        };
        (0..count).map(wide).collect()
    }

    /// Renders one row of the table in columns of these `widths`.
    fn row(&self, row: &[Cell], is_head: bool, widths: &[usize], theme: Theme) -> Vec<TextRow> {
        let strong = |mut span: Span<'static>| {
            if is_head {
                span.style = span.style.patch(theme.style(Role::Strong));
            }
            span
        };
        let cells: Vec<Vec<TextRow>> = (0..widths.len())
            .map(|column| {
                let cell = row.get(column).cloned().unwrap_or_default();
                let cell: Cell = cell.into_iter().map(strong).collect();
                wrap(&cell, widths[column], &[], &[])
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        (0..height).map(|line| self.line(&cells, line, widths, theme)).collect()
    }

    /// Puts the lines with the number `nth` of all `cells` of a row next to each other.
    fn line(&self, cells: &[Vec<TextRow>], nth: usize, widths: &[usize], theme: Theme) -> TextRow {
        let mut spans: Vec<Span<'static>> = Vec::new();
        for (column, (cell, wide)) in cells.iter().zip(widths).enumerate() {
            if column > 0 {
                spans.push(span(theme, Role::Dim, " │ "));
            }
            let text = cell.get(nth).map(|line| line.spans.clone()).unwrap_or_default();
            let (before, behind) = self.blanks(column, wide.saturating_sub(columns_of(&text)));
            if before > 0 {
                spans.push(Span::raw(" ".repeat(before)));
            }
            spans.extend(text);
            if column + 1 < widths.len() && behind > 0 {
                spans.push(Span::raw(" ".repeat(behind)));
            }
        }
        Line::from(spans)
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

/// Fewest columns of a column whose text wraps.
const WRAPPED_MIN: usize = 12;

/// Columns of a word that may be broken.
const WORD_MAX: usize = 24;

/// Widths of columns that are `natural` columns wide without wrapping and have `room` columns
/// together: narrow ones keep their width, and the others share the rest equally. `None` if a column
/// would have less than its `least` columns and not its natural width.
fn shared_widths(natural: &[usize], least: &[usize], room: usize) -> Option<Vec<usize>> {
    let mut widths = natural.to_vec();
    let mut order: Vec<usize> = (0..natural.len()).collect();
    order.sort_by_key(|column| natural[*column]);
    let mut left = room;
    for (nth, column) in order.iter().enumerate() {
        let share = left / (order.len() - nth);
        widths[*column] = natural[*column].min(share);
        if widths[*column] < natural[*column].min(least[*column]) {
            return None;
        }
        left -= widths[*column];
    }
    Some(widths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_columns_keep_their_width_and_the_others_share_the_rest() {
        for (natural, room, expected) in [
            (vec![3, 5], 20, Some(vec![3, 5])),
            (vec![3, 90], 40, Some(vec![3, 37])),
            (vec![90, 3, 80], 43, Some(vec![20, 3, 20])),
            (vec![90, 12, 80], 41, Some(vec![15, 12, 14])),
            // Too little room for text that wraps.
            (vec![90, 90, 90], 35, None),
            (vec![2, 2, 2], 5, None),
            (Vec::new(), 0, Some(Vec::new())),
        ] {
            let least = vec![WRAPPED_MIN; natural.len()];
            assert_eq!(shared_widths(&natural, &least, room), expected, "{natural:?} {room}");
        }
        assert_eq!(shared_widths(&[3, 90], &[12, 24], 26), None);
    }
}
