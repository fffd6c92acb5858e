//! Standard input of a hook. Pure.

use posse_actors::conversation::text_of;
use posse_actors::ports::{HookInvocation, HookPayload};
use serde_json::{Value, json};

/// Version of the format of a hook's input, in its member `v`.
const VERSION: u32 = 1;

/// JSON object about the event `occasion`. Of prompts, replies and tool output it contains the
/// text, but neither images nor thinking. `cwd`: working directory.
pub(super) fn json(occasion: &HookInvocation, cwd: &str) -> Value {
    let HookInvocation { session_id, permission_mode, origin, moment } = occasion;
    let mut object = json!({
        "v": VERSION,
        "event": moment.event().name(),
        "sessionId": session_id,
        "rootSessionId": session_id,
        "cwd": cwd,
        "permissionMode": permission_mode,
    });
    if let Some(origin) = origin {
        object["invocationId"] = json!(origin.invocation_id);
        object["agent"] = json!(origin.agent);
        object["agentPath"] = json!(origin.agent_path);
    }
    if let Some(used) = moment.call() {
        object["callId"] = json!(used.call_id);
        object["toolName"] = json!(used.tool);
        object["toolInput"] = used.input.clone();
    }
    let own = match moment {
        HookPayload::SessionStart | HookPayload::PreToolUse(_) => json!({}),
        HookPayload::SessionEnd { reason } => json!({ "reason": reason }),
        HookPayload::UserPromptSubmit { content } => json!({ "prompt": text_of(content) }),
        HookPayload::BeforeModelRequest { turn, messages, model } => {
            json!({ "turn": turn, "messages": messages, "model": model })
        }
        HookPayload::AfterModelResponse { turn, message } => {
            let calls = message.tool_calls.iter();
            let calls = calls.map(|call| json!({"name": call.name, "arguments": call.arguments}));
            let calls: Value = calls.collect();
            json!({ "turn": turn, "reply": message.content, "toolCalls": calls })
        }
        HookPayload::PostToolUse(_, content) => {
            json!({ "toolOutput": text_of(content), "isError": false })
        }
        HookPayload::ToolError { content, class, .. } => {
            json!({ "toolOutput": text_of(content), "isError": true, "class": class })
        }
        HookPayload::PermissionRequest { summary, reason, .. } => {
            json!({ "summary": summary, "reason": reason })
        }
        HookPayload::Stop { answer, holds } => json!({ "answer": answer, "holds": holds }),
    };
    if let (Value::Object(object), Value::Object(own)) = (&mut object, own) {
        object.extend(own);
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
    fn every_event_has_its_fields() {
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
            let occasion = HookInvocation {
                session_id: SessionId::new("s1"),
                permission_mode: posse_actors::event::PermissionMode::Ask,
                origin,
                moment,
            };
            json(&occasion, "/work").to_string()
        });
        insta::assert_snapshot!(lines.join("\n"));
    }
}
