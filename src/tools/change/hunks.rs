//! Hunks of a prepared change, about which a person answers one by one.

use std::borrow::Cow;
use std::fmt::Write;
use std::str;

use posse_actors::event::{EditHunk, HUNKS_MAX, HunkAnswer};
use posse_actors::ports::{ChosenHunks, PortFuture, ToolError};
use posse_actors::text::clipped;

use super::{FILE_BYTES_MAX, FileChange};
use crate::diff::{self, Diff, DiffHunk, split_lines};
use crate::sized;
use crate::text::{is_crlf, lines_ended, with_crlf};

/// Maximum characters of the differences between the text of the model and that of the person in a
/// result.
const DIFFERENCES_CHARS_MAX: usize = 16_000;

impl FileChange {
    /// Hunks of the change, in the order of its diff. Empty for a new or removed file and a change
    /// of the executable bit, if the diff is cut, if there are more than [`HUNKS_MAX`], and for a
    /// text that is not valid UTF-8.
    pub(crate) fn hunks(&self) -> Vec<EditHunk> {
        let is_edit = self.target.before.is_some() && self.after.is_some() && self.exec.is_none();
        if !is_edit || self.diff.hunks.len() > HUNKS_MAX {
            return Vec::new();
        }
        let (before, after) = (self.target.bytes(), self.bytes());
        let hunks = self.diff.hunks.iter().map(|hunk| edit_hunk(hunk, before, after));
        hunks.collect::<Option<_>>().unwrap_or_default()
    }

    /// Reduces the change to the hunks that `answers` choose, one for each hunk.
    fn reduced(self, answers: &[HunkAnswer]) -> Result<ChosenHunks, ToolError> {
        let shown = self.target.place.shown();
        let error = |what: &str| ToolError::new("EDT008", format!("{shown}: {what}"));
        if self.diff.hunks.is_empty() || self.diff.hunks.len() != answers.len() {
            return Err(error("the hunks are not those of the question; make the edit again"));
        }
        let answers = self.settled(answers);
        let whole = answers.iter().all(|answer| *answer == HunkAnswer::Yes);
        let change = if whole { self } else { self.composed(&answers) };
        if change.bytes().len() as u64 > FILE_BYTES_MAX {
            return Err(error("the file would be larger than 64 MiB with the text of the user"));
        }
        let Diff { added, removed, .. } = &change.diff;
        let count = HunkAnswer::summary(&answers);
        let summary = format!("edit {shown} (+{added} -{removed}), {count}");
        Ok(ChosenHunks { summary, payload: Box::new(change) })
    }

    /// The answers with texts as they will be in the file: with its line ends, and as whole lines. A
    /// text that is that of the model is a yes, and one that is that of the file is a no.
    fn settled(&self, answers: &[HunkAnswer]) -> Vec<HunkAnswer> {
        let (before, after) = (self.target.bytes(), self.bytes());
        let crlf = is_crlf(before);
        let settle = |(hunk, answer): (&DiffHunk, &HunkAnswer)| {
            let HunkAnswer::Replace(text) = answer else { return answer.clone() };
            let mut text = Cow::Borrowed(text.as_str());
            if crlf && text.contains('\n') {
                text = Cow::Owned(with_crlf(&text.replace("\r\n", "\n")));
            }
            let is_last = hunk.old.end == before.len();
            if !is_last && !text.is_empty() && !text.ends_with('\n') {
                text.to_mut().push_str(if crlf { "\r\n" } else { "\n" });
            }
            if text.as_bytes() == &after[hunk.new.clone()] {
                HunkAnswer::Yes
            } else if text.as_bytes() == &before[hunk.old.clone()] {
                HunkAnswer::No
            } else {
                HunkAnswer::Replace(text.into_owned())
            }
        };
        self.diff.hunks.iter().zip(answers).map(settle).collect()
    }

