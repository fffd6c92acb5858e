//! Pointer files (`.git`) and `commondir` files: the folders to which they lead.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::openat;
use nix::sys::stat::Mode;
use posse_base::protected;

use crate::protect::linked_worktrees::POINTER_BYTES_MAX;
use crate::protect::place::{self, FOLDER};
use crate::protect::sort::Sort;
use crate::protect::{GuardState, ProtectedPath, Watched, gitconfig, references};

/// Maximum number of entries of a hooks folder that are examined. With more entries, the repository
/// counts as one with hooks.
const HOOKS_MAX: usize = 100;

impl GuardState {
    /// True if the pointer file or `commondir` at `key` leads to a scanned folder that is safe: a
    /// `.git`, or a worktree or module in one; a repository that a command created, which is
    /// cleaned; or a repository whose settings and hooks run no program.
    ///
    /// The target of a `commondir` must be a repository: git does not look for a `HEAD` there, so
    /// it would use the settings in any other folder, too.
    pub(super) fn points_to_protected(&self, key: &ProtectedPath, sort: Sort) -> bool {
        let Some((at, target)) = self.pointer_target(key) else { return false };
        if self.leads_through_link(key) {
            return false;
        }
        let scan = &self.roots[at].scan;
        if sort == Sort::Common && !scan.is_repository(&target) {
            return false;
        }
        let is_dot_git =
            |name: Option<&OsStr>| name.is_some_and(|name| protected::is_dot_git(name.as_bytes()));
        let is_part = target.ancestors().skip(1).any(|repository| {
            let part = target.strip_prefix(repository).ok().and_then(|below| below.iter().next());
            is_dot_git(repository.file_name())
                && part.is_some_and(|part| part == "worktrees" || part == "modules")
        });
        is_part
            || is_dot_git(target.file_name())
            || self.is_born(scan.identity(&target))
            || self.has_harmless_settings(at, &target)
    }

    /// True if the repository has neither hooks, nor settings that run programs, nor old files with
    /// addresses. False in doubt.
    fn has_harmless_settings(&self, at: usize, repository: &Path) -> bool {
        let Ok(folder) = self.roots[at].root.open_folder(repository) else { return false };
        let may_be_tree = |tree: &str| self.may_be_work_tree(at, repository, tree);
        let is_harmless = ["config", "config.worktree"].into_iter().all(|name| {
            match place::read(&folder, Path::new(name), gitconfig::BYTES_MAX) {
                Ok(Some(bytes)) => gitconfig::clean(&bytes, may_be_tree)
                    .is_some_and(|cleaned| cleaned.removed.is_empty()),
                Err(Errno::ENOENT) => true,
                Ok(None) | Err(_) => false,
            }
        });
        let has_files = |name: &str| match openat(&folder, name, FOLDER, Mode::empty()) {
            Ok(files) => place::list(&files, HOOKS_MAX).map_or(true, |(listed, is_whole)| {
                let is_sample =
                    |file: &OsStr| name == "hooks" && file.as_bytes().ends_with(b".sample");
                !is_whole || listed.iter().any(|entry| !is_sample(&entry.name))
            }),
            Err(errno) => errno != Errno::ENOENT,
        };
        is_harmless && !["hooks", "remotes", "branches"].into_iter().any(has_files)
    }

    /// Returns the scanned folder to which the pointer file or `commondir` at `key` leads. `None`
    /// if it leads elsewhere, to a root itself, or cannot be read.
    pub(super) fn pointer_target(&self, key: &ProtectedPath) -> Option<ProtectedPath> {
        let real = std::fs::canonicalize(self.pointer_path(key)?).ok()?;
        self.roots.iter().enumerate().find_map(|(at, Watched { root, scan, .. })| {
            let below = real.strip_prefix(&root.path).ok()?;
            let is_scanned = !below.as_os_str().is_empty() && scan.identity(below).is_some();
            is_scanned.then(|| (at, below.into()))
        })
    }

    /// Returns the path in the pointer file or `commondir` at `key`, absolute and not normalised:
    /// links on the way decide where a `..` leads.
    pub(super) fn pointer_path(&self, key: &ProtectedPath) -> Option<PathBuf> {
        let (folder, name) = self.roots[key.0].root.open_parent(&key.1).ok()?;
        let bytes = place::read(&folder, name, POINTER_BYTES_MAX).ok()??;
        let is_pointer =
            key.1.file_name().is_some_and(|name| protected::is_dot_git(name.as_bytes()));
        let target = references::pointer_text(&bytes, is_pointer)?;
        Some(self.path(key).with_file_name("").join(target))
    }

    /// True if there is a link below a root on the way to the target of the pointer file or
    /// `commondir` at `key`: a later command could let it lead elsewhere.
    fn leads_through_link(&self, key: &ProtectedPath) -> bool {
        let Some(path) = self.pointer_path(key) else { return true };
        let is_inside =
            |link: &PathBuf| self.roots.iter().any(|watched| link.starts_with(&watched.root.path));
        references::links_on_the_way(&path).iter().any(is_inside)
    }
}
