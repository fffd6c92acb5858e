//! `/diff`: how the files differ from their state at the start of a conversation.

use std::collections::BTreeSet;

use posse_base::secrets::mask::Mask;

use crate::checkpoint::{ChangedFile, Checkpoint, Store, StoreError};
use crate::commands::conversation::Conversation;
use crate::commands::undo::{FileEffects, hash_of};
use crate::failure::{printable, printable_lines};
use crate::frontend::session_records::{Changes, FileDiff};
use crate::tools::diff;

/// Maximum number of files whose lines are shown.
const SHOWN_MAX: usize = 200;

/// Maximum bytes of all diffs together; further files are only named.
const DIFF_BYTES_MAX: usize = 4 << 20;

/// Maximum number of files that are named without a diff.
const NAMES_MAX: usize = 1000;

/// The differences between the files at the start of the conversation and now, without values that
/// `mask` knows. The start is the first checkpoint. `Err`: the reason why they are not known.
pub(super) fn net_changes(
    conversation: &Conversation,
    store: &Store,
    mask: &Mask,
) -> Result<Changes, String> {
    let effects = FileEffects::of(conversation);
    if effects.has_uncovered {
        return Err("files were changed before the first checkpoint of the conversation".to_owned());
    }
    let Some(first) = effects.first_checkpoint else {
        return Ok(Changes { is_net: true, ..Changes::default() });
    };
    let known = |error: StoreError| error.to_string();
    let record = store.get(first).map_err(|_| {
        format!("checkpoint {first}, with the state at the start of the conversation, was removed")
    })?;
    let mut files = store.changes_since(&record).map_err(known)?;
    files.retain(|file| !file.is_git_state());
    let mut changes = Changes { is_net: true, ..Changes::default() };
    let (mut bytes, mut named) = (0, Vec::new());
    for file in &files {
        if changes.diffs.len() >= SHOWN_MAX || bytes > DIFF_BYTES_MAX {
            named.push(format!("{} {}", file.kind.word(), printable(&file.name())));
            continue;
        }
        let shown = file_diff(store, file, mask).map_err(known)?;
        bytes += shown.text.len();
        changes.diffs.push(shown);
    }
    changes.diffs.extend(unrecorded(&effects, &files, store));
    changes.diffs.extend(further(&named));
    changes.remark = remark(&record);
    Ok(changes)
}

/// The difference of one file, with the numbers of added and removed lines in the title.
fn file_diff(store: &Store, file: &ChangedFile, mask: &Mask) -> Result<FileDiff, StoreError> {
    let (before, after) = store.contents(file)?;
    let name = printable(&file.name());
    let diff = diff::of_file(&name, before.as_deref(), after.as_deref());
    let title = format!("{} {name} (+{} -{})", file.kind.word(), diff.added, diff.removed);
    let text = if diff.text.is_empty() {
        "only its permission to be executed, or its kind, has changed".to_owned()
    } else {
        mask.text(&diff.text).unwrap_or(diff.text)
    };
    Ok(FileDiff { title, text: printable_lines(text.trim_end()) })
}

/// Files that file tools have changed, that differ from before, and that checkpoints do not contain:
/// their names alone.
fn unrecorded(effects: &FileEffects, files: &[ChangedFile], store: &Store) -> Vec<FileDiff> {
    let names: BTreeSet<String> = files.iter().map(ChangedFile::name).collect();
    let is_as_before = |path: &str, before: &Option<String>| {
        let mut roots = (0..).map_while(|index| store.root(index));
        roots.any(|root| hash_of(&root.join(path)) == *before)
    };
    let edited = effects.edited.iter().filter(|(path, before)| {
        !names.contains(path.as_str()) && !is_as_before(path.as_str(), before)
    });
    let diff = |(path, _): (&String, &Option<String>)| FileDiff {
        title: format!("changed {} (not in the checkpoints)", printable(path)),
        text:
            "Its lines are not shown: git ignores it, it may contain secrets, or it is too large."
                .to_owned(),
    };
    edited.map(diff).collect()
}

/// One entry for the files whose lines are not shown; `None` if there are none.
fn further(named: &[String]) -> Option<FileDiff> {
    let more = named.len().saturating_sub(NAMES_MAX);
    let mut lines: Vec<String> = named.iter().take(NAMES_MAX).cloned().collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    let title = format!("{} more files, without their lines", named.len());
    (!named.is_empty()).then(|| FileDiff { title, text: lines.join("\n") })
}

/// Note about files that are not compared; empty if there are none.
fn remark(start: &Checkpoint) -> String {
    let left_out = start.left_out.describe();
    if left_out.is_empty() {
        return String::new();
    }
    format!("(not compared, because checkpoints leave them out: {})\n", printable(&left_out))
}
