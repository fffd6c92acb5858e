//! Encoder of turns: a model message, and all content up to the next one as a single user message.

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

const SILENT_MODEL: &str = "(no answer)";
const SILENT_USER: &str = "(empty message)";
const BETWEEN: &str = "Go on.";

/// A model message, and all messages up to the next one.
pub(super) struct Turns<'e> {
    pub(super) quirks: &'e Quirks,
    pub(super) owner: &'e Owner,
    /// The model takes no images.
    pub(super) blind: bool,
}

/// A block of a model message.
#[derive(Debug, Clone, Copy)]
enum AnthropicBlock<'m> {
    /// Unchanged.
    Thought(&'m Value),
    Text(&'m str),
    Call(&'m ToolCall),
}

impl Grouping for Turns<'_> {
    fn continues(&self, next: &Message) -> bool {
        !matches!(next, Message::Assistant(_))
    }

    /// Returns whether the user has yet to say something.
    fn write(&self, json: &mut Vec<u8>, group: &[Arc<Message>], before: PrecedingGroups) -> bool {
        let PrecedingGroups { owed, left_out } = before;
        let said = group.first().and_then(|first| match &**first {
            Message::Assistant(said) => Some(said),
            Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
        });
        if let Some(said) = said {
            if owed || json.is_empty() {
                let mut content = Vec::new();
                write_text(&mut content, BETWEEN);
                write_message(json, "user", &content);
            }
            write_message(json, "assistant", &self.assistant(said));
        }
        let view = GroupOptions::new(self.quirks, self.blind, left_out);
        let content = user(said.map_or(&[], |said| &said.tool_calls), group, &view);
        if content.is_empty() {
            return owed || said.is_some();
        }
        write_message(json, "user", &content);
        false
    }
}

impl Turns<'_> {
    fn assistant(&self, said: &AssistantMessage) -> Vec<u8> {
        let mut pieces = pieces(said, self.owner.items(said));
        pieces
            .retain(|piece| !matches!(piece, AnthropicBlock::Text(text) if text.trim().is_empty()));
        // The protocol has no message that ends with thinking.
        while let Some(AnthropicBlock::Thought(_)) = pieces.last() {
            pieces.pop();
        }
        if pieces.is_empty() {
            pieces.push(AnthropicBlock::Text(SILENT_MODEL));
        }
        let mut content = Vec::new();
        for piece in pieces {
            match piece {
                AnthropicBlock::Thought(block) => push(&mut content, block),
                AnthropicBlock::Text(text) => write_text(&mut content, text),
                AnthropicBlock::Call(call) => write_call(&mut content, call),
            }
        }
        content
    }
}

/// Results come first, in the order of the calls: servers insist.
fn user(calls: &[ToolCall], group: &[Arc<Message>], view: &GroupOptions<'_>) -> Vec<u8> {
    let mut content = Vec::new();
    let mut results: HashMap<&CallId, (&[ContentPart], bool)> = HashMap::new();
    for message in group {
        if let Message::Tool { tool_call_id, content, is_error, .. } = &**message {
            results.entry(tool_call_id).or_insert((content, *is_error));
        }
    }
    let mut pictures = Vec::new();
    for call in calls {
        let result = results.remove(&call.id);
        write_result(&mut content, &mut pictures, call, result, view);
    }
    if !pictures.is_empty() {
        comma(&mut content);
        content.append(&mut pictures);
    }
    let mut spoke = false;
    for message in group {
        match &**message {
            Message::User { content: parts } => {
                spoke = true;
                write_parts(&mut content, parts, view);
            }
            Message::System { content: text } => write_text(&mut content, text),
            Message::Assistant(_) | Message::Tool { .. } => {}
        }
    }
    if content.is_empty() && spoke {
        write_text(&mut content, SILENT_USER);
    }
    content
}

/// `pictures` come behind all results: the protocol has none in the result of a failure.
fn write_result(
    content: &mut Vec<u8>,
    pictures: &mut Vec<u8>,
    call: &ToolCall,
    result: Option<(&[ContentPart], bool)>,
    view: &GroupOptions<'_>,
) {
    let mut blocks = Vec::new();
    let is_error = if let Some((parts, is_error)) = result {
        let is_image = |part: &&ContentPart| matches!(part, ContentPart::ImageUrl { .. });
        let (behind, within): (Vec<_>, Vec<_>) =
            parts.iter().partition(|part| is_error && is_image(part));
        write_parts(&mut blocks, within, view);
        write_parts(pictures, behind, view);
        if blocks.is_empty() {
            write_text(&mut blocks, NO_OUTPUT);
        }
        is_error
    } else {
        write_text(&mut blocks, NO_RESULT);
        true
    };
    comma(content);
    content.extend_from_slice(b"{\"type\":\"tool_result\",\"tool_use_id\":");
    write_json(content, &call_id(call.id.as_str()));
    if is_error {
        content.extend_from_slice(b",\"is_error\":true");
    }
    content.extend_from_slice(b",\"content\":[");
    content.extend_from_slice(&blocks);
    content.extend_from_slice(b"]}");
}

