//! `multi_edit`: applies several edits to one file in order, all of them or none.

use std::fmt::Write;
use std::sync::Arc;

use posse_actors::ports::{Access, CallContext, Prepared, Tool, ToolAnnotations, ToolError};
use serde::Deserialize;
use serde_json::json;

use crate::change::{self, EditedFile};
use crate::committed_secrets::ReadingTool;
use crate::edit_file::engine::TextEdit;
use crate::edit_file::{matching, prepare_edit};
use crate::spec;

const NAME: &str = "multi_edit";

/// Maximum number of edits per call.
const EDITS_MAX: usize = 100;

/// Creates the tool `multi_edit`.
pub fn tool(env: Arc<ReadingTool>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Makes several edits of one file as edit_file does, each on what the one before it left. \
         If one does not fit, none is made.",
        ToolAnnotations::new(Access::Write).in_rules("Edit").opening_file(),
        &json!({
            "path": { "type": "string" },
            "edits": {
                "type": "array",
                "minItems": 1,
                "maxItems": EDITS_MAX,
                "items": {
                    "type": "object",
                    "properties": {
                        "oldString": { "type": "string", "minLength": 1 },
                        "newString": { "type": "string" },
                        "replaceAll": { "type": "boolean" },
                    },
                    "required": ["oldString", "newString"],
                },
            },
        }),
        &["path", "edits"],
    );
    change::tool(spec, env, prepare)
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    edits: Vec<TextEdit>,
}

async fn prepare(
    tool: Arc<ReadingTool>,
    Arguments { path, edits }: Arguments,
    call: CallContext,
) -> Result<Prepared, ToolError> {
    let make = move |before: &[u8], shown: &str, fuzzy| apply(&edits, before, shown, fuzzy);
    prepare_edit(NAME, &path, &tool, call, make).await
}

/// Applies all `edits` in order to the content `before`. Fails with the first edit that fails (see
/// [`TextEdit::apply`]).
fn apply(
    edits: &[TextEdit],
    before: &[u8],
    shown: &str,
    fuzzy: bool,
) -> Result<EditedFile, ToolError> {
    let mut all = EditedFile { after: before.to_vec(), notes: Vec::new(), fuzzy: false };
    for (index, edit) in edits.iter().enumerate() {
        let step = edit.apply(&all.after, shown, fuzzy).map_err(|error| {
            let error = match error.code {
                "EDT001" => overlap_error(edits, index, before, shown, fuzzy).unwrap_or(error),
                _ => error,
            };
            at(index, edits.len(), &error)
        })?;
        let note = step.notes.join("; ");
        all.notes.push(format!("edits[{index}]: {note}"));
        all.after = step.after;
        all.fuzzy |= step.fuzzy;
    }
    if all.after == before {
        all.notes.push("together the edits change nothing".to_owned());
    }
    Ok(all)
}

/// Adds the index of the failed edit to `error`; `edits` is the number of edits.
fn at(index: usize, edits: usize, error: &ToolError) -> ToolError {
    let mut message = format!("edits[{index}]: {}", error.message);
    if edits > 1 {
        // Writing to a string cannot fail.
        let _ = write!(message, "\nnone of the {edits} edits was made");
    }
    ToolError::new(error.code, message)
}

/// Returns an error that names both edits if an earlier edit removed the text that edit number
/// `failed` replaces; otherwise `None`.
fn overlap_error(
    edits: &[TextEdit],
    failed: usize,
    before: &[u8],
    shown: &str,
    fuzzy: bool,
) -> Option<ToolError> {
    let wanted = &edits[failed].old_string;
    let mut file = before.to_vec();
    let mut is_there = matching::contains(&file, wanted);
    let mut taken_by = None;
    for (index, edit) in edits[..failed].iter().enumerate() {
        file = edit.apply(&file, shown, fuzzy).ok()?.after;
        let was_there = std::mem::replace(&mut is_there, matching::contains(&file, wanted));
        if was_there && !is_there {
            taken_by = Some(index);
        }
    }
    let other = taken_by?;
    let why = format!(
        "it overlaps edits[{other}], which changed the text that oldString is in {shown}; make one \
         edit of both, or use the text as edits[{other}] leaves it"
    );
    Some(ToolError::new("EDT006", why))
}

#[cfg(test)]
mod tests;
