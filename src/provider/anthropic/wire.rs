//! The shapes of a Messages reply: an event of its stream, or the whole of it.

use serde_json::value::RawValue;

use crate::lenient_json::{LenientList, Number, Object, Text};

/// An event of any type.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct AnthropicEvent<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Text<'a>,
    /// The block it is about.
    pub(crate) index: Number,
    /// Of `message_start`.
    pub(crate) message: Object<Whole<'a>>,
    /// Of `content_block_start`.
    pub(crate) content_block: Object<Block<'a>>,
    /// Of `content_block_delta` and `message_delta`.
    pub(crate) delta: Object<Block<'a>>,
    /// Of `message_delta`: what there is up to now.
    pub(crate) usage: Object<AnthropicUsage>,
    pub(crate) error: Option<&'a RawValue>,
}

/// A whole reply. The one of `message_start` is empty.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Whole<'a> {
    pub(crate) model: Text<'a>,
    pub(crate) content: LenientList<Block<'a>>,
    pub(crate) stop_reason: Text<'a>,
    pub(crate) usage: Object<AnthropicUsage>,
    pub(crate) error: Option<&'a RawValue>,
}

/// A block of content, its beginning, or an addition to a block or to the message.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Block<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Text<'a>,
    pub(crate) text: Text<'a>,
    pub(crate) thinking: Text<'a>,
    pub(crate) signature: Text<'a>,
    /// Redacted thinking.
    pub(crate) data: Text<'a>,
    pub(crate) id: Text<'a>,
    pub(crate) name: Text<'a>,
    pub(crate) input: Option<&'a RawValue>,
    pub(crate) partial_json: Text<'a>,
    pub(crate) stop_reason: Text<'a>,
}

#[derive(Debug, Default, Clone, Copy, serde::Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "they are the protocol's")]
pub(crate) struct AnthropicUsage {
    /// Tokens read that are neither read from the cache nor written into it.
    pub(crate) input_tokens: Number,
    pub(crate) cache_creation_input_tokens: Number,
    pub(crate) cache_read_input_tokens: Number,
    pub(crate) output_tokens: Number,
}
