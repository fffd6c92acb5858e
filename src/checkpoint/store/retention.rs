//! Removes checkpoints by age and by the size of the store.

use std::fs;
use std::time::{Duration, SystemTime};

use posse_base::remove_tree::remove_tree;

use crate::cache::Snapshot;
use crate::plan::{Retention, expired, oldest_quarter};
use crate::store::{COPIES, Store, StoreError, now_ms};

/// Time between two removals that happen by themselves.
const PAUSE: Duration = Duration::from_hours(24);

/// Maximum number of checkpoints that hold deleted files. With more, deletions are asked about.
const HOLDING_MAX: usize = 200;

/// Maximum depth of folders whose size is measured.
const DEPTH_MAX: usize = 8;

impl Store {
    /// Removes the checkpoints that `retention` does not keep, and what only they contain. The
    /// newest one stays, and the size removes none that holds deleted files. Returns the ids of the
    /// removed ones.
    pub fn prune(&self, retention: Retention) -> Result<Vec<u64>, StoreError> {
        let _lock = self.lock()?;
        let mut removed = expired(&self.list()?, retention, now_ms());
        self.remove_records(&removed)?;
        self.remove_unused()?;
        while self.state_bytes() > retention.bytes_max {
            let more = oldest_quarter(&self.list()?);
            if more.is_empty() {
                break;
            }
            self.remove_records(&more)?;
            self.remove_unused()?;
            removed.extend(more);
        }
        self.remove_unused_copies()?;
        fs::write(self.dir.join("pruned"), "")?;
        Ok(removed)
    }

    /// Calls [`Store::prune`] if that has not happened for a day. A new store waits for a day.
    pub fn prune_daily(&self, retention: Retention) -> Result<Vec<u64>, StoreError> {
        let mark = self.dir.join("pruned");
        let Ok(last) = fs::metadata(&mark).and_then(|last| last.modified()) else {
            fs::write(mark, "")?;
            return Ok(Vec::new());
        };
        let passed = SystemTime::now().duration_since(last).unwrap_or_default();
        if passed >= PAUSE { self.prune(retention) } else { Ok(Vec::new()) }
    }

    /// Size of the store in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes_without(None)
    }

    fn bytes_without(&self, name: Option<&str>) -> u64 {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let counted = entries.filter(|entry| name.is_none_or(|name| entry.file_name() != name));
        counted.map(|entry| entry_size(&entry, 0)).sum()
    }

    /// Size in bytes of what the removal of checkpoints can free: without the copies of the objects
    /// of repositories, which are shared by all.
    fn state_bytes(&self) -> u64 {
        self.bytes_without(Some(COPIES))
    }

    /// True if a checkpoint can be trusted to outlast the files that it alone holds: there is space
    /// for more of that kind within `retention`.
    pub fn can_hold(&self, retention: Retention) -> Result<bool, StoreError> {
        let held = self.list()?.iter().filter(|record| record.holds_deletions).count();
        Ok(held < HOLDING_MAX && self.state_bytes() <= retention.bytes_max)
    }

    /// Removes the copies of the objects of repositories that existed at no checkpoint which is left.
    fn remove_unused_copies(&self) -> Result<(), StoreError> {
        let Some(oldest) = self.list()?.first().map(|record| record.taken_ms) else {
            return Ok(());
        };
        let oldest = SystemTime::UNIX_EPOCH + Duration::from_millis(oldest);
        for folder in fs::read_dir(self.dir.join(COPIES)).into_iter().flatten().flatten() {
            let last_used = folder.metadata().and_then(|found| found.modified());
            if last_used.is_ok_and(|last_used| last_used < oldest) {
                remove_tree(&folder.path())?;
            }
        }
        Ok(())
    }

    fn remove_records(&self, ids: &[u64]) -> Result<(), StoreError> {
        for record in self.list()?.iter().filter(|record| ids.contains(&record.id)) {
            record.remove(&self.records())?;
        }
        Ok(())
    }

    /// Removes the states to which no record and no cache refers.
    fn remove_unused(&self) -> Result<(), StoreError> {
        let mut used: Vec<String> = Vec::new();
        for record in self.list()? {
            used.push(record.state.commit);
            used.extend(record.after.map(|after| after.commit));
        }
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let is_cache = entry.path().extension().is_some_and(|extension| extension == "bin");
            if is_cache {
                used.extend(Snapshot::read(&entry.path()).map(|snapshot| snapshot.commit));
            }
        }
        Ok(self.git.remove_unused(|commit| used.iter().any(|used| used == commit))?)
    }
}

/// Size in bytes of a file, or of the files in a folder.
fn entry_size(entry: &fs::DirEntry, depth: usize) -> u64 {
    match entry.metadata() {
        Ok(found) if found.is_dir() && depth < DEPTH_MAX => {
            let below = fs::read_dir(entry.path()).into_iter().flatten().flatten();
            below.map(|entry| entry_size(&entry, depth + 1)).sum()
        }
        Ok(found) => found.len(),
        Err(_) => 0,
    }
}
