//! State of a protected name, for comparison and restoration.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::openat;
use nix::sys::stat::Mode;
use nix::unistd::symlinkat;

use crate::protect::packed_refs;
use crate::protect::place::{self, FOLDER, Identity, PlaceKind, Stat, is_timestamp_final};

/// Maximum size of a stored file in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;
/// Number of bytes of all stored files from which no further file is stored. The last one may
/// exceed it.
const ALL_BYTES_MAX: usize = 8 << 20;
/// Maximum number of stored entries of one protected folder, with everything below it. Folders
/// below it whose entries exceed the limit are not stored.
const ENTRIES_MAX: usize = 4096;
/// Maximum depth of stored entries within a protected folder.
pub(super) const DEPTH_MAX: usize = 16;
/// Maximum number of entries below a folder that is not stored whose changes are noticed.
const NOTICED_MAX: usize = 100_000;
/// Maximum depth below a folder that is not stored at which changes are noticed.
const NOTICED_DEPTH_MAX: usize = 200;

/// State of a file, link or folder, with everything below it.
#[derive(Debug, Clone)]
pub(super) enum State {
    File {
        stat: Stat,
        copy: Option<Arc<[u8]>>,
    },
    Link {
        target: OsString,
    },
    Folder {
        mode: u32,
        entries: BTreeMap<PathBuf, State>,
    },
    /// A folder that is not stored because it is too large or too deep. Its changes are noticed, but
    /// it cannot be restored.
    LargeFolder {
        /// Digest of the names, identities, sizes and times of everything below. `None` is equal to
        /// any: a tool of posse changed the folder.
        digest: Option<u64>,
    },
    /// A pipe, socket or device, or a link or folder that cannot be read.
    Other {
        stat: Stat,
    },
}

impl State {
    /// True if this earlier state and the later one have equal content. Permissions count for files,
    /// not for folders. Files of which one has no stored bytes are equal if identity, time of change
    /// and size are. A file with a new hard link is another one: programs may write it under that
    /// name. Pipes, sockets, devices and what cannot be read are equal if identity and kind are.
    pub(super) fn is_same(&self, other: &State) -> bool {
        match (self, other) {
            (State::File { stat: a, copy: first }, State::File { stat: b, copy: second }) => {
                let same_bits = a.mode == b.mode;
                let same_bytes = match (first, second) {
                    (Some(first), Some(second)) => first == second,
                    _ => a.identity == b.identity && a.changed == b.changed && a.size == b.size,
                };
                same_bits && same_bytes && !is_linked_anew(a, b)
            }
            (State::Link { target: first }, State::Link { target: second }) => first == second,
            (State::Folder { entries: first, .. }, State::Folder { entries: second, .. }) => {
                let pairs = || first.iter().zip(second);
                first.len() == second.len()
                    && pairs().all(|((a, one), (b, other))| a == b && one.is_same(other))
            }
            (State::LargeFolder { digest: first }, State::LargeFolder { digest: second }) => {
                first == second || first.is_none() || second.is_none()
            }
            (State::Other { stat: a }, State::Other { stat: b }) => {
                a.identity == b.identity && a.kind == b.kind
            }
            _ => false,
        }
    }

    /// True if it is or contains a file with several hard links, whose content can change under
    /// another name.
    pub(super) fn has_links(&self) -> bool {
        match self {
            State::File { stat, .. } => stat.links > 1,
            State::Folder { entries, .. } => entries.values().any(State::has_links),
            State::LargeFolder { .. } => true,
            State::Link { .. } | State::Other { .. } => false,
        }
    }

    /// True if a file in it changed at `time` or later, or if that is unknown: for links and folders
    /// in a folder.
    pub(super) fn has_changed_since(&self, time: (i64, i64)) -> bool {
        match self {
            State::File { stat, .. } | State::Other { stat } => stat.changed >= time,
            State::Link { .. } => false,
            State::Folder { entries, .. } => entries.values().any(|entry| match entry {
                State::Link { .. } | State::Folder { .. } => true,
                entry => entry.has_changed_since(time),
            }),
            State::LargeFolder { .. } => true,
        }
    }

