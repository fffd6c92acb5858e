//! A model, reached over something the kernel does not know.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::conversation::{AssistantMessage, Message, StopReason, Usage};
use crate::ports::tool::ToolSpec;
use crate::ports::{BoxError, PortFuture};

/// Makes single attempts. Knows no retry: `ProviderClient` does that.
pub trait Provider: Send + Sync + 'static {
    /// Who this is.
    fn info(&self) -> ProviderInfo;

    /// One attempt. Dropping the future ends it, and the connection with it.
    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>>;
}

/// Who a provider is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderInfo {
    /// Name of the profile in the configuration.
    pub profile: String,
    /// The model that is asked.
    pub model: String,
    /// Where requests go, without anything secret.
    pub endpoint: String,
}

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The whole history, oldest first. Messages are shared between requests, and a history only
    /// grows at its end unless it was compacted: an encoder may keep what it made of the pointers
    /// it has seen (`Arc::ptr_eq`).
    pub messages: Vec<Arc<Message>>,
    /// The tools it may ask for.
    pub tools: Arc<[ToolSpec]>,
    /// Whether deltas are wanted.
    pub stream: bool,
    /// Upper bound of the reply, if one is wanted.
    pub tokens_max: Option<u64>,
    /// Sampling temperature, if one is wanted.
    pub temperature: Option<f64>,
}

/// Where deltas go. Bounded: sending waits for a slow reader.
pub type DeltaSender = mpsc::Sender<Delta>;

/// A piece of a reply, in the order of arrival. Adapters join what one read brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Visible text.
    Text(String),
    /// Thinking.
    Thinking(String),
    /// One line for the user about the request itself, such as what was left out of it.
    Notice(String),
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// What it said. Call ids are the provider's: the kernel mints its own.
    pub message: AssistantMessage,
    /// Why it stopped. `ToolUse` exactly when there is a call.
    pub stop_reason: StopReason,
    /// What it cost, if the provider says so.
    pub usage: Option<Usage>,
    /// The model that answered, if the provider says so.
    pub model: Option<String>,
}

/// Why a provider gave no answer, in the terms of what the kernel does next.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// Wait, then try again.
    #[error("the provider is overloaded")]
    Overloaded {
        /// How long the provider asks us to wait, if it says so sanely.
        retry_after: Option<Duration>,
        /// For the user and the log.
        source: BoxError,
    },
    /// Nobody answered. Try again, but not for long.
    #[error("the provider is unreachable")]
    Unreachable {
        /// For the user and the log.
        source: BoxError,
    },
    /// The reply broke off or made no sense. Try the same turn again, once.
    #[error("the reply broke off or made no sense")]
    Broken {
        /// Visible text that had arrived.
        partial: String,
        /// Where and how, with the byte offset in the stream.
        source: BoxError,
    },
    /// Compact the conversation, then try again.
    #[error("the conversation no longer fits the model's context")]
    ContextFull {
        /// For the log.
        source: BoxError,
    },
    /// The user has to fix credentials. Trying again will not help.
    #[error("the provider does not accept the credentials")]
    Unauthorized {
        /// For the user and the log.
        source: BoxError,
    },
    /// The account's allowance is used up. Trying again will not help for a long time.
    #[error("the quota is used up")]
    QuotaExhausted {
        /// When there is more, if the provider says so.
        retry_after: Option<Duration>,
        /// For the user and the log.
        source: BoxError,
    },
    /// The user has to fix something else. Trying again will not help.
    #[error("the provider rejected the request")]
    Rejected {
        /// For the user and the log.
        source: BoxError,
    },
    /// The request did not get to a model. Trying again will not help.
    #[error("the request did not get to a model")]
    Unasked {
        /// Why, as events name it: [`ProviderError::REDIRECTED`], …
        class: &'static str,
        /// For the user and the log.
        source: BoxError,
    },
}

impl ProviderError {
    /// The server points elsewhere, and nothing was sent there.
    pub const REDIRECTED: &'static str = "redirected";
    /// What answered is not a provider.
    pub const NOT_THE_PROVIDER: &'static str = "not_the_provider";
    /// The history has images, and the model takes none. Nothing was sent.
    pub const NO_VISION: &'static str = "no_vision";

    /// The class, as events and messages name it.
    pub fn class(&self) -> &'static str {
        match self {
            ProviderError::Overloaded { .. } => "overloaded",
            ProviderError::Unreachable { .. } => "unreachable",
            ProviderError::Broken { .. } => "broken_reply",
            ProviderError::ContextFull { .. } => "context_full",
            ProviderError::Unauthorized { .. } => "unauthorized",
            ProviderError::QuotaExhausted { .. } => "quota",
            ProviderError::Rejected { .. } => "rejected",
            ProviderError::Unasked { class, .. } => class,
        }
    }

    /// The whole chain of causes in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}
