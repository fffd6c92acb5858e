//! Change of one file, shared by the tools that write files.

mod hunks;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use posse_actors::ports::{
    CallContext, Operation, Prepared, RunContext, Tool, ToolError, ToolOutput, ToolSpec,
};
use posse_sandbox::Writing;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::committed_secrets::ReadingTool;
use crate::diff::{self, Diff};
use crate::text::count;
use crate::workspace::{FileKind, FileStatus, Located, RepositoryParts, refused};
use crate::{ToolEnvironment, atomic_write, blocking, digest, prepared, refusal};

/// Maximum size of a file that is edited or stored as a before-image, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;

/// A file before a change, or the path at which one will be created.
pub(crate) struct ChangeTarget {
    pub(crate) place: Located,
    pub(crate) before: Option<FileBefore>,
    /// Metadata and descriptor of the parent folder; `None` if it does not exist. The folder is
    /// kept open so that its inode number is not reused.
    parent: Option<(FileStatus, OwnedFd)>,
}

/// Content and metadata of a file before a change.
pub(crate) struct FileBefore {
    pub(crate) bytes: Vec<u8>,
    entry: FileStatus,
    hash: String,
}

impl ChangeTarget {
    /// Reads the file at `place`, if it exists. Fails if no user has write permission, if the file
    /// is larger than `FILE_BYTES_MAX`, or if it is not a regular file.
    pub(crate) fn load(place: Located) -> Result<ChangeTarget, ToolError> {
        let before = match place.entry() {
            None => None,
            Some(entry) => {
                entry.require(FileKind::File, &place.shown())?;
                if entry.mode & 0o222 == 0 {
                    let message = format!("{} is read-only for everyone", place.shown());
                    return Err(ToolError::new("FIL003", message));
                }
                let (bytes, entry) = read(&place)?;
                Some(FileBefore { hash: posse_base::hex::sha256(&bytes), bytes, entry })
            }
        };
        let parent = match place.open_parent(false) {
            Ok((parent, _)) => Some((place.status(&parent)?, parent)),
            Err(error) if error.code == "FIL001" && before.is_none() => None,
            Err(error) => return Err(error),
        };
        Ok(ChangeTarget { place, before, parent })
    }

    /// Returns true if the file exists before the change and its owner may execute it.
    pub(crate) fn is_executable(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.entry.is_executable())
    }

    /// Content of the file before the change; empty if the file does not exist.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.before.as_ref().map_or(&[], |before| &before.bytes)
    }
}

/// Reads the whole file at `place`, and its metadata. Fails above `FILE_BYTES_MAX`.
fn read(place: &Located) -> Result<(Vec<u8>, FileStatus), ToolError> {
    let file = place.open_file(OFlag::O_RDONLY)?;
    let entry = place.status(&file)?;
    // Plus a byte to detect the end.
    let capacity = usize::try_from(entry.size.min(FILE_BYTES_MAX)).unwrap_or(0) + 1;
    let mut bytes = Vec::with_capacity(capacity);
    File::from(file)
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&place.shown(), &error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("{} is larger than 64 MiB; change it with bash", place.shown());
        return Err(ToolError::new("ARG003", message));
    }
    Ok((bytes, entry))
}

/// Creates a tool whose calls change one file: `prepare` makes a [`FileChange`] of the arguments.
pub(crate) fn tool<A, F>(
    spec: ToolSpec,
    env: Arc<ReadingTool>,
    prepare: fn(Arc<ReadingTool>, A, CallContext) -> F,
) -> Arc<dyn Tool>
where
    A: DeserializeOwned + 'static,
    F: Future<Output = Result<Prepared, ToolError>> + Send + 'static,
{
    let mut tool = BuiltinTool::new(spec, env, prepare, run);
    tool.hunks = FileChange::hunks;
    tool.choose_hunks = hunks::choose;
    Arc::new(tool)
}

