//! Table of file reads and writes, shared by all agents of a session. With it, an agent that knows
//! an old version of a file cannot change the file, nor can one that has not seen the version of
//! another agent, and a reference can take the place of unchanged content that is read again.
//!
//! Files are keyed by resolved path and compared by a hash of all bytes. Inode and times would not
//! suffice: replacing a file changes its inode, and two changes within one clock tick do not change
//! its times.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use posse_actors::conversation::CallId;
use posse_actors::ports::{CallContext, ToolError};
use sha2::{Digest, Sha256};

use crate::workspace::Located;

/// Maximum number of files whose versions, and whose last writers, are stored. Before a further
/// one, all entries of that kind are dropped; then no agent counts as having read, or written, any
/// file.
const FILES_MAX: usize = 20_000;
/// Maximum number of agents whose knowledge about one file is stored. A further one replaces the
/// agent that came first.
const AGENTS_MAX: usize = 32;
/// Maximum number of parts that are stored per file and agent. A further one replaces the oldest.
const SLICES_MAX: usize = 16;
/// Minimum size in bytes of a text that a reference to the earlier call can replace. For a shorter
/// text, the reference saves hardly anything.
const TEXT_BYTES_MIN: usize = 400;
/// Number of locks for changes of files. Files whose paths hash to the same lock are changed one
/// after the other.
const CHANGING: usize = 32;

/// File versions that the agents of a session have read or written.
#[derive(Debug, Default)]
pub struct ReadTable {
    files: DashMap<PathBuf, Vec<FileKnowledge>>,
    written: DashMap<PathBuf, LastWrite>,
    /// Locks that serialise the changes of one file, from the last check to the write.
    changing: [Mutex<()>; CHANGING],
}

/// Last write of a tool to a file.
#[derive(Debug)]
struct LastWrite {
    /// Key of the agent that wrote the file, from [`CallContext::reader`].
    reader: String,
    /// Agent path of the writer, the agents from the root to it, separated by `/`; or `the user`.
    path: String,
    call: CallId,
    /// SHA-256 of the written content, in hex.
    content: String,
}

/// Version of a file that one agent knows.
#[derive(Debug)]
struct FileKnowledge {
    agent: String,
    /// SHA-256 of the content that the agent knows, in hex.
    content: String,
    /// The call with which the agent last read or wrote the file.
    call: CallId,
    shown: Vec<ShownPart>,
}

/// A part of a file that was shown to an agent by `call`.
#[derive(Debug)]
struct ShownPart {
    part: FilePart,
    text: [u8; 32],
    call: CallId,
    /// True if the agent requested this part again and got only a reference to `call`.
    named: bool,
}

/// Requested part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilePart {
    /// Lines: number of the first line, from 1, and number of lines.
    Lines(u64, u64),
    /// The whole file, as an image.
    Image,
}

impl ReadTable {
    /// Records that the agent of `call` reads `text`, which is the part `part` of the file at
    /// `path`. `content` is the hash of the whole file, or `None` if the file was not read to its
    /// end; then nothing is recorded.
    ///
    /// Returns the earlier call that has shown the agent the same text, so that a reference to it
    /// can replace the text. `None` if there is no such call or the text is shorter than
    /// `TEXT_BYTES_MIN`. A reference is returned only once: an agent that asks again has lost the
    /// text and gets it.
    pub(crate) fn read(
        &self,
        call: &CallContext,
        path: &Path,
        content: Option<String>,
        part: FilePart,
        text: &str,
    ) -> Option<CallId> {
        // A file that is too large to be hashed has no entry.
        let content = content?;
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        self.with(call, path, |seen| {
            if seen.content != content {
                seen.shown.clear();
                seen.content = content;
            }
            seen.call = call.call_id.clone();
            let known = seen.shown.iter_mut().find(|shown| shown.part == part);
            if let Some(known) = known {
                if known.text == hash && !known.named && text.len() >= TEXT_BYTES_MIN {
                    known.named = true;
                    return Some(known.call.clone());
                }
                (known.text, known.call, known.named) = (hash, call.call_id.clone(), false);
                return None;
            }
            if seen.shown.len() >= SLICES_MAX {
                seen.shown.remove(0);
            }
            let call = call.call_id.clone();
            seen.shown.push(ShownPart { part, text: hash, call, named: false });
            None
        })
    }

    /// Forgets which texts were shown to any agent, because after a compaction the model may no
    /// longer see them. The known file versions stay.
    pub(crate) fn forget_shown(&self) {
        for mut seen in self.files.iter_mut() {
            seen.iter_mut().for_each(|seen| seen.shown.clear());
        }
    }

