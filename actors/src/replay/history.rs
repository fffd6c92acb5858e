//! Messages in an order that is always valid. Each reply reserves the positions of its results.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::{AssistantMessage, CallId, ContentPart, Message, ToolCall};
use crate::event::StartedCall;
use crate::replay::{AGENT_CUT_OFF, CUT_OFF, NOT_RUN, OUTCOME_UNKNOWN, OpenCall, Replayed};

/// The history so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct FoldedHistory {
    entries: Vec<HistoryEntry>,
    /// Message index of the result of each call.
    places: HashMap<CallId, usize>,
    /// Index of the first result of the last reply, until another message follows.
    last_results: Option<usize>,
}

#[derive(Debug, Serialize, Deserialize)]
enum HistoryEntry {
    Said(Arc<Message>),
    Result(Box<FoldedCall>),
}

/// A call and the known facts about its end.
#[derive(Debug, Serialize, Deserialize)]
struct FoldedCall {
    asked: ToolCall,
    requested: bool,
    /// True if it has side effects; known once it has started.
    started: Option<bool>,
    begun: Option<StartedCall>,
    /// A subagent was started for it.
    agent: bool,
    approved: Option<String>,
    end: Option<(Vec<ContentPart>, bool)>,
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

    /// Adds a reply and a result slot for each of its calls. An empty reply is omitted, and so is a
    /// call with a repeated id: providers reject both.
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
            self.places.insert(call.id.clone(), self.entries.len());
            let call = FoldedCall {
                asked: call,
                requested: false,
                started: None,
                begun: None,
                agent: false,
                approved: None,
                end: None,
            };
            self.entries.push(HistoryEntry::Result(Box::new(call)));
        }
    }

    /// Replaces all messages.
    pub(super) fn replace(&mut self, messages: &[Arc<Message>]) {
        self.last_results = None;
        self.places.clear();
        self.entries = messages.iter().cloned().map(HistoryEntry::Said).collect();
    }

    pub(super) fn request(&mut self, id: &CallId) {
        if let Some(call) = self.call(id) {
            call.requested = true;
        }
    }

    pub(super) fn start(&mut self, id: &CallId, effect: bool, begun: StartedCall) {
        if let Some(call) = self.call(id) {
            call.started = Some(effect);
            call.begun = Some(begun);
        }
    }

    /// Records that a subagent started for a call.
    pub(super) fn delegate(&mut self, id: &CallId) {
        if let Some(call) = self.call(id) {
            call.agent = true;
        }
    }

    pub(super) fn approve(&mut self, id: &CallId, digest: String) {
        if let Some(call) = self.call(id) {
            call.approved = Some(digest);
        }
    }

    /// Records the end of a call.
    pub(super) fn end(&mut self, id: &CallId, content: Vec<ContentPart>, is_error: bool) {
        if let Some(call) = self.call(id) {
            call.end = Some((content, is_error));
        }
    }

    /// Replaces the output by a hook's version: it arrives later and takes precedence.
    pub(super) fn revise(&mut self, id: &CallId, content: Vec<ContentPart>) {
        if let Some((recorded, _)) = self.call(id).and_then(|call| call.end.as_mut()) {
            *recorded = content;
        }
    }

    fn call(&mut self, id: &CallId) -> Option<&mut FoldedCall> {
        match self.entries.get_mut(*self.places.get(id)?) {
            Some(HistoryEntry::Result(call)) => Some(call),
            Some(HistoryEntry::Said(_)) | None => None,
        }
    }

    /// Writes messages and open calls.
    pub(super) fn finish(self, replayed: &mut Replayed) {
        for (place, entry) in self.entries.into_iter().enumerate() {
            match entry {
                HistoryEntry::Said(message) => replayed.messages.push(message),
                HistoryEntry::Result(call) => {
                    if call.end.is_none() && self.last_results.is_some_and(|first| place >= first) {
                        replayed.open_calls.push(OpenCall {
                            call: call.asked.clone(),
                            requested: call.requested,
                            started: call.started.is_some(),
                            // The effects of its subagent are not undone.
                            effect: call.started == Some(true) || call.agent,
                            begun: call.begun.clone(),
                            approved: call.approved.clone(),
                            message: place,
                        });
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
            let text = match (self.started, &self.begun) {
                (None, _) => NOT_RUN.to_owned(),
                (Some(true), Some(begun)) => format!("{OUTCOME_UNKNOWN} It was {begun}."),
                (Some(true), None) => OUTCOME_UNKNOWN.to_owned(),
                (Some(false), _) if self.agent => AGENT_CUT_OFF.to_owned(),
                (Some(false), _) => CUT_OFF.to_owned(),
            };
            (vec![ContentPart::text(text)], true)
        });
        Message::Tool { tool_call_id: self.asked.id, name: self.asked.name, content, is_error }
    }
}
