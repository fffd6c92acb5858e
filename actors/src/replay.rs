//! Fold: computes the state of a session, or of one invocation, from its records. Deterministic and
//! without a clock.
//!
//! After any number of records the resulting messages are valid for a provider: every call has
//! exactly one result, right after the reply that requested it, in the order of the calls.

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
    Branch, Event, Grant, JobEnd, MessageKind, Origin, PermissionMode, PermissionTarget,
    PromptOverrides, RecordId, ResumedConfig, SandboxTier, Scope, StartedCall, StoredRecord,
    TargetType, TodoItem,
};
use crate::ledger::{Accounts, LOST_REPLY};
use crate::outcome::Memories;

use history::FoldedHistory;
pub(crate) use history::interrupted_reply;

pub use own_call::OpenOwnCall;

pub use delegated::Delegated;
pub use unknown_outcome::LOST;

/// Result for the model of a call that was requested and had not started when the process ended.
pub const NOT_RUN: &str = "This call was not run: the session broke off before it started.";
/// Result for the model of a call that did not start after the user had chosen hunks of it.
pub(crate) const NOT_RUN_CHOSEN: &str = "This call was not run, and nothing was changed: the session \
     broke off after the user had chosen some of its hunks. Make the change again; the user is asked \
     again.";
/// Result for the model of a call with side effects that started and has no recorded end.
pub const OUTCOME_UNKNOWN: &str = "The session broke off while this call was running. Whether it \
     took effect is not known. Look before doing it again.";
/// Result for the model of a call without side effects that started and has no recorded end.
pub const CUT_OFF: &str = "The session broke off while this call was running. It changes nothing, \
     so it can be made again.";

/// Result for the model of a delegation call whose subagent was running, if nothing else is known
/// about the subagent.
pub const AGENT_CUT_OFF: &str = "The session broke off while an agent worked on this call. What it \
     did until then is not known here. Look at how things are before it is done again.";

/// Result of a fold: state of a session, or of one invocation, according to its records.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// History of the main agent, or of the folded invocation, without system messages. Always
    /// valid.
    pub messages: Vec<Arc<Message>>,
    /// Calls of the last reply without a recorded end, in the order of the model; empty if another
    /// message has followed the reply.
    pub open_calls: Vec<OpenCall>,
    /// Permission requests without an answer, oldest first.
    pub open_questions: Vec<OpenQuestion>,
    /// Recorded grants with the scope of the session or of an agent, without duplicates.
    /// `Resumption::grants` decides whether they are restored.
    pub grants: Vec<Grant>,
    /// Queued messages that were not delivered, oldest first.
    pub queued: Vec<QueuedInput>,
    /// Tokens of the folded invocation; in the fold of the main agent, of the whole session.
    pub usage: Usage,
    /// Spending of the whole session.
    pub accounts: Accounts,
    /// Number of model replies of the main agent, or of the folded invocation.
    pub turns: u32,
    /// Number of prompts of the main agent, with those of the original session of a fork.
    #[serde(default)]
    pub prompts: u32,
    /// Number of the last record, 0 if there was none.
    pub last_record: u64,
    /// Reason for the end of the session; `None` if it did not end, or was resumed or continued
    /// later.
    pub ended: Option<String>,
    /// Configuration of the last start or resume; `None` if the start is not recorded.
    pub started: Option<StartedWith>,
    /// Point in the original session at which a fork began; `None` for a session that is no fork.
    pub forked_from: Option<Branch>,
    /// Latest run of the main agent, or the folded invocation; `None` if no record belongs to one.
    pub last: Option<LastInvocation>,
    /// Reason why the session, or a run of it, was parked; `None` if it was not, or work has
    /// continued since.
    pub parked: Option<Parked>,
    /// Tool call of the user whose message for the model is not queued yet; `None` if there is
    /// none.
    #[serde(default)]
    pub own_call: Option<OpenOwnCall>,
    /// Background jobs whose end was not reported to the agent: no end is recorded, or they ended
    /// with the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<LostJob>,
    /// All subagents of the session in the order of their last start. Empty in the fold of a
    /// subagent.
    pub delegated: Vec<Delegated>,
    /// Memory of subagents that a fork took over from its original session.
    #[serde(default, skip_serializing_if = "Memories::is_empty")]
    pub inherited: Memories,
    /// Number of calls of the folded invocation, with the latest that may have changed something.
    /// Empty in the fold of the main agent.
    #[serde(default, rename = "deeds")]
    pub actions: ActionLog,
    /// Task list of the main agent, or of the folded invocation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub todos: Vec<TodoItem>,
    /// Title of the session; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// True if the messages begin with a compacted or forked history instead of the start of the
    /// invocation.
    #[serde(default)]
    pub compacted: bool,
}

