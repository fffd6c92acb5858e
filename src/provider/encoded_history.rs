//! Encoded histories: serialised once in a buffer, to which the next request appends.
//!
//! A history is written in groups: messages that are valid only together, such as a reply and the
//! results of its calls.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use posse_actors::conversation::{CallId, ContentPart, Message};

use crate::encoder::Dialect;
use crate::images::{self, ImageSelection};
use crate::opaque::Owner;
use crate::profile::Quirks;
use crate::sanitize::{NO_VISION, TOO_MANY};

/// Maximum number of cached histories, and of cached system texts. Several agents can use one
/// provider alternately.
pub(crate) const HISTORIES_MAX: usize = 4;

/// Options for writing a group of messages: differences of the server, owner of opaque parts, and
/// images to omit.
#[derive(Debug)]
pub(crate) struct GroupOptions<'q> {
    pub(crate) quirks: &'q Quirks,
    pub(crate) owner: &'q Owner,
    /// True if the protocol requires a user message after the previous group
    /// ([`Dialect::write_group`]). False for the first group.
    pub(crate) owed: bool,
    /// True if the model accepts no images.
    blind: bool,
    /// Number of images still to omit. The first images of the group are omitted.
    left_out: Cell<usize>,
}

impl GroupOptions<'_> {
    /// Returns the placeholder for the next image, or `None` if the image is sent. Each call is for
    /// one image and counts down the images to omit.
    pub(crate) fn instead(&self) -> Option<&'static str> {
        if self.blind {
            return Some(NO_VISION);
        }
        let left = self.left_out.get().checked_sub(1)?;
        self.left_out.set(left);
        Some(TOO_MANY)
    }
}

/// Result of a tool call in a history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolResult<'m> {
    pub(crate) name: &'m str,
    pub(crate) content: &'m [ContentPart],
    pub(crate) is_error: bool,
}

/// Tool results in a group, by the ids of their calls. If a call has several results, the first one
/// is used.
pub(crate) fn results(group: &[Arc<Message>]) -> HashMap<&CallId, ToolResult<'_>> {
    let mut results = HashMap::with_capacity(group.len());
    for message in group {
        if let Message::Tool { tool_call_id, name, content, is_error, .. } = &**message {
            let result = ToolResult { name, content, is_error: *is_error };
            results.entry(tool_call_id).or_insert(result);
        }
    }
    results
}

/// Cache of the most recently used histories, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Histories(pub(crate) Vec<EncodedHistory>);

/// A history with its serialised form.
#[derive(Debug, Default)]
pub(crate) struct EncodedHistory {
    messages: Vec<Arc<Message>>,
    /// Serialised messages, separated by commas.
    pub(crate) json: Vec<u8>,
    /// End of each group, in order: the numbers of messages, bytes and images up to it, and if a
    /// user message is required after it.
    ends: Vec<EncodedEnd>,
    /// Number of omitted images, which are the oldest ones.
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
    /// Returns `messages` in serialised form. Continues and replaces the cached history with the
    /// longest common beginning; without one, adds a history and drops the oldest beyond
    /// [`HISTORIES_MAX`]. Clears the notice of `shown` if the previous request of this history
    /// omitted at least as many images.
    pub(crate) fn of<D: Dialect>(
        &mut self,
        messages: &[Arc<Message>],
        shown: &mut ImageSelection,
        quirks: &Quirks,
        owner: &Owner,
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
        history.discard_omitting(shown.left_out);
        history.catch_up::<D>(messages, shown.blind, quirks, owner);
        history
    }
}

impl EncodedHistory {
    /// Serialised first group. Does not change while the history grows, unless new messages extend
    /// the group or its images are omitted. `None`: the history is empty.
    pub(crate) fn first(&self) -> Option<&[u8]> {
        self.json.get(..self.ends.first()?.bytes)
    }

    /// Byte offset in `json` of the end of the last group but one. `None`: there is no such group,
    /// or nothing is written before its end.
    pub(crate) fn before_last(&self) -> Option<usize> {
        let at = self.ends.len().checked_sub(2)?;
        Some(self.ends[at].bytes).filter(|bytes| *bytes > 0)
    }

    /// Byte offsets in `json` of the ends of the groups, the last first.
    pub(crate) fn ends(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.ends.iter().rev().map(|end| end.bytes)
    }

    /// True if the protocol requires a user message after the last group.
    pub(crate) fn owed(&self) -> bool {
        self.last().owed
    }

    fn last(&self) -> EncodedEnd {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Number of messages at the beginning that this history shares with `messages`. Equal messages
    /// at different addresses count as different.
    fn common(&self, messages: &[Arc<Message>]) -> usize {
        let pairs = self.messages.iter().zip(messages);
        pairs.take_while(|(mine, theirs)| Arc::ptr_eq(mine, theirs)).count()
    }

    /// Sets the number of omitted images, and discards the groups from the first one in which other
    /// images than before are omitted.
    fn discard_omitting(&mut self, left_out: usize) {
        if self.left_out != left_out {
            let same = self.left_out.min(left_out);
            self.ends.retain(|end| end.images <= same);
            self.left_out = left_out;
        }
    }

    /// Updates the serialised form to `messages`: discards the groups from the first difference on,
    /// and the last group if `messages` extend it; then serialises the missing groups.
    fn catch_up<D: Dialect>(
        &mut self,
        messages: &[Arc<Message>],
        blind: bool,
        quirks: &Quirks,
        owner: &Owner,
    ) {
        let common = self.common(messages);
        self.ends.retain(|end| end.messages <= common);
        // More of the last group may have come in since it was written.
        if messages.get(self.last().messages).is_some_and(|next| D::continues(next)) {
            self.ends.pop();
        }
        let EncodedEnd { messages: mut from, bytes, .. } = self.last();
        self.json.truncate(bytes);
        self.messages.truncate(from);
        while from < messages.len() {
            let more = messages[from + 1..].iter().take_while(|next| D::continues(next)).count();
            let group = &messages[from..=from + more];
            let EncodedEnd { images, owed, .. } = self.last();
            let left_out = Cell::new(self.left_out.saturating_sub(images));
            let options = GroupOptions { quirks, owner, owed, blind, left_out };
            let owed = D::write_group(&mut self.json, group, &options);
            let images = images + images::count(group);
            self.messages.extend_from_slice(group);
            from += group.len();
            self.ends.push(EncodedEnd { messages: from, bytes: self.json.len(), images, owed });
        }
    }
}
