//! `edit_file`: replaces one text in a file, and changes nothing else.

pub(crate) mod engine;
mod fuzzy;
pub(crate) mod matching;
mod nearest;

use std::sync::Arc;

use posse_actors::ports::{
    Access, CallContext, PermittedCall, PortFuture, Prepared, RunContext, Tool, ToolAnnotations,
    ToolError, ToolOutput, ToolSpec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::change::{ChangeTarget, FileChange};
use crate::edit_file::engine::{EditedFile, TextEdit};
use crate::{ToolEnvironment, blocking, parsed, refusal, sized, spec, timed};

const NAME: &str = "edit_file";

/// Creates the tool.
pub fn tool(env: Arc<ToolEnvironment>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Replaces oldString by newString in a file. oldString must be exactly the text of the \
         file, with its indentation and without line numbers, and occur once unless replaceAll \
         is true; include some lines around it if needed. CRLF files are matched with LF.",
        ToolAnnotations {
            opens_file: true,
            ..ToolAnnotations::new(Access::Write).in_rules("Edit")
        },
        &json!({
            "path": { "type": "string" },
            "oldString": { "type": "string", "minLength": 1 },
            "newString": { "type": "string" },
            "replaceAll": { "type": "boolean" },
        }),
        &["path", "oldString", "newString"],
    );
    Arc::new(EditFile { spec, env })
}

struct EditFile {
    spec: ToolSpec,
    env: Arc<ToolEnvironment>,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    #[serde(flatten)]
    edit: TextEdit,
}

impl Tool for EditFile {
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
            let Arguments { path, edit } = parsed(arguments)?;
            edit.require_change()?;
            let make = move |before: &[u8], shown: &str, fuzzy| edit.apply(before, shown, fuzzy);
            prepare(NAME, &path, env, call, make).await
        })
    }

    fn run(&self, call: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        run(call, context, Arc::clone(&self.env))
    }
}

/// Prepares a call of `tool` that replaces the content of the file at `path` with the result of
/// `make`.
pub(crate) async fn prepare(
    tool: &'static str,
    path: &str,
    env: Arc<ToolEnvironment>,
    call: CallContext,
    make: impl FnOnce(&[u8], &str, bool) -> Result<EditedFile, ToolError> + Send + 'static,
) -> Result<Prepared, ToolError> {
    let place = env.workspace.locate(path)?;
    let Some(entry) = place.entry() else { return Ok(refusal::missing(tool, &place)) };
    sized(entry.size, move || {
        let target = ChangeTarget::load(place)?;
        target.require_seen(&env, &call)?;
        match make(target.bytes(), &target.place.shown(), env.fuzzy_edit) {
            Ok(EditedFile { after, notes, fuzzy }) => {
                let change = FileChange::new(target, after, notes).with_fuzzy(fuzzy);
                let action = change.action(tool, "edit");
                Ok(Prepared { action, payload: Box::new(change) })
            }
            // The content of a file may only be revealed after the policy permits reading it, so it
            // judges this error first.
            Err(error) => {
                let place = &target.place;
                let summary = format!("read {} for an edit that does not fit", place.shown());
                Ok(refusal::prepared(tool, vec![place.read()], summary, error))
            }
        }
    })
    .await
}

/// Applies the prepared change.
pub(crate) fn run(
    call: PermittedCall,
    context: RunContext,
    env: Arc<ToolEnvironment>,
) -> PortFuture<ToolOutput> {
    Box::pin(async move {
        match refusal::payload::<FileChange>(call) {
            Ok(change) => blocking(move || timed(|| change.apply(&env, &context.call))).await,
            Err(refused) => refused,
        }
    })
}

#[cfg(test)]
mod tests;
