//! Converts frames to terminal output. Pure.
//!
//! The live region at the bottom of the screen belongs to this program; the rows above belong to
//! the terminal, which scrolls and keeps them. The terminal is never asked for its cursor position: the start of the live
//! region follows from where the cursor was left, and all cursor movements are relative. Only cells
//! below the cursor are ever cleared.

use std::io::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_segmentation::UnicodeSegmentation;

use crate::links;
use crate::text::{TextRow, columns_of, is_reordering, width};

/// Sequence that erases everything from the cursor on, if the cursor is in the first column. It
/// clears the first row separately, because some terminals copy erased rows to their scrollback if
/// the erasure starts at the very first cell.
const ERASE: &[u8] = b"\x1b[K\x1b[2G\x1b[J\r";

/// The content of a frame.
#[derive(Debug, Clone, Default)]
pub(super) struct ScreenFrame {
    /// Finished rows: written above the live region, and never touched again.
    pub(super) finished: Vec<TextRow>,
    /// Cells of the live region. They replace those of the previous frame.
    pub(super) live: Buffer,
    /// Column and row of the cursor in the live region; `None` hides the cursor.
    pub(super) cursor: Option<(u16, u16)>,
    /// True if the frame belongs to the alternate screen.
    pub(super) alternate_screen: bool,
    /// True if more rows are finished than one frame takes.
    pub(super) more: bool,
}

/// Converts frames to terminal output, and tracks what the terminal shows of the live region.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about the terminal")]
pub(super) struct Painter {
    /// The live region of the last frame; `None` if no frame is shown.
    shown: Option<Buffer>,
    /// True if the terminal may show something else than `shown`.
    stale: bool,
    /// Number of rows from the start of the live region to the cursor, as drawn.
    above: u16,
    /// Column of the cursor; `u16::MAX` if it is unknown.
    column: u16,
    /// True if the last frame shows the cursor.
    is_cursor_shown: bool,
    /// True if the terminal reflows lines when it becomes narrower.
    reflows: bool,
    /// True if links are made known to the terminal.
    hyperlinks: bool,
    /// New width of the terminal after a reflow; `None` if there was no reflow or the width is
    /// uncertain.
    reflowed_columns: Option<u16>,
}

const BEGIN: &[u8] = b"\x1b[?2026h\x1b[?25l";
const END: &[u8] = b"\x1b[?2026l";

impl Painter {
    /// A painter for a terminal whose cursor is at the start of an empty row.
    pub(super) fn new(reflows: bool) -> Painter {
        Painter {
            shown: None,
            stale: true,
            above: 0,
            column: 0,
            is_cursor_shown: true,
            reflows,
            hyperlinks: false,
            reflowed_columns: None,
        }
    }

    /// This painter, which makes links known to the terminal if `hyperlinks` is true.
    pub(super) fn with_hyperlinks(self, hyperlinks: bool) -> Painter {
        Painter { hyperlinks, ..self }
    }

    /// Output that makes the terminal show `frame`; empty if it already does.
    pub(super) fn paint(&mut self, frame: &ScreenFrame) -> Vec<u8> {
        let mut out = Out::new(self.hyperlinks);
        let same = self.shown.as_ref().is_some_and(|shown| shown.area == frame.live.area);
        if same && !self.stale && frame.finished.is_empty() {
            self.change(frame, &mut out);
        } else {
            self.draw(frame, &mut out);
        }
        let row = frame.cursor.map_or(self.above, |(_, y)| y);
        let column = frame.cursor.map_or(self.column, |(x, _)| x);
        let is_changed = frame.cursor.is_some() != self.is_cursor_shown;
        if !out.bytes.is_empty() || row != self.above || column != self.column || is_changed {
            self.go(column, row, &mut out);
            // The beginning of the frame hides the cursor.
            out.raw(if frame.cursor.is_some() { b"\x1b[?25h" } else { b"" });
            self.is_cursor_shown = frame.cursor.is_some();
        }
        (self.shown, self.stale) = (Some(frame.live.clone()), false);
        if out.bytes.is_empty() && !is_changed {
            return out.bytes;
        }
        [BEGIN, &out.bytes, END].concat()
    }

