//! What of a session must be the same when it runs again, and where two runs differ first.

use std::collections::{HashMap, HashSet};

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, MessageId, StopReason, Usage,
};
use posse_actors::event::{Event, StoredRecord};
use serde::Serialize;

/// Characters of each side of a difference that are shown.
const SHOWN_MAX: usize = 600;
/// Characters before a difference that are shown with it.
const CONTEXT: usize = 80;

/// Something that both runs must have, in this order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum Step {
    /// The user said something.
    User { content: Vec<ContentPart> },
    /// The model replied, to a history of so many messages.
    Reply { turn: u32, messages: usize, message: AssistantMessage, stop_reason: StopReason },
    /// What the model got to read of a call, in the order of the calls.
    Result { call_id: CallId, name: String, content: Vec<ContentPart>, is_error: bool },
    /// A prompt was done with.
    End { how: String, result: Option<String>, turns: u32, usage: Usage },
    /// The record of a prompt ends without saying how: time ran out, or the process did.
    Open,
}

/// Where two runs differ first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    /// Which step, from 1.
    pub(crate) step: usize,
    /// That step of the record.
    pub(crate) recorded: String,
    /// The same step of the new run.
    pub(crate) replayed: String,
}

/// Folds records into steps.
pub(crate) fn steps<'a>(records: impl IntoIterator<Item = &'a StoredRecord>) -> Vec<Step> {
    let mut fold = Fold::default();
    for record in records {
        let main = record.origin.as_ref().is_none_or(|o| o.parent_invocation_id.is_none());
        if main {
            fold.add(&record.event);
        }
    }
    fold.finish()
}

#[derive(Debug, Default)]
struct Fold {
    steps: Vec<Step>,
    messages: usize,
    /// Calls of the last reply, in its order.
    calls: Vec<CallId>,
    results: HashMap<CallId, Step>,
    /// Messages that entered the history from the queue.
    delivered: HashSet<MessageId>,
    running: bool,
    timed_out: bool,
}

impl Fold {
    fn add(&mut self, event: &Event) {
        match event {
            Event::UserMessage { content, message_id } => {
                match message_id {
                    Some(id) if !self.delivered.insert(id.clone()) => return,
                    Some(_) => self.flush(),
                    None => self.open_end(),
                }
                self.running = true;
                self.steps.push(Step::User { content: content.clone() });
            }
            Event::ModelRequest { messages, .. } => self.messages = *messages,
            Event::ModelReply { turn, message, stop_reason, .. } => {
                self.flush();
                self.calls = message.tool_calls.iter().map(|call| call.id.clone()).collect();
                self.steps.push(Step::Reply {
                    turn: *turn,
                    messages: self.messages,
                    message: message.clone(),
                    stop_reason: *stop_reason,
                });
            }
            Event::ToolCompleted { call_id, name, content, .. } => {
                self.result(call_id, name, content, false);
            }
            Event::ToolFailed { call_id, name, content, .. }
            | Event::ToolOutcomeUnknown { call_id, name, content, .. } => {
                self.result(call_id, name, content, true);
            }
            Event::LimitReached { limit, .. } => self.timed_out |= limit == "timeout",
            Event::InvocationCompleted { result, turns, usage } => {
                self.end("completed", Some(result.clone()), *turns, *usage);
            }
            Event::InvocationFailed { class, turns, usage, .. } => {
                let lost = matches!(class.as_str(), "crashed" | "journal" | "parked" | "broke_off");
                if lost || self.timed_out {
                    self.open_end();
                } else {
                    self.end(&format!("failed: {class}"), None, *turns, *usage);
                }
            }
            Event::InvocationCancelled { turns, usage } => {
                self.end("cancelled", None, *turns, *usage);
            }
            _ => (),
        }
    }

    /// A call has one result; what a hook made of it comes later, and counts.
    fn result(&mut self, call_id: &CallId, name: &str, content: &[ContentPart], is_error: bool) {
        let (name, content) = (name.to_owned(), content.to_vec());
        let step = Step::Result { call_id: call_id.clone(), name, content, is_error };
        self.results.insert(call_id.clone(), step);
    }

    fn flush(&mut self) {
        for call in std::mem::take(&mut self.calls) {
            self.steps.extend(self.results.remove(&call));
        }
        self.results.clear();
    }

    fn end(&mut self, how: &str, result: Option<String>, turns: u32, usage: Usage) {
        self.flush();
        self.running = false;
        self.steps.push(Step::End { how: how.to_owned(), result, turns, usage });
    }

    fn open_end(&mut self) {
        self.flush();
        self.timed_out = false;
        if std::mem::take(&mut self.running) {
            self.steps.push(Step::Open);
        }
    }

    fn finish(mut self) -> Vec<Step> {
        self.open_end();
        self.steps
    }
}

/// Where `replayed` differs from `recorded` first. After an open end of the record the new run
/// may go on to the end of that prompt.
pub(crate) fn difference(recorded: &[Step], replayed: &[Step]) -> Option<Difference> {
    let mut new = replayed.iter();
    for (at, old) in recorded.iter().enumerate() {
        if *old == Step::Open {
            let ends = |step: &&Step| matches!(step, Step::End { .. } | Step::Open);
            new.by_ref().find(ends);
            continue;
        }
        let next = new.next();
        if next != Some(old) {
            return Some(shown(at + 1, Some(old), next));
        }
    }
    new.next().map(|extra| shown(recorded.len() + 1, None, Some(extra)))
}

fn shown(step: usize, recorded: Option<&Step>, replayed: Option<&Step>) -> Difference {
    let text = |step: Option<&Step>| {
        step.map_or_else(
            || "nothing more".to_owned(),
            |step| serde_json::to_string(step).unwrap_or_default(),
        )
    };
    let (recorded, replayed) = (text(recorded), text(replayed));
    let same = recorded.chars().zip(replayed.chars()).take_while(|(a, b)| a == b).count();
    let from = if same > SHOWN_MAX / 2 { same - CONTEXT } else { 0 };
    Difference { step, recorded: excerpt(&recorded, from), replayed: excerpt(&replayed, from) }
}

fn excerpt(text: &str, from: usize) -> String {
    let begin = if from > 0 { "…" } else { "" };
    let part: String = text.chars().skip(from).take(SHOWN_MAX).collect();
    let more = text.chars().nth(from + SHOWN_MAX).is_some();
    format!("{begin}{part}{}", if more { "…" } else { "" })
}
