//! Commit that is checked out in a repository, and its branches. A command may delete both, because
//! git has to write there; then it is reported.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use memchr::memmem;
use posse_base::resolved_path::{FOLDER, open_beneath};

use crate::protect::ProtectedPath;
use crate::protect::committed::reference;
use crate::protect::place::{self, FILE, PlaceKind, Stat, is_timestamp_final};

/// Maximum size of `HEAD` and of the file of a branch in bytes.
const REFERENCE_BYTES_MAX: u64 = 4096;
/// Maximum size of `packed-refs` in bytes. With a larger one nothing is known.
const PACKED_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of entries that are listed in one folder.
const ENTRIES_MAX: usize = 10_000;
/// Maximum depth of folders of branches.
const DEPTH_MAX: usize = 16;

/// Commit of `HEAD`, and whether there are branches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeadCommit {
    /// Branch to which `HEAD` refers, such as `refs/heads/main`. `None`: it contains a commit.
    branch: Option<PathBuf>,
    commit: CommitState,
    has_branches: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitState {
    Found,
    /// The object of the commit is missing, or the text names no commit.
    Missing,
    /// `HEAD` refers to a branch that does not exist.
    Unborn,
    /// The commit may be elsewhere, or a limit was reached.
    Unknown,
}

impl HeadCommit {
    /// True if the commit of `HEAD` could be found `before` and cannot any more, also because its
    /// branch was deleted, or if all branches are gone.
    pub(super) fn is_lost_since(&self, before: &HeadCommit) -> bool {
        let is_lost = match self.commit {
            CommitState::Missing => true,
            // Not after `git checkout --orphan`.
            CommitState::Unborn => self.branch == before.branch,
            CommitState::Found | CommitState::Unknown => false,
        };
        is_lost && before.commit == CommitState::Found || before.has_branches && !self.has_branches
    }
}

/// Cache of the commit of `HEAD` of each repository, valid while the files from which it was read
/// are unchanged.
#[derive(Debug, Default)]
pub(super) struct HeadCommits(HashMap<ProtectedPath, KnownHead>);

#[derive(Debug)]
struct KnownHead {
    found: HeadCommit,
    sources: Vec<(PathBuf, Option<Stat>)>,
}

impl HeadCommits {
    /// Reads the state of the open `repository` at `key`, or takes the known one.
    pub(super) fn of(&mut self, key: &ProtectedPath, repository: &OwnedFd) -> HeadCommit {
        let now = |path: &Path| Stat::at(repository, path).ok();
        let is_same = |(path, stat): &(PathBuf, Option<Stat>)| *stat == now(path);
        if let Some(known) = self.0.get(key)
            && known.sources.iter().all(is_same)
        {
            return known.found.clone();
        }
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut reader = HeadReader { repository, sources: Vec::new() };
        let found = reader.read();
        let sources = reader.sources;
        let is_final = |stat: &Stat| is_timestamp_final(stat.changed, begin);
        if found.commit == CommitState::Found
            && sources.iter().all(|(_, stat)| stat.as_ref().is_none_or(is_final))
        {
            self.0.insert(key.clone(), KnownHead { found: found.clone(), sources });
        } else {
            self.0.remove(key);
        }
        found
    }

    /// Forgets all repositories but those for which `is_kept` is true.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&ProtectedPath) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }
}

struct HeadReader<'a> {
    repository: &'a OwnedFd,
    /// Files that were examined, with their status before.
    sources: Vec<(PathBuf, Option<Stat>)>,
}

