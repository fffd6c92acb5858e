//! Histories that are serialised once: what was written stays in a buffer, and the next request
//! appends.
//!
//! A history is written in groups: messages that are valid by themselves once they are written
//! together, such as a reply and the results of its calls.

use std::sync::Arc;

use posse_actors::conversation::Message;

use crate::provider::images::{self, ImageSelection};

/// Histories that are kept serialised: those of agents that take turns.
pub(crate) const HISTORIES_MAX: usize = 4;

/// How one protocol writes a history.
pub(crate) trait Grouping {
    /// Whether `next` is part of the group before it.
    fn continues(&self, next: &Message) -> bool;

    /// Appends a group, with a comma before it if there is something before it.
    fn write(&self, json: &mut Vec<u8>, group: &[Arc<Message>], before: PrecedingGroups) -> bool;
}

/// What the groups before one leave to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrecedingGroups {
    /// What the writing of the last of them returned; false for the first.
    pub(crate) owed: bool,
    /// How many images of the group are left out, from its first on.
    pub(crate) left_out: usize,
}

/// The most recently used histories, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Histories(pub(crate) Vec<EncodedHistory>);

/// A history, as far as it is serialised.
#[derive(Debug, Default)]
pub(crate) struct EncodedHistory {
    messages: Vec<Arc<Message>>,
    /// Messages with commas between them.
    pub(crate) json: Vec<u8>,
    /// Where groups end.
    ends: Vec<EncodedEnd>,
    /// Images that are left out, from the oldest on.
    left_out: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct EncodedEnd {
    messages: usize,
    bytes: usize,
    images: usize,
    owed: bool,
}

impl Histories {
    /// `messages`, serialised. Of what is `shown`, a notice that was given before is taken out.
    pub(crate) fn of(
        &mut self,
        messages: &[Arc<Message>],
        shown: &mut ImageSelection,
        how: &impl Grouping,
    ) -> &EncodedHistory {
        let best = (0..self.0.len())
            .map(|at| (self.0[at].common(messages), at))
            .filter(|(common, _)| *common > 0)
            .max();
        let history = if let Some((_, at)) = best {
            self.0.remove(at)
        } else {
            if self.0.len() >= HISTORIES_MAX {
                self.0.remove(0);
            }
            EncodedHistory::default()
        };
        self.0.push(history);
        let last = self.0.len() - 1;
        let history = &mut self.0[last];
        if shown.left_out <= history.left_out {
            shown.notice = None;
        }
        history.leave_out(shown.left_out);
        history.catch_up(messages, how);
        history
    }
}

impl EncodedHistory {
    /// The first group, which stays as it is as long as the history is the same.
    pub(crate) fn first(&self) -> Option<&[u8]> {
        self.json.get(..self.ends.first()?.bytes)
    }

    /// Where the group before the last one ends, if there is one with anything in it.
    pub(crate) fn before_last(&self) -> Option<usize> {
        let at = self.ends.len().checked_sub(2)?;
        Some(self.ends[at].bytes).filter(|bytes| *bytes > 0)
    }

    /// Where groups end in what is written, the last first.
    pub(crate) fn ends(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.ends.iter().rev().map(|end| end.bytes)
    }

    /// What the writing of the last group returned.
    pub(crate) fn owed(&self) -> bool {
        self.last().owed
    }

    fn last(&self) -> EncodedEnd {
        self.ends.last().copied().unwrap_or_default()
    }

    /// How many leading messages are the same as those of `messages`.
    fn common(&self, messages: &[Arc<Message>]) -> usize {
        let pairs = self.messages.iter().zip(messages);
        pairs.take_while(|(mine, theirs)| Arc::ptr_eq(mine, theirs)).count()
    }

    /// Forgets what was written with other images left out than the oldest `left_out`.
    fn leave_out(&mut self, left_out: usize) {
        if self.left_out != left_out {
            let same = self.left_out.min(left_out);
            self.ends.retain(|end| end.images <= same);
            self.left_out = left_out;
        }
    }

    /// Serialises what is new in `messages`, after forgetting what is no longer in them.
    fn catch_up(&mut self, messages: &[Arc<Message>], how: &impl Grouping) {
        let common = self.common(messages);
        self.ends.retain(|end| end.messages <= common);
        // More of the last group may have come in since it was written.
        if messages.get(self.last().messages).is_some_and(|next| how.continues(next)) {
            self.ends.pop();
        }
        let EncodedEnd { messages: mut from, bytes, .. } = self.last();
        self.json.truncate(bytes);
        self.messages.truncate(from);
        while from < messages.len() {
            let more = messages[from + 1..].iter().take_while(|next| how.continues(next)).count();
            let group = &messages[from..=from + more];
            let EncodedEnd { images, owed, .. } = self.last();
            let before = PrecedingGroups { owed, left_out: self.left_out.saturating_sub(images) };
            let owed = how.write(&mut self.json, group, before);
            let images = images + images::count(group);
            self.messages.extend_from_slice(group);
            from += group.len();
            self.ends.push(EncodedEnd { messages: from, bytes: self.json.len(), images, owed });
        }
    }
}
