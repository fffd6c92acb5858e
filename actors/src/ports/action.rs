//! Prepared calls: the effect that a policy judges and a person reads, and the data with which the
//! tool performs it.

use std::any::Any;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Description of the effect of a call, from which a policy judges the call and a person
/// understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Name of the called tool.
    pub tool: String,
    /// Operations of the call with resolved paths. Empty if it accesses no file, process or
    /// subagent; then the access of the tool decides about the permission.
    pub operations: Vec<Operation>,
    /// One-line description: `write src/main.rs (+3 -1)`.
    pub summary: String,
    /// Complete description for a person: the whole command, or the diff.
    pub detail: String,
    /// Hash of the exact effect, 64 hex digits. Two preparations with the same hash do the same.
    pub digest: String,
}

impl Action {
    /// Deletions of the commands of the action.
    pub fn deletions(&self) -> impl Iterator<Item = &CommandDeletions> {
        let deletions = self.operations.iter().filter_map(|operation| match operation {
            Operation::Execute { deletions, .. } => Some(deletions),
            Operation::Read { .. } | Operation::Write { .. } | Operation::Invoke { .. } => None,
        });
        deletions.filter(|deletions| !deletions.is_empty())
    }

    /// True if the action only runs commands in a trial, so that it changes nothing.
    pub fn is_trial(&self) -> bool {
        let is_tried = |one: &Operation| matches!(one, Operation::Execute { in_trial: true, .. });
        let reads = |one: &Operation| matches!(one, Operation::Read { .. });
        self.operations.iter().any(is_tried)
            && self.operations.iter().all(|one| is_tried(one) || reads(one))
    }
}

/// One operation of a call on a file, a process or a subagent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Operation {
    /// Reads a file, lists a folder or searches below it. Beside an `Execute`, it means that the
    /// command runs without a complete search for protected and secret files below this path.
    Read {
        /// Absolute path with symbolic links resolved.
        path: String,
        /// Path relative to `root`, separated by `/`.
        relative: String,
        /// Workspace root through which the path is accessed.
        root: String,
        /// True if the file has the name of a secret, but is as in the commit that is checked out,
        /// so that commands see it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_committed: bool,
        /// Paths by which the call names the file, if links lead from them to it. Deny rules cover
        /// them as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ways: Vec<FilePath>,
    },
    /// Creates, changes or replaces a file. Beside an `Execute`, it means that the command may
    /// change this protected path.
    Write {
        /// Absolute path with symbolic links resolved.
        path: String,
        /// Path relative to `root`, separated by `/`.
        relative: String,
        /// Workspace root through which the path is accessed.
        root: String,
        /// Folder, relative to `root` (`.` is `root` itself) or absolute, of the git repository that
        /// the written file controls: as its `config` or a hook, or because its settings refer to
        /// the file. The repository exists already, or this call makes it. `None` for all other
        /// writes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repository: Option<String>,
        /// As for [`Operation::Read`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ways: Vec<FilePath>,
    },
    /// Runs a command in a shell.
    Execute {
        /// The complete text of the command, as the shell gets it.
        command: String,
        /// Absolute working directory with symbolic links resolved.
        cwd: String,
        /// Paths in the command that lead through symbolic links, resolved when the call was
        /// prepared.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        links: Vec<PathLink>,
        /// Existing files that the command would replace, as far as its words name them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        replaces: Vec<String>,
        /// Files and folders that the command deletes, if its words name all of them and it does not
        /// destroy in another way. Empty in all other cases.
        #[serde(default, skip_serializing_if = "CommandDeletions::is_empty")]
        deletions: CommandDeletions,
        /// True if it runs in a trial: it changes a throw-away view of the workspace and has no
        /// network.
        #[serde(default, skip_serializing_if = "is_false")]
        in_trial: bool,
        /// Existing files of the workspace with the name of a secret that the command names, on the
        /// full sandbox tier. Empty on other tiers.
        #[serde(default, skip_serializing_if = "CommandSecrets::is_empty")]
        secrets: CommandSecrets,
    },
    /// Starts a subagent and sends the task to that agent's provider.
    Invoke {
        /// Name of the subagent.
        agent: String,
        /// Name of the provider profile that the subagent uses, which receives the task.
        provider: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A path in a command, split before its first component with a glob pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPath {
    /// Absolute path of the components before the first one with a pattern. `..` is not removed,
    /// because its meaning depends on symbolic links.
    pub path: String,
    /// Number of path components from the first one with a pattern on; 0 for a path without
    /// patterns.
    pub levels: usize,
}

/// A path that a command may replace, if it names a file before the command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandOutput {
    /// Absolute path. If it ends with `/.`, it stands for a folder whose files may be replaced.
    pub path: String,
    /// Pattern of the names in the folder `path` that may be replaced: `*`, `?`, `[…]`, and `\` before
    /// a character that is none of them. If it ends with `/`, only folders are meant, whose files may
    /// be replaced. `None`: `path` itself may be replaced.
    pub pattern: Option<String>,
    /// Absolute paths. If one of them is a folder before the command, `path` is not replaced.
    pub unless_folders: Vec<String>,
    /// Earlier name of a file or folder to which an earlier part of the command gave a new one.
    /// `None`: `path` is as the command names it.
    pub earlier: Option<EarlierName>,
}

