//! Encoder of requests. A history is serialised once.
//!
//! Nothing is stored at the server, so every request is complete: items unchanged, thinking in its
//! encrypted form. For any history, every call has its result behind it, and thinking is followed
//! by content.

mod item;

use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::conversation::Message;
use posse_actors::ports::{Request, ToolSpec};
use serde::Serialize;

use crate::attempt::Body;
use crate::encoded_history::Histories;
use crate::images::ImageSelection;
use crate::opaque::Owner;
use crate::openai_responses::encode::item::Items;
use crate::profile::{ProviderProfile, Quirks, VisionSupport};
use crate::sanitize::{fingerprint, write_json};
use crate::thinking::{ThinkingConfig, ThinkingDialect, ThinkingParam, effort, joined};

/// The least that servers take as the bound of a reply.
const REPLY_TOKENS_MIN: u64 = 16;

/// Message inserted if there is no user message.
const GO_ON: &[u8] =
    br#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Go on."}]}"#;

/// Instructions for servers that require some, if there are none.
const NO_INSTRUCTIONS: &str = "Follow the conversation.";

/// Writes the requests of one profile.
#[derive(Debug)]
pub(crate) struct ResponsesEncoder {
    model: String,
    quirks: Quirks,
    sight: VisionSupport,
    max_tokens: Option<u64>,
    owner: Owner,
    /// Id of the installation, for requests with a login.
    installation: Option<String>,
    thoughts: ThinkingConfig,
    kept: Mutex<EncodedItems>,
}

#[derive(Debug, Default)]
struct EncodedItems {
    histories: Histories,
    tools: Option<(Arc<[ToolSpec]>, Vec<u8>)>,
}

impl ResponsesEncoder {
    /// An encoder that has seen nothing.
    pub(crate) fn new(profile: &ProviderProfile, owner: Owner) -> ResponsesEncoder {
        ResponsesEncoder {
            model: profile.model.clone(),
            quirks: profile.quirks.clone(),
            sight: profile.sight.clone(),
            max_tokens: profile.max_tokens,
            owner,
            installation: profile.login.as_ref().map(|login| login.installation_id()),
            thoughts: ThinkingConfig::of(profile, ThinkingDialect::Responses),
            kept: Mutex::default(),
        }
    }

    /// The body of `request`; or why there is none, if the user shows images to a model that
    /// takes none.
    pub(crate) fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        let mut shown = ImageSelection::of(&request.messages, &self.quirks, &self.sight)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let EncodedItems { histories, tools } = &mut *kept;
        let is_system = |message: &&Arc<Message>| matches!(***message, Message::System { .. });
        let (system, messages) =
            request.messages.split_at(request.messages.iter().take_while(is_system).count());
        let instructions = instructions(system);
        let items = Items { quirks: &self.quirks, owner: &self.owner, blind: shown.blind };
        let history = histories.of(messages, &mut shown, &items);
        let tools = tools_json(tools, &request.tools);
        let mut body =
            Vec::with_capacity(history.json.len() + tools.len() + instructions.len() + 512);
        body.extend_from_slice(b"{\"model\":");
        write_json(&mut body, &self.model);
        body.extend_from_slice(b",\"store\":false");
        if stream {
            body.extend_from_slice(b",\"stream\":true");
        }
        let (said, notice) = self.thoughts.say(request.thinking, &self.quirks);
        self.write_settings(&mut body, request, said);
        if !self.quirks.no_prompt_cache {
            let beginning = history.first().unwrap_or_default();
            let key = fingerprint(instructions.bytes().chain(beginning.iter().copied()));
            body.extend_from_slice(b",\"prompt_cache_key\":\"posse-");
            body.extend_from_slice(format!("{key:016x}\"").as_bytes());
        }
        if !request.tools.is_empty() {
            body.extend_from_slice(b",\"tools\":");
            body.extend_from_slice(tools);
            if !self.quirks.omit_tool_choice {
                body.extend_from_slice(b",\"tool_choice\":\"auto\"");
            }
            if self.quirks.one_call_at_a_time {
                body.extend_from_slice(b",\"parallel_tool_calls\":false");
            }
        }
        if let Some(installation) = &self.installation {
            body.extend_from_slice(b",\"client_metadata\":{\"x-codex-installation-id\":");
            write_json(&mut body, installation);
            body.push(b'}');
        }
        let instructions = match &self.installation {
            // This server insists.
            Some(_) if instructions.is_empty() => NO_INSTRUCTIONS,
            Some(_) | None => instructions.as_str(),
        };
        if !instructions.is_empty() {
            body.extend_from_slice(b",\"instructions\":");
            write_json(&mut body, instructions);
        }
        body.extend_from_slice(b",\"input\":[");
        let is_empty = history.json.is_empty();
        body.extend_from_slice(if is_empty { GO_ON } else { &history.json });
        body.extend_from_slice(b"]}");
        Ok(Body { bytes: body, notice: joined(shown.notice, notice) })
    }

    fn write_settings(&self, body: &mut Vec<u8>, request: &Request, said: ThinkingParam) {
        if !self.quirks.no_reasoning {
            body.extend_from_slice(b",\"include\":[\"reasoning.encrypted_content\"]");
            let effort = match said {
                ThinkingParam::AsConfigured => self.quirks.effort.as_deref(),
                ThinkingParam::Nothing => None,
                ThinkingParam::Level(level) => Some(effort(level, &self.quirks.effort_names)),
            };
            let settings =
                [("effort", effort), ("summary", self.quirks.reasoning_summary.as_deref())];
            let said = settings.into_iter().filter_map(|(name, value)| Some((name, value?)));
            let said: serde_json::Map<_, _> =
                said.map(|(name, value)| (name.to_owned(), value.into())).collect();
            if !said.is_empty() {
                body.extend_from_slice(b",\"reasoning\":");
                write_json(body, &said);
            }
        }
        if let Some(temperature) = request.temperature
            && !self.quirks.omit_temperature
        {
            body.extend_from_slice(b",\"temperature\":");
            write_json(body, &temperature);
        }
        if let Some(tokens) = request.tokens_max.or(self.max_tokens)
            && !self.quirks.omit_max_tokens
        {
            body.extend_from_slice(b",\"max_output_tokens\":");
            write_json(body, &tokens.max(REPLY_TOKENS_MIN));
        }
    }
}

fn instructions(messages: &[Arc<Message>]) -> String {
    let texts = messages.iter().filter_map(|message| match &**message {
        Message::System { content } if !content.trim().is_empty() => Some(content.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

fn tools_json<'k>(
    kept: &'k mut Option<(Arc<[ToolSpec]>, Vec<u8>)>,
    tools: &Arc<[ToolSpec]>,
) -> &'k [u8] {
    #[derive(Serialize)]
    struct FunctionDefinition<'t> {
        r#type: &'static str,
        name: &'t str,
        description: &'t str,
        parameters: &'t serde_json::Value,
        // Otherwise every parameter would have to be required.
        strict: bool,
    }
    let is_same = kept.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, tools));
    if !is_same {
        let wire = |tool: &'_ ToolSpec| {
            let mut json = Vec::new();
            let ToolSpec { name, description, parameters, .. } = tool;
            let r#type = "function";
            write_json(
                &mut json,
                &FunctionDefinition { r#type, name, description, parameters, strict: false },
            );
            json
        };
        let list: Vec<Vec<u8>> = tools.iter().map(wire).collect();
        let json = [&b"["[..], &list.join(&b','), b"]"].concat();
        *kept = Some((Arc::clone(tools), json));
    }
    kept.as_ref().map_or(&[], |(_, json)| json)
}

#[cfg(test)]
mod tests;
