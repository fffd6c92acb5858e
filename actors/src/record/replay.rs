//! The history rebuilt from records: a fold, deterministic and without a clock.
//!
//! Whatever prefix of a session's records it is given, the messages it returns are a history that
//! a provider accepts: every call has exactly one result, right after the reply that asked for it,
//! in the order of the calls.

mod history;
mod seen;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::{
    CallId, ContentPart, InvocationId, Message, MessageId, QuestionId, ToolCall, Usage,
};
use crate::event::{Event, Grant, MessageKind, Origin, Scope, StoredRecord};
use crate::record::RecordId;

use history::History;

/// What the model reads of a call that was asked for and never started.
pub const NOT_RUN: &str = "This call was not run: the session broke off before it started.";
/// What the model reads of a call that started and has no recorded end.
pub const OUTCOME_UNKNOWN: &str = "The session broke off while this call was running. Whether it \
     took effect is not known. Look before doing it again.";
/// What the model reads of a call without effects that started and has no recorded end.
pub const CUT_OFF: &str = "The session broke off while this call was running. It changes nothing, \
     so it can be made again.";

/// What the records of a session say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// The history of the invocation: always valid.
    pub messages: Vec<Arc<Message>>,
    /// Calls of the last reply that have no recorded end, in the model's order.
    pub open_calls: Vec<OpenCall>,
    /// Questions that nobody has answered, oldest first.
    pub open_questions: Vec<OpenQuestion>,
    /// Allowances that hold until the session ends.
    pub grants: Vec<Grant>,
    /// Messages that wait for a safe point, oldest first.
    pub queued: Vec<QueuedMessage>,
    /// Tokens: of the invocation, or of the whole session if none was named.
    pub usage: Usage,
    /// Replies in the history.
    pub turns: u32,
    /// Number of the last record, 0 if there was none.
    pub last_record: u64,
    /// Why the session ended, if it did and did not go on.
    pub ended: Option<String>,
    /// How the session was started, if its first record is there.
    pub started: Option<StartedWith>,
}

/// What a session was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedWith {
    /// The agent of the main invocation.
    pub agent: String,
    /// The provider profile.
    pub provider: String,
    /// The model.
    pub model: String,
    /// `single-agent` or `multi-agent`.
    pub mode: String,
    /// The working directory.
    pub cwd: String,
}

/// A call without a recorded end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The call, as the model wrote it.
    pub call: ToolCall,
    /// Whether its intent was recorded. If not, nothing has happened yet.
    pub started: bool,
    /// Whether it changes anything outside posse; known once it has started.
    pub effect: bool,
    /// Hash of what a human or `--yes` agreed to, if they did.
    pub approved: Option<String>,
    /// Where in the messages the result stands that was made up for it.
    pub message: usize,
}

/// A question that nobody has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Its id: it is shown again under the same one.
    pub request_id: QuestionId,
    /// Who asked.
    pub origin: Option<Arc<Origin>>,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// One line.
    pub summary: String,
    /// The whole command or diff.
    pub detail: String,
    /// Why it is asked.
    pub reason: String,
    /// Scopes that an answer may have.
    pub scopes: Vec<Scope>,
    /// Hash of what is asked about.
    pub digest: String,
}

/// A message that has not entered the history yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Its id.
    pub id: MessageId,
    /// When it may enter.
    pub kind: MessageKind,
    /// Text and images.
    pub content: Vec<ContentPart>,
}

/// Folds `records`, oldest first, into the history of `invocation`; of the main one if it is
/// `None`.
pub fn replay<'a>(
    records: impl IntoIterator<Item = &'a StoredRecord>,
    invocation: Option<&InvocationId>,
) -> Replayed {
    let mut replay = Replay::new(invocation.cloned());
    for record in records {
        replay.push(record);
    }
    replay.finish()
}

/// The same, record by record: for a journal that is read in pages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Replay {
    invocation: Option<InvocationId>,
    #[serde(with = "seen")]
    seen: HashSet<RecordId>,
    history: History,
    questions: BTreeMap<u64, OpenQuestion>,
    /// Messages that entered the history, with or without having waited in the queue.
    delivered: HashSet<MessageId>,
    replayed: Replayed,
}

impl Replay {
    /// Version of what is kept of a fold to go on with it later. Another number is for whatever
    /// makes the same records come to something else.
    pub const VERSION: u32 = 1;

    /// Starts with nothing, for `invocation` or the main one.
    pub fn new(invocation: Option<InvocationId>) -> Replay {
        Replay { invocation, ..Replay::default() }
    }

    /// Adds the next record. One whose id was there before is ignored.
    pub fn push(&mut self, record: &StoredRecord) {
        self.replayed.last_record = self.replayed.last_record.max(record.record);
        if !self.seen.insert(record.id) {
            return;
        }
        self.session(&record.event);
        self.question(record);
        let ours = self.is_ours(record.origin.as_deref());
        if let Event::ModelUsage { usage, .. } = &record.event
            && (ours || self.invocation.is_none())
        {
            self.replayed.usage.add(usage);
        }
        if ours {
            self.message(&record.event);
            self.call(&record.event);
        }
    }

