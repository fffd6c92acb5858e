//! `write_file`: creates or replaces a whole file.

use std::sync::Arc;

use posse_actors::ports::{Access, CallContext, Prepared, Tool, ToolAnnotations, ToolError};
use serde::Deserialize;
use serde_json::json;

use crate::change::{self, EditedFile};
use crate::committed_secrets::ReadingTool;
use crate::text::{BOM, is_binary, is_crlf, with_crlf};
use crate::{sized, spec};

/// Name of the tool `write_file`.
pub const NAME: &str = "write_file";

/// Creates the tool `write_file`.
pub fn tool(env: Arc<ReadingTool>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Creates or replaces a whole file, and creates its parent folders. Replacing keeps permissions \
         and CRLF line endings. edit_file changes a part of a file.",
        ToolAnnotations::new(Access::Write).in_rules("Write").opening_file(),
        &json!({
            "path": { "type": "string" },
            "content": { "type": "string" },
        }),
        &["path", "content"],
    );
    change::tool(spec, env, prepare)
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    content: String,
}

async fn prepare(
    tool: Arc<ReadingTool>,
    Arguments { path, content }: Arguments,
    call: CallContext,
) -> Result<Prepared, ToolError> {
    tool.committed.search_once().await;
    let env = Arc::clone(&tool.env);
    let place = env.workspace.locate(&path)?;
    let size = place.entry().map_or(0, |entry| entry.size).max(content.len() as u64);
    let make = |before: &[u8], path: &str, _| {
        if std::str::from_utf8(before).is_err() {
            let message = format!(
                "{path} is no UTF-8 text, so its content could not be brought back: move it away \
                 first with bash"
            );
            return Err(ToolError::new("FIL005", message));
        }
        Ok(with_format_of(before, content))
    };
    sized(size, move || change::prepare((NAME, "write"), place, &env, &call, make)).await
}

/// Gives `content` the CR LF line ends and the byte order mark of the old content `before`, unless
/// `content` has its own.
fn with_format_of(before: &[u8], mut content: String) -> EditedFile {
    let mut notes = Vec::new();
    if !is_binary(before) {
        if is_crlf(before) && content.contains('\n') && !content.contains('\r') {
            content = with_crlf(&content);
            notes.push("its CRLF line endings were kept".to_owned());
        }
        if before.starts_with(BOM) && !content.starts_with('\u{feff}') {
            content.insert(0, '\u{feff}');
            notes.push("its byte order mark was kept".to_owned());
        }
    }
    EditedFile { after: content.into_bytes(), notes, fuzzy: false }
}

#[cfg(test)]
mod tests;
