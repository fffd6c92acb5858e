//! Opaque parts of a reply that only one server understands, such as signed or encrypted thinking:
//! kept unchanged, and sent back only to the profile and model they came from.

use posse_actors::conversation::{AssistantMessage, Reasoning, ToolCall};
use serde_json::{Value, json};

/// Owner of opaque data: the protocol, profile and model that it came from.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    protocol: &'static str,
    profile: String,
    model: String,
}

impl Owner {
    /// Creates the owner for a model of a profile with `protocol`.
    pub(crate) fn new(protocol: &'static str, profile: &str, model: &str) -> Owner {
        Owner { protocol, profile: profile.to_owned(), model: model.to_owned() }
    }

    /// Wraps the opaque items of a reply in an object that names their owner. Does nothing if the
    /// reply has none.
    pub(crate) fn sign(&self, message: &mut AssistantMessage) {
        let reasoning = message.reasoning.as_mut();
        let Some(Reasoning { opaque: Some(items), .. }) = reasoning else { return };
        *items = json!({
            "protocol": self.protocol,
            "profile": self.profile,
            "model": self.model,
            "items": items.take(),
        });
    }

    /// Opaque items of a message. Empty if it has none, or if they belong to another owner.
    pub(crate) fn items<'m>(&self, message: &'m AssistantMessage) -> &'m [Value] {
        let opaque = message.reasoning.as_ref().and_then(|reasoning| reasoning.opaque.as_ref());
        let Some(opaque) = opaque else { return &[] };
        let is = |key: &str, value: &str| opaque.get(key).and_then(Value::as_str) == Some(value);
        let mine = is("protocol", self.protocol)
            && is("profile", &self.profile)
            && is("model", &self.model);
        let items = opaque.get("items").filter(|_| mine).and_then(Value::as_array);
        items.map_or(&[], Vec::as_slice)
    }
}

/// Part of a reply that is sent back in later requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplyPart<'m> {
    /// Opaque thinking item, which is sent unchanged.
    Thought(&'m Value),
    Text {
        text: &'m str,
        phase: Option<&'m str>,
    },
    Call(&'m ToolCall),
}

/// Types of the opaque items of a protocol: values of their member `type`, and a test for thinking.
#[derive(Debug)]
pub(crate) struct ItemTypes {
    /// Type of an item that stands for a piece of the reply's text. Its member `bytes` is the
    /// length of the piece.
    pub(crate) text: &'static str,
    /// Type of an item that stands for the next call of the reply.
    pub(crate) call: &'static str,
    /// Returns true for a thinking item with all fields that a server requires back.
    pub(crate) is_thought: fn(&Value) -> bool,
}

impl ItemTypes {
    /// Parts of a message in the order in which they arrived; if that is unknown, thinking before
    /// text before calls. Omits blank texts, and thinking at the end, which no protocol accepts.
    pub(crate) fn parts<'m>(
        &self,
        said: &'m AssistantMessage,
        owner: &Owner,
    ) -> Vec<ReplyPart<'m>> {
        let items = owner.items(said);
        let mut parts = self.in_order(said, items).unwrap_or_else(|| {
            let thoughts = items.iter().filter(|item| (self.is_thought)(item));
            let text = said.content.as_deref().map(|text| ReplyPart::Text { text, phase: None });
            let calls = said.tool_calls.iter().map(ReplyPart::Call);
            thoughts.map(ReplyPart::Thought).chain(text).chain(calls).collect()
        });
        parts
            .retain(|part| !matches!(part, ReplyPart::Text { text, .. } if text.trim().is_empty()));
        while let Some(ReplyPart::Thought(_)) = parts.last() {
            parts.pop();
        }
        parts
    }

    /// Parts in their original order, which `items` record. `None`: there are no items, one has an
    /// unknown type or is incomplete, or the message has changed since.
    fn in_order<'m>(
        &self,
        said: &'m AssistantMessage,
        items: &'m [Value],
    ) -> Option<Vec<ReplyPart<'m>>> {
        let mut text = said.content.as_deref().unwrap_or_default();
        let mut calls = said.tool_calls.iter();
        let mut parts = Vec::with_capacity(items.len());
        for item in items {
            let kind = item.get("type").and_then(Value::as_str)?;
            parts.push(if kind == self.text {
                let bytes = usize::try_from(item.get("bytes")?.as_u64()?).ok()?;
                let (piece, rest) = text.split_at_checked(bytes)?;
                text = rest;
                ReplyPart::Text { text: piece, phase: item.get("phase").and_then(Value::as_str) }
            } else if kind == self.call {
                ReplyPart::Call(calls.next()?)
            } else if (self.is_thought)(item) {
                ReplyPart::Thought(item)
            } else {
                return None;
            });
        }
        (text.is_empty() && calls.next().is_none() && !items.is_empty()).then_some(parts)
    }
}
