//! Finds the lines of a file that are most similar to a text without a match in it.

use std::collections::HashMap;
use std::fmt::Write;

use posse_actors::text::clipped;

use posse_base::failure::printable;

/// Maximum size of a file that is searched for similar lines, in bytes.
const FILE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of lines of the missing text that are compared.
const WANTED_LINES_MAX: usize = 50;
/// Maximum number of lines shown.
const SHOWN_LINES_MAX: usize = 20;
/// Maximum number of characters of a line that are compared and shown.
const SHOWN_CHARS_MAX: usize = 200;
/// Minimum similarity of two lines in percent: 200 × common pairs of adjacent bytes / pairs in
/// both.
const ALIKE_PERCENT_MIN: usize = 50;

/// Describes the lines of `file` that are most similar to the missing text `wanted`: numbered and
/// with visible white space. If no line is similar or the file is too large, says so instead. The
/// result continues an error message.
pub(super) fn describe(file: &[u8], wanted: &str) -> String {
    if file.len() > FILE_BYTES_MAX {
        return "; the file is large, read the place with an offset".to_owned();
    }
    let file = String::from_utf8_lossy(file);
    let lines: Vec<&str> = file.split('\n').collect();
    let wanted: Vec<&str> =
        wanted.split('\n').take(WANTED_LINES_MAX).map(|line| line.trim_end_matches('\r')).collect();
    let Some(start) = by_equal_lines(&lines, &wanted).or_else(|| by_likeness(&lines, &wanted))
    else {
        return ", nor anything like it; read the file again".to_owned();
    };
    let end = (start + wanted.len().min(SHOWN_LINES_MAX)).min(lines.len());
    let mut text = format!(
        "; the nearest is at lines {}-{end} (shown with → for tabs, · for spaces at the ends, ␍ \
         for CR):",
        start + 1
    );
    for (index, line) in lines[start..end].iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}\t{}", start + index + 1, visible(line));
    }
    let bare = |line: &str| line.trim_end_matches('\r').to_owned();
    let differs = (start..end).zip(&wanted).find(|(line, want)| bare(lines[*line]) != **want);
    if let Some((line, want)) = differs {
        let _ = write!(text, "\nline {} is in oldString: {}", line + 1, visible(want));
    }
    text
}

/// Finds the index in `lines` at which the missing text would begin if the most bytes of its lines
/// are matched, ignoring white space. `None` if at most three bytes are matched.
fn by_equal_lines(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (place, line) in wanted.iter().enumerate() {
        let line = compact_line(line);
        if !line.is_empty() {
            places.entry(line).or_default().push(place);
        }
    }
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for (index, line) in lines.iter().enumerate() {
        let line = compact_line(line);
        for place in places.get(&line).into_iter().flatten() {
            // A long line identifies a place better than a brace.
            *votes.entry(index.saturating_sub(*place)).or_default() += line.len().min(80);
        }
    }
    let best = votes.into_iter().max_by_key(|(start, votes)| (*votes, usize::MAX - start));
    best.filter(|(_, votes)| *votes > 3).map(|(start, _)| start)
}

/// Finds the index in `lines` at which the missing text would begin if its longest line is matched
/// with the most similar line. `None` if no line is similar enough.
fn by_likeness(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let (place, longest) = wanted
        .iter()
        .map(|line| compact_line(line))
        .enumerate()
        .max_by_key(|(place, line)| (line.len(), usize::MAX - place))?;
    let mut pairs = vec![false; 1 << 16];
    for pair in pairs_of(&longest) {
        pairs[pair] = true;
    }
    let total = longest.len().saturating_sub(1);
    let alike = |line: &str| {
        let line = compact_line(line);
        let same = pairs_of(&line).filter(|pair| pairs[*pair]).count();
        200 * same.min(total) / (total + line.len().saturating_sub(1)).max(1)
    };
    let best = lines.iter().map(|line| alike(line)).enumerate();
    let (index, alike) = best.max_by_key(|(index, alike)| (*alike, usize::MAX - index))?;
    (alike >= ALIKE_PERCENT_MIN).then(|| index.saturating_sub(place))
}

fn pairs_of(line: &str) -> impl Iterator<Item = usize> {
    line.as_bytes().windows(2).map(|pair| usize::from(pair[0]) << 8 | usize::from(pair[1]))
}

/// Removes white space from `line` and truncates the result to `SHOWN_CHARS_MAX` characters.
fn compact_line(line: &str) -> String {
    line.chars().filter(|c| !c.is_whitespace()).take(SHOWN_CHARS_MAX).collect()
}

/// Formats `line` with visible tabs, and with visible spaces and CR at its beginning and end.
fn visible(line: &str) -> String {
    let text = line.trim_matches(['\t', ' ', '\r']);
    let (head, tail) = line.split_at(line.len() - line.trim_start_matches(['\t', ' ', '\r']).len());
    let tail = &tail[text.len().min(tail.len())..];
    let blank = |blank: &str| blank.replace('\t', "→").replace(' ', "·").replace('\r', "␍");
    let text = printable(text).replace('\t', "→");
    format!("{}{}{}", blank(head), clipped(&text, SHOWN_CHARS_MAX, "…"), blank(tail))
}