impl HeadReader<'_> {
    fn read(&mut self) -> HeadCommit {
        let head = self.text(Path::new("HEAD"), REFERENCE_BYTES_MAX).unwrap_or_default();
        let branch = reference(&head);
        let own = branch.as_ref().map(|branch| self.text(branch, REFERENCE_BYTES_MAX));
        let first = match (&own, &branch) {
            (Some(Some(_)), Some(branch)) if branch.starts_with("refs/heads") => {
                Some(branch.clone())
            }
            _ => self.first_branch(Path::new("refs/heads"), 0),
        };
        let first = first.filter(|first| self.examine(first).is_some());
        let packed_path = Path::new("packed-refs");
        let is_needed = first.is_none() || own == Some(None);
        let has_packed = self.examine(packed_path).is_some();
        let packed = if has_packed && is_needed {
            self.bytes(packed_path, PACKED_BYTES_MAX)
        } else {
            Some(Vec::new())
        };
        let has_branches = first.is_some()
            || packed.as_ref().is_none_or(|refs| memmem::find(refs, b" refs/heads/").is_some());
        let commit = match (own, &branch, &packed) {
            (None, ..) => self.commit(&head),
            (Some(Some(text)), ..) => self.commit(&text),
            (_, Some(branch), Some(packed)) => match packed_commit(packed, branch) {
                Some(commit) => self.commit(&commit),
                None => CommitState::Unborn,
            },
            (Some(None), ..) => CommitState::Unknown,
        };
        HeadCommit { branch, commit, has_branches }
    }

    /// Returns and records the status of `path`.
    fn examine(&mut self, path: &Path) -> Option<Stat> {
        let stat = Stat::at(self.repository, path).ok();
        self.sources.push((path.to_owned(), stat));
        stat
    }

    fn text(&mut self, path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
        self.examine(path)?;
        self.bytes(path, bytes_max)
    }

    fn bytes(&self, path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
        let folder = open_beneath(self.repository, path.parent()?, FOLDER).ok()?;
        place::read(&folder, Path::new(path.file_name()?), bytes_max).ok()?
    }

    /// Any file below `folder`.
    fn first_branch(&self, folder: &Path, depth: usize) -> Option<PathBuf> {
        let opened = open_beneath(self.repository, folder, place::FOLDER).ok()?;
        let (listed, _) = place::list(&opened, ENTRIES_MAX).ok()?;
        let is_file = |entry: &&place::Listed| entry.kind == PlaceKind::File;
        if let Some(file) = listed.iter().find(is_file) {
            return Some(folder.join(&file.name));
        }
        let folders = listed.iter().filter(|entry| entry.kind == PlaceKind::Folder);
        let mut deeper = folders.filter(|_| depth < DEPTH_MAX);
        deeper.find_map(|entry| self.first_branch(&folder.join(&entry.name), depth + 1))
    }

    /// Searches the object of the commit that `text` names.
    fn commit(&mut self, text: &[u8]) -> CommitState {
        let name = text.trim_ascii();
        if name.starts_with(b"ref:") || self.examine(Path::new("commondir")).is_some() {
            return CommitState::Unknown;
        }
        let Some(hash) = hash_of(name) else { return CommitState::Missing };
        let (folder, file) = name.split_at(2);
        let objects = Path::new("objects");
        let below = |name: &[u8]| Path::new(std::ffi::OsStr::from_bytes(name)).to_owned();
        if self.examine(&objects.join(below(folder)).join(below(file))).is_some() {
            return CommitState::Found;
        }
        // The object was packed, which takes its file away. Later it is the pack that counts.
        self.sources.pop();
        let packs = objects.join("pack");
        let opened = open_beneath(self.repository, &packs, place::FOLDER);
        let listed = opened.and_then(|opened| Ok((place::list(&opened, ENTRIES_MAX)?, opened)));
        let mut is_known = Stat::at(self.repository, &objects.join("info/alternates")).is_err();
        let Ok(((listed, is_whole), opened)) = listed else {
            return if is_known { CommitState::Missing } else { CommitState::Unknown };
        };
        is_known &= is_whole;
        for entry in listed.iter().filter(|entry| entry.name.as_bytes().ends_with(b".pack")) {
            let index = Path::new(&entry.name).with_extension("idx");
            let file = open_beneath(&opened, &index, FILE).map(File::from);
            match file.ok().and_then(|file| holds(&file, &hash)) {
                Some(true) if self.examine(&packs.join(&entry.name)).is_some() => {
                    self.examine(&packs.join(index));
                    return CommitState::Found;
                }
                Some(_) => {}
                None => is_known = false,
            }
        }
        if is_known { CommitState::Missing } else { CommitState::Unknown }
    }
}

/// Commit of `branch` in the content of `packed-refs`.
fn packed_commit(packed: &[u8], branch: &Path) -> Option<Vec<u8>> {
    let branch = branch.as_os_str().as_bytes();
    let mut lines = packed.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let commit = line.strip_suffix(branch)?.strip_suffix(b" ")?;
        Some(commit.to_owned())
    })
}

/// Bytes of a SHA-1 or SHA-256 in hexadecimal text.
fn hash_of(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok().filter(|text| matches!(text.len(), 40 | 64))?;
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).ok();
    is_hex.then(|| (0..text.len()).step_by(2).map(byte).collect())?
}

/// True if the index of a pack, of version 2, lists the object `hash`. `None` if it cannot be read.
/// Format: <https://git-scm.com/docs/gitformat-pack>.
fn holds(index: &File, hash: &[u8]) -> Option<bool> {
    const BEGIN: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
    const COUNTS: u64 = 8;
    const HASHES: u64 = COUNTS + 256 * 4;
    let read = |at: u64, into: &mut [u8]| index.read_exact_at(into, at).ok();
    let mut begin = [0; 8];
    read(0, &mut begin)?;
    if begin != BEGIN {
        return None;
    }
    // Number of objects whose first byte is at most `byte`.
    let count = |byte: u8| {
        let mut bytes = [0; 4];
        read(COUNTS + u64::from(byte) * 4, &mut bytes)?;
        Some(u64::from(u32::from_be_bytes(bytes)))
    };
    let first = *hash.first()?;
    let (mut low, mut high) = (first.checked_sub(1).map_or(Some(0), count)?, count(first)?);
    let mut found = vec![0; hash.len()];
    while low < high {
        let middle = low + (high - low) / 2;
        read(HASHES + middle * hash.len() as u64, &mut found)?;
        match found.as_slice().cmp(hash) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => return Some(true),
        }
    }
    Some(false)
}
