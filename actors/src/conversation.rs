//! Conversation types: messages, content parts, calls, ids, stop reasons and usage.
//!
//! The types follow the `OpenAI` Chat Completions protocol; the provider adapters translate to and
//! from the other protocols. The types depend on no provider and no tool.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps `id`, which should be unique among the ids of this type; this is not checked.
            pub fn new(id: impl Into<Arc<str>>) -> $name {
                $name(id.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

id!(
    /// Id of a session: one conversation with one user. It stays the same when the session is
    /// resumed in another process.
    SessionId
);
id!(
    /// Id of an invocation: one agent working on one task, from the prompt or handoff to the final
    /// answer.
    InvocationId
);
id!(
    /// Id of a tool call, assigned by posse and unique in a session. [`ToolCall::provider_id`]
    /// stores the id that the model gave.
    CallId
);
id!(
    /// Id of a permission request.
    QuestionId
);
id!(
    /// Id of a queued message: a message for an agent that is delivered later, for example one that
    /// the user sent during a run.
    MessageId
);

/// One message of the history that a model receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// System prompt: the instructions of the agent.
    System {
        /// Text of the system prompt.
        content: String,
    },
    /// Message in the user's role: of the user, of the calling agent (the task of a subagent), or
    /// of posse (a notice, or the summary of a compaction).
    User {
        /// Text and images, in order.
        content: Vec<ContentPart>,
    },
    /// Reply of the model.
    Assistant(AssistantMessage),
    /// Result of a tool call.
    #[serde(rename_all = "camelCase")]
    Tool {
        /// Id of the call that this result answers.
        tool_call_id: CallId,
        /// Name of the tool.
        name: String,
        /// The result: text and images, in order.
        content: Vec<ContentPart>,
        /// True if the call did not succeed: it failed, was denied or stopped, did not run, or its
        /// outcome is unknown.
        is_error: bool,
    },
}

/// One reply of the model.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Visible text; `None` if the reply contains none.
    pub content: Option<String>,
    /// Thinking of the model, with the data that its provider requires in later requests. `None` if
    /// there is none.
    pub reasoning: Option<Reasoning>,
    /// Tool calls that the model requests, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

impl AssistantMessage {
    /// True if the reply has neither visible text nor calls. Thinking alone is no reply.
    pub(crate) fn is_empty(&self) -> bool {
        let text = self.content.as_deref().unwrap_or_default();
        text.trim().is_empty() && self.tool_calls.is_empty()
    }
}

/// Thinking that a model returned with a reply.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Reasoning {
    /// Readable text of the thinking; may be empty.
    pub text: String,
    /// Name of the reply field that contained the thinking, such as `reasoning_content`; later
    /// requests send it back in the same field. `None` if the protocol has no such choice.
    pub field: Option<String>,
    /// Data that only the provider understands, such as a signature; later requests send it back
    /// unchanged.
    pub opaque: Option<serde_json::Value>,
}

/// One part of the content of a message: a text or an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// A piece of text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    ImageUrl {
        /// Address of the image (`https:`), or the image itself as a `data:` URL.
        url: String,
        /// Resolution in which the model should read the image: `auto`, `low` or `high`. `None`:
        /// the provider's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
}

impl ContentPart {
    /// A part that consists of `text`.
    pub fn text(text: impl Into<String>) -> ContentPart {
        ContentPart::Text { text: text.into() }
    }
}

/// All texts of `parts`, joined by newlines. Images are omitted.
pub fn text_of(parts: &[ContentPart]) -> String {
    let mut text = String::new();
    for part in parts {
        if let ContentPart::Text { text: piece } = part {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(piece);
        }
    }
    text
}

/// Bytes that the note about a cut may have.
const CUT_NOTE_BYTES: usize = 48;

/// Cuts the texts of `parts` to `bytes_max` bytes in total; later parts get the bytes that earlier
/// ones leave. A text that does not fit keeps its head and tail, with a note about the cut between
/// them, which is counted; a text for whose note there is no space becomes `…`. Images stay.
pub(crate) fn cap_parts(parts: &mut [ContentPart], bytes_max: usize) {
    let mut left = bytes_max;
    for part in parts {
        let ContentPart::Text { text } = part else { continue };
        if text.len() > left {
            if let Some(kept) = left.checked_sub(CUT_NOTE_BYTES) {
                let head = text.floor_char_boundary(kept / 2);
                let tail = text.ceil_char_boundary(text.len() - kept / 2);
                let cut = tail - head;
                *text = format!("{}\n… {cut} bytes cut …\n{}", &text[..head], &text[tail..]);
            } else {
                "…".clone_into(text);
            }
        }
        left = left.saturating_sub(text.len());
    }
}

/// A tool call as the model, or the user, wrote it. Its name and arguments are unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Id assigned by posse, unique in the session.
    pub id: CallId,
    /// Id given by the model, which may be repeated. `None` if the model left it empty, and for a
    /// call of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Name of the requested tool.
    pub name: String,
    /// Arguments as JSON text, which may be invalid.
    pub arguments: String,
}

/// Reason why the model stopped writing a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Normal end of a reply without tool calls.
    EndTurn,
    /// Normal end of a reply that contains at least one tool call.
    ToolUse,
    /// The reply was cut off at the limit of output tokens.
    MaxTokens,
    /// The provider withheld the reply with its content filter, or the model refused to answer.
    ContentFilter,
    /// The provider reported an error, or the reply is unusable.
    Error,
}

/// Token counts of one attempt or of a sum of attempts, as reported by the provider. `None` means
/// unknown, not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Input tokens, including cached ones.
    pub input_tokens: Option<u64>,
    /// Output tokens, including thinking.
    pub output_tokens: Option<u64>,
    /// Input tokens that were read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Output tokens of thinking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Input tokens that were written into the provider's cache, for providers that charge extra
    /// for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
}

impl Usage {
    /// Adds the counts of `other`. A sum is `None` only if both counts are; an unknown count adds
    /// nothing to a known one.
    pub fn add(&mut self, other: &Usage) {
        for (sum, more) in [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.cached_input_tokens, other.cached_input_tokens),
            (&mut self.reasoning_tokens, other.reasoning_tokens),
            (&mut self.cache_write_tokens, other.cache_write_tokens),
        ] {
            *sum = sum.map_or(more, |known| Some(known.saturating_add(more.unwrap_or(0))));
        }
    }
}

/// The user's message that starts a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Text and images, in order.
    pub content: Vec<ContentPart>,
}

impl Prompt {
    /// A prompt that consists of one text.
    pub fn text(text: impl Into<String>) -> Prompt {
        Prompt { content: vec![ContentPart::text(text)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capped_texts_stay_within_the_bound_with_their_notes() {
        for bytes_max in [0, 10, 48, 100, 1000, 5000] {
            let mut parts = vec![
                ContentPart::text("é".repeat(400)),
                ContentPart::ImageUrl { url: "data:,".to_owned(), detail: None },
                ContentPart::text("x".repeat(3000)),
            ];
            cap_parts(&mut parts, bytes_max);
            let text = text_of(&parts);
            // A text for which there is no space at all is one character of three bytes.
            assert!(text.len() <= bytes_max + 7, "{bytes_max}: {}", text.len());
            assert_eq!(parts.len(), 3);
            assert_eq!(text.contains("bytes cut"), (48..3800).contains(&bytes_max), "{bytes_max}");
        }
    }
}
