//! Events that observers receive: one enum for everything that happens in a session. The `type` of
//! an event in JSON is part of the public contract.
//!
//! A *durable* event is also a journal record and is announced only after it was written. An
//! ephemeral event (a delta) may be combined with others or lost; where its content matters later,
//! a durable event repeats it.

mod edit_hunk;
mod envelope;
mod grant;
mod hook_event;
mod payload;
mod permission_mode;
mod record;
mod rule;
mod session_error;
mod started_call;
mod todo;
mod tried_changes;
mod user_request;
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

pub use edit_hunk::{EditHunk, HUNK_TEXTS_BYTES_MAX, HUNKS_MAX, HunkAnswer};
#[cfg(feature = "testing")]
pub use envelope::line_schemas;
pub use envelope::{AnnouncedEvent, Announcement};
pub use grant::{Grant, GrantedAgent, Scope};
pub use hook_event::{HookDecision, HookEvent};
pub use payload::{
    Branch, ContextUse, JobEnd, MessageKind, Origin, PermissionTarget, PromptOverrides,
    ResumedConfig, TriedChange,
};
pub use permission_mode::PermissionMode;
pub use record::{Durability, Record, RecordId, StoredRecord};
pub use session_error::SessionError;
pub use started_call::StartedCall;
pub use todo::{TodoItem, TodoStatus, todo_progress};
pub use user_request::{
    PLAN_CHARS_MAX, PLAN_MODES, QuestionAnswer, QuestionOption, REPLY_CHARS_MAX, UserQuestion,
    UserReply, UserRequest,
};
pub use words::{
    CompactionCause, DecisionSource, SandboxTier, SessionEndReason, TargetType, ToolFailureClass,
    TrialOffer,
};

/// Version of the format of events and journal records.
pub const FORMAT_VERSION: u32 = 1;

