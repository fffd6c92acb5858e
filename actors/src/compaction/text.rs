//! Short one-line texts about calls and messages.

use serde_json::Value;

use crate::conversation::{ContentPart, text_of};

/// Maximum characters of the subject of a call.
const SUBJECT_CHARS_MAX: usize = 80;

/// Names of arguments that describe the subject of a call, in order of preference.
const SUBJECTS: [&str; 4] = ["path", "command", "pattern", "agent"];

/// Short description of a call: the name of the tool and the first text argument of `SUBJECTS`;
/// only the name if the call has none of them.
pub(super) fn subject(name: &str, arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let about = SUBJECTS.iter().find_map(|key| arguments.get(key)?.as_str());
    match about {
        None => name.to_owned(),
        Some(about) => format!("{name} {}", one_line(about, SUBJECT_CHARS_MAX)),
    }
}

/// `text` in one line, with single spaces between the words. A longer text is cut after `chars_max`
/// characters, and `…` is appended.
pub(super) fn one_line(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    let mut left = chars_max;
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
            left = left.saturating_sub(1);
        }
        match word.char_indices().nth(left) {
            None => {
                line.push_str(word);
                left -= word.chars().count();
            }
            Some((end, _)) => {
                line.push_str(&word[..end]);
                line.push('…');
                return line;
            }
        }
    }
    line
}

/// The texts of `content`, or a note if it consists of images only.
pub(super) fn shown(content: &[ContentPart]) -> String {
    let text = text_of(content);
    if text.is_empty() && !content.is_empty() { "[an image]".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_by_their_subject() {
        let table = [
            ("read_file", r#"{"path":"src/a.rs","offset":3}"#, "read_file src/a.rs"),
            ("bash", r#"{"command":"cargo\n test"}"#, "bash cargo test"),
            ("odd", "{", "odd"),
            ("odd", r#"{"path":7}"#, "odd"),
        ];
        for (name, arguments, expected) in table {
            assert_eq!(subject(name, arguments), expected);
        }
        assert_eq!(one_line(" a  b\n c ", 5), "a b c");
        assert_eq!(one_line("äöü ß", 2), "äö…");
        assert_eq!(one_line("abc def", 3), "abc …");
        assert_eq!(one_line("abc def", 5), "abc d…");
    }
}
