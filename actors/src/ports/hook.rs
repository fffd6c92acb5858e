//! Hook port: programs of the user and built-in guards that run at ten points of a session.
//!
//! The points are a public contract: a hook before a tool runs before the review, so the policy
//! judges exactly what will run; one after a tool runs when the outcome is recorded. No hook result
//! allows a call that the policy denies: there is no such result.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::conversation::{AssistantMessage, CallId, ContentPart, SessionId};
use crate::event::{HookEvent, Origin, SessionEndReason, ToolFailureClass};
use crate::ports::{PortFuture, ToolAnnotations};

/// An event with its data for hooks.
#[derive(Debug, Clone)]
pub struct HookInvocation {
    /// The session.
    pub session_id: SessionId,
    /// The invocation, if there is one.
    pub origin: Option<Arc<Origin>>,
    /// The rest.
    pub moment: HookPayload,
}

/// A hook event with its data.
#[derive(Debug, Clone)]
pub enum HookPayload {
    /// See [`HookEvent::SessionStart`].
    SessionStart,
    /// See [`HookEvent::SessionEnd`].
    SessionEnd {
        /// `completed`, `failed`, `interrupted`, …
        reason: SessionEndReason,
    },
    /// See [`HookEvent::UserPromptSubmit`].
    UserPromptSubmit {
        /// Text and images.
        content: Vec<ContentPart>,
    },
    /// See [`HookEvent::BeforeModelRequest`].
    BeforeModelRequest {
        /// Number of this reply, from 1.
        turn: u32,
        /// Messages in the history.
        messages: usize,
        /// The model.
        model: String,
    },
    /// See [`HookEvent::AfterModelResponse`].
    AfterModelResponse {
        /// Number of the reply, from 1.
        turn: u32,
        /// The reply.
        message: AssistantMessage,
    },
    /// See [`HookEvent::PreToolUse`].
    PreToolUse(HookedCall),
    /// See [`HookEvent::PostToolUse`].
    PostToolUse(HookedCall, Vec<ContentPart>),
    /// See [`HookEvent::ToolError`].
    ToolError {
        /// The call.
        used: HookedCall,
        /// Content that the model would read.
        content: Vec<ContentPart>,
        /// Why it failed.
        class: ToolFailureClass,
    },
    /// See [`HookEvent::PermissionRequest`].
    PermissionRequest {
        /// The call.
        used: HookedCall,
        /// One-line description of the effect.
        summary: String,
        /// Why a human is asked.
        reason: String,
    },
    /// See [`HookEvent::Stop`].
    Stop {
        /// The final answer.
        answer: String,
        /// Number of times that hooks made this run continue.
        holds: u32,
    },
}

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub struct HookedCall {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// Annotations of the tool; the default if there is none of that name.
    pub annotations: ToolAnnotations,
    /// Its arguments: valid for the tool's schema, except where the call failed for that.
    pub input: Value,
}

impl HookPayload {
    /// The place.
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

    /// The call, if it is about one.
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

/// Result of one hook. Recorded as `hook.fired` or `hook.failed`.
#[derive(Debug, Clone, PartialEq)]
pub struct HookReport {
    /// The hook's name.
    pub hook: String,
    /// Decision or failure.
    pub says: HookResult,
    /// For the user, and the model where the model is concerned.
    pub message: Option<String>,
    /// For programs.
    pub metadata: Value,
    /// Duration.
    pub duration: Duration,
}

/// Decision of a hook.
#[derive(Debug, Clone, PartialEq)]
pub enum HookResult {
    /// No objection.
    Pass,
    /// Show the message.
    Warn,
    /// Deny; [`HookEvent`] defines the effect of a denial.
    Block,
    /// Other arguments: they are validated and judged from zero. Only before a tool.
    Input(Value),
    /// Replace the output for the model. Only after a tool.
    Output(Vec<ContentPart>),
    /// The hook failed.
    Failed {
        /// `HK001`, …
        code: String,
        /// True if the failure counts as a denial.
        blocks: bool,
    },
}

impl HookResult {
    /// True if this is a denial.
    pub fn blocks(&self) -> bool {
        matches!(self, HookResult::Block | HookResult::Failed { blocks: true, .. })
    }
}

/// Observes and gates what happens in a session.
pub trait Hook: Send + Sync + 'static {
    /// True if a hook is registered for `event`, and for calls for this tool. Called for every call
    /// and request, so it must be cheap; if false, nothing else is done.
    fn has_hook(&self, event: HookEvent, tool: Option<&str>) -> bool;

    /// Runs all matching hooks one after the other and returns their results. A later hook sees the
    /// changes of earlier ones; after a denial no further hook runs.
    fn fire(&self, occasion: HookInvocation) -> PortFuture<Vec<HookReport>>;
}

/// No hooks.
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
