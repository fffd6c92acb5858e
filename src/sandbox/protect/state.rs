//! State of a protected name, for comparison and restoration.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::openat;
use nix::sys::stat::Mode;
use nix::unistd::symlinkat;

use crate::protect::place::{self, FOLDER, Identity, PlaceKind, Stat};
use crate::protect::scan::is_timestamp_final;

/// Maximum size of a stored file in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;
/// Number of bytes of all stored files from which no further file is stored. The last one may
/// exceed it.
const ALL_BYTES_MAX: usize = 8 << 20;
/// Maximum number of stored entries of one protected folder, with everything below it.
const ENTRIES_MAX: usize = 4096;
/// Maximum depth of stored entries within a protected folder.
pub(super) const DEPTH_MAX: usize = 16;

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
        is_whole: bool,
    },
    /// A pipe, socket or device, or a link or folder that cannot be read.
    Other {
        stat: Stat,
    },
}

impl State {
    /// True if both have equal content. Permissions count for files, not for folders. Files of
    /// which one has no stored bytes are equal if identity, time of change and size are. Pipes,
    /// sockets, devices and what cannot be read are equal if identity and kind are.
    pub(super) fn is_same(&self, other: &State) -> bool {
        match (self, other) {
            (State::File { stat: a, copy: first }, State::File { stat: b, copy: second }) => {
                let same_bits = a.mode == b.mode;
                let same_bytes = match (first, second) {
                    (Some(first), Some(second)) => first == second,
                    _ => a.identity == b.identity && a.changed == b.changed && a.size == b.size,
                };
                same_bits && same_bytes
            }
            (State::Link { target: first }, State::Link { target: second }) => first == second,
            (
                State::Folder { entries: first, is_whole: a, .. },
                State::Folder { entries: second, is_whole: b, .. },
            ) => {
                let pairs = || first.iter().zip(second);
                a == b
                    && first.len() == second.len()
                    && pairs().all(|((a, one), (b, other))| a == b && one.is_same(other))
            }
            (State::Other { stat: a }, State::Other { stat: b }) => {
                a.identity == b.identity && a.kind == b.kind
            }
            _ => false,
        }
    }

    pub(super) fn empty_folder() -> State {
        State::Folder { mode: 0o755, entries: BTreeMap::new(), is_whole: true }
    }

    /// Sets the state of `path` below this folder, or removes `path` if `state` is `None`. Missing
    /// folders in between are created. Anything else than a folder, here or in between, becomes
    /// one.
    pub(super) fn set(&mut self, path: &Path, state: Option<State>) {
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
                entries.entry(name).or_insert_with(State::empty_folder).set(rest, state);
            }
        }
    }

    pub(super) fn is_folder(&self) -> bool {
        matches!(self, State::Folder { .. })
    }
}

/// Reads states, and caches the bytes of unchanged files.
#[derive(Debug, Default)]
pub(super) struct FileStateReader {
    /// True if the cache must not be used: a process can change a file that it has mapped without
    /// a change of the times.
    pub(super) reads_again: bool,
    copies: HashMap<Identity, Copied>,
    bytes: usize,
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

    /// Reads the state of `name` in `folder`. `None` if it does not exist or cannot be examined.
    pub(super) fn state(&mut self, folder: &OwnedFd, name: &Path) -> Option<State> {
        let mut left = ENTRIES_MAX;
        self.state_below(folder, name, DEPTH_MAX, &mut left)
    }

    fn state_below(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
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
                Ok(opened) => self.folder(&opened, stat.mode, depth, left),
                Err(_) => State::Other { stat },
            },
            PlaceKind::Other => State::Other { stat },
        })
    }

    fn folder(&mut self, opened: &OwnedFd, mode: u32, depth: usize, left: &mut usize) -> State {
        let mut entries = BTreeMap::new();
        let mut is_whole = depth > 0;
        if is_whole && let Ok((listed, all)) = place::list(opened, *left) {
            is_whole = all;
            *left -= listed.len().min(*left);
            for entry in listed {
                let name = PathBuf::from(entry.name);
                if let Some(state) = self.state_below(opened, &name, depth - 1, left) {
                    entries.insert(name, state);
                }
            }
        }
        State::Folder { mode, entries, is_whole }
    }

    /// Returns the bytes of a file, from the cache if the file is unchanged. `None` if the file is
    /// too large or cannot be read, or if too many bytes are stored already.
    fn copy(&mut self, folder: &OwnedFd, name: &Path, stat: Stat) -> Option<Arc<[u8]>> {
        let round = self.round;
        if !self.reads_again
            && let Some(known) = self.copies.get_mut(&stat.identity)
            && known.changed == stat.changed
            && known.size == stat.size
        {
            known.round = round;
            return Some(Arc::clone(&known.bytes));
        }
        if stat.size > FILE_BYTES_MAX || self.bytes > ALL_BYTES_MAX {
            return None;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let bytes: Arc<[u8]> = place::read(folder, name, FILE_BYTES_MAX).ok().flatten()?.into();
        if is_timestamp_final(stat.changed, now) {
            self.bytes += bytes.len();
            let (changed, size) = (stat.changed, stat.size);
            let copied = Copied { changed, size, bytes: Arc::clone(&bytes), round };
            if let Some(old) = self.copies.insert(stat.identity, copied) {
                self.bytes -= old.bytes.len();
            }
        }
        Some(bytes)
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
        State::Folder { mode, entries, .. } => {
            let opened = place::make_folder(folder, name, *mode)?;
            for (name, state) in entries {
                restore(&opened, name, state)?;
            }
            Ok(())
        }
        // Too large to be stored, or a kind of file that cannot be created again.
        State::File { copy: None, .. } | State::Other { .. } => Err(Errno::EFBIG),
    }
}
