//! Making a history shorter without a model: old tool outputs go first, then the oldest turns,
//! of which a list of what was asked and which files were touched remains.
//!
//! Pure and deterministic. What comes out is as valid as what went in: it is only ever cut before
//! a message of the user, so no call loses its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::conversation::{CallId, ContentPart, Message, text_of};

/// How the summary begins. It is the first part of the first message, so that two messages of the
/// user never follow each other.
const SUMMARY_BEGIN: &str = "[Earlier parts of this conversation were removed. What is left:]\n";

/// Outputs smaller than this are not worth a marker.
const OUTPUT_BYTES_MIN: usize = 256;

/// Lines of a summary, the newest of them.
const SUMMARY_LINES_MAX: usize = 64;

/// Characters of one line of a summary.
const LINE_CHARS_MAX: usize = 240;

/// What a shorter history should be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Bytes of text and images; less is removed where more would not be needed.
    pub bytes_max: usize,
    /// Turns at the end that stay as they are, whatever their size.
    pub turns_kept: usize,
}

impl Goal {
    /// What somebody who asks for it wants: a quarter of what there is, and the last two turns.
    pub fn quarter(history: &[Arc<Message>]) -> Goal {
        Goal { bytes_max: bytes_of(history) / 4, turns_kept: 2 }
    }
}

/// A history that became shorter.
#[derive(Debug, Clone, PartialEq)]
pub struct Compacted {
    /// The history to go on with.
    pub history: Vec<Arc<Message>>,
    /// Bytes it had before.
    pub bytes_before: usize,
    /// Bytes it has now.
    pub bytes_after: usize,
    /// Turns that were removed.
    pub turns_removed: usize,
    /// Tool outputs that were removed from turns that stay.
    pub outputs_removed: usize,
}

/// Bytes of text, arguments and images in `history`: what its size is measured in.
pub fn bytes_of(history: &[Arc<Message>]) -> usize {
    history.iter().map(|message| size(message)).sum()
}

/// Makes `history` (valid, without system messages) shorter. `None` if nothing can be removed.
pub fn compact(history: &[Arc<Message>], goal: Goal) -> Option<Compacted> {
    let bytes_before = bytes_of(history);
    let turns = turns(history);
    let old = turns.len().saturating_sub(goal.turns_kept.max(1));
    let mut outputs_removed = 0;
    let mut cleared: Vec<Vec<Arc<Message>>> = Vec::with_capacity(turns.len());
    for (nth, turn) in turns.iter().enumerate() {
        let clear = |message: &Arc<Message>| match without_output(message).filter(|_| nth < old) {
            Some(message) => {
                outputs_removed += 1;
                Arc::new(message)
            }
            None => Arc::clone(message),
        };
        cleared.push(turn.iter().map(clear).collect());
    }
    let mut bytes: usize = cleared.iter().map(|turn| bytes_of(turn)).sum();
    let mut removed = 0;
    while bytes > goal.bytes_max && removed < old {
        bytes -= bytes_of(&cleared[removed]);
        // What is removed as a whole is not counted twice.
        let markers = |(before, after): (&Arc<Message>, &Arc<Message>)| !Arc::ptr_eq(before, after);
        let gone = turns[removed].iter().zip(&cleared[removed]).filter(|pair| markers(*pair));
        outputs_removed -= gone.count();
        removed += 1;
    }
    let mut kept: Vec<Arc<Message>> = cleared.drain(removed..).flatten().collect();
    if removed > 0 {
        let summary = summary(&turns[..removed]);
        let first = kept.first_mut()?;
        if let Message::User { content } = &**first {
            let content = std::iter::once(ContentPart::text(summary)).chain(own(content));
            *first = Arc::new(Message::User { content: content.collect() });
        }
    }
    let bytes_after = bytes_of(&kept);
    (bytes_after < bytes_before).then_some(Compacted {
        history: kept,
        bytes_before,
        bytes_after,
        turns_removed: removed,
        outputs_removed,
    })
}

