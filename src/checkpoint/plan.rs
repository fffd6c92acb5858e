//! Decisions about stored states: what a restore changes, and which checkpoints are removed.
//!
//! Pure: no file is read or written here.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use posse_base::ignore_files::IgnoreTexts;

use crate::entry::Kind;
use crate::git::TreeChange;
use crate::record::{Checkpoint, LeftOut, Trigger};
use crate::walk::is_git_state;

/// Kind of the difference of a file between an earlier and a later state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The file is only in the later state.
    Added,
    /// The file is in both states with another content or kind.
    Modified,
    /// The file is only in the earlier state.
    Deleted,
}

impl ChangeKind {
    /// Word for a person and for JSON: `added`, `modified` or `deleted`.
    pub fn word(self) -> &'static str {
        match self {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
        }
    }

    fn of(change: &TreeChange) -> ChangeKind {
        match (&change.before, &change.after) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            (Some(_), Some(_)) => ChangeKind::Modified,
        }
    }
}

/// File that differs between two states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Index of the root in the workspace.
    pub root: usize,
    /// Path relative to the root, in bytes.
    pub path: Vec<u8>,
    /// Difference from the earlier to the later state.
    pub kind: ChangeKind,
    /// True if the file was changed after the last recorded effect of posse: probably by the user.
    pub is_users: bool,
    pub(crate) before: Option<(Kind, String)>,
    pub(crate) after: Option<(Kind, String)>,
}

impl ChangedFile {
    /// Path relative to the root.
    pub fn relative(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// True if the file belongs to the state of a git repository: `HEAD`, a ref or the index.
    pub fn is_git_state(&self) -> bool {
        is_git_state(&self.path)
    }

    /// Path as text. Invalid UTF-8 is replaced.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// Makes changed files of the differences, for the roots with these folder names. Files of other
/// roots are left out.
pub(crate) fn changed_files(changes: Vec<TreeChange>, keys: &[String]) -> Vec<ChangedFile> {
    let files = changes.into_iter().filter_map(|change| {
        let root = keys.iter().position(|key| *key == change.root)?;
        let kind = ChangeKind::of(&change);
        let TreeChange { path, before, after, .. } = change;
        Some(ChangedFile { root, path, kind, is_users: false, before, after })
    });
    files.collect()
}

/// Files that a restore may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestoreChoice {
    /// Every file that differs.
    #[default]
    All,
    /// Every file that differs, except those that the user has changed since.
    KeepUsers,
}

/// Changes that restore a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorePlan {
    /// Checkpoint that is restored.
    pub checkpoint: Checkpoint,
    /// Changes from the present state to that of the checkpoint: a file that the restore adds is
    /// [`ChangeKind::Added`].
    pub files: Vec<ChangedFile>,
    /// Files that stay as they are, with the reason.
    pub kept: Vec<(String, String)>,
}

impl RestorePlan {
    /// Files that the restore changes and that the user has changed since.
    pub fn of_user(&self) -> impl Iterator<Item = &ChangedFile> {
        self.files.iter().filter(|file| file.is_users)
    }
}

const PROTECTED: &str =
    "it is protected: it can start programs or instruct agents; change it by hand";
const UNSAVED: &str = "its present content is not stored, because it is too large or may be a secret, so it would be lost";
/// Reason for which a file stays that the user has changed.
pub(crate) const USERS: &str = "you changed it since";
const IGNORED: &str = "it may be older than the checkpoint, whose ignore files name it; remove it by hand if it is new";
const LEFT_OUT: &str = "it may be older than the checkpoint, which does not contain it: it could not be \
    read, was too large or was taken for a secret; remove it by hand if it is new";

/// Takes those files out of `files` that a restore would remove although they may have existed when the
/// checkpoint with `left_out` was made. Returns the rest, and their names with the reason.
pub(crate) fn without_left_out(
    files: Vec<ChangedFile>,
    left_out: &LeftOut,
) -> (Vec<ChangedFile>, Vec<(String, String)>) {
    let (kept, files): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|file| file.kind == ChangeKind::Deleted && left_out.may_contain(&file.path));
    let kept = kept.iter().map(|file| (file.name(), LEFT_OUT.to_owned()));
    (files, kept.collect())
}

