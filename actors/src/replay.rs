//! Fold: rebuilds the history from records, deterministic and without a clock.
//!
//! For every prefix of a session's records the resulting messages are valid for a provider: every
//! call has exactly one result, right after the reply that requested it, in the order of the calls.

mod delegated;
mod history;
mod own_call;
mod seen;
mod unknown_outcome;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::{
    CallId, ContentPart, InvocationId, Message, MessageId, QuestionId, ToolCall, Usage,
};
use crate::cost::Budget;
use crate::delegation::{ActionLog, Forget};
use crate::event::{
    Branch, Event, Grant, JobEnd, MessageKind, Origin, RecordId, ResumedConfig, SandboxTier, Scope,
    StartedCall, StoredRecord,
};
use crate::ledger::{Accounts, LOST_REPLY};
use crate::outcome::Memories;

use history::FoldedHistory;

pub use own_call::OpenOwnCall;

pub use delegated::Delegated;
pub use unknown_outcome::LOST;

/// Result for the model of a call that was requested and never started.
pub const NOT_RUN: &str = "This call was not run: the session broke off before it started.";
/// Result for the model of a call that started and has no recorded end.
pub const OUTCOME_UNKNOWN: &str = "The session broke off while this call was running. Whether it \
     took effect is not known. Look before doing it again.";
/// Result for the model of a call without side effects that started and has no recorded end.
pub const CUT_OFF: &str = "The session broke off while this call was running. It changes nothing, \
     so it can be made again.";

/// Result for the model of a call whose subagent was running, without further data.
pub const AGENT_CUT_OFF: &str = "The session broke off while an agent worked on this call. What it \
     did until then is not known here. Look at how things are before it is done again.";

/// State of a session according to its records.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// The history of the invocation: always valid.
    pub messages: Vec<Arc<Message>>,
    /// Calls of the last reply that have no recorded end, in the model's order.
    pub open_calls: Vec<OpenCall>,
    /// Open permission requests, oldest first.
    pub open_questions: Vec<OpenQuestion>,
    /// Grants that hold until the session ends.
    pub grants: Vec<Grant>,
    /// Messages that wait for a safe point, oldest first.
    pub queued: Vec<QueuedInput>,
    /// Tokens of the invocation, or of the whole session if none was named.
    pub usage: Usage,
    /// Spending of the whole session.
    pub accounts: Accounts,
    /// Replies in the history.
    pub turns: u32,
    /// Number of the last record, 0 if there was none.
    pub last_record: u64,
    /// Reason of the end, if the session ended and was not resumed.
    pub ended: Option<String>,
    /// Configuration of the last start, if its record exists.
    pub started: Option<StartedWith>,
    /// Original session, if this is a fork.
    pub forked_from: Option<Branch>,
    /// The main invocation that started last.
    pub last: Option<LastInvocation>,
    /// Reason why the session is parked, if it is.
    pub parked: Option<Parked>,
    /// Call of the user that the model does not know yet.
    #[serde(default)]
    pub own_call: Option<OpenOwnCall>,
    /// Background jobs that died with their process before their agent was informed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<LostJob>,
    /// Subagents in the order of their start, of the whole session.
    pub delegated: Vec<Delegated>,
    /// Memory of subagents inherited by a fork.
    #[serde(default, skip_serializing_if = "Memories::is_empty")]
    pub inherited: Memories,
    /// Actions of the invocation's calls. For a single invocation only.
    #[serde(default, rename = "deeds")]
    pub actions: ActionLog,
    /// Title, if a model has written one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The messages begin at a compaction instead of the start of the invocation.
    #[serde(default)]
    pub compacted: bool,
}

/// A background command that ended with its process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LostJob {
    /// The call that started it.
    pub call_id: CallId,
    /// Its origin.
    pub origin: Option<Arc<Origin>>,
    /// Summary in one line.
    pub summary: String,
    /// True if its end is recorded: it was stopped with the session.
    pub ended: bool,
}

