//! Restores checkpoints: computes what differs from the present state, and writes it.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use posse_actors::ports::Operation;
use posse_base::hex::sha256;
use posse_base::ignore_files::IgnoreTexts;
use posse_base::protected::{fold, is_protected_in, names_in};
use posse_tools::workspace::{FOLDER, RepositoryParts, open_beneath};

use crate::cache::Snapshot;
use crate::entry::Kind;
use crate::plan::{
    ChangedFile, RestoreChoice, RestorePlan, changed_files, choose, without_ignored,
    without_left_out,
};
use crate::record::{Checkpoint, LeftOut, StoredState, Trigger};
use crate::repositories::restore_objects;
use crate::store::{Files, LastState, NewCheckpoint, Store, StoreError, ids, state_of};
use crate::walk::{is_git_state, stamp_of};
use crate::writer;

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Checkpoint of the state before the restore. Restoring it takes the restore back.
    pub undo: Checkpoint,
    /// Files that were restored.
    pub files: Vec<ChangedFile>,
    /// Files that stay as they were, with the reason.
    pub kept: Vec<(String, String)>,
    /// Absolute paths of the restored files that have a content now, with its SHA-256 in hex.
    pub contents: Vec<(PathBuf, String)>,
}

/// Reason for which the state of a repository stays as it is: the check after a command has not
/// seen what a checkpoint contains, and an index or a reference can plant files.
const GIT_STATE_STAYS: &str = "the state of git (HEAD, refs, index) is stored and not restored; \
    `git reflog` shows earlier commits";

/// True for the path of a link through which programs would read a protected name in the folder that
/// it leads to, such as `.hg` or `.github`.
fn leads_to_protected(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    names_in(&fold(name.as_bytes())).next().is_some()
}

impl Store {
    /// Computes what restoring the checkpoint would change now. Changes no file.
    pub fn plan(&self, id: u64, choice: RestoreChoice) -> Result<RestorePlan, StoreError> {
        let _lock = self.lock()?;
        self.plan_locked(id, choice, &mut self.last()).map(|(plan, _)| plan)
    }

    /// Files that differ between the checkpoint and the present state, for a list.
    pub fn changes_since(&self, record: &Checkpoint) -> Result<Vec<ChangedFile>, StoreError> {
        let _lock = self.lock()?;
        let mut last = self.last();
        let (snapshot, _) = self.update(&mut last, &Files::new(), &|_, _| {})?;
        self.compare(&record.state, &state_of(snapshot))
    }

    /// Number of files that differ between each of the checkpoints and the present state, which is
    /// examined once.
    pub fn counts_since(&self, records: &[Checkpoint]) -> Result<Vec<usize>, StoreError> {
        let _lock = self.lock()?;
        let mut last = self.last();
        let (snapshot, _) = self.update(&mut last, &Files::new(), &|_, _| {})?;
        let now = state_of(snapshot);
        let count = |record: &Checkpoint| Ok(self.compare(&record.state, &now)?.len());
        records.iter().map(count).collect()
    }

    /// Restores the checkpoint `id`. The present state becomes a checkpoint, described by `new`.
    /// A file that changes meanwhile stays as it is.
    pub fn restore(
        &self,
        id: u64,
        choice: RestoreChoice,
        new: NewCheckpoint<'_>,
    ) -> Result<Restored, StoreError> {
        let restored = self.restore_if(id, choice, new, |_| true)?;
        restored.ok_or(StoreError::NotFound(id))
    }

