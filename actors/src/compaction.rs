//! Compaction of a history, step by step as far as needed: repeated outputs, old outputs, then the
//! oldest turns, replaced by a summary.
//!
//! Pure, deterministic and without a model. The result is as valid as the input: a reply keeps its
//! calls and the results right behind it. The latest turns stay unchanged.

mod outputs;
mod segments;
mod summary;
mod text;

use std::sync::Arc;

use crate::context::tokens_of;
use crate::conversation::{ContentPart, Message};
use crate::skills;

use outputs::Outputs;
use segments::{HistorySegment, units};

pub(crate) use summary::{history_text, instruction as summary_instruction};

/// Target of a compaction. Tokens are estimates, see [`tokens_of`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionGoal {
    /// Tokens of all messages; less is removed where more would not be needed.
    pub tokens_max: u64,
    /// Replies at the end that stay as they are, with the results of their calls.
    pub turns_kept: usize,
    /// Tokens of the summary, in about.
    pub summary_tokens: u64,
    /// Text that the user wants to keep.
    pub keep: Option<String>,
    /// Summary of the removed turns by a model; without it, their beginnings are listed.
    pub summary: Option<String>,
    /// Outputs of the latest replies that have more tokens than this are masked as well: for what
    /// no provider would take otherwise.
    pub clip_latest: Option<u64>,
    /// Background activity, one line each, listed in each summary.
    pub beside: Vec<String>,
    /// True if the first message is the task of the whole conversation and stays.
    pub keeps_task: bool,
    /// Number of user messages since the last reply that may be removed first, from the oldest on:
    /// they were never answered, and newer ones follow.
    pub unanswered: usize,
    /// True if the latest replies may be removed as well, provided that a user message follows.
    pub replies_go: bool,
}

impl CompactionGoal {
    /// Target of a compaction on request: a quarter of the current size.
    pub fn quarter(
        history: &[Arc<Message>],
        turns_kept: usize,
        summary_tokens: u64,
    ) -> CompactionGoal {
        let tokens_max = size_of(history) / 4;
        CompactionGoal {
            tokens_max,
            turns_kept,
            summary_tokens: summary_tokens.min(tokens_max),
            ..CompactionGoal::default()
        }
    }
}

/// A history that became shorter.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactedHistory {
    /// The compacted history.
    pub history: Vec<Arc<Message>>,
    /// Bytes it had before.
    pub bytes_before: usize,
    /// Bytes it has now.
    pub bytes_after: usize,
    /// Tokens it had before, estimated.
    pub tokens_before: u64,
    /// Tokens it has now, estimated.
    pub tokens_after: u64,
    /// Replies that were removed.
    pub turns_removed: usize,
    /// Tool outputs that were masked in turns that stay.
    pub outputs_removed: usize,
    /// Messages of the user that were never answered, and of which only the beginning stays.
    pub prompts_removed: usize,
    /// Number of removed messages at the beginning.
    pub messages_removed: usize,
}

/// Bytes of text, arguments and images in `history`.
pub fn bytes_of(history: &[Arc<Message>]) -> usize {
    history.iter().map(|message| bytes(message)).sum()
}

/// Tokens of `history`, estimated.
pub(crate) fn size_of(history: &[Arc<Message>]) -> u64 {
    history.iter().map(|message| tokens_of(message)).sum()
}

/// Number of user messages since the last reply.
pub(crate) fn messages_since_reply(history: &[Arc<Message>]) -> usize {
    let is_user = |message: &&Arc<Message>| matches!(***message, Message::User { .. });
    history.iter().rev().take_while(is_user).count()
}

/// Compacts `history` (valid, without system messages). `None` if it is short enough or nothing can
/// be removed.
pub fn compact(history: &[Arc<Message>], goal: &CompactionGoal) -> Option<CompactedHistory> {
    let before = size_of(history);
    if before <= goal.tokens_max {
        return None;
    }
    let units = units(history);
    let waiting = messages_since_reply(history);
    let answered = units.len() - waiting;
    let unanswered = answered + goal.unanswered.min(waiting.saturating_sub(1));
    let latest = if goal.replies_go && waiting > 0 {
        unanswered
    } else {
        segments::latest(&units, goal.turns_kept.max(1))
    };
    let mut outputs = Outputs::new(history);
    let begin = |unit: usize| units.get(unit).map_or(history.len(), |unit| unit.range.start);
    let old = begin(latest);
    outputs.truncate_user_messages(begin(answered)..begin(unanswered), goal);
    outputs.drop_repeated(old, goal.tokens_max);
    outputs.mask(0..old, 0, goal.tokens_max);
    let cut =
        if outputs.total > goal.tokens_max { cut(&units[..latest], &outputs, goal) } else { 0 };
    if let Some(over) = goal.clip_latest {
        outputs.mask(old..history.len(), over, goal.tokens_max);
    }
    let mut best = result(history, &outputs, &units, 0, goal);
    if cut > 0 {
        let shorter = result(history, &outputs, &units, cut, goal);
        if shorter.tokens_after < best.tokens_after {
            best = shorter;
        }
    }
    (best.tokens_after < before).then_some(best)
}