/// Something that happened in a session. In JSON, `type` tells the variants apart.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Event {
    /// A session started. First record of a journal.
    #[serde(rename = "session.started")]
    SessionStarted {
        /// Version of posse that started the session.
        posse: String,
        /// Working directory of the session.
        cwd: String,
        /// Name of the main agent.
        agent: String,
        /// Provider profile of the main agent.
        provider: String,
        /// Model of the main agent.
        model: String,
        /// Agent mode: `single-agent` (no subagents) or `multi-agent`.
        mode: String,
        /// Sandbox tier of processes: `none`, `reduced` or `full`; empty in records of earlier
        /// versions.
        #[serde(default, skip_serializing_if = "SandboxTier::is_unrecorded")]
        tier: SandboxTier,
        /// Permission mode of the session. `None` in records of earlier versions.
        permission_mode: Option<PermissionMode>,
        /// Hash of the agent's instructions without the block about the environment; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        instructions: String,
        /// Limits that were set for this session only; limits of the configuration are not
        /// recorded.
        #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
        budget: Budget,
        /// Texts of the user for the system prompt of the main agent.
        #[serde(default, skip_serializing_if = "PromptOverrides::is_empty")]
        prompt: PromptOverrides,
        /// Session and record from which this session was forked; `None` for a session that is no
        /// fork.
        forked_from: Option<Branch>,
    },
    /// History of the main agent and memory of subagents that a forked session takes over from the
    /// original session.
    #[serde(rename = "session.forked")]
    SessionForked {
        /// The original session.
        parent: SessionId,
        /// Number of the last record of the original session that belongs to the fork.
        parent_record: u64,
        /// The complete history up to that record, without system messages.
        history: Vec<Arc<Message>>,
        /// Number of prompts in that history, also of those that were compacted; the prompts of the
        /// fork are counted from there. 0 in records of earlier versions.
        #[serde(default, skip_serializing_if = "is_zero")]
        prompts: u32,
        /// Memory of the subagents of the original session.
        #[serde(default, skip_serializing_if = "Memories::is_empty")]
        memories: Memories,
        /// Task list of the main agent of the original session.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        todos: Vec<TodoItem>,
    },
    /// A stored session was resumed.
    #[serde(rename = "session.resumed")]
    SessionResumed {
        /// Number of the last record before the resume.
        records: u64,
        /// Configuration with which the session was resumed. `None` in records of earlier versions.
        with: Option<Box<ResumedConfig>>,
        /// Differences to the earlier configuration, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
    },
    /// Title of the session, given by the user or written by a model. The event may be repeated; the
    /// last title counts.
    #[serde(rename = "session.titled")]
    SessionTitled {
        /// The title, in one line.
        title: String,
    },
    /// The user labelled a prompt, for the tree of branches. The last label counts.
    #[serde(rename = "prompt.labelled")]
    PromptLabelled {
        /// Session of the prompt: this one, or one of its branches.
        of: SessionId,
        /// Number of the prompt in the conversation of that session, from 1.
        prompt: u32,
        /// The label, in one line; empty to remove it.
        label: String,
    },
    /// The work of the session stopped and can be continued later: a provider was unavailable for
    /// too long, or an actor crashed too often. With `Limits::outwaits_once`, a model request whose
    /// `next_try_ms` is known then waits and is sent once more.
    #[serde(rename = "session.parked")]
    SessionParked {
        /// One-line cause.
        cause: String,
        /// Class of the provider's failure; `None` if an actor crashed too often.
        class: Option<String>,
        /// Earliest useful time of another attempt, in milliseconds since 1970; `None` if unknown.
        next_try_ms: Option<u64>,
    },
    /// The session ended. Last event of the stream.
    #[serde(rename = "session.ended")]
    SessionEnded {
        /// Reason for the end.
        reason: SessionEndReason,
        /// Exit code of the front end that ended the session.
        exit_code: i32,
        /// Tokens of the whole session, including subagents, as far as providers reported them.
        usage: Usage,
        /// Cost in dollars; `None` if it is not completely known.
        #[serialize_always]
        cost_usd: Option<f64>,
        /// Known part of the cost, in billionths of a dollar; `None` if no cost is known.
        cost_nano_usd: Option<u64>,
        /// Number of attempts whose cost is unknown or only partly known.
        #[serde(default, skip_serializing_if = "is_zero")]
        unpriced_requests: u64,
        /// Number of model replies in the session, including those of subagents.
        turns: u32,
        /// Final answer of a headless run, or its last text if a limit ended it. `None` (`null` in
        /// JSON) if there is none, and in other front ends.
        #[serialize_always]
        result: Option<String>,
        /// Error that ended a headless run; `None` if there was none, and in other front ends.
        error: Option<SessionError>,
    },

    /// A message in the user's role entered the history of an agent: a prompt, a queued message, or
    /// the task of a subagent.
    #[serde(rename = "user.message")]
    UserMessage {
        /// Text and images.
        content: Vec<ContentPart>,
        /// Id of the queued message; `None` for a message that was not queued.
        message_id: Option<MessageId>,
    },
    /// A message was queued for an agent, which receives it later, at a time that depends on
    /// `kind`.
    #[serde(rename = "message.queued")]
    MessageQueued {
        /// Id of the message.
        message_id: MessageId,
        /// Kind of the message, which decides about the time of delivery.
        kind: MessageKind,
        /// Text and images.
        content: Vec<ContentPart>,
    },
    /// A queued message entered the history.
    #[serde(rename = "message.delivered")]
    MessageDelivered {
        /// Id of the message.
        message_id: MessageId,
    },
    /// The user withdrew a queued message. It is not delivered.
    #[serde(rename = "message.withdrawn")]
    MessageWithdrawn {
        /// Id of the message.
        message_id: MessageId,
    },
    /// The user runs a tool directly. This record precedes all other records of the call.
    #[serde(rename = "user.call")]
    UserCall {
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        tool: String,
        /// Id of the message that informs the model. The message is queued when the call has ended.
        message_id: MessageId,
        /// Beginning of that message; the output of the tool follows it. If it is empty, there is no
        /// message.
        said: String,
    },

    /// A checkpoint of the workspace was taken, before the first effect of a run or of a tool call of
    /// the user. The workspace can be returned to it.
    #[serde(rename = "checkpoint.created")]
    CheckpointCreated {
        /// Number of the checkpoint in its project.
        checkpoint: u64,
        /// Invocation of the run or call.
        run: InvocationId,
        /// Number of files in the checkpoint.
        files: usize,
        /// Number of bytes of these files.
        bytes: u64,
        /// Files that the checkpoint does not contain, in words. Empty if it contains all.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        left_out: String,
    },
    /// Files are being stored for a checkpoint. Only announced if there are many. Ephemeral.
    #[serde(rename = "checkpoint.progress")]
    CheckpointProgress {
        /// Number of files that are stored.
        files: usize,
        /// Number of files that have to be stored.
        total: usize,
    },
    /// The files of a checkpoint were restored.
    #[serde(rename = "checkpoint.restored")]
    CheckpointRestored {
        /// Number of the checkpoint.
        checkpoint: u64,
        /// Number of the checkpoint of the state before, which takes the restore back.
        undo: u64,
        /// Number of files that were written or removed.
        files: usize,
        /// Number of files that differ and stay as they were.
        kept: usize,
    },

    /// A compaction replaced the history of an agent. Earlier records stay in the journal; later
    /// model requests start from the new history.
    #[serde(rename = "context.compacted")]
    ContextCompacted {
        /// Size of the history before the compaction, in bytes.
        bytes_before: usize,
        /// Size of the history after the compaction, in bytes.
        bytes_after: usize,
        /// Number of removed model replies.
        turns_removed: usize,
        /// Number of tool outputs that were replaced by a line in turns that stay.
        outputs_removed: usize,
        /// Number of user messages that were shortened because the model never answered them.
        #[serde(default, skip_serializing_if = "is_zero")]
        prompts_removed: usize,
        /// Estimated tokens of a model request with the history before the compaction. `None` in
        /// older journals.
        tokens_before: Option<u64>,
        /// Estimated tokens of a model request with the history after the compaction. `None` in
        /// older journals.
        tokens_after: Option<u64>,
        /// Reason for the compaction. `None` in older journals.
        cause: Option<CompactionCause>,
        /// Model that wrote the summary; `None` if the summary was made by rules.
        summarised_by: Option<String>,
        /// The complete new history, without system messages.
        history: Vec<Arc<Message>>,
    },

    /// The context of a model request is complete, before the request is given to a model.
    /// Ephemeral: the next `model.usage` has the tokens that the provider counted.
    #[serde(rename = "context.compiled")]
    ContextCompiled {
        /// Number of the requested reply within the invocation, from 1.
        turn: u32,
        /// Number of messages in the model request, including the system message.
        messages: usize,
        /// Estimated tokens of the request.
        tokens: u64,
        /// Part of `tokens` that is not conversation: system prompt and tools.
        fixed_tokens: u64,
        /// Estimated tokens above which the history is compacted.
        compacts_at: u64,
        /// Context window of the model in tokens; `None` if unknown or not looked up yet.
        window: Option<u64>,
    },
    /// The history of a subagent was compacted. Announced right after the `context.compacted` of the
    /// same agent, which has the new history. Ephemeral.
    #[serde(rename = "agent.session.context_compacted")]
    SubagentCompacted {
        /// Estimated tokens of a model request with the history before the compaction.
        tokens_before: u64,
        /// Estimated tokens of a model request with the history after the compaction.
        tokens_after: u64,
        /// Reason for the compaction.
        cause: CompactionCause,
    },
    /// The report of a subagent was added to the memory for later subagents of its name. Announced
    /// after the end of the subagent; the memory follows from the records of subagents. Ephemeral.
    #[serde(rename = "agent.session.memory_updated")]
    MemoryUpdated {
        /// Name of the subagents that share the memory.
        agent: String,
        /// Provider profile of these subagents.
        provider: String,
        /// Number of reports that the memory has taken up.
        tasks: u32,
        /// Size of the memory in bytes, as the next subagent gets it.
        bytes: usize,
    },

    /// Tokens of the parts of a request of the main agent. Announced when a front end asks for it.
    /// Ephemeral.
    #[serde(rename = "context.used")]
    ContextUsed {
        /// The tokens of each part.
        #[serde(flatten)]
        used: ContextUse,
    },

    /// An agent delegates a task, and a limit does not prevent it. Recorded before the subagent
    /// starts or is resumed.
    #[serde(rename = "agent.invocation.requested")]
    InvocationRequested {
        /// Invocation of the subagent.
        child_invocation_id: InvocationId,
        /// Name of the subagent.
        target: String,
        /// The call of the delegation tool.
        call_id: CallId,
        /// Provider profile of the subagent.
        provider: String,
        /// The task in one line.
        task: String,
        /// True if the caller does not wait for the answer.
        background: bool,
        /// True if the caller wants a brief answer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        brief: bool,
        /// Working directory of the isolated workspace; `None` if the subagent has none.
        workplace: Option<String>,
    },
    /// A subagent has ended. The record belongs to its caller.
    #[serde(rename = "agent.delegation.ended")]
    DelegationEnded {
        /// Invocation of the subagent.
        child_invocation_id: InvocationId,
        /// Name of the subagent.
        target: String,
        /// Outcome of the subagent.
        #[serde(flatten)]
        outcome: SubagentOutcome,
        /// Number of model replies since its last start.
        turns: u32,
        /// Tokens since its last start.
        usage: Usage,
        /// Known cost since its last start, in billionths of a dollar; `None` if no cost is known.
        cost_nano_usd: Option<u64>,
        /// Summary of its isolated workspace, also if that was removed because it had no changes.
        /// `None` if the subagent had none, or if the workspace was missing on resume.
        workplace: Option<WorktreeSummary>,
    },
    /// The memory of the session about subagents was deleted: about those of one name, or about
    /// all.
    #[serde(rename = "agent.memory.forgotten")]
    MemoryForgotten {
        /// Name of the subagents whose memory was deleted; `None` means all.
        agent: Option<String>,
    },
    /// An invocation started, or a subagent that had ended was resumed with a new message. A
    /// continued invocation of an earlier process is not recorded again.
    #[serde(rename = "agent.invocation.started")]
    InvocationStarted {
        /// Name of the provider profile.
        provider: String,
        /// Name of the model.
        model: String,
        /// Names of the tools that the model sees.
        tools: Vec<String>,
    },
    /// The tools of a subagent were decided: those of its definition that the session has, and those
    /// for delegation if it may delegate. Recorded right after `agent.invocation.started`. Each call is
    /// still judged by the permission policy.
    #[serde(rename = "agent.invocation.tool_policy.applied")]
    ToolPolicyApplied {
        /// Names of the tools that it sees.
        tools: Vec<String>,
        /// Names of these tools that have side effects.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        effects: Vec<String>,
        /// Names of the subagents that it may call; empty if it cannot delegate.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        may_call: Vec<String>,
        /// True if it works in an isolated workspace, whose policy judges its calls.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        isolated: bool,
    },
    /// An invocation gave its final answer.
    #[serde(rename = "agent.invocation.completed")]
    InvocationCompleted {
        /// The answer.
        result: String,
        /// Number of model replies.
        turns: u32,
        /// Tokens of the invocation.
        usage: Usage,
    },
    /// An invocation ended without a final answer, for another reason than a stop.
    #[serde(rename = "agent.invocation.failed")]
    InvocationFailed {
        /// Class of the failure: `provider.*`, `limit`, `crashed`, `content_filter`, `loop`,
        /// `hook`, `journal`, …
        class: String,
        /// Cause in words.
        cause: String,
        /// Number of model replies.
        turns: u32,
        /// Tokens of the invocation.
        usage: Usage,
    },
    /// An invocation was stopped.
    #[serde(rename = "agent.invocation.cancelled")]
    InvocationCancelled {
        /// Number of model replies.
        turns: u32,
        /// Tokens of the invocation.
        usage: Usage,
    },

    /// A model request is given to a model. Repeated when it is given to another model or again to
    /// the same one, such as after a wait of a parked run or a compaction; not for each attempt.
    #[serde(rename = "model.request")]
    ModelRequest {
        /// Number of the requested reply within the invocation, from 1.
        turn: u32,
        /// Name of the provider profile.
        provider: String,
        /// Name of the model.
        model: String,
        /// Number of messages in the model request, including the system message.
        messages: usize,
    },
    /// A piece of visible text. Ephemeral.
    #[serde(rename = "model.text.delta")]
    TextDelta {
        /// New text.
        text: String,
    },
    /// A piece of thinking. Ephemeral.
    #[serde(rename = "model.thinking.delta")]
    ThinkingDelta {
        /// New text of the thinking.
        text: String,
    },
    /// The model finished a reply.
    #[serde(rename = "model.text")]
    ModelReply {
        /// Number of the reply within the invocation, from 1.
        turn: u32,
        /// The reply.
        message: AssistantMessage,
        /// Reason why the model stopped.
        stop_reason: StopReason,
        /// Model that the provider names as the author; `None` if it names none.
        model: Option<String>,
    },
    /// Text of a reply that was cut off by a fault, a hook or the user.
    #[serde(rename = "model.text.partial")]
    ModelPartial {
        /// Number of the reply within the invocation, from 1.
        turn: u32,
        /// The text that had arrived.
        text: String,
        /// Reason why the reply ended: the class of the failure, `interrupted`, `crashed`, …
        cause: String,
        /// True if the text is part of the history, followed by a note that it was cut off: the run
        /// was stopped. False if the reply was requested again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_history: bool,
    },
    /// Usage and cost of one attempt on which the model worked or may have worked, also if its
    /// reply is incomplete. A model request with retries has several of these events. On resume,
    /// usage that was recovered from a damaged journal is recorded as well.
    #[serde(rename = "model.usage")]
    ModelUsage {
        /// Number of the requested reply within the invocation, from 1; 0 if unknown.
        turn: u32,
        /// Tokens of the attempt.
        usage: Usage,
        /// Model, outcome and cost. `None` in older journals.
        billing: Option<Box<Billing>>,
    },
    /// The worst-case cost of an attempt is reserved from the budget. Recorded before the attempt
    /// is sent, and only under a budget.
    #[serde(rename = "budget.reserved")]
    BudgetReserved {
        /// Number of the attempt in the session.
        request: u64,
        /// Reserved money in billionths of a dollar.
        nano_usd: u64,
        /// Reserved tokens.
        tokens: u64,
    },
    /// A reservation is released: the attempt was not sent, or the provider did no work for it. If
    /// the provider worked, `model.usage` ends the reservation instead.
    #[serde(rename = "budget.released")]
    BudgetReleased {
        /// Number of the attempt in the session.
        request: u64,
    },
    /// The provider withheld a reply with its content filter.
    #[serde(rename = "model.content_filter")]
    ContentFilter {
        /// Number of the reply within the invocation, from 1.
        turn: u32,
    },

    /// An attempt failed. The next attempt of the model request follows after a wait.
    #[serde(rename = "provider.retry")]
    ProviderRetry {
        /// Name of the provider profile.
        provider: String,
        /// Number of the failed attempt, from 1.
        attempt: u32,
        /// Failure in words.
        cause: String,
        /// The class of the failure.
        class: String,
        /// Wait before the next attempt, in milliseconds.
        wait_ms: u64,
    },
    /// A model request waits at least 500 ms for its next attempt. Announced at the start of the
    /// wait and repeated during it. Ephemeral.
    #[serde(rename = "provider.waiting")]
    ProviderWaiting {
        /// Name of the provider profile.
        provider: String,
        /// Remaining wait before the next attempt, in milliseconds.
        wait_ms: u64,
        /// Patience that remains after the wait, in milliseconds. 0: the next attempt is the last
        /// one.
        patience_left_ms: u64,
        /// Class of the failure that caused the wait; empty if there was none.
        #[serde(default)]
        class: String,
        /// Failure in words; empty if there was none.
        #[serde(default)]
        cause: String,
    },
    /// The provider has sent nothing for a while during an attempt with streaming. Repeated while
    /// the silence lasts. Ephemeral.
    #[serde(rename = "provider.silent")]
    ProviderSilent {
        /// Name of the provider profile.
        provider: String,
        /// Duration of the silence in milliseconds.
        silent_ms: u64,
    },
    /// Model requests switch to another model: to a fallback, or back to an earlier model of the
    /// list.
    #[serde(rename = "provider.failover")]
    ProviderFailover {
        /// Provider profile used until now.
        from: String,
        /// Model used until now.
        from_model: String,
        /// Provider profile used from now on.
        to: String,
        /// Model used from now on.
        to_model: String,
        /// Class of the failure that caused the switch, or `recovered` if an earlier model answers
        /// again.
        class: String,
        /// Cause of the switch in words.
        cause: String,
        /// Provider profiles of models in the list between `from_model` and `to_model` that were
        /// skipped, each with the reason.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<String>,
    },

    /// The model, or the user, requested a tool call.
    #[serde(rename = "tool.requested")]
    ToolRequested {
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// Arguments as JSON text, as the model or the user wrote them; they may be invalid.
        arguments: String,
    },
    /// A call starts: the intent record, written before any side effect.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// One-line description of the effect.
        summary: String,
        /// Hash of the exact effect that was judged.
        digest: String,
        /// True if the tool has side effects.
        effect: bool,
        /// Corrections of the arguments, such as a converted type or another field name, one line
        /// each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        coerced: Vec<String>,
    },
    /// Output of a running call. Ephemeral.
    #[serde(rename = "tool.output.delta")]
    ToolOutputDelta {
        /// Id of the call.
        call_id: CallId,
        /// New output.
        text: String,
    },
    /// A call succeeded: the outcome record.
    #[serde(rename = "tool.completed")]
    ToolCompleted {
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// Result for the model, unless a later `hook.fired` or `hook.failed` of the call replaces
        /// it.
        content: Vec<ContentPart>,
        /// Data for programs: exit code, diff, counts.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        metadata: Value,
        /// Duration in milliseconds.
        duration_ms: u64,
    },
    /// A call failed, was denied or stopped, crashed without an effect, or did not start: the
    /// outcome record.
    #[serde(rename = "tool.failed")]
    ToolFailed {
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// Error text for the model, unless a later `hook.fired` or `hook.failed` of the call
        /// replaces it.
        content: Vec<ContentPart>,
        /// Reason of the failure.
        class: ToolFailureClass,
        /// Data for programs, from the tool.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        metadata: Value,
        /// Duration in milliseconds; 0 if the call did not run, was stopped or crashed.
        duration_ms: u64,
    },
    /// A call started that may have had an effect, and its end is unknown. The model gets an error
    /// as the result.
    #[serde(rename = "tool.outcome_unknown")]
    ToolOutcomeUnknown {
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// Error text for the model, unless a later `hook.fired` or `hook.failed` of the call
        /// replaces it.
        content: Vec<ContentPart>,
        /// Description and start time of the call. `None` in older journals.
        begun: Option<StartedCall>,
    },
    /// An agent has written its task list, which replaces its earlier one. The agent is that of the
    /// record.
    #[serde(rename = "todo.updated")]
    TodosUpdated {
        /// The complete list; empty if the agent has cleared it.
        todos: Vec<TodoItem>,
    },
    /// The sandbox confined the process of a call, as reported by the operating system.
    #[serde(rename = "sandbox.enforced")]
    SandboxEnforced {
        /// Id of the call.
        call_id: CallId,
        /// Sandbox tier of the process.
        tier: SandboxTier,
        /// Details of the report by the sandbox.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        report: Value,
    },

    /// A command connected to a server through the proxy of its sandbox, or was refused.
    #[serde(rename = "network.connection")]
    NetworkConnection {
        /// Id of the call.
        call_id: CallId,
        /// Domain or address that the command named. Empty if its request named none.
        host: String,
        /// Port that the command named; 0 if its request named none.
        port: u16,
        /// Reason why the connection was refused or cut; `None` if it was not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Number of bytes that the command has sent.
        sent: u64,
        /// Number of bytes that the command has received.
        received: u64,
        /// Number of connections that this event sums up.
        connections: u64,
    },
    /// A command became a background job: it continues after the end of its call.
    #[serde(rename = "job.started")]
    JobStarted {
        /// The call that started the command. The background job has the same id.
        call_id: CallId,
        /// One-line description of the command.
        summary: String,
    },
    /// A background job has ended.
    #[serde(rename = "job.ended")]
    JobEnded {
        /// The call that started the command, which is also the id of the job.
        call_id: CallId,
        /// One-line description of the command.
        summary: String,
        /// Reason why the background job ended.
        end: JobEnd,
        /// The end in words: `exit 1`, `stopped`, …
        detail: String,
        /// Exit code; `None` if the command did not exit with a code, such as after a signal.
        exit_code: Option<i32>,
        /// Size of the command's output in bytes; 0 if unknown.
        bytes: u64,
        /// Duration in milliseconds; 0 if unknown.
        duration_ms: u64,
        /// Changes of protected files by the command, and the reaction of the sandbox, one line
        /// each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        findings: Vec<String>,
    },

    /// A hook ran and returned a decision. Changes by the hook are recorded here; the records of
    /// the call stay as they are.
    #[serde(rename = "hook.fired")]
    HookFired {
        /// Name of the hook.
        hook: String,
        /// Point of the session at which the hook ran.
        event: HookEvent,
        /// The call; `None` if the event is not about a call.
        call_id: Option<CallId>,
        /// The tool; `None` if the event is not about a call.
        tool: Option<String>,
        /// Decision of the hook.
        decision: HookDecision,
        /// Message of the hook; `None` if it gave none.
        message: Option<String>,
        /// Arguments by which the hook replaces those of the call; `None` if it changes none. The
        /// policy judges the new ones.
        input: Option<Box<Value>>,
        /// Result that the model gets instead of the recorded one; `None` if the hook changes
        /// nothing.
        output: Option<Vec<ContentPart>>,
        /// Data for programs, from the hook; `None` if it gave none.
        metadata: Option<Box<Value>>,
        /// Duration in milliseconds.
        duration_ms: u64,
    },
    /// A hook failed: it could not run, took too long, ended with an error, or gave an invalid
    /// answer.
    #[serde(rename = "hook.failed")]
    HookFailed {
        /// Name of the hook.
        hook: String,
        /// Point of the session at which the hook ran.
        event: HookEvent,
        /// The call; `None` if the event is not about a call.
        call_id: Option<CallId>,
        /// The tool; `None` if the event is not about a call.
        tool: Option<String>,
        /// Error code: `HK001`, …
        code: String,
        /// Cause in words.
        cause: String,
        /// True if the failure counts as a denial; false if it is ignored.
        blocked: bool,
        /// Result that the model gets instead of the recorded one; `None` if the recorded one
        /// stays.
        output: Option<Vec<ContentPart>>,
        /// Duration in milliseconds.
        duration_ms: u64,
    },

    /// A permission request was opened, or the model asks the user something. Repeated with the same
    /// id when the call asks again after a crash or a resume.
    #[serde(rename = "permission.requested")]
    PermissionRequested {
        /// Id of the request; an answer must name it.
        request_id: QuestionId,
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        tool: String,
        /// The tool whose call, or the agent whose start, is in question.
        #[serde(flatten)]
        target: PermissionTarget,
        /// One-line description of the effect.
        summary: String,
        /// The complete command or diff.
        detail: String,
        /// Reason of the request.
        reason: String,
        /// Scopes that an answer may have; empty for a request of the model.
        scopes: Vec<Scope>,
        /// Questions or plan of the model. `None`: the request is about permission for the call.
        user_request: Option<Box<UserRequest>>,
        /// Answer about a trial of the call that the request offers; `None` if it offers none.
        trial: Option<TrialOffer>,
        /// Grant that an answer with a wider scope than `once` creates; `None` if there is no such answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Box<Grant>>,
        /// True if `grant` covers only a part of the call; the other parts are asked about next.
        #[serde(default, skip_serializing_if = "is_zero")]
        grants_part: bool,
        /// The part of `reason` that says what `grant` allows; empty if none does.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        grant_text: String,
        /// Hunks of the change of a text file, which can be answered one by one; empty if the request
        /// is answered as a whole.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hunks: Vec<EditHunk>,
        /// Hash of the effect in question.
        digest: String,
        /// Working directory of the call; empty in older journals.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cwd: String,
        /// Hash over the call, `digest`, `cwd`, the invocation and the agent's path: an answer is
        /// valid only for exactly these.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        binding: String,
    },
    /// A permission request was answered: the call is allowed. Or the user replied to a request of the
    /// model.
    #[serde(rename = "permission.granted")]
    PermissionGranted {
        /// Id of the request.
        request_id: QuestionId,
        /// Source of the answer.
        by: DecisionSource,
        /// Scope of the answer.
        scope: Scope,
        /// Grant that the answer creates; `None` if the answer covers only this call.
        grant: Option<Grant>,
        /// Reply to questions or a plan of the model; `None` for a permission.
        reply: Option<Box<UserReply>>,
        /// True if the grant covers only a part of the call. The other parts are asked about next,
        /// and the call is not allowed yet.
        #[serde(default, skip_serializing_if = "is_zero")]
        grants_part: bool,
        /// True if the changes of the trial are kept, so that the call does not run again.
        #[serde(default, skip_serializing_if = "is_zero")]
        keeps_trial: bool,
        /// Answers about the hunks of the request, in their order: the call makes only the hunks that
        /// are not `no`. Empty if the call is allowed as a whole.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hunks: Vec<HunkAnswer>,
        /// The tool whose call, or the agent whose start, is in question.
        #[serde(flatten)]
        target: PermissionTarget,
        /// Hash to which the answer is bound: the `binding` of the request.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        binding: String,
        /// Name of the attached front end that answered; `None` for the front end that owns the
        /// session, and for the flag `--yes`.
        answered_by: Option<String>,
    },
    /// A permission request was denied: by the answer of a person, by the policy after another
    /// answer, because no person could be asked, or because too many requests were open. Or a request
    /// of the model was refused, or not answered in time.
    #[serde(rename = "permission.denied")]
    PermissionDenied {
        /// Id of the request.
        request_id: QuestionId,
        /// Source of the answer.
        by: DecisionSource,
        /// Reason for the denial, as the model reads it.
        reason: String,
        /// The tool whose call, or the agent whose start, is in question.
        #[serde(flatten)]
        target: PermissionTarget,
        /// True if a request of the model was refused or not answered; false for a permission.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_user_request: bool,
        /// Rule that would allow the call if the user configured it, an object as in `permissions`;
        /// `None` if there is no such rule. Records of earlier versions have it as JSON text, which
        /// is parsed.
        #[serde(default, deserialize_with = "rule::from_object_or_text")]
        rule: Option<Box<Value>>,
        /// Name of the attached front end that answered; `None` for the front end that owns the
        /// session, and if no person denied the request.
        answered_by: Option<String>,
    },
    /// A permission request was withdrawn without an answer of its own: its call has ended or needs
    /// no answer any more, or no answer can come any more.
    #[serde(rename = "permission.withdrawn")]
    PermissionWithdrawn {
        /// Id of the request.
        request_id: QuestionId,
        /// Reason of the withdrawal.
        reason: String,
        /// The tool whose call, or the agent whose start, was in question.
        #[serde(flatten)]
        target: PermissionTarget,
    },

    /// A person let the call of a permission request run in a trial: in a throw-away view of the
    /// workspace. The request is open again afterwards: `permission.requested` with the same id
    /// follows, unless the call has ended.
    #[serde(rename = "permission.tried")]
    PermissionTried {
        /// Id of the request.
        request_id: QuestionId,
        /// Id of the call.
        call_id: CallId,
        /// Exit state and number of changes; or the reason why the trial failed.
        summary: String,
        /// Exit code of the command; `None` if it has none, for example after a signal.
        exit_code: Option<i32>,
        /// Output of the call, cut if it is long.
        output: String,
        /// Changes of files, at most 2,000 with paths of 64 KiB. Records of earlier versions have a
        /// text instead, which is read as an empty list.
        #[serde(deserialize_with = "tried_changes::from_list_or_text")]
        changes: Vec<TriedChange>,
        /// The changes as the person sees them, cut if they are long: a line for each, then their
        /// content in the format of `git diff`.
        #[serde(default)]
        diff: String,
        /// True if the call did not run, or its changes are not known.
        is_failed: bool,
        /// Name of the attached front end that asked for the trial; `None` for the front end that
        /// owns the session.
        tried_by: Option<String>,
    },

    /// A person changed the permission mode of the session. It applies to all later calls, also of
    /// subagents.
    #[serde(rename = "permission.mode_changed")]
    PermissionModeChanged {
        /// The new mode.
        mode: PermissionMode,
        /// The mode before.
        from: PermissionMode,
        /// Restriction of the new mode on this machine, in words; `None` if there is none.
        restriction: Option<String>,
        /// Name of the attached front end that changed it; `None` for the front end that owns the
        /// session.
        changed_by: Option<String>,
    },

    /// An actor crashed. `actor.restarted` follows if it is restarted.
    #[serde(rename = "actor.crashed")]
    ActorCrashed {
        /// Type of the actor, such as `TranscriptWriter`.
        actor: String,
        /// The panic or error.
        cause: String,
    },
    /// A crashed actor is restarted.
    #[serde(rename = "actor.restarted")]
    ActorRestarted {
        /// Type of the actor, such as `TranscriptWriter`.
        actor: String,
        /// Number of restarts of this actor within `restart_window`, including this one.
        restarts: u32,
    },
    /// A limit or the budget ended an invocation.
    #[serde(rename = "limit.reached")]
    LimitReached {
        /// Name of the limit in the configuration.
        limit: String,
        /// Value of the limit in the unit of the configuration; in seconds for `timeout`. For
        /// `maxTokens` the number of tokens of the reply, 0 if the provider reported none.
        value: u64,
        /// Amount already spent, in the unit of the limit; `None` for limits other than a budget.
        spent: Option<u64>,
        /// Amount that the refused attempt needs at least, in the unit of the limit; `None` for
        /// limits other than a budget.
        needed: Option<u64>,
    },
    /// A part of a project's configuration was ignored: a setting that a project may not make, or
    /// content that the user does not trust.
    #[serde(rename = "config.ignored")]
    ConfigIgnored {
        /// Error code: `CFG005`, …
        code: String,
        /// The ignored setting, file or project, and the reason.
        message: String,
    },
    /// A warning for the user. Announced without a record if it is about the journal itself.
    #[serde(rename = "warning")]
    Warning {
        /// The warning in one line.
        message: String,
    },

    /// An event of a type that this version does not know.
    #[serde(rename = "unknown", other)]
    Unknown,
}

