//! Worktrees for subagents: creation from the session's workspace, comparison, merge and removal.
//!
//! A worktree is in the session's folder and has a `.git` folder of its own, which shares the
//! objects and branches of the user's repository. Creating it changes nothing in that repository:
//! neither index, references and `HEAD`, nor the list of worktrees. Changes are found by comparison
//! with a copy that only posse can write, so the content of a worktree is never trusted, and git is
//! never run in it.

mod changes;
mod git;
mod merge;
mod merged_state;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posse_actors::outcome::{ChangedFile, WorkspaceChanges};
use posse_base::failure::printable;
use posse_base::remove_tree::remove_tree;
use posse_sandbox::Sandbox;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::blocking;
use crate::diff::{self, Diff};
use crate::listing::Stop;

pub(crate) use changes::{Changed, LeftOut, OpenWorktree, Side, WorktreeChanges};
pub(crate) use merge::three_way;

/// Time limit for copying the files of a new worktree.
const MAKING_MAX: Duration = Duration::from_mins(1);
/// Maximum length of an invocation id that becomes a folder name, in characters.
const ID_CHARS_MAX: usize = 80;
/// Maximum number of changed files that the summary of a closed worktree lists.
const NAMED_MAX: usize = 50;

/// Reason why a worktree cannot be created or used, for the model and the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The session's workspace is not in a git repository.
    #[error("the workspace is in no git repository")]
    NoRepository,
    /// Git was not found in the folders that are searched for programs.
    #[error("git was not found")]
    NoGit,
    /// The repository has no commit.
    #[error("the git repository has no commit yet")]
    NoCommit,
    /// The repository is bare.
    #[error("the git repository is bare")]
    Bare,
    /// The repository has a submodule at this path. A submodule is a repository of its own, which a
    /// worktree cannot share.
    #[error("{0} is a submodule, which a worktree cannot share")]
    Submodule(String),
    /// The repository contains another repository at this path.
    #[error("{0} is a git repository inside this one")]
    Nested(String),
    /// `.git` is a symbolic link, or a file that names a repository which does not list this
    /// working tree.
    #[error("`.git` leads to a repository that does not confirm that this is its working tree")]
    Pointer,
    /// The settings of the repository name another working tree or repository, or one that does not
    /// contain the session's workspace.
    #[error("the git repository says that its files are elsewhere")]
    Elsewhere,
    /// The repository stores its branches in the format `reftable`, which a worktree cannot share.
    #[error("the git repository keeps its branches in the format `reftable`")]
    Format,
    /// The repository's working tree or the worktree exceeds a limit. The text names the limit,
    /// such as `2 GiB of files`.
    #[error("the workspace has more than {0}")]
    TooLarge(&'static str),
    /// A query of git, copying or comparing took too long; each has its own limit.
    #[error("{action} took longer than {} s", limit.as_secs())]
    TimedOut {
        /// Text that names the action, such as `copying the workspace`.
        action: &'static str,
        /// Time limit of the action.
        limit: Duration,
    },
    /// The subagent has no worktree: it never had one, it was removed, or its metadata cannot be
    /// read.
    #[error("its worktree is not there any more")]
    Gone,
    /// A command of the subagent has put a link in place of its working directory or of a folder above
    /// it.
    #[error("a link took the place of its working directory, so it would work elsewhere")]
    Replaced,
    /// Another agent requested the worktree. The text names that agent: its invocation id, or `the
    /// main agent`.
    #[error("{0} has asked for it, and can take it over")]
    NotYours(String),
    /// The folder of the new worktree exists already.
    #[error("something is left of the one it had")]
    Occupied,
    /// Error of git or the system.
    #[error("{0}")]
    Failed(String),
}

fn failed(what: &str, error: &io::Error) -> Unavailable {
    Unavailable::Failed(format!("{what}: {}", error.kind()))
}

/// Absolute paths of a worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreePaths {
    /// Top folder of the worktree, the counterpart of the top of the repository.
    pub tree: PathBuf,
    /// Working directory: the counterpart of the session's workspace.
    pub cwd: PathBuf,
}

/// Metadata of a worktree, stored as JSON in the folder that contains the worktree.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorktreeMetadata {
    /// The invocation that requested the subagent; `None` for the main agent.
    caller: Option<String>,
    /// Path of the session's workspace, relative to the top of the repository.
    prefix: PathBuf,
    /// True if the worktree was merged completely and its content removed.
    #[serde(default)]
    merged: bool,
}