    /// True if this is a file that got another hard link since the earlier state `before`.
    pub(super) fn is_linked_since(&self, before: &State) -> bool {
        match (before, self) {
            (State::File { stat: old, .. }, State::File { stat: new, .. }) => {
                is_linked_anew(old, new)
            }
            _ => false,
        }
    }

    pub(super) fn empty_folder() -> State {
        State::Folder { mode: 0o755, entries: BTreeMap::new() }
    }

    /// Sets the state of `path` below this folder, or removes `path` if `state` is `None`. Missing
    /// folders in between are created. Anything else than a folder, here or in between, becomes
    /// one. Folders more than `depth` levels below this one are not stored.
    pub(super) fn set(&mut self, path: &Path, state: Option<State>, depth: usize) {
        if depth == 0 || matches!(self, State::LargeFolder { .. }) {
            *self = State::LargeFolder { digest: None };
            return;
        }
        let mut parts = path.components();
        let Some(first) = parts.next() else { return };
        let rest = parts.as_path();
        if !self.is_folder() {
            *self = State::empty_folder();
        }
        let State::Folder { entries, .. } = self else { return };
        let name = PathBuf::from(first.as_os_str());
        match (rest.as_os_str().is_empty(), state) {
            (true, Some(state)) => drop(entries.insert(name, state)),
            (true, None) => drop(entries.remove(&name)),
            (false, state) => {
                let below = entries.entry(name).or_insert_with(State::empty_folder);
                below.set(rest, state, depth - 1);
            }
        }
    }

    pub(super) fn is_folder(&self) -> bool {
        matches!(self, State::Folder { .. } | State::LargeFolder { .. })
    }

    /// True if everything is stored, so that it can be restored.
    pub(super) fn is_stored(&self) -> bool {
        match self {
            State::File { copy, .. } => copy.is_some(),
            State::Link { .. } => true,
            State::Folder { entries, .. } => entries.values().all(State::is_stored),
            State::LargeFolder { .. } | State::Other { .. } => false,
        }
    }
}

/// True if a file got another hard link, or one of several may have been replaced by another.
fn is_linked_anew(old: &Stat, new: &Stat) -> bool {
    let is_same_file = old.identity == new.identity && old.changed == new.changed;
    new.links > 1 && !(is_same_file && new.links <= old.links)
}

/// Reads states, and caches the bytes of unchanged files.
#[derive(Debug, Default)]
pub(super) struct FileStateReader {
    /// True if the cache must not be used: a process can change a file that it has mapped without
    /// a change of the times.
    pub(super) reads_again: bool,
    copies: HashMap<Identity, Copied>,
    bytes: usize,
    /// Key of the digests of folders.
    key: RandomState,
    /// Number of surveys so far. Bytes that were not used since the last but one survey are
    /// dropped.
    round: u64,
}

#[derive(Debug)]
struct Copied {
    changed: (i64, i64),
    size: u64,
    bytes: Arc<[u8]>,
    round: u64,
}

impl FileStateReader {
    /// Drops the bytes that were not used since the last but one survey. Called once per survey.
    pub(super) fn drop_unused(&mut self) {
        self.round += 1;
        let round = self.round;
        self.copies.retain(|_, copied| copied.round + 2 >= round);
        self.bytes = self.copies.values().map(|copied| copied.bytes.len()).sum();
    }

    /// Makes the cache take the file at `path` for the one with the earlier `metadata`, as after a
    /// change through a mapping.
    #[cfg(test)]
    pub(super) fn pretend_unchanged(&mut self, path: &Path, metadata: &std::fs::Metadata) {
        use std::os::unix::fs::MetadataExt;

        let now = std::fs::metadata(path).unwrap();
        assert_eq!((now.ino(), now.len()), (metadata.ino(), metadata.len()));
        for copied in self.copies.values_mut() {
            if copied.changed == (metadata.ctime(), metadata.ctime_nsec()) {
                copied.changed = (now.ctime(), now.ctime_nsec());
            }
        }
    }

