//! Targets of links: folders that are scanned as ordinary ones although their path says otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use posse_base::paths::normalise;
use posse_base::protected;

use crate::protect::place::{self, PlaceKind, Root, Stat};
use crate::protect::scan::classify::{FolderRole, NameScope};
use crate::protect::scan::link_walk::way_of;
use crate::protect::scan::{Scan, ScannedFolder};

/// Folders to which links lead.
#[derive(Debug, Default)]
pub(super) struct LinkTargets {
    /// Folders below the root that are to be scanned as ordinary ones.
    pub(super) ordinary: BTreeSet<Arc<Path>>,
    /// Files and folders outside of the root.
    pub(super) elsewhere: BTreeSet<PathBuf>,
    /// Links that may lead elsewhere later, or for another process, with their texts. What they lead
    /// to then is not known.
    pub(super) uncertain: BTreeMap<Arc<Path>, PathBuf>,
}

impl LinkTargets {
    /// True if `scan` knows these targets already.
    pub(super) fn is(&self, scan: &Scan) -> bool {
        self.ordinary == scan.link_targets && self.elsewhere == scan.targets_elsewhere
    }
}

impl Scan {
    /// Returns the folders to which the links in `folders` lead, and those links in other roots, and
    /// which are not scanned as ordinary folders because of their path. Other links add nothing.
    pub(super) fn resolve<'a>(
        &self,
        root: &Root,
        folders: impl Iterator<Item = &'a ScannedFolder>,
    ) -> LinkTargets {
        let mut targets = LinkTargets::default();
        let mut ends = Vec::new();
        for (link, text) in folders.flat_map(|folder| &folder.links) {
            ends.extend(self.add_link_target(root, link, text, &mut targets));
        }
        // A link such as `/proc/self/cwd/x` may lead to each folder with that end.
        ends.retain(|end| !end.as_os_str().is_empty());
        if !ends.is_empty() {
            let paths = self.folders.keys().map(Path::new);
            let may_be_target = |path: &&Path| ends.iter().any(|end| path.ends_with(end));
            let found = paths.filter(may_be_target).filter(|path| self.is_target(root, path));
            targets.ordinary.extend(found.map(Arc::from));
        }
        let from_elsewhere = self.from_elsewhere.iter().filter(|path| self.is_target(root, path));
        targets.ordinary.extend(from_elsewhere.cloned());
        targets
    }

    /// True if the folder at `path` is scanned as an ordinary folder, or not at all, without a link.
    fn is_ordinary(&self, path: &Path) -> bool {
        let known = self.folders.get(path.as_os_str());
        known.is_some_and(|folder| {
            folder.names == NameScope::Below || folder.role == FolderRole::Held
        }) && !self.link_targets.contains(path)
    }

    /// True if there is a folder at `path` that is scanned as an ordinary folder only because a link
    /// leads there.
    fn is_target(&self, root: &Root, path: &Path) -> bool {
        !self.is_ordinary(path) && root.stat(path).is_ok_and(|stat| stat.kind == PlaceKind::Folder)
    }

    /// Role in which the target of a link is scanned. A link must not take the meaning for git from a
    /// folder that has one without it.
    pub(super) fn role_of_target(&self, path: &Path) -> FolderRole {
        if path.file_name().is_some_and(|name| protected::is_dot_git(name.as_bytes())) {
            return FolderRole::Git;
        }
        let above = path.parent().unwrap_or(Path::new(""));
        let around = self.folders.get(above.as_os_str());
        let below = around.iter().flat_map(|folder| &folder.below);
        let role = below.filter(|(known, ..)| **known == *path).map(|(_, role, _)| *role).next();
        match role {
            Some(role @ (FolderRole::Git | FolderRole::Inside(..) | FolderRole::Bare(..))) => role,
            _ => FolderRole::Plain,
        }
    }

    /// Adds the target of `link`, whose path is too long to be resolved, if it is a folder.
    fn add_by_identity(&self, root: &Root, link: &Path, targets: &mut LinkTargets) {
        let Ok((folder, name)) = root.open_parent(link) else { return };
        let Ok(found) = Stat::of_target(&folder, name) else { return };
        match self.path_of(found.identity) {
            Some(path) if self.is_target(root, path) => drop(targets.ordinary.insert(path.into())),
            Some(_) => {}
            // It may be in another root.
            None => targets.elsewhere.extend(place::path_of_target(&folder, name)),
        }
    }

    /// Adds the target of `link` with this text. Returns the end of the way if it may lead elsewhere,
    /// as in [`LinkWay::uncertain`](super::link_walk::LinkWay::uncertain).
    fn add_link_target(
        &self,
        root: &Root,
        link: &Arc<Path>,
        text: &Path,
        targets: &mut LinkTargets,
    ) -> Option<PathBuf> {
        // The usual case, without system calls: links are relative and lead to ordinary folders.
        let mut parts = text.components().skip_while(|part| *part == Component::ParentDir);
        if text.is_relative() && parts.all(|part| matches!(part, Component::Normal(_))) {
            let above = link.parent().unwrap_or(Path::new(""));
            let depth = |path: &Path| path.components().count();
            let ups = text.components().filter(|part| *part == Component::ParentDir).count();
            if ups <= depth(above) && self.is_ordinary(&normalise(&above.join(text))) {
                return None;
            }
        }
        let way = way_of(&root.path, &root.path.join(link), text);
        if way.is_too_long {
            self.add_by_identity(root, link, targets);
        }
        if way.exists
            && let Some(target) = &way.target
        {
            match target.strip_prefix(&root.path) {
                Ok(target) if self.is_target(root, target) => {
                    targets.ordinary.insert(target.into());
                }
                Ok(_) => {}
                Err(_) => drop(targets.elsewhere.insert(target.clone())),
            }
        }
        // These links may lead to another folder after a later step of the user, or in another
        // process.
        if way.passes_packages || way.is_too_long || way.uncertain.is_some() {
            targets.uncertain.insert(Arc::clone(link), text.to_owned());
        }
        way.uncertain
    }
}