/// A background job whose process was killed when posse died or the session ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LostJob {
    /// The call that started the job, which is also its id.
    pub call_id: CallId,
    /// Invocation that made the call; `None` if the record names none.
    pub origin: Option<Arc<Origin>>,
    /// One-line description of the job's command.
    pub summary: String,
    /// True if the end of the job is recorded, because the session ended in order; false if posse
    /// died.
    pub ended: bool,
}

/// Latest invocation of the main agent, or the folded invocation of a subagent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastInvocation {
    /// Origin of the invocation.
    pub origin: Arc<Origin>,
    /// Number of messages of the history before the invocation; 0 after a compaction.
    pub base: usize,
    /// Number of its model replies, for a subagent since its last start.
    pub turns: u32,
    /// Tokens of the model requests in the same time.
    pub usage: Usage,
    /// Names of the tools that its model sees. `None`: its start is not recorded.
    pub tools: Option<Vec<String>>,
    /// Ending: `completed`, `cancelled`, or the class of its failure. `None`: no end is recorded.
    pub ended: Option<String>,
}

/// Cause of parking a session or a run, and the time of the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// Cause of the parking in words.
    pub cause: String,
    /// Earliest useful time of another attempt, in milliseconds since 1970; `None` if unknown.
    pub next_try_ms: Option<u64>,
}

/// Configuration with which a session was started or resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedWith {
    /// Name of the main agent.
    pub agent: String,
    /// Provider profile of the main agent.
    pub provider: String,
    /// Model of the main agent.
    pub model: String,
    /// `single-agent` or `multi-agent`.
    pub mode: String,
    /// Working directory of the session.
    pub cwd: String,
    /// Sandbox tier of processes; `Unknown` with an empty text if not recorded.
    pub tier: SandboxTier,
    /// Latest permission mode of the session; `None` if not recorded.
    #[serde(default)]
    pub permission_mode: Option<PermissionMode>,
    /// Hash of the main agent's instructions; empty if not recorded.
    pub instructions: String,
    /// Limits that were set for this session only.
    pub budget: Budget,
    /// Texts of the user for the system prompt of the main agent.
    pub prompt: PromptOverrides,
}

/// A call of the last reply without a recorded end.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the records")]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The call, as the model wrote it.
    pub call: ToolCall,
    /// True if the event `tool.requested` of the call is recorded.
    pub requested: bool,
    /// True if the intent is recorded. If false, the call has had no effect.
    pub started: bool,
    /// True if the call has side effects or has started a subagent. Always false before the call
    /// has started.
    pub effect: bool,
    /// Description and start time of the call; `None` if no start is recorded.
    pub begun: Option<StartedCall>,
    /// Hash of the effect that a person or `--yes` approved; `None` without an approval.
    pub approved: Option<String>,
    /// True if a person has chosen hunks of the call. It is not started again, because only the
    /// process that asked can make exactly these.
    pub chosen: bool,
    /// Index in [`Replayed::messages`] of the placeholder for the missing result.
    pub message: usize,
}

/// A permission request without an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Id of the request. If the call runs again, the request is repeated with the same id.
    pub request_id: QuestionId,
    /// Invocation that made the call; `None` if the record names none.
    pub origin: Option<Arc<Origin>>,
    /// Id of the call that needs permission.
    pub call_id: CallId,
    /// One-line description of the effect in question.
    pub summary: String,
    /// Hash of the effect in question.
    pub digest: String,
    /// Target of the request.
    pub target: PermissionTarget,
}

