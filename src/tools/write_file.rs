//! `write_file`: creates or replaces a whole file.

use std::sync::Arc;

use posse_actors::ports::{
    Access, CallContext, PermittedCall, PortFuture, Prepared, RunContext, Tool, ToolAnnotations,
    ToolError, ToolOutput, ToolSpec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::change::{ChangeTarget, FileChange};
use crate::text::{BOM, Endings, endings, is_binary, with_crlf};
use crate::{ToolEnvironment, blocking, parsed, payload, sized, spec, timed};

/// Name of the tool.
pub const NAME: &str = "write_file";

/// Creates the tool.
pub fn tool(env: Arc<ToolEnvironment>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Creates or replaces a whole file; parent folders are made. Replacing keeps permissions \
         and CRLF line endings. To change a part of a file use edit_file.",
        ToolAnnotations {
            opens_file: true,
            ..ToolAnnotations::new(Access::Write).in_rules("Write")
        },
        &json!({
            "path": { "type": "string", "description": "Relative to the working directory" },
            "content": { "type": "string", "description": "All of the new content" },
        }),
        &["path", "content"],
    );
    Arc::new(WriteFile { spec, env })
}

struct WriteFile {
    spec: ToolSpec,
    env: Arc<ToolEnvironment>,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    content: String,
}

impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(
        &self,
        arguments: Value,
        call: CallContext,
    ) -> PortFuture<Result<Prepared, ToolError>> {
        let env = Arc::clone(&self.env);
        Box::pin(async move {
            let Arguments { path, content } = parsed(arguments)?;
            let place = env.workspace.locate(&path)?;
            let size = place.entry().map_or(0, |entry| entry.size).max(content.len() as u64);
            sized(size, move || {
                let target = ChangeTarget::load(place)?;
                target.require_seen(&env, &call)?;
                let (after, notes) = in_form_of(target.bytes(), content);
                let change = FileChange::new(target, after, notes);
                let action = change.action(NAME, "write");
                Ok(Prepared { action, payload: Box::new(change) })
            })
            .await
        })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        let env = Arc::clone(&self.env);
        Box::pin(async move {
            let change = payload::<FileChange>(call);
            blocking(move || timed(|| change.apply(&env, &context.call))).await
        })
    }
}

/// Converts `content` to the byte order mark and the line ends of `before`, if it has none itself.
fn in_form_of(before: &[u8], mut content: String) -> (Vec<u8>, Vec<String>) {
    let mut notes = Vec::new();
    if is_binary(before) {
        return (content.into_bytes(), notes);
    }
    if endings(before) == Endings::Crlf && content.contains('\n') && !content.contains('\r') {
        content = with_crlf(&content);
        notes.push("its CRLF line endings were kept".to_owned());
    }
    if before.starts_with(BOM) && !content.starts_with('\u{feff}') {
        content.insert(0, '\u{feff}');
        notes.push("its byte order mark was kept".to_owned());
    }
    (content.into_bytes(), notes)
}

#[cfg(test)]
mod tests;
