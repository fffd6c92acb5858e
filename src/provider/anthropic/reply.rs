//! Puts a reply together from the blocks of its stream.
//!
//! Keeps the invariant that a completion stops with `ToolUse` exactly when it has a call, and
//! that a call whose arguments were cut off is not one.

use posse_actors::conversation::{
    AssistantMessage, CallId, Reasoning, StopReason, ToolCall, Usage,
};
use posse_actors::ports::{Completion, Delta};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::anthropic::wire::{AnthropicEvent, AnthropicUsage, Block, BlockDelta, Whole};
use crate::decode::{Assembly, DecodeStep, Fault};
use crate::lenient_json::{Number, parse};

/// Bytes of text, thinking, signatures and arguments that one reply may have.
const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Blocks that one reply may have.
const BLOCKS_MAX: usize = 4096;

/// A reply that is being put together.
#[derive(Debug, Default)]
pub(crate) struct AnthropicReply {
    blocks: Vec<BlockInProgress>,
    /// The text of all blocks.
    text: String,
    bytes: usize,
    stop: Option<String>,
    /// End of the stream.
    ended: bool,
    usage: Option<AnthropicUsage>,
    model: Option<String>,
    deltas: Vec<Delta>,
}

/// A block, as far as it has arrived.
#[derive(Debug)]
struct BlockInProgress {
    index: Option<u64>,
    what: BlockContent,
    closed: bool,
}

#[derive(Debug)]
enum BlockContent {
    /// Bytes of the reply's text.
    Text(usize),
    Thinking {
        text: String,
        signature: String,
    },
    /// Redacted thinking.
    Redacted(String),
    Call {
        id: String,
        name: String,
        arguments: String,
        /// The arguments that it began with: all of them, if no others follow.
        input: String,
    },
    /// A block type of later protocol versions.
    Unknown,
}

impl Assembly for AnthropicReply {
    fn event(&mut self, name: &str, data: &str) -> Result<DecodeStep, Fault> {
        let mut room = String::new();
        let event: AnthropicEvent<'_> = parse(data, &mut room).map_err(Fault::Malformed)?;
        let kind = if event.kind.as_str().is_empty() { name } else { event.kind.as_str() };
        if kind == "error" || event.error.is_some_and(|error| error.get() != "null") {
            return Err(Fault::Reported(data.to_owned()));
        }
        let block = event.content_block.0.unwrap_or_default();
        let piece = event.delta.0.unwrap_or_default();
        match kind {
            "message_start" => self.start(&event.message.0.unwrap_or_default()),
            "content_block_start" => self.begin(event.index.0, &block)?,
            "content_block_delta" => self.add(event.index.0, &piece)?,
            "content_block_stop" => {
                if let Some(at) = self.position(event.index.0) {
                    self.blocks[at].closed = true;
                }
            }
            "message_delta" => {
                self.count(event.usage.0);
                if !piece.stop_reason.as_str().is_empty() {
                    self.stop = Some(piece.stop_reason.as_str().to_owned());
                }
            }
            "message_stop" => {
                self.ended = true;
                return Ok(DecodeStep::Done);
            }
            _ => return Ok(DecodeStep::Nothing),
        }
        self.bounded()?;
        Ok(DecodeStep::Content)
    }

    fn whole(&mut self, json: &str) -> Result<(), Fault> {
        let mut room = String::new();
        let whole: Whole<'_> = parse(json, &mut room).map_err(Fault::Malformed)?;
        if whole.error.is_some_and(|error| error.get() != "null") {
            return Err(Fault::Reported(json.to_owned()));
        }
        self.start(&whole);
        for (at, block) in whole.content.0.iter().enumerate() {
            self.begin(Some(at as u64), block)?;
            self.bounded()?;
        }
        for block in &mut self.blocks {
            block.closed = true;
        }
        if whole.stop_reason.as_str().is_empty() {
            return Err(Fault::Senseless("the reply does not say why it stops"));
        }
        self.stop = Some(whole.stop_reason.as_str().to_owned());
        self.ended = true;
        Ok(())
    }

    fn deltas(&mut self) -> &mut Vec<Delta> {
        &mut self.deltas
    }

    fn is_finished(&self) -> bool {
        self.stop.is_some() || self.ended
    }

