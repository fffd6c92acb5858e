//! A record taken apart into what the world did: prompts, attempts at replies, results, answers to
//! questions, interruptions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use posse_actors::conversation::{
    CallId, ContentPart, Message as Said, MessageId, Prompt, QuestionId,
};
use posse_actors::event::{Event, MessageKind, StoredRecord};
use posse_actors::ports::ToolOutput;
use serde_json::Value;

use crate::replaying::attempts::{Contact, Listener, RecordedPrompt};
use crate::replaying::questions::{self, RecordedQuestion};

/// Everything that a session got from outside.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) agent: String,
    /// Who could be asked, in the order in which they were; the first is the one of the session.
    pub(crate) contacts: Vec<Contact>,
    pub(crate) cwd: String,
    pub(crate) started_ms: u64,
    /// Names of the tools that it saw: of every agent that it had.
    pub(crate) tools: Vec<String>,
    pub(crate) turns: Vec<RecordedPrompt>,
    /// Ids of calls, in the order in which they were minted.
    pub(crate) calls: VecDeque<CallId>,
    pub(crate) outcomes: HashMap<CallId, ToolOutput>,
    /// What the user was asked before a call ran.
    pub(crate) asked: HashMap<CallId, RecordedQuestion>,
    /// `maxTurns`, if it was reached.
    pub(crate) turns_max: Option<u32>,
    /// A run that was out of patience waited for its next try.
    pub(crate) outwaits: bool,
    /// What the user said while a call ran, and the model read after it.
    pub(crate) said: HashMap<CallId, Vec<Message>>,
    queued: HashMap<MessageId, (Message, Option<CallId>)>,
    questions: HashMap<QuestionId, CallId>,
    /// The call of the last reply that started last.
    running: Option<CallId>,
    /// What the session took over from the one that it branched off.
    pub(crate) history: Vec<Arc<Said>>,
    /// A prompt is being worked on.
    open: bool,
}

/// Something that the user said meanwhile.
pub(crate) type Message = (MessageKind, Vec<ContentPart>);

impl Recording {
    /// Takes records apart. Those of delegated invocations are not part of it.
    pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a StoredRecord>) -> Recording {
        let mut recording = Recording::default();
        let mut listener = Listener::default();
        for record in records {
            let main = record.origin.as_ref().is_none_or(|o| o.parent_invocation_id.is_none());
            if main {
                recording.add(record);
                listener.hear(&record.event, &mut recording.turns);
            }
        }
        (recording.contacts, recording.outwaits) = listener.end(&mut recording.turns);
        recording
    }

    fn add(&mut self, record: &StoredRecord) {
        match &record.event {
            Event::SessionStarted { cwd, agent, .. } => {
                (self.cwd, self.agent) = (cwd.clone(), agent.clone());
                self.started_ms = record.ts;
            }
            Event::InvocationStarted { tools, .. } => {
                // Nobody said anything: what was parked or interrupted went on.
                if !self.open && !self.turns.is_empty() {
                    self.turns.push(RecordedPrompt::of(None));
                }
                self.open = true;
                let new = tools.iter().filter(|name| !self.tools.contains(name));
                let new: Vec<String> = new.cloned().collect();
                self.tools.extend(new);
            }
            Event::UserMessage { content, message_id: None } => {
                let prompt = Prompt { content: content.clone() };
                self.turns.push(RecordedPrompt::of(Some(prompt)));
                self.open = true;
            }
            Event::MessageQueued { message_id, kind, content } => {
                let message = (*kind, content.clone());
                self.queued.insert(message_id.clone(), (message, self.running.clone()));
            }
            Event::MessageDelivered { message_id } => match self.queued.remove(message_id) {
                // Earlier, it would keep the call from starting.
                Some((message, Some(call))) => self.said.entry(call).or_default().push(message),
                Some((message, None)) => {
                    if let Some(turn) = self.turns.last_mut() {
                        turn.say(message);
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
            event => self.heard(event),
        }
    }

    /// What a model, a tool or a person at a question said.
    fn heard(&mut self, event: &Event) {
        match event {
            Event::ModelReply { message, .. } => {
                self.running = None;
                // What has waited since before this reply waits for its end.
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
            event => questions::hear(event, &mut self.questions, &mut self.asked),
        }
    }

    fn outcome(&mut self, id: &CallId, content: &[ContentPart], metadata: &Value, is_error: bool) {
        let output = ToolOutput {
            content: content.to_vec(),
            is_error,
            metadata: metadata.clone(),
            duration: std::time::Duration::ZERO,
        };
        self.outcomes.insert(id.clone(), output);
    }
}
