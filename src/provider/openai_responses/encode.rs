//! Form of Responses requests.
//!
//! The server stores nothing, so every request contains the complete history, with thinking in its
//! encrypted form. For any history, every call has its result after it, and thinking is followed by
//! content.

mod item;

use std::collections::BTreeMap;
use std::sync::Arc;

use posse_actors::conversation::Message;
use posse_actors::ports::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use crate::encoded_history::GroupOptions;
use crate::encoder::{BodyPurpose, Dialect, Encoder, RequestParts};
use crate::openai_responses::PROTOCOL;
use crate::openai_responses::encode::item::write_items;
use crate::openai_responses::reply::ResponsesReply;
use crate::sanitize::{JsonObject, fingerprint};
use crate::thinking::{ThinkingDialect, ThinkingParam, effort};

/// Smallest value that servers accept as the maximum number of reply tokens.
const REPLY_TOKENS_MIN: u64 = 16;

/// User message that is sent if the history is empty.
const GO_ON: &[u8] =
    br#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Go on."}]}"#;

/// Instructions that are sent with a login if the history has none: its server requires some.
const NO_INSTRUCTIONS: &str = "Follow the conversation.";

/// Dialect of `OpenAI` Responses.
#[derive(Debug)]
pub(crate) struct ResponsesDialect;

#[derive(Serialize)]
struct FunctionDefinition<'t> {
    r#type: &'static str,
    name: &'t str,
    description: &'t str,
    parameters: &'t Value,
    // Otherwise every parameter would have to be required.
    strict: bool,
}

impl Dialect for ResponsesDialect {
    const PROTOCOL: &'static str = PROTOCOL;
    const THINKING: ThinkingDialect = ThinkingDialect::Responses;
    const SYSTEM_APART: bool = true;

    type Reply = ResponsesReply;

    fn tool(tool: &ToolSpec) -> impl Serialize {
        let ToolSpec { name, description, parameters, .. } = tool;
        FunctionDefinition { r#type: "function", name, description, parameters, strict: false }
    }

    /// The texts of the messages without blank ones, joined by blank lines.
    fn system(messages: &[Arc<Message>]) -> String {
        let texts = messages.iter().filter_map(|message| match &**message {
            Message::System { content } if !content.trim().is_empty() => Some(content.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    fn write_group(json: &mut Vec<u8>, group: &[Arc<Message>], options: &GroupOptions<'_>) -> bool {
        write_items(json, group, options);
        false
    }

    fn write(encoder: &Encoder<Self>, parts: &RequestParts<'_>, body: &mut JsonObject) {
        let quirks = &encoder.profile.quirks;
        let history = parts.history;
        body.member("store", &false);
        if parts.purpose == (BodyPurpose::Reply { stream: true }) {
            body.member("stream", &true);
        }
        if !quirks.no_reasoning {
            body.member("include", &["reasoning.encrypted_content"]);
            let effort = match parts.thinking {
                ThinkingParam::AsConfigured => quirks.effort.as_deref(),
                ThinkingParam::Nothing => None,
                ThinkingParam::Level(level) => Some(effort(level, &quirks.effort_names)),
            };
            let settings = [("effort", effort), ("summary", quirks.reasoning_summary.as_deref())];
            let settings = settings.into_iter().filter_map(|(name, value)| Some((name, value?)));
            let settings: BTreeMap<_, _> = settings.collect();
            body.optional("reasoning", Some(settings).filter(|said| !said.is_empty()));
        }
        body.optional("temperature", encoder.profile.temperature_of(parts.request));
        if !quirks.omit_max_tokens {
            let tokens = parts.request.tokens_max.or(encoder.profile.max_tokens);
            body.optional("max_output_tokens", tokens.map(|tokens| tokens.max(REPLY_TOKENS_MIN)));
        }
        if !quirks.no_prompt_cache {
            let key = parts.request.session.as_ref().map_or_else(
                || {
                    let beginning = history.first().unwrap_or_default();
                    let key = fingerprint(parts.system.bytes().chain(beginning.iter().copied()));
                    format!("posse-{key:016x}")
                },
                ToString::to_string,
            );
            body.member("prompt_cache_key", &key);
        }
        if !parts.request.tools.is_empty() {
            body.name("tools").extend_from_slice(parts.tools);
            if !quirks.omit_tool_choice {
                body.member("tool_choice", "auto");
            }
            if quirks.one_call_at_a_time {
                body.member("parallel_tool_calls", &false);
            }
        }
        let installation = encoder.installation.as_ref();
        let metadata = installation.map(|id| BTreeMap::from([("x-codex-installation-id", id)]));
        body.optional("client_metadata", metadata);
        match parts.system {
            // The server of a login insists.
            "" => body.optional("instructions", installation.map(|_| NO_INSTRUCTIONS)),
            instructions => body.member("instructions", instructions),
        }
        let input = body.name("input");
        input.push(b'[');
        input.extend_from_slice(if history.json.is_empty() { GO_ON } else { &history.json });
        input.push(b']');
    }
}

#[cfg(test)]
mod tests;
