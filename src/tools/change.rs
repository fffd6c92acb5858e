//! Change of one file, shared by the writing tools.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use posse_actors::ports::{Action, CallContext, Operation, ToolError, ToolOutput};
use posse_base::hex::hex;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::ToolEnvironment;
use crate::atomic_write;
use crate::diff::{self, Diff};
use crate::text::{self, count};
use crate::workspace::{FileKind, FileStatus, Located, refused};

/// Larger files are neither stored as before-images nor edited.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;

/// A file before a change, or the path at which one will be created.
pub(crate) struct ChangeTarget {
    pub(crate) place: Located,
    pub(crate) before: Option<FileBefore>,
    /// The parent folder, if it exists. Kept open so that its inode number is not reused.
    parent: Option<(OwnedFd, FileStatus)>,
}

/// File before a change.
pub(crate) struct FileBefore {
    pub(crate) bytes: Vec<u8>,
    entry: FileStatus,
    hash: String,
}

impl ChangeTarget {
    /// Reads the file at `place`, if it exists.
    pub(crate) fn load(place: Located) -> Result<ChangeTarget, ToolError> {
        let before = match place.entry() {
            None => None,
            Some(entry) => {
                entry.require(FileKind::File, &place.shown())?;
                if entry.mode & 0o222 == 0 {
                    return Err(ToolError::new(
                        "FIL003",
                        format!("{} is read-only for everyone", place.shown()),
                    ));
                }
                let (bytes, entry) = read(&place)?;
                Some(FileBefore { hash: text::sha256(&bytes), bytes, entry })
            }
        };
        let parent = match place.open_parent(false) {
            Ok((parent, _)) => {
                let entry =
                    FileStatus::of(&parent).map_err(|errno| refused(&place.shown(), errno))?;
                Some((parent, entry))
            }
            Err(error) if error.code == "FIL001" && before.is_none() => None,
            Err(error) => return Err(error),
        };
        Ok(ChangeTarget { place, before, parent })
    }

    /// Denies the change if the agent of `call` has read another version, or, where that is
    /// required, none. A new file needs no read.
    pub(crate) fn require_seen(
        &self,
        env: &ToolEnvironment,
        call: &CallContext,
    ) -> Result<(), ToolError> {
        match &self.before {
            Some(before) => env.reads.require(call, &self.place, &before.hash, env.require_read),
            None => Ok(()),
        }
    }

    /// True if it is executable.
    pub(crate) fn may_run(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.entry.mode & 0o100 != 0)
    }

    /// Content of the file; empty if it does not exist.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.before.as_ref().map_or(&[], |before| &before.bytes)
    }
}

/// Reads the whole file and its status.
fn read(place: &Located) -> Result<(Vec<u8>, FileStatus), ToolError> {
    let file = place.open_file(OFlag::O_RDONLY)?;
    let entry = FileStatus::of(&file).map_err(|errno| refused(&place.shown(), errno))?;
    let mut bytes = Vec::with_capacity(capacity(entry.size));
    File::from(file)
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&place.shown(), &error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ToolError::new(
            "ARG003",
            format!("{} is larger than 64 MiB; change it with bash", place.shown()),
        ));
    }
    Ok((bytes, entry))
}

/// Capacity for a file of that size, plus a byte to detect its end.
fn capacity(size: u64) -> usize {
    usize::try_from(size.min(FILE_BYTES_MAX)).unwrap_or(0) + 1
}

/// A prepared change of one file.
pub(crate) struct FileChange {
    target: ChangeTarget,
    after: Vec<u8>,
    diff: Diff,
    /// Notes for the model.
    notes: Vec<String>,
    /// True if the replaced text matched only approximately.
    fuzzy: bool,
    /// True if the file is removed.
    removes: bool,
    /// New executable bit, if it changes.
    exec: Option<bool>,
}

impl FileChange {
    pub(crate) fn new(target: ChangeTarget, after: Vec<u8>, mut notes: Vec<String>) -> FileChange {
        let path = target.place.relative();
        let before = target.before.as_ref().map(|before| before.bytes.as_slice());
        let diff = diff::unified(path, before, &after);
        if target.before.as_ref().is_some_and(|before| before.entry.links > 1) {
            notes.push("it had other names (hard links), which keep the old content".to_owned());
        }
        FileChange { target, after, diff, notes, fuzzy: false, removes: false, exec: None }
    }

