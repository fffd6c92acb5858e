//! Writes requests. A history is serialised once: what was written stays in a buffer, and the
//! next request appends.
//!
//! Keeps the invariant that every call has exactly one result right behind it: a missing one is
//! made up as an error, one too many is left out. Arguments that are not an object, and names
//! that no server accepts, are made harmless, so that a model's slip does not spoil the session.

mod message;
pub(crate) mod pictures;

use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::conversation::Message;
use posse_actors::ports::{Request, ToolSpec};
use serde::Serialize;

use crate::provider::openai_compatible::encode::message::write_group;
use crate::provider::openai_compatible::encode::pictures::{Pictures, View};
use crate::provider::profile::{Quirks, Sight};

/// Histories that are kept serialised: those of agents that take turns.
const HISTORIES_MAX: usize = 4;

/// Writes the requests of one profile.
#[derive(Debug)]
pub(crate) struct Encoder {
    model: String,
    quirks: Quirks,
    sight: Sight,
    max_tokens: Option<u64>,
    kept: Mutex<Kept>,
}

/// A request as it is sent.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// What the user should know about it.
    pub(crate) notice: Option<String>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Most recently used last.
    histories: Vec<History>,
    tools: Option<(Arc<[ToolSpec]>, Vec<u8>)>,
}

/// A history, as far as it is serialised.
#[derive(Debug, Default)]
struct History {
    messages: Vec<Arc<Message>>,
    /// Messages with commas between them.
    json: Vec<u8>,
    /// Where groups end: an assistant's message with the results behind it, or one message.
    ends: Vec<End>,
    /// Images that are left out, from the oldest on.
    left_out: usize,
}

#[derive(Debug, Clone, Copy)]
struct End {
    messages: usize,
    bytes: usize,
    images: usize,
}

impl Encoder {
    /// An encoder that has seen nothing.
    pub(crate) fn new(
        model: &str,
        quirks: Quirks,
        sight: Sight,
        max_tokens: Option<u64>,
    ) -> Encoder {
        Encoder { model: model.to_owned(), quirks, sight, max_tokens, kept: Mutex::default() }
    }

    /// The body of `request`; or why there is none, if the user shows images to a model that
    /// takes none.
    pub(crate) fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        let pictures = Pictures::of(&request.messages);
        let blindness = if pictures.is_empty() { None } else { self.blindness() };
        if let Some(why) = blindness
            && pictures.from_user
        {
            return Err(why.to_owned());
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut *kept;
        let tools = tools_json(&mut kept.tools, &request.tools);
        let history = history_of(&mut kept.histories, &request.messages);
        let (left_out, mut notice) =
            if blindness.is_some() { (0, None) } else { pictures.too_many(&self.quirks) };
        if left_out <= history.left_out {
            // It was said before.
            notice = None;
        }
        history.leave_out(left_out);
        history.catch_up(&request.messages, &self.quirks, blindness.is_some());
        let mut body = Vec::with_capacity(history.json.len() + tools.len() + 512);
        self.write_head(&mut body, request, stream, tools);
        body.extend_from_slice(b"\"messages\":[");
        body.extend_from_slice(&history.json);
        body.extend_from_slice(b"]}");
        Ok(Body { bytes: body, notice })
    }

    fn blindness(&self) -> Option<&str> {
        match self.sight.blindness() {
            None if self.quirks.no_vision => Some("the configuration says so (quirks.noVision)"),
            blindness => blindness,
        }
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

impl History {
    /// How many leading messages are the same as those of `messages`.
    fn common(&self, messages: &[Arc<Message>]) -> usize {
        let pairs = self.messages.iter().zip(messages);
        pairs.take_while(|(mine, theirs)| Arc::ptr_eq(mine, theirs)).count()
    }

    /// Forgets what was written with other images left out than the oldest `left_out`.
    fn leave_out(&mut self, left_out: usize) {
        if self.left_out != left_out {
            let same = self.left_out.min(left_out);
            self.ends.retain(|end| end.images <= same);
            self.left_out = left_out;
        }
    }

    /// Serialises what is new in `messages`, after forgetting what is no longer in them.
    fn catch_up(&mut self, messages: &[Arc<Message>], quirks: &Quirks, blind: bool) {
        let common = self.common(messages);
        self.ends.retain(|end| end.messages <= common);
        let mut from = self.ends.last().map_or(0, |end| end.messages);
        // Results may have come in since the group before them was written.
        if matches!(messages.get(from).map(AsRef::as_ref), Some(Message::Tool { .. })) {
            self.ends.pop();
            from = self.ends.last().map_or(0, |end| end.messages);
        }
        self.json.truncate(self.ends.last().map_or(0, |end| end.bytes));
        self.messages.truncate(from);
        while let Some(first) = messages.get(from) {
            let is_result = |message: &&Arc<Message>| matches!(***message, Message::Tool { .. });
            let results = match **first {
                Message::Assistant(_) | Message::Tool { .. } => {
                    messages[from + 1..].iter().take_while(is_result).count()
                }
                Message::System { .. } | Message::User { .. } => 0,
            };
            let group = &messages[from..=from + results];
            let before = self.ends.last().map_or(0, |end| end.images);
            let view = View::new(quirks, blind, self.left_out.saturating_sub(before));
            write_group(&mut self.json, group, &view);
            self.messages.extend_from_slice(group);
            from += group.len();
            let images = before + pictures::count(group);
            self.ends.push(End { messages: from, bytes: self.json.len(), images });
        }
    }
}

/// The kept history that shares most with `messages`, or room for a new one.
fn history_of<'k>(histories: &'k mut Vec<History>, messages: &[Arc<Message>]) -> &'k mut History {
    let best = (0..histories.len())
        .map(|at| (histories[at].common(messages), at))
        .filter(|(common, _)| *common > 0)
        .max();
    let history = if let Some((_, at)) = best {
        histories.remove(at)
    } else {
        if histories.len() >= HISTORIES_MAX {
            histories.remove(0);
        }
        History::default()
    };
    histories.push(history);
    let last = histories.len() - 1;
    &mut histories[last]
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

/// Appends `value` as JSON.
fn write_json(body: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    #[expect(clippy::expect_used, reason = "strings, numbers and trees always have a JSON form")]
    serde_json::to_writer(body, value).expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests;