    /// Reads the state of `name` in `folder`. Folders that are stored in its earlier state `before`
    /// are stored, and those that are not are not, so that the two can be compared. `None` if it
    /// does not exist or cannot be examined.
    pub(super) fn state(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        before: Option<&State>,
    ) -> Option<State> {
        let mut left = ENTRIES_MAX;
        self.state_below(folder, name, before, DEPTH_MAX, &mut left)
    }

    fn state_below(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        before: Option<&State>,
        depth: usize,
        left: &mut usize,
    ) -> Option<State> {
        let stat = Stat::at(folder, name).ok()?;
        Some(match stat.kind {
            PlaceKind::File => State::File { stat, copy: self.copy(folder, name, stat) },
            PlaceKind::Link => match place::link_target(folder, name) {
                Ok(target) => State::Link { target },
                Err(_) => State::Other { stat },
            },
            PlaceKind::Folder => match openat(folder, name, FOLDER, Mode::empty()) {
                Ok(opened) => {
                    let listed = self.folder(&opened, stat.mode, before, depth, left);
                    listed.unwrap_or(State::Other { stat })
                }
                Err(_) => State::Other { stat },
            },
            PlaceKind::Other => State::Other { stat },
        })
    }

    /// Reads the content of a folder. Fails if it cannot be listed: it must not count as empty.
    fn folder(
        &mut self,
        opened: &OwnedFd,
        mode: u32,
        before: Option<&State>,
        depth: usize,
        left: &mut usize,
    ) -> Result<State, Errno> {
        let known = match before {
            Some(State::LargeFolder { .. }) => return Ok(self.large_folder(opened)),
            Some(State::Folder { entries, .. }) => Some(entries),
            _ => None,
        };
        // A command must not make a stored folder one that is not by filling others.
        let entries_max = *left + known.map_or(0, |known| known.len() + ENTRIES_MAX);
        if depth == 0 && known.is_none() {
            return Ok(self.large_folder(opened));
        }
        let (listed, is_all) = place::list(opened, entries_max)?;
        if !is_all {
            return Ok(self.large_folder(opened));
        }
        *left -= listed.len().min(*left);
        let mut entries = BTreeMap::new();
        for entry in listed {
            let name = PathBuf::from(entry.name);
            let before = known.and_then(|known| known.get(&name));
            let depth = depth.saturating_sub(1);
            if let Some(state) = self.state_below(opened, &name, before, depth, left) {
                entries.insert(name, state);
            }
        }
        Ok(State::Folder { mode, entries })
    }

    fn large_folder(&self, opened: &OwnedFd) -> State {
        let mut left = NOTICED_MAX;
        State::LargeFolder {
            digest: Some(self.digest(opened, Path::new(""), NOTICED_DEPTH_MAX, &mut left)),
        }
    }

    /// Digest of everything in the folder `opened`, whose path below the digested folder is `path`.
    /// It does not depend on the order of the entries.
    fn digest(&self, opened: &OwnedFd, path: &Path, depth: usize, left: &mut usize) -> u64 {
        let Ok((listed, _)) = place::list(opened, *left) else { return 0 };
        *left -= listed.len();
        let mut digest: u64 = 0;
        for entry in listed {
            let name = Path::new(&entry.name);
            let Ok(stat) = Stat::at(opened, name) else { continue };
            let path = path.join(name);
            if stat.kind == PlaceKind::Folder {
                // The times of folders alter with files that do not matter.
                digest = digest.wrapping_add(self.key.hash_one((&path, stat.identity)));
                if depth > 0
                    && let Ok(below) = openat(opened, name, FOLDER, Mode::empty())
                {
                    digest = digest.wrapping_add(self.digest(&below, &path, depth - 1, left));
                }
            } else {
                let state = (&path, stat.identity, stat.size, stat.mode, stat.changed);
                digest = digest.wrapping_add(self.key.hash_one(state));
            }
        }
        digest
    }

