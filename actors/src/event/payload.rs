//! Values in events.

use serde::{Deserialize, Serialize};

use super::SandboxTier;
use crate::conversation::{InvocationId, SessionId};
use crate::cost::Budget;

/// A place in another session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// The session.
    pub session: SessionId,
    /// The last record of it that counts.
    pub record: u64,
}

/// Configuration of a resumed session; it may differ from the earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResumedConfig {
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
    /// Sandbox tier of processes: `none`, `reduced` or `full`.
    #[serde(default, skip_serializing_if = "SandboxTier::is_unrecorded")]
    pub tier: SandboxTier,
    /// Hash of the agent's instructions without the environment block.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Budget, if set for this session.
    #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
    pub budget: Budget,
}

/// End of a background job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// By itself, or by a signal that was not ours.
    Exited,
    /// Its time was up, or it printed too much.
    Killed,
    /// Stopped on request.
    Stopped,
    /// The session ended, and it with the session.
    SessionEnded,
    /// Unknown: posse died, and the job was killed with it.
    Lost,
}

/// Delivery of a message that arrives during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// After the calls in flight, before the next request.
    Steer,
    /// After what would have been the final answer.
    FollowUp,
    /// Before the next request of any kind: a message from posse, not from the user. No call is
    /// skipped for it.
    Notice,
    /// Before the next request, without causing one: the user's actions outside the conversation.
    Aside,
}

/// Scope of an answer.
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
    /// Target, such as a directory relative to its root; covers everything below.
    pub target: String,
    /// Scope.
    pub scope: Scope,
}

/// Invocation that an event belongs to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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

/// Composition of a request, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContextUse {
    /// The agent's instructions, without those of user and project.
    pub system: u64,
    /// Instructions of the user and the project.
    pub instructions: u64,
    /// Descriptions of tools.
    pub tools: u64,
    /// Messages, including tool calls.
    pub messages: u64,
    /// Tool results.
    pub tool_results: u64,
    /// Total.
    pub total: u64,
    /// The history is compacted above this size. `None`: no automatic compaction.
    pub compacts_at: Option<u64>,
    /// Budget.
    pub tokens_max: u64,
    /// The model's window, if it is known.
    pub window: Option<u64>,
    /// True if the estimate is calibrated with a provider's count.
    pub calibrated: bool,
    /// Number of compactions of this history in this process.
    pub compactions: u32,
}
