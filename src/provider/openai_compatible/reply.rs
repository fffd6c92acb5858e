//! Puts a reply together from its pieces, however a server cuts them.
//!
//! Keeps the invariant that a completion stops with `ToolUse` exactly when it has a call, and
//! that a call whose arguments were cut off is dropped.

use posse_actors::conversation::{
    AssistantMessage, CallId, Reasoning, StopReason, ToolCall, Usage,
};
use posse_actors::ports::{Completion, Delta};
use serde_json::Value;

use crate::decode::{Assembly, DecodeStep, Fault};
use crate::lenient_json::{mended, parse, within};
use crate::openai_compatible::frame::TextFrame;
use crate::openai_compatible::wire::{CallPiece, ChatDelta, ChatUsage, Chunk};

/// Bytes of text, thinking and arguments that one reply may have.
const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Calls that one reply may have.
const CALLS_MAX: usize = 1024;

/// Prefixes by which servers report a withheld reply. Gemini appends the reason.
const WITHHELD: &[&str] = &[
    "content_filter",
    "refusal",
    "safety",
    "image_safety",
    "prohibited_content",
    "blocklist",
    "spii",
    "recitation",
];

/// Prefixes by which Gemini reports an invalid call.
const NO_CALL: &[&str] =
    &["function_call_filter", "malformed_function_call", "unexpected_tool_call"];

/// Meaning of deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeltaMode {
    /// Each adds to the last.
    Stream,
    /// There is one, and it is all.
    Whole,
}

/// A reply that is being put together.
#[derive(Debug, Default)]
pub(crate) struct ChatReply {
    text: String,
    thinking: String,
    thinking_field: Option<&'static str>,
    refusal: String,
    calls: Vec<CallInPieces>,
    arguments_bytes: usize,
    finish: Option<String>,
    usage: Option<Usage>,
    model: Option<String>,
    has_choice: bool,
    deltas: Vec<Delta>,
    /// Frame of the last event that contained only text.
    frame: Option<TextFrame>,
}

#[derive(Debug)]
struct CallInPieces {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Data that the server requires again with it.
    extra: Option<Value>,
}

impl ChatReply {
    /// Adds one piece, a JSON text. Returns whether there was content in it.
    pub(crate) fn add(&mut self, json: &str, mode: DeltaMode) -> Result<bool, Fault> {
        if mode == DeltaMode::Stream
            && let Some(text) = self.frame.as_ref().and_then(|frame| frame.text_in(json))
        {
            self.add_text(&text);
            return self.bounded(!text.is_empty());
        }
        let mut room = String::new();
        let chunk: Chunk<'_> = parse(json, &mut room).map_err(Fault::Malformed)?;
        let choice = chunk.choices.0.into_iter().next();
        let nested = choice.as_ref().and_then(|choice| choice.error);
        let is_error = |error: &&serde_json::value::RawValue| {
            !matches!(error.get(), "\"\"" | "{}" | "[]" | "false" | "0")
        };
        if let Some(error) = chunk.error.or(nested).filter(is_error) {
            return Err(Fault::Reported(format!("{{\"error\":{}}}", error.get())));
        }
        let mut has_content = false;
        let mut is_plain = self.has_choice && mode == DeltaMode::Stream && chunk.usage.0.is_none();
        if let Some(usage) = chunk.usage.0 {
            self.usage = Some(read_usage(&usage));
            has_content = true;
        }
        if self.model.is_none() && !chunk.model.as_str().is_empty() {
            self.model = Some(chunk.model.as_str().to_owned());
        }
        if let Some(feedback) = chunk.prompt_feedback.0
            && !feedback.block_reason.as_str().is_empty()
        {
            self.finish = Some(format!("content_filter: {}", feedback.block_reason.as_str()));
            self.has_choice = true;
            has_content = true;
        }
        let Some(choice) = choice else { return Ok(has_content) };
        let piece = match mode {
            DeltaMode::Whole => choice.message.0.or(choice.delta.0),
            // Some servers end a stream with the whole message once more.
            DeltaMode::Stream if self.has_choice => choice.delta.0,
            DeltaMode::Stream => choice.delta.0.or(choice.message.0),
        };
        self.has_choice |= piece.is_some();
        is_plain &= choice.finish_reason.as_str().is_empty();
        if let Some(piece) = piece {
            has_content |= self.add_piece(&piece, mode)?;
            if is_plain && piece.is_only_content() {
                self.frame = TextFrame::around(json, piece.content.as_str());
            }
        }
        if !choice.finish_reason.as_str().is_empty() {
            self.finish = Some(choice.finish_reason.as_str().to_owned());
            has_content = true;
        }
        Ok(has_content)
    }

