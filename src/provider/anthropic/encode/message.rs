//! Serialises turns: a model message, and all content up to the next one as a single user message.

use std::borrow::Cow;
use std::sync::Arc;

use posse_actors::conversation::{AssistantMessage, ContentPart, Message, ToolCall};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::encoded_history::{GroupOptions, results};
use crate::opaque::{ItemTypes, Owner, ReplyPart};
use crate::sanitize::{
    NO_OUTPUT, NO_RESULT, ODD_IMAGE, arguments, call_id, comma, inline_image, tool_name, write_json,
};

const SILENT_MODEL: &str = "(no answer)";
const SILENT_USER: &str = "(empty message)";
const BETWEEN: &str = "Go on.";

const ITEMS: ItemTypes = ItemTypes { text: "text", call: "tool_use", is_thought };

/// A block of a message.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnthropicBlock<'m> {
    Text {
        text: &'m str,
    },
    ToolUse {
        id: Cow<'m, str>,
        name: Cow<'m, str>,
        input: Option<Box<RawValue>>,
    },
    ToolResult {
        tool_use_id: Cow<'m, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        content: Vec<AnthropicBlock<'m>>,
    },
    #[serde(untagged)]
    Image(Value),
    /// Opaque thinking block, which is sent unchanged.
    #[serde(untagged)]
    Thought(&'m Value),
}

#[derive(Serialize)]
struct AnthropicMessage<'m> {
    role: &'static str,
    content: &'m [AnthropicBlock<'m>],
}

impl<'m> AnthropicBlock<'m> {
    /// Text block. `None`: `text` is blank.
    pub(super) fn text(text: &'m str) -> Option<AnthropicBlock<'m>> {
        (!text.trim().is_empty()).then_some(AnthropicBlock::Text { text })
    }
}

/// Appends one turn: the model message at the beginning of `group`, if any, and the content of all
/// other messages as one user message. A user message is inserted before a model message that would
/// begin the history or follow another one. Returns true if a user message must follow.
pub(super) fn write_turn(
    json: &mut Vec<u8>,
    group: &[Arc<Message>],
    options: &GroupOptions<'_>,
) -> bool {
    let said = group.first().and_then(|first| match &**first {
        Message::Assistant(said) => Some(said),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
    });
    if let Some(said) = said {
        if options.owed || json.is_empty() {
            write_message(json, "user", &[AnthropicBlock::Text { text: BETWEEN }]);
        }
        write_message(json, "assistant", &assistant(said, options.owner));
    }
    let content = user(said.map_or(&[], |said| &said.tool_calls), group, options);
    if content.is_empty() {
        return options.owed || said.is_some();
    }
    write_message(json, "user", &content);
    false
}

fn assistant<'m>(said: &'m AssistantMessage, owner: &Owner) -> Vec<AnthropicBlock<'m>> {
    let parts = ITEMS.parts(said, owner);
    if parts.is_empty() {
        return vec![AnthropicBlock::Text { text: SILENT_MODEL }];
    }
    let blocks = parts.into_iter().map(|part| match part {
        ReplyPart::Thought(block) => AnthropicBlock::Thought(block),
        ReplyPart::Text { text, .. } => AnthropicBlock::Text { text },
        ReplyPart::Call(call) => AnthropicBlock::ToolUse {
            id: call_id(call.id.as_str()),
            name: tool_name(&call.name),
            input: RawValue::from_string(arguments(&call.arguments).into_owned()).ok(),
        },
    });
    blocks.collect()
}

/// Blocks of the user message. Results come first, in the order of the calls, as servers require.
/// Images of failed calls come after all results, because the protocol allows no image in the
/// result of a failure.
fn user<'m>(
    calls: &'m [ToolCall],
    group: &'m [Arc<Message>],
    options: &GroupOptions<'_>,
) -> Vec<AnthropicBlock<'m>> {
    let mut results = results(group);
    let mut content = Vec::new();
    let mut pictures = Vec::new();
    for call in calls {
        let result = results.remove(&call.id);
        let is_error = result.is_none_or(|result| result.is_error);
        let mut blocks = Vec::new();
        if let Some(result) = result {
            let is_behind =
                |part: &&ContentPart| is_error && matches!(part, ContentPart::ImageUrl { .. });
            let (behind, within): (Vec<_>, Vec<_>) = result.content.iter().partition(is_behind);
            blocks.extend(within.into_iter().filter_map(|part| block(part, options)));
            pictures.extend(behind.into_iter().filter_map(|part| block(part, options)));
        }
        if blocks.is_empty() {
            let text = if result.is_some() { NO_OUTPUT } else { NO_RESULT };
            blocks.push(AnthropicBlock::Text { text });
        }
        let tool_use_id = call_id(call.id.as_str());
        content.push(AnthropicBlock::ToolResult { tool_use_id, is_error, content: blocks });
    }
    content.append(&mut pictures);
    let mut spoke = false;
    for message in group {
        match &**message {
            Message::User { content: parts } => {
                spoke = true;
                content.extend(parts.iter().filter_map(|part| block(part, options)));
            }
            Message::System { content: text } => content.extend(AnthropicBlock::text(text)),
            Message::Assistant(_) | Message::Tool { .. } => {}
        }
    }
    if content.is_empty() && spoke {
        content.push(AnthropicBlock::Text { text: SILENT_USER });
    }
    content
}

/// Block for a part of a message. `None`: it is blank text.
fn block<'m>(part: &'m ContentPart, options: &GroupOptions<'_>) -> Option<AnthropicBlock<'m>> {
    match part {
        ContentPart::Text { text } => AnthropicBlock::text(text),
        ContentPart::ImageUrl { url, .. } => Some(match (options.instead(), image(url)) {
            (Some(text), _) => AnthropicBlock::Text { text },
            (None, Some(source)) => {
                AnthropicBlock::Image(json!({ "type": "image", "source": source }))
            }
            (None, None) => AnthropicBlock::Text { text: ODD_IMAGE },
        }),
    }
}

/// True if the reply that began the current sequence of tool calls begins with thinking, or if
/// there is no such reply. Servers require this of requests that limit thinking by `budget_tokens`.
pub(super) fn begins_with_thinking(owner: &Owner, messages: &[Arc<Message>]) -> bool {
    let replies = messages.iter().rev().filter_map(|message| match &**message {
        Message::Assistant(said) => Some(said),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
    });
    let first = replies.take_while(|said| !said.tool_calls.is_empty()).last();
    first.is_none_or(|said| matches!(ITEMS.parts(said, owner).first(), Some(ReplyPart::Thought(_))))
}

/// True for a thinking block with text and signature, and for a redacted one with data. Servers
/// require these fields back.
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

fn write_message(json: &mut Vec<u8>, role: &'static str, content: &[AnthropicBlock<'_>]) {
    comma(json);
    write_json(json, &AnthropicMessage { role, content });
}

fn image(url: &str) -> Option<Value> {
    if url.starts_with("https://") {
        return Some(json!({ "type": "url", "url": url }));
    }
    let (media_type, data) = inline_image(url)?;
    Some(json!({ "type": "base64", "media_type": media_type, "data": data }))
}
