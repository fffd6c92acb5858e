//! `gitdir` of linked worktrees: the path of a worktree's `.git`, to which git's commands for
//! worktrees write, and whose folder they move and remove.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::PoisonError;

use posse_base::protected;

use crate::protect::baseline::BaselineItem;
use crate::protect::place::{self, Root};
use crate::protect::sort::Sort;
use crate::protect::state::State;
use crate::protect::{GuardState, ProtectedPath, references};

/// Maximum length of a `gitdir`, `commondir` or `.git` file in bytes.
pub(super) const POINTER_BYTES_MAX: u64 = 4096;

impl GuardState {
    /// True if the `commondir` at `key` is that of a linked worktree and leads to the repository
    /// around it. Any other one replaces the settings and hooks of its repository.
    pub(super) fn is_of_linked_worktree(&self, key: &ProtectedPath) -> bool {
        let mut above = key.1.ancestors().skip(2);
        let is_worktrees = |path: &Path| path.file_name().is_some_and(|name| name == "worktrees");
        above.next().is_some_and(is_worktrees)
            && self.points_to_protected(key, Sort::Common)
            && self
                .pointer_target(key)
                .is_some_and(|(at, target)| at == key.0 && above.next() == Some(&*target))
    }

    /// True if the change of the `gitdir` at `key` from `before` to `current` is that of a worktree
    /// that was moved from one place within reach of commands to another.
    pub(super) fn is_moved_worktree(
        &self,
        key: &ProtectedPath,
        before: &BaselineItem,
        current: &BaselineItem,
    ) -> bool {
        let (Some(old), Some(new)) = (&before.state, &current.state) else { return false };
        let State::File { copy: Some(bytes), .. } = old else { return false };
        let was_within_reach =
            self.dot_git_in(key, bytes).is_some_and(|path| self.reached(&path).is_some());
        was_within_reach && !new.is_linked_since(old) && self.leads_to_worktree(key)
    }

    /// True if the `gitdir` at `key` leads to a `.git` file within reach of commands that leads back
    /// to the folder of the `gitdir`, and there is no link on the way.
    pub(super) fn leads_to_worktree(&self, key: &ProtectedPath) -> bool {
        let Ok((folder, name)) = self.roots[key.0].root.open_parent(&key.1) else { return false };
        let bytes = place::read(&folder, name, POINTER_BYTES_MAX).ok().flatten();
        let path = bytes.and_then(|bytes| self.dot_git_in(key, &bytes));
        let Some((root, below)) = path.as_deref().and_then(|path| self.reached(path)) else {
            return false;
        };
        // Opens the folders below the root without following links.
        let Ok((folder, name)) = root.open_parent(&below) else { return false };
        let bytes = place::read(&folder, name, POINTER_BYTES_MAX).ok().flatten();
        let back = bytes.as_deref().and_then(|bytes| references::pointer_text(bytes, true));
        let back = back.map(|back| root.path.join(&below).with_file_name("").join(back));
        let back = back.and_then(|back| std::fs::canonicalize(back).ok());
        back.is_some() && back.as_deref() == self.path(key).parent()
    }

    /// The root, or the folder with temporary folders of commands, that contains `path`, and the
    /// rest of the path. `None` if commands cannot write there.
    pub(super) fn reached(&self, path: &Path) -> Option<(Root, PathBuf)> {
        let temporary = self.temporary.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let roots = self.roots.iter().filter(|watched| !watched.is_out_of_reach);
        let folders = roots.map(|watched| &watched.root.path).chain(&temporary);
        let mut inside =
            folders.filter_map(|folder| Some((folder, path.strip_prefix(folder).ok()?)));
        inside.find_map(|(folder, below)| Some((Root::open(folder).ok()?, below.to_owned())))
    }

    /// The absolute path of a `.git` in the content `bytes` of the `gitdir` at `key`. `None` if links
    /// may decide where it leads, or git reads another path from it.
    pub(super) fn dot_git_in(&self, key: &ProtectedPath, bytes: &[u8]) -> Option<PathBuf> {
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let has_breaks = text.iter().any(u8::is_ascii_control);
        if has_breaks || text.last().is_none_or(u8::is_ascii_whitespace) {
            return None;
        }
        let text = Path::new(OsStr::from_bytes(text));
        let mut path = self.path(key).parent()?.to_owned();
        let mut is_up = text.is_relative();
        for part in text.components() {
            match part {
                Component::RootDir => path = PathBuf::from("/"),
                Component::ParentDir if is_up => is_up = path.pop(),
                Component::Normal(name) => {
                    is_up = false;
                    path.push(name);
                }
                _ => return None,
            }
        }
        let is_dot_git =
            path.file_name().is_some_and(|name| protected::is_dot_git(name.as_bytes()));
        is_dot_git.then_some(path)
    }
}
