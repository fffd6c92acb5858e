//! The points of a session at which hooks run, and the decisions that hooks return.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// The places where hooks are asked.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
pub enum HookEvent {
    /// A session began. A block refuses every prompt of it.
    SessionStart,
    /// The user asked for something; it is in no history yet. A block refuses the prompt.
    UserPromptSubmit,
    /// A request is about to go to the model. A block ends the run.
    BeforeModelRequest,
    /// A whole reply arrived; it is in no history yet. A block discards it and ends the run.
    AfterModelResponse,
    /// A call with valid arguments, before it is judged. A block refuses the call.
    PreToolUse,
    /// A human is about to be asked. A block is a no; there is no yes.
    PermissionRequest,
    /// A call ended well, and that is recorded. A block withholds the result from the model.
    PostToolUse,
    /// A call ended badly or was refused, and that is recorded. A block withholds the result.
    ToolError,
    /// The model gave its final answer. A block makes it continue, a bounded number of times.
    Stop,
    /// A session is about to end. Nothing can be blocked any more.
    SessionEnd,
}

impl HookEvent {
    /// Every place, in the order of a session.
    pub const ALL: &[HookEvent] = HookEvent::VARIANTS;

    /// Its name in configurations, on standard input of a hook and in events.
    pub fn name(self) -> &'static str {
        self.into()
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
