//! Replacement of one text by another, shared by `edit_file` and `multi_edit`.

use std::slice;

use posse_actors::ports::ToolError;
use serde::Deserialize;

use super::matching::{Edited, replace, splice};
use super::{fuzzy, nearest};
use crate::change::{EditedFile, FILE_BYTES_MAX};
use crate::text::{count, is_binary, lines_ended};

/// Maximum number of line numbers that a message lists. Further ones are only counted.
const LINES_NAMED_MAX: usize = 20;

/// Replacement of `old_string` by `new_string`: of the only occurrence, or of every one if
/// `replace_all` is true.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TextEdit {
    pub(crate) old_string: String,
    pub(crate) new_string: String,
    #[serde(default)]
    pub(crate) replace_all: bool,
}

impl TextEdit {
    /// Applies the edit to `before`, the content of the file `shown`, and returns the new content.
    /// If `fuzzy` is true, a text without an exact match may match approximately, at one place
    /// only. If the edit changes nothing, the only note says why. Fails if the file is binary or
    /// would become too large, or if the old text is missing or occurs more than once without
    /// `replace_all`.
    pub(crate) fn apply(
        &self,
        before: &[u8],
        shown: &str,
        fuzzy: bool,
    ) -> Result<EditedFile, ToolError> {
        if is_binary(before) {
            let why = format!("{shown} is binary; change it with bash");
            return Err(ToolError::new("EDT005", why));
        }
        let TextEdit { old_string: old, new_string: new, replace_all } = self;
        let room = usize::try_from(FILE_BYTES_MAX).unwrap_or(usize::MAX);
        let too_large = || {
            ToolError::new("ARG003", format!("{shown} would be larger than 64 MiB after the edit"))
        };
        let (edited, is_fuzzy) = match replace(before, old, new, room).map_err(|_| too_large())? {
            Some(edited) => (edited, false),
            None if fuzzy => (self.replace_approximate(before, shown)?, true),
            None => return Err(self.not_found(before, shown)),
        };
        let Edited { after, mut lines, overlap, unnumbered } = edited;
        if !replace_all {
            lines.extend(overlap);
        }
        if after == before {
            let why = if old == new {
                "oldString and newString are the same"
            } else {
                "the text of newString is there already"
            };
            return Ok(EditedFile { after, notes: vec![why.to_owned()], fuzzy: is_fuzzy });
        }
        if lines.len() > 1 && !replace_all {
            let (times, lines) = (lines.len(), line_list(&lines));
            let why = format!(
                "oldString is {times} times in {shown}, at lines {lines}; set replaceAll, or \
                 include more lines around the one that is meant"
            );
            return Err(ToolError::new("EDT002", why));
        }
        let place = if lines.len() == 1 { "line" } else { "lines" };
        let replaced = count(lines.len(), "replacement");
        let mut notes = vec![format!("{replaced} at {place} {}", line_list(&lines))];
        if unnumbered {
            notes.push("line numbers were taken off the strings; leave them out".to_owned());
        }
        if is_fuzzy {
            notes.push(fuzzy::NOTE.to_owned());
        }
        Ok(EditedFile { after, notes, fuzzy: is_fuzzy })
    }

    /// Replaces the only approximate match of the old text. Fails if there is no match or more than
    /// one.
    fn replace_approximate(&self, before: &[u8], shown: &str) -> Result<Edited, ToolError> {
        match fuzzy::find(before, &self.old_string).as_slice() {
            [] => Err(self.not_found(before, shown)),
            [only] => Ok(splice(before, slice::from_ref(only), &self.new_string, true)),
            several => {
                let line = |at: usize| 1 + lines_ended(&before[..at]);
                let lines: Vec<usize> = several.iter().map(|range| line(range.start)).collect();
                let why = format!(
                    "oldString is not in {shown}, and nearly {} times, at lines {}; read the one \
                     that is meant and use its exact text",
                    several.len(),
                    line_list(&lines),
                );
                Err(ToolError::new("EDT002", why))
            }
        }
    }

    fn not_found(&self, before: &[u8], shown: &str) -> ToolError {
        let near = nearest::describe(before, &self.old_string);
        ToolError::new("EDT001", format!("oldString is not in {shown}{near}"))
    }
}

fn line_list(lines: &[usize]) -> String {
    let named: Vec<String> = lines.iter().take(LINES_NAMED_MAX).map(usize::to_string).collect();
    let more = lines.len().saturating_sub(LINES_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}