    /// A change that removes the file.
    pub(crate) fn removal(target: ChangeTarget) -> FileChange {
        FileChange { removes: true, ..FileChange::new(target, Vec::new(), Vec::new()) }
    }

    /// Sets or clears the executable bit as part of the change.
    pub(crate) fn with_exec(self, exec: Option<bool>) -> FileChange {
        FileChange { exec, ..self }
    }

    pub(crate) fn diff(&self) -> &Diff {
        &self.diff
    }

    pub(crate) fn write(&self) -> Operation {
        self.target.place.write()
    }

    pub(crate) fn with_fuzzy(self, fuzzy: bool) -> FileChange {
        FileChange { fuzzy, ..self }
    }

    /// Action of `tool` for the policy.
    pub(crate) fn action(&self, tool: &str, verb: &str) -> Action {
        let Diff { added, removed, text } = &self.diff;
        Action {
            tool: tool.to_owned(),
            operations: vec![self.target.place.write()],
            summary: format!("{verb} {} (+{added} -{removed})", self.target.place.shown()),
            detail: text.clone(),
            digest: self.digest(tool),
        }
    }

    /// Digest that identifies exactly this change of exactly this file.
    pub(crate) fn digest(&self, tool: &str) -> String {
        let place = self.target.place.absolute().as_os_str().as_encoded_bytes();
        let inode =
            |entry: &FileStatus| [entry.dev.to_le_bytes(), entry.ino.to_le_bytes()].concat();
        let before = self.target.before.as_ref();
        let parent = self.target.parent.as_ref();
        let mut hasher = Sha256::new();
        for part in [
            tool.as_bytes(),
            place,
            &parent.map(|(_, entry)| inode(entry)).unwrap_or_default(),
            &before.map(|before| inode(&before.entry)).unwrap_or_default(),
            before.map_or("", |before| &before.hash).as_bytes(),
            &self.after,
            match (self.removes, self.exec) {
                (false, None) => b"",
                (true, _) => b"removed",
                (false, Some(true)) => b"+x",
                (false, Some(false)) => b"-x",
            },
        ] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hex(&hasher.finalize())
    }