/// Takes those files out of `files` that a restore would remove although the ignore files of the
/// checkpoint, `rules` for each root, name them: they may have existed when it was made. Returns the
/// rest, and their names with the reason.
pub(crate) fn without_ignored(
    files: Vec<ChangedFile>,
    rules: &[IgnoreTexts],
) -> (Vec<ChangedFile>, Vec<(String, String)>) {
    let (kept, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| {
        let rules = rules.get(file.root).filter(|_| file.kind == ChangeKind::Deleted);
        rules.is_some_and(|rules| rules.is_ignored(file.relative()))
    });
    let kept = kept.iter().map(|file| (file.name(), IGNORED.to_owned()));
    (files, kept.collect())
}

/// Decides which of the differences from the present state to a checkpoint a restore applies.
/// `users`: files that changed after the last effect of posse. `unsaved`: files whose present
/// content is not stored. `is_protected` tells if the restore may not write the file.
pub(crate) fn choose(
    files: Vec<ChangedFile>,
    users: &BTreeSet<(usize, Vec<u8>)>,
    unsaved: &BTreeSet<(usize, Vec<u8>)>,
    choice: RestoreChoice,
    is_protected: impl Fn(&ChangedFile) -> bool,
) -> (Vec<ChangedFile>, Vec<(String, String)>) {
    let (mut chosen, mut kept) = (Vec::new(), Vec::new());
    for mut file in files {
        let id = (file.root, file.path.clone());
        file.is_users = users.contains(&id);
        // Removing a file plants nothing.
        let reason = if file.kind != ChangeKind::Deleted && is_protected(&file) {
            Some(PROTECTED)
        } else if unsaved.contains(&id) {
            Some(UNSAVED)
        } else if file.is_users && choice == RestoreChoice::KeepUsers {
            Some(USERS)
        } else {
            None
        };
        match reason {
            Some(reason) => kept.push((file.name(), reason.to_owned())),
            None => chosen.push(file),
        }
    }
    (chosen, kept)
}

/// Ids of the checkpoints of runs whose changes are in the state after the last record, the oldest
/// first. The state that a restore leaves has the changes that its checkpoint had.
pub(crate) fn effective(records: &[Checkpoint]) -> Vec<u64> {
    // The ids for the state of each checkpoint.
    let mut at: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut now = Vec::new();
    for record in records {
        at.insert(record.id, now.clone());
        match record.trigger {
            Trigger::Restore { checkpoint } => {
                now = at.get(&checkpoint).cloned().unwrap_or_default();
            }
            Trigger::Prompt if record.has_changes() => now.push(record.id),
            Trigger::Prompt => {}
        }
    }
    now
}

/// Rules for the removal of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Maximum age in milliseconds.
    pub age_ms_max: u64,
    /// Maximum size of the store in bytes.
    pub bytes_max: u64,
}

impl Retention {
    /// Rules for a maximum age of `days` days and a maximum size of the store in bytes.
    pub fn new(days: u64, bytes_max: u64) -> Retention {
        Retention { age_ms_max: days.saturating_mul(24 * 60 * 60 * 1000), bytes_max }
    }
}

/// Maximum number of checkpoints of a store, whatever their age.
const COUNT_MAX: usize = 2000;

/// Ids of the checkpoints that are too old at `now_ms`, or too many. The newest one stays.
pub(crate) fn expired(records: &[Checkpoint], retention: Retention, now_ms: u64) -> Vec<u64> {
    let Some((_, older)) = records.split_last() else { return Vec::new() };
    let too_many = records.len().saturating_sub(COUNT_MAX);
    let is_old =
        |record: &Checkpoint| record.taken_ms.saturating_add(retention.age_ms_max) < now_ms;
    let is_expired = |(at, record): &(usize, &Checkpoint)| {
        (*at < too_many && !record.holds_deletions) || is_old(record)
    };
    let expired = older.iter().enumerate().filter(is_expired);
    expired.map(|(_, record)| record.id).collect()
}

