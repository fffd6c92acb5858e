//! Repositories that a command moved or deleted: moved ones are restored, deleted ones are
//! reported.
//!
//! Mounts prevent a move. Without them, a repository that is still below the roots or in a
//! command's temporary folder is moved back, and its replacement is moved aside. A deleted one
//! cannot be restored and is reported.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::openat;
use nix::sys::stat::Mode;
use posse_base::protected;

use crate::protect::baseline::{Baseline, BaselineItem};
use crate::protect::finding::{Finding, ProtectAction, ProtectedChange, failed};
use crate::protect::git_files::{self, Contents};
use crate::protect::head_commit::{HeadCommit, HeadCommits};
use crate::protect::place::{self, FOLDER, Identity, PlaceKind, Root, Stat};
use crate::protect::sort::Sort;
use crate::protect::{GuardState, ProtectedPath};

/// Maximum number of entries that are read in temporary folders to find moved repositories.
const ENTRIES_MAX: usize = 200_000;

/// Reason reported for a repository without its objects, or without what makes it one.
const EMPTIED: &str =
    "its commits, branches or `HEAD` were deleted, and no copy of a repository is kept";

/// Reason reported for a lost repository.
const GONE: &str = "it is nowhere that is looked at, and no copy of a repository is kept";

/// Identity of a repository: file identity and creation time, because the inode number of a removed
/// folder may be reused.
type Repository = (Identity, Option<SystemTime>);

/// Open folder that contains a repository, and the name of the repository in it.
type RepositoryPlace = (OwnedFd, PathBuf);

/// Parts, commit of `HEAD` and branches of a `.git` folder, which a command may delete.
#[derive(Debug, Clone)]
pub(super) struct RepositoryContents {
    parts: Contents,
    head: HeadCommit,
}

impl RepositoryContents {
    /// `repository`: the open folder.
    fn is_less_than(&self, before: &RepositoryContents, repository: &OwnedFd) -> bool {
        self.parts < before.parts || self.head.is_lost_since(&before.head, repository)
    }
}

impl GuardState {
    /// Moves back every `.git` that was moved alone, without its parent folder, and that can be
    /// found. A replacement in its place goes to the quarantine. Returns one finding for each.
    pub(super) fn move_back(
        &mut self,
        baseline: &Baseline,
        now: &BTreeMap<ProtectedPath, BaselineItem>,
    ) -> Vec<Finding> {
        let repositories = now.iter().filter(|(_, current)| current.sort == Sort::Repository);
        let places: HashMap<Repository, &ProtectedPath> =
            repositories.map(|(key, current)| (repository(current), key)).collect();
        let mut moved: Vec<(&ProtectedPath, Repository, Option<&ProtectedPath>)> = Vec::new();
        for (key, before) in self.watched(baseline) {
            let place = places.get(&repository(before)).copied();
            if place != Some(key)
                && !before.is_doubtful
                && self.parent_identity(key) == before.parent
                && !self.is_there(key, before)
            {
                moved.push((key, repository(before), place));
            }
        }
        moved.sort_by_key(|(key, ..)| (*key).clone());
        let wanted: HashSet<Repository> = moved
            .iter()
            .filter(|(.., place)| place.is_none())
            .map(|(_, which, _)| *which)
            .collect();
        let mut elsewhere = self.search_elsewhere(wanted);
        let mut findings = Vec::new();
        for (key, which, place) in moved {
            let from = match place {
                Some(place) => {
                    let opened = self.roots[place.0].root.open_parent(&place.1);
                    Some(opened.map(|(folder, name)| (folder, name.to_owned())))
                }
                None => elsewhere.remove(&which).map(Ok),
            };
            findings.extend(from.map(|from| self.move_to_original(key, from)));
        }
        findings
    }

    fn move_to_original(
        &mut self,
        key: &ProtectedPath,
        from: Result<RepositoryPlace, Errno>,
    ) -> Finding {
        let moved = (|| {
            let (from, old) = from?;
            let (to, name) = self.roots[key.0].root.open_parent(&key.1)?;
            let taken = match self.quarantine.take(&to, name) {
                Ok(taken) => Some(taken),
                Err(Errno::ENOENT) => None,
                Err(errno) => return Err(errno),
            };
            place::move_entry(&from, &old, &to, name).map(|()| taken)
        })();
        let action = moved.map_or_else(failed, ProtectAction::Restored);
        Finding::new(self.path(key), ProtectedChange::Removed, action)
    }

