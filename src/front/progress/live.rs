//! Text of a streamed reply on a terminal, and its removal when the reply is cut off.
//!
//! Only visible rows without other output in between are removed; for scrolled rows a line marks
//! the reply as void.

use unicode_width::UnicodeWidthChar;

/// Maximum bytes of a reply that can be erased, with notices about it; no terminal shows more at
/// once.
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// Columns between tab stops.
const TAB: usize = 8;

/// Function that returns the size of the terminal: columns and rows; `None` if it is unknown.
pub(super) type ScreenSize = fn() -> Option<(u16, u16)>;

/// Size of the terminal at standard error: columns and rows; `None` if it is unknown.
pub(super) fn screen() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Text that was written since a reply began at the start of a line. It determines the rows to
/// erase.
#[derive(Debug)]
pub(super) struct LiveText {
    text: String,
    /// Size of the terminal when the reply began; `None` if the text can no longer be erased.
    size: Option<(u16, u16)>,
    broke_off: bool,
}

impl LiveText {
    pub(super) fn new(size: Option<(u16, u16)>) -> LiveText {
        LiveText { text: String::new(), size, broke_off: false }
    }

    /// Adds text that goes to the terminal. Above [`SHOWN_BYTES_MAX`] bytes in total the reply can
    /// no longer be erased.
    pub(super) fn add(&mut self, text: &str) {
        if self.text.len() + text.len() > SHOWN_BYTES_MAX {
            self.make_permanent();
        }
        if self.size.is_some() {
            self.text.push_str(text);
        }
    }

    /// Drops the text, so that it can no longer be erased.
    pub(super) fn make_permanent(&mut self) {
        (self.size, self.text) = (None, String::new());
    }

    /// Registers that the reply was cut off. `text`: the notice that was written about it.
    pub(super) fn interrupt(&mut self, text: &str) {
        self.add(text);
        self.broke_off = true;
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.broke_off
    }

    /// Escape sequence that erases the text on a terminal of this size. `None` if a part of the
    /// text is not visible or can no longer be erased, or if the size is unknown or has changed.
    pub(super) fn erase_sequence(&self, size: Option<(u16, u16)>) -> Option<String> {
        let (columns, rows) = size.filter(|_| size == self.size)?;
        let up = rows_below_first(&self.text, usize::from(columns));
        (up < usize::from(rows)).then(|| match up {
            0 => "\r\u{1b}[J".to_owned(),
            up => format!("\r\u{1b}[{up}A\u{1b}[J"),
        })
    }
}

/// Beginning of `line` that fits into one row, so that the row can be redrawn. The whole line if
/// the size is unknown.
pub(super) fn clip_to_row(line: &str, size: Option<(u16, u16)>) -> &str {
    let Some((columns, _)) = size else { return line };
    let mut left = usize::from(columns);
    let too_much = line.char_indices().find(|(_, c)| {
        let width = c.width().unwrap_or_default();
        let fits = width <= left;
        left = left.saturating_sub(width);
        !fits
    });
    too_much.map_or(line, |(end, _)| &line[..end])
}

/// Number of rows by which `text` moves the cursor down on a terminal of this width. Besides
/// printable characters, the text contains only posse's own colours, line feeds, tabs and carriage
/// returns.
fn rows_below_first(text: &str, columns: usize) -> usize {
    let (mut row, mut column) = (0, 0);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\n' => (row, column) = (row + 1, 0),
            '\r' => column = 0,
            '\t' => column = ((column / TAB + 1) * TAB).min(columns - 1),
            // `[`, numbers, and a letter.
            '\u{1b}' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            c => {
                let width = c.width().unwrap_or_default();
                // The cursor stays after the last column until more text is written.
                if column + width > columns {
                    (row, column) = (row + 1, 0);
                }
                column += width;
            }
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_count_matches_the_terminal() {
        let table = [
            ("", 0),
            ("abc", 0),
            // Exactly as wide as the terminal: the cursor waits at the end of the row.
            ("0123456789", 0),
            ("0123456789a", 1),
            ("0123456789\n", 1),
            ("a\nb\nc", 2),
            ("日本語日本", 0),
            ("日本語日本語", 1),
            ("123456789日", 1),
            ("e\u{301}23456789a", 0),
            ("\ta", 0),
            ("\t\tab", 1),
            ("\u{1b}[2m0123456789\u{1b}[0m", 0),
            ("abc\n\u{1b}[2m… waits\u{1b}[0m\r\u{1b}[Kmore", 1),
        ];
        for (text, rows) in table {
            assert_eq!(rows_below_first(text, 10), rows, "{text:?}");
        }
    }

    #[test]
    fn invisible_or_moved_rows_are_not_redrawn() {
        let mut live = LiveText::new(Some((10, 4)));
        live.interrupt("a\nb\nc\n");
        assert_eq!(live.erase_sequence(Some((10, 4))).unwrap(), "\r\u{1b}[3A\u{1b}[J");
        assert_eq!(
            live.erase_sequence(Some((11, 4))),
            None,
            "its lines may be broken elsewhere now"
        );
        assert_eq!(live.erase_sequence(None), None);
        live.add("d\n");
        assert_eq!(live.erase_sequence(Some((10, 4))), None, "its first line has scrolled away");
        let mut live = LiveText::new(Some((10, 4)));
        live.add(&"x".repeat(SHOWN_BYTES_MAX + 1));
        assert_eq!(live.erase_sequence(Some((10, 4))), None);
    }
}