    /// The change that `answers` choose. Its notes tell the model what is different.
    fn composed(self, answers: &[HunkAnswer]) -> FileChange {
        let composition = self.compose(answers, true);
        let mut notes = vec![composition.note(answers)];
        if answers.iter().any(|answer| matches!(answer, HunkAnswer::Replace(_))) {
            let proposed = self.compose(answers, false).bytes;
            let path = self.target.place.relative();
            let differences = diff::unified(path, Some(&proposed), &composition.bytes).text;
            // Without the names of the file.
            let differences = differences.splitn(3, '\n').nth(2).unwrap_or_default();
            let differences =
                clipped(differences, DIFFERENCES_CHARS_MAX, "\n[cut here; read the file]");
            notes.push(format!(
                "the user wrote another text; how the file differs from yours:\n{}",
                differences.trim_end_matches('\n')
            ));
        }
        let FileChange { target, fuzzy, .. } = self;
        FileChange { fuzzy, ..FileChange::new(target, Some(composition.bytes), notes) }
    }

    /// Content of the file with the hunks that `answers` choose. With `of_user`, texts of the user
    /// replace those of the model.
    fn compose(&self, answers: &[HunkAnswer], of_user: bool) -> Composition {
        let (before, after) = (self.target.bytes(), self.bytes());
        let mut made = Composition { bytes: Vec::with_capacity(after.len()), left: Vec::new() };
        let (mut at, mut lines) = (0, 0);
        for (nth, (hunk, answer)) in self.diff.hunks.iter().zip(answers).enumerate() {
            let unchanged = &before[at..hunk.old.start];
            lines += lines_ended(unchanged);
            made.bytes.extend_from_slice(unchanged);
            let text = match answer {
                HunkAnswer::No => {
                    let old = &before[hunk.old.clone()];
                    made.left.push((nth + 1, place(old, &after[hunk.new.clone()], lines)));
                    old
                }
                HunkAnswer::Replace(text) if of_user => text.as_bytes(),
                HunkAnswer::Replace(_) | HunkAnswer::Yes => &after[hunk.new.clone()],
            };
            lines += lines_ended(text);
            made.bytes.extend_from_slice(text);
            at = hunk.old.end;
        }
        made.bytes.extend_from_slice(&before[at..]);
        made
    }
}

/// Reduces `change` to the hunks that `answers` choose. For `Tool::choose_hunks`.
pub(crate) fn choose(
    change: FileChange,
    answers: Vec<HunkAnswer>,
) -> PortFuture<Result<ChosenHunks, ToolError>> {
    let size = change.target.bytes().len().max(change.bytes().len()) as u64;
    Box::pin(sized(size, move || change.reduced(&answers)))
}

/// Content of a file in which some hunks of a change are made.
struct Composition {
    bytes: Vec<u8>,
    /// Number of each hunk that is left out, from 1, and its place in `bytes`.
    left: Vec<(usize, String)>,
}

impl Composition {
    /// Note for the model about the number of hunks, and those that are left out.
    fn note(&self, answers: &[HunkAnswer]) -> String {
        let (made, all) = (HunkAnswer::made(answers), answers.len());
        let noun = if all == 1 { "hunk" } else { "hunks" };
        let mut text = format!("{made} of {all} {noun} applied, as the user chose");
        for (at, (nth, place)) in self.left.iter().enumerate() {
            let before = if at == 0 { ". Not applied: " } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{before}hunk {nth} ({place})");
        }
        text
    }
}

/// The hunk with its texts; `None` if they are not valid UTF-8.
fn edit_hunk(hunk: &DiffHunk, before: &[u8], after: &[u8]) -> Option<EditHunk> {
    let text = |bytes: &[u8]| str::from_utf8(bytes).ok().map(str::to_owned);
    let start = |lines: &std::ops::Range<usize>| lines.start + usize::from(!lines.is_empty());
    let DiffHunk { old, new, old_lines, new_lines } = hunk;
    Some(EditHunk {
        old_start: start(old_lines) as u64,
        old_lines: old_lines.len() as u64,
        new_start: start(new_lines) as u64,
        new_lines: new_lines.len() as u64,
        old_text: text(&before[old.clone()])?,
        new_text: text(&after[new.clone()])?,
    })
}

/// Place of the lines of `old` that differ from `new`, in words. `lines_before`: number of lines of
/// the file before `old`.
fn place(old: &[u8], new: &[u8], lines_before: usize) -> String {
    let (old, new) = (split_lines(old), split_lines(new));
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[same..], &new[same..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let first = lines_before + same + 1;
    match old.len() - end {
        0 => format!("after line {}", first - 1),
        1 => format!("line {first}"),
        count => format!("lines {first}-{}", first + count - 1),
    }
}

#[cfg(test)]
mod tests;