    /// What the records say.
    pub fn finish(mut self) -> Replayed {
        self.replayed.open_questions = self.questions.into_values().collect();
        self.history.finish(&mut self.replayed);
        self.replayed
    }

    fn is_ours(&self, origin: Option<&Origin>) -> bool {
        match (&self.invocation, origin) {
            (None, None) => true,
            (None, Some(origin)) => origin.parent_invocation_id.is_none(),
            (Some(_), None) => false,
            (Some(wanted), Some(origin)) => origin.invocation_id == *wanted,
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only the session's own events matter")]
    fn session(&mut self, event: &Event) {
        match event {
            Event::SessionStarted { agent, provider, model, mode, cwd, .. } => {
                self.replayed.started.get_or_insert_with(|| StartedWith {
                    agent: agent.clone(),
                    provider: provider.clone(),
                    model: model.clone(),
                    mode: mode.clone(),
                    cwd: cwd.clone(),
                });
            }
            Event::SessionEnded { reason, .. } => self.replayed.ended = Some(reason.clone()),
            Event::SessionResumed { .. }
            | Event::UserMessage { .. }
            | Event::InvocationStarted { .. } => self.replayed.ended = None,
            _ => (),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only questions and their ends matter")]
    fn question(&mut self, record: &StoredRecord) {
        match &record.event {
            Event::PermissionRequested {
                request_id,
                call_id,
                tool,
                summary,
                detail,
                reason,
                scopes,
                digest,
                ..
            } => {
                let question = OpenQuestion {
                    request_id: request_id.clone(),
                    origin: record.origin.clone(),
                    call_id: call_id.clone(),
                    tool: tool.clone(),
                    summary: summary.clone(),
                    detail: detail.clone(),
                    reason: reason.clone(),
                    scopes: scopes.clone(),
                    digest: digest.clone(),
                };
                // Asked again under the same id: the later text counts.
                self.close_question(request_id);
                self.questions.insert(record.record, question);
            }
            Event::PermissionGranted { request_id, grant, .. } => {
                if let Some(question) = self.close_question(request_id) {
                    self.history.approve(&question.call_id, question.digest);
                }
                if let Some(grant) = grant
                    && grant.scope == Scope::Session
                    && !self.replayed.grants.contains(grant)
                {
                    self.replayed.grants.push(grant.clone());
                }
            }
            Event::PermissionDenied { request_id, .. }
            | Event::PermissionWithdrawn { request_id, .. } => {
                self.close_question(request_id);
            }
            Event::ToolCompleted { call_id, .. }
            | Event::ToolFailed { call_id, .. }
            | Event::ToolOutcomeUnknown { call_id, .. } => {
                self.questions.retain(|_, question| question.call_id != *call_id);
            }
            _ => (),
        }
    }

    fn close_question(&mut self, id: &QuestionId) -> Option<OpenQuestion> {
        let number = self
            .questions
            .iter()
            .find_map(|(number, q)| (q.request_id == *id).then_some(*number))?;
        self.questions.remove(&number)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only messages matter")]
    fn message(&mut self, event: &Event) {
        match event {
            Event::UserMessage { content, message_id } => {
                let new = message_id.as_ref().is_none_or(|id| self.deliver(id));
                if new {
                    self.history.user(content.clone());
                }
            }
            Event::MessageQueued { message_id, kind, content } => {
                let known = self.delivered.contains(message_id)
                    || self.replayed.queued.iter().any(|queued| queued.id == *message_id);
                if !known {
                    let (id, content) = (message_id.clone(), content.clone());
                    self.replayed.queued.push(QueuedMessage { id, kind: *kind, content });
                }
            }
            Event::MessageDelivered { message_id } => {
                let queued =
                    self.replayed.queued.iter().find(|queued| queued.id == *message_id).cloned();
                if let Some(queued) = queued
                    && self.deliver(message_id)
                {
                    self.history.user(queued.content);
                }
            }
            Event::ContextCompacted { history, .. } => self.history.replace(history),
            Event::ModelReply { message, .. } => {
                self.replayed.turns = self.replayed.turns.saturating_add(1);
                self.history.reply(message.clone());
            }
            _ => (),
        }
    }

    /// Takes a message out of the queue. `false` says that it entered the history before.
    fn deliver(&mut self, id: &MessageId) -> bool {
        self.replayed.queued.retain(|queued| queued.id != *id);
        self.delivered.insert(id.clone())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only calls matter")]
    fn call(&mut self, event: &Event) {
        match event {
            Event::ToolStarted { call_id, effect, .. } => self.history.start(call_id, *effect),
            Event::ToolCompleted { call_id, content, .. } => {
                self.history.end(call_id, content.clone(), false);
            }
            Event::ToolFailed { call_id, content, .. }
            | Event::ToolOutcomeUnknown { call_id, content, .. } => {
                self.history.end(call_id, content.clone(), true);
            }
            Event::HookFired { call_id: Some(call_id), output: Some(content), .. }
            | Event::HookFailed { call_id: Some(call_id), output: Some(content), .. } => {
                self.history.revise(call_id, content.clone());
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests;
