//! What the user's own programs, and our own guards, may say at ten places of a session.
//!
//! The places are the public contract: a hook before a tool speaks before the review, so the
//! policy judges exactly what will run; one after a tool speaks when the outcome is recorded.
//! Nothing a hook says can allow what the policy denies: there is no such answer.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conversation::{AssistantMessage, CallId, ContentPart, SessionId};
use crate::event::Origin;
use crate::ports::PortFuture;

/// The places where hooks are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HookEvent {
    /// A session began. A block refuses every prompt of it.
    SessionStart,
    /// A session is about to end. Nothing can be blocked any more.
    SessionEnd,
    /// The user asked for something; it is in no history yet. A block refuses the prompt.
    UserPromptSubmit,
    /// A request is about to go to the model. A block ends the run.
    BeforeModelRequest,
    /// A whole reply arrived; it is in no history yet. A block discards it and ends the run.
    AfterModelResponse,
    /// A call with valid arguments, before it is judged. A block refuses the call.
    PreToolUse,
    /// A call ended well, and that is recorded. A block withholds the result from the model.
    PostToolUse,
    /// A call ended badly or was refused, and that is recorded. A block withholds the result.
    ToolError,
    /// A human is about to be asked. A block is a no; there is no yes.
    PermissionRequest,
    /// The model gave its final answer. A block makes it go on, a bounded number of times.
    Stop,
}

impl HookEvent {
    /// Every place, in the order of a session.
    pub const ALL: [HookEvent; 10] = [
        HookEvent::SessionStart,
        HookEvent::UserPromptSubmit,
        HookEvent::BeforeModelRequest,
        HookEvent::AfterModelResponse,
        HookEvent::PreToolUse,
        HookEvent::PermissionRequest,
        HookEvent::PostToolUse,
        HookEvent::ToolError,
        HookEvent::Stop,
        HookEvent::SessionEnd,
    ];

    /// Its name in configurations, on standard input of a hook and in events.
    pub fn name(self) -> &'static str {
        match self {
            HookEvent::SessionStart => "SessionStart",
            HookEvent::SessionEnd => "SessionEnd",
            HookEvent::UserPromptSubmit => "UserPromptSubmit",
            HookEvent::BeforeModelRequest => "BeforeModelRequest",
            HookEvent::AfterModelResponse => "AfterModelResponse",
            HookEvent::PreToolUse => "PreToolUse",
            HookEvent::PostToolUse => "PostToolUse",
            HookEvent::ToolError => "ToolError",
            HookEvent::PermissionRequest => "PermissionRequest",
            HookEvent::Stop => "Stop",
        }
    }

    /// Whether it is about one tool call.
    pub fn is_of_tool(self) -> bool {
        matches!(
            self,
            HookEvent::PreToolUse
                | HookEvent::PostToolUse
                | HookEvent::ToolError
                | HookEvent::PermissionRequest
        )
    }

    /// Whether a hook that broke may count as one that said no. Where a session ends, and where a
    /// no means more work, it must not.
    pub fn may_fail_closed(self) -> bool {
        !matches!(self, HookEvent::SessionEnd | HookEvent::Stop)
    }
}

/// What happened, as far as one hook needs it.
#[derive(Debug, Clone)]
pub struct Occasion {
    /// The session.
    pub session_id: SessionId,
    /// The invocation, if there is one.
    pub origin: Option<Arc<Origin>>,
    /// The rest.
    pub moment: Moment,
}

/// A place with what is known there.
#[derive(Debug, Clone)]
pub enum Moment {
    /// See [`HookEvent::SessionStart`].
    SessionStart,
    /// See [`HookEvent::SessionEnd`].
    SessionEnd {
        /// `completed`, `failed`, `interrupted`, …
        reason: String,
    },
    /// See [`HookEvent::UserPromptSubmit`].
    UserPromptSubmit {
        /// Text and images.
        content: Vec<ContentPart>,
    },
    /// See [`HookEvent::BeforeModelRequest`].
    BeforeModelRequest {
        /// Which reply this will be, from 1.
        turn: u32,
        /// Messages in the history.
        messages: usize,
        /// The model.
        model: String,
    },
    /// See [`HookEvent::AfterModelResponse`].
    AfterModelResponse {
        /// Which reply this is, from 1.
        turn: u32,
        /// The reply.
        message: AssistantMessage,
    },
    /// See [`HookEvent::PreToolUse`].
    PreToolUse(Used),
    /// See [`HookEvent::PostToolUse`].
    PostToolUse(Used, Vec<ContentPart>),
    /// See [`HookEvent::ToolError`].
    ToolError {
        /// The call.
        used: Used,
        /// What the model would read.
        content: Vec<ContentPart>,
        /// `invalid`, `denied`, `failed`, `crashed`, `unknown_tool`.
        class: String,
    },
    /// See [`HookEvent::PermissionRequest`].
    PermissionRequest {
        /// The call.
        used: Used,
        /// What it would do, in one line.
        summary: String,
        /// Why a human is asked.
        reason: String,
    },
    /// See [`HookEvent::Stop`].
    Stop {
        /// The final answer.
        answer: String,
        /// How often hooks have made this run go on already.
        holds: u32,
    },
}

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub struct Used {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments: valid for the tool's schema, except where the call failed for that.
    pub input: Value,
}

