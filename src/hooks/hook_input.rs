//! Standard input of a hook. Pure.

use posse_actors::conversation::text_of;
use posse_actors::ports::{HookInvocation, HookPayload};
use serde_json::{Value, json};

/// Version of this format.
const VERSION: u32 = 1;

/// JSON object with all known data.
pub(super) fn json(occasion: &HookInvocation, cwd: &str) -> Value {
    let HookInvocation { session_id, origin, moment } = occasion;
    let mut object = json!({
        "v": VERSION,
        "event": moment.event().name(),
        "sessionId": session_id,
        "rootSessionId": session_id,
        "cwd": cwd,
    });
    if let Some(origin) = origin {
        object["invocationId"] = json!(origin.invocation_id);
        object["agent"] = json!(origin.agent);
        object["agentPath"] = json!(origin.agent_path);
    }
    if let Some(used) = moment.used() {
        object["callId"] = json!(used.call_id);
        object["toolName"] = json!(used.tool);
        object["toolInput"] = used.input.clone();
    }
    match moment {
        HookPayload::SessionStart | HookPayload::PreToolUse(_) => {}
        HookPayload::SessionEnd { reason } => object["reason"] = json!(reason),
        HookPayload::UserPromptSubmit { content } => object["prompt"] = json!(text_of(content)),
        HookPayload::BeforeModelRequest { turn, messages, model } => {
            object["turn"] = json!(turn);
            object["messages"] = json!(messages);
            object["model"] = json!(model);
        }
        HookPayload::AfterModelResponse { turn, message } => {
            let calls = message.tool_calls.iter();
            let calls = calls.map(|call| json!({"name": call.name, "arguments": call.arguments}));
            object["turn"] = json!(turn);
            object["reply"] = json!(message.content);
            object["toolCalls"] = calls.collect();
        }
        HookPayload::PostToolUse(_, content) => {
            object["toolOutput"] = json!(text_of(content));
            object["isError"] = json!(false);
        }
        HookPayload::ToolError { content, class, .. } => {
            object["toolOutput"] = json!(text_of(content));
            object["isError"] = json!(true);
            object["class"] = json!(class);
        }
        HookPayload::PermissionRequest { summary, reason, .. } => {
            object["summary"] = json!(summary);
            object["reason"] = json!(reason);
        }
        HookPayload::Stop { answer, holds } => {
            object["answer"] = json!(answer);
            object["holds"] = json!(holds);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posse_actors::conversation::{
        AssistantMessage, CallId, ContentPart, InvocationId, SessionId, ToolCall,
    };
    use posse_actors::event::Origin;
    use posse_actors::ports::HookedCall;

    use super::*;

    #[test]
    fn every_event_says_what_it_is_about() {
        let used = HookedCall {
            call_id: CallId::new("c1"),
            tool: "bash".to_owned(),
            annotations: posse_actors::ports::ToolAnnotations::default(),
            input: json!({"command": "ls"}),
        };
        let content = vec![ContentPart::text("out")];
        let reply = AssistantMessage {
            content: Some("hello".to_owned()),
            reasoning: None,
            tool_calls: vec![ToolCall {
                id: CallId::new("c1"),
                provider_id: None,
                name: "bash".to_owned(),
                arguments: "{}".to_owned(),
            }],
        };
        let text = |text: &str| text.to_owned();
        let moments = [
            HookPayload::SessionStart,
            HookPayload::UserPromptSubmit { content: content.clone() },
            HookPayload::BeforeModelRequest { turn: 1, messages: 2, model: text("m") },
            HookPayload::AfterModelResponse { turn: 1, message: reply },
            HookPayload::PreToolUse(used.clone()),
            HookPayload::PermissionRequest {
                used: used.clone(),
                summary: text("run ls"),
                reason: text("asked"),
            },
            HookPayload::PostToolUse(used.clone(), content.clone()),
            HookPayload::ToolError {
                used,
                content,
                class: posse_actors::event::ToolFailureClass::Failed,
            },
            HookPayload::Stop { answer: text("done"), holds: 1 },
            HookPayload::SessionEnd { reason: posse_actors::event::SessionEndReason::Completed },
        ];
        let origin = Arc::new(Origin {
            invocation_id: InvocationId::new("i1"),
            parent_invocation_id: None,
            agent: text("build"),
            agent_path: text("build"),
        });
        let lines = moments.map(|moment| {
            let of_session =
                matches!(moment, HookPayload::SessionStart | HookPayload::SessionEnd { .. });
            let origin = (!of_session).then(|| Arc::clone(&origin));
            let occasion = HookInvocation { session_id: SessionId::new("s1"), origin, moment };
            json(&occasion, "/work").to_string()
        });
        insta::assert_snapshot!(lines.join("\n"));
    }
}
