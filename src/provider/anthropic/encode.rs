//! Encoder of requests. A history is serialised once; cache breakpoints are inserted into the
//! serialised text.
//!
//! For any history the request is a valid conversation: it begins and ends with the user, the roles
//! alternate, every call has its result right behind it, and no text is blank.

mod message;

use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::conversation::Message;
use posse_actors::ports::{Request, ToolSpec};
use serde::Serialize;

use crate::anthropic::encode::message::{Turns, begins_with_thinking};
use crate::attempt::Body;
use crate::encoded_history::{EncodedHistory, HISTORIES_MAX, Histories};
use crate::images::ImageSelection;
use crate::opaque::Owner;
use crate::profile::{ProviderProfile, Quirks, VisionSupport};
use crate::sanitize::{CACHE_MARK, write_json, write_marked};
use crate::thinking::{ThinkingConfig, ThinkingDialect, ThinkingParam, budget, effort, joined};

/// Default reply limit; the protocol requires one.
const REPLY_TOKENS: u64 = 32_000;

/// Minimum thinking budget of the protocol.
const THINKING_MIN: u64 = 1024;

/// Offered where there is nothing to offer: a history with calls must have tools.
const NO_TOOLS: &[u8] =
    br#"{"name":"none","description":"Not available.","input_schema":{"type":"object"}}"#;

/// User message that is inserted to make it the model's turn.
const GO_ON: &[u8] = br#"{"role":"user","content":[{"type":"text","text":"Go on."}]}"#;

/// Writes the requests of one profile.
#[derive(Debug)]
pub(crate) struct AnthropicEncoder {
    model: String,
    quirks: Quirks,
    sight: VisionSupport,
    max_tokens: Option<u64>,
    owner: Owner,
    thoughts: ThinkingConfig,
    kept: Mutex<EncodedMessages>,
}

#[derive(Debug, Default)]
struct EncodedMessages {
    histories: Histories,
    tools: Option<(Arc<[ToolSpec]>, Vec<u8>)>,
    /// The latest last.
    systems: Vec<(Vec<Arc<Message>>, Vec<u8>)>,
}

impl AnthropicEncoder {
    /// An encoder that has seen nothing.
    pub(crate) fn new(profile: &ProviderProfile, owner: Owner) -> AnthropicEncoder {
        AnthropicEncoder {
            model: profile.model.clone(),
            quirks: profile.quirks.clone(),
            sight: profile.sight.clone(),
            max_tokens: profile.max_tokens,
            owner,
            thoughts: ThinkingConfig::of(profile, ThinkingDialect::Messages),
            kept: Mutex::default(),
        }
    }

