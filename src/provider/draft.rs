//! Reply that is being assembled: the part that is the same in every protocol.

use posse_actors::conversation::{
    AssistantMessage, CallId, Reasoning, StopReason, ToolCall, Usage,
};
use posse_actors::ports::{Completion, Delta};
use serde::de::IgnoredAny;

use crate::decode::Fault;
use crate::lenient_json::Text;
use crate::sanitize::called_name;

/// Maximum total size of the text, refusal, thinking, signatures and arguments of one reply, in
/// bytes.
const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Texts, usage and model name of a reply, as received so far, and its unsent deltas.
#[derive(Debug, Default)]
pub(crate) struct ReplyDraft {
    pub(crate) text: String,
    pub(crate) thinking: String,
    pub(crate) refusal: String,
    /// Bytes of content stored outside of `text`, `thinking` and `refusal`, such as arguments.
    pub(crate) bytes: usize,
    pub(crate) usage: Option<Usage>,
    pub(crate) model: Option<String>,
    /// Deltas that have not been sent yet.
    pub(crate) deltas: Vec<Delta>,
}

impl ReplyDraft {
    pub(crate) fn add_text(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.show_text(piece);
    }

    pub(crate) fn add_refusal(&mut self, piece: &str) {
        self.refusal.push_str(piece);
        self.show_text(piece);
    }

    pub(crate) fn add_thinking(&mut self, piece: &str) {
        self.thinking.push_str(piece);
        self.show_thinking(piece);
    }

    fn show_text(&mut self, piece: &str) {
        match self.deltas.last_mut() {
            _ if piece.is_empty() => {}
            Some(Delta::Text(last)) => last.push_str(piece),
            _ => self.deltas.push(Delta::Text(piece.to_owned())),
        }
    }

    /// Adds a delta of thinking. The caller stores the thinking itself.
    pub(crate) fn show_thinking(&mut self, piece: &str) {
        match self.deltas.last_mut() {
            _ if piece.is_empty() => {}
            Some(Delta::Thinking(last)) => last.push_str(piece),
            _ => self.deltas.push(Delta::Thinking(piece.to_owned())),
        }
    }

    /// Sets the name of the model, unless it is set already or `model` is empty.
    pub(crate) fn take_model(&mut self, model: &Text<'_>) {
        if self.model.is_none() && !model.as_str().is_empty() {
            self.model = Some(model.as_str().to_owned());
        }
    }

    /// True if there is a refusal and no text.
    pub(crate) fn is_refusal(&self) -> bool {
        self.text.is_empty() && !self.refusal.is_empty()
    }

    /// Returns an error if the reply is larger than [`REPLY_BYTES_MAX`].
    pub(crate) fn check_size(&self) -> Result<(), Fault> {
        let texts = self.text.len() + self.thinking.len() + self.refusal.len();
        if texts + self.bytes > REPLY_BYTES_MAX {
            return Err(Fault::TooLarge("the reply is larger than 16 MB"));
        }
        Ok(())
    }

    /// Makes the completion. A reply without text has the refusal as its text. `calls` are included
    /// if `stop_reason` is `ToolUse`; also, if they have a name, if it is `MaxTokens`: the last call
    /// may then be incomplete, and the kernel tells the model so.
    pub(crate) fn complete(
        self,
        stop_reason: StopReason,
        reasoning: Option<Reasoning>,
        calls: impl Iterator<Item = CallDraft>,
    ) -> Completion {
        let text = if self.text.is_empty() { self.refusal } else { self.text };
        let tool_calls = match stop_reason {
            StopReason::ToolUse => calls.map(CallDraft::into_call).collect(),
            StopReason::MaxTokens => {
                calls.filter(|call| !call.name.is_empty()).map(CallDraft::into_call).collect()
            }
            StopReason::EndTurn | StopReason::ContentFilter | StopReason::Error => Vec::new(),
        };
        let content = (!text.is_empty()).then_some(text);
        Completion {
            message: AssistantMessage { content, reasoning, tool_calls },
            stop_reason,
            usage: self.usage,
            model: self.model,
        }
    }
}

/// True if a reply with this reason to stop keeps its calls, see [`ReplyDraft::complete`].
pub(crate) fn keeps_calls(stop_reason: StopReason) -> bool {
    matches!(stop_reason, StopReason::ToolUse | StopReason::MaxTokens)
}

/// Tool call, as received so far.
#[derive(Debug, Default)]
pub(crate) struct CallDraft {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl CallDraft {
    /// True if the arguments are valid JSON, and hence complete.
    pub(crate) fn is_json(&self) -> bool {
        serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    fn into_call(self) -> ToolCall {
        ToolCall {
            id: CallId::new(self.id.as_str()),
            provider_id: (!self.id.is_empty()).then_some(self.id),
            name: called_name(self.name),
            arguments: self.arguments,
        }
    }
}

/// Indexed part of a reply (a block or an item), as received so far.
#[derive(Debug)]
pub(crate) struct PartDraft<C> {
    pub(crate) index: Option<u64>,
    pub(crate) content: C,
    /// True if the server announced the end of the part.
    pub(crate) done: bool,
}

/// Position of the newest part with this index, or of the last part if `index` is `None`. Returns
/// `None` if there is no such part.
pub(crate) fn position<C>(parts: &[PartDraft<C>], index: Option<u64>) -> Option<usize> {
    match index {
        Some(_) => parts.iter().rposition(|part| part.index == index),
        None => parts.len().checked_sub(1),
    }
}

/// True if `name`, in lower case, says that the reply is whole: an end of the APIs, or of servers and
/// proxies that speak them, such as `eos_token` or `tool-calls`. False for others, such as `abort`.
pub(crate) fn is_whole_end(name: &str) -> bool {
    const BEGINNINGS: [&str; 6] = ["tool", "function", "end", "complete", "finish", "normal"];
    const NAMES: [&str; 5] = ["", "done", "null", "none", "unknown"];
    NAMES.contains(&name)
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || name.contains("stop")
        || name.contains("eos")
}
