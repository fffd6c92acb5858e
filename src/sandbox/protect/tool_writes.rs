//! Registry of permitted writes of posse's own tools while commands run, so that a check does not
//! attribute the writes to a command.
//!
//! A tool takes [exclusive access](ToolWrites::begin_write), changes a file, and records the
//! result. Surveys and checks exclude tools that write, and tools exclude surveys and checks. So a
//! check sees a change together with its record, or neither. A record is kept as long as a command
//! runs whose survey is older; if no such command runs, nothing is recorded.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use posse_base::protected::{self, Class};

use crate::protect::baseline::{Baseline, BaselineItem, depends_on_parent};
use crate::protect::place::{Identity, PlaceKind, Stat};
use crate::protect::sort::{ProtectedItem, Sort};
use crate::protect::state::{self, State};
use crate::protect::{GuardState, ProtectedPath};

/// Maximum number of bytes of paths and contents in the registry. A content that does not fit is
/// not stored; the paths of protected files are recorded even beyond it.
const BYTES_MAX: usize = 8 << 20;
/// Number of bytes in the registry up to which writes to unprotected paths are recorded. Git
/// settings can turn an unprotected file into a hook.
const ORDINARY_BYTES_MAX: usize = BYTES_MAX / 2;

/// Registry of writes by the tools of this process. Clones share one registry.
#[derive(Debug, Clone, Default)]
pub struct ToolWrites(Arc<RwLock<Log>>);

#[derive(Debug, Default)]
pub(super) struct Log {
    /// Number of the last record.
    last: u64,
    /// Reference count: each [`Since`] holds a clone. Without any, no check will query later
    /// writes.
    asked: Arc<()>,
    records: BTreeMap<PathBuf, Record>,
    bytes: usize,
}

/// Last change of one path by a tool: a write or a removal.
#[derive(Debug)]
struct Record {
    number: u64,
    /// Identity and state of the written file. `None` if the tool removed the file.
    made: Option<(Identity, State)>,
    /// Identities of the parent folders when the tool wrote, the nearest first.
    around: Vec<Option<Identity>>,
    bytes: usize,
    /// True if the file was in a repository when the tool wrote.
    in_repository: bool,
}

/// Position in the log. A check queries the writes after it.
#[derive(Debug, Clone)]
pub(super) struct Since {
    number: u64,
    _asks: Arc<()>,
}

/// Exclusive access of one tool: meanwhile no survey or check runs, and no other tool writes.
#[derive(Debug)]
pub struct Writing<'a>(RwLockWriteGuard<'a, Log>);

impl ToolWrites {
    /// Blocks until no survey or check runs and no other tool writes. Record the write before
    /// dropping the result.
    #[must_use]
    pub fn begin_write(&self) -> Writing<'_> {
        Writing(self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Excludes tools that write, until the result is dropped. For a survey or check.
    pub(super) fn lock_for_scan(&self) -> RwLockReadGuard<'_, Log> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a survey would not have to wait for a tool.
    pub(super) fn is_free(&self) -> bool {
        self.0.try_read().is_ok()
    }
}

impl Writing<'_> {
    /// Records that `path`, absolute and without links, is now the file described by `metadata`,
    /// with exactly `bytes` and the permissions `mode`. Records nothing if no check will query it,
    /// or an unprotected path does not fit.
    pub fn wrote(&mut self, path: &Path, metadata: &Metadata, mode: u32, bytes: &[u8]) {
        if !self.is_asked() {
            return;
        }
        let identity = identity_of(metadata);
        let stat = Stat {
            identity,
            kind: PlaceKind::File,
            mode: mode & 0o7777,
            size: bytes.len() as u64,
            links: metadata.nlink(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        };
        let room = BYTES_MAX.saturating_sub(self.0.bytes);
        let is_kept = bytes.len() as u64 <= state::FILE_BYTES_MAX && bytes.len() <= room;
        let copy = is_kept.then(|| Arc::from(bytes));
        self.note(path, Some((identity, State::File { stat, copy })));
    }

    /// Records that `path` does not exist any more.
    pub fn removed(&mut self, path: &Path) {
        if self.is_asked() {
            self.note(path, None);
        }
    }

    /// True if a check will query later writes. If not, drops all records.
    fn is_asked(&mut self) -> bool {
        let is_asked = Arc::strong_count(&self.0.asked) > 1;
        if !is_asked {
            self.0.records.clear();
            self.0.bytes = 0;
        }
        is_asked
    }

    fn note(&mut self, path: &Path, made: Option<(Identity, State)>) {
        let log = &mut *self.0;
        log.last += 1;
        let content = match &made {
            Some((_, State::File { copy: Some(copy), .. })) => copy.len(),
            _ => 0,
        };
        let bytes = path.as_os_str().len() + content;
        if let Some(old) = log.records.remove(path) {
            log.bytes -= old.bytes;
        }
        let is_ordinary = !protected::is_protected(&path.to_string_lossy());
        if is_ordinary && log.bytes + bytes > ORDINARY_BYTES_MAX {
            return;
        }
        let identity = |folder: &Path| fs::symlink_metadata(folder).ok().as_ref().map(identity_of);
        let around = path.ancestors().skip(1).map(identity).collect();
        log.bytes += bytes;
        let record =
            Record { number: log.last, made, around, bytes, in_repository: is_in_repository(path) };
        log.records.insert(path.to_owned(), record);
    }
}

/// True if `path` is in a folder that git accepts as a repository now.
fn is_in_repository(path: &Path) -> bool {
    let is_repository = |folder: &Path| {
        let exists = |name: &str| {
            let name = if name == "head" { "HEAD" } else { name };
            folder.join(name).symlink_metadata().is_ok()
        };
        let is_dot_git =
            folder.file_name().is_some_and(|name| protected::is_dot_git(name.as_encoded_bytes()));
        is_dot_git || protected::is_repository(exists)
    };
    path.ancestors().skip(1).any(is_repository)
}

fn identity_of(metadata: &Metadata) -> Identity {
    Identity { device: metadata.dev(), inode: metadata.ino() }
}

impl Log {
    /// Returns the current position in the log.
    pub(super) fn since(&self) -> Since {
        Since { number: self.last, _asks: Arc::clone(&self.asked) }
    }