/// Content of a file after an edit.
#[derive(Debug)]
pub(crate) struct EditedFile {
    pub(crate) after: Vec<u8>,
    /// Notes for the model, such as the lines of the replacements.
    pub(crate) notes: Vec<String>,
    /// True if the replaced text matched only approximately.
    pub(crate) fuzzy: bool,
}

/// Prepares a call of `tool` that replaces the content of the file at `place` with the result of
/// `edit`; `verb` begins the summary. A missing file counts as empty and is created.
///
/// `edit` gets the content, the displayed name, and true if an approximate match is allowed. If
/// `edit` fails, the prepared call is judged as a read and then returns the error. If it changes
/// nothing, the call is judged as a read as well: it writes nothing, and its result reveals only
/// the content of the file. Fails at once if the file cannot be loaded (`ChangeTarget::load`) or
/// the agent has to read it first (`ReadTable::require`).
pub(crate) fn prepare(
    (tool, verb): (&str, &str),
    place: Located,
    env: &ToolEnvironment,
    call: &CallContext,
    edit: impl FnOnce(&[u8], &str, bool) -> Result<EditedFile, ToolError>,
) -> Result<Prepared, ToolError> {
    let target = ChangeTarget::load(place)?;
    // A new file needs no read.
    if let Some(before) = &target.before {
        env.reads.require(call, &target.place, &before.hash, env.require_read)?;
    }
    let shown = target.place.shown();
    match edit(target.bytes(), &shown, env.fuzzy_edit) {
        Ok(EditedFile { after, notes, fuzzy }) => {
            let change = FileChange { fuzzy, ..FileChange::new(target, Some(after), notes) };
            if change.is_unchanged() {
                let words = (format!("read {shown}, which has this content"), String::new());
                let (operations, digest) = (vec![change.target.place.read()], change.digest(tool));
                return Ok(prepared(tool, operations, words, digest, change));
            }
            let Diff { added, removed, text, .. } = &change.diff;
            let words = (format!("{verb} {shown} (+{added} -{removed})"), text.clone());
            let (operations, digest) = (vec![change.target.place.write()], change.digest(tool));
            Ok(prepared(tool, operations, words, digest, change))
        }
        // The error may reveal content of the file, so the policy judges the call as a read before
        // the model gets the error.
        Err(error) => {
            let summary = format!("read {shown} to explain why the edit cannot be made");
            Ok(refusal::prepared(tool, vec![target.place.read()], summary, error))
        }
    }
}

/// Applies the prepared change on a blocking thread.
async fn run(tool: Arc<ReadingTool>, change: FileChange, context: RunContext) -> RunResult {
    blocking(move || change.apply(&tool.env, &context.call)).await
}

/// A prepared change of one file.
pub(crate) struct FileChange {
    target: ChangeTarget,
    /// New content; `None` if the file is removed.
    after: Option<Vec<u8>>,
    pub(crate) diff: Diff,
    /// Notes for the model, such as the lines of the replacements.
    notes: Vec<String>,
    /// True if the replaced text matched only approximately.
    fuzzy: bool,
    /// New executable bit; `None` if it stays as it is.
    pub(crate) exec: Option<bool>,
}

impl FileChange {
    pub(crate) fn new(
        target: ChangeTarget,
        after: Option<Vec<u8>>,
        mut notes: Vec<String>,
    ) -> FileChange {
        let path = target.place.relative();
        let before = target.before.as_ref().map(|before| before.bytes.as_slice());
        let diff = diff::unified(path, before, after.as_deref().unwrap_or_default());
        if target.before.as_ref().is_some_and(|before| before.entry.links > 1) {
            notes.push("it had other names (hard links), which keep the old content".to_owned());
        }
        FileChange { target, after, diff, notes, fuzzy: false, exec: None }
    }

    /// SHA-256 of the new content in hex; `None` if the file is removed.
    pub(crate) fn hash(&self) -> Option<String> {
        self.after.as_deref().map(posse_base::hex::sha256)
    }

