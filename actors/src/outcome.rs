//! Results of work: endings of invocations and subagents, changes in the isolated workspace of a
//! subagent, and the memory of subagents.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cost::BudgetRefusal;

/// Ending of an invocation.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The model gave its final answer, which may be empty.
    Answered(String),
    /// A limit other than a budget was reached.
    Limited {
        /// Name of the limit: `maxTurns`, `maxTokens`, `timeout`, `delegation.maxTokens`.
        limit: &'static str,
        /// Value of the limit, for `timeout` in seconds. For `maxTokens` the number of tokens of
        /// the reply, 0 if the provider reported none.
        value: u64,
        /// Last text of the model; `None` if it wrote none or the text is unknown.
        said: Option<String>,
    },
    /// The rest of the budget does not pay for another attempt.
    OverBudget(BudgetRefusal),
    /// The invocation failed and has no answer.
    Failed {
        /// Class of the failure: `provider.*`, `content_filter`, `loop`, `hook`, `journal`,
        /// `parked`, …
        class: String,
        /// One-line cause.
        cause: String,
    },
    /// The provider was unavailable for longer than `patience`. The history is intact, so the
    /// request can be sent again later.
    Parked {
        /// Class of the last failure: `provider.*`.
        class: String,
        /// One-line cause.
        cause: String,
        /// Earliest useful time of another attempt, in milliseconds since 1970; `None` if unknown.
        next_try_ms: Option<u64>,
    },
    /// The invocation was stopped by the user, or because its caller or the session ended.
    Interrupted,
}

/// Part of the cause of [`Ending::Parked`] if the maximum number of attempts ended the retries.
pub const ATTEMPTS_SPENT: &str = "the limit of `retry.maxAttempts`";

/// Text for a limit that ended an invocation. The length of a reply is not always known: then its
/// value is 0.
pub fn limit_text(limit: &str, value: u64) -> String {
    match (limit, value) {
        ("maxTokens", 0) => "the reply reached its maximum length (maxTokens)".to_owned(),
        ("maxTokens", value) => {
            format!("the reply reached its maximum length (maxTokens) after {value} tokens")
        }
        _ => format!("the limit {limit} ({value}) was reached"),
    }
}

/// Outcome of a subagent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SubagentOutcome {
    /// The subagent gave a final answer that is not empty.
    Done,
    /// A limit other than a budget ended the subagent, and its last text is available as a partial
    /// answer. Without such a text the outcome is `Failed`.
    Partial {
        /// Number of model replies until then.
        turns: u32,
        /// Name of the limit, as in [`Ending::Limited`].
        limit: String,
    },
    /// The provider of the subagent is unavailable. The subagent can be resumed later.
    Waiting {
        /// Earliest useful time of another attempt, in milliseconds since 1970; `None` if unknown.
        until_ms: Option<u64>,
    },
    /// The subagent failed and has no answer, or a limit or the budget ended it before it wrote
    /// one.
    Failed {
        /// Class of the failure, as in the event `agent.invocation.failed`, or `empty` if the final
        /// answer is empty.
        class: String,
        /// One-line cause.
        cause: String,
    },
    /// The subagent was stopped: by the user, its caller, or the end of the session.
    Cancelled,
    /// The subagent was not started, because of a limit or because its isolated workspace could not
    /// be created.
    Refused {
        /// Name of the limit in the configuration; `agentMode` in a session without subagents;
        /// `isolation` if the isolated workspace could not be created.
        limit: String,
    },
}

impl fmt::Display for SubagentOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubagentOutcome::Done => f.write_str("done"),
            SubagentOutcome::Partial { turns, limit } => {
                write!(f, "partial({turns}): the limit {limit} ended it")
            }
            SubagentOutcome::Waiting { until_ms: Some(until) } => write!(f, "waiting({until})"),
            SubagentOutcome::Waiting { until_ms: None } => f.write_str("waiting(unknown)"),
            SubagentOutcome::Failed { class, cause } => write!(f, "failed({class}): {cause}"),
            SubagentOutcome::Cancelled => f.write_str("cancelled"),
            SubagentOutcome::Refused { limit } => write!(f, "refused({limit})"),
        }
    }
}

/// Changes that a subagent left in its isolated workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceChanges {
    /// Number of files that a merge takes over.
    pub count: usize,
    /// The first of these files; their number is limited.
    pub files: Vec<ChangedFile>,
    /// Number of new files that a merge leaves out unless they are named, such as files that git
    /// ignores. The search for them is limited, so there may be more.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: usize,
    /// Paths of the first left-out files; their number is limited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_files: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that the attribute wants")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A file that an agent has changed, with the size of the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ChangedFile {
    /// Path relative to the agent's working directory, separated by `/`.
    pub path: String,
    /// Number of added lines.
    pub added: usize,
    /// Number of removed lines.
    pub removed: usize,
}

/// Working directory, existence and changes of the isolated workspace of a subagent that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorktreeSummary {
    /// Absolute path of the subagent's working directory, in its isolated workspace.
    pub cwd: String,
    /// True if the isolated workspace still exists; false if it was removed because nothing in it
    /// had changed.
    pub kept: bool,
    /// Changes in the isolated workspace. `None` if there are none or they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<WorkspaceChanges>,
}

impl WorktreeSummary {
    /// Summary of an isolated workspace that was not examined: it is kept, and its changes are
    /// unknown. `cwd`: the subagent's working directory in it.
    pub fn unknown(cwd: String) -> WorktreeSummary {
        WorktreeSummary { cwd, kept: true, left: None }
    }
}

/// The memories of all subagents of a session, at most one for each name, provider and folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Memories(pub(crate) Vec<Memory>);

impl Memories {
    /// True if there is no memory.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All memories, in order of their first report.
    pub fn all(&self) -> &[Memory] {
        &self.0
    }
}

/// Memory of a session about subagents of one name, provider and folder: extracts from their
/// reports, which the next such subagent receives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Name of the subagents.
    pub agent: String,
    /// Provider profile of the subagents.
    pub provider: String,
    /// Working directory of the session.
    pub cwd: String,
    /// Number of tasks that ended with a complete or partial answer.
    pub tasks: u32,
    /// Older tasks with the beginnings of their answers, one line each, newest last.
    pub summary: Vec<String>,
    /// The latest tasks with shortened answers, newest last.
    pub last_results: Vec<SubagentReport>,
    /// Findings from the answers, newest last.
    pub findings: Vec<String>,
    /// Decisions from the answers, newest last.
    pub decisions: Vec<String>,
    /// Open questions from the answers, newest last.
    pub open_questions: Vec<String>,
    /// Files that calls of the subagents named in the argument `path`, newest last.
    pub relevant_files: Vec<String>,
}

/// One task of a subagent and the beginning of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubagentReport {
    /// The task in one line.
    pub task: String,
    /// Outcome of the task in words.
    pub outcome: String,
    /// Beginning of the answer, in one line.
    pub preview: String,
}