impl OpenQuestion {
    /// The request, for its call that is continued.
    pub(crate) fn request(&self) -> ContinuedRequest {
        ContinuedRequest { id: self.request_id.clone(), target: self.target.clone() }
    }
}

/// Permission request that is open while its call is continued after an interruption.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContinuedRequest {
    pub(crate) id: QuestionId,
    pub(crate) target: PermissionTarget,
}

/// A queued message, which its agent has not received yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedInput {
    /// Id of the queued message.
    pub id: MessageId,
    /// Kind of the message, which decides about the time of delivery.
    pub kind: MessageKind,
    /// Content of the message: text and images.
    pub content: Vec<ContentPart>,
}

/// Removes the messages with these ids from `queue` and returns them; then appends `next`. `None`,
/// without a change, if one of them is not in the queue, or is a notice of posse.
pub(crate) fn replace_queued(
    queue: &mut Vec<QueuedInput>,
    ids: &[MessageId],
    next: Vec<QueuedInput>,
) -> Option<Vec<QueuedInput>> {
    let is_own = |id: &MessageId| {
        queue.iter().any(|queued| queued.id == *id && queued.kind != MessageKind::Notice)
    };
    if !ids.iter().all(is_own) {
        return None;
    }
    let taken = queue.extract_if(.., |queued| ids.contains(&queued.id)).collect();
    queue.extend(next);
    Some(taken)
}

impl QueuedInput {
    /// Event that records the queueing of the message.
    pub(crate) fn event(&self) -> Event {
        let QueuedInput { id, kind, content } = self.clone();
        Event::MessageQueued { message_id: id, kind, content }
    }
}

impl OpenCall {
    /// True if the call can start in another process: it has had no effect, and no person has chosen
    /// a part of its effect.
    pub(crate) fn can_start(&self) -> bool {
        !self.started && !self.chosen
    }

    /// Replaces the placeholder for the missing result in `messages` by an error result with
    /// `text`.
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
        let ResumedConfig {
            posse: _,
            cwd,
            agent,
            provider,
            model,
            tier,
            permission_mode,
            instructions,
            budget,
            prompt,
        } = with;
        self.cwd.clone_from(cwd);
        self.agent.clone_from(agent);
        self.provider.clone_from(provider);
        self.model.clone_from(model);
        self.tier.clone_from(tier);
        self.permission_mode = permission_mode.or(self.permission_mode);
        self.instructions.clone_from(instructions);
        self.budget = *budget;
        self.prompt.clone_from(prompt);
    }
}

impl Replayed {
    /// True if the session can continue without a new prompt: a run was interrupted, the model has
    /// not answered, a message of the user is queued, or a background subagent of the main agent
    /// was running. Background work that has ended is reported with the next prompt and does not
    /// count.
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
    /// Replaces the placeholder results of open delegation calls of the main agent by the state of
    /// their subagents.
    fn describe_subagents(&mut self) {
        for open in self.open_calls.iter().filter(|open| open.started) {
            let theirs = |one: &&Delegated| one.called_by_main() && one.call_id == open.call.id;
            let Some(agent) = self.delegated.iter().rev().find(theirs) else { continue };
            open.set_result(&mut self.messages, agent.cut_off());
        }
    }
}

/// True if `message`, as the last one of a history, requires a model request: a user message, a
/// result, or a reply with calls.
pub(crate) fn awaits_answer(message: &Message) -> bool {
    match message {
        Message::User { .. } | Message::Tool { .. } => true,
        Message::Assistant(said) => !said.tool_calls.is_empty(),
        Message::System { .. } => false,
    }
}

/// Folds `records`, which begin with the oldest. The messages are those of `invocation`, or of the
/// main agent if it is `None`.
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