/// The main invocation that started last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastInvocation {
    /// Origin of the run.
    pub origin: Arc<Origin>,
    /// Number of messages before it.
    pub base: usize,
    /// Its replies.
    pub turns: u32,
    /// Their tokens.
    pub usage: Usage,
    /// Names of the tools it sees. `None`: its start was not recorded.
    pub tools: Option<Vec<String>>,
    /// `completed`, `cancelled`, or the class of its failure. `None`: it did not end.
    pub ended: Option<String>,
}

/// Reason why a session is parked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// Cause.
    pub cause: String,
    /// Earliest useful time for another attempt, in milliseconds since 1970, if known.
    pub next_try_ms: Option<u64>,
}

/// Configuration of a start or resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedWith {
    /// Agent of the main invocation.
    pub agent: String,
    /// The provider profile.
    pub provider: String,
    /// The model.
    pub model: String,
    /// `single-agent` or `multi-agent`.
    pub mode: String,
    /// The working directory.
    pub cwd: String,
    /// Sandbox tier; `Unknown` with an empty text if not recorded.
    pub tier: SandboxTier,
    /// Hash of the instructions; empty if not recorded.
    pub instructions: String,
    /// Budget, if set for this session.
    pub budget: Budget,
}

/// A call without a recorded end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The call, as the model wrote it.
    pub call: ToolCall,
    /// True if it was announced.
    pub requested: bool,
    /// True if its intent was recorded. If not, it had no effect yet.
    pub started: bool,
    /// True if it has effects outside posse, or starts an agent that has; known once it has
    /// started.
    pub effect: bool,
    /// Description and start time; known once it has started.
    pub begun: Option<StartedCall>,
    /// Hash that a person or `--yes` approved, if any.
    pub approved: Option<String>,
    /// Index of its synthetic result in the messages.
    pub message: usize,
}

/// Permission request without an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Its id: it is shown again under the same id.
    pub request_id: QuestionId,
    /// Its origin.
    pub origin: Option<Arc<Origin>>,
    /// The call.
    pub call_id: CallId,
    /// Summary in one line.
    pub summary: String,
    /// Hash of the effect in question.
    pub digest: String,
}

/// A message that waits for the next safe point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedInput {
    /// Its id.
    pub id: MessageId,
    /// Time of delivery.
    pub kind: MessageKind,
    /// Text and images.
    pub content: Vec<ContentPart>,
}

impl QueuedInput {
    /// Record of the queued message.
    pub(crate) fn event(&self) -> Event {
        let QueuedInput { id, kind, content } = self.clone();
        Event::MessageQueued { message_id: id, kind, content }
    }
}

impl OpenCall {
    /// Replaces its synthetic result by `text`.
    fn set_result(&self, messages: &mut [Arc<Message>], text: impl Into<String>) {
        if let Some(place) = messages.get_mut(self.message) {
            *place = Arc::new(Message::Tool {
                tool_call_id: self.call.id.clone(),
                name: self.call.name.clone(),
                content: vec![ContentPart::text(text)],
                is_error: true,
            });
        }
    }
}

impl StartedWith {
    fn resumed_with(&mut self, with: &ResumedConfig) {
        let ResumedConfig { posse: _, cwd, agent, provider, model, tier, instructions, budget } =
            with;
        self.cwd.clone_from(cwd);
        self.agent.clone_from(agent);
        self.provider.clone_from(provider);
        self.model.clone_from(model);
        self.tier.clone_from(tier);
        self.instructions.clone_from(instructions);
        self.budget = *budget;
    }
}

impl Replayed {
    /// True if there is unfinished work that needs no new prompt: an interrupted run, a missing
    /// reply, a queued message of the user, or a background subagent that was running. Background
    /// work that has ended meanwhile is reported with the next prompt and starts nothing.
    pub fn is_unfinished(&self) -> bool {
        let broke_off = self.last.as_ref().is_some_and(|last| last.ended.is_none());
        let waits = self.messages.last().is_some_and(|last| awaits_answer(last));
        let beside = self.delegated.iter().any(Delegated::runs_in_background);
        let asks = |queued: &QueuedInput| {
            matches!(queued.kind, MessageKind::Steer | MessageKind::FollowUp)
        };
        let waiting = self.queued.iter().any(asks);
        (broke_off && !self.messages.is_empty()) || waits || waiting || beside
    }
}