    /// Applies the change if the file is unchanged since it was prepared.
    pub(crate) fn apply(self, env: &ToolEnvironment, call: &CallContext) -> ToolOutput {
        match self.try_apply(env, call) {
            Ok(output) => output,
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }

    /// Fails if the file differs from the prepared version.
    pub(crate) fn check(&self, env: &ToolEnvironment) -> Result<(), ToolError> {
        match self.target.place.open_parent(false) {
            Ok((parent, name)) => self.require_unchanged(env, &parent, Path::new(&name)),
            // The parent folder will be created.
            Err(error) if error.code == "FIL001" && self.target.before.is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn try_apply(
        &self,
        env: &ToolEnvironment,
        call: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let place = &self.target.place;
        if env.dry_run {
            let text = format!("dry run: nothing was written\n{}", self.diff.text);
            return Ok(self.report("dry run", text));
        }
        let verdict = match &self.target.before {
            None => "created",
            Some(_) if self.removes => "removed",
            Some(before) if before.bytes == self.after && !self.changes_exec() => "unchanged",
            Some(_) => "updated",
        };
        // Another agent may change the same file at this moment.
        let _alone = env.reads.changing(place.absolute());
        // A command running in parallel must not be blamed for the change.
        let mut writing = env.written.alone();
        let (parent, name) = place.open_parent(self.target.before.is_none())?;
        self.require_unchanged(env, &parent, Path::new(&name))?;
        if verdict != "unchanged" {
            let before = self.target.before.as_ref();
            if let Some(before) = before {
                atomic_write::keep_blob(
                    &env.session_dir.join("blobs"),
                    &before.hash,
                    &before.bytes,
                )
                .map_err(|error| failed("the before-image", &error))?;
            }
            let done = if self.removes {
                atomic_write::remove(&parent, &name).map(|()| writing.removed(place.absolute()))
            } else {
                let before = before.map(|before| &before.entry);
                let said = |made: &atomic_write::Made| {
                    writing.wrote(place.absolute(), &made.metadata, made.mode, &self.after);
                };
                self.replace(&parent, &name, before, said)
            };
            drop(writing);
            done.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => stale(place, "it is there by now"),
                _ => failed(&place.shown(), &error),
            })?;
        }
        env.reads.wrote(call, place.absolute(), text::sha256(&self.after));
        Ok(self.report(verdict, self.sentence(verdict)))
    }

    /// Writes the new content. Returns the new file also if a later step fails.
    fn replace(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        before: Option<&FileStatus>,
        mut said: impl FnMut(&atomic_write::Made),
    ) -> io::Result<()> {
        let made = atomic_write::replace(parent, name, &self.after, before)?;
        said(&made);
        if let Some(may) = self.exec {
            said(&atomic_write::run(parent, name, &made, may)?);
        }
        Ok(())
    }

    /// Fails if the file or its folder differs from the prepared version.
    fn require_unchanged(
        &self,
        env: &ToolEnvironment,
        parent: &OwnedFd,
        name: &Path,
    ) -> Result<(), ToolError> {
        let place = &self.target.place;
        let stale = |place: &Located| {
            // Another file may have the name by now.
            let there = place.absolute().to_str().and_then(|path| env.workspace.locate(path).ok());
            let now = there.and_then(|there| read(&there).ok());
            let now = now.map(|(bytes, _)| text::sha256(&bytes));
            stale(place, &env.reads.who(place.absolute(), now.as_deref()))
        };
        let folder = FileStatus::of(parent).map_err(|errno| refused(&place.shown(), errno))?;
        if let Some((_, known)) = &self.target.parent
            && known.identity() != folder.identity()
        {
            return Err(stale(place));
        }
        match (FileStatus::at(parent, name), &self.target.before) {
            (Err(Errno::ENOENT), None) => Ok(()),
            (Ok(there), Some(before)) if there.identity() == before.entry.identity() => {
                let (bytes, _) = read(place)?;
                if bytes == before.bytes { Ok(()) } else { Err(stale(place)) }
            }
            (Err(errno), _) if errno != Errno::ENOENT => Err(refused(&place.shown(), errno)),
            _ => Err(stale(place)),
        }
    }

    fn changes_exec(&self) -> bool {
        let before = self.target.before.as_ref();
        before.is_some_and(|before| {
            self.exec.is_some_and(|exec| exec != (before.entry.mode & 0o100 != 0))
        })
    }

    fn sentence(&self, verdict: &str) -> String {
        let shown = self.target.place.shown();
        let Diff { added, removed, .. } = self.diff;
        let bytes = count(self.after.len(), "byte");
        let mut text = match verdict {
            "created" => format!("created {shown} ({}, {bytes})", count(added, "line")),
            "unchanged" => format!("{shown} is unchanged: it has exactly this content already"),
            "removed" => format!("removed {shown} ({})", count(removed, "line")),
            _ => format!("updated {shown} (+{added} -{removed}, {bytes})"),
        };
        for note in &self.notes {
            text.push_str("\nnote: ");
            text.push_str(note);
        }
        text
    }

    fn report(&self, verdict: &str, text: String) -> ToolOutput {
        let mut metadata = json!({
            "path": self.target.place.relative(),
            "verdict": verdict,
            "bytes": self.after.len(),
            "added": self.diff.added,
            "removed": self.diff.removed,
            "diff": self.diff.text,
            "before": self.target.before.as_ref().map(|before| &before.hash),
            "after": (!self.removes).then(|| text::sha256(&self.after)),
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

/// Converts an I/O error for the model.
pub(crate) fn failed(shown: &str, error: &io::Error) -> ToolError {
    match error.raw_os_error() {
        Some(number) => refused(shown, Errno::from_raw(number)),
        None => ToolError::new("FIL002", format!("{shown}: {}", error.kind())),
    }
}
