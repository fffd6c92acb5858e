//! Provider port: requests to a model over a protocol that the kernel does not know.

use std::sync::Arc;
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};
use tokio::sync::mpsc;

use crate::conversation::{AssistantMessage, ContentPart, Message, SessionId, StopReason, Usage};
use crate::cost::PriceLookup;
use crate::ports::{BoxError, PortFuture, ToolSpec, chain};

/// Client for one model. It makes single attempts; `ProviderClient` retries.
pub trait Provider: Send + Sync + 'static {
    /// Profile name, model and endpoint.
    fn info(&self) -> ProviderInfo;

    /// The provider that this one wraps; `None` if it wraps none. The default implementations of
    /// `account` and `count_tokens` forward to it.
    fn inner(&self) -> Option<&dyn Provider> {
        None
    }

    /// Identity of the account that pays for the requests: endpoint and credential, in a form that
    /// does not reveal the credential. The default contains profile and endpoint. Models of one
    /// account share one `ProviderClient`.
    fn account(&self) -> String {
        if let Some(inner) = self.inner() {
            return inner.account();
        }
        let ProviderInfo { profile, endpoint, model: _ } = self.info();
        format!("{profile} {endpoint}")
    }

    /// Makes one attempt and sends pieces of the reply to `deltas`; without `request.stream` at
    /// most notices. Dropping the future cancels the attempt and closes its connection.
    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>>;

    /// Number of tokens of `request`: counted by the server if that is free of charge, otherwise
    /// estimated. The default estimates. `Err`: the server could not count them.
    fn count_tokens(&self, request: Request) -> PortFuture<Result<TokenCount, ProviderError>> {
        if let Some(inner) = self.inner() {
            return inner.count_tokens(request);
        }
        let counted = TokenCount::estimate(&request);
        Box::pin(std::future::ready(Ok(counted)))
    }
}

/// Size of a request in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCount {
    /// Number of input tokens of the request.
    pub tokens: u64,
    /// True if the server counted the tokens; false for an estimate.
    pub is_exact: bool,
}

impl TokenCount {
    /// Bytes per token for English text or code, as published by vendors.
    const BYTES_PER_TOKEN: usize = 4;
    /// Tokens of an image: those of the largest image that providers do not split into tiles.
    const TOKENS_PER_IMAGE: u64 = 1600;
    /// Tokens of a message besides its text, such as its role.
    const TOKENS_PER_MESSAGE: u64 = 4;

    /// Estimates the tokens of `request` from the bytes of its messages and tool descriptions, and
    /// the number of its messages and images. Thinking is not counted.
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
    /// Name of the requested model.
    pub model: String,
    /// Address of the endpoint, without secrets.
    pub endpoint: String,
}

/// A further model: a fallback for the main model, or the model for summaries or titles.
#[derive(Clone)]
pub struct Fallback {
    /// Provider of the model.
    pub provider: Arc<dyn Provider>,
    /// Known capabilities of the model.
    pub abilities: Abilities,
    /// Pricing of the model; `None` if unknown.
    pub price: Option<PriceLookup>,
}

impl std::fmt::Debug for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fallback").field(&self.provider.info()).finish()
    }
}

/// Capabilities of a model. `None` means unknown; an unknown capability does not exclude the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// True if the model supports tool calls.
    pub tools: Option<bool>,
    /// True if the model accepts images.
    pub images: Option<bool>,
    /// Context window: tokens of a request and its reply together.
    pub window: Option<u64>,
}

/// Content and options of a model request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The complete history, oldest message first. Requests share the messages, and a history only
    /// grows at its end unless it is compacted, so an encoder may cache encoded messages by pointer
    /// (`Arc::ptr_eq`).
    pub messages: Vec<Arc<Message>>,
    /// The tools that the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// True if the reply should be streamed as deltas.
    pub stream: bool,
    /// Maximum tokens of the reply; `None`: the provider's default.
    pub tokens_max: Option<u64>,
    /// Sampling temperature; `None`: the provider's default.
    pub temperature: Option<f64>,
    /// Reasoning effort; `None`: the provider's default.
    pub thinking: Option<Thinking>,
    /// The session, also for requests of its subagents. Servers that keep the beginning of requests
    /// cached get it as the key of the cache. `None`: the request belongs to no session.
    pub session: Option<SessionId>,
}

/// Reasoning effort of a model. The adapter translates it. If the server or the model is not known
/// to support it, it is omitted, with one notice to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Thinking {
    /// No reasoning, if the server supports that; otherwise omitted.
    Off,
    /// Lowest effort with reasoning.
    Minimal,
    /// Low reasoning effort.
    Low,
    /// Medium reasoning effort.
    Medium,
    /// High reasoning effort.
    High,
    /// Highest reasoning effort.
    #[strum(serialize = "xhigh")]
    ExtraHigh,
}

