//! Common frame of the events of a stream: the bytes of an event except its text.
//!
//! Most events differ in a single string. Two events with equal bytes before and after that string
//! have the same meaning except for it, so the second need not be parsed again.

use std::borrow::Cow;

/// Bytes before and after the text in an event that has no other content.
#[derive(Debug)]
pub(crate) struct TextFrame {
    /// Bytes before the text, up to and including its opening quote.
    before: String,
    /// Bytes after the text, from its closing quote on.
    after: String,
}

impl TextFrame {
    /// Frame of `json` around `text`. `text` must be a slice of `json`: the content of a string
    /// without escapes. `None`: it is no such slice.
    pub(crate) fn frame_around(json: &str, text: &str) -> Option<TextFrame> {
        let start = (text.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
        let (before, after) = (json.get(..start)?, json.get(start.checked_add(text.len())?..)?);
        let quoted = before.ends_with('"') && after.starts_with('"');
        quoted.then(|| TextFrame { before: before.to_owned(), after: after.to_owned() })
    }

    /// Text of the event `json`. `None`: `json` does not have this frame.
    pub(crate) fn text_in<'j>(&self, json: &'j str) -> Option<Cow<'j, str>> {
        let text = json.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        if !text.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
            return Some(Cow::Borrowed(text));
        }
        // With its quotes: if this is not exactly one string, `json` does not have the frame.
        let literal = &json[self.before.len() - 1..=json.len() - self.after.len()];
        serde_json::from_str(literal).ok().map(Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn event(text: &str) -> String {
        json!({"id": "x", "choices": [{"delta": {"content": text}, "finish_reason": null}]})
            .to_string()
    }

    fn frame() -> TextFrame {
        let event = event("hello");
        let at = event.find("hello").unwrap();
        TextFrame::frame_around(&event, &event[at..at + 5]).unwrap()
    }

    #[test]
    fn similar_frames_are_left_to_the_parser() {
        let frame = frame();
        let injected = event("a").replace("\"a\"", r#""a","finish_reason":"stop","x":"b""#);
        serde_json::from_str::<Value>(&injected).unwrap();
        assert_eq!(frame.text_in(&injected), None);
        assert_eq!(frame.text_in(&event("a").replace("\"x\"", "\"y\"")), None);
        assert_eq!(frame.text_in(&event("a").replace('a', "\n")), None);
        assert_eq!(frame.text_in(&event("a").replace('a', r"\x")), None);
        assert!(TextFrame::frame_around("abc", "abc").is_none());
    }

    proptest! {
        #[test]
        fn fast_path_agrees_with_the_parser(text in any::<String>()) {
            let (event, frame) = (event(&text), frame());
            let found = frame.text_in(&event);
            prop_assert_eq!(found.as_deref(), Some(text.as_str()));
        }

        #[test]
        fn fast_path_never_differs_from_the_parser(middle in "[a\"\\\\n,:{}u0-9 ]{0,12}") {
            let raw = event("@").replace('@', &middle);
            if let Some(text) = frame().text_in(&raw) {
                let parsed: Value = serde_json::from_str(&raw).unwrap();
                prop_assert_eq!(&parsed["choices"][0]["delta"]["content"], &json!(text));
                prop_assert_eq!(&parsed["choices"][0]["finish_reason"], &Value::Null);
            }
        }
    }
}
