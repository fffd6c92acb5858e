//! Types for parsing a Responses reply: an event of its stream, or the whole reply.

use serde_json::value::RawValue;

use crate::lenient_json::{LenientList, Number, Object, Text, TokenDetails};

/// An event of any type.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ResponsesEvent<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Text<'a>,
    /// Index of the item that the event concerns.
    pub(crate) output_index: Number,
    pub(crate) item: Object<ResponseItem<'a>>,
    pub(crate) delta: Text<'a>,
    /// Complete arguments of a call, present in `response.function_call_arguments.done`.
    pub(crate) arguments: Text<'a>,
    /// The response, present in events that concern the whole response.
    pub(crate) response: Object<Whole<'a>>,
}

/// A whole reply; in an event, the state of the reply at that time.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Whole<'a> {
    pub(crate) model: Text<'a>,
    pub(crate) status: Text<'a>,
    pub(crate) output: LenientList<ResponseItem<'a>>,
    pub(crate) incomplete_details: Object<Incomplete<'a>>,
    pub(crate) usage: Object<ResponsesUsage>,
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Incomplete<'a> {
    pub(crate) reason: Text<'a>,
}

/// An item of a reply: a message, a call, thinking, or a type that is not known here.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ResponseItem<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Text<'a>,
    pub(crate) id: Text<'a>,
    pub(crate) content: LenientList<OutputPart<'a>>,
    /// Phase of a message, as set by the model.
    pub(crate) phase: Text<'a>,
    pub(crate) call_id: Text<'a>,
    pub(crate) name: Text<'a>,
    pub(crate) arguments: Text<'a>,
    pub(crate) encrypted_content: Text<'a>,
    pub(crate) summary: LenientList<OutputPart<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct OutputPart<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Text<'a>,
    pub(crate) text: Text<'a>,
    pub(crate) refusal: Text<'a>,
}

#[derive(Debug, Default, Clone, Copy, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ResponsesUsage {
    pub(crate) input_tokens: Number,
    pub(crate) input_tokens_details: Object<TokenDetails>,
    pub(crate) output_tokens: Number,
    pub(crate) output_tokens_details: Object<TokenDetails>,
}
