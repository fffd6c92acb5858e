//! Rendering of a unified diff with line numbers: of the new file, or of the old one for removed
//! lines.

use ratatui::text::Span;

use crate::text::{TextRow, sanitize, span, wrap};
use crate::theme::{Role, Theme};

/// Renders the first `lines_max` lines of a diff, without its file headers and with a row between
/// hunks. If lines are left out, one more row gives their number, hunk headers included.
pub(super) fn rows(diff: &str, columns: usize, lines_max: usize, theme: Theme) -> Vec<TextRow> {
    let is_header = |line: &&str| line.starts_with("--- ") || line.starts_with("+++ ");
    let lines: Vec<&str> = diff.lines().skip_while(is_header).collect();
    let digits = digits(&lines);
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
            continue;
        }
        if shown == lines_max {
            let left = lines.len() - at;
            let text = format!("{:>digits$} … {left} more lines (Ctrl+O shows them)", "");
            rows.push(crate::text::row(theme, Role::Dim, text));
            break;
        }
        shown += 1;
        let (role, number) = match line.as_bytes().first() {
            Some(b'+') => (Role::Added, Some(&mut new)),
            Some(b'-') => (Role::Removed, Some(&mut old)),
            Some(b'\\') => (Role::Dim, None),
            _ => {
                old = old.saturating_add(1);
                (Role::Dim, Some(&mut new))
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
        let text = [span(theme, role, sanitize(line))];
        rows.extend(wrap(&text, columns, &before, &below));
    }
    rows
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

    fn shown(diff: &str, columns: usize, lines_max: usize) -> String {
        let rows = rows(diff, columns, lines_max, Theme::Plain);
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

    #[test]
    fn invalid_diffs_are_shown_as_text() {
        assert_eq!(shown("\u{1b}[2Jx", 20, 3), "  0 x\n");
        assert_eq!(
            shown("@@ -99999999999999999999 +1 @@\n+a", 40, 3),
            "  0 @@ -99999999999999999999 +1 @@\n  1 +a\n"
        );
    }
}
