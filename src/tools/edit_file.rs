//! `edit_file`: one text in a file takes the place of another, and nothing else changes.

mod matching;
mod nearest;

use std::sync::Arc;

use posse_actors::ports::{
    Action, CallContext, PortFuture, Prepared, RunContext, SideEffect, Tool, ToolError, ToolOutput,
    ToolSpec,
};
use posse_actors::tool_call::PermittedCall;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tools::change::{Change, Target};
use crate::tools::edit_file::matching::Edited;
use crate::tools::text::{count, is_binary, sha256};
use crate::tools::workspace::Located;
use crate::tools::{ToolEnvironment, blocking, parsed, payload, sized, spec, timed};

/// Lines that are named when a text is found more than once.
const LINES_NAMED_MAX: usize = 20;

/// The tool.
pub fn tool(env: Arc<ToolEnvironment>) -> Arc<dyn Tool> {
    let spec = spec(
        "edit_file",
        "Replaces oldString by newString in a file. oldString must be exactly the text of the \
         file, with its indentation and without line numbers, and occur once unless replaceAll \
         is true; include some lines around it if needed. CRLF files are matched with LF.",
        SideEffect::Workspace,
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

/// What is to be replaced by what.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let env = Arc::clone(&self.env);
        Box::pin(async move {
            let arguments: Arguments = parsed(arguments)?;
            if arguments.old_string == arguments.new_string {
                let why = "oldString and newString are the same; nothing would change";
                return Err(ToolError::new("EDT003", why));
            }
            let place = env.workspace.locate(&arguments.path)?;
            let size = place.existing()?.size;
            sized(size, move || prepare(place, &arguments)).await
        })
    }

    fn run(&self, call: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        let env = Arc::clone(&self.env);
        Box::pin(async move {
            match payload::<Wish>(call) {
                Wish::Change(change) => blocking(move || timed(|| change.apply(&env))).await,
                Wish::Refused(error) => ToolOutput::error(error.to_string()),
            }
        })
    }
}

/// What an edit comes down to.
enum Wish {
    /// What is to be written.
    Change(Box<Change>),
    /// There is nothing to change, and the reason tells of what the file contains.
    Refused(ToolError),
}

fn prepare(place: Located, arguments: &Arguments) -> Result<Prepared, ToolError> {
    let target = Target::load(place)?;
    match edit(&target, arguments) {
        Ok((after, notes)) => {
            let change = Change::new(target, after, notes);
            let action = change.action("edit_file", "edit");
            Ok(Prepared { action, payload: Box::new(Wish::Change(Box::new(change))) })
        }
        Err(error) => Ok(refusal(&target.place, error)),
    }
}

/// An edit that cannot be made, as a call that reads: whether something is in a file is known
/// only to those who may read it, so the policy judges before the model hears of it.
fn refusal(place: &Located, error: ToolError) -> Prepared {
    let path = place.absolute().display();
    let action = Action {
        tool: "edit_file".to_owned(),
        operations: vec![place.read()],
        summary: format!("read {} for an edit that does not fit", place.shown()),
        detail: String::new(),
        digest: sha256(format!("edit_file\0refused\0{path}\0{error}").as_bytes()),
    };
    Prepared { action, payload: Box::new(Wish::Refused(error)) }
}

/// The file after the edit, and what the model should know about it.
fn edit(target: &Target, arguments: &Arguments) -> Result<(Vec<u8>, Vec<String>), ToolError> {
    let before = target.bytes();
    let shown = target.place.shown();
    if is_binary(before) {
        return Err(ToolError::new("EDT005", format!("{shown} is binary; change it with bash")));
    }
    let Arguments { old_string: old, new_string: new, replace_all, .. } = arguments;
    let Some(Edited { after, mut lines, overlap, unnumbered }) =
        matching::replace(before, old, new)
    else {
        let near = nearest::describe(before, old);
        return Err(ToolError::new("EDT001", format!("oldString is not in {shown}{near}")));
    };
    if !replace_all {
        lines.extend(overlap);
    }
    if lines.len() > 1 && !replace_all {
        return Err(ToolError::new(
            "EDT002",
            format!(
                "oldString is {} times in {shown}, at lines {}; set replaceAll, or include more \
                 lines around the one that is meant",
                lines.len(),
                listed(&lines),
            ),
        ));
    }
    if after == before {
        let why = format!("{shown} has this text already; nothing would change");
        return Err(ToolError::new("EDT003", why));
    }
    let place = if lines.len() == 1 { "line" } else { "lines" };
    let replaced = count(lines.len(), "replacement");
    let mut notes = vec![format!("{replaced} at {place} {}", listed(&lines))];
    if unnumbered {
        notes.push("line numbers were taken off the strings; leave them out".to_owned());
    }
    Ok((after, notes))
}

fn listed(lines: &[usize]) -> String {
    let named: Vec<String> = lines.iter().take(LINES_NAMED_MAX).map(usize::to_string).collect();
    let more = lines.len().saturating_sub(LINES_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

#[cfg(test)]
mod tests;
