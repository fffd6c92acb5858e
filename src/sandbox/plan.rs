//! Plan: confinement of one command, as plain data.
//!
//! Made before the command starts, sent to the helper, and applied there.

use std::path::PathBuf;

use posse_actors::event::SandboxTier;

use crate::wire::is_plain;

/// Mechanism that applies a confinement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Namespaces created by the helper, Landlock and seccomp.
    Namespaces,
    /// Namespaces created by bubblewrap, with Landlock and seccomp inside.
    Bubblewrap,
    /// Landlock and seccomp.
    Landlock,
    /// None.
    #[default]
    Nothing,
}

impl Backend {
    /// All backends, the strongest first.
    pub const ALL: [Backend; 4] =
        [Backend::Namespaces, Backend::Bubblewrap, Backend::Landlock, Backend::Nothing];

    /// Name of the backend: `namespaces`, `bubblewrap`, `landlock` or `nothing`.
    pub fn as_str(self) -> &'static str {
        match self {
            Backend::Namespaces => "namespaces",
            Backend::Bubblewrap => "bubblewrap",
            Backend::Landlock => "landlock",
            Backend::Nothing => "nothing",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Backend> {
        Backend::ALL.into_iter().find(|backend| backend.as_str() == name)
    }

    /// Tier of this mechanism.
    pub fn tier(self) -> SandboxTier {
        match self {
            Backend::Namespaces | Backend::Bubblewrap => SandboxTier::Full,
            Backend::Landlock => SandboxTier::Reduced,
            Backend::Nothing => SandboxTier::None,
        }
    }
}

/// Confinement of one command: plain data, made before it starts, applied by the helper.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Required tier; otherwise the command does not run.
    pub(crate) tier: SandboxTier,
    /// Mechanism to use.
    pub(crate) backend: Backend,
    /// Writable roots: absolute and resolved, including the call's temporary folder.
    pub(crate) writable: Vec<PathBuf>,
    /// Folders and files that stay visible below a masked folder.
    pub(crate) visible: Vec<PathBuf>,
    /// Folders that are replaced by empty private ones.
    pub(crate) masked: Vec<PathBuf>,
    /// Existing control files and folders below `writable` that stay read-only.
    pub(crate) read_only: Vec<PathBuf>,
    /// Folders between a writable root and a read-only path. They are bind-mounted onto themselves,
    /// so that renaming a parent does not unprotect the path.
    pub(crate) pinned: Vec<PathBuf>,
    /// Secret files and credential folders that must not be readable.
    pub(crate) hidden: Vec<PathBuf>,
    /// True if the host's network is used.
    pub(crate) network: bool,
    /// Maximum number of processes and threads.
    pub(crate) processes_max: u32,
}

impl Plan {
    /// Plan without confinement.
    pub(crate) fn open() -> Plan {
        Plan { tier: SandboxTier::None, network: true, ..Plan::default() }
    }

    /// All lists of paths, in the order of the protocol.
    pub(crate) fn lists(&self) -> [&Vec<PathBuf>; 6] {
        let Plan { writable, visible, masked, read_only, pinned, hidden, .. } = self;
        [writable, visible, masked, read_only, pinned, hidden]
    }

    /// The same lists, to be filled.
    pub(crate) fn lists_mut(&mut self) -> [&mut Vec<PathBuf>; 6] {
        let Plan { writable, visible, masked, read_only, pinned, hidden, .. } = self;
        [writable, visible, masked, read_only, pinned, hidden]
    }

    /// True if it can be applied as written: all paths are absolute, and the whole tree is not
    /// writable.
    pub(crate) fn is_sound(&self) -> bool {
        let mut paths = self.lists().into_iter().flatten();
        self.tier == self.backend.tier()
            && paths.all(|path| is_plain(path) && path.parent().is_some())
    }
}
