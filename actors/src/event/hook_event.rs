//! The points of a session at which hooks run, and the decisions that hooks return.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// A point of a session at which hooks run. Each variant says what a denial (block) by a hook does
/// there.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub enum HookEvent {
    /// The session started or was resumed. A block refuses every prompt of the session in this
    /// process.
    SessionStart,
    /// The user sent a prompt that starts a run and is not in the history yet. A block refuses the
    /// prompt.
    UserPromptSubmit,
    /// A model request of the conversation or of a subagent is about to be sent. A block ends the
    /// invocation.
    BeforeModelRequest,
    /// A complete reply arrived, which is not in the history yet. A block discards the reply and
    /// ends the invocation.
    AfterModelResponse,
    /// A tool call with valid arguments is about to be judged by the policy. A block refuses the
    /// call.
    PreToolUse,
    /// A permission request is about to be opened. A block denies the call; a hook cannot allow it.
    PermissionRequest,
    /// A call succeeded, and its outcome is recorded. A block withholds the result from the model.
    PostToolUse,
    /// A call failed, was denied or did not run, and this is recorded. A block withholds the result
    /// from the model.
    ToolError,
    /// The main agent or a subagent gave its final answer. A block makes the invocation continue,
    /// at most `Limits::holds_max` times.
    Stop,
    /// The session is about to end. A block has no effect.
    SessionEnd,
}

impl HookEvent {
    /// All points, roughly in their order within a session.
    pub const ALL: &[HookEvent] = HookEvent::VARIANTS;

    /// Name of the point in configurations, in the input of a hook and in events.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True for points that concern a single tool call: `PreToolUse`, `PostToolUse`, `ToolError`
    /// and `PermissionRequest`.
    pub fn is_of_tool(self) -> bool {
        matches!(
            self,
            HookEvent::PreToolUse
                | HookEvent::PostToolUse
                | HookEvent::ToolError
                | HookEvent::PermissionRequest
        )
    }

    /// True if the failure of a hook at this point may count as a denial. False for `SessionEnd`,
    /// where a denial has no effect, and for `Stop`, where it would cause more work.
    pub fn may_fail_closed(self) -> bool {
        !matches!(self, HookEvent::SessionEnd | HookEvent::Stop)
    }
}

/// Decision of a hook, as the event `hook.fired` records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HookDecision {
    /// The hook has no objection.
    Pass,
    /// The hook has no objection. Its message is shown to the user. Before a tool call, it is also
    /// added to the result for the model if the call runs.
    Warn,
    /// The hook denies; [`HookEvent`] defines the effect.
    Block,
    /// The hook replaces the arguments or the result of a call.
    Patch,
}
