//! Changes of a trial for programs: a list, and a patch that `git apply` accepts.

use std::path::{Component, Path};

use posse_actors::event::TriedChange;
use posse_sandbox::{ChangeKind, FileKind, FileState, TrialChange, TrialContent, TriedCommand};

use super::{FILE_BYTES_MAX, TEXT_BYTES_MAX, is_no_link, shown_path};
use crate::git_patch::{GitFile, LINK, git_patch};
use crate::text::is_binary;

/// Reason why a patch does not contain a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotInDiff {
    /// The content is no text.
    Binary,
    /// The content or the diff is too large, or cannot be read.
    Large,
    /// Git does not store folders.
    Folder,
    /// A pipe, socket or device.
    Special,
    /// Git stores only the executable bit of the owner.
    Permissions,
    /// A file of a repository, which `git apply` does not change.
    Git,
    /// A file that is not below the working directory.
    Outside,
    /// The diff contains a value that looks like a secret.
    Secret,
}

impl NotInDiff {
    fn word(self) -> &'static str {
        match self {
            NotInDiff::Binary => "binary",
            NotInDiff::Large => "large",
            NotInDiff::Folder => "folder",
            NotInDiff::Special => "special",
            NotInDiff::Permissions => "permissions",
            NotInDiff::Git => "git",
            NotInDiff::Outside => "outside",
            NotInDiff::Secret => "secret",
        }
    }
}

/// The changes of a trial for a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrialPatch {
    /// All changes. Those that are not in `diff` have the reason.
    pub changes: Vec<TriedChange>,
    /// Patch in the format of git, which applies to the working directory as it was before.
    pub diff: String,
}

/// List of changes. `mask` redacts secrets in a text; paths are relative to `base` if they are below
/// it.
pub fn list(
    changes: &[TrialChange],
    base: &Path,
    mask: impl Fn(&str) -> String,
) -> Vec<TriedChange> {
    let row = |change: &TrialChange| {
        let size = |state: Option<FileState>| state.map(|state| state.size);
        let kind = change.after.or(change.before).map_or("", |state| state.kind.word());
        let mut row = TriedChange {
            path: mask(&shown_path(change, base)),
            change: change.kind.word().to_owned(),
            r#type: kind.to_owned(),
            bytes_before: size(change.before),
            bytes_after: size(change.after),
            ..TriedChange::default()
        };
        if let (Some(before), Some(after)) = (change.before, change.after)
            && before.mode != after.mode
            && is_no_link(&[before, after])
        {
            row.mode_before = Some(format!("{:03o}", before.mode));
            row.mode_after = Some(format!("{:03o}", after.mode));
        }
        row
    };
    changes.iter().map(row).collect()
}

/// List of the changes and the patch, in which no text is changed: a file whose diff `mask` would
/// redact is left out. Reads files, which blocks.
pub fn patch(tried: &TriedCommand, base: &Path, mask: impl Fn(&str) -> String) -> TrialPatch {
    let mut changes = list(&tried.changes.changes, base, &mask);
    let mut diff = String::new();
    for (change, row) in tried.changes.changes.iter().zip(&mut changes) {
        let found = in_patch(tried, change, base).and_then(|text| match text {
            text if diff.len() + text.len() > TEXT_BYTES_MAX => Err(NotInDiff::Large),
            text if mask(&text) != text => Err(NotInDiff::Secret),
            text => Ok(text),
        });
        match found {
            Ok(text) => diff.push_str(&text),
            Err(reason) => row.not_in_diff = Some(reason.word().to_owned()),
        }
    }
    TrialPatch { changes, diff }
}

/// Patch of one change, without a change of its text.
fn in_patch(tried: &TriedCommand, change: &TrialChange, base: &Path) -> Result<String, NotInDiff> {
    let path = change.absolute();
    let path = path.strip_prefix(base).map_err(|_| NotInDiff::Outside)?;
    let is_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
    if path.components().any(is_git) {
        return Err(NotInDiff::Git);
    }
    let contents = match change.kind {
        ChangeKind::Mode => [TrialContent::Unknown, TrialContent::Unknown],
        ChangeKind::Added | ChangeKind::Modified | ChangeKind::Deleted => {
            tried.contents(change, FILE_BYTES_MAX)
        }
    };
    let is_text = |content: &TrialContent| match content {
        TrialContent::Bytes(bytes) => std::str::from_utf8(bytes).is_ok(),
        TrialContent::Absent | TrialContent::Unknown => true,
    };
    match patch_of(change, base, &contents)? {
        _ if !contents.iter().all(is_text) => Err(NotInDiff::Binary),
        (_, false) => Err(NotInDiff::Large),
        (text, true) => Ok(text),
    }
}

/// Diff of a change in the format of git, and true if it shows the whole content. Content that is
/// not UTF-8 is replaced.
pub(super) fn patch_of(
    change: &TrialChange,
    base: &Path,
    contents: &[TrialContent; 2],
) -> Result<(String, bool), NotInDiff> {
    let kinds = [change.before, change.after].map(|state| state.map(|state| state.kind));
    if kinds.contains(&Some(FileKind::Special)) {
        return Err(NotInDiff::Special);
    }
    // The content is the same, and need not be a text.
    let same = TrialContent::Bytes(Vec::new());
    let [old, new] = if change.kind == ChangeKind::Mode { [&same; 2] } else { contents.each_ref() };
    let (before, after) = (side(change.before, old)?, side(change.after, new)?);
    if before.is_none() && after.is_none() {
        return Err(NotInDiff::Folder);
    }
    if before == after {
        return Err(NotInDiff::Permissions);
    }
    let path = change.absolute();
    let name = path.strip_prefix(base).unwrap_or(&path).as_os_str().as_encoded_bytes();
    Ok(git_patch(name, before, after))
}

/// One side of a change as git stores it. `None`: there is no file, or a folder.
fn side(
    state: Option<FileState>,
    content: &TrialContent,
) -> Result<Option<GitFile<'_>>, NotInDiff> {
    let Some(state) = state.filter(|state| state.kind != FileKind::Folder) else {
        return Ok(None);
    };
    match content {
        TrialContent::Absent | TrialContent::Unknown => Err(NotInDiff::Large),
        TrialContent::Bytes(bytes) if is_binary(bytes) => Err(NotInDiff::Binary),
        TrialContent::Bytes(bytes) => {
            let is_link = state.kind == FileKind::Link;
            let mode = if is_link { LINK } else { GitFile::mode_of(state.mode) };
            Ok(Some(GitFile { mode, content: bytes }))
        }
    }
}

/// True if the diff of `change` shows its permissions, or if they are the usual ones.
pub(super) fn shows_permissions(change: &TrialChange) -> bool {
    let is_plain = |mode: u32| mode == 0o644 || mode == 0o755;
    match (change.before, change.after) {
        (Some(before), Some(after)) if is_no_link(&[before, after]) => {
            before.mode == after.mode || (is_plain(before.mode) && is_plain(after.mode))
        }
        (None, Some(after)) if after.kind == FileKind::File && change.kind == ChangeKind::Added => {
            after.mode & 0o111 == 0 || is_plain(after.mode)
        }
        _ => true,
    }
}
