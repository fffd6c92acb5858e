//! Text for the screen: control sequences removed, measured in columns, wrapped into rows.

use posse_base::failure::printable;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::theme::{Role, Theme};

/// A row of styled text.
pub(super) type TextRow = Line<'static>;

/// Spaces that replace a tab.
const TAB: &str = "    ";

/// Creates a piece of text in the style of a role.
pub(super) fn span(theme: Theme, role: Role, text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), theme.style(role))
}

/// Creates a row in the style of a role.
pub(super) fn row(theme: Theme, role: Role, text: impl Into<String>) -> TextRow {
    Line::from(span(theme, role, text))
}

/// Creates the row of a selected entry, over the whole width.
pub(super) fn selected_row(theme: Theme, text: &str, columns: usize) -> TextRow {
    let text = clipped(text, columns);
    let space = columns.saturating_sub(width(&text));
    row(theme, Role::Selected, text + &" ".repeat(space))
}

/// Number of columns of `text` on the screen: the sum over its graphemes.
pub(super) fn width(text: &str) -> usize {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text.len();
    }
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// Splits `text` into graphemes. A grapheme wider than `columns` is split into characters, because
/// some scripts join any number of characters.
fn split_graphemes(text: &str, columns: usize) -> impl Iterator<Item = &str> {
    text.graphemes(true).flat_map(move |grapheme| {
        let count = if width(grapheme) > columns { grapheme.chars().count() } else { 1 };
        let mut rest = grapheme;
        (0..count).map(move |nth| {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let end = if nth + 1 == count { rest.len() } else { first };
            let (part, after) = rest.split_at(end);
            rest = after;
            part
        })
    })
}

