//! The points of a session at which hooks run, and the decisions that hooks return.

use serde::{Deserialize, Serialize};

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
    /// The model gave its final answer. A block makes it continue, a bounded number of times.
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

    /// True for events of a single tool call.
    pub fn is_of_tool(self) -> bool {
        matches!(
            self,
            HookEvent::PreToolUse
                | HookEvent::PostToolUse
                | HookEvent::ToolError
                | HookEvent::PermissionRequest
        )
    }

    /// True if a failed hook may count as a denial. Not at the end of a session, and not where a
    /// denial causes more work.
    pub fn may_fail_closed(self) -> bool {
        !matches!(self, HookEvent::SessionEnd | HookEvent::Stop)
    }
}

/// Decision of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookDecision {
    /// No objection.
    Pass,
    /// Show the message.
    Warn,
    /// Deny.
    Block,
    /// Modify.
    Patch,
}
