//! Folders of the user that a command has made look like a repository.
//!
//! Git takes any folder with `HEAD`, `objects` and `refs` for a repository. If a command creates these
//! names around files of the user, such as a folder `hooks`, the new names are moved aside, not the
//! files of the user.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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
    /// before and would steer git in it: moves a new name aside by which git recognises it. Returns
    /// true if one was moved.
    pub(super) fn dismantle(
        &mut self,
        baseline: &Baseline,
        now: &BTreeMap<ProtectedPath, BaselineItem>,
        key: &ProtectedPath,
    ) -> bool {
        let name = key.1.file_name().unwrap_or_default();
        if protected::is_dot_git(name.as_bytes()) {
            return false;
        }
        let Ok(folder) = self.roots[key.0].root.open_folder(&key.1) else { return false };
        let begin = baseline.time.checked_sub(CLOCK_TICK).unwrap_or(baseline.time);
        let is_older = |name: &Path| {
            let found = place::metadata(&folder, name);
            found.is_some_and(|found| !is_born_since(&found, begin))
        };
        let steers = |sort| !matches!(sort, Sort::Repository | Sort::Name(_) | Sort::Environment);
        let mut inside = now.iter().filter(|((at, path), current)| {
            *at == key.0 && path.parent() == Some(&*key.1) && steers(current.sort)
        });
        let has_older = inside.any(|(entry, _)| {
            !baseline.items.contains_key(entry)
                && is_older(Path::new(entry.1.file_name().unwrap_or_default()))
        });
        if !has_older {
            return false;
        }
        let Ok((listed, _)) = place::list(&folder, ENTRIES_MAX) else { return false };
        let names: Vec<_> = listed.into_iter().map(|entry| entry.name).collect();
        let parts = REPOSITORY_PARTS.iter().flat_map(|(part, _)| {
            names.iter().filter(move |name| *part == &*protected::fold(name.as_bytes()))
        });
        let found = parts
            .filter_map(|name| Some((Path::new(name), place::metadata(&folder, Path::new(name))?)));
        let found: Vec<_> = found.collect();
        // An older name that was moved here has a new change time.
        let new = found.iter().find(|(_, found)| is_born_since(found, begin));
        let new = new.or_else(|| found.iter().find(|(_, found)| changed(found) >= begin));
        let Some((name, _)) = new else { return false };
        let path = self.roots[key.0].root.path.join(&key.1).join(name);
        self.move_aside(&folder, name, &path, ProtectedChange::Created);
        Stat::at(&folder, name).is_err()
    }
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
