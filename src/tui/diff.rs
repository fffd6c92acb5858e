//! Rendering of a unified diff with line numbers: of the new file, or of the old one for removed
//! lines. Code is highlighted, and changed words are marked.

mod words;

use ratatui::style::Style;
use ratatui::text::Span;

use crate::highlight::Highlighter;
use crate::text::{TextRow, sanitize, span, wrap};
use crate::theme::{Role, Theme};

use words::changed_words;

/// Renders the first `lines_max` lines of a diff, without its file headers and with a row between
/// hunks. If lines are left out, one more row gives their number, hunk headers included. Code is
/// highlighted if the theme has backgrounds for changed lines; changed words of a line are marked.
pub(super) fn rows(diff: &str, columns: usize, lines_max: usize, theme: Theme) -> Vec<TextRow> {
    let headers: Vec<&str> = diff.lines().take_while(|line| is_header(line)).collect();
    let lines: Vec<&str> = diff.lines().skip(headers.len()).collect();
    let digits = digits(&lines);
    let marks = changed_words(&lines[..lines.len().min(lines_max.saturating_mul(2))]);
    let mut code = CodeColors::of(&headers, theme);
    let mut rows = Vec::new();
    let (mut old, mut new) = (0_u64, 0_u64);
    let mut shown = 0;
    let mut first = true;
    for (at, line) in lines.iter().enumerate() {
        if let Some((from, to)) = hunk(line) {
            (old, new) = (from, to);
            if !first {
                rows.push(crate::text::row(theme, Role::Dim, format!("{:>digits$} ⋮", "")));
            }
            first = false;
            code.begin_hunk();
            continue;
        }
        if shown == lines_max {
            let left = lines.len() - at;
            let text = format!("{:>digits$} … {left} more lines (Ctrl+O shows them)", "");
            rows.push(crate::text::row(theme, Role::Dim, text));
            break;
        }
        shown += 1;
        let kind = LineKind::of(line);
        let number = match kind {
            LineKind::Added => Some(&mut new),
            LineKind::Removed => Some(&mut old),
            LineKind::Note => None,
            LineKind::Context => {
                old = old.saturating_add(1);
                Some(&mut new)
            }
        };
        let gutter = match number {
            Some(number) => {
                let gutter = format!("{number:>digits$} ");
                *number = number.saturating_add(1);
                gutter
            }
            None => format!("{:>digits$} ", ""),
        };
        let before = [span(theme, Role::Dim, gutter)];
        let below = [Span::raw(" ".repeat(digits + 1))];
        let marked = marks.get(&at).map_or(&[][..], Vec::as_slice);
        let text = code.line(kind, line, marked, theme);
        let style = kind.background(theme);
        rows.extend(wrap(&text, columns, &before, &below).into_iter().map(|row| row.style(style)));
    }
    rows
}

fn is_header(line: &str) -> bool {
    line.starts_with("--- ") || line.starts_with("+++ ")
}

/// Kind of a line of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Added,
    Removed,
    Context,
    /// A line about the file, such as a missing line break at its end.
    Note,
}

impl LineKind {
    fn of(line: &str) -> LineKind {
        match line.as_bytes().first() {
            Some(b'+') => LineKind::Added,
            Some(b'-') => LineKind::Removed,
            Some(b'\\') => LineKind::Note,
            _ => LineKind::Context,
        }
    }

    fn role(self) -> Role {
        match self {
            LineKind::Added => Role::Added,
            LineKind::Removed => Role::Removed,
            LineKind::Context | LineKind::Note => Role::Dim,
        }
    }

    fn background(self, theme: Theme) -> Style {
        match self {
            LineKind::Added => theme.style(Role::AddedLine),
            LineKind::Removed => theme.style(Role::RemovedLine),
            LineKind::Context | LineKind::Note => Style::new(),
        }
    }
}

/// Colours of the code in a diff.
struct CodeColors {
    /// Language of the file; `None` if code is not highlighted.
    language: Option<Highlighter>,
    /// State in the old and in the new file.
    old: Highlighter,
    new: Highlighter,
}

impl CodeColors {
    /// `headers`: the lines with the names of the files.
    fn of(headers: &[&str], theme: Theme) -> CodeColors {
        let path = |line: &&str| {
            let path = line[4..].split('\t').next().unwrap_or_default();
            (path != "/dev/null").then(|| path.to_owned())
        };
        let path = headers.iter().rev().find_map(path).unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        let language = Highlighter::of(file.rsplit('.').next().unwrap_or_default());
        // Without backgrounds the colour of a line says that it was changed.
        let language = theme.has_backgrounds().then_some(language);
        CodeColors { language, old: Highlighter::default(), new: Highlighter::default() }
    }

    /// The state of comments and strings is unknown at the start of a hunk.
    fn begin_hunk(&mut self) {
        let language = self.language.clone().unwrap_or_default();
        (self.old, self.new) = (language.clone(), language);
    }

