//! `edit_file`: replaces one text in a file, and changes nothing else.

pub(crate) mod engine;
mod fuzzy;
pub(crate) mod matching;
mod nearest;

use std::sync::Arc;

use posse_actors::ports::{Access, CallContext, Prepared, Tool, ToolAnnotations, ToolError};
use serde::Deserialize;
use serde_json::json;

use crate::change::{self, EditedFile};
use crate::committed_secrets::ReadingTool;
use crate::edit_file::engine::TextEdit;
use crate::{refusal, sized, spec};

const NAME: &str = "edit_file";

/// Creates the tool `edit_file`.
pub fn tool(env: Arc<ReadingTool>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Replaces oldString by newString in a file. oldString must be exactly the text of the \
         file, with its indentation and without line numbers, and occur once unless replaceAll \
         is true. CRLF files are matched with LF.",
        ToolAnnotations::new(Access::Write).in_rules("Edit").opening_file(),
        &json!({
            "path": { "type": "string" },
            "oldString": { "type": "string", "minLength": 1 },
            "newString": { "type": "string" },
            "replaceAll": { "type": "boolean" },
        }),
        &["path", "oldString", "newString"],
    );
    change::tool(spec, env, prepare)
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    #[serde(flatten)]
    edit: TextEdit,
}

async fn prepare(
    tool: Arc<ReadingTool>,
    Arguments { path, edit }: Arguments,
    call: CallContext,
) -> Result<Prepared, ToolError> {
    let make = move |before: &[u8], shown: &str, fuzzy| edit.apply(before, shown, fuzzy);
    prepare_edit(NAME, &path, &tool, call, make).await
}

/// Prepares a call of `tool` that replaces the content of the existing file at `path` with the
/// result of `make`. `make` gets the content, the displayed name, and true if an approximate match
/// is allowed. For a missing file, returns a prepared call that fails (`refusal::missing`).
pub(crate) async fn prepare_edit(
    tool: &'static str,
    path: &str,
    reading: &ReadingTool,
    call: CallContext,
    make: impl FnOnce(&[u8], &str, bool) -> Result<EditedFile, ToolError> + Send + 'static,
) -> Result<Prepared, ToolError> {
    reading.committed.search_once().await;
    let env = Arc::clone(&reading.env);
    let place = env.workspace.locate(path)?;
    let Some(entry) = place.entry() else { return Ok(refusal::missing(tool, &place)) };
    sized(entry.size, move || change::prepare((tool, "edit"), place, &env, &call, make)).await
}

#[cfg(test)]
mod tests;
