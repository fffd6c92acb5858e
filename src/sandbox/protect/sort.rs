//! Kinds of protected names.

use std::path::Path;
use std::sync::Arc;

use posse_base::protected::Class;

/// Kind of a protected name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Name that is protected as a whole, with the reason.
    Name(Class),
    /// Folder that git uses, or will use, as a repository: only some of its content is protected.
    Repository,
    /// File or link called `.git`, which refers to a repository.
    Pointer,
    /// Folder `hooks` of a repository.
    Hooks,
    /// Folder `remotes` or `branches` of a repository: files of an old format that name addresses.
    Remotes,
    /// File `config` or `config.worktree` of a repository.
    Settings,
    /// File `info/attributes` of a repository, or `info` itself if it is a link.
    Attributes,
    /// File `info/exclude` of a repository: patterns of files that git, and checkpoints, leave out.
    Exclude,
    /// `git-rebase-todo`, or `todo` of a sequencer: the steps of an interrupted operation. Some run
    /// commands, and others check out commits.
    Todo,
    /// File with the merge strategy of an interrupted rebase or cherry-pick, or with the number of a
    /// step: some strategies run a program, and the prompt of a shell may run what it shows.
    Strategy,
    /// `index` or `sharedindex.*` of a repository: the paths that git writes.
    Index,
    /// Link in a repository in place of a file or folder of git, which leads to another one.
    InnerLink,
    /// Entry of a repository that git's ordinary commands do not create, such as `MERGE_RR`.
    Foreign,
    /// Like [`Sort::Foreign`], but git's ordinary commands remove it, such as `MERGE_AUTOSTASH`.
    Volatile,
    /// `packed-refs`: references, some of which may replace objects.
    PackedRefs,
    /// Folder with the state of an interrupted operation. Some ways to end the operation check out
    /// commits that are named in it.
    Interrupted,
    /// File of an interrupted operation with a commit or branch that its end may check out, or a patch
    /// that it applies.
    Origin,
    /// `.env` or a variant, which a program that prepares the environment may load.
    Environment,
    /// `commondir` of a repository, which refers to the folder of its settings.
    Common,
    /// `gitdir` of a linked worktree: the path of the worktree's `.git`.
    WorktreePath,
}

/// Protected name found by the scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProtectedItem {
    /// Path below the root.
    pub(super) path: Arc<Path>,
    pub(super) sort: Sort,
}
