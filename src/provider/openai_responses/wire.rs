//! The shapes of a Responses reply: an event of its stream, or the whole of it.

use serde_json::value::RawValue;

use crate::lenient_json::{LenientList, Number, Object, Text};

/// An event of any type.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ResponsesEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    /// The item it is about.
    pub(crate) output_index: Number,
    #[serde(borrow)]
    pub(crate) item: Object<ResponseItem<'a>>,
    #[serde(borrow)]
    pub(crate) delta: Text<'a>,
    /// Of `response.function_call_arguments.done`: all of them.
    #[serde(borrow)]
    pub(crate) arguments: Text<'a>,
    /// Of the events about the response as a whole.
    #[serde(borrow)]
    pub(crate) response: Object<Whole<'a>>,
}

/// A whole reply.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Whole<'a> {
    #[serde(borrow)]
    pub(crate) model: Text<'a>,
    #[serde(borrow)]
    pub(crate) status: Text<'a>,
    #[serde(borrow)]
    pub(crate) output: LenientList<ResponseItem<'a>>,
    #[serde(borrow)]
    pub(crate) incomplete_details: Object<Incomplete<'a>>,
    pub(crate) usage: Object<ResponsesUsage>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Incomplete<'a> {
    #[serde(borrow)]
    pub(crate) reason: Text<'a>,
}

/// A message, a call or thinking.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ResponseItem<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(borrow)]
    pub(crate) id: Text<'a>,
    #[serde(borrow)]
    pub(crate) content: LenientList<OutputPart<'a>>,
    /// Phase of a message, as set by the model.
    #[serde(borrow)]
    pub(crate) phase: Text<'a>,
    #[serde(borrow)]
    pub(crate) call_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) name: Text<'a>,
    #[serde(borrow)]
    pub(crate) arguments: Text<'a>,
    #[serde(borrow)]
    pub(crate) encrypted_content: Text<'a>,
    #[serde(borrow)]
    pub(crate) summary: LenientList<OutputPart<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct OutputPart<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(borrow)]
    pub(crate) text: Text<'a>,
    #[serde(borrow)]
    pub(crate) refusal: Text<'a>,
}

#[derive(Debug, Default, Clone, Copy, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ResponsesUsage {
    pub(crate) input_tokens: Number,
    pub(crate) input_tokens_details: Object<InputDetails>,
    pub(crate) output_tokens: Number,
    pub(crate) output_tokens_details: Object<OutputDetails>,
}

#[derive(Debug, Default, Clone, Copy, serde::Deserialize)]
#[serde(default)]
pub(crate) struct InputDetails {
    pub(crate) cached_tokens: Number,
}

#[derive(Debug, Default, Clone, Copy, serde::Deserialize)]
#[serde(default)]
pub(crate) struct OutputDetails {
    pub(crate) reasoning_tokens: Number,
}
