//! Assembly of a reply from the blocks of its stream.
//!
//! Invariants: a completion that stops with `ToolUse` has a call, and no call of it is truncated. One
//! that stops at the token limit can have calls, too, the last of which may be truncated.

use posse_actors::conversation::{Reasoning, StopReason, Usage};
use posse_actors::ports::{Completion, Delta};
use serde_json::{Value, json};

use crate::anthropic::wire::{AnthropicEvent, AnthropicUsage, Block, Whole};
use crate::decode::{Assembly, DecodeStep, Fault};
use crate::draft::{CallDraft, PartDraft, ReplyDraft, is_whole_end, keeps_calls, position};
use crate::lenient_json::{Number, parse};

/// Maximum number of blocks of a reply.
const BLOCKS_MAX: usize = 4096;

/// Reply that is being assembled.
#[derive(Debug, Default)]
pub(crate) struct AnthropicReply {
    draft: ReplyDraft,
    blocks: Vec<PartDraft<BlockContent>>,
    stop: Option<String>,
    /// True after the last event of the stream, or after a whole reply.
    ended: bool,
    usage: Option<AnthropicUsage>,
}

/// Content of a block, as received so far.
#[derive(Debug)]
enum BlockContent {
    /// Text, as its length in bytes. The text itself is in `draft`.
    Text(usize),
    Thinking {
        text: String,
        signature: String,
    },
    /// Redacted thinking, as opaque data.
    Redacted(String),
    Call {
        call: CallDraft,
        /// Arguments at the beginning of the block. They are complete if no others follow.
        input: String,
    },
    /// A block of any other type, as later protocol versions may have.
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
                if let Some(at) = position(&self.blocks, event.index.0) {
                    self.blocks[at].done = true;
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
        self.draft.check_size()?;
        Ok(DecodeStep::Content)
    }

    fn add_object(&mut self, json: &str) -> Result<(), Fault> {
        let mut room = String::new();
        let whole: Whole<'_> = parse(json, &mut room).map_err(Fault::Malformed)?;
        if whole.error.is_some_and(|error| error.get() != "null") {
            return Err(Fault::Reported(json.to_owned()));
        }
        self.start(&whole);
        for (at, block) in whole.content.0.iter().enumerate() {
            self.begin(Some(at as u64), block)?;
            self.draft.check_size()?;
        }
        for block in &mut self.blocks {
            block.done = true;
        }
        if whole.stop_reason.as_str().is_empty() {
            return Err(Fault::Senseless("the reply does not say why it stops"));
        }
        self.stop = Some(whole.stop_reason.as_str().to_owned());
        self.ended = true;
        Ok(())
    }

    fn draft(&self) -> &ReplyDraft {
        &self.draft
    }

    fn draft_mut(&mut self) -> &mut ReplyDraft {
        &mut self.draft
    }

    fn is_finished(&self) -> bool {
        self.stop.is_some() || self.ended
    }

    fn has_content(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn complete(self) -> Result<Completion, Fault> {
        if self.stop.is_none() && self.blocks.is_empty() {
            return Err(Fault::Empty("the stream says that it is done, and nothing else"));
        }
        let stop = self.stop.as_deref().unwrap_or_default();
        let has_calls =
            self.blocks.iter().any(|part| matches!(part.content, BlockContent::Call { .. }));
        let is_whole_end = is_whole_end(&stop.to_ascii_lowercase());
        let stop_reason = match stop {
            "max_tokens" => StopReason::MaxTokens,
            "model_context_window_exceeded" => return Err(Fault::ContextFull),
            "refusal" | "content_filter" | "safety" | "sensitive" => StopReason::ContentFilter,
            _ if has_calls && (is_whole_end || stop == "pause_turn") => StopReason::ToolUse,
            // The server would continue this turn; there is nothing to do here.
            "pause_turn" => StopReason::Error,
            "end_turn" | "stop_sequence" => StopReason::EndTurn,
            _ if self.draft.text.is_empty() && !has_calls => StopReason::Error,
            _ if is_whole_end => StopReason::EndTurn,
            // The server has stopped early for a reason of its own.
            _ => StopReason::MaxTokens,
        };
        if stop_reason == StopReason::ToolUse && self.blocks.iter().any(|part| !is_whole(part)) {
            return Err(Fault::Senseless("a call of the reply has no end"));
        }
        let reasoning = reasoning(&self.blocks, keeps_calls(stop_reason));
        let calls = self.blocks.into_iter().filter_map(|part| match part.content {
            BlockContent::Call { mut call, input } => {
                if call.arguments.trim().is_empty() {
                    call.arguments = input;
                }
                Some(call)
            }
            _ => None,
        });
        Ok(self.draft.complete(stop_reason, reasoning, calls))
    }
}

impl AnthropicReply {
    fn start(&mut self, message: &Whole<'_>) {
        self.draft.take_model(&message.model);
        self.count(message.usage.0);
    }

