//! Unified diff of a change, limited in size, with counts of changed lines.

use std::fmt::Write;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

use crate::text::{is_binary, lines, lines_ended};

/// Maximum size of a diff in bytes, without the notice of truncation.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of compared lines, of both texts together, for which a minimal diff is computed.
/// Above it, all compared lines are shown as replaced.
const SEARCHED_LINES_MAX: usize = 6000;
/// Number of unchanged lines shown before and after a change.
const CONTEXT: usize = 3;

/// Diff of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// Number of added lines, including those that `text` leaves out.
    pub added: usize,
    /// Number of removed lines, including those that `text` leaves out.
    pub removed: usize,
    /// The unified diff, at most 64 KiB plus a truncation notice. Invalid UTF-8
    /// is replaced.
    pub text: String,
    /// The hunks in `text`, in its order; empty if it does not show all of them.
    pub(crate) hunks: Vec<DiffHunk>,
}

/// Hunk of a diff: ranges of the two texts, with the unchanged lines around the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiffHunk {
    /// Byte range of the old text.
    pub(crate) old: Range<usize>,
    /// Byte range of the new text.
    pub(crate) new: Range<usize>,
    /// Lines of the old text.
    pub(crate) old_lines: Range<usize>,
    /// Lines of the new text.
    pub(crate) new_lines: Range<usize>,
}

/// Computes the diff for replacing `before` by `after` in the file `path`. `before` is `None` for a
/// new file. If both are equal, the text of the diff is empty. For binary files, all lines count as
/// replaced, and the text only says that they differ.
pub fn unified(path: &str, before: Option<&[u8]>, after: &[u8]) -> Diff {
    let old_name = before.map_or("/dev/null".to_owned(), |_| format!("a/{path}"));
    let header = format!("--- {old_name}\n+++ b/{path}\n");
    let before = before.unwrap_or_default();
    if before == after {
        return Diff { added: 0, removed: 0, text: String::new(), hunks: Vec::new() };
    }
    if is_binary(before) || is_binary(after) {
        let (added, removed) = (lines(after), lines(before));
        let text = format!("{header}binary files differ\n");
        return Diff { added, removed, text, hunks: Vec::new() };
    }
    let window = Window::around_change(before, after);
    let old: Vec<&[u8]> = split_lines(&before[window.old.clone()]);
    let new: Vec<&[u8]> = split_lines(&after[window.new.clone()]);
    let ops = operations(&old, &new);
    let mut diff = Diff { added: 0, removed: 0, text: header, hunks: Vec::new() };
    let mut hidden = 0;
    for group in group_diff_ops(ops, CONTEXT) {
        hunk(&mut diff, &mut hidden, &group, &window, (&old, &new));
    }
    if hidden > 0 {
        diff.hunks.clear();
        // Writing to a string cannot fail.
        let _ = writeln!(diff.text, "[{hidden} more lines of the diff are not shown]");
    }
    diff
}

/// Like [`unified`], for a file that may be deleted: `after` is `None` then.
pub fn of_file(path: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> Diff {
    let mut diff = unified(path, before, after.unwrap_or_default());
    if after.is_none() {
        // The header is the first place with this text.
        let name = format!("+++ b/{path}\n");
        diff.text = diff.text.replacen(&name, "+++ /dev/null\n", 1);
    }
    diff
}

/// Byte ranges of two texts that contain all their differences, in whole lines and with some
/// context.
struct Window {
    old: Range<usize>,
    new: Range<usize>,
    /// Number of lines before these ranges.
    line: usize,
}

impl Window {
    fn around_change(before: &[u8], after: &[u8]) -> Window {
        let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        let start = line_start(before, same);
        let (old, new) = (&before[start..], &after[start..]);
        let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
        let tail = &old[old.len() - same..];
        // Whole lines only: the first line that ends in the tail may begin before it.
        let whole = tail.iter().position(|byte| *byte == b'\n').map_or(&[][..], |i| &tail[i + 1..]);
        let context: usize =
            whole.split_inclusive(|byte| *byte == b'\n').take(CONTEXT + 1).map(<[u8]>::len).sum();
        let mut from = start;
        for _ in 0..CONTEXT {
            from = if from == 0 { 0 } else { line_start(before, from - 1) };
        }
        let unseen = whole.len() - context;
        Window {
            old: from..before.len() - unseen,
            new: from..after.len() - unseen,
            line: lines_ended(&before[..from]),
        }
    }
}

/// Offset of the start of the line that contains byte `position`.
fn line_start(bytes: &[u8], position: usize) -> usize {
    bytes[..position].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// Splits `bytes` into lines, which keep their line ends.
pub(crate) fn split_lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

fn operations(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    let one_sided = old.is_empty() || new.is_empty();
    if one_sided || old.len() + new.len() <= SEARCHED_LINES_MAX {
        return capture_diff_slices(Algorithm::Myers, old, new);
    }
    vec![DiffOp::Replace { old_index: 0, old_len: old.len(), new_index: 0, new_len: new.len() }]
}

fn hunk(
    diff: &mut Diff,
    hidden: &mut usize,
    group: &[DiffOp],
    window: &Window,
    (old, new): (&[&[u8]], &[&[u8]]),
) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let old_range = first.old_range().start..last.old_range().end;
    let new_range = first.new_range().start..last.new_range().end;
    let (old_place, new_place) = (range(&old_range, window.line), range(&new_range, window.line));
    diff.hunks.push(DiffHunk {
        old: bytes_of(old, &old_range, window.old.start),
        new: bytes_of(new, &new_range, window.new.start),
        old_lines: old_range.start + window.line..old_range.end + window.line,
        new_lines: new_range.start + window.line..new_range.end + window.line,
    });
    append(&mut diff.text, hidden, &format!("@@ -{old_place} +{new_place} @@\n"));
    for op in group {
        let (removed, mut added) = (&old[op.old_range()], &new[op.new_range()]);
        let mut sign = '-';
        if let DiffOp::Equal { .. } = op {
            (sign, added) = (' ', &[]);
        } else {
            (diff.removed, diff.added) = (diff.removed + removed.len(), diff.added + added.len());
        }
        for line in removed {
            append_line(&mut diff.text, hidden, sign, line);
        }
        for line in added {
            append_line(&mut diff.text, hidden, '+', line);
        }
    }
}

/// Byte range of the `range` of `lines`, which begin at the offset `start`.
fn bytes_of(lines: &[&[u8]], range: &Range<usize>, start: usize) -> Range<usize> {
    let size = |lines: &[&[u8]]| lines.iter().map(|line| line.len()).sum::<usize>();
    let from = start + size(&lines[..range.start]);
    from..from + size(&lines[range.clone()])
}

/// Formats a range of lines in unified diff notation: `start,length`. An empty range begins at the
/// line before it. `lines_before` is added to the start.
fn range(range: &Range<usize>, lines_before: usize) -> String {
    let start = range.start + lines_before + usize::from(!range.is_empty());
    if range.len() == 1 { start.to_string() } else { format!("{start},{}", range.len()) }
}

fn append_line(text: &mut String, hidden: &mut usize, sign: char, line: &[u8]) {
    let ended = line.ends_with(b"\n");
    let end = if ended { "" } else { "\n\\ No newline at end of file\n" };
    append(text, hidden, &format!("{sign}{}{end}", String::from_utf8_lossy(line)));
}

fn append(text: &mut String, hidden: &mut usize, lines: &str) {
    if *hidden > 0 || text.len() + lines.len() > TEXT_BYTES_MAX {
        *hidden += 1;
    } else {
        text.push_str(lines);
    }
}

#[cfg(test)]
mod tests;
