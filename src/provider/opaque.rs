//! Opaque parts of a reply that only one server understands, such as signed or encrypted thinking:
//! kept unchanged, and sent back only to the profile and model they came from.

use posse_actors::conversation::{AssistantMessage, Reasoning};
use serde_json::{Value, json};

/// Owner of opaque data.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    protocol: &'static str,
    profile: String,
    model: String,
}

impl Owner {
    /// Owner for a model of a profile with `protocol`.
    pub(crate) fn new(protocol: &'static str, profile: &str, model: &str) -> Owner {
        Owner { protocol, profile: profile.to_owned(), model: model.to_owned() }
    }

    /// Writes the owner on the items that a reply came with.
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

    /// The items of a message, if they are this owner's.
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
