//! What `posse grants` and `posse trust` understand.

use std::path::PathBuf;

/// What `posse grants` understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantsArgs {
    /// `--cwd`: the project.
    pub cwd: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
    /// Which of them.
    pub action: GrantsAction,
}

/// The subcommands of `posse grants`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantsAction {
    /// `list`.
    List {
        /// `--all`: of every project.
        all: bool,
    },
    /// `revoke ID…`.
    Revoke {
        /// The ids.
        ids: Vec<String>,
    },
    /// `clear`.
    Clear,
}
