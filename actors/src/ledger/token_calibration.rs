//! Upper bound of the input tokens of a request.
//!
//! A token has at least one byte, so the number of bytes is an upper bound. The provider's count of
//! an earlier part of the same history makes the bound tighter.

use std::sync::Arc;

use serde::Serialize;

use crate::context::sent_bytes;
use crate::conversation::{ContentPart, Message};
use crate::guarded::Guarded;
use crate::ports::{ProviderInfo, Request};

/// Maximum tokens of a message besides its text, for role and delimiters.
const TOKENS_A_MESSAGE: u64 = 16;

/// Maximum tokens of a request besides its messages, such as text of the provider about tools.
const TOKENS_A_REQUEST: u64 = 1024;

/// Maximum tokens of a tool besides its description.
const TOKENS_A_TOOL: u64 = 32;

/// Assumed maximum tokens of an image; a few models count more.
const TOKENS_AN_IMAGE: u64 = 6000;

/// Last token count that a provider reported for the history of one invocation. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct TokenCalibration(Arc<Guarded<Option<CountedRequest>>>);

#[derive(Clone)]
struct CountedRequest {
    provider: String,
    model: String,
    /// Number of counted messages; `last` is the last of them.
    messages: usize,
    last: Arc<Message>,
    tokens: u64,
}

impl TokenCalibration {
    /// Stores that the provider `info` counted `tokens` for the first `messages` messages of the
    /// history. `last` is the last of them.
    pub(crate) fn counted(
        &self,
        info: &ProviderInfo,
        messages: usize,
        last: Arc<Message>,
        tokens: u64,
    ) {
        let (provider, model) = (info.profile.clone(), info.model.clone());
        *self.0.lock() = Some(CountedRequest { provider, model, messages, last, tokens });
    }

    /// Upper bound of the input tokens of `request` to the provider `info`. The stored count is
    /// used if it is from the same model and the same history.
    pub(crate) fn tokens_max(&self, info: &ProviderInfo, request: &Request) -> u64 {
        let known = self.0.lock().clone();
        let fits = |known: &CountedRequest| {
            let last = known.messages.checked_sub(1).and_then(|last| request.messages.get(last));
            known.provider == info.profile
                && known.model == info.model
                && last.is_some_and(|last| Arc::ptr_eq(last, &known.last))
        };
        let whole = of_messages(&request.messages).saturating_add(of_tools(request));
        let Some(known) = known.filter(fits) else { return whole };
        let new = of_messages(&request.messages[known.messages..]);
        known.tokens.saturating_add(new).saturating_add(TOKENS_A_REQUEST).min(whole)
    }
}

fn of_messages(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|message| of_message(message)).fold(0, u64::saturating_add)
}

fn of_message(message: &Message) -> u64 {
    let text = match message {
        Message::System { content } => bytes(content),
        Message::User { content } | Message::Tool { content, .. } => {
            content.iter().map(of_part).fold(0, u64::saturating_add)
        }
        Message::Assistant(said) => said.content.as_deref().map_or(0, bytes).saturating_add(
            // Names and escapes are counted along, which is more than it is.
            json_bytes(&said.tool_calls).saturating_add(json_bytes(&said.reasoning)),
        ),
    };
    text.saturating_add(TOKENS_A_MESSAGE)
}

fn of_part(part: &ContentPart) -> u64 {
    match part {
        ContentPart::Text { text } => bytes(text),
        ContentPart::ImageUrl { .. } => TOKENS_AN_IMAGE,
    }
}

fn of_tools(request: &Request) -> u64 {
    let tool = |spec: &crate::ports::ToolSpec| {
        let text = bytes(&spec.name).saturating_add(bytes(&spec.description));
        text.saturating_add(json_bytes(&spec.parameters)).saturating_add(TOKENS_A_TOOL)
    };
    request.tools.iter().map(tool).fold(TOKENS_A_REQUEST, u64::saturating_add)
}

fn bytes(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn json_bytes(value: &impl Serialize) -> u64 {
    u64::try_from(sent_bytes(value)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::AssistantMessage;

    fn info(model: &str) -> ProviderInfo {
        ProviderInfo { profile: "p".to_owned(), model: model.to_owned(), endpoint: String::new() }
    }

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::User { content: vec![ContentPart::text(text)] })
    }

    fn request(messages: &[Arc<Message>]) -> Request {
        Request {
            messages: messages.to_vec(),
            tools: Arc::new([]),
            stream: true,
            tokens_max: None,
            temperature: None,
            thinking: None,
            session: None,
        }
    }

    #[test]
    fn bytes_bound_tokens() {
        let calibration = TokenCalibration::default();
        let messages = [user(&"x".repeat(1000))];
        assert_eq!(calibration.tokens_max(&info("a"), &request(&messages)), 1000 + 16 + 1024);
    }

    #[test]
    fn previous_count_improves_the_estimate_for_the_same_model_and_history() {
        let calibration = TokenCalibration::default();
        let mut messages = vec![user(&"x".repeat(100_000))];
        calibration.counted(&info("a"), 1, Arc::clone(&messages[0]), 20_000);
        let said =
            AssistantMessage { content: Some("yes".to_owned()), ..AssistantMessage::default() };
        messages.push(Arc::new(Message::Assistant(said)));
        messages.push(user("0123456789"));
        let whole = calibration.tokens_max(&info("b"), &request(&messages));
        assert!(whole > 100_000, "{whole}");
        let close = calibration.tokens_max(&info("a"), &request(&messages));
        assert!((20_000..22_000).contains(&close), "{close}");
        // Another history of the same length.
        messages[0] = user(&"x".repeat(100_000));
        assert_eq!(calibration.tokens_max(&info("a"), &request(&messages)), whole);
    }
}