    /// The sign and the text of a line in pieces. `marked`: ranges of changed words in the sanitized
    /// text without its sign, in bytes.
    fn line(
        &mut self,
        kind: LineKind,
        line: &str,
        marked: &[std::ops::Range<usize>],
        theme: Theme,
    ) -> Vec<Span<'static>> {
        let line = sanitize(line);
        let first = line.chars().next().map_or(0, char::len_utf8);
        let is_plain = self.language.is_none() || kind == LineKind::Note;
        if !matches!(line.as_bytes().first(), Some(b'+' | b'-' | b' '))
            || is_plain && marked.is_empty()
        {
            return vec![span(theme, kind.role(), line)];
        }
        let (sign, text) = line.split_at(first);
        let pieces = match kind {
            _ if is_plain => vec![(kind.role(), text)],
            LineKind::Removed => self.old.line(text),
            LineKind::Added => self.new.line(text),
            LineKind::Context | LineKind::Note => {
                self.old.line(text);
                self.new.line(text)
            }
        };
        let word = if kind == LineKind::Added { Role::AddedWord } else { Role::RemovedWord };
        let mut spans = vec![span(theme, kind.role(), sign)];
        let mut at = 0;
        for (role, piece) in pieces {
            for (part, is_marked) in split_at_marks(piece, at, marked) {
                let style = theme.style(role);
                let style = if is_marked { style.patch(theme.style(word)) } else { style };
                spans.push(Span::styled(part.to_owned(), style));
            }
            at += piece.len();
        }
        spans
    }
}

/// Splits `piece`, which begins at byte `at` of its line, at the borders of `marked`. The flag is true
/// for a part inside a range.
fn split_at_marks<'t>(
    piece: &'t str,
    at: usize,
    marked: &[std::ops::Range<usize>],
) -> Vec<(&'t str, bool)> {
    let mut parts = Vec::new();
    let mut from = 0;
    for range in marked {
        let start = range.start.saturating_sub(at).clamp(from, piece.len());
        let end = range.end.saturating_sub(at).clamp(start, piece.len());
        parts.push((&piece[from..start], false));
        parts.push((&piece[start..end], true));
        from = end;
    }
    parts.push((&piece[from..], false));
    parts.retain(|(part, _)| !part.is_empty());
    parts
}

/// Number of digits for a line number: enough for the largest one, at least 3.
fn digits(lines: &[&str]) -> usize {
    let last = lines.iter().filter_map(|line| hunk(line)).map(|(old, new)| old.max(new)).max();
    let largest = last.unwrap_or_default().saturating_add(lines.len() as u64);
    largest.to_string().len().max(3)
}

/// First line numbers of a hunk in the old and in the new file; `None` if `line` is not the header
/// of a hunk.
fn hunk(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let number = |text: &str| text.split(',').next().and_then(|text| text.parse().ok());
    Some((number(old)?, number(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::ColorDepth;

    fn shown(diff: &str, columns: usize, lines_max: usize) -> String {
        let rows = rows(diff, columns, lines_max, Theme::PLAIN);
        let line = |row: &TextRow| {
            let text: String = row.spans.iter().map(|span| span.content.as_ref()).collect();
            text + "\n"
        };
        rows.iter().map(line).collect()
    }

    const DIFF: &str =
        "--- a\n+++ b\n@@ -9,3 +9,3 @@\n one\n-two\n+2\n three\n@@ -40 +40,2 @@\n x\n+y\n";

    #[test]
    fn lines_have_the_numbers_of_the_file() {
        insta::assert_snapshot!(shown(DIFF, 40, 20), @r"
          9  one
         10 -two
         10 +2
         11  three
            ⋮
         40  x
         41 +y
        ");
    }

    #[test]
    fn names_the_lines_left_out() {
        insta::assert_snapshot!(shown(DIFF, 60, 2), @r"
          9  one
         10 -two
            … 5 more lines (Ctrl+O shows them)
        ");
    }

    /// Styles of the row that contains `part`: of the row, and of the span that is `part`.
    fn styles(diff: &str, theme: Theme, part: &str) -> (Style, Style) {
        let rows = rows(diff, 60, 20, theme);
        let found = rows.iter().find_map(|row| {
            let found = row.spans.iter().find(|span| span.content == part);
            found.map(|span| (row.style, span.style))
        });
        found.unwrap_or_else(|| panic!("no span {part:?} in {rows:?}"))
    }

    #[test]
    fn code_and_changed_words_have_their_own_colours() {
        let diff =
            "--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n // note\n-let a = 10;\n+let a = 12;\n";
        let colours = Theme::of_terminal(ColorDepth::Truecolor);
        let theme = colours.switched("dark", &[]).unwrap();
        let keyword = theme.style(Role::Keyword);
        let (row, word) = styles(diff, theme, "10");
        assert_eq!(row, theme.style(Role::RemovedLine));
        assert_eq!(word, theme.style(Role::Number).patch(theme.style(Role::RemovedWord)));
        assert_eq!(styles(diff, theme, "12").0, theme.style(Role::AddedLine));
        assert_eq!(styles(diff, theme, "let").1, keyword);
        // Without backgrounds the whole line has one colour.
        let theme = Theme::default();
        let (row, word) = styles(diff, theme, "12");
        assert_eq!(row, Style::new());
        assert_eq!(word, theme.style(Role::Added).patch(theme.style(Role::AddedWord)));
    }

    #[test]
    fn pieces_are_split_at_marks() {
        assert_eq!(
            split_at_marks("abcdef", 10, &[0..3, 11..13, 15..20]),
            [("a", false), ("bc", true), ("de", false), ("f", true)]
        );
        assert_eq!(split_at_marks("ab", 0, &[]), [("ab", false)]);
    }

    #[test]
    fn invalid_diffs_are_shown_as_text() {
        assert_eq!(shown("\u{1b}[2Jx", 20, 3), "  0 x\n");
        assert_eq!(
            shown("@@ -99999999999999999999 +1 @@\n+a", 40, 3),
            "  0 @@ -99999999999999999999 +1 @@\n  1 +a\n"
        );
    }
}