impl Thinking {
    /// All levels, the lowest first.
    pub const ALL: &[Thinking] = Thinking::VARIANTS;

    /// Name of the level in settings and agent definitions.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The level with this name; `None` if no level has it.
    pub fn named(name: &str) -> Option<Thinking> {
        Thinking::ALL.iter().copied().find(|level| level.name() == name)
    }
}

/// Channel for deltas. It is bounded: sending waits while the channel is full.
pub type DeltaSender = mpsc::Sender<Delta>;

/// A piece of a reply that is arriving, in the order of arrival. Adapters may join pieces that
/// arrive together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Piece of the visible text of the reply.
    Text(String),
    /// Piece of the model's thinking.
    Thinking(String),
    /// Sign of activity without text: for example, arguments of a tool call are arriving.
    Alive,
    /// Token counts so far of the arriving reply.
    Usage(Usage),
    /// One-line notice of the adapter for the user, such as that content was omitted.
    Notice(String),
}

/// A complete reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The reply. Its call ids come from the provider; the kernel replaces them by its own.
    pub message: AssistantMessage,
    /// Reason why the model stopped. `ToolUse` only if the reply contains a call. A reply with calls
    /// can also stop with `MaxTokens`: it was cut off, and its last call may be incomplete.
    pub stop_reason: StopReason,
    /// Token counts; `None` if the provider reported none.
    pub usage: Option<Usage>,
    /// Model that the provider names as the author; `None` if it names none.
    pub model: Option<String>,
}

/// Failure of a provider that a retry may overcome, as its server reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverloadKind {
    /// Too many requests, or too little capacity.
    Overload,
    /// An error of the server.
    ServerError,
    /// Another temporary failure, such as a timeout.
    Temporary,
}

impl OverloadKind {
    fn text(self) -> &'static str {
        match self {
            OverloadKind::Overload => "the provider is overloaded",
            OverloadKind::ServerError => "server error",
            OverloadKind::Temporary => "temporary error",
        }
    }
}

