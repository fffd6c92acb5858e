//! Removal of old or repeated tool outputs, and shortening of user messages that were never
//! answered.
//!
//! A line replaces each of them and says how the model can read the original again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::compaction::text::{one_line, shown, subject};
use crate::compaction::{CompactionGoal, summary};
use crate::context::tokens_of;
use crate::conversation::{CallId, ContentPart, Message, ToolCall};
use crate::skills;

/// Minimum size in tokens of an output that is replaced by a line.
const TOKENS_MIN: u64 = 80;

/// Minimum size in tokens of a user message that is shortened.
const SAID_TOKENS_MIN: u64 = 200;

/// Bytes at the beginning of a shortened user message that stay. Together with the surrounding text
/// they are smaller than the smallest shortened message.
const SAID_BYTES_MAX: usize = 400;

/// Bytes at the beginning of an output that are part of the key under which equal outputs are
/// found.
const BEGINNING_BYTES: usize = 64;

/// The path that a call names in its argument `path`, without `./` in front of it; `None` if it names
/// none.
fn path_of(call: &ToolCall) -> Option<String> {
    let arguments: Value = serde_json::from_str(&call.arguments).ok()?;
    let path = arguments.get("path")?.as_str()?;
    Some(path.strip_prefix("./").unwrap_or(path).to_owned())
}

/// A history in which outputs and messages are replaced, with its current size.
pub(super) struct Outputs<'h> {
    before: &'h [Arc<Message>],
    pub(super) messages: Vec<Arc<Message>>,
    tokens: Vec<u64>,
    /// Current size of all messages in estimated tokens.
    pub(super) total: u64,
    calls: HashMap<&'h CallId, &'h ToolCall>,
}

