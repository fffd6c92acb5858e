//! Folders of the user that a command has made look like a repository.
//!
//! Git takes any folder with `HEAD`, `objects` and `refs` for a repository. If a command creates these
//! names around files of the user, such as a folder `hooks`, the new names are moved aside, not the
//! files of the user. That is done in the first scan of a check alone: a folder that
//! still looks like a repository after it is judged as one.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use posse_base::protected;

use crate::protect::baseline::{Baseline, BaselineItem};
use crate::protect::check::CLOCK_TICK;
use crate::protect::finding::ProtectedChange;
use crate::protect::place::{self, Stat};
use crate::protect::scan::REPOSITORY_PARTS;
use crate::protect::sort::Sort;
use crate::protect::{GuardState, ProtectedPath};

/// Maximum number of entries of a folder that are examined.
const ENTRIES_MAX: usize = 100_000;

impl GuardState {
    /// If the folder at `key`, which looks like a repository since `baseline`, has files that were there
    /// before and would steer git in it: moves the new names aside by which git recognises it. Returns
    /// true if it is no repository any more.
    pub(super) fn dismantle(
        &mut self,
        baseline: &Baseline,
        now: &BTreeMap<ProtectedPath, BaselineItem>,
        key: &ProtectedPath,
    ) -> bool {
        let name = key.1.file_name().unwrap_or_default();
        let watched = &self.roots[key.0];
        let was_there = watched.scan.was_there(&key.1, baseline.scans[key.0]);
        if protected::is_dot_git(name.as_bytes()) || !was_there {
            return false;
        }
        let Ok(folder) = watched.root.open_folder(&key.1) else { return false };
        let begin = baseline.time.checked_sub(CLOCK_TICK).unwrap_or(baseline.time);
        let mut inside = now.iter().filter(|((at, path), current)| {
            *at == key.0 && path.parent() == Some(&*key.1) && steers(current.sort)
        });
        let has_older = inside.any(|(entry, _)| {
            let name = Path::new(entry.1.file_name().unwrap_or_default());
            !baseline.items.contains_key(entry) && is_older(&folder, name, begin)
        });
        let new = if has_older { new_parts(&folder, begin) } else { Vec::new() };
        let place = watched.root.path.join(&key.1);
        for name in &new {
            self.move_aside(&folder, name, &place.join(name), ProtectedChange::Created);
        }
        !new.is_empty() && new.iter().all(|name| Stat::at(&folder, name).is_err())
    }
}

/// True for an item that means something to git in the folder of a repository alone.
pub(super) fn steers(sort: Sort) -> bool {
    !matches!(sort, Sort::Repository | Sort::Pointer | Sort::Name(_) | Sort::Environment)
}

/// True if the entry `name` of `folder` was there before `begin`. The content of a folder may have changed
/// since.
fn is_older(folder: &OwnedFd, name: &Path, begin: SystemTime) -> bool {
    let Some(found) = place::metadata(folder, name) else { return false };
    if found.is_dir() { !is_born_since(&found, begin) } else { changed(&found) < begin }
}

/// Names in `folder`, all new since `begin`, without which it is no repository. Empty if there are none.
fn new_parts(folder: &OwnedFd, begin: SystemTime) -> Vec<PathBuf> {
    let Ok((listed, true)) = place::list(folder, ENTRIES_MAX) else { return Vec::new() };
    let names: Vec<PathBuf> = listed.into_iter().map(|entry| entry.name.into()).collect();
    // All notations of a part. `None` if one of them is not new.
    let new = |part: &[u8], is_new: fn(&Metadata, SystemTime) -> bool| {
        let notations =
            names.iter().filter(|name| *part == *protected::fold(name.as_os_str().as_bytes()));
        let mut found: Vec<PathBuf> = Vec::new();
        for name in notations {
            let metadata = place::metadata(folder, name)?;
            if !is_new(&metadata, begin) {
                return None;
            }
            found.push(name.clone());
        }
        Some(found)
    };
    let without = |parts: [&[u8]; 2], is_new| {
        let found = [new(parts[0], is_new)?, new(parts[1], is_new)?];
        Some(found.concat())
    };
    // Git needs `HEAD`, and beside it `commondir`, or `objects` and `refs`.
    let [head, common, refs, objects] = REPOSITORY_PARTS.map(|(part, _)| part);
    let found = new(head, is_born_since)
        .or_else(|| without([common, refs], is_born_since))
        .or_else(|| without([common, objects], is_born_since))
        // An older file that was moved here has a new time of its last change.
        .or_else(|| new(head, |found, begin| changed(found) >= begin));
    found.unwrap_or_default()
}

/// True if the file was created at `begin` or later. Without a creation time, true if it was changed
/// since.
fn is_born_since(found: &Metadata, begin: SystemTime) -> bool {
    found.created().unwrap_or_else(|_| changed(found)) >= begin
}

/// Time of the last change of the file or of its name.
fn changed(found: &Metadata) -> SystemTime {
    let seconds = Duration::from_secs(u64::try_from(found.ctime()).unwrap_or(0));
    let nanoseconds = Duration::from_nanos(u64::try_from(found.ctime_nsec()).unwrap_or(0));
    SystemTime::UNIX_EPOCH + seconds + nanoseconds
}