fn write_parts<'p>(
    content: &mut Vec<u8>,
    parts: impl IntoIterator<Item = &'p ContentPart>,
    view: &GroupOptions<'_>,
) {
    for part in parts {
        match part {
            ContentPart::Text { text } => write_text(content, text),
            ContentPart::ImageUrl { url, .. } => match (view.instead(), image(url)) {
                (Some(marker), _) => write_text(content, marker),
                (None, Some(source)) => {
                    push(content, &json!({ "type": "image", "source": source }));
                }
                (None, None) => write_text(content, ODD_IMAGE),
            },
        }
    }
}

/// True if the current turn began with thinking, or if there is none: required by servers with a
/// thinking budget.
pub(super) fn begins_with_thinking(owner: &Owner, messages: &[Arc<Message>]) -> bool {
    let replies = messages.iter().rev().filter_map(|message| match &**message {
        Message::Assistant(said) => Some(said),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
    });
    let first = replies.take_while(|said| !said.tool_calls.is_empty()).last();
    first.is_none_or(|said| {
        let mut pieces = pieces(said, owner.items(said)).into_iter();
        let blank = |piece: &AnthropicBlock<'_>| matches!(piece, AnthropicBlock::Text(t) if t.trim().is_empty());
        matches!(pieces.find(|piece| !blank(piece)), Some(AnthropicBlock::Thought(_)))
    })
}

/// The blocks in the order in which they came, as far as that is known.
fn pieces<'m>(said: &'m AssistantMessage, items: &'m [Value]) -> Vec<AnthropicBlock<'m>> {
    if let Some(pieces) = in_order(said, items) {
        return pieces;
    }
    let thoughts = items.iter().filter(|item| is_thought(item)).map(AnthropicBlock::Thought);
    let text = said.content.as_deref().map(AnthropicBlock::Text);
    thoughts.chain(text).chain(said.tool_calls.iter().map(AnthropicBlock::Call)).collect()
}

/// `None` if the message is no longer what came.
fn in_order<'m>(said: &'m AssistantMessage, items: &'m [Value]) -> Option<Vec<AnthropicBlock<'m>>> {
    let mut text = said.content.as_deref().unwrap_or_default();
    let mut calls = said.tool_calls.iter();
    let mut pieces = Vec::with_capacity(items.len());
    for item in items {
        pieces.push(match item.get("type").and_then(Value::as_str)? {
            "text" => {
                let bytes = usize::try_from(item.get("bytes")?.as_u64()?).ok()?;
                let (piece, rest) = text.split_at_checked(bytes)?;
                text = rest;
                AnthropicBlock::Text(piece)
            }
            "tool_use" => AnthropicBlock::Call(calls.next()?),
            _ if is_thought(item) => AnthropicBlock::Thought(item),
            _ => return None,
        });
    }
    (text.is_empty() && calls.next().is_none() && !items.is_empty()).then_some(pieces)
}

/// True for a thinking block with all fields that a server requires back.
fn is_thought(item: &Value) -> bool {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    match text("type") {
        Some("thinking") => {
            text("thinking").is_some() && text("signature").is_some_and(|s| !s.is_empty())
        }
        Some("redacted_thinking") => text("data").is_some_and(|data| !data.is_empty()),
        _ => false,
    }
}

fn write_message(json: &mut Vec<u8>, role: &str, content: &[u8]) {
    comma(json);
    json.extend_from_slice(b"{\"role\":\"");
    json.extend_from_slice(role.as_bytes());
    json.extend_from_slice(b"\",\"content\":[");
    json.extend_from_slice(content);
    json.extend_from_slice(b"]}");
}

/// Appends a block of text, unless that is blank.
pub(super) fn write_text(content: &mut Vec<u8>, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    comma(content);
    content.extend_from_slice(b"{\"type\":\"text\",\"text\":");
    write_json(content, text);
    content.push(b'}');
}

fn write_call(content: &mut Vec<u8>, call: &ToolCall) {
    comma(content);
    content.extend_from_slice(b"{\"type\":\"tool_use\",\"id\":");
    write_json(content, &call_id(call.id.as_str()));
    content.extend_from_slice(b",\"name\":");
    write_json(content, &tool_name(&call.name));
    content.extend_from_slice(b",\"input\":");
    content.extend_from_slice(arguments(&call.arguments).as_bytes());
    content.push(b'}');
}

fn image(url: &str) -> Option<Value> {
    if url.starts_with("https://") {
        return Some(json!({ "type": "url", "url": url }));
    }
    let (media_type, data) = inline_image(url)?;
    Some(json!({ "type": "base64", "media_type": media_type, "data": data }))
}

fn push(content: &mut Vec<u8>, block: &Value) {
    comma(content);
    write_json(content, block);
}
