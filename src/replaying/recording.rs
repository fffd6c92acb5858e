//! Extracts the external inputs of a session from its records: prompts, attempts at replies,
//! results of calls, permission answers, interruptions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use posse_actors::conversation::{
    CallId, ContentPart, Message as Said, MessageId, Prompt, QuestionId,
};
use posse_actors::event::{Event, MessageKind, StoredRecord};
use posse_actors::ports::ToolOutput;
use serde_json::Value;

use crate::replaying::attempts::{AttemptRecorder, RecordedModelRoute, RecordedPrompt};
use crate::replaying::questions::{self, RecordedQuestion};

/// External inputs of a session.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) agent: String,
    /// Models that the session could use, in the order in which the records first name them; the
    /// first is the session's own.
    pub(crate) contacts: Vec<RecordedModelRoute>,
    pub(crate) cwd: String,
    pub(crate) started_ms: u64,
    /// Names of all tools that the main agent could see in any of its runs.
    pub(crate) tools: Vec<String>,
    pub(crate) turns: Vec<RecordedPrompt>,
    /// Ids of the recorded tool calls, in the order of their creation.
    pub(crate) calls: VecDeque<CallId>,
    pub(crate) outcomes: HashMap<CallId, ToolOutput>,
    /// Permission requests, by call.
    pub(crate) asked: HashMap<CallId, RecordedQuestion>,
    /// Value of the setting `maxTurns` if a run reached it; otherwise `None`.
    pub(crate) turns_max: Option<u32>,
    /// True if a run with exhausted patience waited for the next attempt.
    pub(crate) waited_when_parked: bool,
    /// Messages that the user sent during a call, by call. The model got them after the call.
    pub(crate) user_messages: HashMap<CallId, Vec<Message>>,
    queued: HashMap<MessageId, (Message, Option<CallId>)>,
    questions: HashMap<QuestionId, CallId>,
    /// The most recently started call of the last reply, even if it has ended. `None`: none has
    /// started.
    running: Option<CallId>,
    /// History taken from the session that this one was forked from.
    pub(crate) history: Vec<Arc<Said>>,
    /// True while a run is in progress.
    open: bool,
}

/// A message that the user sent during a run: a steering message or a follow-up.
pub(crate) type Message = (MessageKind, Vec<ContentPart>);

impl Recording {
    /// Builds a recording. Records of subagents are ignored.
    pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a StoredRecord>) -> Recording {
        let mut recording = Recording::default();
        let mut listener = AttemptRecorder::default();
        for record in records {
            let main = record.origin.as_ref().is_none_or(|o| o.parent_invocation_id.is_none());
            if main {
                recording.add(record, &mut listener.turns);
                listener.apply(&record.event);
            }
        }
        (recording.turns, recording.contacts, recording.waited_when_parked) = listener.end();
        recording
    }

    fn add(&mut self, record: &StoredRecord, turns: &mut Vec<RecordedPrompt>) {
        match &record.event {
            Event::SessionStarted { cwd, agent, .. } => {
                (self.cwd, self.agent) = (cwd.clone(), agent.clone());
                self.started_ms = record.ts;
            }
            Event::InvocationStarted { tools, .. } => {
                // No message: a parked or interrupted run is continued.
                if !self.open && !turns.is_empty() {
                    turns.push(RecordedPrompt::of(None));
                }
                self.open = true;
                let new = tools.iter().filter(|name| !self.tools.contains(name));
                let new: Vec<String> = new.cloned().collect();
                self.tools.extend(new);
            }
            Event::UserMessage { content, message_id: None } => {
                let prompt = Prompt { content: content.clone() };
                turns.push(RecordedPrompt::of(Some(prompt)));
                self.open = true;
            }
            Event::MessageQueued { message_id, kind, content } => {
                let message = (*kind, content.clone());
                self.queued.insert(message_id.clone(), (message, self.running.clone()));
            }
            Event::MessageDelivered { message_id } => match self.queued.remove(message_id) {
                // Delivered earlier, it would keep the call from starting.
                Some((message, Some(call))) => {
                    self.user_messages.entry(call).or_default().push(message);
                }
                Some((message, None)) => {
                    if let Some(turn) = turns.last_mut() {
                        turn.add_user_message(message);
                    }
                }
                None => (),
            },
            Event::MessageWithdrawn { message_id } => {
                self.queued.remove(message_id);
            }
            Event::SessionForked { history, .. } => self.history.clone_from(history),
            Event::InvocationCompleted { .. }
            | Event::InvocationCancelled { .. }
            | Event::InvocationFailed { .. } => self.open = false,
            Event::LimitReached { limit, value, .. } if limit == "maxTurns" => {
                self.turns_max = u32::try_from(*value).ok();
            }
            event => self.on_output(event),
        }
    }

    /// Handles replies, starts and results of calls, and permission requests with their answers.
    fn on_output(&mut self, event: &Event) {
        match event {
            Event::ModelReply { message, .. } => {
                self.running = None;
                // Messages queued before this reply are delivered at its end.
                self.queued.values_mut().for_each(|(_, call)| *call = None);
                self.calls.extend(message.tool_calls.iter().map(|call| call.id.clone()));
            }
            Event::ToolStarted { call_id, .. } => self.running = Some(call_id.clone()),
            Event::ToolCompleted { call_id, content, metadata, .. } => {
                self.outcome(call_id, content, metadata, false);
            }
            Event::ToolFailed { call_id, content, metadata, .. } => {
                self.outcome(call_id, content, metadata, true);
            }
            Event::ToolOutcomeUnknown { call_id, content, .. } => {
                self.outcome(call_id, content, &Value::Null, true);
            }
            event => questions::apply(event, &mut self.questions, &mut self.asked),
        }
    }

    fn outcome(&mut self, id: &CallId, content: &[ContentPart], metadata: &Value, is_error: bool) {
        let output = ToolOutput { content: content.to_vec(), is_error, metadata: metadata.clone() };
        self.outcomes.insert(id.clone(), output);
    }
}