/// The worktrees of a session: creates, compares and removes them.
#[derive(Debug)]
pub struct Worktrees {
    /// Parent folder of all worktrees.
    dir: PathBuf,
    session_dir: PathBuf,
    /// The session's workspace, resolved.
    cwd: PathBuf,
    sandbox: Arc<Sandbox>,
    /// Returns the main working tree of the repository that lists the given folder as a linked
    /// worktree; `None` if no repository does.
    main_of: fn(&Path) -> Option<PathBuf>,
    /// Ids of the invocations that still work in their worktrees, from `open` or `reopen` to
    /// `close` or `discard`. Such a worktree cannot be merged.
    live: Mutex<BTreeSet<String>>,
}

impl Worktrees {
    /// Creates the access to the worktrees of the session with working directory `cwd` and folder
    /// `session_dir`. Folders are created on first use.
    pub fn new(
        session_dir: &Path,
        cwd: &Path,
        sandbox: Arc<Sandbox>,
        main_of: fn(&Path) -> Option<PathBuf>,
    ) -> Worktrees {
        Worktrees {
            dir: session_dir.join(WORKTREES),
            session_dir: session_dir.to_owned(),
            cwd: cwd.to_owned(),
            sandbox,
            main_of,
            live: Mutex::default(),
        }
    }

    /// Creates a worktree for invocation `id`: a copy of the working tree of the session's
    /// repository as it is now, without ignored files and secrets. `caller` is the invocation that
    /// requested it, `None` for the main agent. Dropping the future cancels the creation and
    /// removes partial results.
    pub async fn open(&self, id: &str, caller: Option<&str>) -> Result<WorktreePaths, Unavailable> {
        let folder = self.folder(id)?;
        // Of a completely merged worktree only its metadata is left.
        if folder.join(TREE).symlink_metadata().is_ok() {
            return Err(Unavailable::Occupied);
        }
        let repository =
            git::repository(&self.sandbox, &self.session_dir, &self.cwd, self.main_of).await?;
        let files = git::files(&self.sandbox, &self.session_dir, &repository).await?;
        let prefix = self.cwd.strip_prefix(&repository.top).map_err(|_| Unavailable::Elsewhere)?;
        let (caller, prefix) = (caller.map(str::to_owned), prefix.to_owned());
        let kept = WorktreeMetadata { caller, prefix, merged: false };
        let unfinished = Unfinished(folder.clone());
        make_folder(&folder).map_err(|error| failed("the folder of the session", &error))?;
        let (stop, held) = Stop::after(MAKING_MAX);
        let secret_files = self.sandbox.secret_files();
        let made = blocking(move || {
            // Removed if the caller is gone.
            let unfinished = unfinished;
            snapshot::make(&folder, &repository, &files, &kept.prefix, secret_files, &stop)?;
            store(&folder.join(KEPT), &kept)?;
            Ok((worktree_paths(&folder, &kept), unfinished))
        });
        let (place, unfinished) = made.await?;
        drop(held);
        unfinished.finished();
        self.live_worktrees().insert(id.to_owned());
        Ok(place)
    }

    /// Reopens the worktree of invocation `id`, and completes a merge that was interrupted.
    /// [`Unavailable::Gone`] if there is none or it was merged completely.
    pub fn reopen(&self, id: &str) -> Result<WorktreePaths, Unavailable> {
        let (folder, kept) = self.stored_worktree(id)?;
        let place = worktree_paths(&folder, &kept);
        // Before any change in it.
        self.settle(id, merged_state::is_here).ok();
        if !place.cwd.is_dir() || !folder.join(snapshot::BASE_LIST).is_file() {
            return Err(Unavailable::Gone);
        }
        if !OpenWorktree::open(&folder, &kept.prefix)?.has_working_directory() {
            return Err(Unavailable::Replaced);
        }
        self.live_worktrees().insert(id.to_owned());
        Ok(place)
    }

    /// Returns true if invocation `id` has a worktree that was neither removed nor merged
    /// completely.
    pub fn is_there(&self, id: &str) -> bool {
        self.folder(id).is_ok_and(|folder| {
            folder.join(KEPT).is_file() && folder.join(TREE).symlink_metadata().is_ok()
        })
    }

