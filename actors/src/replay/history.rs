//! The folded history. It is valid at any time, because each reply reserves places for the results
//! of its calls.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::{AssistantMessage, CallId, ContentPart, Message, ToolCall};
use crate::replay::{
    AGENT_CUT_OFF, CUT_OFF, NOT_RUN, NOT_RUN_CHOSEN, OUTCOME_UNKNOWN, OpenCall, Replayed,
};

/// Text for the model about a reply that was cut off.
const INTERRUPTED_REPLY: &str = "(from posse, not from the user) The reply above was cut off here, because the run was stopped.";

/// Messages for the history: the text of a reply that was cut off because the run was stopped, and
/// a note that informs the model. None for a blank text, which providers reject.
pub(crate) fn interrupted_reply(text: &str) -> impl Iterator<Item = Arc<Message>> {
    let note = || Message::User { content: vec![ContentPart::text(INTERRUPTED_REPLY)] };
    let reply = AssistantMessage { content: Some(text.to_owned()), ..AssistantMessage::default() };
    let messages = (!text.trim().is_empty()).then(|| [Message::Assistant(reply), note()]);
    messages.into_iter().flatten().map(Arc::new)
}

/// The messages of the folded invocation so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct FoldedHistory {
    entries: Vec<HistoryEntry>,
    /// Index of the result of each call in `entries`.
    places: HashMap<CallId, usize>,
    /// Index of the first result of the last reply; `None` if another message has followed.
    last_results: Option<usize>,
}

#[derive(Debug, Serialize, Deserialize)]
enum HistoryEntry {
    Said(Arc<Message>),
    Result(Box<FoldedCall>),
}

/// A call whose result is part of the history, with the recorded facts about it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FoldedCall {
    /// State of the call without an end. Its field `effect` does not include a subagent.
    pub(super) open: OpenCall,
    /// True if the call has started a subagent.
    pub(super) agent: bool,
    /// Result for the model, and true if the call failed. `None` before the recorded end.
    pub(super) end: Option<(Vec<ContentPart>, bool)>,
}

impl FoldedHistory {
    /// Number of messages.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn user(&mut self, content: Vec<ContentPart>) {
        self.last_results = None;
        self.entries.push(HistoryEntry::Said(Arc::new(Message::User { content })));
    }

    /// Adds a reply, and a place for the result of each of its calls. A reply without text and
    /// calls is omitted, and so is a call with a repeated id, because providers reject both.
    pub(super) fn reply(&mut self, mut message: AssistantMessage) {
        let mut new: Vec<ToolCall> = Vec::new();
        for call in std::mem::take(&mut message.tool_calls) {
            if !self.places.contains_key(&call.id) && new.iter().all(|other| other.id != call.id) {
                new.push(call);
            }
        }
        message.tool_calls.clone_from(&new);
        let silent = message.content.as_deref().is_none_or(str::is_empty);
        if silent && new.is_empty() {
            return;
        }
        self.entries.push(HistoryEntry::Said(Arc::new(Message::Assistant(message))));
        self.last_results = Some(self.entries.len());
        for call in new {
            let message = self.entries.len();
            self.places.insert(call.id.clone(), message);
            let open = OpenCall { call, message, ..OpenCall::default() };
            let call = FoldedCall { open, agent: false, end: None };
            self.entries.push(HistoryEntry::Result(Box::new(call)));
        }
    }

    /// Adds the text of a reply that was cut off because the run was stopped.
    pub(super) fn partial(&mut self, text: &str) {
        self.last_results = None;
        self.entries.extend(interrupted_reply(text).map(HistoryEntry::Said));
    }

    /// Replaces all messages, after a compaction or a fork.
    pub(super) fn replace(&mut self, messages: &[Arc<Message>]) {
        self.last_results = None;
        self.places.clear();
        self.entries = messages.iter().cloned().map(HistoryEntry::Said).collect();
    }

    /// Applies `change` to the call with this id. Unknown calls are ignored.
    pub(super) fn edit(&mut self, id: &CallId, change: impl FnOnce(&mut FoldedCall)) {
        let place = self.places.get(id).and_then(|place| self.entries.get_mut(*place));
        if let Some(HistoryEntry::Result(call)) = place {
            change(call);
        }
    }

    /// Ends the fold: adds the messages to `replayed`, with placeholders for missing results, and
    /// the open calls.
    pub(super) fn finish(self, replayed: &mut Replayed) {
        for (place, entry) in self.entries.into_iter().enumerate() {
            match entry {
                HistoryEntry::Said(message) => replayed.messages.push(message),
                HistoryEntry::Result(call) => {
                    if call.end.is_none() && self.last_results.is_some_and(|first| place >= first) {
                        // The effects of its subagent are not undone.
                        let effect = call.open.effect || call.agent;
                        replayed.open_calls.push(OpenCall { effect, ..call.open.clone() });
                    }
                    replayed.messages.push(Arc::new(call.result()));
                }
            }
        }
    }
}

impl FoldedCall {
    fn result(self) -> Message {
        let (content, is_error) = self.end.unwrap_or_else(|| {
            let text = match (self.open.started, self.open.effect, &self.open.begun) {
                (false, ..) if self.open.chosen => NOT_RUN_CHOSEN.to_owned(),
                (false, ..) => NOT_RUN.to_owned(),
                (true, true, Some(begun)) => format!("{OUTCOME_UNKNOWN} It was {begun}."),
                (true, true, None) => OUTCOME_UNKNOWN.to_owned(),
                (true, false, _) if self.agent => AGENT_CUT_OFF.to_owned(),
                (true, false, _) => CUT_OFF.to_owned(),
            };
            (vec![ContentPart::text(text)], true)
        });
        let ToolCall { id, name, .. } = self.open.call;
        Message::Tool { tool_call_id: id, name, content, is_error }
    }
}