/// Number of columns of `spans` on the screen.
pub(super) fn columns_of(spans: &[Span<'_>]) -> usize {
    spans.iter().map(|span| width(&span.content)).sum()
}

/// Puts a prefix before a row.
pub(super) fn prefixed(prefix: &[Span<'static>], row: TextRow) -> TextRow {
    let spans: Vec<_> = prefix.iter().cloned().chain(row.spans).collect();
    Line::from(spans).style(row.style)
}

/// Wraps a sanitized text of several lines into rows. Continuation rows are indented by the indent
/// of their line, up to a maximum, plus two columns.
pub(super) fn text_rows(theme: Theme, role: Role, text: &str, columns: usize) -> Vec<TextRow> {
    let rows =
        |line: &str| wrap(&[span(theme, role, line)], columns, &[], &hanging_indent(line, columns));
    text.split('\n').flat_map(rows).collect()
}

/// Wraps a text at white space into lines of at most `columns` columns, as `text_rows` does. Control
/// sequences are removed. Each line ends with a newline; an empty text has none.
pub fn wrapped_text(text: &str, columns: usize) -> String {
    if text.is_empty() {
        return String::new();
    }
    let text = sanitize(text.trim_end_matches('\n'));
    let rows = text_rows(Theme::PLAIN, Role::Text, &text, columns);
    let line = |row: &TextRow| -> String {
        row.spans.iter().map(|span| span.content.as_ref()).collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(|row| line(row) + "\n").collect()
}

/// Drops the start of `text` if it has more than twice `bytes` bytes, so that about the last
/// `bytes` bytes remain.
pub(super) fn keep_end(text: &mut String, bytes: usize) {
    if text.len() > 2 * bytes {
        text.drain(..text.ceil_char_boundary(text.len() - bytes));
    }
}

/// Maximum combining marks on one character: more could draw over other rows.
const MARKS_MAX: usize = 4;

/// Makes `text` safe to draw: escape sequences are removed; other control characters and direction
/// overrides are escaped. Newlines stay, tabs become spaces, and combining marks after the fourth
/// in a row are dropped. Emoji sequences are split into characters, because terminals disagree on
/// their width.
///
/// Of a line with carriage returns, only the last part that is not empty is kept.
pub(super) fn sanitize(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            safe.push('\n');
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or_default();
        sanitize_line(line, &mut safe);
    }
    safe
}

fn sanitize_line(line: &str, safe: &mut String) {
    if line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return safe.push_str(line);
    }
    let (mut rest, mut marks) = (line, 0);
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = if c == '\u{1b}' { after_sequence(after) } else { after };
        let is_mark = c.width() == Some(0);
        marks = if is_mark { marks + 1 } else { 0 };
        match c {
            '\u{1b}' => (),
            '\t' => safe.push_str(TAB),
            c if is_joiner(c) => (),
            // Regional indicators of a flag.
            '\u{1f1e6}'..='\u{1f1ff}' => {
                let nth = u32::from(c) - 0x1f1e6 + u32::from('A');
                safe.extend(char::from_u32(nth));
            }
            _ if is_mark && marks > MARKS_MAX => (),
            c if c.is_control() || is_reordering(c) => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
}

/// Returns the text after the escape sequence at the start of `rest`. An unterminated sequence
/// extends to the end of the line.
fn after_sequence(rest: &str) -> &str {
    let Some(kind) = rest.chars().next() else { return "" };
    let after = &rest[kind.len_utf8()..];
    let end = match kind {
        '[' => after.find(|c: char| ('@'..='~').contains(&c)).map(|at| at + 1),
        ']' | 'P' | '_' | '^' | 'X' => {
            let bell = after.find('\u{7}').map(|at| at + 1);
            let string_end = after.find("\u{1b}\\").map(|at| at + 2);
            bell.into_iter().chain(string_end).min()
        }
        // Character set designations have one more character.
        '(' | ')' | '*' | '+' | '#' | '%' | ' ' => after.chars().next().map(char::len_utf8),
        c if c.is_ascii() => Some(0),
        _ => return rest,
    };
    end.map_or("", |end| &after[end..])
}

/// Returns `true` for joiners, modifiers and selectors, which have no glyph of their own.
fn is_joiner(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{1f3fb}'..='\u{1f3ff}')
}

/// Returns `true` for characters that reorder or hide text.
pub(super) fn is_reordering(c: char) -> bool {
    matches!(c,
        '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2061}'..='\u{2069}' | '\u{3164}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e01ef}')
}

/// Escapes all invisible characters and unusual spaces, after [`printable`] has escaped the control
/// characters. Spaces and tabs stay.
pub(super) fn escape_invisible(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for c in printable(text).chars() {
        let blank = c != ' ' && c != '\t' && c.is_whitespace() || c == '\u{2800}';
        if blank || is_joiner(c) || is_reordering(c) {
            seen.extend(c.escape_unicode());
        } else {
            seen.push(c);
        }
    }
    seen
}

/// Number of bytes of the first graphemes that fit into `columns` columns together with an
/// ellipsis.
fn fitting<'t>(graphemes: impl Iterator<Item = &'t str>, columns: usize) -> usize {
    let mut taken = 1;
    let fits = |grapheme: &&str| {
        taken += width(grapheme);
        taken <= columns
    };
    graphemes.take_while(fits).map(str::len).sum()
}

/// The start of `text` in at most `columns` columns, with an ellipsis if it was cut.
pub(super) fn clipped(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let ellipsis = if columns > 0 { "…" } else { "" };
    format!("{}{ellipsis}", &text[..fitting(text.graphemes(true), columns)])
}

/// The end of `path` in at most `columns` columns, with an ellipsis if it was cut. The ellipsis is
/// written even if `columns` is 0.
pub(super) fn clipped_front(path: &str, columns: usize) -> String {
    if width(path) <= columns {
        return path.to_owned();
    }
    let from = path.len() - fitting(path.graphemes(true).rev(), columns);
    format!("…{}", &path[from..])
}

/// Wraps `spans` at white space into rows of at most `columns`; a word that is longer than a row is
/// broken. White space at a break is left out. The first row starts with `first`, the others with
/// `rest`.
pub(super) fn wrap(
    spans: &[Span<'static>],
    columns: usize,
    first: &[Span<'static>],
    rest: &[Span<'static>],
) -> Vec<TextRow> {
    let mut wrapper = Wrapper {
        columns: columns.max(1),
        rest,
        rows: Vec::new(),
        row: first.to_vec(),
        taken: columns_of(first),
        fresh: true,
        gap: Vec::new(),
        word: Vec::new(),
    };
    for span in spans {
        wrapper.add(&span.content, span.style);
    }
    wrapper.end_word();
    wrapper.rows.push(Line::from(wrapper.row));
    wrapper.rows
}

/// Indent of the continuation rows of `line`, in columns: min(indent of `line`, [`HANGING_MAX`],
/// `columns` / 4) + 2.
fn hanging_indent(line: &str, columns: usize) -> [Span<'static>; 1] {
    let indent = line.bytes().take_while(|byte| *byte == b' ').count();
    [Span::raw(" ".repeat(indent.min(HANGING_MAX).min(columns / 4) + 2))]
}

/// Breaks a line into rows at the right edge only, not at white space: nothing is left out, and
/// text that is typed at its end does not jump. The first row starts with `first`, the others with
/// `rest`. The last column stays free for a cursor.
pub(super) fn break_rows(
    line: &str,
    columns: usize,
    first: &[Span<'static>],
    rest: &[Span<'static>],
    theme: Theme,
) -> Vec<TextRow> {
    let room = columns.saturating_sub(1).max(4);
    let mut rows = vec![Line::from(first.to_vec())];
    let mut piece = String::new();
    let mut taken = columns_of(first);
    let own = columns_of(rest);
    for grapheme in split_graphemes(line, room.saturating_sub(own)) {
        if taken + width(grapheme) > room && !piece.is_empty() {
            if let Some(last) = rows.last_mut() {
                last.push_span(span(theme, Role::Text, std::mem::take(&mut piece)));
            }
            rows.push(Line::from(rest.to_vec()));
            taken = own;
        }
        piece.push_str(grapheme);
        taken += width(grapheme);
    }
    if let Some(last) = rows.last_mut()
        && !piece.is_empty()
    {
        last.push_span(span(theme, Role::Text, piece));
    }
    rows
}

/// Maximum columns of the indent that continuation rows repeat.
const HANGING_MAX: usize = 12;

struct Wrapper<'a> {
    columns: usize,
    rest: &'a [Span<'static>],
    rows: Vec<TextRow>,
    /// The current row.
    row: Vec<Span<'static>>,
    taken: usize,
    /// True if the current row contains only its prefix.
    fresh: bool,
    /// White space that is written only if a word follows in the same row.
    gap: Vec<Span<'static>>,
    /// The current, possibly unfinished word.
    word: Vec<Span<'static>>,
}

impl Wrapper<'_> {
    fn add(&mut self, text: &str, style: Style) {
        for grapheme in text.graphemes(true) {
            if grapheme.starts_with(' ') {
                self.end_word();
                push(&mut self.gap, grapheme, style);
            } else {
                push(&mut self.word, grapheme, style);
                // In scripts without spaces each wide character is a word.
                if width(grapheme) > 1 {
                    self.end_word();
                }
            }
        }
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let gap = std::mem::take(&mut self.gap);
        let needed = columns_of(&gap) + columns_of(&word);
        if self.taken + needed <= self.columns {
            self.write(&gap);
            self.write(&word);
            return;
        }
        if !self.fresh {
            self.next_row();
        } else if self.taken + columns_of(&gap) < self.columns {
            // The first word after an indent does not fit.
            self.write(&gap);
        }
        if self.taken + columns_of(&word) <= self.columns {
            return self.write(&word);
        }
        let room = self.columns.saturating_sub(columns_of(self.rest));
        for span in word {
            // Lists and paths are preferably broken after their separators.
            for piece in span.content.split_inclusive([',', ';', '/']) {
                if self.taken + width(piece) > self.columns && width(piece) <= room && !self.fresh {
                    self.next_row();
                }
                for part in split_graphemes(piece, room) {
                    if self.taken + width(part) > self.columns && !self.fresh {
                        self.next_row();
                    }
                    self.write(&[Span::styled(part, span.style)]);
                }
            }
        }
    }

    fn write(&mut self, pieces: &[Span<'_>]) {
        for piece in pieces {
            self.taken += width(&piece.content);
            self.fresh = false;
            push(&mut self.row, &piece.content, piece.style);
        }
    }

    fn next_row(&mut self) {
        let row = std::mem::replace(&mut self.row, self.rest.to_vec());
        self.rows.push(Line::from(row));
        self.taken = columns_of(self.rest);
        self.fresh = true;
    }
}

/// Appends a text to `spans`: to the last span if it has the same style, otherwise as a new span.
fn push(spans: &mut Vec<Span<'static>>, text: &str, style: Style) {
    match spans.last_mut() {
        Some(last) if last.style == style => last.content.to_mut().push_str(text),
        _ => spans.push(Span::styled(text.to_owned(), style)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(text: &str, columns: usize) -> Vec<String> {
        let spans = [Span::raw(text.to_owned())];
        let rows = wrap(&spans, columns, &[], &[]);
        rows.iter().map(|row| row.spans.iter().map(|span| &*span.content).collect()).collect()
    }

    #[test]
    fn plain_lines_are_wrapped_at_words() {
        let text = "note: the permission mode is plan\nwarning: \u{1b}[2Jx\n";
        assert_eq!(wrapped_text(text, 20), "note: the permission\n  mode is plan\nwarning: x\n");
        assert_eq!(wrapped_text("", 20), "");
    }

    #[test]
    fn wraps_at_spaces_before_breaking_words() {
        assert_eq!(rows("one two three", 8), ["one two", "three"]);
        assert_eq!(rows("", 8), [""]);
        assert_eq!(rows("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(rows("a bcdefgh", 4), ["a", "bcde", "fgh"]);
        assert_eq!(rows("    indented word", 12), ["    indented", "word"]);
        assert_eq!(rows("日本語", 4), ["日本", "語"]);
        assert_eq!(rows("bash,edit,glob,write_file", 12), ["bash,edit,", "glob,", "write_file"]);
        assert_eq!(rows("a bash/write_fi", 8), ["a", "bash/", "write_fi"]);
    }

    #[test]
    fn sanitize_removes_control_sequences() {
        let table = [
            ("a\u{1b}[31mred\u{1b}[0m", "ared"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}]8;;http://x\u{1b}\\y", "y"),
            ("\u{1b}Pnever ends", ""),
            ("a\tb", "a    b"),
            ("10%\r20%\r100%", "100%"),
            ("windows\r\nlines\r\n", "windows\nlines\n"),
            ("bell\u{7}", "bell\\u{7}"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("\u{1b}(Bx", "x"),
            ("\u{1b}é", "é"),
            ("👩\u{200d}👩\u{200d}👧", "👩👩👧"),
            ("👍\u{1f3fd} ❤\u{fe0f} 1\u{fe0f}\u{20e3}", "👍 ❤ 1\u{20e3}"),
            ("🇩🇪", "DE"),
            ("soft\u{ad}hyphen", "softhyphen"),
            ("a\u{3164}b", "a\\u{3164}b"),
            ("e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}", "e\u{301}\u{301}\u{301}\u{301}"),
        ];
        for (text, safe) in table {
            assert_eq!(sanitize(text), safe, "{text:?}");
        }
    }

    #[test]
    fn width_matches_drawing() {
        let table =
            [("", 0), ("abc", 3), ("日本", 4), ("e\u{301}", 1), ("👩👧", 4), ("\u{644}\u{627}", 2)];
        for (text, columns) in table {
            assert_eq!(width(text), columns, "{text:?}");
        }
    }

    #[test]
    fn invisible_characters_are_escaped() {
        let table = [
            ("rm\u{a0}-rf", "rm\\u{a0}-rf"),
            ("a\u{fe0f}b", "a\\u{fe0f}b"),
            ("a\u{200b}b\u{200d}c", "a\\u{200b}b\\u{200d}c"),
            ("a\u{2800}\u{3000}b", "a\\u{2800}\\u{3000}b"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("a\u{3164}=1", "a\\u{3164}=1"),
            ("grün 日本\tx", "grün 日本\tx"),
        ];
        for (text, seen) in table {
            assert_eq!(escape_invisible(text), seen, "{text:?}");
        }
    }

    #[test]
    fn clipped_text_ends_with_an_ellipsis() {
        assert_eq!(clipped("hello", 5), "hello");
        assert_eq!(clipped("hello", 4), "hel…");
        assert_eq!(clipped("日本語", 4), "日…");
        assert_eq!(clipped("hello", 0), "");
        assert_eq!(clipped_front("/home/me/project", 9), "…/project");
    }

    proptest! {
        #[test]
        fn wrapping_keeps_all_letters_and_the_width(text in "[a-z日é ]{0,80}", columns in 2usize..40) {
            let rows = rows(&text, columns);
            for row in &rows {
                prop_assert!(width(row) <= columns, "{row:?}");
            }
            let letters = |text: &str| text.replace(' ', "");
            prop_assert_eq!(letters(&rows.concat()), letters(&text));
        }

        #[test]
        fn sanitized_text_has_no_control_characters(text in any::<String>()) {
            let safe = sanitize(&text);
            prop_assert!(safe.chars().all(|c| c == '\n' || !(c.is_control() || is_reordering(c))));
        }
    }
}
