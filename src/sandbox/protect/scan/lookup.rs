//! Lookups in the result of the last scan.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::protect::place::Identity;
use crate::protect::scan::Scan;
use crate::protect::sort::Sort;

impl Scan {
    /// Folders outside of the root to which links in ordinary folders lead, as of the last scan.
    pub(in crate::protect) fn targets_elsewhere(&self) -> &BTreeSet<PathBuf> {
        &self.targets_elsewhere
    }

    /// Links in ordinary folders of which the last scan could not tell where they will lead, with their
    /// texts.
    pub(in crate::protect) fn uncertain_links(&self) -> &BTreeMap<Arc<Path>, PathBuf> {
        &self.uncertain_links
    }

    /// Paths, below the root, of links in ordinary folders, as of the last scan.
    pub(in crate::protect) fn links(&self) -> impl Iterator<Item = &Path> {
        self.folders.values().flat_map(|folder| &folder.links).map(|(link, _)| &**link)
    }

    /// Folders that the last scan could not read because of their permissions.
    pub(in crate::protect) fn unreadable(&self) -> &[Arc<Path>] {
        &self.unreadable
    }

    /// Paths, below the root, of the folders whose subfolders are not all scanned: repositories.
    pub(in crate::protect) fn partly_scanned(&self) -> impl Iterator<Item = &Path> {
        let partly = self.folders.iter().filter(|(_, folder)| folder.is_repository);
        partly.map(|(path, _)| Path::new(path))
    }

    /// Number of the last scan.
    pub(in crate::protect) fn number(&self) -> u64 {
        self.number
    }

    /// True if the folder at `path` was already there, with the same identity, in scan `number`.
    pub(in crate::protect) fn was_there(&self, path: &Path, number: u64) -> bool {
        self.folders.get(path.as_os_str()).is_some_and(|folder| folder.first_met <= number)
    }

    /// True if any folder was at `path` in scan `number`.
    pub(in crate::protect) fn path_existed(&self, path: &Path, number: u64) -> bool {
        self.folders.get(path.as_os_str()).is_some_and(|folder| folder.path_met <= number)
    }

    /// True if the folder existed in scan `number`, at any path. False if the last scan did not
    /// find it.
    pub(in crate::protect) fn existed(&self, folder: Identity, number: u64) -> bool {
        self.identities.get(&folder).is_some_and(|first| *first <= number)
    }

    /// Returns the identity of the folder at `path`. `None` if the last scan found no folder there.
    pub(in crate::protect) fn identity(&self, path: &Path) -> Option<Identity> {
        self.folders.get(path.as_os_str()).map(|folder| folder.identity)
    }

    /// True if the last scan found a folder at `path` that git accepts as a repository, or that is
    /// a `.git`, even an incomplete one.
    pub(in crate::protect) fn is_repository(&self, path: &Path) -> bool {
        self.folders.get(path.as_os_str()).is_some_and(|folder| folder.is_repository)
    }

    /// Returns the creation time of the repository at `path`. `None` if there is none, or the file
    /// system does not store it.
    pub(in crate::protect) fn creation_time_of(&self, path: &Path) -> Option<SystemTime> {
        self.folders.get(path.as_os_str()).and_then(|folder| folder.birth)
    }

    /// Returns the path of the folder with this identity, below the root. `None` if the last scan
    /// did not find it.
    pub(in crate::protect) fn path_of(&self, identity: Identity) -> Option<&Path> {
        let mut folders = self.folders.iter();
        folders.find(|(_, folder)| folder.identity == identity).map(|(name, _)| Path::new(name))
    }

    /// Paths, below the root, of the folders that may contain one of the files `inodes`, as of the last
    /// scan: those that list one of these inode numbers.
    pub(in crate::protect) fn folders_with(
        &self,
        inodes: &HashSet<u64>,
    ) -> impl Iterator<Item = &Path> {
        let folders = self.folders.iter();
        let with =
            folders.filter(|(_, folder)| folder.inodes.iter().any(|inode| inodes.contains(inode)));
        with.map(|(path, _)| Path::new(path))
    }

    /// Paths, below the root, of protected names that the scan does not enter if they are folders,
    /// such as `hooks`.
    pub(in crate::protect) fn not_entered(&self) -> impl Iterator<Item = &Path> {
        let items = self.folders.values().flat_map(|folder| &folder.items);
        let is_entered =
            |sort| matches!(sort, Sort::Name(_) | Sort::Repository | Sort::Pointer | Sort::Index);
        items.filter(move |item| !is_entered(item.sort)).map(|item| &*item.path)
    }
}
