//! `/undo`: finds the last step that is still in effect and builds the call that takes it back.
//!
//! The call belongs to the user and is judged and recorded like every other. The old content of a
//! single file comes from the before-image; a file that differs from the result of the change is not
//! touched.

mod steps;

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use crate::checkpoint::{ChangedFile, RestoreChoice, Store};
use crate::commands::checkpoint_store;
use crate::commands::conversation::Conversation;
use crate::commands::rewind::restore_call;
use crate::tools::{bash, write_file};
use nix::fcntl::OFlag;
use posse_actors::root_session::UserCall;
use serde_json::json;

use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::hex::{hex, sha256};
use crate::journal::StateDir;
use crate::protected::is_protected;
use posse_base::resolved_path;
use posse_base::shell_words::quoted;
use sha2::{Digest, Sha256};

use steps::{TOOK_BACK, UndoStep, UndoSteps, UndoableChange};

/// Part of the message that tells the model about the restore of a run by the user.
const RUN_UNDONE: &str = "took back what the last run had changed";

/// Part of the message that tells the model that the user took back a return of files.
const RETURN_UNDONE: &str = "took back my return to an earlier state of the files";

/// Maximum size of a before-image in bytes; file tools store no larger one.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Makes the tool call that takes back the last step of the conversation of `session` that is still
/// in effect. For a change of a file tool, it writes the old content, or removes a file that the
/// change created. For a command that changed files, it restores the checkpoint of its run; for a
/// return to an earlier state, that before the return. Paths of changes are relative to `cwd`.
/// `store` opens the checkpoints; `None`: there are none.
///
/// Errors: `UND001` if there is no such step, `UND002` if the file was modified after the change,
/// `UND003` if the old content is not available, `CKP004` if only files differ that the user has
/// changed since.
pub(crate) fn undo(
    state: &StateDir,
    session: &str,
    cwd: &Path,
    store: impl FnOnce() -> Option<Store>,
) -> Result<UserCall, Failure> {
    let mut steps = steps_of(&Conversation::read(state, cwd, session)?).steps;
    let needs_store = steps.iter().any(|step| !matches!(step, UndoStep::Change(_)));
    let checkpoints = Checkpoints { store: store().filter(|_| needs_store), cwd };
    while let Some(step) = steps.pop() {
        let restore = match step {
            UndoStep::Change(change) => match change_undone(&change, cwd)? {
                Some(call) => return Ok(call),
                None => continue,
            },
            UndoStep::Command(id) if checkpoints.has_changed_more(id, &steps) => (id, RUN_UNDONE),
            UndoStep::Command(_) => continue,
            UndoStep::Return(id) => (id, RETURN_UNDONE),
        };
        if let Some(call) = checkpoints.restore(restore)? {
            return Ok(call);
        }
    }
    Err(Failure::new(ErrorCode::NothingToUndo, Exit::Failed, "there is no change to undo")
        .because(
            "neither file tools nor commands have changed files in this conversation since the \
             last undo",
        )
        .fix("`/diff` shows how the files differ from its start, `/rewind` lists its prompts"))
}

/// Makes the tool call that restores the files of the checkpoint `id`, except those that the user has
/// changed since. Fails with `CKP002` if there is no such checkpoint.
pub(crate) fn to_checkpoint(id: u64, store: &Store) -> Result<UserCall, Failure> {
    store.get(id).map_err(|error| checkpoint_store::failure(&error, Path::new("")))?;
    let said = format!("returned the files to checkpoint {id}");
    Ok(restore_call(id, RestoreChoice::KeepUsers, &said, false))
}

fn steps_of(conversation: &Conversation) -> UndoSteps {
    let mut steps = UndoSteps::default();
    for (session, record) in conversation.timeline() {
        steps.add(record, &session.dir);
    }
    steps
}

/// Changes of files in a conversation, as far as its records tell.
#[derive(Debug, Default)]
pub(super) struct FileEffects {
    /// First checkpoint, with the files as they were before the first change; `None` without one.
    pub(super) first_checkpoint: Option<u64>,
    /// True if file tools have changed files before the first checkpoint.
    pub(super) has_uncovered: bool,
    /// Files that file tools have changed, with the SHA-256 of the content before the first change;
    /// `None` if there was no file.
    pub(super) edited: BTreeMap<String, Option<String>>,
}

impl FileEffects {
    /// Reads the changes from the records of a conversation.
    pub(super) fn of(conversation: &Conversation) -> FileEffects {
        let UndoSteps { first, has_uncovered, edited, .. } = steps_of(conversation);
        FileEffects { first_checkpoint: first, has_uncovered, edited }
    }
}

