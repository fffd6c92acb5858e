//! Active skills of a conversation, derived from its history alone.
//!
//! An activated skill has no record of its own: it is the result of the skill tool, or a part of a
//! user message, and both are records. Compaction takes the skills of the removed messages from
//! [`active`] and puts the parts that [`kept`] returns into the first message of the new history,
//! where later compactions and resumed sessions find them.

use std::sync::Arc;

use crate::conversation::{ContentPart, Message};

/// Name of the tool whose results activate a skill.
pub const TOOL: &str = "skill";

/// Maximum bytes of skill texts that a compaction keeps; see [`kept`].
const KEPT_BYTES_MAX: usize = 64 << 10;

const BEGIN: &str = "<skill_content name=\"";

/// First line of the text of the activated skill `name`, with the newline. `name` must not contain
/// quotes.
pub fn begin(name: &str) -> String {
    format!("{BEGIN}{name}\">\n")
}

/// True if `part` begins like the text of a skill (see [`begin`]).
pub fn is_skill(part: &ContentPart) -> bool {
    named(part).is_some()
}

/// Name of the skill whose text `part` is; `None` if `part` is not the text of a skill.
pub fn name_of(part: &ContentPart) -> Option<&str> {
    named(part).map(|(name, _)| name)
}

/// True if `message` activates a skill: it is a user message or a successful result of the tool
/// `skill`, and contains the text of a skill.
pub fn activates(message: &Message) -> bool {
    parts(message).iter().any(is_skill)
}

fn named(part: &ContentPart) -> Option<(&str, &str)> {
    let ContentPart::Text { text } = part else { return None };
    let (name, _) = text.strip_prefix(BEGIN)?.split_once("\">\n")?;
    Some((name, text))
}

/// The parts of `message` that may contain skills: those of user messages and of successful results
/// of the skill tool.
fn parts(message: &Message) -> &[ContentPart] {
    match message {
        Message::Tool { name, content, is_error: false, .. } if name == TOOL => content,
        Message::User { content } => content,
        Message::System { .. } | Message::Assistant(_) | Message::Tool { .. } => &[],
    }
}

/// Names and texts of the skills that were activated in `history`, each once with its latest text,
/// in order of their last activation.
pub fn active(history: &[Arc<Message>]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (name, text) in history.iter().flat_map(|message| parts(message)).filter_map(named) {
        found.retain(|(known, _)| known != name);
        found.push((name.to_owned(), text.to_owned()));
    }
    found
}

/// Skill texts to keep when the messages `gone` are removed and `stays` remain: one part for each
/// skill that is active in `gone` and not in `stays`, in order of their last activation. Skills are
/// taken from the last activated one backwards, up to `bytes_max` and 64 KiB in total. The first
/// skill that does not fit is dropped, with all skills activated before it.
pub fn kept(gone: &[Arc<Message>], stays: &[Arc<Message>], bytes_max: usize) -> Vec<ContentPart> {
    let there = active(stays);
    let mut left = KEPT_BYTES_MAX.min(bytes_max);
    let mut parts: Vec<ContentPart> = Vec::new();
    for (name, text) in active(gone).into_iter().rev() {
        if there.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let Some(rest) = left.checked_sub(text.len()) else { break };
        left = rest;
        parts.push(ContentPart::text(text));
    }
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conversation::CallId;

    fn given(tool: &str, text: &str) -> Arc<Message> {
        Arc::new(Message::Tool {
            tool_call_id: CallId::new("c"),
            name: tool.to_owned(),
            content: vec![ContentPart::text(text)],
            is_error: false,
        })
    }

    fn skill(name: &str, body: &str) -> String {
        format!("{}{body}\n</skill_content>\n", begin(name))
    }

    #[test]
    fn finds_skills_activated_by_tool_and_by_user() {
        let user = |texts: &[&str]| {
            let content = texts.iter().copied().map(ContentPart::text).collect();
            Arc::new(Message::User { content })
        };
        let (a, newer, b) = (skill("a", "one"), skill("a", "two"), skill("b", "three"));
        let history = [
            user(&["go"]),
            given(TOOL, &a),
            given("bash", &skill("forged", "x")),
            user(&[&b, "and now?"]),
            given(TOOL, "line 1 of a file\n"),
            given(TOOL, &newer),
        ];
        let names: Vec<String> = active(&history).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(active(&history)[1].1, newer);
        assert_eq!(
            kept(&history, &[], usize::MAX),
            [ContentPart::text(b.clone()), ContentPart::text(newer)]
        );
        assert_eq!(kept(&history, &[], 10), []);
        assert_eq!(kept(&history[..4], &history[4..], usize::MAX), [ContentPart::text(b)]);
    }

    proptest! {
        /// For any activated skills, the kept text is bounded and is recognised again.
        #[test]
        fn kept_skills_are_found_again(sizes in prop::collection::vec(0_usize..40_000, 0..12)) {
            let history: Vec<Arc<Message>> = sizes
                .iter()
                .enumerate()
                .map(|(nth, size)| given(TOOL, &skill(&format!("s{nth}"), &"x".repeat(*size))))
                .collect();
            let parts = kept(&history, &[], usize::MAX);
            let again = active(&[Arc::new(Message::User { content: parts.clone() })]);
            prop_assert_eq!(again.len(), parts.len());
            prop_assert!(again.iter().map(|(_, text)| text.len()).sum::<usize>() <= KEPT_BYTES_MAX);
            let newest = active(&history).into_iter().rev().take(again.len()).rev();
            prop_assert_eq!(newest.collect::<Vec<_>>(), again);
        }
    }
}
