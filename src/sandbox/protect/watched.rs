//! Root folders of commands, each with its scanner, and scans of all of them. A folder that a command
//! made unreadable is made readable again, so that no protected name is hidden in it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, geteuid};

use crate::protect::known_secrets::nearest_accessible;
use crate::protect::place::Root;
use crate::protect::scan::{Scan, ScanBounds, ScanResult};
use crate::protect::sort::ProtectedItem;
use crate::protect::{GuardState, ProtectedPath};

/// Maximum depth of unreadable folders in each other. Below it the scan is incomplete.
const UNREADABLE_DEPTH_MAX: usize = 32;

/// Longest time in which roots are scanned again because links in another root lead there. A scan that
/// begins later is the last one, and counts as incomplete.
const CROSS_TIME: Duration = Duration::from_secs(10);

/// Time of the last change of a folder, in seconds and nanoseconds. `None` if it is unknown, because
/// a folder above cannot be entered.
pub(super) type FolderChange = Option<(i64, i64)>;

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) root: Root,
    pub(super) scan: Scan,
    /// True if commands cannot write below this root: changes are made by the user or another
    /// agent. The root is scanned for secrets only.
    pub(super) is_out_of_reach: bool,
    /// True if the last scan was complete.
    pub(super) is_complete: bool,
}

impl Watched {
    pub(super) fn open(path: &Path) -> Result<Watched, Errno> {
        let (root, scan) = (Root::open(path)?, Scan::default());
        Ok(Watched { root, scan, is_out_of_reach: false, is_complete: true })
    }

    pub(super) fn run_scan(&mut self, bounds: ScanBounds) -> ScanResult {
        let found = self.scan.run(&self.root, bounds);
        self.is_complete = found.is_complete;
        found
    }

    /// Scans after a command. Folders that cannot be read are made readable, unless `was_so` says of
    /// the path and the last change that the folder was the same before the command. The result is
    /// incomplete if that fails. A folder that can be entered and not listed hides nothing from a
    /// program that knows a name in it.
    pub(super) fn run_scan_after(
        &mut self,
        bounds: ScanBounds,
        was_so: impl Fn(&Arc<Path>, FolderChange) -> bool,
    ) -> ScanResult {
        let mut found = self.run_scan(bounds);
        for _ in 0..UNREADABLE_DEPTH_MAX {
            let new = self.unreadable().filter(|(path, changed)| !was_so(path, *changed));
            let new: Vec<Arc<Path>> = new.map(|(path, _)| path).collect();
            if new.is_empty() {
                return found;
            }
            if !new.iter().all(|path| self.root.make_readable(path).is_ok()) {
                break;
            }
            found = self.run_scan(bounds);
        }
        found.is_complete = false;
        self.is_complete = false;
        found
    }

    /// Absolute paths of the folders that the last scan could not read, and that a command may enter
    /// or make accessible.
    pub(super) fn unlisted_folders(&self) -> impl Iterator<Item = PathBuf> {
        let may_be_entered = |path: &PathBuf| {
            let is_own =
                path.symlink_metadata().is_ok_and(|about| about.uid() == geteuid().as_raw());
            is_own || access(path, AccessFlags::X_OK).is_ok()
        };
        let unreadable = self.scan.unreadable().iter();
        let folders = unreadable.filter_map(|path| nearest_accessible(&self.root, path));
        folders.filter(may_be_entered)
    }

    /// Folders that the last scan could not read, each with its last change.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = (Arc<Path>, FolderChange)> {
        self.scan
            .unreadable()
            .iter()
            .map(|path| (Arc::clone(path), self.root.stat(path).ok().map(|stat| stat.changed)))
    }
}

impl GuardState {
    /// Index of the outer root, and path below it, of each nested root.
    pub(super) fn nested_paths(&self) -> impl Iterator<Item = (usize, PathBuf)> {
        let roots = self.roots.iter().enumerate();
        roots.flat_map(|(at, watched)| {
            let below =
                self.nested.iter().filter_map(|path| path.strip_prefix(&watched.root.path).ok());
            below.map(move |path| (at, path.to_owned()))
        })
    }

    /// Error of a folder that one of the last scans could not read for want of descriptors or memory.
    pub(super) fn exhausted(&self) -> Option<Errno> {
        self.roots.iter().find_map(|watched| watched.scan.exhausted())
    }

    /// Scans every root. Returns the protected names within reach of commands, the secrets in all
    /// roots, and true if all scans were complete.
    pub(super) fn scan(
        &mut self,
        bounds: ScanBounds,
    ) -> (Vec<(usize, ProtectedItem)>, Vec<ProtectedPath>, bool) {
        let (mut items, mut secrets, mut complete) = (Vec::new(), Vec::new(), true);
        for (at, found) in self.scan_roots(|_, watched| Some(watched.run_scan(bounds))) {
            complete &= found.is_complete;
            if !self.roots[at].is_out_of_reach {
                items.extend(found.items.into_iter().map(|item| (at, item)));
            }
            secrets.extend(found.secrets.into_iter().map(|path| (at, path)));
        }
        (items, secrets, complete)
    }

    /// Scans the roots by `run`, which gets their indexes and returns `None` for those that are left
    /// out, and scans those again to whose folders links in another root lead which were not known
    /// before, or which contain a nested root: its names count also in a folder of packages. Returns the results with the indexes of the roots.
    pub(super) fn scan_roots(
        &mut self,
        mut run: impl FnMut(usize, &mut Watched) -> Option<ScanResult>,
    ) -> Vec<(usize, ScanResult)> {
        let mut results: BTreeMap<usize, ScanResult> = BTreeMap::new();
        let mut due = vec![true; self.roots.len()];
        let begin = Instant::now();
        loop {
            let is_last = begin.elapsed() > CROSS_TIME;
            for (at, watched) in self.roots.iter_mut().enumerate().filter(|(at, _)| due[*at]) {
                let Some(mut found) = run(at, watched) else { continue };
                if is_last {
                    found.is_complete = false;
                    watched.is_complete = false;
                }
                results.insert(at, found);
            }
            let targets = self.roots.iter().flat_map(|watched| watched.scan.targets_elsewhere());
            let targets: BTreeSet<PathBuf> = targets.chain(&self.nested).cloned().collect();
            due.fill(false);
            for (at, watched) in self.roots.iter_mut().enumerate() {
                let below = targets.iter().filter_map(|path| {
                    path.strip_prefix(&watched.root.path).ok().map(Arc::<Path>::from)
                });
                due[at] = watched.scan.set_targets_from_elsewhere(below.collect());
            }
            if is_last || !due.contains(&true) {
                break;
            }
        }
        results.into_iter().collect()
    }
}