/// The call that takes back the change of a file. `None` if it was reverted elsewhere.
fn change_undone(change: &UndoableChange, cwd: &Path) -> Result<Option<UserCall>, Failure> {
    let now = hash_of(&cwd.join(&change.path));
    if now == change.before {
        return Ok(None);
    }
    if now != change.after {
        let what = format!("{} was modified after the change", printable(&change.path));
        return Err(Failure::new(ErrorCode::ChangedSince, Exit::Failed, what)
            .because("undoing the change would lose that modification")
            .fix("look at it with /diff, and change it by hand; /rewind returns further"));
    }
    call(&change.dir.join("blobs"), change).map(Some)
}

/// Checkpoints with which steps are taken back.
struct Checkpoints<'a> {
    /// `None` if there are none.
    store: Option<Store>,
    cwd: &'a Path,
}

impl Checkpoints<'_> {
    /// True if the run of the checkpoint `id` has changed files in a way that is still there and
    /// that the changes in `steps` do not explain.
    fn has_changed_more(&self, id: u64, steps: &[UndoStep]) -> bool {
        let Some(store) = &self.store else { return false };
        let Ok(record) = store.get(id) else { return false };
        let since = store.changes_since(&record).unwrap_or_default();
        let changed = if record.is_finished() {
            store.changes_of_run(&record).unwrap_or_default()
        } else {
            since.clone()
        };
        let is_of_run = |file: &&ChangedFile| {
            changed.iter().any(|changed| (changed.root, &changed.path) == (file.root, &file.path))
        };
        since.iter().filter(is_of_run).any(|file| !self.is_explained(file, id, steps))
    }

    /// True if the file is as a change in `steps`, of the run of the checkpoint `id`, has left it, or
    /// as it was before that change.
    fn is_explained(&self, file: &ChangedFile, id: u64, steps: &[UndoStep]) -> bool {
        let name = file.name();
        let last = steps.iter().rev().find_map(|step| match step {
            UndoStep::Change(change) if change.path == name => Some(change),
            _ => None,
        });
        last.filter(|change| change.checkpoint == Some(id)).is_some_and(|change| {
            let now = hash_of(&self.cwd.join(&change.path));
            now == change.after || now == change.before
        })
    }

    /// The call that restores the checkpoint, with what it tells the model. `None` if that would
    /// change no file, or the checkpoint is gone. Fails if it would only change files that the user
    /// has changed since.
    fn restore(&self, (id, said): (u64, &str)) -> Result<Option<UserCall>, Failure> {
        let Some(store) = &self.store else { return Ok(None) };
        let Ok(plan) = store.plan(id, RestoreChoice::KeepUsers) else { return Ok(None) };
        if !plan.files.is_empty() {
            return Ok(Some(restore_call(id, RestoreChoice::KeepUsers, said, true)));
        }
        let all = store.plan(id, RestoreChoice::All);
        let users: Vec<String> =
            all.iter().flat_map(|plan| &plan.files).map(|file| printable(&file.name())).collect();
        if users.is_empty() {
            return Ok(None);
        }
        let what = "you have changed the files since that the last step changed";
        Err(Failure::new(ErrorCode::CheckpointUnconfirmed, Exit::Failed, what)
            .because(users.join(", "))
            .fix("`/rewind N all` returns such files as well; `/rewind` lists N"))
    }
}

fn call(blobs: &Path, change: &UndoableChange) -> Result<UserCall, Failure> {
    let path = &change.path;
    let said = format!("{TOOK_BACK}{path} myself. What came of it:");
    let Some(before) = &change.before else {
        // The file did not exist before.
        let command = format!("rm -- {}", quoted(path));
        let mut arguments = json!({ "command": command });
        if is_protected(path) {
            // Otherwise the check after the command would restore it.
            arguments["unprotect"] = json!([path]);
        }
        let arguments = arguments.to_string();
        return Ok(UserCall { tool: bash::NAME.to_owned(), arguments, said });
    };
    let unknown = |why: &str| {
        let what = format!("the earlier content of {} is not available", printable(path));
        Failure::new(ErrorCode::BeforeImageMissing, Exit::Failed, what).because(why.to_owned())
    };
    let is_hash = before.len() == 64 && before.bytes().all(|b| b.is_ascii_hexdigit());
    let bytes = read(&blobs.join(before)).filter(|_| is_hash);
    let bytes = bytes.ok_or_else(|| unknown("its before-image no longer exists"))?;
    if sha256(&bytes) != *before {
        return Err(unknown("its before-image is damaged"));
    }
    let content = String::from_utf8(bytes).map_err(|_| unknown("it was no text"))?;
    let arguments = json!({ "path": path, "content": content }).to_string();
    Ok(UserCall { tool: write_file::NAME.to_owned(), arguments, said })
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// SHA-256 of the content of the file at the resolved `path`, in hex. `None` if it is no regular
/// file, is behind a link or cannot be read.
pub(super) fn hash_of(path: &Path) -> Option<String> {
    // Opening a pipe must not block.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut file = File::from(resolved_path::open(path, flags).ok()?);
    file.metadata().ok().filter(Metadata::is_file)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Some(hex(&hash.finalize())),
            Ok(length) => hash.update(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests;