    /// Path of the file relative to its workspace root.
    pub(crate) fn relative(&self) -> &str {
        self.target.place.relative()
    }

    /// Creates the operation of writing this file in a call that also writes other files below
    /// the same root, of which `written` are parts of repositories.
    pub(crate) fn write_with(&self, written: &RepositoryParts) -> Operation {
        self.target.place.write_with(written)
    }

    /// Returns true if the file exists and has the new content and executable bit already.
    fn is_unchanged(&self) -> bool {
        let ChangeTarget { before: Some(before), .. } = &self.target else { return false };
        self.after.as_ref().is_some_and(|after| before.bytes == *after)
            && self.exec.is_none_or(|exec| exec == self.target.is_executable())
    }

    fn bytes(&self) -> &[u8] {
        self.after.as_deref().unwrap_or_default()
    }

    /// SHA-256 (hex) that identifies this change by `tool`: path, inodes of the folder and the
    /// file, old and new content, and executable bit.
    pub(crate) fn digest(&self, tool: &str) -> String {
        let inode =
            |entry: &FileStatus| [entry.dev.to_le_bytes(), entry.ino.to_le_bytes()].concat();
        let before = self.target.before.as_ref();
        let parent = self.target.parent.as_ref();
        digest::of(&[
            tool.as_bytes(),
            self.target.place.absolute().as_os_str().as_encoded_bytes(),
            &parent.map(|(entry, _)| inode(entry)).unwrap_or_default(),
            &before.map(|before| inode(&before.entry)).unwrap_or_default(),
            before.map_or("", |before| &before.hash).as_bytes(),
            self.bytes(),
            match (&self.after, self.exec) {
                (Some(_), None) => b"",
                (None, _) => b"removed",
                (Some(_), Some(true)) => b"+x",
                (Some(_), Some(false)) => b"-x",
            },
        ])
    }

    /// Fails if the file was created, changed, replaced or removed, or its folder was replaced,
    /// since the call was prepared. Writes nothing.
    pub(crate) fn check(&self, env: &ToolEnvironment) -> Result<(), ToolError> {
        match self.target.place.open_parent(false) {
            Ok((parent, name)) => self.require_unchanged(env, &parent, &name),
            // The parent folder will be created.
            Err(error) if error.code == "FIL001" && self.target.before.is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Stores the old content as a before-image, applies the change, and records in the table of
    /// reads that the agent of `call` knows the new content. Missing folders of a new file are
    /// created. Fails if the file was changed or replaced since the call was prepared. Writes
    /// nothing in a dry run, or if the file has the new content and executable bit already.
    pub(crate) fn apply(&self, env: &ToolEnvironment, call: &CallContext) -> RunResult {
        let ChangeTarget { place, before, .. } = &self.target;
        let verdict = match (before, &self.after) {
            (None, _) => "created",
            (Some(_), None) => "removed",
            (Some(_), Some(_)) if self.is_unchanged() => "unchanged",
            (Some(_), Some(_)) => "updated",
        };
        if env.dry_run && verdict != "unchanged" {
            let text = format!("dry run: nothing was written\n{}", self.diff.text);
            return Ok(self.report("dry run", text));
        }
        // Another agent may change the same file at this moment.
        let _alone = env.reads.changing(place.absolute());
        // A command running in parallel must not be blamed for the change.
        let mut writing = env.written.begin_write();
        let (parent, name) = place.open_parent(before.is_none())?;
        self.require_unchanged(env, &parent, &name)?;
        if verdict != "unchanged" {
            if let Some(FileBefore { hash, bytes, .. }) = before {
                atomic_write::keep_blob(&env.session_dir.join("blobs"), hash, bytes)
                    .map_err(|error| failed("the before-image", &error))?;
            }
            let written = self.write_to(&parent, &name, &mut writing);
            drop(writing);
            written.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => stale(place, "it is there by now"),
                _ => failed(&place.shown(), &error),
            })?;
        }
        env.reads.wrote(call, place.absolute(), posse_base::hex::sha256(self.bytes()));
        Ok(self.report(verdict, self.sentence(verdict)))
    }