    /// Registers that the terminal has a new width and may have reflowed the live region. Unless
    /// the width is certain (`sure`), only rows that belong to the live region at any width are
    /// drawn over: reflowed rows may be visible twice, but no finished row is lost.
    pub(super) fn resized(&mut self, columns: u16, sure: bool) {
        self.stale = true;
        self.reflowed_columns =
            Some(columns).filter(|columns| sure && self.reflows && *columns > 0);
    }

    /// Makes the next frame redraw the whole live region.
    pub(super) fn invalidate(&mut self) {
        self.stale = true;
    }

    /// Output that removes the live region and leaves the cursor at its start.
    pub(super) fn withdraw(&mut self) -> Vec<u8> {
        let mut out = Out::new(self.hyperlinks);
        self.begin(&mut out);
        out.raw(ERASE);
        out.raw(b"\x1b[?25h");
        *self = Painter::new(self.reflows).with_hyperlinks(self.hyperlinks);
        out.bytes
    }

    /// Number of rows from the start of the live region to the cursor, as the terminal shows them
    /// now.
    fn rows_above(&self) -> u16 {
        let (Some(columns), Some(shown)) = (self.reflowed_columns, &self.shown) else {
            return self.above;
        };
        let above = (0..self.above).map(|row| reflowed_rows(shown, row, usize::MAX, columns));
        // The cursor stays with the last character before it.
        let own = reflowed_rows(shown, self.above, usize::from(self.column) + 1, columns) - 1;
        above.fold(own, u16::saturating_add)
    }

    fn begin(&mut self, out: &mut Out) {
        let above = self.rows_above();
        out.raw(b"\r");
        if above > 0 {
            out.number(b'A', above);
        }
        (self.above, self.column, self.reflowed_columns) = (0, 0, None);
    }

    /// Draws the whole frame. A row is erased from its start before it is drawn: a terminal that
    /// erases only the end of a row may remember the old length and reflow it.
    fn draw(&mut self, frame: &ScreenFrame, out: &mut Out) {
        self.begin(out);
        let mut old = self.shown.take().map_or(0, |shown| usize::from(shown.area.height));
        if std::mem::take(&mut self.stale) {
            // Writing into the second half of a row that the terminal has broken would join both
            // halves.
            out.raw(ERASE);
            old = 0;
        }
        let height = frame.live.area.height;
        let total = frame.finished.len() + usize::from(height);
        let begin_row = |nth: usize, out: &mut Out| {
            if nth > 0 {
                out.raw(b"\r\n");
            }
            if nth + 1 == total && old > total {
                out.raw(ERASE);
            } else if nth < old {
                out.raw(b"\x1b[K");
            }
        };
        for (nth, row) in frame.finished.iter().enumerate() {
            begin_row(nth, out);
            out.row(row, usize::from(frame.live.area.width));
        }
        for y in 0..height {
            begin_row(frame.finished.len() + usize::from(y), out);
            out.cells(&frame.live, y, 0, used_columns(&frame.live, y));
        }
        self.above = height.saturating_sub(1);
        let last = used_columns(&frame.live, self.above);
        self.column = u16::try_from(last).unwrap_or(u16::MAX).min(frame.live.area.width);
    }

