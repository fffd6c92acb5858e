//! Token estimates of messages and tools, from their number of bytes.

use serde::Serialize;

use crate::conversation::{ContentPart, Message};
use crate::ports::ToolSpec;

/// Bytes per token for English text or code, as published by vendors.
const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of a message besides its text, such as its role.
const TOKENS_PER_MESSAGE: u64 = 4;

/// Tokens of an image: those of the largest image that providers do not split into tiles.
const TOKENS_PER_IMAGE: u64 = 1600;

/// Estimated tokens of `message`, without calibration.
pub fn tokens_of(message: &Message) -> u64 {
    let (bytes, images) = match message {
        Message::System { content } => (content.len(), 0),
        Message::User { content } | Message::Tool { content, .. } => {
            content.iter().fold((0, 0), |(bytes, images), part| match part {
                ContentPart::Text { text } => (bytes + text.len(), images),
                ContentPart::ImageUrl { .. } => (bytes, images + 1),
            })
        }
        Message::Assistant(said) => {
            let calls = said.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
            let thought = said.reasoning.as_ref().map_or(0, |thought| {
                let opaque = thought.opaque.as_ref().map_or(0, sent_bytes);
                thought.text.len() + opaque
            });
            let text = said.content.as_ref().map_or(0, String::len);
            (text + thought + calls.sum::<usize>(), 0)
        }
    };
    of_bytes(bytes) + images * TOKENS_PER_IMAGE + TOKENS_PER_MESSAGE
}

/// Estimated tokens of the descriptions of `tools`.
pub(crate) fn of_tools(tools: &[ToolSpec]) -> u64 {
    let bytes =
        |tool: &ToolSpec| tool.name.len() + tool.description.len() + sent_bytes(&tool.parameters);
    of_bytes(tools.iter().map(bytes).sum())
}

/// Estimated tokens of a text of `bytes` bytes.
pub(crate) fn of_bytes(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX / 8).div_ceil(BYTES_PER_TOKEN)
}

/// Estimated bytes of a text of `tokens` tokens.
pub(crate) fn bytes_in(tokens: u64) -> usize {
    usize::try_from(tokens.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX)
}

/// Number of bytes of `value` as JSON; 0 if it cannot be represented in JSON, because then it is
/// not sent either.
pub(crate) fn sent_bytes(value: &impl Serialize) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = ByteCounter(0);
    serde_json::to_writer(&mut counter, value).map_or(0, |()| counter.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{AssistantMessage, Reasoning};

    #[test]
    fn bytes_images_and_thinking_have_weights() {
        let image = ContentPart::ImageUrl { url: "data:,".to_owned(), detail: None };
        let user = |content: Vec<ContentPart>| Message::User { content };
        let thought = Reasoning { text: "1234".to_owned(), field: None, opaque: Some("56".into()) };
        let said = AssistantMessage { reasoning: Some(thought), ..AssistantMessage::default() };
        let table = [
            (Message::System { content: "12345678".to_owned() }, 6),
            (user(vec![ContentPart::text("123456789")]), 7),
            (user(vec![image, ContentPart::text("1234")]), 1605),
            (Message::Assistant(said), 6),
        ];
        for (message, tokens) in table {
            assert_eq!(tokens_of(&message), tokens, "{message:?}");
        }
        assert_eq!(of_bytes(bytes_in(3000)), 3000);
    }
}
