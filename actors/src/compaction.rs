//! Compaction of a history, in steps until it fits: shortening of unanswered user messages, removal
//! of repeated outputs, of files that were changed after they were read, then of old outputs, then of
//! the oldest turns, which a summary replaces.
//!
//! Pure, deterministic and without a model. The result is as valid as the input: the results of a
//! reply's calls still follow the reply. The latest turns stay unchanged, unless the goal permits
//! more.

mod outputs;
mod segments;
mod summary;
mod text;

use std::sync::Arc;

use crate::context::tokens_of;
use crate::conversation::{ContentPart, Message};
use crate::ports::{Access, ToolSpec};
use crate::skills;

use outputs::Outputs;
use segments::{HistorySegment, units};

pub(crate) use summary::{conversation_summary, history_text, instruction as summary_instruction};

/// Target and options of a compaction. Tokens are estimates, see [`tokens_of`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionGoal {
    /// Target size of all messages in tokens. Nothing more is removed once this size is reached.
    pub tokens_max: u64,
    /// Number of latest model replies that stay unchanged, with the results of their calls; at
    /// least one.
    pub turns_kept: usize,
    /// Approximate maximum size of the summary in tokens; standing instructions, the task
    /// list and lines about background work are kept beyond it.
    pub summary_tokens: u64,
    /// Topic that the user wants to keep: the summary contains it, and sentences of the removed
    /// turns with its words. `None`: no topic.
    pub keep: Option<String>,
    /// Summary of the removed turns, written by a model. `None`: the rules list the beginnings of
    /// the answers instead.
    pub summary: Option<String>,
    /// Size in tokens above which outputs of the latest replies are removed as well. Set after a
    /// provider rejected the request for its size; `None`: these outputs stay.
    pub clip_latest: Option<u64>,
    /// Lines about running background work, which the summary lists.
    pub beside: Vec<String>,
    /// Task list of the agent, one line for each task, which the summary repeats.
    pub todos: Vec<String>,
    /// Tools that read and change files, by which outdated contents of files are found.
    pub files: FileTools,
    /// True if the first message is the task of the whole conversation and must stay.
    pub keeps_task: bool,
    /// Number of unanswered user messages that may be shortened to their beginning, counted from
    /// the first message after the last reply. The last user message always stays complete.
    pub unanswered: usize,
    /// True if the latest replies and the shortened user messages may be removed as well, which
    /// requires that another user message follows them.
    pub replies_go: bool,
}

/// Names of tools whose calls read, or change, the one file that their argument `path` names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileTools {
    /// Names of the tools that read the file.
    pub read: Vec<String>,
    /// Names of the tools that change the file.
    pub change: Vec<String>,
}

impl FileTools {
    /// The tools of `tools` that open one file.
    pub(crate) fn of(tools: &[ToolSpec]) -> FileTools {
        let with = |access: Access| {
            let theirs = tools.iter().filter(move |tool| {
                tool.annotations.opens_file && tool.annotations.access == access
            });
            theirs.map(|tool| tool.name.clone()).collect()
        };
        FileTools { read: with(Access::Read), change: with(Access::Write) }
    }
}

impl CompactionGoal {
    /// Target of a compaction on request: a quarter of the current size of `history`.
    /// `summary_tokens` is limited to the target.
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

/// Result of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactedHistory {
    /// The compacted history.
    pub history: Vec<Arc<Message>>,
    /// Size of the history before, in bytes.
    pub bytes_before: usize,
    /// Size of the compacted history in bytes.
    pub bytes_after: usize,
    /// Size of the history before, in estimated tokens.
    pub tokens_before: u64,
    /// Size of the compacted history in estimated tokens.
    pub tokens_after: u64,
    /// Number of removed model replies.
    pub turns_removed: usize,
    /// Number of tool outputs that were replaced by a line in turns that stay.
    pub outputs_removed: usize,
    /// Number of unanswered user messages that were shortened to their beginning.
    pub prompts_removed: usize,
    /// Number of messages that were removed from the beginning of the history.
    pub messages_removed: usize,
}

impl CompactedHistory {
    /// Returns true if a compaction on request is worth it: it removes at least a tenth of the
    /// history. A smaller one would lose turns, and the provider's cache, for hardly any space.
    pub(crate) fn is_worthwhile(&self) -> bool {
        self.tokens_after <= self.tokens_before.saturating_mul(9) / 10
    }
}

/// Messages and summary of a compacted history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptMessages {
    /// Number of messages after the one that begins with the summary; without a summary, of all.
    pub messages: usize,
    /// Size of the summary in estimated tokens; `None` if no turn was removed.
    pub summary_tokens: Option<u64>,
}

impl KeptMessages {
    /// Counts the messages of `history`.
    pub fn of(history: &[Arc<Message>]) -> KeptMessages {
        let summary = match history.first().map(|first| &**first) {
            Some(Message::User { content }) if summary::earlier(content).is_some() => {
                content.first()
            }
            _ => None,
        };
        let tokens = |part: &ContentPart| tokens_of(&Message::User { content: vec![part.clone()] });
        let summary_tokens = summary.map(tokens);
        KeptMessages { messages: history.len() - usize::from(summary.is_some()), summary_tokens }
    }
}

/// Number of bytes of texts, thinking, calls and image addresses in `history`.
pub fn bytes_of(history: &[Arc<Message>]) -> usize {
    history.iter().map(|message| bytes(message)).sum()
}

/// Estimated tokens of `history`.
pub(crate) fn size_of(history: &[Arc<Message>]) -> u64 {
    history.iter().map(|message| tokens_of(message)).sum()
}

/// Number of user messages at the end of `history`, after the last reply and its results.
pub(crate) fn messages_since_reply(history: &[Arc<Message>]) -> usize {
    let is_user = |message: &&Arc<Message>| matches!(***message, Message::User { .. });
    history.iter().rev().take_while(is_user).count()
}

/// Compacts `history`, which must be valid and without system messages. Returns `None` if it is
/// small enough or nothing can be removed. The result may exceed the target.
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
    outputs.drop_stale(old, goal);
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

/// Number of units of `old`, from the first on, to remove so that the rest and a summary fit into
/// the target.
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

/// Inserts the skills that were activated in the removed messages `gone` behind the summary, as far
/// as they fit.
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
