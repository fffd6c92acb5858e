//! Hook port: programs of the user and built-in guards that run at ten points of a session.
//!
//! The points are part of the public contract. Hooks before a tool call run before the review, so
//! the policy judges the arguments that will really run. Hooks after a call run when its outcome is
//! recorded. A hook cannot allow a call that the policy denies: no result means "allow".

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::conversation::{AssistantMessage, CallId, ContentPart, SessionId};
use crate::event::{HookEvent, Origin, PermissionMode, SessionEndReason, ToolFailureClass};
use crate::ports::{PortFuture, ToolAnnotations};

/// Input of a hook: the point of the session with its data.
#[derive(Debug, Clone)]
pub struct HookInvocation {
    /// Id of the session.
    pub session_id: SessionId,
    /// Permission mode of the session.
    pub permission_mode: PermissionMode,
    /// Invocation in which the event happened; `None` for `SessionStart` and `SessionEnd`.
    pub origin: Option<Arc<Origin>>,
    /// The hook event with its data.
    pub moment: HookPayload,
}

/// A hook event with its data.
#[derive(Debug, Clone)]
pub enum HookPayload {
    /// A session started or was resumed in this process: [`HookEvent::SessionStart`].
    SessionStart,
    /// A session is about to end: [`HookEvent::SessionEnd`].
    SessionEnd {
        /// Reason for the end: `completed`, `failed`, `interrupted`, …
        reason: SessionEndReason,
    },
    /// The user sent a prompt: [`HookEvent::UserPromptSubmit`].
    UserPromptSubmit {
        /// The prompt: text and images.
        content: Vec<ContentPart>,
    },
    /// A model request is about to be sent: [`HookEvent::BeforeModelRequest`].
    BeforeModelRequest {
        /// Number of the requested reply within the invocation, from 1.
        turn: u32,
        /// Number of messages in the history.
        messages: usize,
        /// Name of the model that the request is for.
        model: String,
    },
    /// A complete reply arrived: [`HookEvent::AfterModelResponse`].
    AfterModelResponse {
        /// Number of the reply within the invocation, from 1.
        turn: u32,
        /// The complete reply, which is not in the history yet.
        message: AssistantMessage,
    },
    /// A tool call is about to be judged: [`HookEvent::PreToolUse`].
    PreToolUse(HookedCall),
    /// A call succeeded, with this result: [`HookEvent::PostToolUse`].
    PostToolUse(HookedCall, Vec<ContentPart>),
    /// A call failed or did not run: [`HookEvent::ToolError`].
    ToolError {
        /// The failed call.
        used: HookedCall,
        /// Result that the model gets if no hook replaces it.
        content: Vec<ContentPart>,
        /// Class of the failure: invalid arguments, denied, crashed, …
        class: ToolFailureClass,
    },
    /// A call needs permission, and the request is about to be opened, also if `--yes` will answer
    /// it or no person can: [`HookEvent::PermissionRequest`].
    PermissionRequest {
        /// The call that needs permission.
        used: HookedCall,
        /// One-line description of the effect that needs permission.
        summary: String,
        /// Reason why permission is needed, as the policy gave it.
        reason: String,
    },
    /// The model gave its final answer: [`HookEvent::Stop`].
    Stop {
        /// The final answer.
        answer: String,
        /// Number of times that hooks have already made this run continue.
        holds: u32,
    },
}

/// A tool call as hooks receive it.
#[derive(Debug, Clone, PartialEq)]
pub struct HookedCall {
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the tool.
    pub tool: String,
    /// Annotations of the tool; the defaults if no tool has this name.
    pub annotations: ToolAnnotations,
    /// Arguments of the call. Before the call and after it ran they match the tool's schema; after
    /// a call that was refused or crashed they are those that the model wrote, unchecked, as a
    /// string if they are not JSON.
    pub input: Value,
}

