//! Standard input of a hook. Pure.

use posse_actors::conversation::text_of;
use posse_actors::ports::{Moment, Occasion};
use serde_json::{Value, json};

/// Version of this format.
const VERSION: u32 = 1;

/// JSON object with all known data.
pub(super) fn json(occasion: &Occasion, cwd: &str) -> Value {
    let Occasion { session_id, origin, moment } = occasion;
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
        Moment::SessionStart | Moment::PreToolUse(_) => {}
        Moment::SessionEnd { reason } => object["reason"] = json!(reason),
        Moment::UserPromptSubmit { content } => object["prompt"] = json!(text_of(content)),
        Moment::BeforeModelRequest { turn, messages, model } => {
            object["turn"] = json!(turn);
            object["messages"] = json!(messages);
            object["model"] = json!(model);
        }
        Moment::AfterModelResponse { turn, message } => {
            let calls = message.tool_calls.iter();
            let calls = calls.map(|call| json!({"name": call.name, "arguments": call.arguments}));
            object["turn"] = json!(turn);
            object["reply"] = json!(message.content);
            object["toolCalls"] = calls.collect();
        }
        Moment::PostToolUse(_, content) => {
            object["toolOutput"] = json!(text_of(content));
            object["isError"] = json!(false);
        }
        Moment::ToolError { content, class, .. } => {
            object["toolOutput"] = json!(text_of(content));
            object["isError"] = json!(true);
            object["class"] = json!(class);
        }
        Moment::PermissionRequest { summary, reason, .. } => {
            object["summary"] = json!(summary);
            object["reason"] = json!(reason);
        }
        Moment::Stop { answer, holds } => {
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
    use posse_actors::ports::Used;

    use super::*;

    #[test]
    fn every_event_says_what_it_is_about() {
        let used = Used {
            call_id: CallId::new("c1"),
            tool: "bash".to_owned(),
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
            Moment::SessionStart,
            Moment::UserPromptSubmit { content: content.clone() },
            Moment::BeforeModelRequest { turn: 1, messages: 2, model: text("m") },
            Moment::AfterModelResponse { turn: 1, message: reply },
            Moment::PreToolUse(used.clone()),
            Moment::PermissionRequest {
                used: used.clone(),
                summary: text("run ls"),
                reason: text("asked"),
            },
            Moment::PostToolUse(used.clone(), content.clone()),
            Moment::ToolError { used, content, class: text("failed") },
            Moment::Stop { answer: text("done"), holds: 1 },
            Moment::SessionEnd { reason: text("completed") },
        ];
        let origin = Arc::new(Origin {
            invocation_id: InvocationId::new("i1"),
            parent_invocation_id: None,
            agent: text("build"),
            agent_path: text("build"),
        });
        let lines = moments.map(|moment| {
            let of_session = matches!(moment, Moment::SessionStart | Moment::SessionEnd { .. });
            let origin = (!of_session).then(|| Arc::clone(&origin));
            let occasion = Occasion { session_id: SessionId::new("s1"), origin, moment };
            json(&occasion, "/work").to_string()
        });
        insta::assert_snapshot!(lines.join("\n"));
    }
}
