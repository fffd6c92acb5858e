//! Units of a history that can be removed without making it invalid: a user message, or a reply
//! with all results of its calls.

use std::ops::Range;
use std::sync::Arc;

use crate::conversation::Message;

/// Range of messages that are kept or removed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HistorySegment {
    pub(super) range: Range<usize>,
    /// True for a model reply with its results; false for another message.
    pub(super) is_reply: bool,
}

/// Splits `history` into units. Results without a reply before them belong to the previous unit.
pub(super) fn units(history: &[Arc<Message>]) -> Vec<HistorySegment> {
    let mut units: Vec<HistorySegment> = Vec::new();
    for (at, message) in history.iter().enumerate() {
        match (&**message, units.last_mut()) {
            (Message::Tool { .. }, Some(unit)) => unit.range.end = at + 1,
            (message, _) => {
                let is_reply = matches!(message, Message::Assistant(_));
                units.push(HistorySegment { range: at..at + 1, is_reply });
            }
        }
    }
    units
}

/// Index of the first unit of the latest `turns` replies, including the user messages right before
/// them. If there are fewer replies, all count; 0 if there is none.
pub(super) fn latest(units: &[HistorySegment], turns: usize) -> usize {
    let replies = units.iter().enumerate().rev().filter(|(_, unit)| unit.is_reply);
    let Some((first, _)) = replies.take(turns).last() else { return 0 };
    let said = units[..first].iter().rev().take_while(|unit| !unit.is_reply).count();
    first - said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{AssistantMessage, CallId};

    #[test]
    fn segments_keep_results_and_prompts_with_their_replies() {
        let message = |kind| {
            Arc::new(match kind {
                'u' => Message::User { content: Vec::new() },
                'a' => Message::Assistant(AssistantMessage::default()),
                _ => Message::Tool {
                    tool_call_id: CallId::new("c"),
                    name: "t".to_owned(),
                    content: Vec::new(),
                    is_error: false,
                },
            })
        };
        // Messages, and where the latest one, two and five replies begin.
        let table = [
            ("", [0, 0, 0]),
            ("u", [0, 0, 0]),
            ("uat", [0, 0, 0]),
            ("uattat", [2, 0, 0]),
            ("uatuatta", [4, 2, 0]),
            ("uauuau", [2, 0, 0]),
        ];
        for (kinds, expected) in table {
            let history: Vec<_> = kinds.chars().map(message).collect();
            let units = units(&history);
            let covered: Vec<usize> = units.iter().flat_map(|unit| unit.range.clone()).collect();
            assert_eq!(covered, (0..history.len()).collect::<Vec<_>>(), "{kinds}");
            assert_eq!([1, 2, 5].map(|turns| latest(&units, turns)), expected, "{kinds}");
        }
    }
}
