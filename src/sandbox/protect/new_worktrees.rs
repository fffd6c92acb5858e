//! Work trees that commands created, such as clones: protected files in them stay and are reported.
//!
//! This exception belongs to one folder at one path and to its `.git`. It ends when the folder or
//! the `.git` is gone, and does not extend to folders that existed before.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::SystemTime;

use posse_base::protected;

use crate::protect::baseline::{Baseline, BaselineItem};
use crate::protect::place::{self, Identity, Root, SETTLED, Stat};
use crate::protect::sort::Sort;
use crate::protect::{GuardState, ProtectedPath, Watched};

/// Work trees that commands of the session created, and the protected files left in them.
#[derive(Debug, Default)]
pub(super) struct NewWorktrees {
    /// Work trees by the identity of their `.git`.
    known: HashMap<Identity, NewWorktree>,
    /// Identities of the protected files that were left in new work trees.
    left: HashSet<Identity>,
}

#[derive(Debug)]
struct NewWorktree {
    folder: Identity,
    /// Time before the creation of the work tree. An older folder in the work tree was moved there.
    since: SystemTime,
    /// For each root, the number of the last scan before the creation of the work tree.
    scans: Vec<u64>,
}

impl NewWorktrees {
    /// Records that a protected file was left in a new work tree.
    pub(super) fn note_left(&mut self, identity: Identity) {
        self.left.insert(identity);
    }

    /// True if the file was left in a new work tree.
    pub(super) fn was_left(&self, identity: Identity) -> bool {
        self.left.contains(&identity)
    }
}

impl GuardState {
    /// Records the work trees that appeared since the baseline: folders at a new path with a
    /// complete `.git`, or with one that leads to a protected repository.
    pub(super) fn note_new_worktrees(
        &mut self,
        baseline: &Baseline,
        now: &BTreeMap<ProtectedPath, BaselineItem>,
    ) {
        let known: HashSet<Identity> =
            baseline.items.values().map(|before| before.identity).collect();
        for (key, current) in now {
            let (at, path) = (key.0, &*key.1);
            let is_dot_git = path.file_name().is_some_and(|name| name == ".git");
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let (true, Some(folder)) = (is_dot_git, folder) else { continue };
            let is_usable = match current.sort {
                Sort::Repository => is_whole(&self.roots[at].root, path),
                Sort::Pointer => self.points_to_protected(key, Sort::Pointer),
                _ => false,
            };
            if !is_usable
                || known.contains(&current.identity)
                || self.was_out_of_sight(baseline, key)
            {
                continue;
            }
            let scan = &self.roots[at].scan;
            if let Some(identity) = scan.identity(folder)
                && !scan.path_existed(folder, baseline.scans[at])
            {
                let (since, scans) = (baseline.time, baseline.scans.clone());
                let new = NewWorktree { folder: identity, since, scans };
                if !self.roots[at].is_newer(folder, &new, at) {
                    continue;
                }
                self.new_worktrees.known.insert(current.identity, new);
            }
        }
    }

    /// True if the protected file `path` came with a new work tree: all folders between the two are
    /// as new as the work tree. A name that is protected only because of the work tree's own name
    /// does not count.
    pub(super) fn is_in_new_worktree(&self, at: usize, path: &Path) -> bool {
        if self.new_worktrees.known.is_empty() {
            return false;
        }
        let Some(parent) = path.parent() else { return false };
        let watched = &self.roots[at];
        let Watched { root, scan, .. } = watched;
        for folder in parent.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
            let dot_git = root.stat(&folder.join(".git")).map(|stat| stat.identity);
            let Some(new) = dot_git.ok().and_then(|found| self.new_worktrees.known.get(&found))
            else {
                continue;
            };
            let is_same = root.stat(folder).is_ok_and(|stat| stat.identity == new.folder)
                && !scan.path_existed(folder, new.scans[at]);
            let mut between = parent.ancestors().take_while(|above| above.starts_with(folder));
            return is_same
                && between.all(|above| watched.is_newer(above, new, at))
                && !(parent == folder && is_named_by_parent(path));
        }
        false
    }

    /// Forgets left files that are not in a new work tree any more, because an inode number may be
    /// reused.
    pub(super) fn retain_left(&mut self, baseline: &Baseline) {
        if self.new_worktrees.left.is_empty() {
            return;
        }
        let items = baseline.items.iter();
        let left = items.filter(|((at, path), before)| {
            self.new_worktrees.was_left(before.identity) && self.is_in_new_worktree(*at, path)
        });
        self.new_worktrees.left = left.map(|(_, before)| before.identity).collect();
    }
}

/// True if the folder has the entries that git requires of a repository.
fn is_whole(root: &Root, path: &Path) -> bool {
    let Ok(folder) = root.open_folder(path) else { return false };
    ["HEAD", "objects", "refs"].iter().all(|name| Stat::at(&folder, Path::new(name)).is_ok())
}

impl Watched {
    /// True if `folder` was created together with the work tree or later. False if the folder
    /// cannot be opened, or the file system does not store creation times.
    fn is_newer(&self, folder: &Path, worktree: &NewWorktree, at: usize) -> bool {
        let Ok(opened) = self.root.open_folder(folder) else { return false };
        let Ok(stat) = Stat::at(&opened, Path::new("")) else { return false };
        let existed = self.scan.existed(stat.identity, worktree.scans[at]);
        // Creation times come from a coarse clock. The inode number of a removed folder is reused.
        place::creation_time(&opened).is_some_and(|time| {
            if existed { time > worktree.since + SETTLED } else { time + SETTLED > worktree.since }
        })
    }
}

/// True if the name is protected only because of the name of its parent folder. False also if it is
/// not protected.
pub(super) fn is_named_by_parent(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let above = path.parent().and_then(Path::file_name).unwrap_or_default().as_encoded_bytes();
    protected::class_of(b"", name).is_none() && protected::class_of(above, name).is_some()
}
