//! Scrollback of the alternate screen, where the terminal keeps no rows.
//!
//! Rows stay as they were drawn: if the window becomes narrower, longer rows are cut.

use std::collections::VecDeque;

use crate::text::TextRow;

/// Maximum number of rows; the oldest are dropped.
const ROWS_MAX: usize = 10_000;

/// Finished rows and the scroll position.
#[derive(Debug, Default)]
pub(super) struct Scrollback {
    rows: VecDeque<TextRow>,
    /// Number of rows below the last visible one.
    up: usize,
}

impl Scrollback {
    /// Appends finished rows, and drops the oldest above the maximum. A scrolled view keeps its
    /// position.
    pub(super) fn add(&mut self, finished: Vec<TextRow>) {
        if self.up > 0 {
            self.up += finished.len();
        }
        self.rows.extend(finished);
        let gone = self.rows.len().saturating_sub(ROWS_MAX);
        self.rows.drain(..gone);
        self.up = self.up.min(self.rows.len());
    }

    /// Scrolls by `rows` rows: up if `up` is true, otherwise down.
    pub(super) fn go(&mut self, up: bool, rows: usize) {
        self.up = if up { self.up + rows } else { self.up.saturating_sub(rows) };
        self.up = self.up.min(self.rows.len());
    }

    /// Returns the visible rows for a height of `room` rows, fewer if there are fewer. Limits the
    /// scroll position, so that the oldest rows fill the height.
    pub(super) fn shown(&mut self, room: usize) -> Vec<TextRow> {
        self.up = self.up.min(self.rows.len().saturating_sub(room));
        let end = self.rows.len() - self.up;
        self.rows.range(end.saturating_sub(room)..end).cloned().collect()
    }

    /// Number of rows below the visible ones.
    pub(super) fn below(&self) -> usize {
        self.up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::text_of_row;

    fn rows(numbers: std::ops::Range<usize>) -> Vec<TextRow> {
        numbers.map(|nth| TextRow::from(nth.to_string())).collect()
    }

    fn shown(scrollback: &mut Scrollback, room: usize) -> Vec<String> {
        scrollback.shown(room).iter().map(text_of_row).collect()
    }

    #[test]
    fn shows_the_end_or_the_scrolled_position() {
        let mut scrollback = Scrollback::default();
        assert_eq!(shown(&mut scrollback, 5), Vec::<String>::new());
        scrollback.add(rows(0..10));
        assert_eq!(shown(&mut scrollback, 3), ["7", "8", "9"]);
        scrollback.go(true, 2);
        assert_eq!(shown(&mut scrollback, 3), ["5", "6", "7"]);
        scrollback.add(rows(10..12));
        assert_eq!(
            (shown(&mut scrollback, 3), scrollback.below()),
            (vec!["5".into(), "6".into(), "7".into()], 4)
        );
        scrollback.go(true, 100);
        assert_eq!(shown(&mut scrollback, 3), ["0", "1", "2"]);
        scrollback.go(false, 100);
        assert_eq!(shown(&mut scrollback, 30).len(), 12);
        scrollback.add(rows(0..ROWS_MAX + 5));
        assert_eq!(shown(&mut scrollback, 1), [(ROWS_MAX + 4).to_string()]);
        scrollback.go(true, usize::MAX / 2);
        assert_eq!(shown(&mut scrollback, 1), ["5"]);
    }
}