    /// Writes or removes the file `name` in the folder `parent`, and registers each step in
    /// `writing`. A written file is registered even if a later step fails.
    fn write_to(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        writing: &mut Writing<'_>,
    ) -> io::Result<()> {
        let path = self.target.place.absolute();
        let Some(after) = &self.after else {
            atomic_write::remove(parent, name)?;
            writing.removed(path);
            return Ok(());
        };
        let before = self.target.before.as_ref().map(|before| &before.entry);
        let made = atomic_write::replace(parent, name, after, before)?;
        writing.wrote(path, &made.metadata, made.mode, after);
        if let Some(may) = self.exec {
            let made = atomic_write::run(parent, name, &made, may)?;
            writing.wrote(path, &made.metadata, made.mode, after);
        }
        Ok(())
    }

    /// Fails if the folder `parent` or the file `name` in it is not the prepared one, or if the
    /// content of the file has changed.
    fn require_unchanged(
        &self,
        env: &ToolEnvironment,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), ToolError> {
        let place = &self.target.place;
        let stale = || {
            // Another file may have the name by now.
            let there = place.absolute().to_str().and_then(|path| env.workspace.locate(path).ok());
            let now = there.and_then(|there| read(&there).ok());
            let now = now.map(|(bytes, _)| posse_base::hex::sha256(&bytes));
            stale(place, &env.reads.last_writer(place.absolute(), now.as_deref()))
        };
        let folder = place.status(parent)?;
        if let Some((known, _)) = &self.target.parent
            && known.identity() != folder.identity()
        {
            return Err(stale());
        }
        match (FileStatus::at(parent, Path::new(name)), &self.target.before) {
            (Err(Errno::ENOENT), None) => Ok(()),
            (Ok(there), Some(before)) if there.identity() == before.entry.identity() => {
                let (bytes, _) = read(place)?;
                if bytes == before.bytes { Ok(()) } else { Err(stale()) }
            }
            (Err(errno), _) if errno != Errno::ENOENT => Err(refused(&place.shown(), errno)),
            _ => Err(stale()),
        }
    }

    fn sentence(&self, verdict: &str) -> String {
        let shown = self.target.place.shown();
        let Diff { added, removed, .. } = self.diff;
        let bytes = count(self.bytes().len(), "byte");
        let mut text = match verdict {
            "created" => format!("created {shown} ({}, {bytes})", count(added, "line")),
            "unchanged" => format!("{shown} is unchanged: it has exactly this content already"),
            "removed" => format!("removed {shown} ({})", count(removed, "line")),
            _ => format!("updated {shown} (+{added} -{removed}, {bytes})"),
        };
        for note in &self.notes {
            text.extend(["\nnote: ", note]);
        }
        text
    }

    fn report(&self, verdict: &str, text: String) -> ToolOutput {
        let mut metadata = json!({
            "path": self.target.place.relative(),
            "verdict": verdict,
            "bytes": self.bytes().len(),
            "added": self.diff.added,
            "removed": self.diff.removed,
            "diff": self.diff.text,
            "before": self.target.before.as_ref().map(|before| &before.hash),
            "after": self.hash(),
            "notes": self.notes,
        });
        if self.fuzzy {
            metadata["fuzzy"] = json!(true);
        }
        ToolOutput::text(text).with_metadata(metadata)
    }
}

fn stale(place: &Located, who: &str) -> ToolError {
    let shown = place.shown();
    let what = format!("{shown} changed meanwhile: {who}; read it again, then try again");
    ToolError::new("EDT004", what)
}

/// Converts an I/O error about the file `shown` to an error for the model.
pub(crate) fn failed(shown: &str, error: &io::Error) -> ToolError {
    match error.raw_os_error() {
        Some(number) => refused(shown, Errno::from_raw(number)),
        None => ToolError::new("FIL002", format!("{shown}: {}", error.kind())),
    }
}
