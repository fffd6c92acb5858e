//! What observers may see: one enum of everything that happens, with the dotted names of the
//! product contract.
//!
//! A *durable* event is also a record in the journal and is announced only after it was written.
//! An ephemeral one (a delta) may be coalesced or lost; what it said comes again in a durable one.

mod begun;
mod envelope;
mod subscription;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::ContextUse;
use crate::conversation::{
    AssistantMessage, CallId, ContentPart, InvocationId, Message, MessageId, QuestionId, SessionId,
    StopReason, Usage,
};
use crate::delegation::{Memories, SubagentOutcome};
use crate::ledger::{Billing, Budget};
use crate::ports::{HookEvent, WorktreeSummary};

pub use begun::Begun;
pub use envelope::{Announcement, Fact, StoredRecord};
pub(crate) use subscription::Feed;
pub use subscription::Subscription;

/// Version of the event and journal format.
pub const FORMAT_VERSION: u32 = 1;

/// Something that happened in a session.
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
        /// What confines processes: `none`, `reduced` or `full`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        tier: String,
        /// Hash of what the agent is told besides the state of the world.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        instructions: String,
        /// What it may cost, where that was said for this session.
        #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
        budget: Budget,
        /// Where it branched off from another session, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forked_from: Option<Branch>,
    },
    /// What a session that branched off takes with it.
    #[serde(rename = "session.forked")]
    SessionForked {
        /// The session that it branched off.
        parent: SessionId,
        /// The last record of it that counts.
        parent_record: u64,
        /// The whole history until then, without system messages.
        history: Vec<Arc<Message>>,
        /// What its agents had reported.
        #[serde(default, skip_serializing_if = "Memories::is_empty")]
        memories: Memories,
    },
    /// A stored session goes on.
    #[serde(rename = "session.resumed")]
    SessionResumed {
        /// How many records there were.
        records: u64,
        /// With what it goes on. `None` in the records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with: Option<Box<GoesOnWith>>,
        /// What is not as it was, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
    },
    /// What the session is about, in a few words. Said again now and then; the last one counts.
    #[serde(rename = "session.titled")]
    SessionTitled {
        /// One line.
        title: String,
    },
    /// The session stopped itself and waits for the user.
    #[serde(rename = "session.parked")]
    SessionParked {
        /// What happened, and what to do.
        cause: String,
        /// The class of a failure of the provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// When it is worth trying again, in milliseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_try_ms: Option<u64>,
    },
    /// The last line of every stream.
    #[serde(rename = "session.ended")]
    SessionEnded {
        /// `completed`, `failed`, `interrupted`, `limit`, `parked`, `provider`, `permission`.
        reason: String,
        /// The exit code of a headless run.
        exit_code: i32,
        /// Tokens, as far as they are known.
        usage: Usage,
        /// Money, if all of it is known.
        cost_usd: Option<f64>,
        /// What is known of it, in billionths of a dollar.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nano_usd: Option<u64>,
        /// Requests whose cost is not known, or not all of it.
        #[serde(default, skip_serializing_if = "is_zero")]
        unpriced_requests: u64,
        /// Model replies.
        turns: u32,
        /// The last answer.
        result: Option<String>,
    },

    /// The user asked for something.
    #[serde(rename = "user.message")]
    UserMessage {
        /// Text and images.
        content: Vec<ContentPart>,
        /// Where it came from, if it had waited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// The user runs a tool themselves. The record comes before everything else of the call.
    #[serde(rename = "user.call")]
    UserCall {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// The message that tells the model of it: it is queued when the call has ended.
        message_id: MessageId,
        /// How that message begins.
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens_before: Option<u64>,
        /// Tokens of a request now, estimated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens_after: Option<u64>,
        /// Why: `request` of the user, `threshold` of the budget, `overflow` of the model's window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
        /// The model that wrote the summary, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summarised_by: Option<String>,
        /// The whole history now, without system messages.
        history: Vec<Arc<Message>>,
    },

    /// What a request of the main agent is made of, because somebody asked.
    #[serde(rename = "context.used")]
    ContextUsed {
        /// In tokens.
        #[serde(flatten)]
        used: ContextUse,
    },

    /// An agent wants another one to work for it, and it may: the record comes before the work.
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
        /// Whether nobody waits for the answer.
        background: bool,
        /// Where it works, if that is a place of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workplace: Option<String>,
    },
    /// An agent that worked for another has ended: what its caller is told.
    #[serde(rename = "agent.delegation.ended")]
    DelegationEnded {
        /// The invocation that ended.
        child_invocation_id: InvocationId,
        /// Its agent.
        target: String,
        /// How.
        #[serde(flatten)]
        outcome: SubagentOutcome,
        /// Model replies.
        turns: u32,
        /// Tokens.
        usage: Usage,
        /// What is known of its cost, in billionths of a dollar.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nano_usd: Option<u64>,
        /// What it left in a place of its own, if it had one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workplace: Option<WorktreeSummary>,
    },
    /// What agents have reported is not handed on any more.
    #[serde(rename = "agent.memory.forgotten")]
    MemoryForgotten {
        /// Of this agent; `None` is all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
        /// What happened.
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

    /// A request goes to a model.
    #[serde(rename = "model.request")]
    ModelRequest {
        /// Which reply of this invocation this will be, from 1.
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
        /// Which reply of this invocation, from 1.
        turn: u32,
        /// The reply.
        message: AssistantMessage,
        /// Why it ended.
        stop_reason: StopReason,
        /// The model that answered, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// What had arrived of a reply that a fault or the user cut off. Not part of the history.
    #[serde(rename = "model.text.partial")]
    ModelPartial {
        /// Which reply of this invocation, from 1.
        turn: u32,
        /// The text so far.
        text: String,
        /// Why it ended.
        cause: String,
    },
    /// What a request cost, whether or not it has brought a reply.
    #[serde(rename = "model.usage")]
    ModelUsage {
        /// Which reply of this invocation it was for, from 1.
        turn: u32,
        /// Tokens.
        usage: Usage,
        /// Who answered, how it ended, and what it costs. Missing in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        billing: Option<Box<Billing>>,
    },
    /// The worst case of a request is held of the budget, before it is made.
    #[serde(rename = "budget.reserved")]
    BudgetReserved {
        /// The number of the request.
        request: u64,
        /// Billionths of a dollar.
        nano_usd: u64,
        /// Tokens.
        tokens: u64,
    },
    /// It was not made, or nobody worked for it: what was held is free again.
    #[serde(rename = "budget.released")]
    BudgetReleased {
        /// The number of the request.
        request: u64,
    },
    /// The provider withheld a reply.
    #[serde(rename = "model.content_filter")]
    ContentFilter {
        /// Which reply of this invocation, from 1.
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
        /// How long until the next attempt.
        wait_ms: u64,
    },
    /// A wait of more than a moment began, or goes on: what a user may want to look at. Ephemeral.
    #[serde(rename = "provider.waiting")]
    ProviderWaiting {
        /// The provider profile.
        provider: String,
        /// How long until the next attempt.
        wait_ms: u64,
        /// How much patience is left after it.
        patience_left_ms: u64,
        /// The class of the failure that is waited for.
        #[serde(default)]
        class: String,
        /// What failed.
        #[serde(default)]
        cause: String,
    },
    /// A reply is due, and nothing is heard of it. Ephemeral.
    #[serde(rename = "provider.silent")]
    ProviderSilent {
        /// The provider profile.
        provider: String,
        /// How long nothing was heard.
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
        /// What failed.
        cause: String,
        /// Those that were passed over, and why.
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
        /// What it will do, in one line.
        summary: String,
        /// Hash of exactly what was judged.
        digest: String,
        /// Whether it changes anything outside posse.
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
        /// What the model gets to read.
        content: Vec<ContentPart>,
        /// What a program gets to read: exit code, diff, counts.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        metadata: Value,
        /// How long it ran.
        duration_ms: u64,
    },
    /// A call ended badly, or was not allowed to start: the outcome.
    #[serde(rename = "tool.failed")]
    ToolFailed {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// What the model gets to read.
        content: Vec<ContentPart>,
        /// `invalid`, `denied`, `failed`, `cancelled`, `crashed`, `skipped`, `unknown_tool`.
        class: String,
        /// What a program gets to read.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        metadata: Value,
        /// How long it ran.
        duration_ms: u64,
    },
    /// A call had started and nobody knows how it ended. The model is told.
    #[serde(rename = "tool.outcome_unknown")]
    ToolOutcomeUnknown {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// What the model gets to read.
        content: Vec<ContentPart>,
        /// What it was to do, and since when. Missing in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        begun: Option<Begun>,
    },
    /// What really confines a process, as the kernel answered.
    #[serde(rename = "sandbox.enforced")]
    SandboxEnforced {
        /// The call.
        call_id: CallId,
        /// `none`, `reduced` or `full`.
        tier: String,
        /// Details of the report.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        report: Value,
    },

    /// A command goes on in the background, and its call ends.
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Bytes that it printed, as far as that is known.
        bytes: u64,
        /// How long it ran; 0 if that is not known.
        duration_ms: u64,
        /// What it did to protected files, and what became of that, a line each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        findings: Vec<String>,
    },

    /// A hook was asked and answered. What it changed is in here: the record of the call stays as
    /// it was.
    #[serde(rename = "hook.fired")]
    HookFired {
        /// Its name.
        hook: String,
        /// Where it was asked.
        event: HookEvent,
        /// The call, if it was about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<CallId>,
        /// The tool, if it was about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        /// What it wants.
        decision: HookDecision,
        /// What it says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The arguments that it wants instead, before they are judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Box<Value>>,
        /// What the model reads instead of the outcome that was recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Vec<ContentPart>>,
        /// For programs, from the hook.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Box<Value>>,
        /// How long it took.
        duration_ms: u64,
    },
    /// A hook could not be asked, or its answer made no sense.
    #[serde(rename = "hook.failed")]
    HookFailed {
        /// Its name.
        hook: String,
        /// Where it was asked.
        event: HookEvent,
        /// The call, if it was about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<CallId>,
        /// The tool, if it was about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        /// `HK001`, …
        code: String,
        /// What happened.
        cause: String,
        /// Whether that counted as a no.
        blocked: bool,
        /// What the model reads instead of the outcome that was recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Vec<ContentPart>>,
        /// How long it took.
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
        /// Hash of what is asked about.
        digest: String,
        /// Where it would happen.
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
        /// `user` or `--yes`.
        by: String,
        /// How far the answer reaches.
        scope: Scope,
        /// What else it covers, if it covers more than the one call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Grant>,
        /// The `binding` of the question: what it allows, and nothing else.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        binding: String,
        /// The front end that answered, if it was not the one that owns the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answered_by: Option<String>,
    },
    /// A question was answered with no, or there was nobody to ask.
    #[serde(rename = "permission.denied")]
    PermissionDenied {
        /// The question.
        request_id: QuestionId,
        /// `user` or `nobody`.
        by: String,
        /// What the model is told.
        reason: String,
        /// The rule in the user's configuration that would allow it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// The front end that answered, if it was not the one that owns the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answered_by: Option<String>,
    },
    /// A question is moot: the call that asked is gone.
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
        /// How much of it is used, where that is worth knowing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<u64>,
        /// What the next step would have needed at worst.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        needed: Option<u64>,
    },
    /// A repository's configuration wanted more than it may, and did not get it.
    #[serde(rename = "config.ignored")]
    ConfigIgnored {
        /// `CFG005`, …
        code: String,
        /// What was ignored, and why.
        message: String,
    },
    /// Something that deserves one line.
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
    /// Whether this is also a record in the journal.
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

