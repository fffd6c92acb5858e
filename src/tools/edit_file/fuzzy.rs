//! Approximate match of a text: ignores blanks before line ends, and differences between kinds of
//! line ends, quotes, dashes and spaces.
//!
//! Exactly the matching bytes of the file are replaced.

use std::iter::Peekable;
use std::ops::Range;

/// Maximum size of a file that is searched approximately, in bytes.
const FILE_BYTES_MAX: usize = 8 << 20;
/// Maximum number of matches that are returned.
const PLACES_MAX: usize = 100;

/// Character that replaces invalid UTF-8 in the normalised text. A text to find that contains it
/// has no matches.
const NO_TEXT: char = '\u{10ffff}';

/// Note for the model about an approximate match.
pub(super) const NOTE: &str = "fuzzy match: the text there differs from oldString in trailing \
                               blanks, quotes, dashes or kinds of spaces; look at the diff";

/// Finds the byte ranges of approximate matches of `old` in `file`, at most `PLACES_MAX`. They may
/// overlap. A file larger than `FILE_BYTES_MAX` has no matches, and a text of blanks has none
/// either.
pub(super) fn find(file: &[u8], old: &str) -> Vec<Range<usize>> {
    if file.len() > FILE_BYTES_MAX {
        return Vec::new();
    }
    let mut wanted: String = normalised(old.as_bytes()).map(|(c, _)| c).collect();
    // Blanks at its very end are trailing only if a line ends there.
    let bare = wanted.trim_end_matches([' ', '\t']).len();
    let ends_line = bare < wanted.len();
    wanted.truncate(bare);
    if wanted.trim().is_empty() || wanted.contains(NO_TEXT) {
        return Vec::new();
    }
    let text: String = normalised(file).map(|(c, _)| c).collect();
    let is_end = |end: usize| end == text.len() || text[end..].starts_with('\n');
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(&wanted).map(|at| from + at) {
        let end = at + wanted.len();
        if !ends_line || is_end(end) {
            places.push(at..end);
        }
        if places.len() >= PLACES_MAX {
            break;
        }
        // The next match may overlap this one, which makes the match ambiguous.
        from = at + text[at..].chars().next().map_or(1, char::len_utf8);
    }
    originals(file, &places)
}

/// Converts byte ranges of the normalised text of `file` to byte ranges of `file`.
fn originals(file: &[u8], places: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut found = vec![0..0; places.len()];
    let mut at = 0;
    for (c, range) in normalised(file) {
        let next = at + c.len_utf8();
        for (place, original) in places.iter().zip(&mut found) {
            if place.start == at {
                original.start = range.start;
            }
            if place.end == next {
                original.end = range.end;
            }
        }
        at = next;
    }
    found
}

/// Iterates over the normalised characters of a text, each with the byte range of its original.
fn normalised(bytes: &[u8]) -> impl Iterator<Item = (char, Range<usize>)> {
    let mut start = 0;
    let characters = bytes.utf8_chunks().flat_map(move |chunk| {
        let base = start;
        let invalid = base + chunk.valid().len();
        start = invalid + chunk.invalid().len();
        let valid = chunk.valid().char_indices();
        let valid = valid.map(move |(at, c)| (canonical(c), base + at..base + at + c.len_utf8()));
        let rest = (!chunk.invalid().is_empty()).then_some((NO_TEXT, invalid..start));
        valid.chain(rest)
    });
    TrimmedChars { rest: characters.peekable(), held: Vec::new() }
}

/// Iterator adapter that omits blanks before an LF, and the CR of a CR LF. Blanks at the end of the
/// text stay.
struct TrimmedChars<I: Iterator<Item = (char, Range<usize>)>> {
    rest: Peekable<I>,
    /// Blanks that were read ahead and are returned next, the last one first.
    held: Vec<(char, Range<usize>)>,
}

impl<I: Iterator<Item = (char, Range<usize>)>> Iterator for TrimmedChars<I> {
    type Item = (char, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(held) = self.held.pop() {
            return Some(held);
        }
        let is_blank = |c: char| matches!(c, ' ' | '\t' | '\r');
        while let Some(blank) = self.rest.next_if(|(c, _)| is_blank(*c)) {
            self.held.push(blank);
        }
        if let Some((_, range)) = self.rest.next_if(|(c, _)| *c == '\n') {
            // A CR right before it is part of the line end.
            let start = match self.held.last() {
                Some(('\r', cr)) => cr.start,
                _ => range.start,
            };
            self.held.clear();
            return Some(('\n', start..range.end));
        }
        if self.held.is_empty() {
            return self.rest.next();
        }
        self.held.reverse();
        self.held.pop()
    }
}

/// Maps characters that look alike to one of them, and returns other characters unchanged.
fn canonical(c: char) -> char {
    match c {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => '-',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        c => c,
    }
}