    /// Merges usage figures and adds a delta with them. Figures that are present replace earlier
    /// ones; the last event of a stream can omit figures of the first.
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
        self.draft.usage = Some(so_far);
        self.draft.deltas.push(Delta::Usage(so_far));
    }

    fn begin(&mut self, index: Option<u64>, block: &Block<'_>) -> Result<(), Fault> {
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(Fault::TooLarge("the reply has more than 4096 blocks"));
        }
        let content = match block.kind.as_str() {
            "text" => BlockContent::Text(0),
            "thinking" => BlockContent::Thinking {
                text: String::new(),
                signature: block.signature.as_str().to_owned(),
            },
            "redacted_thinking" => BlockContent::Redacted(block.data.as_str().to_owned()),
            "tool_use" => BlockContent::Call {
                call: CallDraft {
                    id: block.id.as_str().to_owned(),
                    name: block.name.as_str().to_owned(),
                    arguments: String::new(),
                },
                input: block.input.map(|input| input.get().to_owned()).unwrap_or_default(),
            },
            _ => BlockContent::Unknown,
        };
        if let BlockContent::Call { input, .. } = &content {
            self.draft.bytes += input.len();
        }
        self.draft.bytes += block.signature.as_str().len() + block.data.as_str().len();
        self.blocks.push(PartDraft { index, content, done: false });
        let at = self.blocks.len() - 1;
        match self.blocks[at].content {
            BlockContent::Text(_) => self.add_text(at, block.text.as_str()),
            BlockContent::Thinking { .. } => self.add_thinking(at, block.thinking.as_str()),
            BlockContent::Redacted(_) | BlockContent::Call { .. } | BlockContent::Unknown => {}
        }
        Ok(())
    }

    fn add(&mut self, index: Option<u64>, piece: &Block<'_>) -> Result<(), Fault> {
        let Some(at) = position(&self.blocks, index) else {
            return Err(Fault::Malformed("a piece of a block that never began".to_owned()));
        };
        match (piece.kind.as_str(), &mut self.blocks[at].content) {
            ("text_delta", BlockContent::Text(_)) => self.add_text(at, piece.text.as_str()),
            ("thinking_delta", BlockContent::Thinking { .. }) => {
                self.add_thinking(at, piece.thinking.as_str());
            }
            ("signature_delta", BlockContent::Thinking { signature, .. }) => {
                signature.push_str(piece.signature.as_str());
                self.draft.bytes += piece.signature.as_str().len();
            }
            ("input_json_delta", BlockContent::Call { call, .. }) => {
                call.arguments.push_str(piece.partial_json.as_str());
                self.draft.bytes += piece.partial_json.as_str().len();
            }
            // Of a kind that is not known here, or of a block that is not.
            _ => {}
        }
        Ok(())
    }

    fn add_text(&mut self, at: usize, piece: &str) {
        if let BlockContent::Text(bytes) = &mut self.blocks[at].content {
            *bytes += piece.len();
        }
        self.draft.add_text(piece);
    }

    fn add_thinking(&mut self, at: usize, piece: &str) {
        if let BlockContent::Thinking { text, .. } = &mut self.blocks[at].content {
            text.push_str(piece);
        }
        self.draft.bytes += piece.len();
        self.draft.show_thinking(piece);
    }
}

/// True if the block is complete. A call is complete if its end was announced, which some servers
/// omit, or if its arguments are valid JSON; other blocks always count as complete.
fn is_whole(part: &PartDraft<BlockContent>) -> bool {
    match &part.content {
        BlockContent::Call { call, .. } => part.done || call.is_json(),
        BlockContent::Text(_)
        | BlockContent::Thinking { .. }
        | BlockContent::Redacted(_)
        | BlockContent::Unknown => true,
    }
}

/// Thinking of a reply, with opaque items that record the order in which its blocks have to be sent
/// back. `None`: the reply has no thinking.
fn reasoning(blocks: &[PartDraft<BlockContent>], with_calls: bool) -> Option<Reasoning> {
    let is_thought = |part: &&PartDraft<BlockContent>| {
        matches!(part.content, BlockContent::Thinking { .. } | BlockContent::Redacted(_))
    };
    blocks.iter().find(is_thought)?;
    let mut text = String::new();
    let mut items: Vec<Value> = Vec::with_capacity(blocks.len());
    for part in blocks {
        items.push(match &part.content {
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
