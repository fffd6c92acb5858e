//! Splitting of a long text into pages without losing a character.

use std::collections::VecDeque;

use posse_base::failure::printable;
use unicode_width::UnicodeWidthChar;

/// Maximum rows of a page. A row is [`COLUMNS`] columns of text, or the end of a line.
const ROWS: usize = 200;

/// Columns of text that count as one row; the rule before a line is not counted. The terminal wraps
/// longer lines.
const COLUMNS: usize = 100;

/// Maximum columns that a tab takes.
const TAB_COLUMNS: usize = 8;

/// One page of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuestionPage {
    /// Text as displayed.
    pub(super) text: String,
    /// Number of lines that begin or continue on this page.
    pub(super) lines: usize,
}

/// Splits `text` into pages of at most [`ROWS`] rows; none if `text` is empty. Each line is escaped
/// and begins with a vertical rule. A line that continues on the next page has a different rule
/// there.
pub(super) fn pages(text: &str) -> VecDeque<QuestionPage> {
    let mut pages = VecDeque::new();
    let mut page = QuestionPage { text: String::new(), lines: 0 };
    let mut rows_left = ROWS;
    for line in text.split_terminator('\n') {
        let line = printable(line);
        let (mut rest, mut rule) = (line.as_str(), "  │ ");
        loop {
            if rows_left == 0 {
                pages.push_back(std::mem::replace(
                    &mut page,
                    QuestionPage { text: String::new(), lines: 0 },
                ));
                rows_left = ROWS;
            }
            let (cut, columns) = cut_at(rest, rows_left * COLUMNS);
            let (now, later) = rest.split_at(cut);
            page.text.push_str(rule);
            page.text.push_str(now);
            page.text.push('\n');
            page.lines += 1;
            rows_left -= columns.div_ceil(COLUMNS).clamp(1, rows_left);
            if later.is_empty() {
                break;
            }
            (rest, rule) = (later, "  ┆ ");
        }
    }
    if page.lines > 0 {
        pages.push_back(page);
    }
    pages
}

/// Bytes and columns of the longest beginning of `text` that takes at most `columns_max` columns.
fn cut_at(text: &str, columns_max: usize) -> (usize, usize) {
    let mut columns = 0;
    for (at, c) in text.char_indices() {
        // A character without a width of its own counts, so that a page is bounded.
        let own = if c == '\t' { TAB_COLUMNS } else { c.width().unwrap_or(0).max(1) };
        if columns + own > columns_max {
            return (at, columns);
        }
        columns += own;
    }
    (text.len(), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(pages: &VecDeque<QuestionPage>) -> String {
        let lines = pages.iter().flat_map(|page| page.text.lines());
        let text = lines.map(|line| match line.strip_prefix("  ┆ ") {
            Some(rest) => rest.to_owned(),
            None => format!("\n{}", line.strip_prefix("  │ ").unwrap()),
        });
        text.collect::<String>()
    }

    #[test]
    fn pages_contain_every_character() {
        let long: String = ('a'..='z').cycle().take(30_000).collect();
        for text in ["", "one", "one\n\ntwo", &"x\n".repeat(1000), &format!("{long}\nend"), &long] {
            let pages = pages(text);
            let expected = text.lines().fold(String::new(), |all, line| all + "\n" + line);
            assert_eq!(whole(&pages), expected);
            for page in &pages {
                assert!(page.text.chars().count() <= ROWS * (COLUMNS + 5), "{}", page.lines);
                assert_eq!(page.lines, page.text.lines().count());
            }
        }
    }

    #[test]
    fn a_page_has_two_hundred_lines() {
        let counts = |lines: usize| -> Vec<usize> {
            pages(&"x\n".repeat(lines)).iter().map(|page| page.lines).collect()
        };
        assert_eq!(counts(200), [200]);
        assert_eq!(counts(206), [200, 6]);
        assert_eq!(counts(0), [0; 0]);
    }

    #[test]
    fn wide_characters_and_tabs_fill_a_page_sooner() {
        let lines = |line: &str| pages(&format!("{line}\n").repeat(200)).len();
        assert_eq!(lines(&"x".repeat(100)), 1);
        assert_eq!(lines(&"漢".repeat(100)), 2);
        assert_eq!(lines(&"\t".repeat(25)), 2);
        assert_eq!(lines(&"e\u{301}".repeat(50)), 1);
    }

    #[test]
    fn blank_lines_are_paged() {
        let text = format!("true{}\ntouch PWNED", " ".repeat(50_000));
        let pages = pages(&text);
        assert_eq!(pages.len(), 3);
        assert!(pages[2].text.ends_with("  │ touch PWNED\n"));
    }
}
