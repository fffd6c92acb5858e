//! Writes items: those of a message, with the results behind them.

use std::collections::HashMap;
use std::sync::Arc;

use posse_actors::conversation::{AssistantMessage, CallId, ContentPart, Message, ToolCall};
use serde_json::{Value, json};

use crate::encoded_history::{Grouping, PrecedingGroups};
use crate::images::GroupOptions;
use crate::opaque::Owner;
use crate::profile::Quirks;
use crate::sanitize::{
    NO_OUTPUT, NO_RESULT, ODD_IMAGE, arguments, call_id, comma, inline_image, tool_name, write_json,
};

const SILENT_USER: &str = "(empty message)";

/// One message, or the model's message with the results behind it.
pub(super) struct Items<'e> {
    pub(super) quirks: &'e Quirks,
    pub(super) owner: &'e Owner,
    /// The model takes no images.
    pub(super) blind: bool,
}

/// An item of a model message.
#[derive(Debug, Clone, Copy)]
enum OutputItem<'m> {
    /// Unchanged.
    Thought(&'m Value),
    Text {
        text: &'m str,
        phase: Option<&'m str>,
    },
    Call(&'m ToolCall),
}

impl Grouping for Items<'_> {
    fn continues(&self, next: &Message) -> bool {
        matches!(next, Message::Tool { .. })
    }

    /// Results of no call are left out.
    fn write(&self, json: &mut Vec<u8>, group: &[Arc<Message>], before: PrecedingGroups) -> bool {
        let view = GroupOptions::new(self.quirks, self.blind, before.left_out);
        let Some((first, results)) = group.split_first() else { return false };
        match &**first {
            Message::System { content } if content.trim().is_empty() => {}
            Message::System { content } => {
                let part = json!({ "type": "input_text", "text": content });
                write_message(json, "system", &[part], None);
            }
            Message::User { content } => {
                let mut parts = parts(content, &view);
                if parts.is_empty() {
                    parts.push(json!({ "type": "input_text", "text": SILENT_USER }));
                }
                write_message(json, "user", &parts, None);
            }
            Message::Assistant(said) => {
                self.write_reply(json, said);
                write_results(json, &said.tool_calls, results, &view);
            }
            Message::Tool { .. } => {}
        }
        false
    }
}

impl Items<'_> {
    fn write_reply(&self, json: &mut Vec<u8>, said: &AssistantMessage) {
        let mut pieces = pieces(said, self.owner.items(said));
        pieces.retain(
            |piece| !matches!(piece, OutputItem::Text { text, .. } if text.trim().is_empty()),
        );
        // The protocol rejects thinking without following content.
        while let Some(OutputItem::Thought(_)) = pieces.last() {
            pieces.pop();
        }
        for piece in pieces {
            match piece {
                OutputItem::Thought(item) => push(json, item),
                OutputItem::Text { text, phase } => {
                    // Of the gap between two messages.
                    let text = text.trim_start_matches('\n');
                    let part = json!({ "type": "output_text", "text": text });
                    write_message(json, "assistant", &[part], phase);
                }
                OutputItem::Call(call) => push(
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
}

fn write_results(
    json: &mut Vec<u8>,
    calls: &[ToolCall],
    results: &[Arc<Message>],
    view: &GroupOptions<'_>,
) {
    let mut answers: HashMap<&CallId, &[ContentPart]> = HashMap::with_capacity(results.len());
    for result in results {
        if let Message::Tool { tool_call_id, content, .. } = &**result {
            answers.entry(tool_call_id).or_insert(content);
        }
    }
    for call in calls {
        let output = match answers.remove(&call.id) {
            None => Value::from(NO_RESULT),
            Some(parts) => output(parts, view),
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

/// A text where there is nothing but text: not every server takes a list.
fn output(content: &[ContentPart], view: &GroupOptions<'_>) -> Value {
    let parts = parts(content, view);
    if parts.iter().any(|part| part["type"] == "input_image") {
        return Value::Array(parts);
    }
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    if texts.is_empty() { NO_OUTPUT.into() } else { texts.join("\n").into() }
}

fn parts(content: &[ContentPart], view: &GroupOptions<'_>) -> Vec<Value> {
    let text = |text: &str| json!({ "type": "input_text", "text": text });
    let parts = content.iter().filter_map(|part| match part {
        ContentPart::Text { text } if text.trim().is_empty() => None,
        ContentPart::Text { text: said } => Some(text(said)),
        ContentPart::ImageUrl { url, detail } => {
            if let Some(marker) = view.instead() {
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

/// The items in the order in which they came, as far as that is known.
fn pieces<'m>(said: &'m AssistantMessage, items: &'m [Value]) -> Vec<OutputItem<'m>> {
    if let Some(pieces) = in_order(said, items) {
        return pieces;
    }
    let thoughts = items.iter().filter(|item| is_thought(item)).map(OutputItem::Thought);
    let text = said.content.as_deref().map(|text| OutputItem::Text { text, phase: None });
    thoughts.chain(text).chain(said.tool_calls.iter().map(OutputItem::Call)).collect()
}

/// `None` if the message is no longer what came.
fn in_order<'m>(said: &'m AssistantMessage, items: &'m [Value]) -> Option<Vec<OutputItem<'m>>> {
    let mut text = said.content.as_deref().unwrap_or_default();
    let mut calls = said.tool_calls.iter();
    let mut pieces = Vec::with_capacity(items.len());
    for item in items {
        pieces.push(match item.get("type").and_then(Value::as_str)? {
            "message" => {
                let bytes = usize::try_from(item.get("bytes")?.as_u64()?).ok()?;
                let (piece, rest) = text.split_at_checked(bytes)?;
                text = rest;
                OutputItem::Text { text: piece, phase: item.get("phase").and_then(Value::as_str) }
            }
            "function_call" => OutputItem::Call(calls.next()?),
            _ if is_thought(item) => OutputItem::Thought(item),
            _ => return None,
        });
    }
    (text.is_empty() && calls.next().is_none() && !items.is_empty()).then_some(pieces)
}

/// True for a thinking item with all fields that a server requires back.
fn is_thought(item: &Value) -> bool {
    let content = item.get("encrypted_content").and_then(Value::as_str);
    item.get("type").and_then(Value::as_str) == Some("reasoning")
        && content.is_some_and(|content| !content.is_empty())
        && item.get("summary").is_some_and(Value::is_array)
}

fn write_message(json: &mut Vec<u8>, role: &str, content: &[Value], phase: Option<&str>) {
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