impl Moment {
    /// The place.
    pub fn event(&self) -> HookEvent {
        match self {
            Moment::SessionStart => HookEvent::SessionStart,
            Moment::SessionEnd { .. } => HookEvent::SessionEnd,
            Moment::UserPromptSubmit { .. } => HookEvent::UserPromptSubmit,
            Moment::BeforeModelRequest { .. } => HookEvent::BeforeModelRequest,
            Moment::AfterModelResponse { .. } => HookEvent::AfterModelResponse,
            Moment::PreToolUse(_) => HookEvent::PreToolUse,
            Moment::PostToolUse(..) => HookEvent::PostToolUse,
            Moment::ToolError { .. } => HookEvent::ToolError,
            Moment::PermissionRequest { .. } => HookEvent::PermissionRequest,
            Moment::Stop { .. } => HookEvent::Stop,
        }
    }

    /// The call, if it is about one.
    pub fn used(&self) -> Option<&Used> {
        match self {
            Moment::PreToolUse(used)
            | Moment::PostToolUse(used, _)
            | Moment::ToolError { used, .. }
            | Moment::PermissionRequest { used, .. } => Some(used),
            Moment::SessionStart
            | Moment::SessionEnd { .. }
            | Moment::UserPromptSubmit { .. }
            | Moment::BeforeModelRequest { .. }
            | Moment::AfterModelResponse { .. }
            | Moment::Stop { .. } => None,
        }
    }
}

/// What one hook made of an occasion. Recorded as `hook.fired` or `hook.failed`.
#[derive(Debug, Clone, PartialEq)]
pub struct HookReport {
    /// The hook's name.
    pub hook: String,
    /// What it wants, or how it failed.
    pub says: HookSays,
    /// For the user, and the model where the model is concerned.
    pub message: Option<String>,
    /// For programs.
    pub metadata: Value,
    /// How long it took.
    pub duration: Duration,
}

/// What a hook wants.
#[derive(Debug, Clone, PartialEq)]
pub enum HookSays {
    /// Nothing.
    Pass,
    /// That the message is read.
    Warn,
    /// That it does not happen; see [`HookEvent`] for what that means where.
    Block,
    /// Other arguments: they are validated and judged from zero. Only before a tool.
    Input(Value),
    /// That the model reads this instead. Only after a tool.
    Output(Vec<ContentPart>),
    /// It could not say anything.
    Failed {
        /// `HK001`, …
        code: String,
        /// Whether that counts as a no.
        blocks: bool,
    },
}

impl HookSays {
    /// Whether this ends the matter with a no.
    pub fn blocks(&self) -> bool {
        matches!(self, HookSays::Block | HookSays::Failed { blocks: true, .. })
    }
}

/// Observes and gates what happens in a session.
pub trait Hook: Send + Sync + 'static {
    /// Whether anybody listens at `event`; for calls, to this tool. It is asked on every call and
    /// request, so it must cost next to nothing; where it says no, nothing else is done.
    fn hears(&self, event: HookEvent, tool: Option<&str>) -> bool;

    /// Asks everybody who listens, one after the other, and returns what each of them said. Who
    /// comes later sees what earlier ones changed; after a no nobody else is asked.
    fn fire(&self, occasion: Occasion) -> PortFuture<Vec<HookReport>>;
}

/// No hooks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hook for NoHooks {
    fn hears(&self, _: HookEvent, _: Option<&str>) -> bool {
        false
    }

    fn fire(&self, _: Occasion) -> PortFuture<Vec<HookReport>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}
