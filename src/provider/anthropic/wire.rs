//! Types for parsing a Messages reply: an event of its stream, or the whole reply.

use serde_json::value::RawValue;

use crate::lenient_json::{LenientList, Number, Object, Text};

/// An event of any type.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct AnthropicEvent<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Text<'a>,
    /// Index of the block that the event concerns.
    pub(crate) index: Number,
    /// Beginning of the reply, without content; present in `message_start`.
    pub(crate) message: Object<Whole<'a>>,
    /// Beginning of a block, present in `content_block_start`.
    pub(crate) content_block: Object<Block<'a>>,
    /// Addition to a block (in `content_block_delta`) or to the message (in `message_delta`).
    pub(crate) delta: Object<Block<'a>>,
    /// Usage so far, present in `message_delta`.
    pub(crate) usage: Object<AnthropicUsage>,
    pub(crate) error: Option<&'a RawValue>,
}

/// A whole reply. In `message_start` it has no content yet.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Whole<'a> {
    pub(crate) model: Text<'a>,
    pub(crate) content: LenientList<Block<'a>>,
    pub(crate) stop_reason: Text<'a>,
    pub(crate) usage: Object<AnthropicUsage>,
    pub(crate) error: Option<&'a RawValue>,
}

/// A block of content or its beginning; in a delta, an addition to a block or to the message.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Block<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Text<'a>,
    pub(crate) text: Text<'a>,
    pub(crate) thinking: Text<'a>,
    pub(crate) signature: Text<'a>,
    /// Opaque data of redacted thinking.
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
    /// Input tokens that were neither read from the cache nor written to it.
    pub(crate) input_tokens: Number,
    pub(crate) cache_creation_input_tokens: Number,
    pub(crate) cache_read_input_tokens: Number,
    pub(crate) output_tokens: Number,
}
