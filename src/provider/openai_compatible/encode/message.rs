//! Serialises messages, in groups that are valid by themselves.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use posse_actors::conversation::{AssistantMessage, ContentPart, Message, ToolCall, text_of};
use serde::Serialize;
use serde_json::Value;

use crate::encoded_history::{GroupOptions, ToolResult, results};
use crate::profile::Quirks;
use crate::sanitize::{NO_OUTPUT, NO_RESULT, arguments, comma, tool_name, write_json};

const IMAGE_BELOW: &str = "[image: see the message after the results]";

/// A message in wire format.
#[serde_with_macros::skip_serializing_none]
#[derive(Serialize)]
struct ChatMessage<'m> {
    role: &'static str,
    tool_call_id: Option<&'m str>,
    name: Option<&'m str>,
    content: Content<'m>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'m>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'m> {
    None,
    Text(Cow<'m, str>),
    Parts(Vec<MessagePart<'m>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum MessagePart<'m> {
    Text { text: Cow<'m, str> },
    ImageUrl { image_url: ImageUrl<'m> },
}

#[derive(Serialize)]
struct ImageUrl<'m> {
    url: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'m str>,
}

#[derive(Serialize)]
struct WireCall<'m> {
    id: &'m str,
    r#type: &'static str,
    function: WireFunction<'m>,
    /// Opaque data that the server sent with the call. Sent back to that server only.
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'m Value>,
}

#[derive(Serialize)]
struct WireFunction<'m> {
    name: Cow<'m, str>,
    arguments: Cow<'m, str>,
}

impl<'m> MessagePart<'m> {
    fn image(url: &'m str, detail: Option<&'m str>) -> MessagePart<'m> {
        MessagePart::ImageUrl { image_url: ImageUrl { url, detail } }
    }
}

impl<'m> ChatMessage<'m> {
    fn new(role: &'static str, content: Content<'m>) -> ChatMessage<'m> {
        ChatMessage { role, tool_call_id: None, name: None, content, tool_calls: Vec::new() }
    }
}

/// Appends a group: one message, or an assistant message with the results of its calls, and the
/// images of these results as a user message. Results without a call are omitted; a group of only
/// such results appends nothing.
pub(crate) fn write_group(json: &mut Vec<u8>, group: &[Arc<Message>], view: &GroupOptions<'_>) {
    let Some(first) = group.first() else { return };
    match &**first {
        Message::System { content } => {
            let content = markable(Content::Text(content.into()), view.quirks);
            write(json, &ChatMessage::new("system", content));
        }
        Message::User { content } => {
            let content = markable(user_content(content, view), view.quirks);
            write(json, &ChatMessage::new("user", content));
        }
        Message::Assistant(message) => {
            write_turn(json, message, group, view);
        }
        Message::Tool { .. } => {}
    }
}

fn write_turn(
    json: &mut Vec<u8>,
    message: &AssistantMessage,
    group: &[Arc<Message>],
    view: &GroupOptions<'_>,
) {
    let ids = wire_ids(&message.tool_calls);
    write_assistant(json, message, &ids, view);
    let mut answers = results(group);
    let mut images = Vec::new();
    for (call, id) in message.tool_calls.iter().zip(&ids) {
        let answer = answers.remove(&call.id);
        let text = match &answer {
            Some(answer) => result_text(answer, id, view, &mut images),
            None => NO_RESULT.into(),
        };
        let name = tool_name(answer.as_ref().map_or(&call.name, |answer| answer.name));
        let mut wire = ChatMessage::new("tool", markable(Content::Text(text), view.quirks));
        wire.tool_call_id = Some(id);
        wire.name = view.quirks.tool_result_name.then_some(&*name);
        write(json, &wire);
    }
    if !images.is_empty() {
        // The protocol has no images in results.
        write(json, &ChatMessage::new("user", Content::Parts(images)));
    }
}

