//! A record taken apart into what the world did: prompts, replies, results, interruptions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use posse_actors::conversation::{CallId, ContentPart, Message as Said, MessageId, Prompt, Usage};
use posse_actors::event::{Event, MessageKind, StoredRecord};
use posse_actors::ports::{Completion, ToolOutput};
use serde_json::Value;

/// Everything that a session got from outside.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) agent: String,
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) cwd: String,
    pub(crate) started_ms: u64,
    /// Names of the tools that it saw: of every agent that it had.
    pub(crate) tools: Vec<String>,
    pub(crate) turns: Vec<Turn>,
    /// Ids of calls, in the order in which they were minted.
    pub(crate) calls: VecDeque<CallId>,
    pub(crate) outcomes: HashMap<CallId, ToolOutput>,
    /// `maxTurns`, if it was reached.
    pub(crate) turns_max: Option<u32>,
    /// What the user said while a call ran, and the model read after it.
    pub(crate) said: HashMap<CallId, Vec<Message>>,
    queued: HashMap<MessageId, (Message, Option<CallId>)>,
    /// The call of the last reply that started last.
    running: Option<CallId>,
    /// What the session took over from the one that it branched off.
    pub(crate) history: Vec<Arc<Said>>,
    /// A prompt is being worked on.
    open: bool,
}

/// Something that the user said meanwhile.
pub(crate) type Message = (MessageKind, Vec<ContentPart>);

/// One prompt, and what was answered to it.
#[derive(Debug)]
pub(crate) struct Turn {
    /// `None`: what was left unfinished went on.
    pub(crate) prompt: Option<Prompt>,
    pub(crate) replies: VecDeque<Reply>,
    /// How asking the model ended, if not with its last reply.
    pub(crate) failure: Option<String>,
}

/// A reply, and what the user said before the next one.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) completion: Completion,
    pub(crate) messages: Vec<Message>,
}

impl Turn {
    fn of(prompt: Option<Prompt>) -> Turn {
        Turn { prompt, replies: VecDeque::new(), failure: None }
    }
}

impl Recording {
    /// Takes records apart. Those of delegated invocations are not part of it.
    pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a StoredRecord>) -> Recording {
        let mut recording = Recording::default();
        for record in records {
            let main = record.origin.as_ref().is_none_or(|o| o.parent_invocation_id.is_none());
            if main {
                recording.add(record);
            }
        }
        recording
    }

    fn add(&mut self, record: &StoredRecord) {
        match &record.event {
            Event::SessionStarted { cwd, agent, provider, model, .. } => {
                (self.cwd, self.agent) = (cwd.clone(), agent.clone());
                (self.provider, self.model) = (provider.clone(), model.clone());
                self.started_ms = record.ts;
            }
            Event::InvocationStarted { tools, .. } => {
                // Nobody said anything: what was parked or interrupted went on.
                if !self.open && !self.turns.is_empty() {
                    self.turns.push(Turn::of(None));
                }
                self.open = true;
                let new = tools.iter().filter(|name| !self.tools.contains(name));
                let new: Vec<String> = new.cloned().collect();
                self.tools.extend(new);
            }
            Event::UserMessage { content, message_id: None } => {
                let prompt = Prompt { content: content.clone() };
                self.turns.push(Turn::of(Some(prompt)));
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
                    if let Some(reply) = self.last_reply() {
                        reply.messages.push(message);
                    }
                }
                None => (),
            },
            Event::MessageWithdrawn { message_id } => {
                self.queued.remove(message_id);
            }
            Event::SessionForked { history, .. } => self.history.clone_from(history),
            Event::InvocationCompleted { .. } | Event::InvocationCancelled { .. } => {
                self.open = false;
            }
            Event::InvocationFailed { class, .. } => {
                self.open = false;
                if let Some(turn) = self.turns.last_mut() {
                    turn.failure = Some(class.clone());
                }
            }
            Event::LimitReached { limit, value, .. } if limit == "maxTurns" => {
                self.turns_max = u32::try_from(*value).ok();
            }
            event => self.heard(event),
        }
    }

    /// What a model or a tool said.
    fn heard(&mut self, event: &Event) {
        match event {
            Event::ModelReply { message, stop_reason, model, .. } => {
                self.running = None;
                // What has waited since before this reply waits for its end.
                self.queued.values_mut().for_each(|(_, call)| *call = None);
                let mut message = message.clone();
                for call in &mut message.tool_calls {
                    let theirs = call.provider_id.take().unwrap_or_default();
                    let ours = std::mem::replace(&mut call.id, CallId::new(theirs));
                    self.calls.push_back(ours);
                }
                let completion = Completion {
                    message,
                    stop_reason: *stop_reason,
                    usage: None,
                    model: model.clone(),
                };
                if let Some(turn) = self.turns.last_mut() {
                    turn.replies.push_back(Reply { completion, messages: Vec::new() });
                }
            }
            Event::ModelUsage { usage, billing, .. } => {
                // What broke off is no part of the reply before it.
                let answered =
                    billing.as_deref().is_none_or(|billing| billing.outcome == "answered");
                if answered && let Some(reply) = self.last_reply() {
                    let known = reply.completion.usage.get_or_insert_with(Usage::default);
                    known.add(usage);
                }
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
            _ => (),
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

    fn last_reply(&mut self) -> Option<&mut Reply> {
        self.turns.last_mut()?.replies.back_mut()
    }
}