/// Pieces that begin with a message of the user. What comes before the first is part of it.
fn turns(history: &[Arc<Message>]) -> Vec<&[Arc<Message>]> {
    let is_user = |message: &Arc<Message>| matches!(**message, Message::User { .. });
    let starts = history.iter().enumerate().skip(1).filter(|(_, message)| is_user(message));
    let mut turns = Vec::new();
    let mut begin = 0;
    for (start, _) in starts {
        turns.push(&history[begin..start]);
        begin = start;
    }
    turns.push(&history[begin..]);
    turns
}

fn size(message: &Message) -> usize {
    let parts = |content: &[ContentPart]| -> usize {
        let part = |part: &ContentPart| match part {
            ContentPart::Text { text } => text.len(),
            ContentPart::ImageUrl { url, .. } => url.len(),
        };
        content.iter().map(part).sum()
    };
    match message {
        Message::System { content } => content.len(),
        Message::User { content } | Message::Tool { content, .. } => parts(content),
        Message::Assistant(said) => {
            let calls = said.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
            let thought = said.reasoning.as_ref().map_or(0, |reasoning| reasoning.text.len());
            said.content.as_ref().map_or(0, String::len) + thought + calls.sum::<usize>()
        }
    }
}

/// The same result with a marker for its output, if that is worth it.
fn without_output(message: &Message) -> Option<Message> {
    let Message::Tool { tool_call_id, name, is_error, .. } = message else { return None };
    let bytes = size(message);
    if bytes < OUTPUT_BYTES_MIN {
        return None;
    }
    let marker = format!("[{bytes} bytes of output were removed. Call the tool again if needed.]");
    Some(Message::Tool {
        tool_call_id: tool_call_id.clone(),
        name: name.clone(),
        content: vec![ContentPart::text(marker)],
        is_error: *is_error,
    })
}

/// What a message says besides the summary in front of it.
fn own(content: &[ContentPart]) -> impl Iterator<Item = ContentPart> + '_ {
    let old = usize::from(earlier(content).is_some());
    content.iter().skip(old).cloned()
}

/// The lines of the summary in front of a message.
fn earlier(content: &[ContentPart]) -> Option<&str> {
    match content.first() {
        Some(ContentPart::Text { text }) => text.strip_prefix(SUMMARY_BEGIN),
        Some(ContentPart::ImageUrl { .. }) | None => None,
    }
}

fn summary(turns: &[&[Arc<Message>]]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for turn in turns {
        if let Some(Message::User { content }) = turn.first().map(|message| &**message) {
            lines.extend(earlier(content).unwrap_or_default().lines().map(str::to_owned));
            let said: Vec<ContentPart> = own(content).collect();
            lines.push(line("The user asked: ", &text_of(&said)));
        }
        for (file, tools) in files(turn) {
            lines.push(line("File touched: ", &format!("{file} ({tools})")));
        }
        let answers = turn.iter().rev().filter_map(|message| match &**message {
            Message::Assistant(said) => said.content.as_deref().filter(|text| !text.is_empty()),
            Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
        });
        if let Some(answer) = answers.take(1).next() {
            lines.push(line("You answered: ", answer));
        }
    }
    let hidden = lines.len().saturating_sub(SUMMARY_LINES_MAX);
    format!("{SUMMARY_BEGIN}{}\n", lines[hidden..].join("\n"))
}

/// Text from anywhere as one line of a summary.
fn line(label: &str, text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{label}{} …", &text[..end]),
        None => format!("{label}{text}"),
    }
}

/// Files that calls named which did not fail, and the tools that were called.
fn files(turn: &[Arc<Message>]) -> BTreeMap<String, String> {
    let failed = |id: &CallId| {
        turn.iter().any(|message| {
            matches!(&**message, Message::Tool { tool_call_id, is_error: true, .. } if tool_call_id == id)
        })
    };
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for message in turn {
        let Message::Assistant(said) = &**message else { continue };
        for call in said.tool_calls.iter().filter(|call| !failed(&call.id)) {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
            let Some(path) = arguments.get("path").and_then(Value::as_str) else { continue };
            let tools = files.entry(path.to_owned()).or_default();
            if !tools.split(", ").any(|tool| tool == call.name) {
                let comma = if tools.is_empty() { "" } else { ", " };
                tools.push_str(comma);
                tools.push_str(&call.name);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests;
