//! Plan: confinement of one command, as plain data.
//!
//! Made before the command starts, sent to the helper, and applied there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use posse_actors::event::SandboxTier;

use crate::wire::is_plain;

/// Mechanism that applies a confinement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Namespaces created by the helper, Landlock and seccomp.
    Namespaces,
    /// Namespaces created by bubblewrap, with Landlock and seccomp inside.
    Bubblewrap,
    /// Landlock and seccomp, without namespaces.
    Landlock,
    /// No confinement.
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

    /// Sandbox tier that this mechanism provides.
    pub fn tier(self) -> SandboxTier {
        match self {
            Backend::Namespaces | Backend::Bubblewrap => SandboxTier::Full,
            Backend::Landlock => SandboxTier::Reduced,
            Backend::Nothing => SandboxTier::None,
        }
    }
}

/// Confinement of one command. It is computed before the command starts, and the helper applies it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Tier that the helper must enforce; otherwise the command does not run.
    pub(crate) tier: SandboxTier,
    /// Mechanism that applies the plan.
    pub(crate) backend: Backend,
    /// Writable roots: absolute and resolved, including the command's temporary folder.
    pub(crate) writable: Vec<PathBuf>,
    /// Session roots, and the working directory if it is in none of them. They stay readable if a
    /// masked or hidden folder contains them.
    pub(crate) visible: Vec<PathBuf>,
    /// Folders that the command sees as private folders, empty except for writable and visible
    /// paths in them. Ignored on the reduced tier, where they stay readable.
    pub(crate) masked: Vec<PathBuf>,
    /// Existing protected files and folders below `writable`, which stay read-only. Ignored on the
    /// reduced tier, where only the check after the command protects them.
    pub(crate) read_only: Vec<PathBuf>,
    /// Folders between a writable root and a read-only path that controls git, and folders that
    /// contain an exempt path. They are bind-mounted onto themselves, because a mount point cannot
    /// be renamed: renaming a parent would unprotect the path. Parents of other read-only paths are
    /// not pinned. Ignored on the reduced tier.
    pub(crate) pinned: Vec<PathBuf>,
    /// Secret files, credential folders, posse's own folders and the hidden places of
    /// `places.toml`, which the command must not read. On the reduced tier, those below `writable`
    /// stay readable.
    pub(crate) hidden: Vec<PathBuf>,
    /// Device and inode number of paths in `hidden` and targets in `replaced`, as the search for
    /// secrets found them. If another file is there when it is covered, the command does not run.
    pub(crate) identities: BTreeMap<PathBuf, (u64, u64)>,
    /// Files that commands see in place of secret files and of git's patterns of ignored files,
    /// read-only. Their targets are not in `hidden`, except for a folder that contains some. Empty
    /// on the reduced tier.
    pub(crate) replaced: Vec<Replacement>,
    /// Temporary folder of the session, mounted over a masked folder. `None`: it is a writable root
    /// at its own path.
    pub(crate) temporary: Option<TemporaryMount>,
    /// Overlays of a trial, for all of `writable`. Empty: writable roots are changed themselves.
    pub(crate) overlays: Vec<Overlay>,
    /// True if the command uses the host's network; false if network access is denied.
    pub(crate) network: bool,
    /// Maximum number of processes and threads of the command; on the reduced tier, a quarter of
    /// the maximum of all processes of the user. 0: no limit.
    pub(crate) processes_max: u32,
}

/// Temporary folder of a session and the place at which its commands see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemporaryMount {
    /// Resolved path of the folder, or of its tmpfs in the mount namespace of the session.
    pub(crate) source: PathBuf,
    /// Masked folder over which it is mounted, `/tmp`.
    pub(crate) target: PathBuf,
}

/// Overlay over a writable root: a command reads the root and changes only `upper`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overlay {
    /// Writable root, which stays as it is.
    pub(crate) root: PathBuf,
    /// Folder that receives the changes.
    pub(crate) upper: PathBuf,
    /// Empty folder beside `upper`, which the kernel needs.
    pub(crate) work: PathBuf,
}

/// File that is mounted read-only over another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// File with the content that commands see, in a folder that they cannot read.
    pub(crate) source: PathBuf,
    /// Path at which they see it. It is below a hidden folder, or a file exists there.
    pub(crate) target: PathBuf,
}

impl Plan {
    /// True if a command cannot see the folder `path`, because it is a hidden folder or in one.
    pub(crate) fn hides(&self, path: &Path) -> bool {
        let shown = || self.visible.iter().chain(&self.writable);
        self.hidden
            .iter()
            .filter(|hidden| path.starts_with(hidden))
            .any(|hidden| !shown().any(|root| path.starts_with(root) && root.starts_with(hidden)))
    }

    /// Returns a plan without confinement.
    pub(crate) fn open() -> Plan {
        Plan { tier: SandboxTier::None, network: true, ..Plan::default() }
    }

    /// Returns all lists of paths, in the order in which the protocol of the helper sends them.
    pub(crate) fn lists(&self) -> [&Vec<PathBuf>; 6] {
        let Plan { writable, visible, masked, read_only, pinned, hidden, .. } = self;
        [writable, visible, masked, read_only, pinned, hidden]
    }

    /// Returns the lists of [`Plan::lists`], in the same order, for writing.
    pub(crate) fn lists_mut(&mut self) -> [&mut Vec<PathBuf>; 6] {
        let Plan { writable, visible, masked, read_only, pinned, hidden, .. } = self;
        [writable, visible, masked, read_only, pinned, hidden]
    }

    /// True if a hidden folder contains `path`.
    pub(crate) fn is_in_hidden_folder(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| hidden != path && path.starts_with(hidden))
    }

    /// True if an overlay covers `path`.
    pub(crate) fn is_overlaid(&self, path: &Path) -> bool {
        self.overlays.iter().any(|overlay| path.starts_with(&overlay.root))
    }

    /// True if the plan can be applied as written: its tier is that of its backend, all paths are
    /// absolute, without `..`, and not `/`, and either all writable roots have an overlay of this
    /// back end or none has one.
    pub(crate) fn is_sound(&self) -> bool {
        let temporary = self.temporary.iter().flat_map(|mount| [&mount.source, &mount.target]);
        let replaced = self.replaced.iter().flat_map(|file| [&file.source, &file.target]);
        let overlays = self.overlays.iter();
        let layers = overlays.flat_map(|layer| [&layer.root, &layer.upper, &layer.work]);
        let paths = self.lists().into_iter().flatten().chain(temporary).chain(replaced);
        let mut paths = paths.chain(layers);
        let is_covered = |root: &PathBuf| self.overlays.iter().any(|layer| layer.root == *root);
        let is_trial = self.backend == Backend::Namespaces
            && self.overlays.len() == self.writable.len()
            && self.writable.iter().all(is_covered);
        (self.overlays.is_empty() || is_trial)
            && self.tier == self.backend.tier()
            && paths.all(|path| is_plain(path) && path.parent().is_some())
    }
}