    fn change(&mut self, frame: &ScreenFrame, out: &mut Out) {
        let Some(shown) = self.shown.take() else { return };
        for y in 0..frame.live.area.height {
            let (old, new) = (used_columns(&shown, y), used_columns(&frame.live, y));
            // The second half of a wide character that disappears differs from a blank cell.
            let same = |x: usize| {
                cell(&shown, x, y) == cell(&frame.live, x, y)
                    && is_continued(&shown, x, y) == is_continued(&frame.live, x, y)
            };
            let Some(first) = (0..new.max(old)).find(|x| !same(*x)) else { continue };
            if new < old {
                // The row must not be longer than its content, also for terminals that reflow.
                self.go(0, y, out);
                out.raw(b"\x1b[K");
                out.cells(&frame.live, y, 0, new);
                self.column = u16::MAX;
                continue;
            }
            // A wide character is drawn from its first cell.
            let first = (0..=first).rev().find(|x| !is_continued(&frame.live, *x, y)).unwrap_or(0);
            let last = (first..new).rev().find(|x| !same(*x)).map_or(first, |last| last + 1);
            let last = (last..new).find(|x| !is_continued(&frame.live, *x, y)).unwrap_or(new);
            self.go(u16::try_from(first).unwrap_or(u16::MAX), y, out);
            out.cells(&frame.live, y, first, last.max(first));
            self.column = u16::MAX;
        }
    }

    fn go(&mut self, column: u16, row: u16, out: &mut Out) {
        match row.cmp(&self.above) {
            std::cmp::Ordering::Less => out.number(b'A', self.above - row),
            std::cmp::Ordering::Greater => out.number(b'B', row - self.above),
            std::cmp::Ordering::Equal => (),
        }
        if column == 0 {
            out.raw(b"\r");
        } else if column != self.column {
            out.number(b'G', column + 1);
        }
        (self.above, self.column) = (row, column);
    }
}

fn cell(buffer: &Buffer, x: usize, y: u16) -> Option<&Cell> {
    let x = u16::try_from(x).ok()?;
    buffer.cell((x, y))
}

/// Returns `true` if a cell is the second half of a wide character.
fn is_continued(buffer: &Buffer, x: usize, y: u16) -> bool {
    x > 0 && cell(buffer, x - 1, y).is_some_and(|cell| width(cell.symbol()) > 1)
}

/// Number of columns of row `y` up to its last visible cell.
fn used_columns(buffer: &Buffer, y: u16) -> usize {
    let Rect { width: columns, height, .. } = buffer.area;
    if y >= height {
        return 0;
    }
    let shows = |x: &usize| {
        cell(buffer, *x, y).is_some_and(|cell| {
            cell.symbol() != " "
                || cell.bg != Color::Reset
                || cell.modifier.intersects(Modifier::REVERSED | Modifier::UNDERLINED)
        })
    };
    let last = (0..usize::from(columns)).rev().find(shows);
    last.map_or(0, |x| {
        let wide = cell(buffer, x, y).map_or(1, |cell| width(cell.symbol()).max(1));
        (x + wide).min(usize::from(columns))
    })
}

/// Number of rows that the first `upto` columns of row `y` take on a terminal with `columns`
/// columns.
fn reflowed_rows(buffer: &Buffer, y: u16, upto: usize, columns: u16) -> u16 {
    let (end, room) = (used_columns(buffer, y).min(upto), usize::from(columns));
    let (mut rows, mut taken, mut x) = (1_u16, 0, 0);
    while x < end {
        let wide = cell(buffer, x, y).map_or(1, |cell| width(cell.symbol()).max(1));
        if taken + wide > room && taken > 0 {
            (rows, taken) = (rows.saturating_add(1), 0);
        }
        taken += wide;
        x += wide;
    }
    rows
}

struct Out {
    bytes: Vec<u8>,
    style: Style,
    /// True if links are made known to the terminal.
    hyperlinks: bool,
}

/// True for characters that must not reach the terminal as part of a text.
fn is_forbidden(c: char) -> bool {
    c.is_control() || is_reordering(c)
}

