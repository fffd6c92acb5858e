//! `present_plan`: the plan of the model, which the user accepts into a permission mode, changes, or
//! refuses.

use std::sync::Arc;

use posse_actors::event::{PLAN_CHARS_MAX, PLAN_MODES, PermissionMode, UserReply, UserRequest};
use posse_actors::ports::{
    Access, CallContext, Prepared, RunContext, Tool, ToolAnnotations, ToolError, ToolOutput,
    UserAnswer,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::text::capital;
use crate::{digest, prepared, spec};

/// Name of the tool.
pub const NAME: &str = "present_plan";

/// Creates the tool.
pub(crate) fn tool() -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Shows the user your plan for acceptance. In permission mode plan nothing can be changed \
         before: call it when the plan is complete.",
        ToolAnnotations::new(Access::Session),
        &json!({
            "plan": {
                "type": "string",
                "maxLength": PLAN_CHARS_MAX,
                "description": "Markdown: goal, steps, checks",
            },
        }),
        &["plan"],
    );
    let mut tool = BuiltinTool::new(spec, Arc::new(()), prepare, run);
    tool.user_request = |arguments| {
        let plan = arguments["plan"].as_str()?.trim().to_owned();
        Some(UserRequest::Plan { plan, modes: PLAN_MODES.to_vec() })
    };
    Arc::new(tool)
}

/// Note about the permission mode `plan` for the end of the system prompt of a main agent with these
/// tools; empty in other modes, and without this tool.
pub fn note(mode: PermissionMode, tools: &[String]) -> &'static str {
    if mode != PermissionMode::Plan || tools.iter().all(|name| name != NAME) {
        return "";
    }
    "\nThe session starts in the permission mode plan, in which nothing can be changed. Study the \
     task, ask with ask_user what only the user can decide, and call present_plan with the complete \
     plan. The work begins when the user has accepted it.\n"
}

#[derive(Debug, Deserialize)]
struct Arguments {
    plan: String,
}

async fn prepare(
    _: Arc<()>,
    Arguments { plan }: Arguments,
    call: CallContext,
) -> Result<Prepared, ToolError> {
    if call.origin.parent_invocation_id.is_some() {
        let what = "only the main agent presents plans; give yours to your caller as your answer";
        return Err(ToolError::new("ARG003", what));
    }
    let plan = plan.trim().to_owned();
    if plan.is_empty() {
        return Err(ToolError::new("ARG002", "plan: is blank; write the plan in Markdown"));
    }
    let title = plan.lines().next().unwrap_or_default().trim_start_matches('#').trim();
    let summary = format!("plan: {}", title.chars().take(100).collect::<String>());
    let digest = digest::of(&[NAME.as_bytes(), plan.as_bytes()]);
    Ok(prepared(NAME, Vec::new(), (summary, plan), digest, ()))
}

async fn run(_: Arc<()>, (): (), context: RunContext) -> RunResult {
    let (text, metadata) = match context.answer {
        Some(UserAnswer::Replied(UserReply::Plan { mode, plan })) => {
            let what = match &plan {
                None => "The user accepted the plan. ".to_owned(),
                Some(plan) => {
                    format!("The user changed the plan and accepted this:\n\n{}\n\n", plan.trim())
                }
            };
            let text = format!(
                "{what}The permission mode is {mode} now. Carry out the plan, and keep its steps \
                 with todo_write."
            );
            (text, json!({ "accepted": true, "mode": mode, "changed": plan.is_some() }))
        }
        Some(UserAnswer::Refused(words)) => {
            let words = words.map(|words| format!(" The user said: {words}"));
            let text = format!(
                "The user did not accept the plan. Change nothing. Improve the plan and present it \
                 again, or end with your answer.{}",
                words.unwrap_or_default()
            );
            (text, json!({ "accepted": false }))
        }
        Some(UserAnswer::Unavailable(why)) => (unavailable(&why), Value::Null),
        Some(UserAnswer::Replied(UserReply::Questions { .. }) | UserAnswer::TimedOut) | None => {
            (unavailable("no user can be asked"), Value::Null)
        }
    };
    Ok(ToolOutput::text(text).with_metadata(metadata))
}

fn unavailable(why: &str) -> String {
    format!("{}. The permission mode stays as it is. Give the plan as your answer.", capital(why))
}
