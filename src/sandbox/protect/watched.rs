//! Root folder of commands, with its scanner. A folder that a command made unreadable is made
//! readable again, so that no protected name is hidden in it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, geteuid};

use crate::protect::known_secrets::nearest_accessible;
use crate::protect::place::Root;
use crate::protect::scan::{Scan, ScanBounds, ScanResult};

/// Maximum depth of unreadable folders in each other. Below it the scan is incomplete.
const UNREADABLE_DEPTH_MAX: usize = 32;

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