impl Out {
    fn new(hyperlinks: bool) -> Out {
        Out { bytes: Vec::new(), style: Style::new(), hyperlinks }
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn number(&mut self, last: u8, number: u16) {
        // Writing to memory does not fail.
        write!(self.bytes, "\x1b[{number}{}", char::from(last)).ok();
    }

    fn styled(&mut self, text: &str, style: Style) {
        self.set(style);
        // The last guard: text was sanitised before it was laid out.
        if !text.chars().any(is_forbidden) {
            return self.raw(text.as_bytes());
        }
        let safe: String = text.chars().filter(|c| !is_forbidden(*c)).collect();
        self.raw(safe.as_bytes());
    }

    /// Writes a row, cut at `columns`: a longer one would wrap.
    fn row(&mut self, row: &TextRow, columns: usize) {
        self.text_of_row(row, columns);
        // The background of the row extends to the right edge. Erased cells are no content, so the
        // row is not longer for terminals that reflow. In the last column the cursor would be on the
        // last character.
        if row.style.bg.is_some() && columns_of(&row.spans) < columns {
            self.set(Style { bg: row.style.bg, ..Style::new() });
            self.raw(b"\x1b[K");
        }
        self.set(Style::new());
    }

    fn text_of_row(&mut self, row: &TextRow, columns: usize) {
        let mut left = columns;
        for span in &row.spans {
            let style = row.style.patch(span.style);
            let wide = width(&span.content);
            if wide <= left {
                self.styled(&span.content, style);
                left -= wide;
                continue;
            }
            for grapheme in span.content.graphemes(true) {
                let wide = width(grapheme);
                if wide > left {
                    return;
                }
                self.styled(grapheme, style);
                left -= wide;
            }
        }
    }

    fn cells(&mut self, buffer: &Buffer, y: u16, from: usize, to: usize) {
        let mut x = from;
        while x < to {
            let Some(cell) = cell(buffer, x, y) else { break };
            let (fg, bg, link) = (Some(cell.fg), Some(cell.bg), Some(cell.underline_color));
            let style =
                Style { fg, bg, underline_color: link, ..Style::new() }.add_modifier(cell.modifier);
            self.styled(cell.symbol(), style);
            x += width(cell.symbol()).max(1);
        }
        self.set(Style::new());
    }

    fn set(&mut self, style: Style) {
        let style = Style {
            fg: style.fg.filter(|color| *color != Color::Reset),
            bg: style.bg.filter(|color| *color != Color::Reset),
            add_modifier: style.add_modifier,
            underline_color: style
                .underline_color
                .filter(|color| self.hyperlinks && *color != Color::Reset),
            ..Style::new()
        };
        if style == self.style {
            return;
        }
        if style.underline_color != self.style.underline_color {
            self.raw(links::sequence(style.underline_color).as_bytes());
        }
        self.raw(b"\x1b[0");
        for (modifier, code) in MODIFIERS {
            if style.add_modifier.contains(modifier) {
                write!(self.bytes, ";{code}").ok();
            }
        }
        for (color, base) in [(style.fg, 30), (style.bg, 40)] {
            if let Some(code) = color.and_then(|color| code_of(color, base)) {
                write!(self.bytes, ";{code}").ok();
            }
        }
        self.raw(b"m");
        self.style = style;
    }
}

const MODIFIERS: [(Modifier, u8); 6] = [
    (Modifier::BOLD, 1),
    (Modifier::DIM, 2),
    (Modifier::ITALIC, 3),
    (Modifier::UNDERLINED, 4),
    (Modifier::REVERSED, 7),
    (Modifier::CROSSED_OUT, 9),
];

/// SGR code of a colour; `None` for the terminal's own. `base`: 30 for the foreground, 40 for the
/// background.
fn code_of(color: Color, base: u8) -> Option<String> {
    let nth = match color {
        Color::Rgb(red, green, blue) => {
            return Some(format!("{};2;{red};{green};{blue}", base + 8));
        }
        Color::Indexed(index) => return Some(format!("{};5;{index}", base + 8)),
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 60,
        Color::LightRed => 61,
        Color::LightGreen => 62,
        Color::LightYellow => 63,
        Color::LightBlue => 64,
        Color::LightMagenta => 65,
        Color::LightCyan => 66,
        Color::White => 67,
        Color::Reset => return None,
    };
    Some((base + nth).to_string())
}

#[cfg(test)]
mod tests;
