//! Work trees that settings of git name, and links that a command puts on the way to them, or on the
//! way from a `.git` file, a `commondir` or the `gitdir` of a linked worktree.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use posse_base::protected;

use crate::protect::baseline::{Baseline, BaselineItem};
use crate::protect::finding::ProtectedChange;
use crate::protect::gitconfig::{self, PathSetting};
use crate::protect::references;
use crate::protect::sort::Sort;
use crate::protect::state::State;
use crate::protect::{GuardState, ProtectedPath};

impl GuardState {
    /// True if settings of the new repository in the folder `repository` of the root `at` may name the
    /// work tree `tree`: it is that of a submodule, below the root, and there is no link on the way.
    pub(super) fn may_be_work_tree(&self, at: usize, repository: &Path, tree: &str) -> bool {
        let depth = repository.components().count();
        let path = self.path(&(at, repository.into())).join(tree);
        self.is_module(at, repository)
            && gitconfig::stays_below(tree, depth)
            && !references::links_on_the_way(&path).iter().any(|link| self.place_of(link).is_some())
    }

    /// True if the folder `repository` of the root `at` is below `modules` of another repository.
    fn is_module(&self, at: usize, repository: &Path) -> bool {
        let scan = &self.roots[at].scan;
        repository.ancestors().skip(1).any(|around| {
            let name = around.file_name().unwrap_or_default();
            let below = repository.strip_prefix(around).unwrap_or(repository);
            let parts: Vec<&[u8]> = below.iter().map(OsStrExt::as_bytes).collect();
            (protected::is_dot_git(name.as_bytes()) || scan.is_repository(around))
                && matches!(parts[..], [b"modules", ..] | [b"worktrees", _, b"modules", ..])
        })
    }

    /// Ways, as in [`references::way`], to the places to which the settings, pointers and `gitdir`
    /// files among `items` lead git.
    pub(super) fn ways<'i>(
        &self,
        items: impl IntoIterator<Item = (&'i ProtectedPath, &'i BaselineItem)>,
    ) -> HashMap<ProtectedPath, Vec<PathBuf>> {
        let items = items.into_iter();
        items.filter_map(|(key, item)| Some((key.clone(), self.way_from(key, item)?))).collect()
    }

    /// Way from the file `item` at `key`. `None` if it leads git nowhere.
    fn way_from(&self, key: &ProtectedPath, item: &BaselineItem) -> Option<Vec<PathBuf>> {
        let Some(State::File { copy: Some(bytes), .. }) = &item.state else { return None };
        let path = match item.sort {
            Sort::Settings => {
                let trees = gitconfig::path_settings(bytes).into_iter();
                let mut trees = trees.filter_map(|setting| match setting {
                    PathSetting::WorkTree(tree) => Some(tree),
                    PathSetting::Hooks(_) | PathSetting::Include(_) => None,
                });
                // git takes the last one.
                self.path(key).with_file_name("").join(trees.next_back()?)
            }
            Sort::Pointer | Sort::Common => self.pointer_path(key)?,
            Sort::WorktreePath => self.dot_git_in(key, bytes)?,
            _ => return None,
        };
        Some(references::way(&path))
    }

    /// Moves links aside that a command put on one of the ways of `baseline`, if it leads out of reach
    /// of commands now, or a work tree is in a protected folder now. `now`: the current items.
    pub(super) fn check_ways(
        &mut self,
        baseline: &Baseline,
        now: &BTreeMap<ProtectedPath, BaselineItem>,
    ) {
        let known = |key: &ProtectedPath| baseline.ways.contains_key(key);
        for (key, way) in self.ways(now.iter().filter(|(key, _)| known(key))) {
            let before = &baseline.ways[&key];
            let (Some((end, links)), Some(end_before)) = (way.split_last(), before.last()) else {
                continue;
            };
            let is_tree = now.get(&key).is_some_and(|item| item.sort == Sort::Settings);
            if end == end_before || !self.is_elsewhere(end, is_tree) {
                continue;
            }
            let mut links = links.iter().filter_map(|link| Some((link, self.place_of(link)?)));
            // One that existed may have got another target.
            let last = links.clone().next_back();
            let Some((link, place)) = links.find(|(link, _)| !before.contains(link)).or(last)
            else {
                continue;
            };
            if let Ok((folder, name)) = self.roots[place.0].root.open_parent(&place.1) {
                self.move_aside(&folder, name, link, ProtectedChange::LeadsOutside);
            }
        }
    }

    /// True if commands cannot write at `path`, or, for a work tree, git would write protected files
    /// there.
    fn is_elsewhere(&self, path: &Path, is_tree: bool) -> bool {
        let is_protected = || {
            self.place_of(path).is_some_and(|(at, below)| {
                let scan = &self.roots[at].scan;
                below.ancestors().any(|folder| scan.is_repository(folder))
                    || protected::is_protected(&below.to_string_lossy())
            })
        };
        self.reached(path).is_none() || (is_tree && is_protected())
    }
}
