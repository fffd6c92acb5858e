//! Words of a changed line that differ from the line that it replaces.

use std::collections::HashMap;
use std::ops::Range;

use similar::{Algorithm, DiffTag, capture_diff_slices};
use unicode_segmentation::UnicodeSegmentation;

use crate::diff::{LineKind, hunk};
use crate::text::sanitize;

/// Maximum length of a compared line in bytes.
const LINE_BYTES_MAX: usize = 500;

/// Lines of which a smaller part is equal, in percent of their bytes, are different lines: no words
/// are marked.
const EQUAL_MIN: usize = 40;

/// Ranges of bytes in a line.
type Ranges = Vec<Range<usize>>;

/// Changed words of the lines of a diff: by the index of the line, ranges of bytes in its sanitized
/// text without the sign. The first of several removed lines is compared with the first of the added
/// lines that follow, and so on.
pub(super) fn changed_words(lines: &[&str]) -> HashMap<usize, Ranges> {
    let mut marks = HashMap::new();
    let kind = |at: usize| {
        let line = lines.get(at).filter(|line| hunk(line).is_none())?;
        Some(LineKind::of(line))
    };
    let run = |from: usize, of: LineKind| {
        (from..lines.len()).take_while(|at| kind(*at) == Some(of)).count()
    };
    let mut at = 0;
    while at < lines.len() {
        let removed = run(at, LineKind::Removed);
        let added = run(at + removed, LineKind::Added);
        for nth in 0..removed.min(added) {
            let (old, new) = (at + nth, at + removed + nth);
            if let Some((in_old, in_new)) = compared(lines[old], lines[new]) {
                marks.insert(old, in_old);
                marks.insert(new, in_new);
            }
        }
        at += (removed + added).max(1);
    }
    marks
}

/// Ranges of the words that differ between two lines with signs; `None` if the lines are too long or
/// too different.
fn compared(old: &str, new: &str) -> Option<(Ranges, Ranges)> {
    if old.len().max(new.len()) > LINE_BYTES_MAX {
        return None;
    }
    let (old, new) = (sanitize(&old[1..]), sanitize(&new[1..]));
    let words = |line: &'_ str| -> Vec<(usize, String)> {
        line.split_word_bound_indices().map(|(at, word)| (at, word.to_owned())).collect()
    };
    let (old_words, new_words) = (words(&old), words(&new));
    let texts = |words: &[(usize, String)]| -> Vec<String> {
        words.iter().map(|(_, word)| word.clone()).collect()
    };
    let ops = capture_diff_slices(Algorithm::Myers, &texts(&old_words), &texts(&new_words));
    let offset = |words: &[(usize, String)], line: &str, at: usize| {
        words.get(at).map_or(line.len(), |(offset, _)| *offset)
    };
    let (mut in_old, mut in_new) = (Vec::new(), Vec::new());
    let mut equal = 0;
    for op in ops {
        let (tag, from, to) = op.as_tag_tuple();
        let from = offset(&old_words, &old, from.start)..offset(&old_words, &old, from.end);
        let to = offset(&new_words, &new, to.start)..offset(&new_words, &new, to.end);
        if tag == DiffTag::Equal {
            equal += old[from].trim().len();
        } else {
            in_old.push(from);
            in_new.push(to);
        }
    }
    let longest = old.trim().len().max(new.trim().len());
    let is_similar = equal * 100 >= longest * EQUAL_MIN;
    let filled = |ranges: Ranges| -> Ranges {
        ranges.into_iter().filter(|range| !range.is_empty()).collect()
    };
    is_similar.then(|| (filled(in_old), filled(in_new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(diff: &str) -> Vec<String> {
        let lines: Vec<&str> = diff.lines().collect();
        let marks = changed_words(&lines);
        let mut found: Vec<_> = marks.into_iter().collect();
        found.sort_by_key(|(at, _)| *at);
        let text = |(at, ranges): (usize, Vec<Range<usize>>)| {
            let line = sanitize(&lines[at][1..]);
            let words: Vec<&str> = ranges.into_iter().map(|range| &line[range]).collect();
            format!("{at}: {}", words.join("|"))
        };
        found.into_iter().map(text).collect()
    }

    #[test]
    fn changed_words_of_similar_lines_are_found() {
        let table: &[(&str, &[&str])] = &[
            ("-let a = 10;\n+let a = 12;", &["0: 10", "1: 12"]),
            ("-foo(a, b)\n+foo(a, b, c)", &["0: ", "1: , c"]),
            ("-return price * 2;\n+const x = require('y');", &[]),
            (
                " x\n-one two\n-three four\n+one 2\n+three 4\n y",
                &["1: two", "2: four", "3: 2", "4: 4"],
            ),
            ("-\tä b c\n+\tä x c", &["0: b", "1: x"]),
            ("-a\n@@ -1 +1 @@\n+a", &[]),
            ("+only added", &[]),
        ];
        for (diff, expected) in table {
            assert_eq!(marked(diff), *expected, "{diff}");
        }
    }

    #[test]
    fn long_lines_are_not_compared() {
        let long = "x ".repeat(300);
        assert_eq!(marked(&format!("-{long}a\n+{long}b")), Vec::<String>::new());
    }
}
