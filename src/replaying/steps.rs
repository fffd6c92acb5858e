//! What of a session must be the same when it runs again, and where two runs differ first.

use std::collections::{HashMap, HashSet};

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, MessageId, QuestionId, StopReason, Usage,
};
use posse_actors::event::{Event, StoredRecord};
use posse_actors::ledger::LOST_REPLY;
use serde::Serialize;

use crate::replaying::attempts::is_class;
use crate::replaying::questions::{self, RecordedQuestion};

/// Characters of each side of a difference that are shown.
const SHOWN_MAX: usize = 600;
/// Characters before a difference that are shown with it.
const CONTEXT: usize = 80;

/// Something that both runs must have, in this order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum ReplayStep {
    /// The user said something.
    User { content: Vec<ContentPart> },
    /// A model replied, to a history of so many messages.
    Reply {
        turn: u32,
        /// `None`: the history became shorter before, which it does not on the stage.
        #[serde(skip_serializing_if = "Option::is_none")]
        messages: Option<usize>,
        /// Who it was, if not the one of the session.
        #[serde(skip_serializing_if = "Option::is_none")]
        asked: Option<String>,
        message: AssistantMessage,
        stop_reason: StopReason,
        /// As it says itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// `None`: the record ends before.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// What had arrived of a reply that broke off.
    Partial { turn: u32, text: String, cause: String },
    /// An attempt failed, and another one follows.
    Retry { attempt: u32, class: String, cause: String, usage: Option<Usage> },
    /// Somebody else is asked from now on. `None`: the one of the session.
    Switch { to: Option<String>, class: String, cause: String, skipped: Vec<String> },
    /// Patience was over.
    Parked { class: String, cause: String },
    /// What the model got to read of a call, in the order of the calls.
    Result {
        call_id: CallId,
        name: String,
        content: Vec<ContentPart>,
        is_error: bool,
        /// What the user was asked before.
        #[serde(skip_serializing_if = "Option::is_none")]
        asked: Option<RecordedQuestion>,
    },
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
pub(crate) fn steps<'a>(records: impl IntoIterator<Item = &'a StoredRecord>) -> Vec<ReplayStep> {
    let mut fold = Fold::default();
    for record in records {
        let main = record.origin.as_ref().is_none_or(|o| o.parent_invocation_id.is_none());
        if main {
            fold.add(&record.event);
        }
    }
    fold.finish()
}