    /// Restores the checkpoint like [`Store::restore`] if `accept` accepts the plan. Otherwise
    /// changes nothing and returns `None`.
    pub fn restore_if(
        &self,
        id: u64,
        choice: RestoreChoice,
        new: NewCheckpoint<'_>,
        accept: impl FnOnce(&RestorePlan) -> bool,
    ) -> Result<Option<Restored>, StoreError> {
        let _lock = self.lock()?;
        let mut last = self.last();
        let (plan, left_out) = self.plan_locked(id, choice, &mut last)?;
        if !accept(&plan) {
            return Ok(None);
        }
        let RestorePlan { checkpoint, files, mut kept } = plan;
        let present = last.as_ref().map(|(_, snapshot)| snapshot.clone()).unwrap_or_default();
        let trigger = Trigger::Restore { checkpoint: checkpoint.id };
        let before = self.record(new, trigger, &present, left_out)?;
        let mut restored = self.remove_files(&files, &present, &mut kept);
        let contents = self.write_files(&files, &present, &mut restored, &mut kept)?;
        self.bring_back_objects(&checkpoint, &mut kept);
        let (snapshot, _) = self.update(&mut last, &Files::new(), &|_, _| {})?;
        let undo = Checkpoint { after: Some(state_of(snapshot)), ..before };
        undo.write(&self.records())?;
        restored.sort_by(|one, other| (one.root, &one.path).cmp(&(other.root, &other.path)));
        Ok(Some(Restored { undo, files: restored, kept, contents }))
    }

    /// The plan, and what the present state, with which it compares the checkpoint, leaves out.
    fn plan_locked(
        &self,
        id: u64,
        choice: RestoreChoice,
        last: &mut LastState,
    ) -> Result<(RestorePlan, LeftOut), StoreError> {
        let checkpoint = self.get(id)?;
        let is_here = |key: &String| self.keys.contains(key);
        if !checkpoint.roots.iter().all(|root| is_here(&root.key)) {
            let paths: Vec<&str> = checkpoint.roots.iter().map(|root| &*root.path).collect();
            return Err(StoreError::OtherRoots(id, paths.join(", ")));
        }
        let nothing = |_, _| {};
        let (snapshot, mut left_out_now) = self.update(last, &Files::new(), &nothing)?;
        let mut files = self.compare(&state_of(snapshot), &checkpoint.state)?;
        // Files that an ignore file names by now are there, and their content must not be lost.
        let hidden = files.iter().filter(|file| file.before.is_none() && self.is_there(file));
        let hidden: Files = ids(&hidden.cloned().collect::<Vec<_>>());
        let mut snapshot = snapshot;
        if !hidden.is_empty() {
            (snapshot, left_out_now) = self.update(last, &hidden, &nothing)?;
            files = self.compare(&state_of(snapshot), &checkpoint.state)?;
        }
        let is_unsaved = |(root, path): &&(usize, Vec<u8>)| snapshot.entry(*root, path).is_none();
        let unsaved: Files = hidden.iter().filter(is_unsaved).cloned().collect();
        // Files of roots that the checkpoint does not know stay as they are.
        files.retain(|file| {
            let key = &self.keys[file.root];
            checkpoint.roots.iter().any(|root| root.key == *key)
        });
        let now = state_of(snapshot);
        let users = self.changed_by_user(&checkpoint, &now)?;
        let rules = self.ignored_then(&files, &checkpoint)?;
        let (files, ignored) = without_ignored(files, &rules);
        let (files, left_out) = without_left_out(files, &checkpoint.left_out);
        let (state, files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| is_git_state(&file.path));
        let written = |root: usize| {
            let written = files.iter().filter(|file| file.root == root && file.after.is_some());
            RepositoryParts::of(written.map(ChangedFile::relative))
        };
        let written: Vec<RepositoryParts> = (0..self.keys.len()).map(written).collect();
        let is_protected = |file: &ChangedFile| self.is_protected(file, &written[file.root]);
        let (files, mut kept) = choose(files, &users, &unsaved, choice, is_protected);
        let repositories: BTreeSet<String> = state.iter().map(repository_of).collect();
        kept.extend(repositories.into_iter().map(|name| (name, GIT_STATE_STAYS.to_owned())));
        kept.extend(left_out);
        kept.extend(ignored);
        Ok((RestorePlan { checkpoint, files, kept }, left_out_now))
    }

