//! Takes checkpoints: finds the files that changed since the last state, and stores them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use posse_sandbox::running_since;
use sha2::{Digest, Sha256};

use crate::cache::Snapshot;
use crate::entry::Entry;
use crate::git::{Import, TreeStep};
use crate::names::tree_path;
use crate::record::{Checkpoint, LeftOut, Trigger};
use crate::repositories::{copies_name, copy_objects};
use crate::store::{
    COPIES, Files, NewCheckpoint, Progress, Store, StoreError, identity, now_ms, state_of,
};
use crate::walk::{FoundFile, WorkspaceScan, stamp_of, walk};
use crate::writer;

/// Number of stored files after which progress is reported.
const PROGRESS_FILES: usize = 500;

/// Number of packs above which packs are combined.
const PACKS_MAX: usize = 40;

impl Store {
    /// Stores the present state without making a checkpoint, so that the next checkpoint has little
    /// to store.
    pub fn prepare(&self, progress: Progress<'_>) -> Result<(), StoreError> {
        let _lock = self.lock()?;
        self.update(&mut self.last(), &Files::new(), progress).map(drop)
    }

    /// Takes a checkpoint of the present state.
    pub fn take(
        &self,
        new: NewCheckpoint<'_>,
        progress: Progress<'_>,
    ) -> Result<Checkpoint, StoreError> {
        let _lock = self.lock()?;
        let mut last = self.last();
        let (snapshot, left_out) = self.update(&mut last, &Files::new(), progress)?;
        self.record(new, Trigger::Prompt, snapshot, left_out)
    }

    /// Stores the present state as that after the effects of the run of checkpoint `id`.
    pub fn finish(&self, id: u64) -> Result<Checkpoint, StoreError> {
        let _lock = self.lock()?;
        let mut last = self.last();
        let mut record = self.get(id)?;
        let (snapshot, _) = self.update(&mut last, &Files::new(), &|_, _| {})?;
        record.after = Some(state_of(snapshot));
        record.write(&self.records())?;
        if self.git.packs() > PACKS_MAX
            && let Err(error) = self.git.combine_packs()
        {
            // It only takes longer to read.
            tracing::debug!(%error, "packs of checkpoints are not combined");
        }
        Ok(record)
    }

    /// Stores the present state of all files, also of those in `extra` that an ignore file names,
    /// and keeps it in `last`. To be called with the lock.
    pub(super) fn update<'a>(
        &self,
        last: &'a mut super::LastState,
        extra: &Files,
        progress: Progress<'_>,
    ) -> Result<(&'a Snapshot, LeftOut), StoreError> {
        let cache = self.cache_file();
        let known = match last.take() {
            Some((known, snapshot)) if identity(&cache) == Some(known) => Some(snapshot),
            _ => Snapshot::read(&cache).filter(|read| self.is_usable(read)),
        };
        let old = known.unwrap_or_default();
        let since = self.unsettled_since();
        let mut scan = walk(&self.workspace, self.limits);
        self.add_extra(&mut scan, extra);
        let (snapshot, is_changed) = self.store_changes(&old, &mut scan, since, progress)?;
        if is_changed {
            snapshot.write(&cache)?;
        }
        let mut left_out = scan.left_out;
        for (root, path) in &scan.repositories {
            let Some(directory) = self.workspace.root_directory(*root) else { continue };
            let copies = self.copies(*root, path);
            if let Err(reason) = copy_objects(directory, path, &copies) {
                left_out.repositories.push(reason);
            }
        }
        let identity = identity(&cache).unwrap_or_default();
        let (_, snapshot) = last.insert((identity, snapshot));
        Ok((snapshot, left_out))
    }

    /// Time from which changes of files may be followed by others that alter no time: that at which
    /// the oldest command began that runs, and at most the present.
    fn unsettled_since(&self) -> i64 {
        // Commands that begin after the marks were read do so after this time.
        let now = now_ns();
        let roots: Vec<PathBuf> = self.workspace.roots().map(Path::to_owned).collect();
        let running = running_since(&self.marks, &roots).map(|(seconds, nanoseconds)| {
            seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
        });
        running.map_or(now, |running| running.min(now))
    }

    /// Folder with the copies of the objects of a repository.
    pub(super) fn copies(&self, root: usize, path: &Path) -> PathBuf {
        let key = self.keys.get(root).map_or("", |key| key);
        self.dir.join(COPIES).join(copies_name(key, path))
    }

    /// True if a state from the disk belongs to these roots and is in the store.
    fn is_usable(&self, read: &Snapshot) -> bool {
        read.roots.len() == self.keys.len()
            && (read.commit.is_empty() || self.git.has_tree(&read.tree))
    }

    fn add_extra(&self, scan: &mut WorkspaceScan, extra: &Files) {
        for (root, path) in extra {
            let (Some(files), Some(directory)) =
                (scan.roots.get_mut(*root), self.workspace.root_directory(*root))
            else {
                continue;
            };
            let place = files.binary_search_by(|file| (*file.path).cmp(path));
            let name: &Path = Path::new(std::ffi::OsStr::from_bytes(path));
            if let Err(at) = place
                && let Some(stamp) = stamp_of(directory, name)
                && stamp.size <= self.limits.file_bytes_max
            {
                let path = path.clone().into();
                files.insert(at, FoundFile { path, stamp, has_links: true });
            }
        }
    }

    /// Stores the files of `scan` that are not as in `old`. Returns the new state, and true if it
    /// or its stamps differ. `since`: see [`crate::entry::Stamp::is_too_recent`].
    fn store_changes(
        &self,
        old: &Snapshot,
        scan: &mut WorkspaceScan,
        since: i64,
        progress: Progress<'_>,
    ) -> Result<(Snapshot, bool), StoreError> {
        let (import, steps, is_changed, done) = (None, Vec::new(), false, 0);
        let mut storing = Storing { store: self, since, import, steps, is_changed, done };
        let mut roots = Vec::with_capacity(scan.roots.len());
        let plans: Vec<RootPlan> = std::mem::take(&mut scan.roots)
            .into_iter()
            .enumerate()
            .map(|(root, found)| RootPlan::new(found, old.roots.get(root).map_or(&[], |old| old)))
            .collect();
        let total: usize = plans.iter().map(RootPlan::unread).sum();
        for (root, plan) in plans.into_iter().enumerate() {
            let report = |done| {
                if total >= PROGRESS_FILES && done % PROGRESS_FILES == 0 {
                    progress(done, total);
                }
            };
            roots.push(storing.root(root, plan, &mut scan.left_out, &report)?);
        }
        let Storing { import, steps, is_changed, .. } = storing;
        if total >= PROGRESS_FILES {
            progress(total, total);
        }
        if steps.is_empty() && !old.commit.is_empty() {
            let snapshot = Snapshot { roots, commit: old.commit.clone(), tree: old.tree.clone() };
            return Ok((snapshot, is_changed));
        }
        let import = import.map_or_else(|| self.git.import(), Ok)?;
        let name = format!("{}-{}", now_ms(), std::process::id());
        let (commit, tree) = import.commit(&name, now_ms() / 1000, &old.tree, &steps)?;
        Ok((Snapshot { commit, tree, roots }, true))
    }
}

