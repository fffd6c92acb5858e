//! Removes checkpoints by age and by the size of the store.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::cache::Snapshot;
use crate::plan::{Retention, expired, oldest_quarter};
use crate::store::{Store, StoreError, now_ms};

/// Time between two removals that happen by themselves.
const PAUSE: Duration = Duration::from_hours(24);

/// Maximum depth of folders whose size is measured.
const DEPTH_MAX: usize = 8;

impl Store {
    /// Removes the checkpoints that `retention` does not keep, and what only they contain. The
    /// newest one stays. Returns the ids of the removed ones.
    pub fn prune(&self, retention: Retention) -> Result<Vec<u64>, StoreError> {
        let _lock = self.lock()?;
        let mut removed = expired(&self.list()?, retention, now_ms());
        self.remove_records(&removed)?;
        self.remove_unused()?;
        while self.bytes() > retention.bytes_max {
            let more = oldest_quarter(&self.list()?);
            if more.is_empty() {
                break;
            }
            self.remove_records(&more)?;
            self.remove_unused()?;
            removed.extend(more);
        }
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
        size(&self.dir, 0)
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

fn size(folder: &Path, depth: usize) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(found) if found.is_dir() && depth < DEPTH_MAX => {
                bytes += size(&entry.path(), depth + 1);
            }
            Ok(found) => bytes += found.len(),
            Err(_) => {}
        }
    }
    bytes
}