    /// Ends the work of invocation `id` in its worktree and returns a summary: the number of
    /// changed and of left-out files, and the first of each. If there are none, removes the
    /// worktree and returns `None`.
    pub fn close(&self, id: &str) -> Result<Option<WorkspaceChanges>, Unavailable> {
        self.live_worktrees().remove(id);
        let tree = self.tree(id)?;
        let WorktreeChanges { changed, left_out } = tree.all_changes()?;
        if changed.is_empty() && left_out.count == 0 {
            self.remove(id)?;
            return Ok(None);
        }
        let mut files = Vec::new();
        for one in changed.iter().take(NAMED_MAX) {
            let (before, after) = (tree.before(one)?, tree.after(one)?);
            let Diff { added, removed, .. } =
                diff::unified(&one.path, before.as_deref(), &after.unwrap_or_default());
            files.push(ChangedFile { path: one.path.clone(), added, removed });
        }
        let (left_out, left_out_files) = (left_out.count, left_out.named);
        Ok(Some(WorkspaceChanges { count: changed.len(), files, left_out, left_out_files }))
    }

    /// Returns true if invocation `id` still works in its worktree, which then cannot be merged.
    pub(crate) fn is_live(&self, id: &str) -> bool {
        self.live_worktrees().contains(id)
    }

    /// Opens the worktree of invocation `id` for comparison, if `caller` requested it. The main
    /// agent, which is `None`, may open all worktrees. Completes a merge that was interrupted.
    pub(crate) fn of_caller(
        &self,
        id: &str,
        caller: Option<&str>,
    ) -> Result<OpenWorktree, Unavailable> {
        let (_, kept) = self.stored_worktree(id)?;
        if caller.is_some() && kept.caller.as_deref() != caller {
            return Err(Unavailable::NotYours(kept.caller.unwrap_or("the main agent".to_owned())));
        }
        self.tree(id)
    }

    /// Path of the working directory in the worktree of invocation `id`; `None` if there is no such
    /// worktree. The folder does not exist any more after a complete merge.
    pub(crate) fn cwd_of(&self, id: &str) -> Option<PathBuf> {
        self.stored_worktree(id).ok().map(|(folder, kept)| worktree_paths(&folder, &kept).cwd)
    }

    /// Returns true if the worktree of invocation `id` was merged completely.
    pub(crate) fn is_merged(&self, id: &str) -> bool {
        self.stored_worktree(id).is_ok_and(|(_, kept)| kept.merged)
    }

    /// Marks the worktree of invocation `id` as merged completely, and removes its content.
    pub(crate) fn merged(&self, id: &str) -> Result<(), Unavailable> {
        let (folder, kept) = self.stored_worktree(id)?;
        store(&folder.join(KEPT), &WorktreeMetadata { merged: true, ..kept })?;
        empty(&folder)
    }

    /// Paths of the files of the worktree of invocation `id` that were merged at any time. Empty
    /// after a complete merge.
    pub(crate) fn merged_files(&self, id: &str) -> BTreeSet<String> {
        self.folder(id).map(|folder| merged_state::read(&folder).done).unwrap_or_default()
    }

    /// Stores the content that files of the session's workspace will have after a merge, before the
    /// merge writes them, so that an interrupted merge can be completed. `becoming` maps paths to
    /// the SHA-256 of the content, or to `None` for a removal.
    pub(crate) fn store_merge_hashes(
        &self,
        id: &str,
        becoming: BTreeMap<String, Option<String>>,
    ) -> Result<(), Unavailable> {
        merged_state::begin(&self.folder(id)?, becoming)
    }

    /// Completes a merge: its files become the new base, with which later changes of the subagent
    /// are compared. If `broke_off` is true, the merge was interrupted, and only the files that it
    /// has written become the new base.
    pub(crate) fn have_become(&self, id: &str, broke_off: bool) -> Result<(), Unavailable> {
        self.settle(id, |cwd, path, becomes| {
            !broke_off || merged_state::is_here(cwd, path, becomes)
        })
    }