/// A place in another session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// The session.
    pub session: SessionId,
    /// The last record of it that counts.
    pub record: u64,
}

/// What a session goes on with: the world may not be as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoesOnWith {
    /// Version of posse.
    pub posse: String,
    /// The working directory.
    pub cwd: String,
    /// The agent of the main invocation.
    pub agent: String,
    /// The provider profile.
    pub provider: String,
    /// The model.
    pub model: String,
    /// What confines processes: `none`, `reduced` or `full`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tier: String,
    /// Hash of what the agent is told besides the state of the world.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// What it may cost, where that was said for this session.
    #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
    pub budget: Budget,
}

/// How a command in the background ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// By itself, or by a signal that was not ours.
    Exited,
    /// Its time was up, or it printed too much.
    Killed,
    /// Somebody wanted it to end.
    Stopped,
    /// The session ended, and it with the session.
    SessionEnded,
    /// Nobody knows: posse broke off, and it was killed with posse.
    Lost,
}

/// What a hook wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookDecision {
    /// Nothing.
    Pass,
    /// That its message is read.
    Warn,
    /// That it does not happen.
    Block,
    /// That something is changed.
    Patch,
}

/// How a message that arrives during a run enters it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// After the calls in flight, before the next request.
    Steer,
    /// After what would have been the final answer.
    FollowUp,
    /// Before the next request, whatever that is: from posse, not from the user. No call is skipped
    /// for it.
    Notice,
    /// Before the next request, and no reason to make one: what the user did beside the
    /// conversation.
    Aside,
}

/// How far an answer reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call.
    Once,
    /// Until the session ends.
    Session,
    /// In this project, until it expires.
    Project,
    /// Everywhere, until it expires.
    Global,
}

/// An allowance the user gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The operation it covers, such as `write`.
    pub operation: String,
    /// Where, such as a directory relative to its root; everything below is covered.
    pub target: String,
    /// How far it reaches.
    pub scope: Scope,
}

/// Which invocation an event belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The invocation.
    pub invocation_id: InvocationId,
    /// The one that delegated to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_invocation_id: Option<InvocationId>,
    /// Its agent.
    pub agent: String,
    /// The agents from the root to it, separated by `/`.
    pub agent_path: String,
}