impl<'h> Outputs<'h> {
    pub(super) fn new(history: &'h [Arc<Message>]) -> Outputs<'h> {
        let tokens: Vec<u64> = history.iter().map(|message| tokens_of(message)).collect();
        let calls = history.iter().filter_map(|message| match &**message {
            Message::Assistant(said) => Some(&said.tool_calls),
            Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
        });
        Outputs {
            before: history,
            messages: history.to_vec(),
            total: tokens.iter().sum(),
            tokens,
            calls: calls.flatten().map(|call| (&call.id, call)).collect(),
        }
    }

    pub(super) fn tokens_in(&self, range: Range<usize>) -> u64 {
        self.tokens[range].iter().sum()
    }

    /// Numbers of replaced outputs and of shortened user messages, among the messages from index
    /// `begin` on.
    pub(super) fn changes(&self, begin: usize) -> (usize, usize) {
        let pairs = self.before[begin..].iter().zip(&self.messages[begin..]);
        let changed = pairs.filter(|(before, after)| !Arc::ptr_eq(before, after));
        let (outputs, said): (Vec<_>, Vec<_>) =
            changed.partition(|(before, _)| matches!(***before, Message::Tool { .. }));
        (outputs.len(), said.len())
    }

    /// Replaces contents of files before index `old` that a later call changed, oldest first, until
    /// the history has the target size.
    pub(super) fn drop_stale(&mut self, old: usize, goal: &CompactionGoal) {
        // Index of the last successful change of each file.
        let mut changed: HashMap<String, usize> = HashMap::new();
        let mut read = Vec::new();
        for (at, message) in self.before.iter().enumerate() {
            let Message::Tool { tool_call_id, is_error: false, .. } = &**message else { continue };
            let Some(call) = self.calls.get(tool_call_id) else { continue };
            let Some(path) = path_of(call) else { continue };
            if goal.files.change.contains(&call.name) {
                changed.insert(path, at);
            } else if at < old && goal.files.read.contains(&call.name) {
                read.push((at, path));
            }
        }
        for (at, path) in read {
            if self.total <= goal.tokens_max {
                return;
            }
            if changed.get(&path).is_some_and(|change| *change > at) {
                self.replace(at, |id, subject| {
                    format!(
                        "[{subject} returned an older version: the file was changed after that. \
                         read_file output:{id} shows the old one]"
                    )
                });
            }
        }
    }

    /// Replaces outputs before index `old` that a later, identical call returned again, oldest
    /// first, until the history has at most `tokens_max` tokens.
    pub(super) fn drop_repeated(&mut self, old: usize, tokens_max: u64) {
        let mut later: HashMap<(&str, &str, usize, &str), Vec<usize>> = HashMap::new();
        let mut repeated = Vec::new();
        for at in (0..self.before.len()).rev() {
            let Message::Tool { tool_call_id, content, .. } = &*self.before[at] else { continue };
            let Some(call) = self.calls.get(tool_call_id) else { continue };
            let [ContentPart::Text { text }] = content.as_slice() else { continue };
            let begin = text.floor_char_boundary(BEGINNING_BYTES);
            let key = (call.name.as_str(), call.arguments.as_str(), text.len(), &text[..begin]);
            let same = later.entry(key).or_default();
            let content_of = |other: &usize| match &*self.before[*other] {
                Message::Tool { content, .. } => Some(content),
                Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
            };
            match same.iter().find(|other| content_of(other) == Some(content)) {
                Some(other) if at < old => repeated.push((at, *other)),
                Some(_) => {}
                None => same.push(at),
            }
        }
        for (at, other) in repeated.into_iter().rev() {
            if self.total <= tokens_max {
                return;
            }
            let Message::Tool { tool_call_id: other, .. } = &*self.before[other] else { continue };
            let other = other.clone();
            self.replace(at, |id, subject| {
                format!("[{subject} returned the same again in {other}: read_file output:{id}]")
            });
        }
    }

    /// Replaces outputs in `range` that have more than `over` tokens, oldest first, until the
    /// history has at most `tokens_max` tokens. Skill texts stay if `over` is 0.
    pub(super) fn mask(&mut self, range: Range<usize>, over: u64, tokens_max: u64) {
        for at in range {
            if self.total <= tokens_max {
                return;
            }
            // A skill that is followed is no output that is over.
            let is_skill = || skills::activates(&self.messages[at]);
            if self.tokens[at] > over && (over > 0 || !is_skill()) {
                let bytes = super::bytes(&self.messages[at]);
                self.replace(at, |id, subject| {
                    format!(
                        "[{bytes} bytes that {subject} returned are not shown any more: \
                         read_file output:{id}]"
                    )
                });
            }
        }
    }

    /// Shortens the user messages in `range` to their beginnings if the history exceeds the target.
    /// The task and small messages stay.
    pub(super) fn truncate_user_messages(&mut self, range: Range<usize>, goal: &CompactionGoal) {
        if self.total <= goal.tokens_max {
            return;
        }
        for at in range {
            let Message::User { content } = &*self.messages[at] else { continue };
            let own: Vec<ContentPart> = summary::own_text(content).cloned().collect();
            let (parts, is_task) = (own.len(), goal.keeps_task && at == 0);
            if is_task || tokens_of(&Message::User { content: own.clone() }) < SAID_TOKENS_MIN {
                continue;
            }
            let (text, bytes) = (shown(&own), super::parts_bytes(&own));
            let begin = &text[..text.floor_char_boundary(SAID_BYTES_MAX)];
            let line = format!(
                "[{bytes} bytes that were said here got no answer, and are not shown any more: \
                 read_file output:history shows them. They begin: {}]",
                one_line(begin, SAID_BYTES_MAX)
            );
            // A summary in front of it stays.
            let mut content = content[..content.len() - parts].to_vec();
            content.push(ContentPart::text(line));
            self.put(at, Message::User { content });
        }
    }

    /// Replaces the output at index `at` by the text that `line` makes of the id and the subject of
    /// its call. Small outputs stay.
    fn replace(&mut self, at: usize, line: impl FnOnce(&CallId, &str) -> String) {
        let Message::Tool { tool_call_id, name, is_error, .. } = &*self.messages[at] else {
            return;
        };
        if self.tokens[at] < TOKENS_MIN {
            return;
        }
        let subject = subject(name, self.calls.get(tool_call_id).map_or("", |c| &c.arguments));
        let message = Message::Tool {
            tool_call_id: tool_call_id.clone(),
            name: name.clone(),
            content: vec![ContentPart::text(line(tool_call_id, &subject))],
            is_error: *is_error,
        };
        self.put(at, message);
    }

    /// Replaces the message at index `at` by `message` if this is smaller.
    fn put(&mut self, at: usize, message: Message) {
        let tokens = tokens_of(&message);
        if tokens < self.tokens[at] {
            self.total = self.total - self.tokens[at] + tokens;
            self.tokens[at] = tokens;
            self.messages[at] = Arc::new(message);
        }
    }
}
