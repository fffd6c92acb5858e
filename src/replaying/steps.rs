//! Steps of a session that must be the same in its replay, and the first difference between both.

use std::collections::{HashMap, HashSet};

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, MessageId, QuestionId, StopReason, Usage,
};
use posse_actors::event::{CompactionCause, Event, StoredRecord};
use posse_actors::ledger::LOST_REPLY;
use serde::Serialize;

use crate::replaying::attempts::is_class;
use crate::replaying::questions::{self, RecordedQuestion};

/// Maximum characters shown of each side of a difference, without the `…` at a cut.
const SHOWN_MAX: usize = 600;
/// Number of equal characters shown before a difference, if more than half of [`SHOWN_MAX`] precede
/// it. Otherwise all are shown.
const CONTEXT: usize = 80;

/// Step of a session. The replay must have the same steps in the same order.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum ReplayStep {
    /// A message of the user: a prompt, or a delivered steering message or follow-up.
    User { content: Vec<ContentPart> },
    /// A reply of a model.
    Reply {
        turn: u32,
        /// Number of messages in the request. `None`: the history had been compacted, which a
        /// replay does not do.
        messages: Option<usize>,
        /// Profile of the model that replied. `None`: the session's own model.
        asked: Option<String>,
        message: AssistantMessage,
        stop_reason: StopReason,
        /// Model name as reported by the provider.
        model: Option<String>,
        /// Usage of the attempt that gave the reply. `None`: the journal does not contain it.
        usage: Option<Usage>,
    },
    /// Partial output of a reply that broke off or was interrupted.
    Partial { turn: u32, text: String, cause: String },
    /// A failed attempt that is retried with the same model.
    Retry { attempt: u32, class: String, cause: String, usage: Option<Usage> },
    /// Switch to the model with the profile `to`. `None`: to the session's own model.
    Switch { to: Option<String>, class: String, cause: String, skipped: Vec<String> },
    /// The run was parked: patience was exhausted.
    Parked { class: String, cause: String },
    /// Result of a call as given to the model. Results are in the order of the calls.
    Result {
        call_id: CallId,
        name: String,
        content: Vec<ContentPart>,
        is_error: bool,
        /// Permission request before the call. `None`: there was none.
        asked: Option<RecordedQuestion>,
    },
    /// End of a run, with the total usage of the run.
    End { how: String, result: Option<String>, turns: u32, usage: Usage },
    /// Open end of a run: the process died, or the run ended in a way that a replay cannot
    /// reproduce, such as a time limit.
    Open,
}

/// First difference between a recorded session and its replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    /// Number of the step, from 1.
    pub(crate) step: usize,
    /// JSON text of the recorded step, shortened; or a text that says that there is none.
    pub(crate) recorded: String,
    /// JSON text of the step in the replay, shortened; or a text that says that there is none.
    pub(crate) replayed: String,
}

/// Folds records into steps. Records of subagents are ignored.
pub(crate) fn steps<'a>(records: impl IntoIterator<Item = &'a StoredRecord>) -> Vec<ReplayStep> {
    Fold::of(records).steps
}

/// Number of steps of the main agent that [`steps`] leaves out because a replay cannot reproduce
/// them.
pub(crate) fn skipped(records: &[StoredRecord]) -> usize {
    Fold::of(records).skipped
}

#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with one another")]
#[derive(Debug, Default)]
struct Fold {
    steps: Vec<ReplayStep>,
    /// Number of steps that were left out because of `ignoring`.
    skipped: usize,
    /// Provider profile of the session's own model.
    home: String,
    /// Profile of the model that the session asks at this record. `None`: the session's own model.
    asked: Option<String>,
    messages: Option<usize>,
    shortened: bool,
    /// Usage of the last failed attempt, until it becomes part of a `Retry` step. `None`: none has
    /// failed since the last request.
    spent: Option<Usage>,
    questions: HashMap<QuestionId, CallId>,
    answers: HashMap<CallId, RecordedQuestion>,
    /// Calls of the last reply whose results are not steps yet, in order.
    calls: Vec<CallId>,
    results: HashMap<CallId, ReplayStep>,
    /// Ids of the queued messages that were delivered. A second record of one is ignored.
    delivered: HashSet<MessageId>,
    running: bool,
    /// True if the run ends in a way that a replay cannot reproduce.
    not_reproducible: bool,
    /// True if no steps are added until the run ends.
    ignoring: bool,
    /// True if the session has switched its model at least once, by a failover or back from one.
    switched: bool,
    /// Step for the switch back to a model that has recovered. Added before the next reply.
    recovered: Option<ReplayStep>,
}

