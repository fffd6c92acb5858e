//! Results of work: how an invocation and a subagent end, what a subagent leaves in its workspace,
//! and what is remembered of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cost::BudgetRefusal;

/// Result of an invocation.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The model gave its final answer.
    Answered(String),
    /// A bound was reached.
    Limited {
        /// Its name in the configuration: `maxTurns`, `maxTokens`, `timeout`.
        limit: &'static str,
        /// Its value.
        value: u64,
        /// Last text of the model.
        said: Option<String>,
    },
    /// The budget has no room for another request.
    OverBudget(BudgetRefusal),
    /// There is no answer.
    Failed {
        /// `provider.*`, `content_filter`, `loop`, `journal`, `parked`.
        class: String,
        /// One-line cause.
        cause: String,
    },
    /// The provider was unavailable for longer than `patience`. Nothing is lost: the same turn can
    /// be requested again.
    Parked {
        /// `provider.*`.
        class: String,
        /// One-line cause.
        cause: String,
        /// Earliest useful time for another attempt, in milliseconds since 1970, if known.
        next_try_ms: Option<u64>,
    },
    /// The user stopped it.
    Interrupted,
}

/// Outcome of a subagent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SubagentOutcome {
    /// It answered.
    Done,
    /// A limit ended it after this number of turns; its last text is kept.
    Partial {
        /// Model replies.
        turns: u32,
        /// Name of the limit.
        limit: String,
    },
    /// Its provider is unavailable; it can be resumed later.
    Waiting {
        /// Time of the next try in milliseconds since 1970, if known.
        until_ms: Option<u64>,
    },
    /// There is no answer.
    Failed {
        /// Class, as in `agent.invocation.failed`.
        class: String,
        /// Cause.
        cause: String,
    },
    /// It was stopped.
    Cancelled,
    /// It was never started.
    Refused {
        /// The limit's name in the configuration.
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

/// Changes that a subagent left in its workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceChanges {
    /// Number of changed files.
    pub count: usize,
    /// The first of them.
    pub files: Vec<ChangedFile>,
    /// New files that are not taken over with the others.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: usize,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_files: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that the attribute wants")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A file that an agent has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Below the working directory.
    pub path: String,
    /// Lines that are new.
    pub added: usize,
    /// Lines that are gone.
    pub removed: usize,
}

/// State of the workspace of an ended subagent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorktreeSummary {
    /// Its working directory.
    pub cwd: String,
    /// True if it still exists.
    pub kept: bool,
    /// Its changes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<WorkspaceChanges>,
}

impl WorktreeSummary {
    /// State of the workspace at `cwd` after posse was killed before it was examined.
    pub fn unknown(cwd: String) -> WorktreeSummary {
        WorktreeSummary { cwd, kept: true, left: None }
    }
}

/// The memories of all subagents of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memories(pub(crate) Vec<Memory>);

impl Memories {
    /// True if there is no report.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All memories, in order of their start.
    pub fn all(&self) -> &[Memory] {
        &self.0
    }
}

/// Memory of one subagent name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Name of the subagent.
    pub agent: String,
    /// Provider profile.
    pub provider: String,
    /// Working directory.
    pub cwd: String,
    /// Number of finished tasks.
    pub tasks: u32,
    /// Older tasks, one line each.
    pub summary: Vec<String>,
    /// The last tasks with shortened answers.
    pub last_results: Vec<SubagentReport>,
    /// Findings in its own words.
    pub findings: Vec<String>,
    /// Decisions.
    pub decisions: Vec<String>,
    /// Open questions.
    pub open_questions: Vec<String>,
    /// Files that it read or changed, newest last.
    pub relevant_files: Vec<String>,
}

/// One task and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubagentReport {
    /// The task in one line.
    pub task: String,
    /// Its outcome.
    pub outcome: String,
    /// Beginning of the answer, in one line.
    pub preview: String,
}