    fn after(&self, since: &Since) -> impl Iterator<Item = (&PathBuf, &Record)> {
        let number = since.number;
        self.records.iter().filter(move |(_, record)| record.number > number)
    }
}

impl GuardState {
    /// Returns a copy of `baseline` that includes the writes of posse's own tools since then.
    /// `None` if none of them concerns a protected name.
    pub(super) fn with_written(
        &self,
        baseline: &Baseline,
        log: &Log,
        now: &BTreeMap<ProtectedPath, BaselineItem>,
    ) -> Option<Baseline> {
        let mut amended: Option<Baseline> = None;
        for (path, record) in log.after(&baseline.since) {
            for (at, watched) in self.roots.iter().enumerate() {
                let below = path.strip_prefix(&watched.root.path).ok();
                let Some(below) = below.filter(|_| !watched.is_out_of_reach) else { continue };
                let items = amended.as_ref().map_or(&baseline.items, |amended| &amended.items);
                if let Some((key, sort)) =
                    protected_name_of(at, &watched.root.path, below, (items, now), record)
                {
                    let amended = amended.get_or_insert_with(|| baseline.clone());
                    amend(&mut amended.items, key, sort, below, record);
                }
            }
        }
        amended
    }
}

/// Returns the location and kind of the protected name that is `below` in `root` or one of its
/// parents. `None` if no name is protected.
fn protected_name_of(
    at: usize,
    root: &Path,
    below: &Path,
    (items, now): (&HashMap<ProtectedPath, BaselineItem>, &BTreeMap<ProtectedPath, BaselineItem>),
    record: &Record,
) -> Option<(ProtectedPath, Sort)> {
    // A command that makes a repository of a folder must not turn ordinary files, which were written
    // without a question, into settings that a person has permitted.
    let present = |key: &ProtectedPath| now.get(key).filter(|_| record.in_repository);
    let mut folder = PathBuf::new();
    let mut may_be_named = true;
    for part in below {
        let above = folder.file_name().or(root.file_name()).unwrap_or_default().to_owned();
        folder.push(part);
        let key: ProtectedPath = (at, folder.as_path().into());
        if let Some(known) = items.get(&key).or_else(|| present(&key)) {
            if known.state.is_some() {
                return Some((key, known.sort));
            }
            // The role of a name in a repository does not depend on the name alone.
            may_be_named = false;
        }
        may_be_named &= !protected::is_vendored(part.as_encoded_bytes());
        match protected::class_of(above.as_encoded_bytes(), part.as_encoded_bytes()) {
            Some(Class::Git) if protected::is_dot_git(part.as_encoded_bytes()) => {
                may_be_named = false;
            }
            None if may_be_named && folder.parent() == Some(Path::new("")) => {
                if let Some(class) = protected::class_of_folder(root) {
                    return Some((key, Sort::Name(class)));
                }
            }
            Some(class) if may_be_named => return Some((key, Sort::Name(class))),
            _ => {}
        }
    }
    None
}

/// Applies `record`, a write to `below`, to `items`. `key` is `below` or one of its parents.
fn amend(
    items: &mut HashMap<ProtectedPath, BaselineItem>,
    key: ProtectedPath,
    sort: Sort,
    below: &Path,
    record: &Record,
) {
    let rest = below.strip_prefix(&key.1).unwrap_or(Path::new(""));
    let depth = rest.components().count();
    // Folders from the file up to the root.
    let around = |up: usize| record.around.get(up).copied().flatten();
    let state = record.made.as_ref().map(|(_, state)| state.clone());
    let (identity, state) = if depth == 0 {
        let Some((identity, _)) = record.made else {
            items.remove(&key);
            return;
        };
        (identity, state)
    } else if let Some(known) = items.get_mut(&key) {
        if let Some(folder) = &mut known.state {
            folder.set(rest, state, state::DEPTH_MAX);
        }
        return;
    } else {
        let Some(identity) = around(depth - 1) else { return };
        let mut folder = State::empty_folder();
        folder.set(rest, state, state::DEPTH_MAX);
        (identity, Some(folder))
    };
    // A mount over the old file was removed with it.
    let (birth, is_mounted, is_doubtful, parent) = (None, false, false, around(depth));
    let item = ProtectedItem { path: Arc::clone(&key.1), sort };
    let above = depends_on_parent(&item).then(|| around(depth + 1)).flatten();
    let item =
        BaselineItem { sort, state, identity, birth, parent, above, is_mounted, is_doubtful };
    items.insert(key, item);
}
