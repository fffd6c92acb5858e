//! Arguments of `posse grants` and `posse trust`.

use std::path::PathBuf;

/// Arguments of `posse grants`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantsArgs {
    /// `--cwd`: the project.
    pub cwd: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
    /// Action.
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

/// Arguments of `posse trust`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustArgs {
    /// `--cwd`: the project.
    pub cwd: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
    /// Action.
    pub action: TrustAction,
}

/// The subcommands of `posse trust`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustAction {
    /// `show`, and `posse trust` alone.
    Show,
    /// `add`.
    Add {
        /// `--accept`: the SHA-256 of the file that was looked at.
        accept: Option<String>,
    },
    /// `revoke [PATH]`.
    Revoke {
        /// The project; `None`: that of the working directory.
        path: Option<PathBuf>,
    },
    /// `list`.
    List,
    /// `clear`.
    Clear,
}
