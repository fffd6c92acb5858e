//! Paths that are protected because something refers to them: settings of git, `commondir` files,
//! and links in place of protected files or inside protected folders.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_base::protected::{self, Class};

use crate::protect::baseline::Baseline;
use crate::protect::references::{self, GitRepository};
use crate::protect::sort::{ProtectedItem, Sort};
use crate::protect::state::State;
use crate::protect::{GuardState, ProtectedPath};

/// Maximum number of times that targets of links are searched for further links.
pub(super) const LINK_ROUNDS_MAX: usize = 4;

/// Maximum number of links whose targets are protected. Targets of further ones are not.
const LINKS_MAX: usize = 2000;

impl GuardState {
    /// Paths to protect because git's settings or `items` refer to them: hook folders and settings
    /// files, also of repositories outside the roots, and the git files in the target of a
    /// `commondir`; and configuration files of posse. Settings add no path that is already protected,
    /// and none outside the roots.
    pub(super) fn referenced(
        &mut self,
        items: &[(usize, ProtectedItem)],
    ) -> Vec<(usize, ProtectedItem)> {
        let mut pointed = Vec::new();
        // A folder to which a `commondir` leads has the settings of a repository, even without a
        // `HEAD`.
        for (at, item) in items.iter().filter(|(_, item)| item.sort == Sort::Common) {
            let Some((at, target)) = self.pointer_target(&(*at, Arc::clone(&item.path))) else {
                continue;
            };
            let parts = [
                ("config", Sort::Settings),
                ("hooks", Sort::Hooks),
                ("info/attributes", Sort::Attributes),
                ("info/exclude", Sort::Exclude),
            ];
            pointed.extend(
                parts.into_iter().map(|(name, sort)| {
                    (at, ProtectedItem { path: target.join(name).into(), sort })
                }),
            );
        }
        pointed.extend(self.own_settings());
        let mut known: HashSet<ProtectedPath> = items
            .iter()
            .chain(&pointed)
            .filter(|(_, item)| item.sort != Sort::Repository)
            .map(|(at, item)| (*at, Arc::clone(&item.path)))
            .collect();
        let paths = self.git_references(items);
        for key in paths.iter().filter_map(|path| self.place_of(path)) {
            if !is_known(&known, &key) {
                let sort = Sort::Name(Class::Git);
                pointed.push((key.0, ProtectedItem { path: Arc::clone(&key.1), sort }));
                known.insert(key);
            }
        }
        pointed
    }

    /// Absolute paths to which the settings of the repositories refer that contain a root, or are
    /// among `items`.
    fn git_references(&mut self, items: &[(usize, ProtectedItem)]) -> BTreeSet<PathBuf> {
        let roots: Vec<PathBuf> =
            self.roots.iter().map(|watched| watched.root.path.clone()).collect();
        let mut repositories: BTreeSet<GitRepository> =
            roots.iter().flat_map(|root| GitRepository::around(root)).collect();
        for (at, item) in items {
            let path = || roots[*at].join(&item.path);
            repositories.extend(match item.sort {
                Sort::Repository => GitRepository::of_folder(&path()),
                Sort::Pointer => path().parent().and_then(GitRepository::of_tree),
                _ => None,
            });
        }
        let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
        repositories.iter().flat_map(|repository| self.git.of(repository, &roots)).collect()
    }

    /// Location of the absolute `path`. `None` if it is a root itself, outside the roots, or out of
    /// reach of commands.
    pub(super) fn place_of(&self, path: &Path) -> Option<ProtectedPath> {
        self.roots.iter().enumerate().find_map(|(at, watched)| {
            let below = path.strip_prefix(&watched.root.path).ok()?;
            let is_wanted = !below.as_os_str().is_empty() && !watched.is_out_of_reach;
            is_wanted.then(|| (at, below.into()))
        })
    }

    /// Paths to protect because of links at or in the items `keys` of `baseline`: the target of the
    /// link, and other links on the way to it. If the link has a name in which only certain names
    /// are protected, such as `.cargo`: those names in the target. A target need not exist. Paths
    /// that are already protected, and folders around the link, are left out.
    pub(super) fn link_targets(
        &self,
        baseline: &Baseline,
        keys: &[ProtectedPath],
    ) -> Vec<(usize, ProtectedItem)> {
        let mut known: HashSet<ProtectedPath> = baseline
            .items
            .iter()
            .filter(|(_, item)| item.sort != Sort::Repository)
            .map(|(key, _)| key.clone())
            .collect();
        known.extend(baseline.pointed.iter().map(|(at, item)| (*at, Arc::clone(&item.path))));
        let mut targets = Vec::new();
        for key in keys {
            let Some(item) = baseline.items.get(key) else { continue };
            let class = match item.sort {
                Sort::Name(class) => class,
                Sort::Hooks | Sort::Settings | Sort::Attributes | Sort::Exclude => Class::Git,
                _ => continue,
            };
            let mut links = Vec::new();
            if let Some(state) = &item.state {
                find_links(state, &self.path(key), &mut links);
            }
            for link in links {
                let is_whole = link != self.path(key) || is_protected_as_a_whole(&key.1, item.sort);
                for path in references::way(&link).into_iter().filter(|path| *path != link) {
                    let below: Vec<(PathBuf, Class)> =
                        if is_whole { vec![(path, class)] } else { names_below(&key.1, &path) };
                    for (path, class) in below {
                        let Some(target) = self.place_of(&path) else { continue };
                        if link.starts_with(&path) || is_known(&known, &target) {
                            continue;
                        }
                        let (path, sort) = (Arc::clone(&target.1), Sort::Name(class));
                        targets.push((target.0, ProtectedItem { path, sort }));
                        known.insert(target);
                    }
                }
            }
        }
        targets
    }
}

/// True if `key` or a folder above it is in `known`.
fn is_known(known: &HashSet<ProtectedPath>, key: &ProtectedPath) -> bool {
    key.1.ancestors().any(|path| known.contains(&(key.0, path.into())))
}

/// True if a link at `path` stands for a file or folder that is protected with all its content.
fn is_protected_as_a_whole(path: &Path, sort: Sort) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let above = path.parent().and_then(Path::file_name).unwrap_or_default();
    let only_names = protected::names_in(&protected::fold(name)).next().is_some();
    !matches!(sort, Sort::Name(_))
        || !only_names
        || protected::class_of(above.as_encoded_bytes(), name).is_some()
}

/// The names, with their classes, that are protected in `target` because the link `path` leads
/// there.
fn names_below(path: &Path, target: &Path) -> Vec<(PathBuf, Class)> {
    let name = protected::fold(path.file_name().unwrap_or_default().as_encoded_bytes());
    protected::names_in(&name).map(|(name, class)| (target.join(name), class)).collect()
}

/// Collects the paths of the links at or below `path`, whose state is `state`.
fn find_links(state: &State, path: &Path, links: &mut Vec<PathBuf>) {
    match state {
        State::Link { .. } if links.len() < LINKS_MAX => links.push(path.to_owned()),
        State::Folder { entries, .. } => {
            for (name, state) in entries {
                if matches!(state, State::Link { .. } | State::Folder { .. }) {
                    find_links(state, &path.join(name), links);
                }
            }
        }
        _ => {}
    }
}