/// Incremental fold, for a journal that is read in parts. Serialised, it is a fold cache.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Replay {
    invocation: Option<InvocationId>,
    #[serde(with = "seen")]
    seen: HashSet<RecordId>,
    history: FoldedHistory,
    questions: BTreeMap<u64, OpenQuestion>,
    /// Ids of queued messages that were delivered or withdrawn.
    delivered: HashSet<MessageId>,
    /// Process and time of the last record, for the running time of subagents.
    written: Option<(u32, u64)>,
    replayed: Replayed,
}

/// Updates the memory of a fork: taken over from the original session, and deleted on request.
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
    /// Version of the serialised state of a fold. It must change when the same records give another
    /// result.
    pub const VERSION: u32 = 10;

    /// Creates an empty fold for `invocation`, or for the main agent if it is `None`.
    pub fn new(invocation: Option<InvocationId>) -> Replay {
        Replay { invocation, ..Replay::default() }
    }

    /// Spending according to the records so far.
    pub fn accounts(&self) -> &Accounts {
        &self.replayed.accounts
    }

    /// Adds the next record. A record whose id is already known is ignored.
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
            self.count_prompt(record);
            self.message(&record.event);
            self.call(&record.event, record.ts);
            if let Event::TodosUpdated { todos } | Event::SessionForked { todos, .. } =
                &record.event
            {
                self.replayed.todos.clone_from(todos);
            }
            if self.invocation.is_some() {
                self.replayed.actions.follow(&record.event);
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only prompts and copies of them matter")]
    fn count_prompt(&mut self, record: &StoredRecord) {
        match &record.event {
            Event::UserMessage { message_id: None, .. } if record.origin.is_some() => {
                self.replayed.prompts = self.replayed.prompts.saturating_add(1);
            }
            Event::SessionForked { prompts, .. } => self.replayed.prompts = *prompts,
            _ => (),
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

    /// Ends the fold and returns its result.
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
                permission_mode,
                instructions,
                budget,
                prompt,
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
                    permission_mode: *permission_mode,
                    instructions: instructions.clone(),
                    budget: *budget,
                    prompt: prompt.clone(),
                });
                self.replayed.ended = None;
            }
            Event::PermissionModeChanged { mode, .. } => {
                if let Some(started) = &mut self.replayed.started {
                    started.permission_mode = Some(*mode);
                }
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
            Event::PermissionRequested { request_id, call_id, summary, digest, target, .. } => {
                let question = OpenQuestion {
                    request_id: request_id.clone(),
                    origin: record.origin.clone(),
                    call_id: call_id.clone(),
                    summary: summary.clone(),
                    digest: digest.clone(),
                    target: target.clone(),
                };
                // Asked again under the same id: the later text counts.
                self.close_question(request_id);
                self.questions.insert(record.record, question);
            }
            Event::PermissionGranted {
                request_id,
                grant,
                target,
                grants_part,
                hunks,
                reply,
                ..
            } => {
                let question = self.close_question(request_id);
                // The answer to a connection request, to a part of a call, about single hunks, or
                // to a request of the model does not allow the call as a whole.
                let is_of_call = target.target_type != TargetType::Connection
                    && !grants_part
                    && hunks.is_empty()
                    && reply.is_none();
                if let Some(OpenQuestion { call_id, .. }) = &question
                    && !hunks.is_empty()
                {
                    self.history.edit(call_id, |call| call.open.chosen = true);
                }
                if let Some(question) = question.filter(|_| is_of_call) {
                    let OpenQuestion { call_id, digest, .. } = question;
                    self.history.edit(&call_id, |call| call.open.approved = Some(digest));
                }
                if let Some(grant) = grant
                    && matches!(grant.scope, Scope::Agent | Scope::Session)
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
            Event::ModelPartial { text, in_history: true, .. } => self.history.partial(text),
            Event::ModelReply { message, .. } => {
                self.replayed.turns = self.replayed.turns.saturating_add(1);
                self.history.reply(message.clone());
            }
            _ => (),
        }
    }

    /// Removes a message from the queue and marks it as delivered. Returns false if it was marked
    /// already.
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