impl Event {
    /// Id of the permission request that this event opens, answers or withdraws; `None` for other
    /// events.
    pub fn question(&self) -> Option<&QuestionId> {
        if let Event::PermissionRequested { request_id, .. } = self {
            return Some(request_id);
        }
        self.closed_question()
    }

    /// Id of the permission request that this event answers or withdraws, or that returns after a
    /// trial; `None` for other events.
    pub fn closed_question(&self) -> Option<&QuestionId> {
        let (Event::PermissionGranted { request_id, .. }
        | Event::PermissionDenied { request_id, .. }
        | Event::PermissionTried { request_id, .. }
        | Event::PermissionWithdrawn { request_id, .. }) = self
        else {
            return None;
        };
        Some(request_id)
    }

    /// True if the event is also a journal record; false if it is only announced.
    pub fn is_durable(&self) -> bool {
        !matches!(
            self,
            Event::TextDelta { .. }
                | Event::ThinkingDelta { .. }
                | Event::ToolOutputDelta { .. }
                | Event::ContextUsed { .. }
                | Event::CheckpointProgress { .. }
                | Event::ContextCompiled { .. }
                | Event::SubagentCompacted { .. }
                | Event::MemoryUpdated { .. }
                | Event::ProviderWaiting { .. }
                | Event::ProviderSilent { .. }
        )
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