    fn has_content(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn complete(self) -> Result<Completion, Fault> {
        if self.stop.is_none() && self.blocks.is_empty() {
            return Err(Fault::Senseless("the stream says that it is done, and nothing else"));
        }
        let usage = self.usage.as_ref().map(usage_of);
        let stop = self.stop.as_deref().unwrap_or_default();
        let has_calls =
            self.blocks.iter().any(|part| matches!(part.what, BlockContent::Call { .. }));
        let stop_reason = match stop {
            "max_tokens" => StopReason::MaxTokens,
            "model_context_window_exceeded" => return Err(Fault::ContextFull),
            "refusal" | "content_filter" | "safety" | "sensitive" => StopReason::ContentFilter,
            _ if has_calls => StopReason::ToolUse,
            // The server would continue this turn; there is nothing to do here.
            "pause_turn" => StopReason::Error,
            "end_turn" | "stop_sequence" => StopReason::EndTurn,
            _ if self.text.is_empty() => StopReason::Error,
            _ => StopReason::EndTurn,
        };
        let keeps_calls = stop_reason == StopReason::ToolUse;
        if keeps_calls && self.blocks.iter().any(|part| !part.is_whole()) {
            return Err(Fault::Senseless("a call of the reply has no end"));
        }
        let reasoning = reasoning(&self.blocks, keeps_calls);
        let calls = self.blocks.into_iter().filter_map(|part| part.what.into_call());
        Ok(Completion {
            message: AssistantMessage {
                reasoning,
                tool_calls: if keeps_calls { calls.collect() } else { Vec::new() },
                content: (!self.text.is_empty()).then_some(self.text),
            },
            stop_reason,
            usage,
            model: self.model,
        })
    }
}

impl AnthropicReply {
    fn start(&mut self, message: &Whole<'_>) {
        if self.model.is_none() && !message.model.as_str().is_empty() {
            self.model = Some(message.model.as_str().to_owned());
        }
        self.count(message.usage.0);
    }

    /// Takes over the figures that are there: those of the end have some of the beginning.
    fn count(&mut self, usage: Option<AnthropicUsage>) {
        let Some(new) = usage else { return };
        let known = self.usage.get_or_insert_default();
        let figures = [
            (&mut known.input_tokens, new.input_tokens),
            (&mut known.cache_creation_input_tokens, new.cache_creation_input_tokens),
            (&mut known.cache_read_input_tokens, new.cache_read_input_tokens),
            (&mut known.output_tokens, new.output_tokens),
        ];
        for (known, new) in figures {
            if new.0.is_some() {
                *known = new;
            }
        }
        // If the reply is cut off, this is its cost.
        let so_far = usage_of(known);
        self.deltas.push(Delta::Usage(so_far));
    }

    fn begin(&mut self, index: Option<u64>, block: &Block<'_>) -> Result<(), Fault> {
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(Fault::TooLarge("the reply has more than 4096 blocks"));
        }
        let what = match block.kind.as_str() {
            "text" => BlockContent::Text(0),
            "thinking" => BlockContent::Thinking {
                text: String::new(),
                signature: block.signature.as_str().to_owned(),
            },
            "redacted_thinking" => BlockContent::Redacted(block.data.as_str().to_owned()),
            "tool_use" => BlockContent::Call {
                id: block.id.as_str().to_owned(),
                name: block.name.as_str().to_owned(),
                arguments: String::new(),
                input: block.input.map(|input| input.get().to_owned()).unwrap_or_default(),
            },
            _ => BlockContent::Unknown,
        };
        if let BlockContent::Call { input, .. } = &what {
            self.bytes += input.len();
        }
        self.bytes += block.signature.as_str().len() + block.data.as_str().len();
        self.blocks.push(BlockInProgress { index, what, closed: false });
        let at = self.blocks.len() - 1;
        match self.blocks[at].what {
            BlockContent::Text(_) => self.add_text(at, block.text.as_str()),
            BlockContent::Thinking { .. } => self.add_thinking(at, block.thinking.as_str()),
            BlockContent::Redacted(_) | BlockContent::Call { .. } | BlockContent::Unknown => {}
        }
        Ok(())
    }

    fn add(&mut self, index: Option<u64>, piece: &BlockDelta<'_>) -> Result<(), Fault> {
        let Some(at) = self.position(index) else {
            return Err(Fault::Malformed("a piece of a block that never began".to_owned()));
        };
        match (piece.kind.as_str(), &mut self.blocks[at].what) {
            ("text_delta", BlockContent::Text(_)) => self.add_text(at, piece.text.as_str()),
            ("thinking_delta", BlockContent::Thinking { .. }) => {
                self.add_thinking(at, piece.thinking.as_str());
            }
            ("signature_delta", BlockContent::Thinking { signature, .. }) => {
                signature.push_str(piece.signature.as_str());
                self.bytes += piece.signature.as_str().len();
            }
            ("input_json_delta", BlockContent::Call { arguments, .. }) => {
                arguments.push_str(piece.partial_json.as_str());
                self.bytes += piece.partial_json.as_str().len();
            }
            // Of a kind that is not known here, or of a block that is not.
            _ => {}
        }
        Ok(())
    }

