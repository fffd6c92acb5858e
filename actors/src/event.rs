//! Events that observers receive: one enum for everything that happens, with the dotted names of
//! the public contract.
//!
//! A *durable* event is also a journal record and is announced only after it was written. An
//! ephemeral one (a delta) may be coalesced or lost; its content is repeated in a durable event.

mod envelope;
mod hook_event;
mod payload;
mod record;
mod started_call;
mod words;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conversation::{
    AssistantMessage, CallId, ContentPart, InvocationId, Message, MessageId, QuestionId, SessionId,
    StopReason, Usage,
};
use crate::cost::{Billing, Budget};
use crate::outcome::{Memories, SubagentOutcome, WorktreeSummary};

pub use envelope::{AnnouncedEvent, Announcement};
pub use hook_event::{HookDecision, HookEvent};
pub use payload::{Branch, ContextUse, Grant, JobEnd, MessageKind, Origin, ResumedConfig, Scope};
pub use record::{Durability, Record, RecordId, StoredRecord};
pub use started_call::StartedCall;
pub use words::{CompactionCause, DecisionSource, SandboxTier, SessionEndReason, ToolFailureClass};

/// Version of the event and journal format.
pub const FORMAT_VERSION: u32 = 1;

/// Event of a session.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Event {
    /// The first record of a session.
    #[serde(rename = "session.started")]
    SessionStarted {
        /// Version of posse.
        posse: String,
        /// The working directory.
        cwd: String,
        /// Agent, provider profile and model of the main invocation.
        agent: String,
        /// The provider profile.
        provider: String,
        /// The model.
        model: String,
        /// `single-agent` or `multi-agent`.
        mode: String,
        /// Sandbox tier of processes: `none`, `reduced` or `full`.
        #[serde(default, skip_serializing_if = "SandboxTier::is_unrecorded")]
        tier: SandboxTier,
        /// Hash of the agent's instructions without the environment block.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        instructions: String,
        /// Budget, if set for this session.
        #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
        budget: Budget,
        /// The session it was forked from, if any.
        forked_from: Option<Branch>,
    },
    /// State that a forked session inherits.
    #[serde(rename = "session.forked")]
    SessionForked {
        /// The session that it branched off.
        parent: SessionId,
        /// The last record of it that counts.
        parent_record: u64,
        /// The whole history until then, without system messages.
        history: Vec<Arc<Message>>,
        /// Memory of its subagents.
        #[serde(default, skip_serializing_if = "Memories::is_empty")]
        memories: Memories,
    },
    /// A stored session was resumed.
    #[serde(rename = "session.resumed")]
    SessionResumed {
        /// Number of earlier records.
        records: u64,
        /// Configuration of the resumed session. `None` in records of earlier versions.
        with: Option<Box<ResumedConfig>>,
        /// Differences to the earlier configuration, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
    },
    /// Short title of the session. May be repeated; the last one counts.
    #[serde(rename = "session.titled")]
    SessionTitled {
        /// One line.
        title: String,
    },
    /// The session stopped itself and waits for the user.
    #[serde(rename = "session.parked")]
    SessionParked {
        /// Cause and advice.
        cause: String,
        /// The class of a failure of the provider.
        class: Option<String>,
        /// Earliest useful time for another attempt, in milliseconds since 1970.
        next_try_ms: Option<u64>,
    },
    /// The last line of every stream.
    #[serde(rename = "session.ended")]
    SessionEnded {
        /// Why it ended.
        reason: SessionEndReason,
        /// The exit code of a headless run.
        exit_code: i32,
        /// Tokens, as far as they are known.
        usage: Usage,
        /// Money, if all of it is known.
        #[serialize_always]
        cost_usd: Option<f64>,
        /// Known cost, in billionths of a dollar.
        cost_nano_usd: Option<u64>,
        /// Requests whose cost is not known, or not all of it.
        #[serde(default, skip_serializing_if = "is_zero")]
        unpriced_requests: u64,
        /// Model replies.
        turns: u32,
        /// Answer of a headless run, if there is one. `null` in other front ends.
        #[serialize_always]
        result: Option<String>,
    },

    /// The user asked for something.
    #[serde(rename = "user.message")]
    UserMessage {
        /// Text and images.
        content: Vec<ContentPart>,
        /// Id of the queued message, if it was queued.
        message_id: Option<MessageId>,
    },
    /// A message waits for the next safe point.
    #[serde(rename = "message.queued")]
    MessageQueued {
        /// Its id.
        message_id: MessageId,
        /// `steer` enters after the calls in flight; `follow_up` after the final answer.
        kind: MessageKind,
        /// Text and images.
        content: Vec<ContentPart>,
    },
    /// A queued message entered the history.
    #[serde(rename = "message.delivered")]
    MessageDelivered {
        /// Its id.
        message_id: MessageId,
    },
    /// The user took back a message that waited: it enters no history.
    #[serde(rename = "message.withdrawn")]
    MessageWithdrawn {
        /// Its id.
        message_id: MessageId,
    },
    /// The user runs a tool directly. This record precedes all other records of the call.
    #[serde(rename = "user.call")]
    UserCall {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// The message that informs the model: queued when the call has ended.
        message_id: MessageId,
        /// Beginning of that message.
        said: String,
    },

    /// The history became shorter. The records before stay; what models see from now
    /// on begins with this.
    #[serde(rename = "context.compacted")]
    ContextCompacted {
        /// Bytes of the history before.
        bytes_before: usize,
        /// Bytes of it now.
        bytes_after: usize,
        /// Turns that were removed.
        turns_removed: usize,
        /// Tool outputs that were removed from turns that stay.
        outputs_removed: usize,
        /// Messages of the user that were never answered, and of which only the beginning stays.
        #[serde(default, skip_serializing_if = "is_zero")]
        prompts_removed: usize,
        /// Tokens of a request before, estimated.
        tokens_before: Option<u64>,
        /// Tokens of a request now, estimated.
        tokens_after: Option<u64>,
        /// Why. Missing in older journals.
        cause: Option<CompactionCause>,
        /// The model that wrote the summary, if one did.
        summarised_by: Option<String>,
        /// The whole history now, without system messages.
        history: Vec<Arc<Message>>,
    },

    /// Composition of a request of the main agent, on request.
    #[serde(rename = "context.used")]
    ContextUsed {
        /// In tokens.
        #[serde(flatten)]
        used: ContextUse,
    },

    /// An agent delegates a task to a subagent, and this is permitted. Recorded before the subagent
    /// starts.
    #[serde(rename = "agent.invocation.requested")]
    InvocationRequested {
        /// The invocation that begins.
        child_invocation_id: InvocationId,
        /// Its agent.
        target: String,
        /// The call that asked for it.
        call_id: CallId,
        /// The provider profile.
        provider: String,
        /// The task in one line.
        task: String,
        /// True if the caller does not wait for the answer.
        background: bool,
        /// Its working directory, if it has an isolated workspace.
        workplace: Option<String>,
    },
    /// A subagent has ended: the result for its caller.
    #[serde(rename = "agent.delegation.ended")]
    DelegationEnded {
        /// The invocation that ended.
        child_invocation_id: InvocationId,
        /// Its agent.
        target: String,
        /// Its outcome.
        #[serde(flatten)]
        outcome: SubagentOutcome,
        /// Model replies.
        turns: u32,
        /// Tokens.
        usage: Usage,
        /// Known cost, in billionths of a dollar.
        cost_nano_usd: Option<u64>,
        /// State of its isolated workspace, if it had one.
        workplace: Option<WorktreeSummary>,
    },
    /// The memory of subagents was deleted.
    #[serde(rename = "agent.memory.forgotten")]
    MemoryForgotten {
        /// Of this agent; `None` is all of them.
        agent: Option<String>,
    },
    /// An invocation begins.
    #[serde(rename = "agent.invocation.started")]
    InvocationStarted {
        /// The provider profile.
        provider: String,
        /// The model.
        model: String,
        /// Names of the tools it sees.
        tools: Vec<String>,
        /// The last record that its history contains.
        after: Option<u64>,
    },
    /// An invocation gave its final answer.
    #[serde(rename = "agent.invocation.completed")]
    InvocationCompleted {
        /// The answer.
        result: String,
        /// Model replies.
        turns: u32,
        /// Tokens.
        usage: Usage,
    },
    /// An invocation ended without an answer.
    #[serde(rename = "agent.invocation.failed")]
    InvocationFailed {
        /// The class: `provider`, `limit`, `crashed`, `content_filter`, `loop`.
        class: String,
        /// Cause.
        cause: String,
        /// Model replies.
        turns: u32,
        /// Tokens.
        usage: Usage,
    },
    /// An invocation was interrupted.
    #[serde(rename = "agent.invocation.cancelled")]
    InvocationCancelled {
        /// Model replies.
        turns: u32,
        /// Tokens.
        usage: Usage,
    },

    /// A request is sent to a model.
    #[serde(rename = "model.request")]
    ModelRequest {
        /// Number of this reply within the invocation, from 1.
        turn: u32,
        /// The provider profile.
        provider: String,
        /// The model.
        model: String,
        /// Messages in the history.
        messages: usize,
    },
    /// A piece of visible text. Ephemeral.
    #[serde(rename = "model.text.delta")]
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A piece of thinking. Ephemeral.
    #[serde(rename = "model.thinking.delta")]
    ThinkingDelta {
        /// The piece.
        text: String,
    },
    /// A whole reply.
    #[serde(rename = "model.text")]
    ModelReply {
        /// Number of the reply within the invocation, from 1.
        turn: u32,
        /// The reply.
        message: AssistantMessage,
        /// Why it ended.
        stop_reason: StopReason,
        /// The model that answered, if reported.
        model: Option<String>,
    },
    /// Partial text of a reply that a fault or the user cut off. Not part of the history.
    #[serde(rename = "model.text.partial")]
    ModelPartial {
        /// Number of the reply within the invocation, from 1.
        turn: u32,
        /// The text so far.
        text: String,
        /// Why it ended.
        cause: String,
    },
    /// Cost of a request, with or without a reply.
    #[serde(rename = "model.usage")]
    ModelUsage {
        /// Number of the reply within the invocation, from 1.
        turn: u32,
        /// Tokens.
        usage: Usage,
        /// Model, outcome and cost. Missing in older journals.
        billing: Option<Box<Billing>>,
    },
    /// The worst-case cost of a request is reserved from the budget. Recorded before the request.
    #[serde(rename = "budget.reserved")]
    BudgetReserved {
        /// The number of the request.
        request: u64,
        /// Billionths of a dollar.
        nano_usd: u64,
        /// Tokens.
        tokens: u64,
    },
    /// The request was not sent, or the provider did no work: the reservation is released.
    #[serde(rename = "budget.released")]
    BudgetReleased {
        /// The number of the request.
        request: u64,
    },
    /// The provider withheld a reply.
    #[serde(rename = "model.content_filter")]
    ContentFilter {
        /// Number of the reply within the invocation, from 1.
        turn: u32,
    },

    /// An attempt failed and is made again after a wait.
    #[serde(rename = "provider.retry")]
    ProviderRetry {
        /// The provider profile.
        provider: String,
        /// The attempt that failed, from 1.
        attempt: u32,
        /// Why it failed.
        cause: String,
        /// The class of the failure.
        class: String,
        /// Wait before the next attempt.
        wait_ms: u64,
    },
    /// Start or progress of a wait that a user may want to see. Ephemeral.
    #[serde(rename = "provider.waiting")]
    ProviderWaiting {
        /// The provider profile.
        provider: String,
        /// Wait before the next attempt.
        wait_ms: u64,
        /// Remaining patience after the wait.
        patience_left_ms: u64,
        /// The class of the failure that is waited for.
        #[serde(default)]
        class: String,
        /// The failure.
        #[serde(default)]
        cause: String,
    },
    /// A reply is due and the provider is silent. Ephemeral.
    #[serde(rename = "provider.silent")]
    ProviderSilent {
        /// The provider profile.
        provider: String,
        /// Duration of the silence.
        silent_ms: u64,
    },
    /// From now on another model is asked: one that takes over, or the first again.
    #[serde(rename = "provider.failover")]
    ProviderFailover {
        /// The provider profile that was asked until now.
        from: String,
        /// Its model.
        from_model: String,
        /// The provider profile that is asked from now on.
        to: String,
        /// Its model.
        to_model: String,
        /// The class of the failure, or `recovered`.
        class: String,
        /// The failure.
        cause: String,
        /// Models that were skipped, with reasons.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<String>,
    },

    /// The model asked for a call.
    #[serde(rename = "tool.requested")]
    ToolRequested {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// JSON text, as the model wrote it.
        arguments: String,
    },
    /// A call starts: the intent, written before any effect.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// One-line description of the effect.
        summary: String,
        /// Hash of the exact effect that was judged.
        digest: String,
        /// True if the call has an effect outside posse.
        effect: bool,
        /// Arguments that were converted to the declared type.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        coerced: Vec<String>,
    },
    /// Output of a running call. Ephemeral.
    #[serde(rename = "tool.output.delta")]
    ToolOutputDelta {
        /// The call.
        call_id: CallId,
        /// The piece.
        text: String,
    },
    /// A call ended well: the outcome.
    #[serde(rename = "tool.completed")]
    ToolCompleted {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// Content for the model.
        content: Vec<ContentPart>,
        /// Data for programs: exit code, diff, counts.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        metadata: Value,
        /// Duration.
        duration_ms: u64,
    },
    /// A call ended badly, or was not allowed to start: the outcome.
    #[serde(rename = "tool.failed")]
    ToolFailed {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// Content for the model.
        content: Vec<ContentPart>,
        /// Why.
        class: ToolFailureClass,
        /// Data for programs.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        metadata: Value,
        /// Duration.
        duration_ms: u64,
    },
    /// A call had started and its end is unknown. The model is informed.
    #[serde(rename = "tool.outcome_unknown")]
    ToolOutcomeUnknown {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// Content for the model.
        content: Vec<ContentPart>,
        /// Description and start time of the call. Missing in older journals.
        begun: Option<StartedCall>,
    },
    /// Confinement of a process as reported by the kernel.
    #[serde(rename = "sandbox.enforced")]
    SandboxEnforced {
        /// The call.
        call_id: CallId,
        /// Sandbox tier.
        tier: SandboxTier,
        /// Details of the report.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        report: Value,
    },

    /// A command continues in the background, and its call ends.
    #[serde(rename = "job.started")]
    JobStarted {
        /// The call, which is the job's name as well.
        call_id: CallId,
        /// One line.
        summary: String,
    },
    /// A command in the background has ended.
    #[serde(rename = "job.ended")]
    JobEnded {
        /// The call that started it.
        call_id: CallId,
        /// One line.
        summary: String,
        /// By itself, or why.
        end: JobEnd,
        /// `exit 1`, `killed after …`, in words.
        detail: String,
        /// Its exit code, if it had one.
        exit_code: Option<i32>,
        /// Bytes that it printed, as far as that is known.
        bytes: u64,
        /// Duration; 0 if unknown.
        duration_ms: u64,
        /// Changes to protected files and their handling, one line each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        findings: Vec<String>,
    },

    /// A hook returned a result. Its changes are stored here: the record of the call is unchanged.
    #[serde(rename = "hook.fired")]
    HookFired {
        /// Its name.
        hook: String,
        /// The hook event.
        event: HookEvent,
        /// The call, if it was about one.
        call_id: Option<CallId>,
        /// The tool, if it was about one.
        tool: Option<String>,
        /// Its decision.
        decision: HookDecision,
        /// Its message.
        message: Option<String>,
        /// The arguments that it wants instead, before they are judged.
        input: Option<Box<Value>>,
        /// Output for the model that replaces the recorded one.
        output: Option<Vec<ContentPart>>,
        /// For programs, from the hook.
        metadata: Option<Box<Value>>,
        /// Duration.
        duration_ms: u64,
    },
    /// A hook could not be asked, or its answer made no sense.
    #[serde(rename = "hook.failed")]
    HookFailed {
        /// Its name.
        hook: String,
        /// The hook event.
        event: HookEvent,
        /// The call, if it was about one.
        call_id: Option<CallId>,
        /// The tool, if it was about one.
        tool: Option<String>,
        /// `HK001`, …
        code: String,
        /// Cause.
        cause: String,
        /// True if the failure counts as a denial.
        blocked: bool,
        /// Output for the model that replaces the recorded one.
        output: Option<Vec<ContentPart>>,
        /// Duration.
        duration_ms: u64,
    },

    /// A human has to decide.
    #[serde(rename = "permission.requested")]
    PermissionRequested {
        /// Answer with this id.
        request_id: QuestionId,
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// One line.
        summary: String,
        /// The whole command or diff.
        detail: String,
        /// Why it is asked.
        reason: String,
        /// Scopes that an answer may have.
        scopes: Vec<Scope>,
        /// Hash of the effect in question.
        digest: String,
        /// Working directory of the effect.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cwd: String,
        /// Hash over the call, `digest`, `cwd` and the agent's path: all that an answer is bound to.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        binding: String,
    },
    /// A question was answered with yes.
    #[serde(rename = "permission.granted")]
    PermissionGranted {
        /// The question.
        request_id: QuestionId,
        /// Source of the answer.
        by: DecisionSource,
        /// Scope of the answer.
        scope: Scope,
        /// Grant, if the answer covers more than this call.
        grant: Option<Grant>,
        /// The `binding` of the request that the answer applies to.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        binding: String,
        /// The front end that answered, if it was not the one that owns the session.
        answered_by: Option<String>,
    },
    /// A permission request was denied, or no person could be asked.
    #[serde(rename = "permission.denied")]
    PermissionDenied {
        /// The question.
        request_id: QuestionId,
        /// Source of the answer.
        by: DecisionSource,
        /// Reason for the model.
        reason: String,
        /// The rule in the user's configuration that would allow it.
        rule: Option<String>,
        /// The front end that answered, if it was not the one that owns the session.
        answered_by: Option<String>,
    },
    /// A permission request is withdrawn, because its call has ended.
    #[serde(rename = "permission.withdrawn")]
    PermissionWithdrawn {
        /// The question.
        request_id: QuestionId,
        /// Why.
        reason: String,
    },

    /// An actor crashed.
    #[serde(rename = "actor.crashed")]
    ActorCrashed {
        /// Its kind.
        actor: String,
        /// The panic or error.
        cause: String,
    },
    /// A crashed actor runs again.
    #[serde(rename = "actor.restarted")]
    ActorRestarted {
        /// Its kind.
        actor: String,
        /// Restarts within the window, this one included.
        restarts: u32,
    },
    /// A bound of `Limits` ended or cut something.
    #[serde(rename = "limit.reached")]
    LimitReached {
        /// The limit's name in the configuration.
        limit: String,
        /// Its value.
        value: u64,
        /// Used amount of the limit, if useful.
        spent: Option<u64>,
        /// Worst case of the next step.
        needed: Option<u64>,
    },
    /// A repository's configuration wanted more than it may, and did not get it.
    #[serde(rename = "config.ignored")]
    ConfigIgnored {
        /// `CFG005`, …
        code: String,
        /// The ignored setting and the reason.
        message: String,
    },
    /// Warning in one line.
    #[serde(rename = "warning")]
    Warning {
        /// The line.
        message: String,
    },

    /// A type that a later version writes.
    #[serde(rename = "unknown", other)]
    Unknown,
}

impl Event {
    /// The question that this event asks, answers or withdraws.
    pub fn question(&self) -> Option<&QuestionId> {
        if let Event::PermissionRequested { request_id, .. } = self {
            return Some(request_id);
        }
        self.closed_question()
    }

    /// The question that this event answers or withdraws.
    pub fn closed_question(&self) -> Option<&QuestionId> {
        let (Event::PermissionGranted { request_id, .. }
        | Event::PermissionDenied { request_id, .. }
        | Event::PermissionWithdrawn { request_id, .. }) = self
        else {
            return None;
        };
        Some(request_id)
    }

    /// True if the event is also a journal record.
    pub fn is_durable(&self) -> bool {
        !matches!(
            self,
            Event::TextDelta { .. }
                | Event::ThinkingDelta { .. }
                | Event::ToolOutputDelta { .. }
                | Event::ContextUsed { .. }
                | Event::ProviderWaiting { .. }
                | Event::ProviderSilent { .. }
        )
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
