//! The painter against a small terminal that knows nothing but what we send.

use proptest::prelude::*;
use ratatui_core::text::Line;
use unicode_segmentation::UnicodeSegmentation;

use super::*;

/// A terminal of so many columns: rows without end, of which the last `high` are the screen.
#[derive(Debug)]
struct Screen {
    wide: usize,
    high: usize,
    rows: Vec<Vec<String>>,
    x: usize,
    y: usize,
    /// A character was written into the last column.
    full: bool,
    erased: usize,
}

impl Screen {
    fn new(wide: usize, high: usize) -> Screen {
        Screen { wide, high, rows: vec![Vec::new()], x: 0, y: 0, full: false, erased: 0 }
    }

    fn top(&self) -> usize {
        self.rows.len().saturating_sub(self.high)
    }

    fn take(&mut self, bytes: &[u8]) {
        let text = std::str::from_utf8(bytes).unwrap();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("\u{1b}[") {
                let end = after.find(|c: char| ('@'..='~').contains(&c)).unwrap();
                self.control(&after[..end], after.as_bytes()[end]);
                rest = &after[end + 1..];
                continue;
            }
            match c {
                '\r' => (self.x, self.full) = (0, false),
                '\n' => {
                    self.full = false;
                    self.y += 1;
                    if self.y == self.rows.len() {
                        self.rows.push(Vec::new());
                    }
                }
                _ => {
                    let grapheme = rest.graphemes(true).next().unwrap();
                    self.write(grapheme);
                    rest = &rest[grapheme.len()..];
                    continue;
                }
            }
            rest = &rest[c.len_utf8()..];
        }
    }

    fn write(&mut self, grapheme: &str) {
        assert!(!grapheme.chars().any(char::is_control), "{grapheme:?}");
        let wide = width(grapheme);
        assert!(!self.full && self.x + wide <= self.wide, "a row is longer than the screen");
        let row = &mut self.rows[self.y];
        while row.len() < self.x + wide {
            row.push(" ".to_owned());
        }
        row[self.x] = grapheme.to_owned();
        for cell in &mut row[self.x + 1..self.x + wide] {
            cell.clear();
        }
        self.x += wide;
        self.full = self.x == self.wide;
    }

    fn control(&mut self, parameters: &str, last: u8) {
        let number = parameters.parse::<usize>().unwrap_or(1);
        match last {
            b'A' => self.y = self.y.saturating_sub(number).max(self.top()),
            b'B' => self.y = (self.y + number).min(self.rows.len().max(self.high) - 1),
            b'G' => self.x = number - 1,
            b'K' => {
                assert!(!self.full, "the last character would be erased");
                let from = self.x;
                self.rows[self.y].truncate(from);
            }
            b'J' => {
                assert_eq!(parameters, "", "only what is below is ever erased");
                if !self.full {
                    let from = self.x;
                    self.rows[self.y].truncate(from);
                }
                self.erased += self.rows.len() - self.y - 1;
                self.rows.truncate(self.y + 1);
            }
            b'm' | b'h' | b'l' => return,
            other => panic!("{parameters}{}", char::from(other)),
        }
        self.full = false;
    }

    fn shown(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.concat().trim_end().to_owned()).collect()
    }
}

fn frame(finished: &[String], live: &[String], columns: u16) -> Frame {
    let height = u16::try_from(live.len()).unwrap();
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, height));
    for (y, line) in (0..).zip(live) {
        buffer.set_line(0, y, &Line::from(line.as_str()), columns);
    }
    let finished = finished.iter().map(|line| Line::from(line.clone())).collect();
    Frame { finished, live: buffer, cursor: Some((0, height - 1)) }
}

fn trimmed(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn text(columns: usize) -> impl Strategy<Value = String> {
    // A row of ours is never wider than the screen.
    prop::collection::vec(prop::sample::select(vec!["a", "b", " ", "é", "日"]), 0..12)
        .prop_map(move |pieces| crate::tui::text::clipped(&pieces.concat(), columns))
}

type Step = (Vec<String>, Vec<String>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rows = |range| prop::collection::vec(text(9), range);
    prop::collection::vec((rows(0..3), rows(1..6)), 1..8)
}

proptest! {
    #[test]
    fn the_terminal_shows_what_it_should(steps in steps()) {
        let mut painter = Painter::new(true);
        let mut screen = Screen::new(9, 10);
        let mut finished: Vec<String> = Vec::new();
        for (more, live) in steps {
            screen.take(&painter.paint(&frame(&more, &live, 9)));
            finished.extend(more);
            let expected = trimmed(&[finished.clone(), live.clone()].concat());
            let mut shown = screen.shown();
            // What is below the cursor and blank may or may not be there.
            shown.resize(expected.len(), String::new());
            prop_assert_eq!(&shown, &expected);
            prop_assert_eq!(screen.y, expected.len() - 1);
            // The same again costs nothing.
            prop_assert!(painter.paint(&frame(&[], &live, 9)).is_empty());
        }
        screen.take(&painter.withdraw());
        let mut shown = screen.shown();
        prop_assert_eq!(shown.pop(), Some(String::new()));
        prop_assert_eq!(shown, trimmed(&finished));
    }
}

#[test]
fn a_change_of_one_cell_costs_a_few_bytes() {
    let mut painter = Painter::new(true);
    let rows = |last: &str| vec!["x".repeat(100), "y".repeat(100), format!("{last} working")];
    painter.paint(&frame(&[], &rows("⠋"), 100));
    let bytes = painter.paint(&frame(&[], &rows("⠙"), 100));
    assert!(bytes.len() < 60, "{} bytes: {}", bytes.len(), String::from_utf8_lossy(&bytes));
}

#[test]
fn a_narrower_terminal_is_drawn_from_where_its_rows_begin_now() {
    let rows = vec!["a".repeat(20), "b".to_owned(), "❯".to_owned()];
    let mut painter = Painter::new(true);
    painter.paint(&frame(&["done".to_owned()], &rows, 20));
    assert_eq!(painter.above, 2);
    painter.resized(8);
    assert_eq!(painter.above, 4, "20 columns are three rows of 8");
    let mut stiff = Painter::new(false);
    stiff.paint(&frame(&[], &rows, 20));
    stiff.resized(8);
    assert_eq!(stiff.above, 2);
}

#[test]
fn colours_end_where_they_should() {
    use ratatui_core::style::Stylize;
    let mut painter = Painter::new(true);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
    buffer.set_line(0, 0, &Line::from(vec!["a".red(), "b".bold(), "c".into()]), 10);
    let frame = Frame { finished: vec![Line::from("f".green())], live: buffer, cursor: None };
    let bytes = String::from_utf8(painter.paint(&frame)).unwrap();
    insta::assert_snapshot!(bytes.escape_debug());
}