/// Ids of the oldest checkpoints, a quarter of all that can go, to be removed while the store is too
/// large: not the newest one, nor those that hold deleted files. Empty if there are no others.
pub(crate) fn oldest_quarter(records: &[Checkpoint]) -> Vec<u64> {
    let Some((_, older)) = records.split_last() else { return Vec::new() };
    let free: Vec<u64> =
        older.iter().filter(|record| !record.holds_deletions).map(|record| record.id).collect();
    free.iter().take(free.len().div_ceil(4)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::checkpoint;

    fn change(path: &str, before: bool, after: bool) -> TreeChange {
        let side = |there: bool| there.then(|| (Kind::File, "1".repeat(40)));
        TreeChange {
            root: "k".to_owned(),
            path: path.as_bytes().to_vec(),
            before: side(before),
            after: side(after),
        }
    }

    #[test]
    fn a_restore_keeps_what_it_may_not_change() {
        let changes = vec![
            change("created", false, true),
            change("mine", true, true),
            change("large", true, true),
            change(".vscode/a", false, true),
            change(".vscode/b", true, false),
            TreeChange { root: "other".to_owned(), ..change("x", true, true) },
        ];
        let files = changed_files(changes, &["z".to_owned(), "k".to_owned()]);
        assert_eq!(files.len(), 5);
        let set = |path: &str| BTreeSet::from([(1, path.as_bytes().to_vec())]);
        let protected = |file: &ChangedFile| file.path.starts_with(b".vscode");
        let names = |choice| {
            let (chosen, kept) =
                choose(files.clone(), &set("mine"), &set("large"), choice, protected);
            let chosen: Vec<String> = chosen.iter().map(ChangedFile::name).collect();
            let kept: Vec<String> = kept.into_iter().map(|(name, _)| name).collect();
            (chosen.join(" "), kept.join(" "))
        };
        let all = ("created mine .vscode/b".to_owned(), "large .vscode/a".to_owned());
        assert_eq!(names(RestoreChoice::All), all);
        let theirs = ("created .vscode/b".to_owned(), "mine large .vscode/a".to_owned());
        assert_eq!(names(RestoreChoice::KeepUsers), theirs);
        let (chosen, _) = choose(files, &set("mine"), &set("large"), RestoreChoice::All, protected);
        let users: Vec<bool> = chosen.iter().map(|file| file.is_users).collect();
        assert_eq!(users, [false, true, false]);
    }

    #[test]
    fn changes_that_were_taken_back_are_not_effective() {
        let run = |id| {
            let mut record = checkpoint(id);
            record.after = Some(checkpoint(id + 100).state);
            record
        };
        let restore =
            |id, of| Checkpoint { trigger: Trigger::Restore { checkpoint: of }, ..run(id) };
        let unchanged = |id| Checkpoint { after: Some(checkpoint(id).state), ..run(id) };
        for (records, expected) in [
            (vec![run(1), unchanged(2), run(3), checkpoint(4)], &[1, 3, 4][..]),
            (vec![run(1), run(2), restore(3, 2)], &[1]),
            (vec![run(1), run(2), restore(3, 1)], &[]),
            // The restore is taken back.
            (vec![run(1), run(2), restore(3, 1), restore(4, 3)], &[1, 2]),
            (vec![run(1), restore(2, 1), run(3)], &[3]),
            (vec![run(5), restore(6, 1)], &[]),
        ] {
            assert_eq!(effective(&records), expected);
        }
    }

    #[test]
    fn old_checkpoints_expire_and_the_newest_stays() {
        let records: Vec<Checkpoint> = (1..=4).map(checkpoint).collect();
        let retention = |age_ms_max| Retention { age_ms_max, bytes_max: 0 };
        // Taken at 1,000 ms, 2,000 ms and so on.
        for (age, now, expected) in [
            (1000, 4000, &[1, 2][..]),
            (1000, 90_000, &[1, 2, 3]),
            (u64::MAX, 90_000, &[]),
            (0, 1000, &[]),
        ] {
            assert_eq!(expired(&records, retention(age), now), expected);
        }
        assert_eq!(expired(&[], retention(0), 9), Vec::<u64>::new());
        let many: Vec<Checkpoint> = (1..=2002).map(checkpoint).collect();
        assert_eq!(expired(&many, retention(u64::MAX), 9), [1, 2]);
        assert_eq!(oldest_quarter(&records), [1]);
        assert_eq!(oldest_quarter(&many).len(), 501);
        assert_eq!(oldest_quarter(&records[..1]), Vec::<u64>::new());
    }
}