    fn add_piece(&mut self, piece: &ChatDelta<'_>, mode: DeltaMode) -> Result<bool, Fault> {
        let fields = [
            ("reasoning_content", &piece.reasoning_content),
            ("reasoning", &piece.reasoning),
            ("thinking", &piece.thinking),
        ];
        let mut has_content = false;
        // Some servers send the same thinking in two fields.
        if let Some((field, thinking)) =
            fields.into_iter().find(|(_, text)| !text.as_str().is_empty())
        {
            has_content = true;
            self.thinking_field.get_or_insert(field);
            self.thinking.push_str(thinking.as_str());
            match self.deltas.last_mut() {
                Some(Delta::Thinking(last)) => last.push_str(thinking.as_str()),
                _ => self.deltas.push(Delta::Thinking(thinking.as_str().to_owned())),
            }
        }
        has_content |= !piece.content.as_str().is_empty() || !piece.refusal.as_str().is_empty();
        self.add_text(piece.content.as_str());
        self.refusal.push_str(piece.refusal.as_str());
        self.show(piece.refusal.as_str());
        for call in &piece.tool_calls.0 {
            has_content = true;
            self.add_call(call, mode)?;
        }
        self.bounded(has_content)
    }

    fn add_text(&mut self, text: &str) {
        self.text.push_str(text);
        self.show(text);
    }

    fn show(&mut self, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => (),
            Some(Delta::Text(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Text(text.to_owned())),
        }
    }

    fn bounded(&self, has_content: bool) -> Result<bool, Fault> {
        let bytes =
            self.text.len() + self.thinking.len() + self.refusal.len() + self.arguments_bytes;
        if bytes > REPLY_BYTES_MAX {
            Err(Fault::TooLarge("the reply is larger than 16 MB"))
        } else {
            Ok(has_content)
        }
    }

    fn add_call(&mut self, piece: &CallPiece<'_>, mode: DeltaMode) -> Result<(), Fault> {
        let function = piece.function.0.as_ref();
        let name = function.map_or("", |function| function.name.as_str());
        let arguments = function.and_then(|function| function.arguments);
        let arguments = arguments_text(arguments.map_or("null", |raw| raw.get()));
        let id = piece.id.as_str();
        let known = match mode {
            DeltaMode::Whole => None,
            DeltaMode::Stream => self.calls.iter().rposition(|call| match piece.index.0 {
                Some(index) => call.index == Some(index),
                None => true,
            }),
        };
        let known = known.filter(|at| self.calls[*at].is_continued_by(id, name));
        let extra = piece.extra_content.map_or("", |raw| raw.get());
        self.arguments_bytes += arguments.len() + extra.len();
        let extra = serde_json::from_str(extra).ok().filter(Value::is_object);
        match known {
            Some(at) => {
                let call = &mut self.calls[at];
                if call.id.is_empty() {
                    id.clone_into(&mut call.id);
                }
                if call.name.is_empty() {
                    name.clone_into(&mut call.name);
                }
                call.arguments.push_str(&arguments);
                call.extra = extra.or(call.extra.take());
            }
            None if self.calls.len() >= CALLS_MAX => {
                return Err(Fault::TooLarge("the reply has more than 1024 calls"));
            }
            None => self.calls.push(CallInPieces {
                index: piece.index.0,
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.into_owned(),
                extra,
            }),
        }
        Ok(())
    }
}

impl Assembly for ChatReply {
    fn event(&mut self, _: &str, data: &str) -> Result<DecodeStep, Fault> {
        if data == "[DONE]" {
            return Ok(DecodeStep::Done);
        }
        Ok(if self.add(data, DeltaMode::Stream)? {
            DecodeStep::Content
        } else {
            DecodeStep::Nothing
        })
    }

    fn whole(&mut self, json: &str) -> Result<(), Fault> {
        self.add(json, DeltaMode::Whole)?;
        if self.has_choice { Ok(()) } else { Err(Fault::Senseless("the reply has no choices")) }
    }

