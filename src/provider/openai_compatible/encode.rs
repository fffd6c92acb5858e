//! Writes requests. A history is serialised once.
//!
//! Keeps the invariant that every call has exactly one result right behind it: a missing one is
//! made up as an error, one too many is left out. Arguments that are not an object, and names
//! that no server accepts, are made harmless, so that a model's slip does not spoil the session.

mod message;

use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::conversation::Message;
use posse_actors::ports::{Request, ToolSpec};
use serde::Serialize;

use crate::attempt::Body;
use crate::encoded_history::{EncodedHistory, Grouping, Histories, PrecedingGroups};
use crate::images::{GroupOptions, ImageSelection};
use crate::opaque::Owner;
use crate::openai_compatible::encode::message::write_group;
use crate::profile::{ProviderProfile, Quirks, VisionSupport};
use crate::sanitize::{write_json, write_marked};
use crate::thinking::{ThinkingConfig, ThinkingDialect, ThinkingParam, effort, joined};

/// Writes the requests of one profile.
#[derive(Debug)]
pub(crate) struct ChatEncoder {
    model: String,
    quirks: Quirks,
    sight: VisionSupport,
    max_tokens: Option<u64>,
    owner: Owner,
    thoughts: ThinkingConfig,
    kept: Mutex<ChatCache>,
}

#[derive(Debug, Default)]
struct ChatCache {
    histories: Histories,
    tools: Option<(Arc<[ToolSpec]>, Vec<u8>)>,
}

impl ChatEncoder {
    /// An encoder that has seen nothing.
    pub(crate) fn new(profile: &ProviderProfile, owner: Owner) -> ChatEncoder {
        ChatEncoder {
            model: profile.model.clone(),
            quirks: profile.quirks.clone(),
            sight: profile.sight.clone(),
            max_tokens: profile.max_tokens,
            owner,
            thoughts: ThinkingConfig::of(profile, ThinkingDialect::Chat),
            kept: Mutex::default(),
        }
    }

    /// The body of `request`; or why there is none, if the user shows images to a model that
    /// takes none.
    pub(crate) fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        let mut shown = ImageSelection::of(&request.messages, &self.quirks, &self.sight)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut *kept;
        let tools = tools_json(&mut kept.tools, &request.tools);
        let groups = Groups { quirks: &self.quirks, owner: &self.owner, blind: shown.blind };
        let history = kept.histories.of(&request.messages, &mut shown, &groups);
        let mut body = Vec::with_capacity(history.json.len() + tools.len() + 512);
        let (said, notice) = self.thoughts.say(request.thinking, &self.quirks);
        self.write_head(&mut body, request, stream, tools);
        if let ThinkingParam::Level(level) = said {
            body.extend_from_slice(b"\"reasoning_effort\":");
            write_json(&mut body, effort(level, &self.quirks.effort_names));
            body.push(b',');
        }
        body.extend_from_slice(b"\"messages\":[");
        if self.quirks.cache_breakpoints {
            write_with_marks(&mut body, history);
        } else {
            body.extend_from_slice(&history.json);
        }
        body.extend_from_slice(b"]}");
        Ok(Body { bytes: body, notice: joined(shown.notice, notice) })
    }

    fn write_head(&self, body: &mut Vec<u8>, request: &Request, stream: bool, tools: &[u8]) {
        body.extend_from_slice(b"{\"model\":");
        write_json(body, &self.model);
        body.push(b',');
        if stream {
            body.extend_from_slice(b"\"stream\":true,");
            if !self.quirks.no_stream_usage {
                body.extend_from_slice(b"\"stream_options\":{\"include_usage\":true},");
            }
        }
        if !request.tools.is_empty() {
            body.extend_from_slice(b"\"tools\":");
            body.extend_from_slice(tools);
            body.push(b',');
            if !self.quirks.omit_tool_choice {
                body.extend_from_slice(b"\"tool_choice\":\"auto\",");
            }
        }
        if let Some(temperature) = request.temperature
            && !self.quirks.omit_temperature
        {
            body.extend_from_slice(b"\"temperature\":");
            write_json(body, &temperature);
            body.push(b',');
        }
        if let Some(tokens) = request.tokens_max.or(self.max_tokens)
            && !self.quirks.omit_max_tokens
        {
            write_json(body, self.quirks.max_tokens_field.as_deref().unwrap_or("max_tokens"));
            body.push(b':');
            write_json(body, &tokens);
            body.push(b',');
        }
    }
}

/// Marks the end of the instructions, where the last request ended, and where this one does. What
/// ends with the model's word, or with nothing that could have a mark, has none.
fn write_with_marks(body: &mut Vec<u8>, history: &EncodedHistory) {
    /// Of a part, its list, and the message.
    const CLOSING: &[u8] = b"}]}";
    let json = history.json.as_slice();
    let fits = |end: &usize| json[..*end].ends_with(CLOSING);
    let mut marks: Vec<usize> = history.ends().filter(fits).take(2).collect();
    marks.extend(history.ends().rev().find(fits));
    marks.sort_unstable();
    marks.dedup();
    let mut written = 0;
    for end in marks {
        write_marked(body, &json[written..end], CLOSING.len());
        written = end;
    }
    body.extend_from_slice(&json[written..]);
}

/// One message, or an assistant's message with the results behind it.
struct Groups<'q> {
    quirks: &'q Quirks,
    owner: &'q Owner,
    blind: bool,
}

impl Grouping for Groups<'_> {
    fn continues(&self, next: &Message) -> bool {
        matches!(next, Message::Tool { .. })
    }

    fn write(&self, json: &mut Vec<u8>, group: &[Arc<Message>], before: PrecedingGroups) -> bool {
        let view = GroupOptions::new(self.quirks, self.blind, before.left_out);
        write_group(json, group, self.owner, &view);
        false
    }
}

fn tools_json<'k>(
    kept: &'k mut Option<(Arc<[ToolSpec]>, Vec<u8>)>,
    tools: &Arc<[ToolSpec]>,
) -> &'k [u8] {
    #[derive(Serialize)]
    struct Wrapped<'t> {
        r#type: &'static str,
        function: Function<'t>,
    }
    #[derive(Serialize)]
    struct Function<'t> {
        name: &'t str,
        description: &'t str,
        parameters: &'t serde_json::Value,
    }
    let is_same = kept.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, tools));
    if !is_same {
        let wrapped: Vec<_> = tools
            .iter()
            .map(|tool| Wrapped {
                r#type: "function",
                function: Function {
                    name: &tool.name,
                    description: &tool.description,
                    parameters: &tool.parameters,
                },
            })
            .collect();
        let mut json = Vec::new();
        write_json(&mut json, &wrapped);
        *kept = Some((Arc::clone(tools), json));
    }
    kept.as_ref().map_or(&[], |(_, json)| json)
}

#[cfg(test)]
mod tests;
