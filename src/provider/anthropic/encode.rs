//! Form of Messages requests. Cache breakpoints are inserted into the serialised text.
//!
//! For any history the request is a valid conversation: it begins and ends with the user, the roles
//! alternate, every call has its result directly after it, and no text is blank.

mod message;

use std::sync::Arc;

use posse_actors::conversation::Message;
use posse_actors::ports::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use crate::anthropic::PROTOCOL;
use crate::anthropic::encode::message::{AnthropicBlock, begins_with_thinking, write_turn};
use crate::anthropic::reply::AnthropicReply;
use crate::encoded_history::{EncodedHistory, GroupOptions};
use crate::encoder::{BodyPurpose, Dialect, Encoder, RequestParts};
use crate::sanitize::{JsonObject, write_marked};
use crate::thinking::{ThinkingDialect, ThinkingParam, budget, effort};

/// Default of the maximum number of reply tokens, which the protocol requires.
const REPLY_TOKENS: u64 = 32_000;

/// Smallest `budget_tokens` (maximum number of tokens for thinking) that the protocol allows.
const THINKING_MIN: u64 = 1024;

/// Tool list that is sent if a request has no tools but its history contains calls: the protocol
/// then requires a tool.
const NO_TOOLS: &[u8] =
    br#"[{"name":"none","description":"Not available.","input_schema":{"type":"object"}}]"#;

/// User message that is appended if a history is empty or does not end with a user message.
const GO_ON: &[u8] = br#"{"role":"user","content":[{"type":"text","text":"Go on."}]}"#;

/// Number of bytes that close a block and its list.
const LIST_CLOSING: usize = b"}]".len();

/// Number of bytes that close a block, its list and the message.
const MESSAGE_CLOSING: usize = b"}]}".len();

/// Dialect of Anthropic Messages.
#[derive(Debug)]
pub(crate) struct MessagesDialect;

/// Reasoning parameter as it is sent.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum AnthropicThinking {
    Adaptive,
    Enabled { budget_tokens: u64 },
}

#[derive(Serialize)]
struct OutputConfig<'q> {
    effort: &'q str,
}

#[derive(Serialize)]
struct ToolDefinition<'t> {
    name: &'t str,
    description: &'t str,
    input_schema: &'t Value,
}

impl Dialect for MessagesDialect {
    const PROTOCOL: &'static str = PROTOCOL;
    const THINKING: ThinkingDialect = ThinkingDialect::Messages;
    const SYSTEM_APART: bool = true;
    const COUNTING: Option<&'static str> = Some("/count_tokens");

    type Reply = AnthropicReply;

    fn tool(tool: &ToolSpec) -> impl Serialize {
        let ToolSpec { name, description, parameters: input_schema, .. } = tool;
        ToolDefinition { name, description, input_schema }
    }

    /// The system messages as a JSON list of text blocks, without blank ones. Empty text if none is
    /// left.
    fn system(messages: &[Arc<Message>]) -> String {
        let blocks = messages.iter().filter_map(|message| match &**message {
            Message::System { content } => AnthropicBlock::text(content),
            Message::User { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
        });
        let blocks: Vec<AnthropicBlock<'_>> = blocks.collect();
        if blocks.is_empty() {
            return String::new();
        }
        serde_json::to_string(&blocks).unwrap_or_default()
    }

    fn continues(next: &Message) -> bool {
        !matches!(next, Message::Assistant(_))
    }

    fn write_group(json: &mut Vec<u8>, group: &[Arc<Message>], options: &GroupOptions<'_>) -> bool {
        write_turn(json, group, options)
    }

    fn write(encoder: &Encoder<Self>, parts: &RequestParts<'_>, body: &mut JsonObject) {
        let quirks = &encoder.profile.quirks;
        let is_reply = parts.purpose != BodyPurpose::Counting;
        let tokens = parts.request.tokens_max.filter(|_| is_reply).or(encoder.profile.max_tokens);
        let tokens = tokens.unwrap_or(REPLY_TOKENS);
        body.optional("max_tokens", is_reply.then_some(tokens));
        if parts.purpose == (BodyPurpose::Reply { stream: true }) {
            body.member("stream", &true);
        }
        if let Some(thinking) = thinking(encoder, parts, tokens) {
            body.member("thinking", &thinking);
        } else if is_reply {
            body.optional("temperature", encoder.profile.temperature_of(parts.request));
        }
        let effort = match parts.thinking {
            ThinkingParam::Level(level) if quirks.adaptive_thinking => {
                Some(effort(level, &quirks.effort_names))
            }
            ThinkingParam::AsConfigured | ThinkingParam::Level(_) => quirks.effort.as_deref(),
            ThinkingParam::Nothing => None,
        };
        let effort = effort.filter(|_| is_reply);
        body.optional("output_config", effort.map(|effort| OutputConfig { effort }));
        let is_past = parts.request.tools.is_empty() && parts.messages.iter().any(calls_tools);
        let tools = if is_past { NO_TOOLS } else { parts.tools };
        let marked = !quirks.no_prompt_cache;
        if is_past || !parts.request.tools.is_empty() {
            write_marked(body.name("tools"), tools, LIST_CLOSING, marked);
        }
        if !parts.system.is_empty() {
            write_marked(body.name("system"), parts.system.as_bytes(), LIST_CLOSING, marked);
        }
        if is_past && !quirks.omit_tool_choice {
            body.name("tool_choice").extend_from_slice(br#"{"type":"none"}"#);
        }
        write_history(body.name("messages"), parts.history, marked);
    }
}

/// Writes the history as a list of messages that ends with the user. If `marked`, adds up to two
/// cache breakpoints: at the end of the history, for the next request; and at the end of the last
/// group but one, where the previous request ended, because servers search backwards for a limited
/// distance only.
fn write_history(body: &mut Vec<u8>, history: &EncodedHistory, marked: bool) {
    body.push(b'[');
    let mut rest = history.json.as_slice();
    if let Some((earlier, later)) = history.before_last().map(|at| rest.split_at(at))
        && !later.is_empty()
    {
        write_marked(body, earlier, MESSAGE_CLOSING, marked);
        rest = later;
    }
    if !rest.is_empty() {
        write_marked(body, rest, MESSAGE_CLOSING, marked);
    }
    if history.json.is_empty() || history.owed() {
        if !history.json.is_empty() {
            body.push(b',');
        }
        body.extend_from_slice(GO_ON);
    }
    body.push(b']');
}

fn thinking(
    encoder: &Encoder<MessagesDialect>,
    parts: &RequestParts<'_>,
    tokens: u64,
) -> Option<AnthropicThinking> {
    let quirks = &encoder.profile.quirks;
    let budget = match parts.thinking {
        ThinkingParam::Nothing => return None,
        _ if quirks.adaptive_thinking => return Some(AnthropicThinking::Adaptive),
        ThinkingParam::AsConfigured => quirks.thinking_budget?,
        ThinkingParam::Level(level) => budget(level, tokens, &quirks.thinking_budgets),
    };
    // The budget is part of the reply's bound, and something has to be left for an answer.
    let budget_tokens = budget.min(tokens.saturating_sub(1));
    let is_possible =
        budget_tokens >= THINKING_MIN && begins_with_thinking(&encoder.owner, parts.messages);
    is_possible.then_some(AnthropicThinking::Enabled { budget_tokens })
}

fn calls_tools(message: &Arc<Message>) -> bool {
    matches!(&**message, Message::Assistant(said) if !said.tool_calls.is_empty())
}

#[cfg(test)]
mod tests;
