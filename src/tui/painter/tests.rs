//! Tests of the painter against a small terminal emulator.

use proptest::prelude::*;
use ratatui::text::{Line, Span};

use super::*;

/// A terminal with a number of columns and unlimited rows, of which the last `high` are the screen.
#[derive(Debug)]
struct TestTerminal {
    wide: usize,
    high: usize,
    rows: Vec<Vec<String>>,
    x: usize,
    y: usize,
    /// A character was written into the last column (pending wrap).
    full: bool,
    erased: usize,
    /// Rows that continue in the next one after a reflow.
    broken: Vec<bool>,
    /// Long rows wrap instead of failing the test.
    wraps: bool,
}

impl TestTerminal {
    fn new(wide: usize, high: usize) -> TestTerminal {
        TestTerminal {
            wide,
            high,
            rows: vec![Vec::new()],
            x: 0,
            y: 0,
            full: false,
            erased: 0,
            broken: vec![false],
            wraps: false,
        }
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
                        self.broken.push(false);
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
        if self.wraps && (self.full || self.x + wide > self.wide) {
            self.broken[self.y] = true;
            self.take(b"\r\n");
        }
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
            b'B' => {
                self.y = (self.y + number).min(self.rows.len().max(self.high) - 1);
                self.rows.resize(self.rows.len().max(self.y + 1), Vec::new());
                self.broken.resize(self.rows.len(), false);
            }
            b'G' => self.x = number - 1,
            b'K' => {
                assert!(!self.full, "the last character would be erased");
                self.cut_row();
            }
            b'J' => {
                assert_eq!(parameters, "", "only what is below is ever erased");
                assert!(self.x > 0 || self.y > self.top(), "some terminals would keep what goes");
                assert!(!self.full, "the last character would be erased");
                self.cut_row();
                self.erased += self.rows.len() - self.y - 1;
                self.rows.truncate(self.y + 1);
                self.broken.truncate(self.y + 1);
            }
            b'm' | b'h' | b'l' => return,
            other => panic!("{parameters}{}", char::from(other)),
        }
        self.full = false;
    }

    fn cut_row(&mut self) {
        let from = self.x;
        self.rows[self.y].truncate(from);
        if from == 0 {
            self.broken[self.y] = false;
            if let Some(before) = self.y.checked_sub(1) {
                self.broken[before] = false;
            }
        }
    }

    /// Reflows lines as tmux does.
    fn resize(&mut self, wide: usize) {
        let (mut lines, mut place) = (Vec::<Vec<String>>::new(), (0, 0));
        let mut goes_on = false;
        for (y, row) in self.rows.iter().enumerate() {
            if !goes_on {
                lines.push(Vec::new());
            }
            let line = lines.last_mut().unwrap();
            if y == self.y {
                place = (line.len() + self.x.min(row.len()), self.x.saturating_sub(row.len()));
            }
            line.extend(row.iter().cloned());
            goes_on = self.broken[y];
            if y == self.y {
                place = (place.0, lines.len() - 1);
            }
        }
        (self.rows, self.broken, self.wide) = (Vec::new(), Vec::new(), wide);
        for (nth, line) in lines.into_iter().enumerate() {
            let mut row: Vec<String> = Vec::new();
            let (mut at, mut found) = (0, false);
            let length = line.len();
            while at < length {
                let end = (at + 1..length).find(|x| !line[*x].is_empty()).unwrap_or(length);
                if row.len() + end - at > wide && !row.is_empty() {
                    self.rows.push(std::mem::take(&mut row));
                    self.broken.push(true);
                }
                if nth == place.1 && (at..end).contains(&place.0) {
                    (self.x, self.y, found) = (row.len() + place.0 - at, self.rows.len(), true);
                }
                row.extend(line[at..end].iter().cloned());
                at = end;
            }
            if nth == place.1 && !found {
                (self.x, self.y) = (row.len(), self.rows.len());
            }
            self.rows.push(row);
            self.broken.push(false);
        }
        self.full = self.x >= wide;
    }

    /// Logical lines, independent of wrapping.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new()];
        for (row, goes_on) in self.rows.iter().zip(&self.broken) {
            lines.last_mut().unwrap().push_str(&row.concat());
            if !goes_on {
                lines.push(String::new());
            }
        }
        lines.pop();
        lines
    }

    fn shown(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.concat().trim_end().to_owned()).collect()
    }
}