    /// Returns the contents of each `.git` folder of `baseline` that a command may delete.
    pub(super) fn repository_contents(
        &self,
        baseline: &Baseline,
    ) -> HashMap<ProtectedPath, RepositoryContents> {
        self.heads.borrow_mut().retain(|key| baseline.items.contains_key(key));
        let watched = self.watched(baseline);
        let before = |key| Some(self.contents(key, HeadCommits::before)?.0);
        watched.filter_map(|(key, _)| Some((key.clone(), before(key)?))).collect()
    }

    /// The contents of the `.git` folder at `key`, with the state of `HEAD` by `head`, and the folder.
    fn contents(
        &self,
        key: &ProtectedPath,
        head: impl FnOnce(&mut HeadCommits, &ProtectedPath, &OwnedFd) -> HeadCommit,
    ) -> Option<(RepositoryContents, OwnedFd)> {
        let folder = self.roots[key.0].root.open_folder(&key.1).ok()?;
        let parts = git_files::contents(&folder);
        let head = head(&mut self.heads.borrow_mut(), key, &folder);
        Some((RepositoryContents { parts, head }, folder))
    }

    /// Reports every `.git` of the baseline that is at no path below the roots any more, or that
    /// lost its objects, what makes it a repository, the commit of `HEAD` or all branches. A `.git` in a folder of a package manager is
    /// ignored if its parent folder was removed or replaced.
    pub(super) fn lost(
        &self,
        baseline: &Baseline,
        now: &BTreeMap<ProtectedPath, BaselineItem>,
    ) -> Vec<Finding> {
        let known: HashSet<Repository> = now
            .values()
            .filter(|current| current.sort == Sort::Repository)
            .map(repository)
            .collect();
        let mut lost = Vec::new();
        for (key, before) in self.watched(baseline) {
            let mut above = key.1.iter();
            let was = baseline.contents.get(key);
            let has_lost = |was: &RepositoryContents| {
                let now = self.contents(key, HeadCommits::of);
                now.is_none_or(|(now, folder)| now.is_less_than(was, &folder))
            };
            if was.is_some_and(|was| self.is_there(key, before) && has_lost(was)) {
                let action = ProtectAction::Failed(EMPTIED.to_owned());
                lost.push(Finding::new(self.path(key), ProtectedChange::Changed, action));
                continue;
            }
            let is_vendored = above.any(|part| protected::is_vendored(part.as_encoded_bytes()))
                && self.parent_identity(key) != before.parent;
            if known.contains(&repository(before)) || is_vendored || self.is_there(key, before) {
                continue;
            }
            let parent = self.roots[key.0].root.open_parent(&key.1);
            let is_other = parent.is_ok_and(|(folder, name)| Stat::at(&folder, name).is_ok());
            let what = if is_other { ProtectedChange::Replaced } else { ProtectedChange::Removed };
            let action = ProtectAction::Failed(GONE.to_owned());
            lost.push(Finding::new(self.path(key), what, action));
        }
        lost.extend(self.dissolved(baseline, &known));
        lost.sort_by(|one, other| one.path.cmp(&other.path));
        lost
    }

