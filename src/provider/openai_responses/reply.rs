//! Assembly of a reply from the items of its stream.
//!
//! Invariants: a completion that stops with `ToolUse` has a call, and no call of it is truncated. One
//! that stops at the token limit can have calls, too, the last of which may be truncated. Content that has arrived in deltas is not taken again from the complete
//! item that follows them.

use posse_actors::conversation::{Reasoning, StopReason, Usage};
use posse_actors::ports::Completion;
use serde_json::{Value, json};

use crate::decode::{Assembly, DecodeStep, Fault};
use crate::draft::{CallDraft, PartDraft, ReplyDraft, keeps_calls, position};
use crate::lenient_json::{parse, within};
use crate::openai_responses::wire::{ResponseItem, ResponsesEvent, ResponsesUsage, Whole};

/// Maximum number of items of a reply.
const ITEMS_MAX: usize = 4096;

/// Text inserted between two messages with text, or between two parts of thinking.
const GAP: &str = "\n\n";

/// Reply that is being assembled.
#[derive(Debug, Default)]
pub(crate) struct ResponsesReply {
    draft: ReplyDraft,
    items: Vec<PartDraft<ItemContent>>,
    end: Option<ResponseEnd>,
}

/// Final status of a response. An incomplete one has the server's reason, empty if it gave none.
#[derive(Debug)]
enum ResponseEnd {
    Completed,
    Incomplete(String),
}

/// Content of an item, as received so far.
#[derive(Debug)]
enum ItemContent {
    Message {
        /// Length of the message within the reply's text, in bytes, including the gap before it.
        bytes: usize,
        phase: String,
        /// True if a refusal of the message has arrived in deltas.
        refused: bool,
    },
    Call(CallDraft),
    Thinking {
        /// True if its text has arrived in deltas.
        heard: bool,
        /// Item to send back, with encrypted thinking. `None`: the item is not complete, or has no
        /// encrypted thinking.
        item: Option<Value>,
    },
    /// An item of any other type, as later protocol versions may have.
    Unknown,
}