    /// Rules of the ignore files of the checkpoint, for each root. None unless an ignore file is in
    /// `files`, the differences from the present state: otherwise both states leave the same files out.
    fn ignored_then(
        &self,
        files: &[ChangedFile],
        checkpoint: &Checkpoint,
    ) -> Result<Vec<IgnoreTexts>, StoreError> {
        let is_ignore_file = |file: &ChangedFile| file.relative().ends_with(".gitignore");
        if !files.iter().any(is_ignore_file) {
            return Ok(Vec::new());
        }
        let mut stored = changed_files(self.git.diff("", &checkpoint.state.tree)?, &self.keys);
        stored.retain(is_ignore_file);
        let objects: Vec<&str> =
            stored.iter().filter_map(|file| file.after.as_ref().map(|(_, id)| &**id)).collect();
        let mut texts: Vec<Vec<(PathBuf, Vec<u8>)>> = vec![Vec::new(); self.keys.len()];
        self.git.contents::<StoreError>(&objects, |at, content| {
            let folder = stored[at].relative().parent().unwrap_or(Path::new(""));
            texts[stored[at].root].push((folder.to_owned(), content));
            Ok(())
        })?;
        Ok(texts.into_iter().map(IgnoreTexts::new).collect())
    }

    /// Files that were changed between two runs, or after the last one, since the checkpoint: probably
    /// by the user. A restore that has brought a file back to the checkpoint takes the mark away. Changes
    /// before and after a run that has not ended are not known.
    fn changed_by_user(
        &self,
        checkpoint: &Checkpoint,
        now: &StoredState,
    ) -> Result<Files, StoreError> {
        let records = self.list()?;
        let is_ours =
            |record: &&Checkpoint| record.roots.iter().any(|root| self.keys.contains(&root.key));
        let since = records.iter().filter(is_ours).filter(|record| record.id >= checkpoint.id);
        let mut users = Files::new();
        let mut before: Option<&Checkpoint> = None;
        for record in since {
            // A run can have several checkpoints.
            let between = before.filter(|before| !before.is_of_same_run(record));
            if let Some(after) = between.and_then(|before| before.after.as_ref()) {
                users.extend(self.differing(after, &record.state)?);
            }
            if let (Trigger::Restore { .. }, Some(after)) = (&record.trigger, &record.after) {
                let differing = self.differing(&checkpoint.state, after)?;
                users.retain(|file| differing.contains(file));
            }
            before = Some(record);
        }
        if let Some(after) = before.and_then(|before| before.after.as_ref()) {
            users.extend(self.differing(after, now)?);
        }
        Ok(users)
    }

    /// Files that differ between two states.
    fn differing(&self, one: &StoredState, other: &StoredState) -> Result<Files, StoreError> {
        if one.tree == other.tree {
            return Ok(Files::new());
        }
        Ok(ids(&self.compare(one, other)?))
    }

    /// True if a restore may not write the file: it is one that starts programs, instructs agents or
    /// controls a repository, also one that becomes complete with `written`, the parts that the restore
    /// writes below the same root.
    pub(super) fn is_protected(&self, file: &ChangedFile, written: &RepositoryParts) -> bool {
        let Some(root) = self.workspace.roots().nth(file.root) else { return true };
        if matches!(file.after, Some((Kind::Link, _))) && leads_to_protected(file.relative()) {
            return true;
        }
        let Ok(path) = std::str::from_utf8(&file.path) else {
            let is_control = written.controlled(root, file.relative()).is_some();
            return is_control || is_protected_in(root, &String::from_utf8_lossy(&file.path));
        };
        let located = root.join(path);
        let located = located.to_str().and_then(|path| self.workspace.locate(path).ok());
        let operation = located.map(|located| located.write_with(written));
        let controls = matches!(operation, Some(Operation::Write { repository: Some(_), .. }));
        controls || is_protected_in(root, path)
    }