#[test]
fn cursor_is_hidden_and_shown_although_nothing_else_changes() {
    let mut painter = Painter::new(false);
    let shown = frame(&[], &["x".to_owned()], 10);
    let hidden = ScreenFrame { cursor: None, ..shown.clone() };
    let bytes_of = |painter: &mut Painter, frame: &ScreenFrame| {
        String::from_utf8(painter.paint(frame)).unwrap()
    };
    assert!(bytes_of(&mut painter, &shown).contains("\u{1b}[?25h"));
    let bytes = bytes_of(&mut painter, &hidden);
    assert!(bytes.contains("\u{1b}[?25l") && !bytes.contains("\u{1b}[?25h"), "{bytes:?}");
    assert_eq!(bytes_of(&mut painter, &hidden), "");
    assert!(bytes_of(&mut painter, &shown).contains("\u{1b}[?25h"));
    assert_eq!(bytes_of(&mut painter, &shown), "");
}

fn frame(finished: &[String], live: &[String], columns: u16) -> ScreenFrame {
    let height = u16::try_from(live.len()).unwrap();
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, height));
    for (y, line) in (0..).zip(live) {
        buffer.set_line(0, y, &Line::from(line.as_str()), columns);
    }
    let finished = finished.iter().map(|line| Line::from(line.clone())).collect();
    let cursor = Some((0, height - 1));
    ScreenFrame { finished, live: buffer, cursor, ..ScreenFrame::default() }
}