impl Replayed {
    /// Adds the state of subagents to the results of their calls.
    fn describe_subagents(&mut self) {
        for open in self.open_calls.iter().filter(|open| open.started) {
            let theirs = |one: &&Delegated| one.called_by_main() && one.call_id == open.call.id;
            let Some(agent) = self.delegated.iter().rev().find(theirs) else { continue };
            open.set_result(&mut self.messages, agent.cut_off());
        }
    }
}

/// True if the model must answer `message`.
pub(crate) fn awaits_answer(message: &Message) -> bool {
    match message {
        Message::User { .. } | Message::Tool { .. } => true,
        Message::Assistant(said) => !said.tool_calls.is_empty(),
        Message::System { .. } => false,
    }
}

/// Folds `records`, oldest first, into the history of `invocation`; of the main one if `None`.
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

/// Incremental fold, for a journal that is read in pages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Replay {
    invocation: Option<InvocationId>,
    #[serde(with = "seen")]
    seen: HashSet<RecordId>,
    history: FoldedHistory,
    questions: BTreeMap<u64, OpenQuestion>,
    /// Messages that entered the history, queued before or not.
    delivered: HashSet<MessageId>,
    /// Process and time of the last record.
    written: Option<(u32, u64)>,
    replayed: Replayed,
}

/// Memory inherited from the original session of a fork.
#[expect(clippy::wildcard_enum_match_arm, reason = "only these are about it")]
fn inherit(inherited: &mut Memories, event: &Event) {
    match event {
        Event::SessionForked { memories, .. } => inherited.clone_from(memories),
        Event::MemoryForgotten { agent } => {
            inherited.forget(&agent.clone().map_or(Forget::Everything, Forget::Of));
        }
        _ => (),
    }
}

impl Replay {
    /// Version of the serialised fold state. It changes when the same records lead to another
    /// result.
    pub const VERSION: u32 = 3;

    /// Creates an empty fold for `invocation` or the main one.
    pub fn new(invocation: Option<InvocationId>) -> Replay {
        Replay { invocation, ..Replay::default() }
    }

    /// Spending so far.
    pub fn accounts(&self) -> &Accounts {
        &self.replayed.accounts
    }

