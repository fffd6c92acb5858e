//! Types of event fields.

use serde::{Deserialize, Serialize};

use super::{PermissionMode, SandboxTier, TargetType};
use crate::conversation::{InvocationId, SessionId};
use crate::cost::Budget;

/// Point in another session at which a fork begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// The original session.
    pub session: SessionId,
    /// Number of the last record of the original session that belongs to the fork.
    pub record: u64,
}

/// Configuration with which a session is resumed; it may differ from the earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResumedConfig {
    /// Version of posse that resumes the session.
    pub posse: String,
    /// Working directory in which the session continues.
    pub cwd: String,
    /// Name of the main agent from the resume on.
    pub agent: String,
    /// Provider profile of the main agent from the resume on.
    pub provider: String,
    /// Model of the main agent from the resume on.
    pub model: String,
    /// Sandbox tier of processes: `none`, `reduced` or `full`.
    #[serde(default, skip_serializing_if = "SandboxTier::is_unrecorded")]
    pub tier: SandboxTier,
    /// Permission mode from the resume on. `None` in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// Hash of the agent's instructions without the block about the environment; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Limits that were set for this session only; limits of the configuration are not recorded.
    #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
    pub budget: Budget,
    /// Texts of the user for the system prompt of the main agent.
    #[serde(default, skip_serializing_if = "PromptOverrides::is_empty")]
    pub prompt: PromptOverrides,
}

/// Texts of the user that change the system prompt of the main agent of one session. A resumed
/// session and a fork keep them unless the user gives others. An empty text counts as none.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PromptOverrides {
    /// Text that replaces the instructions of the agent.
    pub instructions: Option<String>,
    /// Text that follows the instructions of the agent.
    pub append: Option<String>,
}

impl PromptOverrides {
    /// True if the system prompt is unchanged.
    pub fn is_empty(&self) -> bool {
        let blank = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
        blank(&self.instructions) && blank(&self.append)
    }

    /// These texts, and those of `earlier` where these have none. An empty text of these replaces
    /// the earlier one, and the result has none.
    #[must_use]
    pub fn or(self, earlier: &PromptOverrides) -> PromptOverrides {
        let either = |now: Option<String>, then: &Option<String>| {
            now.or_else(|| then.clone()).filter(|text| !text.is_empty())
        };
        PromptOverrides {
            instructions: either(self.instructions, &earlier.instructions),
            append: either(self.append, &earlier.append),
        }
    }
}

/// Reason for the end of a background job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// The command exited by itself, or a signal from outside posse ended it.
    Exited,
    /// posse killed the command: it ran too long, wrote too much output, used too much memory, or
    /// could not be observed any more.
    Killed,
    /// The command was stopped on request of a person or the agent, or with its subagent.
    Stopped,
    /// The command was stopped because the session ended.
    SessionEnded,
    /// posse died, and the command was killed; its own end is unknown.
    Lost,
}

/// Kind of a queued message: when an agent receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// Message of the user, delivered after the running calls and before the next model request.
    /// Calls of the turn that have not started are skipped.
    Steer,
    /// Message of the user, or reason of a `Stop` hook that does not accept the answer. Delivered
    /// when the agent has given its final answer, which then does not end the run; one at a time,
    /// unless the limits say otherwise.
    FollowUp,
    /// Message of posse, such as the end of background work, delivered before the next model
    /// request. It skips no calls.
    Notice,
    /// Message about a tool call of the user, delivered before the next model request. It never
    /// starts a run.
    Aside,
}

/// Change of one file in a trial of a command.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TriedChange {
    /// Path, relative to the working directory if it is below it.
    pub path: String,
    /// Kind of the change: `added`, `modified`, `deleted`, or `mode` if only the permissions differ.
    pub change: String,
    /// Kind of the file: `file`, `folder`, `link` or `special` (pipe, socket or device).
    pub r#type: String,
    /// Size in bytes before; `None` if there was no file.
    pub bytes_before: Option<u64>,
    /// Size in bytes after; `None` if there is no file.
    pub bytes_after: Option<u64>,
    /// Permissions before, as octal number. `None` if they are the same.
    pub mode_before: Option<String>,
    /// Permissions after, as octal number. `None` if they are the same.
    pub mode_after: Option<String>,
    /// Reason why `diff` of `posse try --json` does not contain the change: `binary`, `large`,
    /// `folder`, `special`, `permissions`, `git`, `outside` or `secret`. `None` in events.
    pub not_in_diff: Option<String>,
}

/// Target of a permission request: a tool, an agent that would start, or a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PermissionTarget {
    /// Kind of the target.
    #[serde(default)]
    pub target_type: TargetType,
    /// Name of the tool or agent, or `DOMAIN:PORT`; empty in older journals.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_name: String,
}

/// Invocation that an event, a call or a message belongs to, with its agent. An auxiliary request
/// (title or summary) counts as an invocation of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// Id of the invocation.
    pub invocation_id: InvocationId,
    /// Invocation that delegated the task, or on whose behalf an auxiliary request is made; `None`
    /// for the main agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_invocation_id: Option<InvocationId>,
    /// Name of the agent; for an auxiliary request its purpose, `title` or `compact`.
    pub agent: String,
    /// Names of the agents from the main agent down to this one, separated by `/`.
    pub agent_path: String,
}

/// Estimated tokens of each part of a model request, and the limits of the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ContextUse {
    /// Tokens of the system prompt without the instruction files.
    pub system: u64,
    /// Tokens of the instruction files (`AGENTS.md` and similar) in the system prompt.
    pub instructions: u64,
    /// Tokens of the descriptions of tools.
    pub tools: u64,
    /// Tokens of messages of user and model, including tool calls.
    pub messages: u64,
    /// Tokens of tool results.
    pub tool_results: u64,
    /// Sum of all parts.
    pub total: u64,
    /// Size of a request in tokens above which the history is compacted. `None`: no automatic
    /// compaction.
    pub compacts_at: Option<u64>,
    /// Context budget: maximum tokens of a request.
    pub tokens_max: u64,
    /// Context window of the model in tokens; `None` if unknown.
    pub window: Option<u64>,
    /// True if the estimates are calibrated with a count of the provider.
    pub calibrated: bool,
    /// Number of compactions of this history since the session was started or resumed.
    pub compactions: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(instructions: Option<&str>, append: Option<&str>) -> PromptOverrides {
        let owned = |text: &str| text.to_owned();
        PromptOverrides { instructions: instructions.map(owned), append: append.map(owned) }
    }

    #[test]
    fn later_texts_replace_earlier_ones_one_by_one() {
        let earlier = texts(Some("be a poet"), Some("rhyme"));
        let table = [
            (texts(None, None), texts(Some("be a poet"), Some("rhyme"))),
            (texts(Some("be a clerk"), None), texts(Some("be a clerk"), Some("rhyme"))),
            (texts(None, Some("be short")), texts(Some("be a poet"), Some("be short"))),
            (texts(Some(""), None), texts(None, Some("rhyme"))),
            (texts(Some(""), Some("")), texts(None, None)),
        ];
        for (now, expected) in table {
            assert_eq!(now.clone().or(&earlier), expected, "{now:?}");
        }
        assert!(texts(None, Some("")).is_empty() && !earlier.is_empty());
    }
}