    /// Returns the lines of `packed-refs` with references that replace objects, from the cache if the
    /// file is unchanged. `None` if the file is too large or cannot be read.
    pub(super) fn replacements(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        stat: Stat,
    ) -> Option<Arc<[u8]>> {
        let bytes_max = packed_refs::BYTES_MAX;
        if !self.reads_again
            && let Some(known) = self.cached(stat)
        {
            return Some(known);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let bytes = place::read(folder, name, bytes_max).ok().flatten()?;
        Some(self.store(stat, now, packed_refs::replacements(&bytes).into()))
    }

    /// Returns the stored bytes of a file, if the file is unchanged.
    fn cached(&mut self, stat: Stat) -> Option<Arc<[u8]>> {
        let known = self.copies.get_mut(&stat.identity)?;
        let is_same = known.changed == stat.changed && known.size == stat.size;
        known.round = if is_same { self.round } else { known.round };
        is_same.then(|| Arc::clone(&known.bytes))
    }

    /// Stores the bytes of a file that was read after `now`, unless a later change might not alter its
    /// time.
    fn store(&mut self, stat: Stat, now: Duration, bytes: Arc<[u8]>) -> Arc<[u8]> {
        if is_timestamp_final(stat.changed, now) {
            self.bytes += bytes.len();
            let (changed, size, round) = (stat.changed, stat.size, self.round);
            let copied = Copied { changed, size, bytes: Arc::clone(&bytes), round };
            if let Some(old) = self.copies.insert(stat.identity, copied) {
                self.bytes -= old.bytes.len();
            }
        }
        bytes
    }

    /// Returns the bytes of a file, from the cache if the file is unchanged. `None` if the file is
    /// too large or cannot be read, or if too many bytes are stored already.
    fn copy(&mut self, folder: &OwnedFd, name: &Path, stat: Stat) -> Option<Arc<[u8]>> {
        if !self.reads_again
            && let Some(known) = self.cached(stat)
        {
            return Some(known);
        }
        if stat.size > FILE_BYTES_MAX || self.bytes > ALL_BYTES_MAX {
            return None;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let bytes: Arc<[u8]> = place::read(folder, name, FILE_BYTES_MAX).ok().flatten()?.into();
        Some(self.store(stat, now, bytes))
    }
}

/// Creates `name` in `folder` with the given state. The name must not exist, unless both are files
/// or both are folders. Fails with `EFBIG` if the content was not stored or this kind of file
/// cannot be created again; then a folder is restored in part.
pub(super) fn restore(folder: &OwnedFd, name: &Path, state: &State) -> Result<(), Errno> {
    match state {
        State::File { stat, copy: Some(copy) } => {
            place::replace_file(folder, name, copy, stat.mode)
        }
        State::Link { target } => symlinkat(target.as_os_str(), folder, name),
        State::Folder { mode, entries } => {
            let opened = place::make_folder(folder, name, *mode)?;
            let restored = entries.iter().map(|(name, state)| restore(&opened, name, state));
            // An entry that cannot be restored does not keep the others from it.
            restored.fold(Ok(()), Result::and)
        }
        // Too large to be stored, or a kind of file that cannot be created again.
        State::File { copy: None, .. } | State::LargeFolder { .. } | State::Other { .. } => {
            Err(Errno::EFBIG)
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::open;

    use super::*;

    #[test]
    fn folder_that_cannot_be_listed_is_not_empty() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open(dir.path(), FOLDER, Mode::empty()).unwrap();
        let mut reader = FileStateReader::default();
        let empty = reader.folder(&opened, 0o700, None, DEPTH_MAX, &mut 9).unwrap();
        assert!(matches!(&empty, State::Folder { entries, .. } if entries.is_empty()));
        let file = std::fs::File::create(dir.path().join("file")).unwrap();
        assert!(reader.folder(&file.into(), 0o700, None, DEPTH_MAX, &mut 9).is_err());
    }
}