    /// Adds the next record. A record with a known id is ignored.
    pub fn push(&mut self, record: &StoredRecord) {
        self.replayed.last_record = self.replayed.last_record.max(record.record);
        if !self.seen.insert(record.id) {
            return;
        }
        self.replayed.accounts.push(record);
        self.session(&record.event);
        self.question(record);
        self.job(record);
        if self.own_call(record) {
            return;
        }
        if self.invocation.is_none() {
            if let Some((process, ts)) = self.written.replace((record.id.process, record.ts))
                && process != record.id.process
            {
                delegated::end_process(&mut self.replayed.delegated, ts);
            }
            let cwd = self.replayed.started.as_ref().map_or("", |started| &started.cwd);
            delegated::follow(&mut self.replayed.delegated, cwd, record);
            inherit(&mut self.replayed.inherited, &record.event);
        }
        let ours = self.is_ours(record.origin.as_deref());
        if let Event::ModelUsage { usage, .. } = &record.event
            && (ours || self.invocation.is_none())
        {
            self.replayed.usage.add(usage);
        }
        // Its invocation is unknown: it starts none.
        if let Event::ModelUsage { billing: Some(billing), .. } = &record.event
            && billing.outcome == LOST_REPLY
        {
            return;
        }
        if ours {
            if let Some(origin) = &record.origin {
                self.track(origin, &record.event);
            }
            self.message(&record.event);
            self.call(&record.event, record.ts);
            if self.invocation.is_some() {
                self.replayed.actions.follow(&record.event);
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only beginnings and ends matter")]
    fn track(&mut self, origin: &Arc<Origin>, event: &Event) {
        let same = |last: &LastInvocation| last.origin.invocation_id == origin.invocation_id;
        if !self.replayed.last.as_ref().is_some_and(same) {
            // Late events about background work of an earlier run do not start it again.
            if matches!(
                event,
                Event::DelegationEnded { .. }
                    | Event::MessageQueued { .. }
                    | Event::JobEnded { .. }
            ) {
                return;
            }
            self.replayed.last = Some(LastInvocation {
                origin: Arc::clone(origin),
                base: self.history.len(),
                turns: 0,
                usage: Usage::default(),
                tools: None,
                ended: None,
            });
        }
        let Some(last) = &mut self.replayed.last else { return };
        match event {
            // Also for a resumed subagent, which has a new run.
            Event::InvocationStarted { tools, .. } => {
                last.tools = Some(tools.clone());
                (last.turns, last.usage, last.ended) = (0, Usage::default(), None);
            }
            Event::ModelReply { .. } => last.turns = last.turns.saturating_add(1),
            Event::ModelUsage { usage, .. } => last.usage.add(usage),
            Event::InvocationCompleted { .. } => last.ended = Some("completed".to_owned()),
            Event::InvocationFailed { class, .. } => last.ended = Some(class.clone()),
            Event::InvocationCancelled { .. } => last.ended = Some("cancelled".to_owned()),
            _ => (),
        }
    }

    /// Result of the fold.
    pub fn finish(mut self) -> Replayed {
        self.replayed.open_questions = self.questions.into_values().collect();
        self.history.finish(&mut self.replayed);
        if let Some((_, ts)) = self.written {
            delegated::end_process(&mut self.replayed.delegated, ts);
        }
        self.replayed.describe_subagents();
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
            Event::SessionStarted {
                agent,
                provider,
                model,
                mode,
                cwd,
                tier,
                instructions,
                budget,
                forked_from,
                ..
            } => {
                if self.replayed.started.is_none() {
                    self.replayed.forked_from.clone_from(forked_from);
                }
                self.replayed.started = Some(StartedWith {
                    agent: agent.clone(),
                    provider: provider.clone(),
                    model: model.clone(),
                    mode: mode.clone(),
                    cwd: cwd.clone(),
                    tier: tier.clone(),
                    instructions: instructions.clone(),
                    budget: *budget,
                });
                self.replayed.ended = None;
            }
            Event::SessionTitled { title } => self.replayed.title = Some(title.clone()),
            Event::SessionEnded { reason, .. } => self.replayed.ended = Some(reason.to_string()),
            Event::SessionParked { cause, next_try_ms, .. } => {
                let (cause, next_try_ms) = (cause.clone(), *next_try_ms);
                self.replayed.parked = Some(Parked { cause, next_try_ms });
            }
            Event::SessionResumed { with, .. } => {
                self.replayed.ended = None;
                if let (Some(with), Some(started)) = (with, &mut self.replayed.started) {
                    started.resumed_with(with);
                }
            }
            Event::UserMessage { .. } | Event::InvocationStarted { .. } => {
                self.replayed.ended = None;
                self.replayed.parked = None;
            }
            Event::ModelReply { .. } => self.replayed.parked = None,
            _ => (),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only questions and their ends matter")]
    fn question(&mut self, record: &StoredRecord) {
        match &record.event {
            Event::PermissionRequested { request_id, call_id, summary, digest, .. } => {
                let question = OpenQuestion {
                    request_id: request_id.clone(),
                    origin: record.origin.clone(),
                    call_id: call_id.clone(),
                    summary: summary.clone(),
                    digest: digest.clone(),
                };
                // Asked again under the same id: the later text counts.
                self.close_question(request_id);
                self.questions.insert(record.record, question);
            }
            Event::PermissionGranted { request_id, grant, .. } => {
                if let Some(question) = self.close_question(request_id) {
                    let OpenQuestion { call_id, digest, .. } = question;
                    self.history.edit(&call_id, |call| call.open.approved = Some(digest));
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

    #[expect(clippy::wildcard_enum_match_arm, reason = "only jobs and resumptions matter")]
    fn job(&mut self, record: &StoredRecord) {
        let jobs = &mut self.replayed.jobs;
        match &record.event {
            Event::JobStarted { call_id, summary } => jobs.push(LostJob {
                call_id: call_id.clone(),
                origin: record.origin.clone(),
                summary: summary.clone(),
                ended: false,
            }),
            Event::JobEnded { call_id, end: JobEnd::SessionEnded, .. } => {
                let theirs = jobs.iter_mut().filter(|job| job.call_id == *call_id);
                theirs.for_each(|job| job.ended = true);
            }
            Event::JobEnded { call_id, .. } => jobs.retain(|job| job.call_id != *call_id),
            // The earlier resume has reported it.
            Event::SessionResumed { .. } => jobs.retain(|job| !job.ended),
            _ => (),
        }
    }

    fn close_question(&mut self, id: &QuestionId) -> Option<OpenQuestion> {
        let mut known = self.questions.iter();
        let number = *known.find(|(_, question)| question.request_id == *id)?.0;
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
                self.replayed.own_call.take_if(|own| own.message_id == *message_id);
                let known = self.delivered.contains(message_id)
                    || self.replayed.queued.iter().any(|queued| queued.id == *message_id);
                if !known {
                    let (id, content) = (message_id.clone(), content.clone());
                    self.replayed.queued.push(QueuedInput { id, kind: *kind, content });
                }
            }
            Event::MessageDelivered { message_id } => {
                let mut queued = self.replayed.queued.iter();
                let content = queued.find(|queued| queued.id == *message_id);
                if let Some(content) = content.map(|queued| queued.content.clone())
                    && self.deliver(message_id)
                {
                    self.history.user(content);
                }
            }
            Event::MessageWithdrawn { message_id } => {
                // Later results are ignored.
                self.deliver(message_id);
            }
            Event::ContextCompacted { history, .. } | Event::SessionForked { history, .. } => {
                self.history.replace(history);
                self.replayed.compacted = true;
                if let Some(last) = &mut self.replayed.last {
                    last.base = 0;
                }
            }
            Event::ModelReply { message, .. } => {
                self.replayed.turns = self.replayed.turns.saturating_add(1);
                self.history.reply(message.clone());
            }
            _ => (),
        }
    }

    /// Removes a message from the queue. Returns false if it had been delivered.
    fn deliver(&mut self, id: &MessageId) -> bool {
        self.replayed.queued.retain(|queued| queued.id != *id);
        self.delivered.insert(id.clone())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only calls matter")]
    fn call(&mut self, event: &Event, ts: u64) {
        let history = &mut self.history;
        match event {
            Event::ToolRequested { call_id, .. } => {
                history.edit(call_id, |call| call.open.requested = true);
            }
            Event::InvocationRequested { call_id, .. } => {
                history.edit(call_id, |call| call.agent = true);
            }
            Event::ToolStarted { call_id, effect, summary, .. } => history.edit(call_id, |call| {
                let begun = StartedCall { summary: summary.clone(), started_ms: ts };
                (call.open.started, call.open.effect) = (true, *effect);
                call.open.begun = Some(begun);
            }),
            Event::ToolCompleted { call_id, content, .. } => {
                history.edit(call_id, |call| call.end = Some((content.clone(), false)));
            }
            Event::ToolFailed { call_id, content, .. }
            | Event::ToolOutcomeUnknown { call_id, content, .. } => {
                history.edit(call_id, |call| call.end = Some((content.clone(), true)));
            }
            // The version of a hook arrives later and takes precedence.
            Event::HookFired { call_id: Some(call_id), output: Some(content), .. }
            | Event::HookFailed { call_id: Some(call_id), output: Some(content), .. } => {
                history.edit(call_id, |call| {
                    if let Some((recorded, _)) = &mut call.end {
                        recorded.clone_from(content);
                    }
                });
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests;