impl HookPayload {
    /// The hook event without its data.
    pub fn event(&self) -> HookEvent {
        match self {
            HookPayload::SessionStart => HookEvent::SessionStart,
            HookPayload::SessionEnd { .. } => HookEvent::SessionEnd,
            HookPayload::UserPromptSubmit { .. } => HookEvent::UserPromptSubmit,
            HookPayload::BeforeModelRequest { .. } => HookEvent::BeforeModelRequest,
            HookPayload::AfterModelResponse { .. } => HookEvent::AfterModelResponse,
            HookPayload::PreToolUse(_) => HookEvent::PreToolUse,
            HookPayload::PostToolUse(..) => HookEvent::PostToolUse,
            HookPayload::ToolError { .. } => HookEvent::ToolError,
            HookPayload::PermissionRequest { .. } => HookEvent::PermissionRequest,
            HookPayload::Stop { .. } => HookEvent::Stop,
        }
    }

    /// The tool call; `None` for events that are not about a call.
    pub fn call(&self) -> Option<&HookedCall> {
        match self {
            HookPayload::PreToolUse(used)
            | HookPayload::PostToolUse(used, _)
            | HookPayload::ToolError { used, .. }
            | HookPayload::PermissionRequest { used, .. } => Some(used),
            HookPayload::SessionStart
            | HookPayload::SessionEnd { .. }
            | HookPayload::UserPromptSubmit { .. }
            | HookPayload::BeforeModelRequest { .. }
            | HookPayload::AfterModelResponse { .. }
            | HookPayload::Stop { .. } => None,
        }
    }
}

/// One result of a hook. A hook has a second one if configuration files of posse changed while it
/// ran. Recorded as `hook.fired` or `hook.failed`.
#[derive(Debug, Clone, PartialEq)]
pub struct HookReport {
    /// Name of the hook in the configuration, or of the built-in guard.
    pub hook: String,
    /// Decision or failure of the hook.
    pub says: HookResult,
    /// Message of the hook for the user; `None` if it gave none. The model also gets it if the hook
    /// denies a call, withholds its result, does not accept the final answer, changes the
    /// arguments, or warns before a call.
    pub message: Option<String>,
    /// Data for programs, from the hook.
    pub metadata: Value,
    /// Running time of the hook.
    pub duration: Duration,
}

/// Decision or failure of a hook, with the content that it replaces.
#[derive(Debug, Clone, PartialEq)]
pub enum HookResult {
    /// The hook has no objection and changes nothing.
    Pass,
    /// The hook has no objection. Its message is shown to the user. Before a tool call, the message
    /// is also added to the result for the model, if the tool runs.
    Warn,
    /// The hook denies; [`HookEvent`] defines the effect.
    Block,
    /// Replaces the arguments of the call. The new ones are validated and judged from the start; if
    /// they do not match the schema, the call is denied. Only before a tool call.
    Input(Value),
    /// Replaces the result that the model gets; the recorded outcome of the call stays. Only after
    /// a tool call.
    Output(Vec<ContentPart>),
    /// The hook gave no usable answer, for example because it crashed or timed out.
    Failed {
        /// Error code: `HK001`, …
        code: String,
        /// True if the failure counts as a denial; false if it is only recorded.
        blocks: bool,
    },
}

impl HookResult {
    /// True for a denial, or a failure that counts as one.
    pub fn blocks(&self) -> bool {
        matches!(self, HookResult::Block | HookResult::Failed { blocks: true, .. })
    }
}

/// The hooks of a session, which observe events and can deny or modify them.
pub trait Hook: Send + Sync + 'static {
    /// True if a hook is registered for `event` and, for tool calls, for the tool `tool`. Called
    /// before every call and request, so it must be cheap. If false, [`fire`](Hook::fire) is not
    /// called.
    fn has_hook(&self, event: HookEvent, tool: Option<&str>) -> bool;

    /// Runs all matching hooks one after the other and returns their results; empty if none matches
    /// the data of the event. A later hook sees the changes of earlier ones; after a denial no
    /// further hook runs.
    fn fire(&self, occasion: HookInvocation) -> PortFuture<Vec<HookReport>>;
}

/// Implementation of [`Hook`] without any hook: every event passes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hook for NoHooks {
    fn has_hook(&self, _: HookEvent, _: Option<&str>) -> bool {
        false
    }

    fn fire(&self, _: HookInvocation) -> PortFuture<Vec<HookReport>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}
