//! `todo_write`: the task list of the agent, which front ends show and compactions keep.

use std::sync::Arc;

use posse_actors::event::{Event, TodoItem, todo_progress};
use posse_actors::ports::{
    Access, CallContext, Prepared, RunContext, Tool, ToolAnnotations, ToolError, ToolOutput,
};
use serde::Deserialize;
use serde_json::json;

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::text::one_line;
use crate::{digest, prepared, spec};

/// Name of the tool.
pub const NAME: &str = "todo_write";

/// Maximum number of tasks of a list.
const ITEMS_MAX: usize = 50;

/// Maximum characters of a task.
const CONTENT_CHARS_MAX: usize = 200;

/// Creates the tool.
pub(crate) fn tool() -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Replaces your task list, which the user sees. For work of three or more steps: keep one \
         task in_progress, mark each completed when it is done.",
        ToolAnnotations::new(Access::Session),
        &json!({
            "todos": {
                "type": "array",
                "maxItems": ITEMS_MAX,
                "description": "the whole list",
                "items": {
                    "type": "object",
                    "properties": {
                        "content": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": CONTENT_CHARS_MAX,
                        },
                        "status": {
                            "type": "string",
                            "enum": ["pending", "in_progress", "completed", "cancelled"],
                        },
                    },
                    "required": ["content", "status"],
                },
            },
        }),
        &["todos"],
    );
    Arc::new(BuiltinTool::new(spec, Arc::new(()), prepare, run))
}

#[derive(Debug, Deserialize)]
struct Arguments {
    todos: Vec<TodoItem>,
}

async fn prepare(
    _: Arc<()>,
    Arguments { mut todos }: Arguments,
    _: CallContext,
) -> Result<Prepared, ToolError> {
    for (nth, item) in todos.iter_mut().enumerate() {
        item.content = one_line(&item.content);
        if item.content.is_empty() {
            let what = format!("todos[{nth}].content: is blank; describe the task or leave it out");
            return Err(ToolError::new("ARG002", what));
        }
    }
    let summary = match todos.as_slice() {
        [] => "clear the task list".to_owned(),
        todos => format!("task list: {}", todo_progress(todos)),
    };
    let detail: String = todos.iter().map(|item| item.line() + "\n").collect();
    let digest = digest::of(&[NAME.as_bytes(), detail.as_bytes()]);
    Ok(prepared(NAME, Vec::new(), (summary, detail), digest, todos))
}

async fn run(_: Arc<()>, todos: Vec<TodoItem>, context: RunContext) -> RunResult {
    let text = match todos.as_slice() {
        [] => "The task list is empty.".to_owned(),
        todos => format!("The task list is stored: {}.", todo_progress(todos)),
    };
    let metadata = json!({ "todos": todos });
    // Sending fails only while the session ends; the event is not needed then.
    context.facts.send(Event::TodosUpdated { todos }).await.ok();
    Ok(ToolOutput::text(text).with_metadata(metadata))
}
