//! Form of Chat Completions requests.
//!
//! Invariant: every call has exactly one result directly after it. A missing result is replaced by
//! an error text, and a surplus result is omitted. Arguments that are not an object, and names that
//! no server accepts, are sanitised, so that one mistake of a model does not make all later
//! requests invalid.

mod message;

use std::sync::Arc;

use posse_actors::conversation::Message;
use posse_actors::ports::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use crate::encoded_history::{EncodedHistory, GroupOptions};
use crate::encoder::{BodyPurpose, Dialect, Encoder, RequestParts};
use crate::openai_compatible::PROTOCOL;
use crate::openai_compatible::encode::message::write_group;
use crate::openai_compatible::reply::ChatReply;
use crate::sanitize::{JsonObject, write_marked};
use crate::thinking::{ThinkingDialect, ThinkingParam, effort};

/// Dialect of Chat Completions.
#[derive(Debug)]
pub(crate) struct ChatDialect;

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct WrappedFunction<'t> {
    r#type: &'static str,
    function: FunctionParameters<'t>,
}

#[derive(Serialize)]
struct FunctionParameters<'t> {
    name: &'t str,
    description: &'t str,
    parameters: &'t Value,
}

impl Dialect for ChatDialect {
    const PROTOCOL: &'static str = PROTOCOL;
    const THINKING: ThinkingDialect = ThinkingDialect::Chat;
    const SYSTEM_APART: bool = false;

    type Reply = ChatReply;

    fn tool(tool: &ToolSpec) -> impl Serialize {
        let ToolSpec { name, description, parameters, .. } = tool;
        let function = FunctionParameters { name, description, parameters };
        WrappedFunction { r#type: "function", function }
    }

    fn write_group(json: &mut Vec<u8>, group: &[Arc<Message>], options: &GroupOptions<'_>) -> bool {
        write_group(json, group, options);
        false
    }

    fn write(encoder: &Encoder<Self>, parts: &RequestParts<'_>, body: &mut JsonObject) {
        let quirks = &encoder.profile.quirks;
        if parts.purpose == (BodyPurpose::Reply { stream: true }) {
            body.member("stream", &true);
            if !quirks.no_stream_usage {
                body.member("stream_options", &StreamOptions { include_usage: true });
            }
        }
        if !parts.request.tools.is_empty() {
            body.name("tools").extend_from_slice(parts.tools);
            if !quirks.omit_tool_choice {
                body.member("tool_choice", "auto");
            }
        }
        body.optional("temperature", encoder.profile.temperature_of(parts.request));
        if !quirks.omit_max_tokens {
            let field = quirks.max_tokens_field.as_deref().unwrap_or("max_tokens");
            body.optional(field, parts.request.tokens_max.or(encoder.profile.max_tokens));
        }
        if let ThinkingParam::Level(level) = parts.thinking {
            body.member("reasoning_effort", effort(level, &quirks.effort_names));
        }
        write_history(body.name("messages"), parts.history, quirks.cache_breakpoints);
    }
}

/// Writes the history as a list of messages. If `marked`, adds up to three cache breakpoints: after
/// the first group (the instructions) and after the last two groups, where the previous and this
/// request end. Only a group that ends with a list of parts can contain one; other groups do not
/// count. If not `marked`, adds none.
fn write_history(body: &mut Vec<u8>, history: &EncodedHistory, marked: bool) {
    /// Bytes that close a part, its list and the message.
    const CLOSING: &[u8] = b"}]}";
    let json = history.json.as_slice();
    let fits = |end: &usize| marked && json[..*end].ends_with(CLOSING);
    let mut marks: Vec<usize> = history.ends().filter(fits).take(2).collect();
    marks.extend(history.ends().rev().find(fits));
    marks.sort_unstable();
    marks.dedup();
    body.push(b'[');
    let mut written = 0;
    for end in marks {
        write_marked(body, &json[written..end], CLOSING.len(), true);
        written = end;
    }
    body.extend_from_slice(&json[written..]);
    body.push(b']');
}

#[cfg(test)]
mod tests;