fn trimmed(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn text(columns: usize) -> impl Strategy<Value = String> {
    // A row of the live region is never wider than the screen.
    prop::collection::vec(prop::sample::select(vec!["a", "b", " ", "é", "日"]), 0..12)
        .prop_map(move |pieces| crate::text::clipped(&pieces.concat(), columns))
}

type PaintStep = (Vec<String>, Vec<String>);

fn steps() -> impl Strategy<Value = Vec<PaintStep>> {
    let rows = |range| prop::collection::vec(text(9), range);
    prop::collection::vec((rows(0..3), rows(1..6)), 1..8)
}

proptest! {
    #[test]
    fn terminal_shows_the_last_frame(steps in steps()) {
        let mut painter = Painter::new(true);
        let mut screen = TestTerminal::new(9, 10);
        let mut finished: Vec<String> = Vec::new();
        for (more, live) in steps {
            screen.take(&painter.paint(&frame(&more, &live, 9)));
            finished.extend(more);
            let expected = trimmed(&[finished.clone(), live.clone()].concat());
            let mut shown = screen.shown();
            // Blank rows below the cursor may or may not exist.
            shown.resize(expected.len(), String::new());
            prop_assert_eq!(&shown, &expected);
            prop_assert_eq!(screen.y, expected.len() - 1);
            // The same frame again produces no output.
            prop_assert!(painter.paint(&frame(&[], &live, 9)).is_empty());
        }
        screen.take(&painter.withdraw());
        let mut shown = screen.shown();
        prop_assert_eq!(shown.pop(), Some(String::new()));
        prop_assert_eq!(shown, trimmed(&finished));
    }
}

fn ours() -> impl Strategy<Value = Vec<String>> {
    // Live rows start with a character, because a blank row looks like no row.
    let row = prop::collection::vec(prop::sample::select(vec!["x", "yy", " ", "日"]), 0..12);
    prop::collection::vec(row.prop_map(|pieces| pieces.concat()), 1..5)
}

/// Finished rows, live rows, and the widths of the terminal before the next frame.
fn storms() -> impl Strategy<Value = Vec<(usize, Vec<String>, Vec<usize>)>> {
    let widths = prop::collection::vec(2usize..24, 0..4);
    prop::collection::vec((0usize..3, ours(), widths), 1..8)
}

fn fitting(rows: &[String], columns: usize) -> Vec<String> {
    rows.iter().map(|row| crate::text::clipped(row, columns)).collect()
}

proptest! {
    #[test]
    fn reflowing_terminal_keeps_finished_rows_and_no_live_rows(storm in storms()) {
        let (mut painter, mut screen) = (Painter::new(true), TestTerminal::new(20, 500));
        let mut finished: Vec<String> = Vec::new();
        for (count, live, widths) in storm {
            let wide = screen.wide;
            let more: Vec<String> = (0..count).map(|nth| format!("{:02}", finished.len() + nth)).collect();
            let live = fitting(&live, wide);
            screen.take(&painter.paint(&frame(&more, &live, u16::try_from(wide).unwrap())));
            finished.extend(more);
            let mut lines = trimmed(&screen.lines());
            let expected = trimmed(&[finished.clone(), live].concat());
            lines.resize(expected.len(), String::new());
            prop_assert_eq!(lines, expected);
            for wide in &widths {
                screen.resize(*wide);
            }
            if let Some(wide) = widths.last() {
                painter.resized(u16::try_from(*wide).unwrap(), true);
            }
        }
    }

    #[test]
    fn drawing_for_a_wrong_width_loses_no_finished_row(storm in storms()) {
        let (mut painter, mut screen) = (Painter::new(true), TestTerminal::new(20, 500));
        screen.wraps = true;
        let (mut finished, mut believed) = (Vec::<String>::new(), 20);
        for (count, live, widths) in storm {
            let more: Vec<String> = (0..count).map(|nth| format!("{:02}", finished.len() + nth)).collect();
            let live = fitting(&live, believed);
            screen.take(&painter.paint(&frame(&more, &live, u16::try_from(believed).unwrap())));
            finished.extend(more);
            // The last of several widths is reported late.
            for wide in &widths {
                screen.resize(*wide);
            }
            if let Some(wide) = widths.first() {
                believed = *wide;
                painter.resized(u16::try_from(believed).unwrap(), false);
            }
            let lines = screen.lines();
            let mut kept = lines.iter();
            for line in &finished {
                prop_assert!(kept.any(|kept| kept.starts_with(line.as_str())), "{} of {:?}", line, lines);
            }
        }
    }
}

#[test]
fn changing_one_cell_takes_few_bytes() {
    let mut painter = Painter::new(true);
    let rows = |last: &str| vec!["x".repeat(100), "y".repeat(100), format!("{last} working")];
    painter.paint(&frame(&[], &rows("⠋"), 100));
    let bytes = painter.paint(&frame(&[], &rows("⠙"), 100));
    assert!(bytes.len() < 60, "{} bytes: {}", bytes.len(), String::from_utf8_lossy(&bytes));
}

#[test]
fn narrower_terminal_is_drawn_from_the_reflowed_start() {
    let rows = vec!["a".repeat(20), "b".to_owned(), "❯".to_owned()];
    let mut painter = Painter::new(true);
    painter.paint(&frame(&["done".to_owned()], &rows, 20));
    assert_eq!(painter.above, 2);
    painter.resized(8, true);
    assert_eq!(painter.rows_above(), 4, "20 columns are three rows of 8");
    painter.resized(8, false);
    assert_eq!(painter.rows_above(), 2, "who knows");
    let mut stiff = Painter::new(false);
    stiff.paint(&frame(&[], &rows, 20));
    stiff.resized(8, true);
    assert_eq!(stiff.rows_above(), 2);
}

#[test]
fn cursor_after_the_last_character_stays_with_it() {
    let mut painter = Painter::new(true);
    let mut wanted = frame(&[], &["one".to_owned(), "abcdefgh".to_owned()], 20);
    for (column, rows) in [(7, 1), (8, 1), (15, 1)] {
        wanted.cursor = Some((column, 1));
        painter.paint(&wanted);
        painter.resized(8, true);
        assert_eq!(painter.rows_above(), rows, "at column {column}");
    }
    painter.resized(4, true);
    assert_eq!(painter.rows_above(), 2);
}

#[test]
fn finished_row_never_wraps() {
    let mut painter = Painter::new(true);
    let mut screen = TestTerminal::new(9, 10);
    let rows = ["abcdefghijk".to_owned(), "abcdefgh日".to_owned(), "日日日日日".to_owned()];
    screen.take(&painter.paint(&frame(&rows, &["❯".to_owned()], 9)));
    assert_eq!(screen.shown(), ["abcdefghi", "abcdefgh", "日日日日", "❯"]);
}

#[test]
fn styles_are_reset() {
    use ratatui::style::Stylize;
    let mut painter = Painter::new(true);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
    buffer.set_line(0, 0, &Line::from(vec!["a".red(), "b".bold(), "c".into()]), 10);
    let finished = vec![Line::from("f".green())];
    let frame = ScreenFrame { finished, live: buffer, ..ScreenFrame::default() };
    let bytes = String::from_utf8(painter.paint(&frame)).unwrap();
    insta::assert_snapshot!(bytes.escape_debug());
}

#[test]
fn text_that_was_not_sanitised_cannot_control_the_terminal() {
    let hostile = "a\u{1b}]52;c;eA==\u{7}b\u{202e}c\u{9b}2J";
    let mut live = Buffer::empty(Rect::new(0, 0, 40, 1));
    live[(0, 0)].set_symbol(hostile);
    let finished = vec![TextRow::from(hostile.to_owned())];
    let frame = ScreenFrame { finished, live, ..ScreenFrame::default() };
    let painted = String::from_utf8(Painter::new(true).paint(&frame)).unwrap();
    assert!(!painted.contains("\u{1b}]") && !painted.contains('\u{7}'), "{painted:?}");
    assert!(!painted.contains('\u{202e}') && !painted.contains('\u{9b}'), "{painted:?}");
    assert_eq!(painted.matches("a]52;c;eA==bc2J").count(), 2, "{painted:?}");
}

/// A link that is wrapped has one id in both rows, and nothing after it is part of it.
#[test]
fn links_are_made_known_to_the_terminal() {
    let style = links::style_to("https://example.org/a");
    let row = |text: &str| {
        TextRow::from(vec![Span::raw("x "), Span::styled(text.to_owned(), style), Span::raw(" y")])
    };
    let mut live = Buffer::empty(Rect::new(0, 0, 20, 1));
    live[(0, 0)].set_symbol("z").set_style(style);
    let finished = vec![row("https://"), row("example")];
    let frame = ScreenFrame { finished, live, ..ScreenFrame::default() };
    let painted = |painter: Painter| {
        let mut painter = painter;
        String::from_utf8(painter.paint(&frame)).unwrap()
    };
    let linked = painted(Painter::new(true).with_hyperlinks(true));
    assert_eq!(linked.matches(";https://example.org/a\u{1b}\\").count(), 3, "{linked:?}");
    assert_eq!(linked.matches("\u{1b}]8;;\u{1b}\\").count(), 3, "{linked:?}");
    assert!(!painted(Painter::new(true)).contains("\u{1b}]8"));
}

/// The background of a row reaches the right edge without being content of the row.
#[test]
fn background_of_a_row_is_erased_to_the_edge() {
    let green = Style::new().bg(Color::Green);
    let full = TextRow::raw("a".repeat(20)).style(green);
    let rows = vec![TextRow::raw("ab").style(green), full];
    let live = Buffer::empty(Rect::new(0, 0, 20, 1));
    let frame = ScreenFrame { finished: rows, live, ..ScreenFrame::default() };
    let painted = String::from_utf8(Painter::new(true).paint(&frame)).unwrap();
    assert!(painted.contains("\u{1b}[0;42mab\u{1b}[K\u{1b}[0m"), "{painted:?}");
    // Erasing in the last column would remove the last character.
    assert!(painted.contains(&format!("{}\u{1b}[0m", "a".repeat(20))), "{painted:?}");
}