/// Number of old units to remove so that the rest and a summary fit.
fn cut(old: &[HistorySegment], outputs: &Outputs, goal: &CompactionGoal) -> usize {
    let mut tokens = outputs.total.saturating_add(goal.summary_tokens);
    for (nth, unit) in old.iter().enumerate() {
        if tokens <= goal.tokens_max {
            return nth;
        }
        tokens = tokens.saturating_sub(outputs.tokens_in(unit.range.clone()));
    }
    old.len()
}

fn result(
    history: &[Arc<Message>],
    outputs: &Outputs,
    units: &[HistorySegment],
    cut: usize,
    goal: &CompactionGoal,
) -> CompactedHistory {
    let begin = units.get(cut).map_or(history.len(), |unit| unit.range.start);
    let mut kept: Vec<Arc<Message>> = outputs.messages[begin..].to_vec();
    if cut > 0 {
        let gone = &history[..begin];
        let text = ContentPart::text(summary::of(gone, goal));
        if let Some(Message::User { content }) = kept.first().map(|first| &**first) {
            // Two messages of the user never follow each other because of us.
            let task = summary::first_task(gone, goal);
            let own = summary::own_text(content).cloned();
            let content = std::iter::once(text).chain(task).chain(own);
            kept[0] = Arc::new(Message::User { content: content.collect() });
        } else {
            let first = summary::first_task(gone, goal);
            let now = summary::task(gone, &kept, goal);
            let now = now.into_iter().filter(|part| first.as_ref() != Some(part));
            let now: Vec<ContentPart> = now.collect();
            let content = std::iter::once(text).chain(first).chain(now).collect();
            kept.insert(0, Arc::new(Message::User { content }));
        }
        keep_skills(gone, &mut kept, goal);
    }
    let is_reply = |message: &&Arc<Message>| matches!(***message, Message::Assistant(_));
    let (outputs_removed, prompts_removed) = outputs.changes(begin);
    CompactedHistory {
        bytes_before: bytes_of(history),
        bytes_after: bytes_of(&kept),
        tokens_before: size_of(history),
        tokens_after: size_of(&kept),
        turns_removed: history[..begin].iter().filter(is_reply).count(),
        outputs_removed,
        prompts_removed,
        messages_removed: begin,
        history: kept,
    }
}

/// Puts skills that were activated in `gone` behind the summary, as far as they fit.
fn keep_skills(gone: &[Arc<Message>], kept: &mut [Arc<Message>], goal: &CompactionGoal) {
    // Bytes for tokens: a quarter of the available space.
    let bytes_max = usize::try_from(goal.tokens_max).unwrap_or(usize::MAX);
    let skills = skills::kept(gone, kept, bytes_max);
    if let Some(Message::User { content }) = kept.first().map(|first| &**first)
        && !skills.is_empty()
    {
        let (summary, own) = content.split_at(content.len().min(1));
        let content = [summary, &skills, own].concat();
        kept[0] = Arc::new(Message::User { content });
    }
}

fn parts_bytes(content: &[ContentPart]) -> usize {
    let part = |part: &ContentPart| match part {
        ContentPart::Text { text } => text.len(),
        ContentPart::ImageUrl { url, .. } => url.len(),
    };
    content.iter().map(part).sum()
}

fn bytes(message: &Message) -> usize {
    match message {
        Message::System { content } => content.len(),
        Message::User { content } | Message::Tool { content, .. } => parts_bytes(content),
        Message::Assistant(said) => {
            let calls = said.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
            let thought = said.reasoning.as_ref().map_or(0, |reasoning| reasoning.text.len());
            said.content.as_ref().map_or(0, String::len) + thought + calls.sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests;
