//! Types for parsing a Chat Completions reply, tolerantly and without building a tree.
//!
//! The same types are used for a whole reply and for a piece of a stream.

use serde_json::value::RawValue;

use crate::lenient_json::{LenientList, Number, Object, Text, TokenDetails};

/// A whole reply, or one piece of a stream.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Chunk<'a> {
    pub(crate) model: Text<'a>,
    pub(crate) choices: LenientList<ChatChoice<'a>>,
    pub(crate) usage: Object<ChatUsage>,
    pub(crate) error: Option<&'a RawValue>,
    /// Gemini's report that it has blocked the prompt.
    #[serde(rename = "promptFeedback", alias = "prompt_feedback")]
    pub(crate) prompt_feedback: Object<Feedback<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Feedback<'a> {
    #[serde(rename = "blockReason", alias = "block_reason")]
    pub(crate) block_reason: Text<'a>,
}

/// One of several alternative replies. Requests ask for one, so only the first is read.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ChatChoice<'a> {
    pub(crate) delta: Object<ChatDelta<'a>>,
    pub(crate) message: Object<ChatDelta<'a>>,
    pub(crate) finish_reason: Text<'a>,
    /// Failure of an upstream server, reported by some gateways.
    pub(crate) error: Option<&'a RawValue>,
}

/// Message of a choice: complete, or the addition since the last piece of a stream.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ChatDelta<'a> {
    pub(crate) content: Text<'a>,
    pub(crate) reasoning_content: Text<'a>,
    pub(crate) reasoning: Text<'a>,
    pub(crate) thinking: Text<'a>,
    pub(crate) refusal: Text<'a>,
    pub(crate) tool_calls: LenientList<CallPiece<'a>>,
}

impl ChatDelta<'_> {
    /// True if `content` is not empty and all other fields are empty.
    pub(crate) fn is_only_content(&self) -> bool {
        let others = [&self.reasoning_content, &self.reasoning, &self.thinking, &self.refusal];
        !self.content.as_str().is_empty()
            && self.tool_calls.0.is_empty()
            && others.iter().all(|text| text.as_str().is_empty())
    }
}

/// A call of a whole reply, or a piece of a call in a stream.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct CallPiece<'a> {
    pub(crate) index: Number,
    pub(crate) id: Text<'a>,
    pub(crate) function: Object<FunctionPiece<'a>>,
    /// Data that the server requires again with the call, such as Gemini's signed thinking.
    pub(crate) extra_content: Option<&'a RawValue>,
}

/// Name and arguments of a call, or a piece of them.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct FunctionPiece<'a> {
    pub(crate) name: Text<'a>,
    /// A string by the protocol; some servers send the object itself.
    pub(crate) arguments: Option<&'a RawValue>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ChatUsage {
    #[serde(alias = "input_tokens")]
    pub(crate) prompt_tokens: Number,
    #[serde(alias = "output_tokens")]
    pub(crate) completion_tokens: Number,
    /// Total number of tokens. Some servers count thinking here but not among the output tokens.
    pub(crate) total_tokens: Number,
    pub(crate) prompt_tokens_details: Object<TokenDetails>,
    /// `DeepSeek`'s name for cached tokens.
    pub(crate) prompt_cache_hit_tokens: Number,
    pub(crate) completion_tokens_details: Object<TokenDetails>,
}
