//! Conversation types: messages, content parts, calls, ids, stop reasons and usage.
//!
//! The shapes follow the `OpenAI` Chat Completions protocol; adapters translate at the edge.
//! Independent of providers and tools.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a string that is already unique where it is used.
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
    /// One conversation with one user. Outlives crashes, restarts and the terminal.
    SessionId
);
id!(
    /// One run of the agent loop, from prompt or hand-off to final answer.
    InvocationId
);
id!(
    /// One tool call. Assigned by the runtime; the model's own id is kept separately.
    CallId
);
id!(
    /// One question to a human.
    QuestionId
);
id!(
    /// One message that a user sent while an invocation was running.
    MessageId
);

/// One entry of the history that a model sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// Instructions of the runtime and the agent.
    System {
        /// The text.
        content: String,
    },
    /// User message.
    User {
        /// Text and images, in order.
        content: Vec<ContentPart>,
    },
    /// Model message.
    Assistant(AssistantMessage),
    /// Result of a tool.
    #[serde(rename_all = "camelCase")]
    Tool {
        /// The call that this answers.
        tool_call_id: CallId,
        /// The tool's name.
        name: String,
        /// Text and images, in order.
        content: Vec<ContentPart>,
        /// True if the tool failed or was denied.
        is_error: bool,
    },
}

/// One reply of the model.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    /// The visible text, if there was any.
    pub content: Option<String>,
    /// Reasoning of the model, with the data its provider needs to accept it again.
    pub reasoning: Option<Reasoning>,
    /// The tools it wants, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

/// A model's thinking.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reasoning {
    /// The readable part.
    pub text: String,
    /// The field of the reply it came in (such as `reasoning_content`), and goes back in.
    pub field: Option<String>,
    /// Provider-only data that must be sent back unchanged.
    pub opaque: Option<serde_json::Value>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, by address or as a `data:` URL.
    ImageUrl {
        /// `https:` or `data:` URL.
        url: String,
        /// Requested image resolution: `auto`, `low` or `high`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
}

impl ContentPart {
    /// A text part.
    pub fn text(text: impl Into<String>) -> ContentPart {
        ContentPart::Text { text: text.into() }
    }
}

/// The text of `parts`, images left out, joined by newlines.
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

/// Cuts texts so that together they stay within the bound: of each, head and tail are kept.
pub(crate) fn cap_parts(parts: &mut [ContentPart], bytes_max: usize) {
    let mut left = bytes_max;
    for part in parts {
        let ContentPart::Text { text } = part else { continue };
        if text.len() > left {
            let head = text.floor_char_boundary(left / 2);
            let tail = text.ceil_char_boundary(text.len() - left / 2);
            let cut = tail - head;
            *text = format!("{}\n… {cut} bytes cut …\n{}", &text[..head], &text[tail..]);
        }
        left = left.saturating_sub(text.len());
    }
}

/// A tool call as the model wrote it. Nothing in it has been checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The runtime's id, unique in the session.
    pub id: CallId,
    /// Id given by the model, if it differs: models repeat ids and leave them empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The tool it wants.
    pub name: String,
    /// The arguments: JSON text, perhaps broken.
    pub arguments: String,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Normal end of the reply.
    EndTurn,
    /// The reply contains at least one call.
    ToolUse,
    /// The output token limit was reached.
    MaxTokens,
    /// The provider withheld the reply.
    ContentFilter,
    /// The reply made no sense.
    Error,
}

/// Tokens of one reply, as the provider counted them. `None` is unknown, not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input_tokens: Option<u64>,
    /// Tokens written, thinking included.
    pub output_tokens: Option<u64>,
    /// Tokens read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Tokens of thinking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Tokens read that were written into the provider's cache, where that costs extra.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
}

impl Usage {
    /// Adds known figures. The sum is unknown only if both parts are.
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

/// A task of the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Text and images, in order.
    pub content: Vec<ContentPart>,
}

impl Prompt {
    /// A prompt of one text.
    pub fn text(text: impl Into<String>) -> Prompt {
        Prompt { content: vec![ContentPart::text(text)] }
    }
}
