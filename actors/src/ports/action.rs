//! Effect of a call: what a policy judges and a person reads, and the tool's own half of it.

use std::any::Any;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Effect of a call: enough for a policy to judge it and for a person to understand it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The tool.
    pub tool: String,
    /// Canonical operations.
    pub operations: Vec<Operation>,
    /// One line: `write src/main.rs (+3 -1)`.
    pub summary: String,
    /// Full text for a person: the whole command, or the diff.
    pub detail: String,
    /// Hash of exactly what would happen, 64 hex digits.
    pub digest: String,
}

/// One thing a call would touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Operation {
    /// Reads a file, lists a folder or searches below it.
    Read {
        /// Absolute, resolved.
        path: String,
        /// Relative to `root`, with `/`.
        relative: String,
        /// The workspace root it was reached through.
        root: String,
    },
    /// Creates, changes or replaces a file.
    Write {
        /// Absolute, resolved.
        path: String,
        /// Relative to `root`, with `/`.
        relative: String,
        /// The workspace root it was reached through.
        root: String,
        /// Folder relative to `root` that is a git repository, or becomes one by this call, if the
        /// write controls git there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repository: Option<String>,
    },
    /// Runs a command in a shell.
    Execute {
        /// The whole command.
        command: String,
        /// Absolute, resolved.
        cwd: String,
        /// Symbolic links in the paths that the command names, resolved when it was prepared.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        links: Vec<PathLink>,
    },
    /// Starts a subagent and sends the task to that agent's provider.
    Invoke {
        /// The agent.
        agent: String,
        /// The provider profile.
        provider: String,
    },
}

/// A path that a command names, or one that its patterns can match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPath {
    /// Absolute. `..` stays, because its meaning depends on links.
    pub path: String,
    /// Number of levels below `path` whose names the command selects by patterns; 0 for a path
    /// without patterns.
    pub levels: usize,
}

/// A path that leads through a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathLink {
    /// Absolute, as the command names it.
    pub path: String,
    /// The resolved path. `None` if it could not be resolved; then no grant covers the command.
    pub target: Option<String>,
}

/// Result of preparing a call.
pub struct Prepared {
    /// The part that is judged and shown.
    pub action: Action,
    /// The tool's own half: descriptors, bytes, parsed arguments.
    pub payload: Box<dyn Any + Send>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("action", &self.action).finish_non_exhaustive()
    }
}