/// Files of a root: those of the last state that are gone, and those that are there.
struct RootPlan<'a> {
    gone: Vec<&'a Entry>,
    /// Each file, with its entry in the last state.
    files: Vec<(FoundFile, Option<&'a Entry>)>,
}

impl<'a> RootPlan<'a> {
    fn new(found: Vec<FoundFile>, old: &'a [Entry]) -> RootPlan<'a> {
        let (mut gone, mut files) = (Vec::new(), Vec::with_capacity(found.len()));
        let mut old = old.iter().peekable();
        for file in found {
            while let Some(entry) = old.next_if(|entry| entry.path < file.path) {
                gone.push(entry);
            }
            let entry = old.next_if(|entry| entry.path == file.path);
            files.push((file, entry));
        }
        gone.extend(old);
        RootPlan { gone, files }
    }

    fn unread(&self) -> usize {
        self.files.iter().filter(|(file, entry)| !is_known(file, *entry)).count()
    }
}

fn is_known(file: &FoundFile, entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| entry.is_settled && entry.stamp == file.stamp)
}

struct Storing<'a> {
    store: &'a Store,
    /// See [`crate::entry::Stamp::is_too_recent`].
    since: i64,
    import: Option<Import>,
    steps: Vec<TreeStep>,
    /// True if a stamp or a content differs from the last state.
    is_changed: bool,
    /// Number of files that were read.
    done: usize,
}

impl Storing<'_> {
    fn root(
        &mut self,
        root: usize,
        plan: RootPlan<'_>,
        left_out: &mut LeftOut,
        report: &dyn Fn(usize),
    ) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::with_capacity(plan.files.len());
        for entry in plan.gone {
            self.remove(root, &entry.path);
        }
        for (file, old) in plan.files {
            if let Some(known) = old.filter(|_| is_known(&file, old)) {
                let Entry { stamp, is_settled, hash, .. } = *known;
                entries.push(Entry { path: file.path, stamp, is_settled, hash });
                continue;
            }
            if self.store.is_stopped.load(Ordering::Relaxed) {
                // The process of git ends with this value.
                return Err(StoreError::Stopped);
            }
            self.is_changed = true;
            self.done += 1;
            report(self.done);
            match self.read(root, file, old, left_out)? {
                Some(entry) => entries.push(entry),
                None => old.iter().for_each(|old| self.remove(root, &old.path)),
            }
        }
        Ok(entries)
    }

    fn remove(&mut self, root: usize, path: &[u8]) {
        self.is_changed = true;
        self.steps.push(TreeStep::Remove(tree_path(&self.store.keys[root], path)));
    }

    /// Reads one file, and stores it unless it is as in `old`. `None` if it is left out.
    fn read(
        &mut self,
        root: usize,
        file: FoundFile,
        old: Option<&Entry>,
        left_out: &mut LeftOut,
    ) -> Result<Option<Entry>, StoreError> {
        let Some(directory) = self.store.workspace.root_directory(root) else { return Ok(None) };
        let name: &Path = Path::new(std::ffi::OsStr::from_bytes(&file.path));
        let read = match writer::read(directory, name, self.store.limits.file_bytes_max) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(None),
            Err(_) => {
                left_out.unreadable(&file.path);
                return Ok(None);
            }
        };
        let hash = Sha256::digest(&read.content).into();
        let is_same = old.is_some_and(|old| old.hash == hash && old.stamp.kind == read.stamp.kind);
        // A content that the store has stays: a new link that is called like a secret must not take a
        // file of the user out of checkpoints.
        if !is_same
            && file.has_links
            && let Some(opened) = &read.file
            && self.store.workspace.may_be_renamed_secret(opened)
        {
            left_out.secret(&file.path);
            return Ok(None);
        }
        if !is_same {
            let import = match &mut self.import {
                Some(import) => import,
                None => self.import.insert(self.store.git.import()?),
            };
            let mark = import.blob(&read.content)?;
            let path = tree_path(&self.store.keys[root], &file.path);
            self.steps.push(TreeStep::Set(path, read.stamp.kind, mark));
        }
        let is_settled = !read.stamp.is_too_recent(self.since);
        Ok(Some(Entry { path: file.path, stamp: read.stamp, is_settled, hash }))
    }
}

/// Nanoseconds since 1970.
pub(super) fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}
