//! A model, reached over something the kernel does not know.

use std::sync::Arc;
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};
use tokio::sync::mpsc;

use crate::conversation::{AssistantMessage, ContentPart, Message, StopReason, Usage};
use crate::cost::PriceLookup;
use crate::ports::{BoxError, PortFuture, ToolSpec, chain};

/// Makes single attempts without retry; `ProviderClient` retries.
pub trait Provider: Send + Sync + 'static {
    /// Name, model and endpoint.
    fn info(&self) -> ProviderInfo;

    /// The provider that this one wraps, if any. The defaults of the other methods forward to it, so
    /// a wrapper overrides only the methods that it changes.
    fn inner(&self) -> Option<&dyn Provider> {
        None
    }

    /// Identity of the quota that its requests use: endpoint and credential, in a form that reveals
    /// neither. Providers of one account share one client.
    fn account(&self) -> String {
        if let Some(inner) = self.inner() {
            return inner.account();
        }
        let ProviderInfo { profile, endpoint, model: _ } = self.info();
        format!("{profile} {endpoint}")
    }

    /// One attempt. Dropping the future ends it, and the connection with it.
    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>>;

    /// Number of tokens of `request`: counted by the server if that is free, otherwise estimated.
    /// Errors are the server's.
    fn count_tokens(&self, request: Request) -> PortFuture<Result<TokenCount, ProviderError>> {
        if let Some(inner) = self.inner() {
            return inner.count_tokens(request);
        }
        let counted = TokenCount::estimate(&request);
        Box::pin(std::future::ready(Ok(counted)))
    }
}

/// Size of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCount {
    /// Tokens.
    pub tokens: u64,
    /// True if the server counted it.
    pub is_exact: bool,
}

impl TokenCount {
    /// Bytes of English text or code per token, as published by vendors.
    const BYTES_PER_TOKEN: usize = 4;
    /// Tokens of an image: cost of the largest image that is not tiled.
    const TOKENS_PER_IMAGE: u64 = 1600;
    /// Tokens around a message.
    const TOKENS_PER_MESSAGE: u64 = 4;

    /// Estimate from the text lengths of `request`.
    pub fn estimate(request: &Request) -> TokenCount {
        let mut bytes = 0;
        let mut tokens = 0;
        let mut parts = |parts: &[ContentPart], bytes: &mut usize| {
            for part in parts {
                match part {
                    ContentPart::Text { text } => *bytes += text.len(),
                    ContentPart::ImageUrl { .. } => tokens += TokenCount::TOKENS_PER_IMAGE,
                }
            }
        };
        for message in &request.messages {
            match &**message {
                Message::System { content } => bytes += content.len(),
                Message::User { content } => parts(content, &mut bytes),
                Message::Assistant(said) => {
                    bytes += said.content.as_ref().map_or(0, String::len);
                    let calls = said.tool_calls.iter();
                    bytes +=
                        calls.map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
                }
                Message::Tool { name, content, .. } => {
                    bytes += name.len();
                    parts(content, &mut bytes);
                }
            }
        }
        for tool in request.tools.iter() {
            bytes += tool.name.len() + tool.description.len() + tool.parameters.to_string().len();
        }
        let counted = bytes.div_ceil(TokenCount::BYTES_PER_TOKEN) as u64;
        let around = TokenCount::TOKENS_PER_MESSAGE * request.messages.len() as u64;
        TokenCount { tokens: tokens + counted + around, is_exact: false }
    }
}

/// Identity of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderInfo {
    /// Name of the profile in the configuration.
    pub profile: String,
    /// The model that is asked.
    pub model: String,
    /// Endpoint without secrets.
    pub endpoint: String,
}

/// A model that may be asked when the one that was chosen is away.
#[derive(Clone)]
pub struct Fallback {
    /// The adapter.
    pub provider: Arc<dyn Provider>,
    /// Known capabilities.
    pub abilities: Abilities,
    /// Pricing, if known.
    pub price: Option<PriceLookup>,
}

impl std::fmt::Debug for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fallback").field(&self.provider.info()).finish()
    }
}

/// Capabilities of a model. `None` is unknown and does not exclude it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Supports tool calls.
    pub tools: Option<bool>,
    /// Supports images.
    pub images: Option<bool>,
    /// Tokens that fit into a request and its reply.
    pub window: Option<u64>,
}

/// Request to a model.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The whole history, oldest first. Messages are shared between requests, and a history only
    /// grows at its end unless it is compacted: an encoder may cache by pointer (`Arc::ptr_eq`).
    pub messages: Vec<Arc<Message>>,
    /// The tools it may ask for.
    pub tools: Arc<[ToolSpec]>,
    /// True if deltas are wanted.
    pub stream: bool,
    /// Upper bound of the reply, if one is wanted.
    pub tokens_max: Option<u64>,
    /// Sampling temperature, if one is wanted.
    pub temperature: Option<f64>,
    /// Reasoning effort, if set.
    pub thinking: Option<Thinking>,
}

/// Reasoning effort. The adapter translates it; on a server without support it is omitted, with one
/// notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Thinking {
    /// None, as far as the server supports that.
    Off,
    /// Minimum.
    Minimal,
    /// Little.
    Low,
    /// Medium.
    Medium,
    /// Much.
    High,
    /// Maximum.
    #[strum(serialize = "xhigh")]
    ExtraHigh,
}

impl Thinking {
    /// Every level, the least first.
    pub const ALL: &[Thinking] = Thinking::VARIANTS;

    /// The name in settings and definitions.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The level of that name.
    pub fn named(name: &str) -> Option<Thinking> {
        Thinking::ALL.iter().copied().find(|level| level.name() == name)
    }
}