    /// The block of that index that has begun last; without one, the last block.
    fn position(&self, index: Option<u64>) -> Option<usize> {
        match index {
            Some(_) => self.blocks.iter().rposition(|part| part.index == index),
            None => self.blocks.len().checked_sub(1),
        }
    }

    fn add_text(&mut self, at: usize, piece: &str) {
        if piece.is_empty() {
            return;
        }
        if let BlockContent::Text(bytes) = &mut self.blocks[at].what {
            *bytes += piece.len();
        }
        self.text.push_str(piece);
        match self.deltas.last_mut() {
            Some(Delta::Text(last)) => last.push_str(piece),
            _ => self.deltas.push(Delta::Text(piece.to_owned())),
        }
    }

    fn add_thinking(&mut self, at: usize, piece: &str) {
        if piece.is_empty() {
            return;
        }
        if let BlockContent::Thinking { text, .. } = &mut self.blocks[at].what {
            text.push_str(piece);
        }
        self.bytes += piece.len();
        match self.deltas.last_mut() {
            Some(Delta::Thinking(last)) => last.push_str(piece),
            _ => self.deltas.push(Delta::Thinking(piece.to_owned())),
        }
    }

    fn bounded(&self) -> Result<(), Fault> {
        if self.text.len() + self.bytes > REPLY_BYTES_MAX {
            return Err(Fault::TooLarge("the reply is larger than 16 MB"));
        }
        Ok(())
    }
}

impl BlockInProgress {
    /// True if it is complete. A server that omits ends of blocks still completes its arguments.
    fn is_whole(&self) -> bool {
        match &self.what {
            BlockContent::Call { arguments, .. } if !self.closed => {
                serde_json::from_str::<IgnoredAny>(arguments).is_ok()
            }
            BlockContent::Call { .. }
            | BlockContent::Text(_)
            | BlockContent::Thinking { .. }
            | BlockContent::Redacted(_)
            | BlockContent::Unknown => true,
        }
    }
}

impl BlockContent {
    fn into_call(self) -> Option<ToolCall> {
        let BlockContent::Call { id, name, arguments, input } = self else { return None };
        Some(ToolCall {
            id: CallId::new(id.as_str()),
            provider_id: (!id.is_empty()).then_some(id),
            name,
            arguments: if arguments.trim().is_empty() { input } else { arguments },
        })
    }
}

/// Thinking, with the order of the blocks in which it has to be sent back.
fn reasoning(blocks: &[BlockInProgress], with_calls: bool) -> Option<Reasoning> {
    let is_thought = |part: &&BlockInProgress| {
        matches!(part.what, BlockContent::Thinking { .. } | BlockContent::Redacted(_))
    };
    blocks.iter().find(is_thought)?;
    let mut text = String::new();
    let mut items: Vec<Value> = Vec::with_capacity(blocks.len());
    for part in blocks {
        items.push(match &part.what {
            BlockContent::Thinking { text: thought, signature } => {
                if !text.is_empty() && !thought.is_empty() {
                    text.push_str("\n\n");
                }
                text.push_str(thought);
                json!({ "type": "thinking", "thinking": thought, "signature": signature })
            }
            BlockContent::Redacted(data) => json!({ "type": "redacted_thinking", "data": data }),
            BlockContent::Text(bytes) => json!({ "type": "text", "bytes": bytes }),
            BlockContent::Call { .. } if with_calls => json!({ "type": "tool_use" }),
            BlockContent::Call { .. } | BlockContent::Unknown => continue,
        });
    }
    Some(Reasoning { text, field: None, opaque: Some(Value::Array(items)) })
}

fn usage_of(wire: &AnthropicUsage) -> Usage {
    let fresh = wire.input_tokens.tokens();
    let extra = |tokens: Number| tokens.tokens().unwrap_or_default();
    let (read, written) = (wire.cache_read_input_tokens, wire.cache_creation_input_tokens);
    Usage {
        input_tokens: fresh
            .map(|fresh| fresh.saturating_add(extra(read)).saturating_add(extra(written))),
        output_tokens: wire.output_tokens.tokens(),
        cached_input_tokens: read.tokens(),
        reasoning_tokens: None,
        cache_write_tokens: written.tokens(),
    }
}
