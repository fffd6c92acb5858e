//! Names of the tools for delegation, and of the tool that reads what a delegation refers to.

/// Name of the tool that starts a subagent.
pub const DELEGATE: &str = "delegate_agent";
/// Name of the tool that reports the state of subagents.
pub const STATUS: &str = "agent_status";
/// Name of the tool that reads a subagent's answer.
pub const RESULT: &str = "agent_result";
/// Name of the tool that shows the changes of a subagent in its worktree.
pub const DIFF: &str = "agent_diff";
/// Name of the tool that merges the changes of a subagent in its worktree into the session's
/// workspace.
pub const MERGE: &str = "agent_merge";
/// Names of the tools of agents that can delegate, in the order in which models see them.
pub const TOOLS: [&str; 5] = [STATUS, RESULT, DIFF, MERGE, DELEGATE];
/// Name of the tool that reads files and earlier outputs.
pub(super) const READER: &str = "read_file";