    /// Reports repositories of other names than `.git` that lost what makes them a repository, at any
    /// path below the roots: nothing in them is protected any more. `known`: all repositories that
    /// there are now. A repository that is gone with its folder is a folder that was deleted.
    fn dissolved<'a>(
        &'a self,
        baseline: &'a Baseline,
        known: &'a HashSet<Repository>,
    ) -> impl Iterator<Item = Finding> + 'a {
        let is_lost = |(key, before): &(&ProtectedPath, &BaselineItem)| {
            let is_elsewhere = || {
                let mut scans = self.roots.iter().map(|watched| &watched.scan);
                scans.any(|scan| scan.path_of(before.identity).is_some())
            };
            before.sort == Sort::Repository
                && !is_dot_git(&key.1)
                && !known.contains(&repository(before))
                && !self.is_born(Some(before.identity))
                && !self.lifted.covers(&self.path(key))
                && (self.is_there(key, before) || is_elsewhere())
        };
        baseline.items.iter().filter(is_lost).map(|(key, _)| {
            let action = ProtectAction::Failed(EMPTIED.to_owned());
            Finding::new(self.path(key), ProtectedChange::Changed, action)
        })
    }

    /// The `.git` folders of the baseline that are neither exempt nor created by commands of this
    /// session.
    fn watched<'a>(
        &self,
        baseline: &'a Baseline,
    ) -> impl Iterator<Item = (&'a ProtectedPath, &'a BaselineItem)> + use<'a, '_> {
        baseline.items.iter().filter(|(key, before)| {
            before.sort == Sort::Repository
                && is_dot_git(&key.1)
                && !self.is_born(Some(before.identity))
                && !self.lifted.covers(&self.path(key))
        })
    }

    /// Current identity of the parent folder of `key`. `None` if the folder does not exist.
    fn parent_identity(&self, key: &ProtectedPath) -> Option<Identity> {
        let (folder, _) = self.roots[key.0].root.open_parent(&key.1).ok()?;
        Stat::at(&folder, Path::new("")).ok().map(|stat| stat.identity)
    }

    /// True if the repository `before` is still at `key`. Looks at the folder itself, because a
    /// scan may be incomplete.
    fn is_there(&self, key: &ProtectedPath, before: &BaselineItem) -> bool {
        let Ok(folder) = self.roots[key.0].root.open_folder(&key.1) else { return false };
        is(&folder, repository(before))
    }

    /// Searches for the repositories `wanted` below the roots, under any name, and in temporary
    /// folders of commands.
    fn search_elsewhere(
        &self,
        mut wanted: HashSet<Repository>,
    ) -> HashMap<Repository, RepositoryPlace> {
        let mut found = HashMap::new();
        if wanted.is_empty() {
            return found;
        }
        for watched in &self.roots {
            wanted.retain(|which| {
                let Some(path) = watched.scan.path_of(which.0) else { return true };
                let Ok((folder, name)) = watched.root.open_parent(path) else { return true };
                let is_it = is_at(&folder, name, *which);
                if is_it {
                    found.insert(*which, (folder, name.to_owned()));
                }
                !is_it
            });
        }
        let temporary = self.temporary.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut left = ENTRIES_MAX;
        for root in temporary.iter().filter_map(|path| Root::open(path).ok()) {
            let mut level = vec![PathBuf::new()];
            while let Some(path) = level.pop() {
                let Ok(folder) = root.open_readable(&path) else { continue };
                let Ok((listed, _)) = place::list(&folder, left) else { continue };
                left -= listed.len();
                for entry in listed.into_iter().filter(|entry| entry.kind == PlaceKind::Folder) {
                    let name = PathBuf::from(entry.name);
                    let like = wanted.iter().find(|which| which.0.inode == entry.inode).copied();
                    if let Some(which) = like
                        && root.open_readable(&path.join(&name)).is_ok()
                        && is_at(&folder, &name, which)
                        && let Ok(folder) = folder.try_clone()
                    {
                        wanted.remove(&which);
                        found.insert(which, (folder, name));
                        continue;
                    }
                    level.push(path.join(name));
                }
            }
        }
        found
    }
}

/// True if `name` in `folder` is the repository `which`.
fn is_at(folder: &OwnedFd, name: &Path, which: Repository) -> bool {
    openat(folder, name, FOLDER, Mode::empty()).is_ok_and(|opened| is(&opened, which))
}

/// True if the open folder is the given repository. Without a known creation time, the identity
/// decides alone.
fn is(opened: &OwnedFd, (identity, birth): Repository) -> bool {
    Stat::at(opened, Path::new("")).is_ok_and(|stat| stat.identity == identity)
        && (birth.is_none() || place::creation_time(opened) == birth)
}

fn repository(item: &BaselineItem) -> Repository {
    (item.identity, item.birth)
}

fn is_dot_git(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    &*protected::fold(name.as_encoded_bytes()) == b".git"
}
