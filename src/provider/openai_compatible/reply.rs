//! Assembly of a reply from its pieces, however a server cuts them.
//!
//! Invariant: a completion that stops with `ToolUse` has a call. One that stops at the token limit
//! can have calls, too, the last of which may be truncated. No other one has calls.

use posse_actors::conversation::{Reasoning, StopReason, Usage};
use posse_actors::ports::Completion;
use serde_json::Value;

use crate::decode::{Assembly, DecodeStep, Fault};
use crate::draft::{CallDraft, ReplyDraft, is_whole_end, keeps_calls};
use crate::lenient_json::{parse, replace_surrogates, within};
use crate::openai_compatible::frame::TextFrame;
use crate::openai_compatible::wire::{CallPiece, ChatDelta, ChatUsage, Chunk};

/// Maximum number of calls of a reply.
const CALLS_MAX: usize = 1024;

/// Prefixes of the finish reasons of a withheld reply. Gemini appends details.
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

/// Prefixes of Gemini's finish reasons for an invalid call.
const NO_CALL: &[&str] =
    &["function_call_filter", "malformed_function_call", "unexpected_tool_call"];

/// Meaning of a JSON text that is added to a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeltaMode {
    /// A piece of a stream, which adds to the earlier pieces.
    Stream,
    /// The whole reply.
    Whole,
}

/// Reply that is being assembled.
#[derive(Debug, Default)]
pub(crate) struct ChatReply {
    draft: ReplyDraft,
    thinking_field: Option<&'static str>,
    calls: Vec<CallInPieces>,
    finish: Option<String>,
    has_choice: bool,
    /// Frame of the last event that contained only text.
    frame: Option<TextFrame>,
}

#[derive(Debug)]
struct CallInPieces {
    index: Option<u64>,
    call: CallDraft,
    /// Data that the server requires again with the call.
    extra: Option<Value>,
}

impl ChatReply {
    /// Adds one piece, a JSON text. Returns true if it had content, usage figures or a finish
    /// reason. An error that the server reports in it is a fault.
    pub(crate) fn add(&mut self, json: &str, mode: DeltaMode) -> Result<bool, Fault> {
        if mode == DeltaMode::Stream
            && let Some(text) = self.frame.as_ref().and_then(|frame| frame.text_in(json))
        {
            self.draft.add_text(&text);
            self.draft.check_size()?;
            return Ok(!text.is_empty());
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
            self.draft.usage = Some(read_usage(&usage));
            has_content = true;
        }
        self.draft.take_model(&chunk.model);
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
                self.frame = TextFrame::frame_around(json, piece.content.as_str());
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
            self.draft.add_thinking(thinking.as_str());
        }
        has_content |= !piece.content.as_str().is_empty() || !piece.refusal.as_str().is_empty();
        self.draft.add_text(piece.content.as_str());
        self.draft.add_refusal(piece.refusal.as_str());
        for call in &piece.tool_calls.0 {
            has_content = true;
            self.add_call(call, mode)?;
        }
        self.draft.check_size()?;
        Ok(has_content)
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
        let known = known.filter(|at| is_continued_by(&self.calls[*at].call, id, name));
        let extra = piece.extra_content.map_or("", |raw| raw.get());
        self.draft.bytes += arguments.len() + extra.len();
        let extra = serde_json::from_str(extra).ok().filter(Value::is_object);
        match known {
            Some(at) => {
                let CallInPieces { call, extra: known_extra, .. } = &mut self.calls[at];
                if call.id.is_empty() {
                    id.clone_into(&mut call.id);
                }
                if call.name.is_empty() {
                    name.clone_into(&mut call.name);
                }
                call.arguments.push_str(&arguments);
                *known_extra = extra.or(known_extra.take());
            }
            None if self.calls.len() >= CALLS_MAX => {
                return Err(Fault::TooLarge("the reply has more than 1024 calls"));
            }
            None => self.calls.push(CallInPieces {
                index: piece.index.0,
                call: CallDraft {
                    id: id.to_owned(),
                    name: name.to_owned(),
                    arguments: arguments.into_owned(),
                },
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

    fn add_object(&mut self, json: &str) -> Result<(), Fault> {
        self.add(json, DeltaMode::Whole)?;
        if self.has_choice { Ok(()) } else { Err(Fault::Senseless("the reply has no choices")) }
    }

    fn draft(&self) -> &ReplyDraft {
        &self.draft
    }

    fn draft_mut(&mut self) -> &mut ReplyDraft {
        &mut self.draft
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn has_content(&self) -> bool {
        let ReplyDraft { text, thinking, refusal, .. } = &self.draft;
        !(text.is_empty() && thinking.is_empty() && refusal.is_empty() && self.calls.is_empty())
    }

    fn complete(mut self) -> Result<Completion, Fault> {
        self.calls.retain(|part| !part.call.name.is_empty());
        let finish = self.finish.as_deref().unwrap_or_default().to_ascii_lowercase();
        let stop_reason = match finish.as_str() {
            "length" | "max_tokens" | "model_length" => StopReason::MaxTokens,
            withheld if WITHHELD.iter().any(|word| withheld.starts_with(word)) => {
                StopReason::ContentFilter
            }
            "error" => StopReason::Error,
            odd if NO_CALL.iter().any(|word| odd.starts_with(word)) => StopReason::Error,
            full if full.contains("context_window") => return Err(Fault::ContextFull),
            // Such as `abort` or `insufficient_system_resource`: the server has stopped early.
            cut if !is_whole_end(cut) => {
                let is_empty = self.draft.text.is_empty() && self.calls.is_empty();
                if is_empty { StopReason::Error } else { StopReason::MaxTokens }
            }
            _ if !self.calls.is_empty() => StopReason::ToolUse,
            _ if self.draft.is_refusal() => StopReason::ContentFilter,
            "tool_calls" | "function_call" if self.draft.text.is_empty() => StopReason::Error,
            _ => StopReason::EndTurn,
        };
        if !keeps_calls(stop_reason) {
            self.calls.clear();
        }
        // One for each call, so that each finds its own again.
        let extras: Vec<Value> =
            self.calls.iter().map(|part| part.extra.clone().unwrap_or_default()).collect();
        let opaque = extras.iter().any(Value::is_object).then_some(Value::Array(extras));
        let text = std::mem::take(&mut self.draft.thinking);
        let field = self.thinking_field.map(str::to_owned);
        let has_reasoning = !text.is_empty() || opaque.is_some();
        let reasoning = has_reasoning.then_some(Reasoning { text, field, opaque });
        let calls = self.calls.into_iter().map(|part| part.call);
        Ok(self.draft.complete(stop_reason, reasoning, calls))
    }
}

/// True if a piece with this id and name belongs to `call`. Otherwise it starts another call with
/// the same index.
fn is_continued_by(call: &CallDraft, id: &str, name: &str) -> bool {
    if name.is_empty() || call.name.is_empty() {
        return id.is_empty() || call.id.is_empty() || id == call.id;
    }
    if !id.is_empty() && id != call.id {
        return false;
    }
    // The name again: a habit of some servers, unless the call is complete already.
    !(call.arguments.ends_with('}') && call.is_json())
}

/// Text of the JSON value `raw` of `arguments`, which is a string by the protocol. `null` becomes
/// empty text; any other value stays JSON text.
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

/// Decodes a JSON string that contains escapes. A lone surrogate becomes U+FFFD; a string that is
/// invalid otherwise becomes empty.
fn unescaped(raw: &str) -> String {
    serde_json::from_str(raw)
        .or_else(|_| serde_json::from_str(&replace_surrogates(raw).unwrap_or_default()))
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