impl Fold {
    fn of<'a>(records: impl IntoIterator<Item = &'a StoredRecord>) -> Fold {
        let mut fold = Fold::default();
        for record in records {
            let main = record.origin.as_ref().is_none_or(|o| o.parent_invocation_id.is_none());
            if main {
                fold.add(&record.event);
            }
        }
        fold.open_end();
        fold
    }

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
            // No message: an earlier request is continued.
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
            // A replay has neither time limits nor a budget.
            Event::LimitReached { limit, .. } => {
                self.not_reproducible |= limit == "timeout" || limit.starts_with("budget.");
            }
            Event::InvocationCompleted { result, turns, usage } => {
                self.end("completed", Some(result.clone()), *turns, *usage);
            }
            Event::InvocationFailed { class, turns, usage, .. } => {
                let lost = matches!(
                    class.as_str(),
                    "crashed" | "journal" | "parked" | "broke_off" | "hook"
                );
                if lost || self.not_reproducible {
                    self.open_end();
                } else {
                    self.end(&format!("failed: {class}"), None, *turns, *usage);
                }
            }
            Event::InvocationCancelled { turns, usage } => {
                self.end("cancelled", None, *turns, *usage);
            }
            event => self.on_attempt(event),
        }
    }

    /// Handles events about attempts and permission requests.
    fn on_attempt(&mut self, event: &Event) {
        match event {
            // The purpose of the request without a reply is not recorded.
            Event::ModelUsage { billing: Some(billing), .. } if billing.outcome == LOST_REPLY => {}
            Event::ModelUsage { usage, billing, .. } => {
                let outcome = billing.as_deref().map(|billing| billing.outcome.as_str());
                let seen = billing.as_deref().and_then(|billing| billing.claimed).unwrap_or(*usage);
                match (outcome, self.steps.last_mut()) {
                    (Some("answered"), Some(ReplayStep::Reply { usage, .. })) => {
                        *usage = Some(seen);
                    }
                    (Some("answered") | None, _) => {}
                    (Some(_), _) => self.spent = Some(seen),
                }
            }
            Event::ModelPartial { turn, text, cause, .. }
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
                // The journal does not contain which of several models recovers first.
                if self.switched {
                    self.open_end();
                    self.ignoring = true;
                } else {
                    let (class, cause) = (class.clone(), cause.clone());
                    self.push(ReplayStep::Parked { class, cause });
                }
            }
            Event::ContextCompacted { cause, .. } => {
                self.shortened = true;
                if *cause == Some(CompactionCause::Overflow) {
                    // Retried with a smaller request.
                    self.open_end();
                    self.ignoring = true;
                }
            }
            event => questions::apply(event, &mut self.questions, &mut self.answers),
        }
    }

    /// Returns `profile`, or `None` if it is that of the session.
    fn other(&self, profile: &str) -> Option<String> {
        (profile != self.home).then(|| profile.to_owned())
    }

    /// Records the result of a call. A call has one result: a later one, which a hook changed,
    /// replaces the earlier one.
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
        if self.ignoring {
            self.skipped += 1;
        } else {
            self.steps.push(step);
        }
    }

    fn end(&mut self, how: &str, result: Option<String>, turns: u32, usage: Usage) {
        self.flush();
        self.running = false;
        self.push(ReplayStep::End { how: how.to_owned(), result, turns, usage });
        self.ignoring = false;
    }

    fn open_end(&mut self) {
        self.flush();
        self.not_reproducible = false;
        if std::mem::take(&mut self.running) {
            self.push(ReplayStep::Open);
        }
        self.ignoring = false;
    }
}

/// First difference of `replayed` from `recorded`; `None` without a difference. After an open end
/// of a recorded run, the replay may continue to the end of that run.
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

/// True if two steps are the same. Values that were not recorded match any value.
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