    fn deltas(&mut self) -> &mut Vec<Delta> {
        &mut self.deltas
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn has_content(&self) -> bool {
        !(self.text.is_empty()
            && self.thinking.is_empty()
            && self.refusal.is_empty()
            && self.calls.is_empty())
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn complete(mut self) -> Result<Completion, Fault> {
        self.calls.retain(|call| !call.name.is_empty());
        let finish = self.finish.as_deref().unwrap_or_default().to_ascii_lowercase();
        let stop_reason = match finish.as_str() {
            "length" | "max_tokens" | "model_length" => StopReason::MaxTokens,
            withheld if WITHHELD.iter().any(|word| withheld.starts_with(word)) => {
                StopReason::ContentFilter
            }
            "error" => StopReason::Error,
            odd if NO_CALL.iter().any(|word| odd.starts_with(word)) => StopReason::Error,
            _ if !self.calls.is_empty() => StopReason::ToolUse,
            _ if self.text.is_empty() && !self.refusal.is_empty() => StopReason::ContentFilter,
            "tool_calls" | "function_call" if self.text.is_empty() => StopReason::Error,
            _ => StopReason::EndTurn,
        };
        let calls = match stop_reason {
            StopReason::ToolUse => self.calls,
            StopReason::EndTurn
            | StopReason::MaxTokens
            | StopReason::ContentFilter
            | StopReason::Error => Vec::new(),
        };
        let text = if self.text.is_empty() { self.refusal } else { self.text };
        // One for each call, so that each finds its own again.
        let extras: Vec<Value> =
            calls.iter().map(|call| call.extra.clone().unwrap_or_default()).collect();
        let opaque = extras.iter().any(Value::is_object).then_some(Value::Array(extras));
        let reasoning = (!self.thinking.is_empty() || opaque.is_some()).then(|| Reasoning {
            text: self.thinking,
            field: self.thinking_field.map(str::to_owned),
            opaque,
        });
        Ok(Completion {
            message: AssistantMessage {
                content: (!text.is_empty()).then_some(text),
                reasoning,
                tool_calls: calls.into_iter().map(CallInPieces::into_call).collect(),
            },
            stop_reason,
            usage: self.usage,
            model: self.model,
        })
    }
}

impl CallInPieces {
    /// True if a piece with this id and name belongs to this call. Otherwise it starts another call
    /// with the same index.
    fn is_continued_by(&self, id: &str, name: &str) -> bool {
        if name.is_empty() || self.name.is_empty() {
            return id.is_empty() || self.id.is_empty() || id == self.id;
        }
        if !id.is_empty() && id != self.id {
            return false;
        }
        // The name again: a habit of some servers, unless the call is complete already.
        let is_complete = self.arguments.ends_with('}')
            && serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok();
        !is_complete
    }

    fn into_call(self) -> ToolCall {
        ToolCall {
            id: CallId::new(self.id.as_str()),
            provider_id: (!self.id.is_empty()).then_some(self.id),
            name: self.name,
            arguments: self.arguments,
        }
    }
}

/// The text of an `arguments` value, which is a string by the protocol.
fn arguments_text(raw: &str) -> std::borrow::Cow<'_, str> {
    match raw.as_bytes().first() {
        Some(b'"') => {
            if raw[1..raw.len() - 1].contains('\\') {
                unescaped(raw).into()
            } else {
                raw[1..raw.len() - 1].into()
            }
        }
        Some(b'n') | None => "".into(),
        Some(_) => raw.into(),
    }
}

/// The text of a JSON string with escapes in it.
fn unescaped(raw: &str) -> String {
    serde_json::from_str(raw)
        .or_else(|_| serde_json::from_str(&mended(raw).unwrap_or_default()))
        .unwrap_or_default()
}

fn read_usage(wire: &ChatUsage) -> Usage {
    let input_tokens = wire.prompt_tokens.tokens().filter(|tokens| *tokens > 0);
    let written = wire.completion_tokens.tokens();
    let total = wire.total_tokens.tokens();
    // xAI and Gemini leave thinking out of the tokens written, and in the total.
    let thought_too = total.zip(input_tokens).and_then(|(total, read)| total.checked_sub(read));
    let output_tokens = written.map(|written| written.max(thought_too.unwrap_or_default()));
    let input_details = wire.prompt_tokens_details.0.as_ref();
    let output_details = wire.completion_tokens_details.0.as_ref();
    let cached = input_details
        .and_then(|details| details.cached_tokens.tokens())
        .or(wire.prompt_cache_hit_tokens.tokens());
    let reasoning = output_details.and_then(|details| details.reasoning_tokens.tokens());
    Usage {
        input_tokens,
        output_tokens,
        cached_input_tokens: within(cached, input_tokens),
        reasoning_tokens: within(reasoning, output_tokens),
        cache_write_tokens: None,
    }
}