    /// The body of `request`; or why there is none, if the user shows images to a model that
    /// takes none.
    pub(crate) fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        let (said, notice) = self.thoughts.say(request.thinking, &self.quirks);
        let written = self.write(request, |body, messages| {
            let tokens = request.tokens_max.or(self.max_tokens).unwrap_or(REPLY_TOKENS);
            body.extend_from_slice(b",\"max_tokens\":");
            write_json(body, &tokens);
            if stream {
                body.extend_from_slice(b",\"stream\":true");
            }
            let thinks = self.write_thinking(body, tokens, messages, said);
            if let Some(temperature) = request.temperature
                && !self.quirks.omit_temperature
                && !thinks
            {
                body.extend_from_slice(b",\"temperature\":");
                write_json(body, &temperature);
            }
            let effort = match said {
                ThinkingParam::Level(level) if self.quirks.adaptive_thinking => {
                    Some(effort(level, &self.quirks.effort_names))
                }
                ThinkingParam::AsConfigured | ThinkingParam::Level(_) => {
                    self.quirks.effort.as_deref()
                }
                ThinkingParam::Nothing => None,
            };
            if let Some(effort) = effort {
                body.extend_from_slice(b",\"output_config\":{\"effort\":");
                write_json(body, effort);
                body.push(b'}');
            }
        });
        written.map(|body| Body { notice: joined(body.notice, notice), ..body })
    }

    /// The body that asks how large `request` is.
    pub(crate) fn encode_for_counting(&self, request: &Request) -> Result<Body, String> {
        self.write(request, |body, messages| {
            let said = self.thoughts.meant(request.thinking, &self.quirks);
            self.write_thinking(body, self.max_tokens.unwrap_or(REPLY_TOKENS), messages, said);
        })
    }

    fn write(
        &self,
        request: &Request,
        settings: impl FnOnce(&mut Vec<u8>, &[Arc<Message>]),
    ) -> Result<Body, String> {
        let mut shown = ImageSelection::of(&request.messages, &self.quirks, &self.sight)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let EncodedMessages { histories, tools, systems } = &mut *kept;
        let is_system = |message: &&Arc<Message>| matches!(***message, Message::System { .. });
        let (system, messages) =
            request.messages.split_at(request.messages.iter().take_while(is_system).count());
        let turns = Turns { quirks: &self.quirks, owner: &self.owner, blind: shown.blind };
        let history = histories.of(messages, &mut shown, &turns);
        let system = system_json(systems, system);
        let mut tools = tools_json(tools, &request.tools);
        let is_past = tools.is_empty() && messages.iter().any(calls_tools);
        if is_past {
            tools = NO_TOOLS;
        }
        let mut body = Vec::with_capacity(
            history.json.len() + tools.len() + system.len() + 4 * CACHE_MARK.len() + 512,
        );
        body.extend_from_slice(b"{\"model\":");
        write_json(&mut body, &self.model);
        settings(&mut body, messages);
        for (field, list) in [(&b"tools"[..], tools), (&b"system"[..], system)] {
            if !list.is_empty() {
                body.extend_from_slice(b",\"");
                body.extend_from_slice(field);
                body.extend_from_slice(b"\":[");
                self.write_marked(&mut body, list, 1);
                body.push(b']');
            }
        }
        if is_past {
            body.extend_from_slice(br#","tool_choice":{"type":"none"}"#);
        }
        body.extend_from_slice(b",\"messages\":[");
        self.write_history(&mut body, history);
        body.extend_from_slice(b"]}");
        Ok(Body { bytes: body, notice: shown.notice })
    }

    /// Appends `json` with a mark before its last `closing` bytes, which end a block.
    fn write_marked(&self, body: &mut Vec<u8>, json: &[u8], closing: usize) {
        if self.quirks.no_prompt_cache {
            body.extend_from_slice(json);
            return;
        }
        write_marked(body, json, closing);
    }

    /// The mark at the end is where the next request finds this one. The one before it is where
    /// this one finds the last: servers look back only so far.
    fn write_history(&self, body: &mut Vec<u8>, history: &EncodedHistory) {
        /// `}]}`: of a block, its list, and the message.
        const CLOSING: usize = 3;
        let mut rest = history.json.as_slice();
        if let Some((earlier, later)) = history.before_last().map(|at| rest.split_at(at))
            && !later.is_empty()
        {
            self.write_marked(body, earlier, CLOSING);
            rest = later;
        }
        if !rest.is_empty() {
            self.write_marked(body, rest, CLOSING);
        }
        if history.json.is_empty() || history.owed() {
            if !history.json.is_empty() {
                body.push(b',');
            }
            body.extend_from_slice(GO_ON);
        }
    }

    /// Returns whether the model will think.
    fn write_thinking(
        &self,
        body: &mut Vec<u8>,
        tokens: u64,
        messages: &[Arc<Message>],
        said: ThinkingParam,
    ) -> bool {
        if self.quirks.adaptive_thinking && said != ThinkingParam::Nothing {
            body.extend_from_slice(br#","thinking":{"type":"adaptive"}"#);
            return true;
        }
        let budget = match said {
            ThinkingParam::AsConfigured => self.quirks.thinking_budget,
            ThinkingParam::Nothing => None,
            ThinkingParam::Level(level) => Some(budget(level, tokens)),
        };
        let Some(budget) = budget else { return false };
        // The budget is part of the reply's bound, and something has to be left for an answer.
        let budget = budget.min(tokens.saturating_sub(1));
        if budget < THINKING_MIN || !begins_with_thinking(&self.owner, messages) {
            return false;
        }
        body.extend_from_slice(br#","thinking":{"type":"enabled","budget_tokens":"#);
        write_json(body, &budget);
        body.push(b'}');
        true
    }
}

fn calls_tools(message: &Arc<Message>) -> bool {
    matches!(&**message, Message::Assistant(said) if !said.tool_calls.is_empty())
}

/// The blocks of the instructions, with commas between them.
fn system_json<'k>(
    kept: &'k mut Vec<(Vec<Arc<Message>>, Vec<u8>)>,
    messages: &[Arc<Message>],
) -> &'k [u8] {
    let is_same = |known: &(Vec<Arc<Message>>, Vec<u8>)| {
        let mut pairs = known.0.iter().zip(messages);
        known.0.len() == messages.len() && pairs.all(|(known, new)| Arc::ptr_eq(known, new))
    };
    let entry = if let Some(at) = kept.iter().position(is_same) {
        kept.remove(at)
    } else {
        if kept.len() >= HISTORIES_MAX {
            kept.remove(0);
        }
        let mut json = Vec::new();
        for message in messages {
            if let Message::System { content } = &**message {
                message::write_text(&mut json, content);
            }
        }
        (messages.to_vec(), json)
    };
    kept.push(entry);
    kept.last().map_or(&[], |(_, json)| json)
}

/// The tools, with commas between them.
fn tools_json<'k>(
    kept: &'k mut Option<(Arc<[ToolSpec]>, Vec<u8>)>,
    tools: &Arc<[ToolSpec]>,
) -> &'k [u8] {
    #[derive(Serialize)]
    struct ToolDefinition<'t> {
        name: &'t str,
        description: &'t str,
        input_schema: &'t serde_json::Value,
    }
    let is_same = kept.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, tools));
    if !is_same {
        let mut json = Vec::new();
        for tool in &**tools {
            if !json.is_empty() {
                json.push(b',');
            }
            let ToolSpec { name, description, parameters: input_schema, .. } = tool;
            write_json(&mut json, &ToolDefinition { name, description, input_schema });
        }
        *kept = Some((Arc::clone(tools), json));
    }
    kept.as_ref().map_or(&[], |(_, json)| json)
}

#[cfg(test)]
mod tests;