impl Assembly for ResponsesReply {
    fn event(&mut self, name: &str, data: &str) -> Result<DecodeStep, Fault> {
        if data == "[DONE]" {
            return Ok(DecodeStep::Done);
        }
        let mut room = String::new();
        let event: ResponsesEvent<'_> = parse(data, &mut room).map_err(Fault::Malformed)?;
        let kind = if event.kind.as_str().is_empty() { name } else { event.kind.as_str() };
        let delta = event.delta.as_str();
        let index = event.output_index.0;
        match kind {
            "error" => return Err(Fault::Reported(data.to_owned())),
            "response.created" => {
                self.draft.take_model(&event.response.0.unwrap_or_default().model);
            }
            "response.output_item.added" => {
                self.begin(index, &event.item.0.unwrap_or_default())?;
            }
            "response.output_item.done" => {
                self.finish(index, &event.item.0.unwrap_or_default())?;
            }
            "response.output_text.delta" => self.add_text(index, delta)?,
            "response.refusal.delta" => self.add_refusal(index, delta)?,
            "response.reasoning_summary_part.added" => self.part_thinking(),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.add_thinking(index, delta);
            }
            "response.function_call_arguments.delta" => self.add_arguments(index, delta)?,
            "response.function_call_arguments.done" => {
                self.end_arguments(index, event.arguments.as_str())?;
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.finish_reply(&event.response.0.unwrap_or_default(), kind)?;
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
        self.finish_reply(&whole, "")
    }

    fn draft(&self) -> &ReplyDraft {
        &self.draft
    }

    fn draft_mut(&mut self) -> &mut ReplyDraft {
        &mut self.draft
    }

    fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    fn has_content(&self) -> bool {
        let ReplyDraft { refusal, thinking, .. } = &self.draft;
        !(self.items.is_empty() && refusal.is_empty() && thinking.is_empty())
    }

    fn complete(mut self) -> Result<Completion, Fault> {
        let has_calls = self.items.iter().any(|part| matches!(part.content, ItemContent::Call(_)));
        let stop_reason = match self.end {
            None => return Err(Fault::Senseless("the reply does not say how it ended")),
            Some(ResponseEnd::Incomplete(reason)) => match reason.as_str() {
                "max_output_tokens" | "max_tokens" => StopReason::MaxTokens,
                "content_filter" => StopReason::ContentFilter,
                // Without a known reason, what has arrived is kept like that of a cut reply.
                _ if has_calls || !self.draft.text.is_empty() => StopReason::MaxTokens,
                _ => return Err(Fault::Senseless("the reply is incomplete and has no content")),
            },
            Some(ResponseEnd::Completed) if has_calls => StopReason::ToolUse,
            Some(ResponseEnd::Completed) if self.draft.is_refusal() => StopReason::ContentFilter,
            Some(ResponseEnd::Completed) => StopReason::EndTurn,
        };
        if stop_reason == StopReason::MaxTokens {
            let is_nameless = |part: &PartDraft<ItemContent>| matches!(&part.content, ItemContent::Call(call) if call.name.is_empty());
            self.items.retain(|part| !is_nameless(part));
        }
        if stop_reason == StopReason::ToolUse && self.items.iter().any(|part| !is_whole(part)) {
            return Err(Fault::Senseless("a call of the reply has no end"));
        }
        let mut draft = self.draft;
        let thinking = std::mem::take(&mut draft.thinking);
        let reasoning = reasoning(&self.items, thinking, keeps_calls(stop_reason));
        let calls = self.items.into_iter().filter_map(|part| match part.content {
            ItemContent::Call(call) => Some(call),
            _ => None,
        });
        Ok(draft.complete(stop_reason, reasoning, calls))
    }
}

impl ResponsesReply {
    /// Processes the final state of the reply: model, usage, status and, if no items have arrived
    /// before, content. `kind`: name of the event; empty for a reply that is one JSON object. A
    /// reported error, a failed status and an unknown status are faults.
    fn finish_reply(&mut self, whole: &Whole<'_>, kind: &str) -> Result<(), Fault> {
        if let Some(error) = whole.error.filter(|error| error.get() != "null") {
            return Err(Fault::Reported(format!("{{\"error\":{}}}", error.get())));
        }
        self.draft.take_model(&whole.model);
        if let Some(figures) = whole.usage.0 {
            self.draft.usage = Some(usage(figures));
        }
        if self.items.is_empty() {
            for (at, item) in whole.output.0.iter().enumerate() {
                self.finish(Some(at as u64), item)?;
                self.draft.check_size()?;
            }
        }
        let status = whole.status.as_str();
        let reason = whole.incomplete_details.0.as_ref().map_or("", |why| why.reason.as_str());
        self.end = Some(match (kind, status) {
            ("response.incomplete", _) | (_, "incomplete") => {
                ResponseEnd::Incomplete(reason.to_owned())
            }
            ("response.failed", _) | (_, "failed" | "cancelled") => {
                return Err(Fault::Reported(r#"{"error":"it says that it failed"}"#.to_owned()));
            }
            ("response.completed", _) | (_, "completed") => ResponseEnd::Completed,
            _ => return Err(Fault::Senseless("the reply does not say how it ended")),
        });
        Ok(())
    }

    fn begin(&mut self, index: Option<u64>, item: &ResponseItem<'_>) -> Result<usize, Fault> {
        if self.items.len() >= ITEMS_MAX {
            return Err(Fault::TooLarge("the reply has more than 4096 items"));
        }
        let content = match item.kind.as_str() {
            "message" => {
                let phase = item.phase.as_str().to_owned();
                ItemContent::Message { bytes: 0, phase, refused: false }
            }
            "function_call" => ItemContent::Call(CallDraft {
                id: item.call_id.as_str().to_owned(),
                name: item.name.as_str().to_owned(),
                arguments: String::new(),
            }),
            "reasoning" => ItemContent::Thinking { heard: false, item: None },
            _ => ItemContent::Unknown,
        };
        self.items.push(PartDraft { index, content, done: false });
        Ok(self.items.len() - 1)
    }

    /// Position of the item with this index, or, without an index, of the last item. If there is
    /// none, because its beginning was not sent, adds an item of type `kind`.
    fn item_at(&mut self, index: Option<u64>, kind: &'static str) -> Result<usize, Fault> {
        match position(&self.items, index) {
            Some(at) => Ok(at),
            None => {
                self.begin(index, &ResponseItem { kind: kind.into(), ..ResponseItem::default() })
            }
        }
    }

    /// Completes an item: takes the content of `item` that has not arrived in deltas.
    fn finish(&mut self, index: Option<u64>, item: &ResponseItem<'_>) -> Result<(), Fault> {
        let at = match index.and_then(|_| position(&self.items, index)) {
            Some(at) => at,
            None => self.begin(index, item)?,
        };
        self.items[at].done = true;
        match &mut self.items[at].content {
            ItemContent::Message { bytes, phase, refused } => {
                if !item.phase.as_str().is_empty() {
                    item.phase.as_str().clone_into(phase);
                }
                let (heard, refused) = (*bytes > 0, *refused);
                for part in &item.content.0 {
                    if !heard {
                        self.add_piece(at, part.text.as_str());
                    }
                    if !refused {
                        self.draft.add_refusal(part.refusal.as_str());
                    }
                }
            }
            ItemContent::Call(CallDraft { id, name, arguments }) => {
                for (known, whole) in [(id, &item.call_id), (name, &item.name)] {
                    if !whole.as_str().is_empty() {
                        whole.as_str().clone_into(known);
                    }
                }
                if arguments.is_empty() {
                    item.arguments.as_str().clone_into(arguments);
                    self.draft.bytes += arguments.len();
                }
            }
            ItemContent::Thinking { heard, item: kept } => {
                let heard = *heard;
                let texts: Vec<&str> =
                    item.summary.0.iter().map(|part| part.text.as_str()).collect();
                *kept = encrypted(item, &texts);
                self.draft.bytes += item.encrypted_content.as_str().len();
                let content = item.content.0.iter().map(|part| part.text.as_str());
                let texts: Vec<&str> = if texts.is_empty() { content.collect() } else { texts };
                for text in texts.into_iter().filter(|_| !heard) {
                    self.part_thinking();
                    self.add_thinking(index, text);
                }
            }
            ItemContent::Unknown => {}
        }
        Ok(())
    }

    fn add_text(&mut self, index: Option<u64>, piece: &str) -> Result<(), Fault> {
        let at = self.item_at(index, "message")?;
        self.add_piece(at, piece);
        Ok(())
    }

    fn add_refusal(&mut self, index: Option<u64>, piece: &str) -> Result<(), Fault> {
        let at = self.item_at(index, "message")?;
        if let ItemContent::Message { refused, .. } = &mut self.items[at].content {
            *refused = true;
        }
        self.draft.add_refusal(piece);
        Ok(())
    }

    fn add_piece(&mut self, at: usize, piece: &str) {
        let ItemContent::Message { bytes, .. } = &mut self.items[at].content else { return };
        if piece.is_empty() {
            return;
        }
        let gap = if *bytes == 0 && !self.draft.text.is_empty() { GAP } else { "" };
        *bytes += gap.len() + piece.len();
        self.draft.add_text(gap);
        self.draft.add_text(piece);
    }

    /// Separates a new part of thinking from the earlier ones, if there are any.
    fn part_thinking(&mut self) {
        if !self.draft.thinking.is_empty() {
            self.draft.add_thinking(GAP);
        }
    }

    fn add_thinking(&mut self, index: Option<u64>, piece: &str) {
        let part = self.items.iter_mut().rfind(|part| part.index == index);
        if let Some(ItemContent::Thinking { heard, .. }) = part.map(|part| &mut part.content) {
            *heard = true;
        }
        self.draft.add_thinking(piece);
    }

    fn add_arguments(&mut self, index: Option<u64>, piece: &str) -> Result<(), Fault> {
        let at = self.item_at(index, "function_call")?;
        if let ItemContent::Call(call) = &mut self.items[at].content {
            call.arguments.push_str(piece);
            self.draft.bytes += piece.len();
        }
        Ok(())
    }

    fn end_arguments(&mut self, index: Option<u64>, whole: &str) -> Result<(), Fault> {
        let at = self.item_at(index, "function_call")?;
        if let ItemContent::Call(call) = &mut self.items[at].content
            && call.arguments.is_empty()
        {
            whole.clone_into(&mut call.arguments);
            self.draft.bytes += whole.len();
        }
        Ok(())
    }
}

/// True if the item is complete. A call is complete if it has a name and either its end was
/// announced, which some servers omit, or its arguments are valid JSON; other items always count as
/// complete.
fn is_whole(part: &PartDraft<ItemContent>) -> bool {
    match &part.content {
        ItemContent::Call(call) => !call.name.is_empty() && (part.done || call.is_json()),
        ItemContent::Message { .. } | ItemContent::Thinking { .. } | ItemContent::Unknown => true,
    }
}

/// Thinking item to send back. `None` if it has no encrypted content: the server stores nothing, so
/// it could not use such an item.
fn encrypted(item: &ResponseItem<'_>, summary: &[&str]) -> Option<Value> {
    let content = item.encrypted_content.as_str();
    let summary = summary.iter().map(|text| json!({ "type": "summary_text", "text": text }));
    let mut kept = json!({
        "type": "reasoning",
        "summary": summary.collect::<Vec<_>>(),
        "encrypted_content": content,
    });
    if !item.id.as_str().is_empty() {
        kept["id"] = json!(item.id.as_str());
    }
    (!content.is_empty()).then_some(kept)
}

/// Thinking of a reply, with opaque items that record the order in which its items have to be sent
/// back. `None`: the reply has no thinking text, no encrypted thinking and no message with a phase.
fn reasoning(
    parts: &[PartDraft<ItemContent>],
    text: String,
    with_calls: bool,
) -> Option<Reasoning> {
    let kept = |part: &PartDraft<ItemContent>| {
        matches!(part.content, ItemContent::Thinking { item: Some(_), .. })
    };
    let phased = |part: &PartDraft<ItemContent>| matches!(&part.content, ItemContent::Message { phase, .. } if !phase.is_empty());
    let opaque = parts.iter().any(|part| kept(part) || phased(part)).then(|| {
        let items = parts.iter().filter_map(|part| match &part.content {
            ItemContent::Thinking { item, .. } => item.clone(),
            ItemContent::Message { bytes, phase, .. } if phase.is_empty() => {
                Some(json!({ "type": "message", "bytes": bytes }))
            }
            ItemContent::Message { bytes, phase, .. } => {
                Some(json!({ "type": "message", "bytes": bytes, "phase": phase }))
            }
            ItemContent::Call(_) if with_calls => Some(json!({ "type": "function_call" })),
            ItemContent::Call(_) | ItemContent::Unknown => None,
        });
        Value::Array(items.collect())
    });
    if text.is_empty() && opaque.is_none() {
        return None;
    }
    Some(Reasoning { text, field: None, opaque })
}

fn usage(wire: ResponsesUsage) -> Usage {
    let input_tokens = wire.input_tokens.tokens();
    let output_tokens = wire.output_tokens.tokens();
    let cached = wire.input_tokens_details.0.and_then(|details| details.cached_tokens.tokens());
    let thought =
        wire.output_tokens_details.0.and_then(|details| details.reasoning_tokens.tokens());
    Usage {
        input_tokens,
        output_tokens,
        cached_input_tokens: within(cached, input_tokens),
        reasoning_tokens: within(thought, output_tokens),
        cache_write_tokens: None,
    }
}