/// Earlier name of a file or folder that one part of a command moved, copied or linked, and that a
/// later part writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EarlierName {
    /// Absolute path, which is that of the output or of a folder above it. A symbolic link here or
    /// between the two leads the command to another file.
    pub path: String,
    /// True if it was copied: then only symbolic links matter.
    pub is_copy: bool,
}

/// Files with the name of a secret that a command names, as absolute paths with symbolic links
/// resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSecrets {
    /// Files that the sandbox shows to the command: the user lets commands read them, or they are as
    /// in the commit that is checked out.
    pub shown: Vec<String>,
    /// Files that the sandbox hides from the command.
    pub hidden: Vec<String>,
}

impl CommandSecrets {
    /// True if the command names no such file.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty() && self.hidden.is_empty()
    }
}

/// Files and folders that a command deletes, and files that it replaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDeletions {
    /// Absolute paths.
    pub paths: Vec<String>,
    /// True if a checkpoint that is taken before the command can bring back every file at and below
    /// `paths`. The session finds this out when the call is prepared.
    #[serde(default)]
    pub are_restorable: bool,
    /// Absolute paths of all existing files that the command replaces, if its words name each of them,
    /// and each is a regular file without another name. Otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    /// True if a checkpoint that is taken before the command can bring back all of `replaced`. The
    /// session finds this out when the call is prepared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced_are_restorable: bool,
}

impl CommandDeletions {
    /// The deletion of `paths`, which is not known to be restorable.
    pub fn of(paths: Vec<String>) -> CommandDeletions {
        CommandDeletions { paths, ..CommandDeletions::default() }
    }

    /// True if nothing is known to be deleted or replaced.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.replaced.is_empty()
    }

    /// Paths of what a checkpoint can bring back.
    pub fn restorable(&self) -> impl Iterator<Item = &String> {
        let deleted = self.paths.iter().filter(|_| self.are_restorable);
        deleted.chain(self.replaced.iter().filter(|_| self.replaced_are_restorable))
    }
}

/// Path by which a call names a file, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePath {
    /// Absolute path.
    pub path: String,
    /// Path relative to the workspace root around it, separated by `/`.
    pub relative: String,
}

/// A path in a command that leads through a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathLink {
    /// Absolute path as the command names it.
    pub path: String,
    /// The resolved path. `None` if it could not be resolved; then no grant covers the command.
    pub target: Option<String>,
}

/// Result of preparing a call: its effect, and the data for performing it.
pub struct Prepared {
    /// The effect, which the policy judges and a person reads.
    pub action: Action,
    /// Private data of the tool for performing the effect, such as descriptors, bytes or parsed
    /// arguments.
    pub payload: Box<dyn Any + Send>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("action", &self.action).finish_non_exhaustive()
    }
}
