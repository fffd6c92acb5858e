//! What is finished, on a screen of its own: there the terminal keeps nothing, so we do.
//!
//! Rows stay as they were drawn: after the window became narrower, what is longer is cut.

use std::collections::VecDeque;

use crate::tui::text::Row;

/// Rows that are kept.
const ROWS_MAX: usize = 10_000;

/// Rows that were finished, and where one looks.
#[derive(Debug, Default)]
pub(super) struct Past {
    rows: VecDeque<Row>,
    /// Rows between the last one that is shown and the end.
    up: usize,
}

impl Past {
    /// Keeps what was finished. Whoever looks at something goes on looking at it.
    pub(super) fn add(&mut self, finished: Vec<Row>) {
        if self.up > 0 {
            self.up += finished.len();
        }
        self.rows.extend(finished);
        let gone = self.rows.len().saturating_sub(ROWS_MAX);
        self.rows.drain(..gone);
        self.up = self.up.min(self.rows.len());
    }

    /// Goes up, or down again.
    pub(super) fn go(&mut self, up: bool, rows: usize) {
        self.up = if up { self.up + rows } else { self.up.saturating_sub(rows) };
        self.up = self.up.min(self.rows.len());
    }

    /// The rows for a place of so many.
    pub(super) fn shown(&mut self, room: usize) -> Vec<Row> {
        self.up = self.up.min(self.rows.len().saturating_sub(room));
        let end = self.rows.len() - self.up;
        self.rows.range(end.saturating_sub(room)..end).cloned().collect()
    }

    /// Rows below those that are shown.
    pub(super) fn below(&self) -> usize {
        self.up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::testing::text_of_row;

    fn rows(numbers: std::ops::Range<usize>) -> Vec<Row> {
        numbers.map(|nth| Row::from(nth.to_string())).collect()
    }

    fn shown(past: &mut Past, room: usize) -> Vec<String> {
        past.shown(room).iter().map(text_of_row).collect()
    }

    #[test]
    fn one_looks_at_the_end_or_where_one_went() {
        let mut past = Past::default();
        assert_eq!(shown(&mut past, 5), Vec::<String>::new());
        past.add(rows(0..10));
        assert_eq!(shown(&mut past, 3), ["7", "8", "9"]);
        past.go(true, 2);
        assert_eq!(shown(&mut past, 3), ["5", "6", "7"]);
        past.add(rows(10..12));
        assert_eq!(
            (shown(&mut past, 3), past.below()),
            (vec!["5".into(), "6".into(), "7".into()], 4)
        );
        past.go(true, 100);
        assert_eq!(shown(&mut past, 3), ["0", "1", "2"]);
        past.go(false, 100);
        assert_eq!(shown(&mut past, 30).len(), 12);
        past.add(rows(0..ROWS_MAX + 5));
        assert_eq!(shown(&mut past, 1), [(ROWS_MAX + 4).to_string()]);
        past.go(true, usize::MAX / 2);
        assert_eq!(shown(&mut past, 1), ["5"]);
    }
}