fn write_assistant(
    json: &mut Vec<u8>,
    message: &AssistantMessage,
    ids: &[&str],
    view: &GroupOptions<'_>,
) {
    // Opaque data is valid only with its own call.
    let extras = view.owner.items(message);
    let extras = if extras.len() == message.tool_calls.len() { extras } else { &[] };
    let content = match &message.content {
        Some(text) => Content::Text(text.into()),
        None if message.tool_calls.is_empty() => Content::Text("".into()),
        None => Content::None,
    };
    let mut wire = ChatMessage::new("assistant", content);
    wire.tool_calls = message
        .tool_calls
        .iter()
        .zip(ids)
        .enumerate()
        .map(|(at, (call, id))| WireCall {
            id,
            r#type: "function",
            function: WireFunction {
                name: tool_name(&call.name),
                arguments: arguments(&call.arguments),
            },
            extra_content: extras.get(at).filter(|extra| extra.is_object()),
        })
        .collect();
    write(json, &wire);
    if view.quirks.return_reasoning
        && let Some(reasoning) = &message.reasoning
        && let Some(field) = &reasoning.field
        && !matches!(field.as_str(), "role" | "content" | "tool_calls")
    {
        // Its name is the server's, so it is not a field of the type.
        json.pop();
        json.push(b',');
        write_json(json, field);
        json.push(b':');
        write_json(json, &reasoning.text);
        json.push(b'}');
    }
}

/// If the profile uses cache breakpoints, converts a text to a list of parts, which can carry one.
/// Blank text and other content is unchanged.
fn markable<'m>(content: Content<'m>, quirks: &Quirks) -> Content<'m> {
    match content {
        Content::Text(text) if quirks.cache_breakpoints && !text.trim().is_empty() => {
            Content::Parts(vec![MessagePart::Text { text }])
        }
        content => content,
    }
}

fn write(json: &mut Vec<u8>, message: &ChatMessage<'_>) {
    comma(json);
    write_json(json, message);
}

/// Ids of `calls` as they are sent: the id that the server assigned, if it is unique, else the
/// call's own.
fn wire_ids(calls: &[ToolCall]) -> Vec<&str> {
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(calls.len());
    for call in calls {
        *seen.entry(call.provider_id.as_deref().unwrap_or_default()).or_default() += 1;
        *seen.entry(call.id.as_str()).or_default() +=
            usize::from(call.provider_id.as_deref() != Some(call.id.as_str()));
    }
    calls
        .iter()
        .map(|call| match call.provider_id.as_deref() {
            Some(id) if !id.is_empty() && seen.get(id) == Some(&1) => id,
            Some(_) | None => call.id.as_str(),
        })
        .collect()
}

fn user_content<'m>(parts: &'m [ContentPart], view: &GroupOptions<'_>) -> Content<'m> {
    let has_image = parts.iter().any(|part| matches!(part, ContentPart::ImageUrl { .. }));
    match parts {
        // Many servers take nothing but a string where there are no images.
        [ContentPart::Text { text }] => Content::Text(text.into()),
        _ if !has_image => Content::Text(text_of(parts).into()),
        _ => {
            let written: Vec<MessagePart<'m>> =
                parts.iter().map(|part| user_part(part, view)).collect();
            let texts: Option<Vec<&str>> = written
                .iter()
                .map(|part| match part {
                    MessagePart::Text { text } => Some(&**text),
                    MessagePart::ImageUrl { .. } => None,
                })
                .collect();
            match texts.map(|texts| texts.join("\n")) {
                Some(text) => Content::Text(text.into()),
                None => Content::Parts(written),
            }
        }
    }
}

fn user_part<'m>(part: &'m ContentPart, view: &GroupOptions<'_>) -> MessagePart<'m> {
    match part {
        ContentPart::Text { text } => MessagePart::Text { text: text.into() },
        ContentPart::ImageUrl { url, detail } => match view.instead() {
            Some(marker) => MessagePart::Text { text: marker.into() },
            None => MessagePart::image(url, detail.as_deref()),
        },
    }
}

/// Text of a tool result, with a placeholder for each image. The images that are sent, after a text
/// that names tool and call, are appended to `images`, which follow all results.
fn result_text<'m>(
    answer: &ToolResult<'m>,
    id: &str,
    view: &GroupOptions<'_>,
    images: &mut Vec<MessagePart<'m>>,
) -> Cow<'m, str> {
    let mut texts: Vec<&'m str> = Vec::with_capacity(answer.content.len());
    let mut shown = false;
    for part in answer.content {
        match part {
            ContentPart::Text { text } => texts.push(text),
            ContentPart::ImageUrl { url, detail } => {
                if let Some(marker) = view.instead() {
                    texts.push(marker);
                    continue;
                }
                if !shown {
                    let text = format!("Images in the result of {} ({id}):", answer.name);
                    images.push(MessagePart::Text { text: text.into() });
                    shown = true;
                }
                images.push(MessagePart::image(url, detail.as_deref()));
                texts.push(IMAGE_BELOW);
            }
        }
    }
    match texts.as_slice() {
        [] | [""] => NO_OUTPUT.into(),
        [text] => (*text).into(),
        texts => texts.join("\n").into(),
    }
}
