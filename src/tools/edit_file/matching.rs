//! Exact search and replacement of a text in a file.
//!
//! Works on bytes: everything outside a match is unchanged.

use std::borrow::Cow;
use std::ops::Range;

use crate::text::{lines_ended, with_crlf};

/// Content of a file after an edit, and the lines of the replaced texts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edited {
    pub(super) after: Vec<u8>,
    /// First line of each replaced text, from 1.
    pub(super) lines: Vec<usize>,
    /// Line of a second match that overlaps the only replaced one; `None` if there is none.
    pub(super) overlap: Option<usize>,
    /// True if line numbers had to be removed from the strings first.
    pub(super) unnumbered: bool,
}

/// The file would exceed its size limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Replaces every occurrence of `old` in `file` by `new`. `None` if there is no match or `old` is
/// empty.
///
/// LF in `old` also matches CR LF; LF in `new` then becomes the line end of the replaced text,
/// unless `old` or `new` contains a CR. If `old` does not match, and each of its lines begins with
/// a line number as shown by `read_file`, these numbers are removed first, and those of `new` if
/// each of its lines has one.
///
/// Fails if the result would be larger than `room` bytes. For this, each LF in `new` counts as CR
/// LF.
pub(super) fn replace(
    file: &[u8],
    old: &str,
    new: &str,
    room: usize,
) -> Result<Option<Edited>, TooLarge> {
    if let Some(edited) = replace_exactly(file, old, new, room)? {
        return Ok(Some(edited));
    }
    let Some(bare) = without_numbers(old) else { return Ok(None) };
    let new = without_numbers(new).map_or(Cow::Borrowed(new), Cow::Owned);
    let edited = replace_exactly(file, &bare, &new, room)?;
    Ok(edited.map(|edited| Edited { unnumbered: true, ..edited }))
}

/// Returns true if `file` contains `old`, as it is or without its line numbers. Always false if
/// `old` is empty.
pub(crate) fn contains(file: &[u8], old: &str) -> bool {
    let has = |old: &str| !old.is_empty() && !find(file, old).0.is_empty();
    has(old) || without_numbers(old).is_some_and(|bare| has(&bare))
}

fn replace_exactly(
    file: &[u8],
    old: &str,
    new: &str,
    room: usize,
) -> Result<Option<Edited>, TooLarge> {
    if old.is_empty() {
        return Ok(None);
    }
    let (ranges, overlap) = find(file, old);
    if ranges.is_empty() {
        return Ok(None);
    }
    // A text can grow by a CR for each LF.
    let added = ranges.len().saturating_mul(new.len() + lines_ended(new.as_bytes()));
    let removed: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    if added > removed && (file.len() - removed).saturating_add(added) > room {
        return Err(TooLarge);
    }
    // A CR in the string means that it is about line ends; then nothing is adapted.
    let edited = splice(file, &ranges, new, !old.contains('\r'));
    let overlap = overlap.map(|at| 1 + lines_ended(&file[..at]));
    Ok(Some(Edited { overlap, ..edited }))
}

/// Replaces the byte ranges `ranges` of `file` by `new`. The ranges must be sorted and must not
/// overlap.
///
/// If `adapt` is true and `new` contains no CR, LF in `new` becomes the line end that is used at
/// each range.
pub(super) fn splice(file: &[u8], ranges: &[Range<usize>], new: &str, adapt: bool) -> Edited {
    let adapt = adapt && !new.contains('\r') && new.contains('\n');
    let mut after = Vec::with_capacity(file.len() + new.len() * ranges.len());
    let (mut lines, mut line, mut done) = (Vec::with_capacity(ranges.len()), 1, 0);
    let mut counted = 0;
    for range in ranges {
        line += lines_ended(&file[counted..range.start]);
        counted = range.start;
        lines.push(line);
        after.extend_from_slice(&file[done..range.start]);
        if adapt && ends_with_crlf(file, range) {
            after.extend_from_slice(with_crlf(new).as_bytes());
        } else {
            after.extend_from_slice(new.as_bytes());
        }
        done = range.end;
    }
    after.extend_from_slice(&file[done..]);
    Edited { after, lines, overlap: None, unnumbered: false }
}

/// Finds the byte ranges of `old` in `file`, without overlaps. If there is only one, also returns
/// the position of a further match that overlaps it, if any.
fn find(file: &[u8], old: &str) -> (Vec<Range<usize>>, Option<usize>) {
    if old.contains('\r') || !file.windows(2).any(|pair| pair == b"\r\n") {
        let ranges = find_bytes(file, old);
        let overlap = find_overlap(file, old, &ranges);
        return (ranges, overlap);
    }
    let (plain, removed) = without_cr(file);
    let original = |position: usize| position + removed.partition_point(|end| *end < position);
    let ranges = find_bytes(&plain, old);
    let overlap = find_overlap(&plain, old, &ranges).map(original);
    let ranges = ranges.into_iter().map(|range| original(range.start)..original(range.end));
    (ranges.collect(), overlap)
}

fn find_overlap(file: &[u8], old: &str, ranges: &[Range<usize>]) -> Option<usize> {
    let [only] = ranges else { return None };
    let start = only.start + old.chars().next()?.len_utf8();
    let end = (only.end + old.len()).min(file.len());
    find_bytes(&file[start..end], old).first().map(|range| start + range.start)
}

/// Finds the byte ranges of `old` in `file`. `old` is UTF-8, so it cannot match within invalid
/// bytes.
fn find_bytes(file: &[u8], old: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for chunk in file.utf8_chunks() {
        for (at, found) in chunk.valid().match_indices(old) {
            ranges.push(start + at..start + at + found.len());
        }
        start += chunk.valid().len() + chunk.invalid().len();
    }
    ranges
}

/// Converts CR LF in `file` to LF. Also returns the positions, in the result, of the LF that lost a
/// CR.
fn without_cr(file: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut plain = Vec::with_capacity(file.len());
    let mut removed = Vec::new();
    for (index, byte) in file.iter().enumerate() {
        if *byte == b'\r' && file.get(index + 1) == Some(&b'\n') {
            removed.push(plain.len());
        } else {
            plain.push(*byte);
        }
    }
    (plain, removed)
}

/// Returns true if the line end at `range` is CR LF. It is the first line end within or after the
/// range, or else the last one before it. False without any line end.
fn ends_with_crlf(file: &[u8], range: &Range<usize>) -> bool {
    let next = file[range.start..].iter().position(|byte| *byte == b'\n');
    let end = next.map(|offset| range.start + offset);
    let end = end.or_else(|| file[..range.start].iter().rposition(|byte| *byte == b'\n'));
    end.is_some_and(|end| end > 0 && file[end - 1] == b'\r')
}

/// Removes the line numbers of `read_file` from `text`. `None` if a line has no number, or if
/// nothing is left without the numbers.
fn without_numbers(text: &str) -> Option<String> {
    let mut bare = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (number, rest) = line.split_once('\t')?;
        let number = number.trim_start_matches(' ');
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        bare.push_str(rest);
    }
    Some(bare).filter(|bare| !bare.is_empty())
}