    fn settle(
        &self,
        id: &str,
        is_here: impl Fn(&Path, &str, Option<&str>) -> bool,
    ) -> Result<(), Unavailable> {
        let (folder, kept) = self.stored_worktree(id)?;
        let tree = OpenWorktree::open(&folder, &kept.prefix)?;
        let is_here = |path: &str, becomes: Option<&str>| is_here(&self.cwd, path, becomes);
        merged_state::rebase_merged(&folder, &kept.prefix, &tree, is_here)
    }

    /// Removes the worktrees in `session_dir` whose invocation id is not in `known`, the ids of the
    /// subagents in the journal. Such a worktree is left over if posse is killed while creating it.
    /// Errors are ignored.
    pub fn remove_unknown(session_dir: &Path, known: &BTreeSet<&str>) {
        let dir = session_dir.join(WORKTREES);
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_none_or(|name| !known.contains(name)) {
                remove_tree(&entry.path()).ok();
            }
        }
    }

    /// Removes the worktree of invocation `id`, which is no longer used. An error is only logged.
    pub fn discard(&self, id: &str) {
        self.live_worktrees().remove(id);
        if let Err(why) = self.remove(id) {
            tracing::debug!(%why, "a worktree");
        }
    }

    fn remove(&self, id: &str) -> Result<(), Unavailable> {
        remove_tree(&self.folder(id)?).map_err(|error| failed("the worktree stays", &error))
    }

    fn tree(&self, id: &str) -> Result<OpenWorktree, Unavailable> {
        let (folder, kept) = self.stored_worktree(id)?;
        self.settle(id, merged_state::is_here)?;
        OpenWorktree::open(&folder, &kept.prefix)
    }

    fn folder(&self, id: &str) -> Result<PathBuf, Unavailable> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if id.is_empty() || id.len() > ID_CHARS_MAX || !id.chars().all(is_name) {
            return Err(Unavailable::Gone);
        }
        Ok(self.dir.join(id))
    }

    fn stored_worktree(&self, id: &str) -> Result<(PathBuf, WorktreeMetadata), Unavailable> {
        let folder = self.folder(id)?;
        let kept = load(&folder.join(KEPT))?;
        Ok((folder, kept))
    }

    fn live_worktrees(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name of the file with the [`WorktreeMetadata`]. It is written last: a worktree without it is
/// incomplete.
const KEPT: &str = "worktree.json";
/// Name of the folder with the worktrees in the session's folder.
const WORKTREES: &str = "worktrees";
/// Name of the subfolder with the worktree itself.
const TREE: &str = "tree";

fn worktree_paths(folder: &Path, kept: &WorktreeMetadata) -> WorktreePaths {
    let tree = folder.join(TREE);
    // Joining an empty path would add a slash.
    let has_prefix = !kept.prefix.as_os_str().is_empty();
    WorktreePaths { cwd: if has_prefix { tree.join(&kept.prefix) } else { tree.clone() }, tree }
}

/// Guard of a folder that is removed on drop, unless `finished` was called.
struct Unfinished(PathBuf);

impl Unfinished {
    fn finished(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            remove_tree(&self.0).ok();
        }
    }
}

/// Removes everything in `folder` except the metadata file: the worktree, its base, and the lists.
fn empty(folder: &Path) -> Result<(), Unavailable> {
    for entry in fs::read_dir(folder).map_err(|error| failed("the worktree", &error))?.flatten() {
        let path = entry.path();
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_tree(&path),
            _ if path.file_name() == Some(KEPT.as_ref()) => Ok(()),
            _ => fs::remove_file(&path),
        };
        removed.map_err(|error| failed("the worktree stays", &error))?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Reads a JSON value that [`store`] has written. Every error is [`Unavailable::Gone`].
fn load<T: DeserializeOwned>(path: &Path) -> Result<T, Unavailable> {
    let bytes = fs::read(path).map_err(|_| Unavailable::Gone)?;
    serde_json::from_slice(&bytes).map_err(|_| Unavailable::Gone)
}

/// Writes `value` as JSON to the file `path`, atomically by way of a temporary file, without
/// syncing it.
fn store(path: &Path, value: &impl Serialize) -> Result<(), Unavailable> {
    let written = serde_json::to_vec(value).map_err(io::Error::other).and_then(|bytes| {
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, bytes)?;
        fs::rename(&unfinished, path)
    });
    written.map_err(|error| failed(&printable(&path.display().to_string()), &error))
}

#[cfg(test)]
mod tests;