#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with one another")]
#[derive(Debug, Default)]
struct Fold {
    steps: Vec<ReplayStep>,
    /// The profile of the session, and who is asked, if that is another.
    home: String,
    asked: Option<String>,
    messages: Option<usize>,
    shortened: bool,
    /// What a failed attempt has cost.
    spent: Option<Usage>,
    questions: HashMap<QuestionId, CallId>,
    answers: HashMap<CallId, RecordedQuestion>,
    /// Calls of the last reply, in its order.
    calls: Vec<CallId>,
    results: HashMap<CallId, ReplayStep>,
    /// Messages that entered the history from the queue.
    delivered: HashSet<MessageId>,
    running: bool,
    /// It ends in a way that the stage does not know.
    unlike: bool,
    /// Nothing counts until it ends.
    muted: bool,
    /// More than one could be asked.
    switched: bool,
    /// One answers again: that is so when its reply is there.
    recovered: Option<ReplayStep>,
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
                self.push(ReplayStep::User { content: content.clone() });
            }
            // Nobody said anything: what had been asked goes on.
            Event::InvocationStarted { .. } => self.running = true,
            Event::SessionStarted { provider, .. } => self.home.clone_from(provider),
            Event::SessionResumed { with: Some(with), .. } => self.home.clone_from(&with.provider),
            Event::ModelRequest { messages, provider, .. } => {
                self.flush();
                self.messages = Some(*messages).filter(|_| !self.shortened);
                self.spent = None;
                self.asked = self.other(provider);
            }
            Event::ModelReply { turn, message, stop_reason, model } => {
                self.flush();
                if let Some(switch) = self.recovered.take() {
                    self.push(switch);
                }
                self.calls = message.tool_calls.iter().map(|call| call.id.clone()).collect();
                self.push(ReplayStep::Reply {
                    turn: *turn,
                    messages: self.messages,
                    asked: self.asked.clone(),
                    message: message.clone(),
                    stop_reason: *stop_reason,
                    model: model.clone(),
                    usage: None,
                });
            }
            Event::ToolCompleted { call_id, name, content, .. } => {
                self.result(call_id, name, content, false);
            }
            Event::ToolFailed { call_id, name, content, .. }
            | Event::ToolOutcomeUnknown { call_id, name, content, .. } => {
                self.result(call_id, name, content, true);
            }
            // Neither time nor a budget is on the stage.
            Event::LimitReached { limit, .. } => {
                self.unlike |= limit == "timeout" || limit.starts_with("budget.");
            }
            Event::InvocationCompleted { result, turns, usage } => {
                self.end("completed", Some(result.clone()), *turns, *usage);
            }
            Event::InvocationFailed { class, turns, usage, .. } => {
                let lost = matches!(
                    class.as_str(),
                    "crashed" | "journal" | "parked" | "broke_off" | "hook"
                );
                if lost || self.unlike {
                    self.open_end();
                } else {
                    self.end(&format!("failed: {class}"), None, *turns, *usage);
                }
            }
            Event::InvocationCancelled { turns, usage } => {
                self.end("cancelled", None, *turns, *usage);
            }
            event => self.tried(event),
        }
    }

    /// What became of attempts and questions.
    fn tried(&mut self, event: &Event) {
        match event {
            // What it was for is lost.
            Event::ModelUsage { billing: Some(billing), .. } if billing.outcome == LOST_REPLY => {}
            Event::ModelUsage { usage, billing, .. } => {
                let outcome = billing.as_deref().map(|billing| billing.outcome.as_str());
                let seen = billing.as_deref().and_then(|billing| billing.claimed).unwrap_or(*usage);
                match (outcome, self.steps.last_mut()) {
                    (Some("answered"), Some(ReplayStep::Reply { usage, .. })) => {
                        *usage = Some(seen)
                    }
                    (Some("answered") | None, _) => {}
                    (Some(_), _) => self.spent = Some(seen),
                }
            }
            Event::ModelPartial { turn, text, cause }
                if is_class(cause) || cause == "interrupted" =>
            {
                let (turn, text, cause) = (*turn, text.clone(), cause.clone());
                self.push(ReplayStep::Partial { turn, text, cause });
            }
            Event::ProviderRetry { attempt, class, cause, .. } => {
                let (attempt, class, cause) = (*attempt, class.clone(), cause.clone());
                let usage = self.spent.take();
                self.push(ReplayStep::Retry { attempt, class, cause, usage });
            }
            Event::ProviderFailover { to, class, cause, skipped, .. } => {
                let is_back = class == "recovered";
                let (to, class, cause) = (self.other(to), class.clone(), cause.clone());
                let switch = ReplayStep::Switch { to, class, cause, skipped: skipped.clone() };
                self.switched = true;
                if is_back {
                    self.recovered = Some(switch);
                } else {
                    self.push(switch);
                }
            }
            Event::SessionParked { class: Some(class), cause, .. } => {
                // When which of several is back the record does not say.
                if self.switched {
                    self.open_end();
                    self.muted = true;
                } else {
                    let (class, cause) = (class.clone(), cause.clone());
                    self.push(ReplayStep::Parked { class, cause });
                }
            }
            Event::ContextCompacted { cause, .. } => {
                self.shortened = true;
                if cause.as_deref() == Some("overflow") {
                    // It was asked again with less.
                    self.open_end();
                    self.muted = true;
                }
            }
            event => questions::hear(event, &mut self.questions, &mut self.answers),
        }
    }

    /// Who that is, if not the one of the session.
    fn other(&self, profile: &str) -> Option<String> {
        (profile != self.home).then(|| profile.to_owned())
    }

    /// A call has one result; what a hook made of it comes later, and counts.
    fn result(&mut self, call_id: &CallId, name: &str, content: &[ContentPart], is_error: bool) {
        let (name, content) = (name.to_owned(), content.to_vec());
        let asked = self.answers.get(call_id).cloned();
        let step = ReplayStep::Result { call_id: call_id.clone(), name, content, is_error, asked };
        self.results.insert(call_id.clone(), step);
    }

    fn flush(&mut self) {
        for call in std::mem::take(&mut self.calls) {
            if let Some(result) = self.results.remove(&call) {
                self.push(result);
            }
        }
        self.results.clear();
    }

    fn push(&mut self, step: ReplayStep) {
        if !self.muted {
            self.steps.push(step);
        }
    }

    fn end(&mut self, how: &str, result: Option<String>, turns: u32, usage: Usage) {
        self.flush();
        self.running = false;
        self.push(ReplayStep::End { how: how.to_owned(), result, turns, usage });
        self.muted = false;
    }

    fn open_end(&mut self) {
        self.flush();
        self.unlike = false;
        if std::mem::take(&mut self.running) {
            self.push(ReplayStep::Open);
        }
        self.muted = false;
    }

    fn finish(mut self) -> Vec<ReplayStep> {
        self.open_end();
        self.steps
    }
}

/// Where `replayed` differs from `recorded` first. After an open end of the record the new run
/// may go on to the end of that prompt.
pub(crate) fn difference(recorded: &[ReplayStep], replayed: &[ReplayStep]) -> Option<Difference> {
    let mut new = replayed.iter();
    for (at, old) in recorded.iter().enumerate() {
        if *old == ReplayStep::Open {
            let ends =
                |step: &&ReplayStep| matches!(step, ReplayStep::End { .. } | ReplayStep::Open);
            new.by_ref().find(ends);
            continue;
        }
        let next = new.next();
        if !next.is_some_and(|next| same(old, next)) {
            return Some(shown(at + 1, Some(old), next));
        }
    }
    new.next().map(|extra| shown(recorded.len() + 1, None, Some(extra)))
}

/// What the record does not say may be anything.
fn same(recorded: &ReplayStep, replayed: &ReplayStep) -> bool {
    let ReplayStep::Reply { usage: known_usage, messages: known_messages, .. } = recorded else {
        return recorded == replayed;
    };
    let mut replayed = replayed.clone();
    if let ReplayStep::Reply { usage, messages, .. } = &mut replayed {
        *usage = usage.filter(|_| known_usage.is_some());
        *messages = messages.filter(|_| known_messages.is_some());
    }
    *recorded == replayed
}

fn shown(step: usize, recorded: Option<&ReplayStep>, replayed: Option<&ReplayStep>) -> Difference {
    let text = |step: Option<&ReplayStep>| {
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