/// Channel for deltas. Bounded: sending waits for a slow reader.
pub type DeltaSender = mpsc::Sender<Delta>;

/// A piece of a reply, in the order of arrival. Adapters join what one read brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Visible text.
    Text(String),
    /// Thinking.
    Thinking(String),
    /// Activity without visible text, such as arguments of a call.
    Alive,
    /// Usage so far of a reply that is still arriving.
    Usage(Usage),
    /// One line for the user about the request, such as omitted content.
    Notice(String),
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The reply. Call ids are the provider's; the kernel assigns its own.
    pub message: AssistantMessage,
    /// Why it stopped. `ToolUse` exactly when there is a call.
    pub stop_reason: StopReason,
    /// Usage, if reported.
    pub usage: Option<Usage>,
    /// The model that answered, if reported.
    pub model: Option<String>,
}

/// Failure of an attempt, classified by the kernel's reaction.
#[derive(Debug, thiserror::Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ProviderError {
    /// Wait, then try again.
    #[error("the provider is overloaded")]
    Overloaded {
        /// Wait requested by the provider, if plausible.
        retry_after: Option<Duration>,
        /// For the user and the log.
        source: BoxError,
    },
    /// Rate limit. All users of the account wait, then retry.
    #[error("the provider limits the rate of requests")]
    RateLimited {
        /// Wait requested by the provider, if plausible.
        retry_after: Option<Duration>,
        /// For the user and the log.
        source: BoxError,
    },
    /// No connection or no response. Retry.
    #[error("the provider is unreachable")]
    Unreachable {
        /// For the user and the log.
        source: BoxError,
    },
    /// The connection failed during a reply. The same turn may be retried a few times.
    #[error("the reply broke off")]
    Cut {
        /// Visible text that had arrived.
        partial: String,
        /// Cause, with the byte offset in the stream.
        source: BoxError,
    },
    /// The response is not from the provider, for example the login page of a network. Retry once.
    #[error("the answer is not from the provider")]
    NotTheProvider {
        /// For the user and the log.
        source: BoxError,
    },
    /// The reply made no sense. Try the same turn again, once.
    #[error("the reply broke off or made no sense")]
    #[strum(serialize = "broken_reply")]
    Broken {
        /// Visible text that had arrived.
        partial: String,
        /// Cause, with the byte offset in the stream.
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
    #[strum(serialize = "quota")]
    QuotaExhausted {
        /// Time of the next quota, if reported.
        retry_after: Option<Duration>,
        /// For the user and the log.
        source: BoxError,
    },
    /// The provider does not want to answer this. Trying again will not help.
    #[error("the provider withheld the reply")]
    Filtered {
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
    /// The response is not from a provider.
    pub const NOT_THE_PROVIDER: &'static str = "not_the_provider";
    /// The history has images, and the model takes none. Nothing was sent.
    pub const NO_VISION: &'static str = "no_vision";
    /// The budget has no room, or the price is unknown. Nothing was sent.
    pub const BUDGET: &'static str = "budget";
    /// The reservation could not be recorded. Nothing was sent.
    pub const JOURNAL: &'static str = "journal";

    /// The class, as events and messages name it.
    pub fn class(&self) -> &'static str {
        let ProviderError::Unasked { class, .. } = self else { return self.into() };
        class
    }

    /// Error of class `class`, for classes without further data.
    pub fn of_class(class: &str, source: BoxError) -> ProviderError {
        let (retry_after, partial) = (None, String::new());
        match class {
            "overloaded" => ProviderError::Overloaded { retry_after, source },
            "rate_limited" => ProviderError::RateLimited { retry_after, source },
            "unreachable" => ProviderError::Unreachable { source },
            "cut" => ProviderError::Cut { partial, source },
            "not_the_provider" => ProviderError::NotTheProvider { source },
            "broken_reply" => ProviderError::Broken { partial, source },
            "context_full" => ProviderError::ContextFull { source },
            "unauthorized" => ProviderError::Unauthorized { source },
            "quota" => ProviderError::QuotaExhausted { retry_after, source },
            "filtered" => ProviderError::Filtered { source },
            "redirected" => ProviderError::Unasked { class: ProviderError::REDIRECTED, source },
            "no_vision" => ProviderError::Unasked { class: ProviderError::NO_VISION, source },
            _ => ProviderError::Rejected { source },
        }
    }

    /// The cause in one line: the chain of sources without the class's own text.
    pub fn reason(&self) -> String {
        let chain = self.chain();
        let own = self.to_string();
        let behind = chain.strip_prefix(own.as_str()).and_then(|rest| rest.strip_prefix(": "));
        behind.unwrap_or(&chain).to_owned()
    }

    /// The whole chain of causes in one line.
    pub fn chain(&self) -> String {
        chain(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_grows_with_the_text_and_is_marked_inexact() {
        let image = ContentPart::ImageUrl { url: "data:,".to_owned(), detail: None };
        let said = |content: Vec<ContentPart>| Arc::new(Message::User { content });
        let table = [
            (vec![], 0),
            (vec![said(vec![ContentPart::text("12345678")])], 6),
            (vec![said(vec![ContentPart::text("123456789")])], 7),
            (vec![said(vec![image.clone()]), said(vec![ContentPart::text("1234")])], 1609),
        ];
        for (messages, expected) in table {
            let tools: [ToolSpec; 0] = [];
            let request = Request {
                messages,
                tools: Arc::new(tools),
                stream: false,
                tokens_max: None,
                temperature: None,
                thinking: None,
            };
            let counted = TokenCount::estimate(&request);
            assert_eq!(counted, TokenCount { tokens: expected, is_exact: false });
        }
    }
}
