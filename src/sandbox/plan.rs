//! What one command is confined to, as plain data.
//!
//! It is made before the command starts, sent to the helper, and put in force there.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How much of a confinement a host can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Nothing is confined.
    None,
    /// Landlock and seccomp; protected files are looked at afterwards.
    Reduced,
    /// Namespaces and mounts as well.
    Full,
}

impl Tier {
    /// `none`, `reduced` or `full`.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::None => "none",
            Tier::Reduced => "reduced",
            Tier::Full => "full",
        }
    }
}

/// What one command is confined to: plain data, made before it starts, put in force by the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// What must be in force, or there is no command.
    pub(crate) tier: Tier,
    /// Roots opened for writing: absolute, resolved. The call's own temporary folder is one.
    pub(crate) writable: Vec<PathBuf>,
    /// Existing control files and folders below `writable` that stay read-only.
    pub(crate) read_only: Vec<PathBuf>,
    /// Folders between a writable root and one of those: bound onto themselves, so that no rename
    /// of an ancestor frees them.
    pub(crate) pinned: Vec<PathBuf>,
    /// Secret files and folders of credentials that must not be readable.
    pub(crate) hidden: Vec<PathBuf>,
    /// Whether the host's network is inherited.
    pub(crate) network: bool,
}
