//! Serialises the items of a message, and the results of its calls after them.

use std::sync::Arc;

use posse_actors::conversation::{AssistantMessage, ContentPart, Message, ToolCall};
use serde_json::{Value, json};

use crate::encoded_history::{GroupOptions, results};
use crate::opaque::{ItemTypes, Owner, ReplyPart};
use crate::sanitize::{
    NO_OUTPUT, NO_RESULT, ODD_IMAGE, arguments, call_id, comma, inline_image, tool_name, write_json,
};

const SILENT_USER: &str = "(empty message)";

const ITEMS: ItemTypes = ItemTypes { text: "message", call: "function_call", is_thought };

/// Appends the items of a group: one message, or a model message with the results of its calls
/// after it. Results without a call are omitted.
pub(super) fn write_items(json: &mut Vec<u8>, group: &[Arc<Message>], options: &GroupOptions<'_>) {
    let Some(first) = group.first() else { return };
    match &**first {
        Message::System { content } if content.trim().is_empty() => {}
        Message::System { content } => {
            let part = json!({ "type": "input_text", "text": content });
            write_message(json, "system", &json!([part]), None);
        }
        Message::User { content } => {
            let mut parts = parts(content, options);
            if parts.is_empty() {
                parts.push(json!({ "type": "input_text", "text": SILENT_USER }));
            }
            write_message(json, "user", &parts.into(), None);
        }
        Message::Assistant(said) => {
            write_reply(json, said, options.owner);
            write_results(json, &said.tool_calls, group, options);
        }
        Message::Tool { .. } => {}
    }
}

fn write_reply(json: &mut Vec<u8>, said: &AssistantMessage, owner: &Owner) {
    for part in ITEMS.parts(said, owner) {
        match part {
            ReplyPart::Thought(item) => push(json, item),
            ReplyPart::Text { text, phase } => {
                // Line breaks of the gap between two messages.
                let text = text.trim_start_matches('\n');
                write_message(json, "assistant", &text.into(), phase);
            }
            ReplyPart::Call(call) => push(
                json,
                &json!({
                    "type": "function_call",
                    "call_id": call_id(call.id.as_str()),
                    "name": tool_name(&call.name),
                    "arguments": arguments(&call.arguments),
                }),
            ),
        }
    }
}

fn write_results(
    json: &mut Vec<u8>,
    calls: &[ToolCall],
    group: &[Arc<Message>],
    options: &GroupOptions<'_>,
) {
    let mut results = results(group);
    for call in calls {
        let output = match results.remove(&call.id) {
            None => Value::from(NO_RESULT),
            Some(result) => output(result.content, options),
        };
        push(
            json,
            &json!({
                "type": "function_call_output",
                "call_id": call_id(call.id.as_str()),
                "output": output,
            }),
        );
    }
}

/// Output of a tool result: a text if no image is sent, because not every server accepts a list;
/// otherwise a list of parts.
fn output(content: &[ContentPart], options: &GroupOptions<'_>) -> Value {
    let parts = parts(content, options);
    if parts.iter().any(|part| part["type"] == "input_image") {
        return Value::Array(parts);
    }
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    if texts.is_empty() { NO_OUTPUT.into() } else { texts.join("\n").into() }
}

fn parts(content: &[ContentPart], options: &GroupOptions<'_>) -> Vec<Value> {
    let text = |text: &str| json!({ "type": "input_text", "text": text });
    let parts = content.iter().filter_map(|part| match part {
        ContentPart::Text { text } if text.trim().is_empty() => None,
        ContentPart::Text { text: said } => Some(text(said)),
        ContentPart::ImageUrl { url, detail } => {
            if let Some(marker) = options.instead() {
                return Some(text(marker));
            }
            if !url.starts_with("https://") && inline_image(url).is_none() {
                return Some(text(ODD_IMAGE));
            }
            let detail = detail.as_deref().unwrap_or("auto");
            Some(json!({ "type": "input_image", "image_url": url, "detail": detail }))
        }
    });
    parts.collect()
}

/// True for a thinking item with encrypted content and a list of summaries. Servers require these
/// fields back.
fn is_thought(item: &Value) -> bool {
    let content = item.get("encrypted_content").and_then(Value::as_str);
    item.get("type").and_then(Value::as_str) == Some("reasoning")
        && content.is_some_and(|content| !content.is_empty())
        && item.get("summary").is_some_and(Value::is_array)
}

/// Appends a message. The content of an assistant message is a plain string: in a list, the
/// protocol requires the id and the status that the server gave the message, and lists of
/// annotations.
fn write_message(json: &mut Vec<u8>, role: &str, content: &Value, phase: Option<&str>) {
    let mut message = json!({ "type": "message", "role": role, "content": content });
    if let Some(phase) = phase {
        message["phase"] = phase.into();
    }
    push(json, &message);
}

fn push(json: &mut Vec<u8>, item: &Value) {
    comma(json);
    write_json(json, item);
}