    /// Locks the file at `path` against changes by other tool calls, until the guard is dropped.
    pub(crate) fn changing(&self, path: &Path) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let count = u64::try_from(CHANGING).unwrap_or(1);
        let nth = usize::try_from(hasher.finish() % count).unwrap_or(0);
        self.changing[nth].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Describes the origin of the version `content` of the file at `path`: the agent that wrote it
    /// and its call, or a change from outside. `content` is a SHA-256 in hex; `None` counts as a
    /// change from outside.
    pub(crate) fn last_writer(&self, path: &Path, content: Option<&str>) -> String {
        let written = self.written.get(path);
        match written.filter(|written| content.is_some_and(|content| written.content == content)) {
            Some(written) => format!("{} wrote it in {}", written.path, written.call),
            None => "it was changed from outside, by a person, a command or a program".to_owned(),
        }
    }

    /// Records that the agent of `call` wrote the file at `path`, and so knows its new version, of
    /// which nothing counts as shown. `content` is the SHA-256 of the new content in hex.
    pub(crate) fn wrote(&self, call: &CallContext, path: &Path, content: String) {
        self.note_write(call, path, content.clone());
        self.with(call, path, |seen| {
            seen.content = content;
            seen.call = call.call_id.clone();
            seen.shown.clear();
        });
    }

    fn note_write(&self, call: &CallContext, path: &Path, content: String) {
        if self.written.len() >= FILES_MAX && !self.written.contains_key(path) {
            self.written.clear();
        }
        let written = LastWrite {
            reader: call.reader().to_owned(),
            path: if call.by_user { "the user".to_owned() } else { call.origin.agent_path.clone() },
            call: call.call_id.clone(),
            content,
        };
        self.written.insert(path.to_owned(), written);
    }

    /// Records that the user has restored the file at `path` with `call`. Its agent, which is told of
    /// the restore, may change the file if it knew the file before. `content` is the SHA-256 of the
    /// restored content in hex.
    pub fn restored(&self, call: &CallContext, path: &Path, content: String) {
        let is_reader = |seen: &FileKnowledge| seen.agent == call.reader();
        if self.files.get(path).is_some_and(|all| all.iter().any(is_reader)) {
            return self.wrote(call, path, content);
        }
        self.note_write(call, path, content);
    }

    /// Fails if the agent of `call` may not change the file at `place`, whose content has the hash
    /// `content`.
    ///
    /// That is so if the agent has seen another version, or if it has seen none and another agent
    /// wrote this version. If `always` is true, it is also so if the agent has not read the file at
    /// all. The user may change every file.
    pub(crate) fn require(
        &self,
        call: &CallContext,
        place: &Located,
        content: &str,
        always: bool,
    ) -> Result<(), ToolError> {
        if call.by_user {
            return Ok(());
        }
        let shown = place.shown();
        let who = || self.last_writer(place.absolute(), Some(content));
        let all = self.files.get(place.absolute());
        let seen = all.as_ref().and_then(|all| all.iter().find(|seen| seen.agent == call.reader()));
        match seen {
            Some(seen) if seen.content == content => Ok(()),
            Some(FileKnowledge { call, .. }) => {
                let what = format!("{shown} changed since {call} saw it: {}; read it again", who());
                Err(ToolError::new("EDT004", what))
            }
            None if self.is_of_another(call, place.absolute(), content) => {
                let what = format!("you have not seen {shown} as it is: {}; read it first", who());
                Err(ToolError::new("EDT004", what))
            }
            None if always => {
                let why = format!("{shown} was not read yet; read it before changing it");
                Err(ToolError::new("EDT007", why))
            }
            None => Ok(()),
        }
    }

    /// Returns true if another agent than that of `call` wrote the version `content` of the file.
    fn is_of_another(&self, call: &CallContext, path: &Path, content: &str) -> bool {
        let written = self.written.get(path);
        written.is_some_and(|written| written.content == content && written.reader != call.reader())
    }

    fn with<T>(
        &self,
        call: &CallContext,
        path: &Path,
        act: impl FnOnce(&mut FileKnowledge) -> T,
    ) -> T {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(path) {
            self.files.clear();
        }
        let mut all = self.files.entry(path.to_owned()).or_default();
        let known = all.iter().position(|seen| seen.agent == call.reader());
        let at = known.unwrap_or_else(|| {
            if all.len() >= AGENTS_MAX {
                all.remove(0);
            }
            all.push(FileKnowledge {
                agent: call.reader().to_owned(),
                content: String::new(),
                call: call.call_id.clone(),
                shown: Vec::new(),
            });
            all.len() - 1
        });
        act(&mut all[at])
    }
}

#[cfg(test)]
mod tests;