/// Failure of an attempt, classified by the reaction of the kernel.
#[derive(Debug, thiserror::Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ProviderError {
    /// The provider is overloaded or has an internal error. Wait, then retry.
    #[error("{}", .kind.text())]
    Overloaded {
        /// Kind of the failure, for the text of the error.
        kind: OverloadKind,
        /// Wait requested by the provider; `None` if it requested none, or an implausible one.
        retry_after: Option<Duration>,
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The rate limit is exceeded. All requests to the model wait, then retry.
    #[error("the provider limits the rate of requests")]
    RateLimited {
        /// Wait requested by the provider; `None` if it requested none, or an implausible one.
        retry_after: Option<Duration>,
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The provider could not be reached or did not respond. Retry.
    #[error("the provider is unreachable")]
    Unreachable {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// No server listens at the address: its name is not known, or the connection was refused.
    /// Retry; at the beginning of a run at most `Limits::absent_attempts_max` attempts are made.
    #[error("the provider is unreachable")]
    #[strum(serialize = "unreachable")]
    NoServer {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The reply was cut off. The request is retried at most `Limits::cut_replies_max` times.
    #[error("the reply broke off")]
    Cut {
        /// Visible text that had arrived.
        partial: String,
        /// Cause, with the byte offset in the stream.
        source: BoxError,
    },
    /// The response does not come from the provider, for example the login page of a network.
    /// Retry; at the beginning of a run at most `Limits::absent_attempts_max` attempts are made.
    #[error("the answer is not from the provider")]
    NotTheProvider {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The reply has neither text nor calls. The request is retried, once without streaming: some
    /// servers report an error only then. If the request is near the context window of the model,
    /// and the reply is empty again, the request is too long.
    #[error("the reply is empty")]
    #[strum(serialize = "empty_reply")]
    Empty {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The reply is complete but invalid. Retry.
    #[error("the reply broke off or made no sense")]
    #[strum(serialize = "broken_reply")]
    Broken {
        /// Visible text that had arrived.
        partial: String,
        /// Cause, with the byte offset in the stream.
        source: BoxError,
    },
    /// The reply repeats itself, apparently without end, and was stopped. The request is retried at
    /// most `Limits::repeating_replies_max` times.
    #[error("the reply repeats itself")]
    #[strum(serialize = "repeating_reply")]
    Repeating {
        /// Visible text that had arrived.
        partial: String,
        /// Cause, with the length of the repeated text and the number of repetitions.
        source: BoxError,
    },
    /// The request exceeds the context of the model. Compact the history, then retry.
    #[error("the conversation no longer fits the model's context")]
    ContextFull {
        /// Cause, for the log.
        source: BoxError,
    },
    /// The credentials are not accepted. The user has to fix them; a retry does not help.
    #[error("the provider does not accept the credentials")]
    Unauthorized {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The quota of the account is used up. A retry does not help before the next quota.
    #[error("the quota is used up")]
    #[strum(serialize = "quota")]
    QuotaExhausted {
        /// Wait until the next quota; `None` if unknown.
        retry_after: Option<Duration>,
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The provider refuses to answer because of the content. A retry does not help.
    #[error("the provider withheld the reply")]
    Filtered {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The provider rejects the request for another reason. The user has to fix it; a retry does
    /// not help.
    #[error("the provider rejected the request")]
    Rejected {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The request did not reach a model, as far as the kernel knows. A retry does not help.
    #[error("the request did not get to a model")]
    Unasked {
        /// Class of the failure in events: [`ProviderError::REDIRECTED`], …
        class: &'static str,
        /// Cause, for the user and the log.
        source: BoxError,
    },
}

impl ProviderError {
    /// Class: the server redirects to another address, to which nothing was sent.
    pub const REDIRECTED: &'static str = "redirected";
    /// Class: the response does not come from a provider, for example an HTML page with an error
    /// status. [`ProviderError::NotTheProvider`] has the same class.
    pub const NOT_THE_PROVIDER: &'static str = "not_the_provider";
    /// Class: a user message contains an image, and the model accepts none. Nothing was sent.
    pub const NO_VISION: &'static str = "no_vision";
    /// Class: the budget is too small for the request, or it limits money and the price is unknown.
    /// Nothing was sent.
    pub const BUDGET: &'static str = "budget";
    /// Class: the reservation could not be recorded, or the request was cancelled. Nothing was
    /// sent.
    pub const JOURNAL: &'static str = "journal";

    /// Class of the failure as a stable name for events and messages.
    pub fn class(&self) -> &'static str {
        let ProviderError::Unasked { class, .. } = self else { return self.into() };
        class
    }

    /// Creates an error of class `class` without a requested wait and without partial text.
    /// `unreachable` becomes `Unreachable`; `budget`, `journal` and unknown classes become
    /// `Rejected`.
    pub fn of_class(class: &str, source: BoxError) -> ProviderError {
        let (retry_after, partial) = (None, String::new());
        match class {
            "overloaded" => {
                ProviderError::Overloaded { kind: OverloadKind::Overload, retry_after, source }
            }
            "rate_limited" => ProviderError::RateLimited { retry_after, source },
            "unreachable" => ProviderError::Unreachable { source },
            "cut" => ProviderError::Cut { partial, source },
            "not_the_provider" => ProviderError::NotTheProvider { source },
            "empty_reply" => ProviderError::Empty { source },
            "broken_reply" => ProviderError::Broken { partial, source },
            "repeating_reply" => ProviderError::Repeating { partial, source },
            "context_full" => ProviderError::ContextFull { source },
            "unauthorized" => ProviderError::Unauthorized { source },
            "quota" => ProviderError::QuotaExhausted { retry_after, source },
            "filtered" => ProviderError::Filtered { source },
            "redirected" => ProviderError::Unasked { class: ProviderError::REDIRECTED, source },
            "no_vision" => ProviderError::Unasked { class: ProviderError::NO_VISION, source },
            _ => ProviderError::Rejected { source },
        }
    }

    /// True if the provider was not reached, and waiting is unlikely to help: no server listens at
    /// the address, or another one does.
    pub fn is_absence(&self) -> bool {
        matches!(self, ProviderError::NoServer { .. } | ProviderError::NotTheProvider { .. })
    }

    /// True if no response of the provider arrived. Unlike an overload, this says nothing about the
    /// load of the provider.
    pub fn is_unreached(&self) -> bool {
        self.is_absence() || matches!(self, ProviderError::Unreachable { .. })
    }

    /// The cause: the texts of the sources, joined by `: `, without the text of the class itself.
    pub fn reason(&self) -> String {
        let chain = self.chain();
        let own = self.to_string();
        let behind = chain.strip_prefix(own.as_str()).and_then(|rest| rest.strip_prefix(": "));
        behind.unwrap_or(&chain).to_owned()
    }

    /// The texts of the error and of all its sources, joined by `: `.
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
                session: None,
            };
            let counted = TokenCount::estimate(&request);
            assert_eq!(counted, TokenCount { tokens: expected, is_exact: false });
        }
    }
}