    fn is_there(&self, file: &ChangedFile) -> bool {
        let root = self.workspace.root_directory(file.root);
        root.is_some_and(|root| stamp_of(root, file.relative()).is_some())
    }

    /// Removes the files that the checkpoint does not contain, and those that stand in the way of a
    /// folder. Returns the removed files.
    fn remove_files(
        &self,
        files: &[ChangedFile],
        present: &Snapshot,
        kept: &mut Vec<(String, String)>,
    ) -> Vec<ChangedFile> {
        let mut removed = Vec::new();
        for file in files.iter().filter(|file| file.after.is_none()) {
            let entry = present.entry(file.root, &file.path);
            let root = self.workspace.root_directory(file.root);
            let Some((entry, root)) = entry.zip(root) else { continue };
            match writer::remove(root, file.relative(), &entry.stamp) {
                Ok(()) => removed.push(file.clone()),
                Err(error) => kept.push((file.name(), error.to_string())),
            }
        }
        removed
    }

    /// Writes the files that the checkpoint contains. Returns their paths with the SHA-256 of their
    /// contents.
    fn write_files(
        &self,
        files: &[ChangedFile],
        present: &Snapshot,
        restored: &mut Vec<ChangedFile>,
        kept: &mut Vec<(String, String)>,
    ) -> Result<Vec<(PathBuf, String)>, StoreError> {
        let mut contents = Vec::new();
        let written: Vec<(&ChangedFile, Kind, &str)> = files
            .iter()
            .filter_map(|file| file.after.as_ref().map(|(kind, id)| (file, *kind, &**id)))
            .collect();
        let objects: Vec<&str> = written.iter().map(|(.., id)| *id).collect();
        self.git.contents::<StoreError>(&objects, |at, content| {
            let (file, kind, _) = written[at];
            let Some(root) = self.workspace.root_directory(file.root) else { return Ok(()) };
            let known = present.entry(file.root, &file.path).map(|entry| entry.stamp);
            match writer::write(root, file.relative(), kind, &content, known.as_ref()) {
                Ok(()) => {
                    restored.push(file.clone());
                    let path = self.root(file.root).filter(|_| kind != Kind::Link);
                    let path = path.map(|root| root.join(file.relative()));
                    contents.extend(path.map(|path| (path, sha256(&content))));
                }
                Err(error) if crate::git::is_full(&error) => return Err(StoreError::Full),
                Err(error) => kept.push((file.name(), error.to_string())),
            }
            Ok(())
        })?;
        Ok(contents)
    }

    /// Brings back lost objects of the repositories whose refs the checkpoint contains.
    fn bring_back_objects(&self, checkpoint: &Checkpoint, kept: &mut Vec<(String, String)>) {
        let heads = match self.git.diff("", &checkpoint.state.tree) {
            Ok(files) => files,
            Err(error) => return kept.push((".git/objects".to_owned(), error.to_string())),
        };
        for file in heads {
            let Some(root) = self.keys.iter().position(|key| *key == file.root) else { continue };
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(&file.path));
            let Some(folder) = path.parent().filter(|_| path.ends_with("HEAD")) else { continue };
            if !is_git_state(&file.path) || path.components().any(|name| name.as_os_str() == "refs")
            {
                continue;
            }
            let Some(directory) = self.workspace.root_directory(root) else { continue };
            // Only in a repository that is there: a restore makes none.
            if open_beneath(directory, &folder.join("objects"), FOLDER).is_err() {
                continue;
            }
            if let Err(error) = restore_objects(directory, folder, &self.copies(root, folder)) {
                kept.push((folder.join("objects").display().to_string(), error.to_string()));
            }
        }
    }
}

/// Path of the git folder that contains `file`.
fn repository_of(file: &ChangedFile) -> String {
    let name = file.name();
    let end = name.find(".git/").map_or(name.len(), |at| at + ".git".len());
    name[..end].to_owned()
}
