//! Commit that is checked out in a repository, and its branches. A command may delete or damage both,
//! because git has to write there; then it is reported.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
/// Maximum number of branches whose commits are remembered for one repository.
const BRANCHES_MAX: usize = 16;
/// Maximum size of the file of a commit in bytes. The content of a larger one is not compared.
const OBJECT_BYTES_MAX: u64 = 256 << 10;
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
    /// Existing commits that `HEAD` named on other branches, when earlier commands started.
    earlier: Vec<CommitObject>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CommitState {
    Found(CommitObject),
    /// The object of the commit is missing or no object, or the text names no commit.
    Missing,
    /// `HEAD` refers to a branch that does not exist.
    Unborn,
    /// The commit may be elsewhere, or a limit was reached.
    Unknown,
}

/// A commit that exists in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommitObject {
    hash: Vec<u8>,
    /// Content of its own file. `None`: it is in a pack, or the file is too large.
    content: Option<Arc<[u8]>>,
}

impl CommitObject {
    /// True if this is a file with another content than the file of the same object `before`. git
    /// never changes it.
    fn is_damaged(&self, before: &CommitObject) -> bool {
        let contents = self.content.as_ref().zip(before.content.as_ref());
        contents.is_some_and(|(now, before)| now != before)
    }
}

impl HeadCommit {
    /// True if `repository` has lost one of these:
    /// - the commit that `HEAD` named `before`, whatever `HEAD` names now;
    /// - a commit that `HEAD` named on another branch before an earlier command;
    /// - the branch that `HEAD` names, or on an unborn one, the branch of `before`;
    /// - all branches.
    pub(super) fn is_lost_since(&self, before: &HeadCommit, repository: &OwnedFd) -> bool {
        if before.has_branches && !self.has_branches {
            return true;
        }
        let mut reader = HeadReader { repository, sources: Vec::new() };
        if before.earlier.iter().any(|known| reader.is_gone(known)) {
            return true;
        }
        let CommitState::Found(known) = &before.commit else { return false };
        let is_cut_off = match &self.commit {
            CommitState::Missing => true,
            // Not after `git checkout --orphan`, which leaves the other branch.
            CommitState::Unborn => {
                self.branch == before.branch
                    || before.branch.as_ref().is_some_and(|branch| reader.has_lost(branch))
            }
            CommitState::Found(now) if now.hash == known.hash => return now.is_damaged(known),
            CommitState::Found(_) | CommitState::Unknown => false,
        };
        is_cut_off || reader.is_gone(known)
    }
}

/// Commits of `HEAD` of each repository.
#[derive(Debug, Default)]
pub(super) struct HeadCommits {
    /// Cache, valid while the files from which it was read are unchanged.
    known: HashMap<ProtectedPath, KnownHead>,
    /// By branch, the commit that `HEAD` named when a command started last.
    earlier: HashMap<ProtectedPath, BTreeMap<Option<PathBuf>, CommitObject>>,
}

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
        if let Some(known) = self.known.get(key)
            && known.sources.iter().all(is_same)
        {
            return known.found.clone();
        }
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut reader = HeadReader { repository, sources: Vec::new() };
        let found = reader.read();
        let sources = reader.sources;
        let is_final = |stat: &Stat| is_timestamp_final(stat.changed, begin);
        if matches!(found.commit, CommitState::Found(_))
            && sources.iter().all(|(_, stat)| stat.as_ref().is_none_or(is_final))
        {
            self.known.insert(key.clone(), KnownHead { found: found.clone(), sources });
        } else {
            self.known.remove(key);
        }
        found
    }

    /// State of the open `repository` at `key` before a command, with the commits of other branches that
    /// `HEAD` named before earlier ones. A command could leave a branch, and a later one delete it.
    pub(super) fn before(&mut self, key: &ProtectedPath, repository: &OwnedFd) -> HeadCommit {
        let mut head = self.of(key, repository);
        let earlier = self.earlier.entry(key.clone()).or_default();
        let mut reader = HeadReader { repository, sources: Vec::new() };
        // The user may have deleted them since.
        earlier.retain(|branch, commit| *branch != head.branch && !reader.is_gone(commit));
        head.earlier = earlier.values().cloned().collect();
        if let CommitState::Found(commit) = &head.commit
            && earlier.len() < BRANCHES_MAX
        {
            earlier.insert(head.branch.clone(), commit.clone());
        }
        head
    }

    /// Forgets all repositories but those for which `is_kept` is true.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&ProtectedPath) -> bool) {
        self.known.retain(|key, _| is_kept(key));
        self.earlier.retain(|key, _| is_kept(key));
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
            || self.has_tables()
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
        HeadCommit { branch, commit, has_branches, earlier: Vec::new() }
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

    /// True if the object `known` does not exist any more, or has another content.
    fn is_gone(&mut self, known: &CommitObject) -> bool {
        match self.object(known.hash.clone()) {
            CommitState::Found(now) => now.is_damaged(known),
            CommitState::Missing => true,
            CommitState::Unborn | CommitState::Unknown => false,
        }
    }

    /// True if neither a file nor `packed-refs` has `branch`. False if that is not known.
    fn has_lost(&mut self, branch: &Path) -> bool {
        let packed_path = Path::new("packed-refs");
        let has_file = self.examine(branch).is_some();
        let packed = match self.examine(packed_path) {
            Some(_) => self.bytes(packed_path, PACKED_BYTES_MAX),
            None => Some(Vec::new()),
        };
        !has_file && packed.is_some_and(|packed| packed_commit(&packed, branch).is_none())
    }

    /// True if the repository stores its references in tables, and all of them exist. Format:
    /// <https://git-scm.com/docs/reftable>.
    fn has_tables(&mut self) -> bool {
        let folder = Path::new("reftable");
        let listed = self.text(&folder.join("tables.list"), PACKED_BYTES_MAX).unwrap_or_default();
        let names = listed.split(|byte| *byte == b'\n').filter(|name| !name.is_empty());
        let paths: Vec<PathBuf> =
            names.map(|name| folder.join(std::ffi::OsStr::from_bytes(name))).collect();
        let mut tables = paths.iter().map(|path| self.examine(path));
        !paths.is_empty() && tables.all(|table| table.is_some_and(|table| table.size > 0))
    }

    /// Searches the object of the commit that `text` names.
    fn commit(&mut self, text: &[u8]) -> CommitState {
        let name = text.trim_ascii();
        if name.starts_with(b"ref:") {
            return CommitState::Unknown;
        }
        hash_of(name).map_or(CommitState::Missing, |hash| self.object(hash))
    }

    /// Searches the object `hash`.
    fn object(&mut self, hash: Vec<u8>) -> CommitState {
        if self.examine(Path::new("commondir")).is_some() {
            return CommitState::Unknown;
        }
        let name = hash.iter().fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
        let (folder, file) = name.split_at(2);
        let objects = Path::new("objects");
        let path = objects.join(folder).join(file);
        if let Some(stat) = self.examine(&path) {
            match self.loose(&path, &stat) {
                Ok(content) => return CommitState::Found(CommitObject { hash, content }),
                Err(Damaged) => drop(self.sources.pop()),
            }
        } else {
            // The object was packed, which takes its file away. Later it is the pack that counts.
            self.sources.pop();
        }
        let packs = objects.join("pack");
        let opened = open_beneath(self.repository, &packs, place::FOLDER);
        let listed = opened.and_then(|opened| Ok((place::list(&opened, ENTRIES_MAX)?, opened)));
        let mut is_known = Stat::at(self.repository, &objects.join("info/alternates")).is_err();
        let Ok(((listed, is_whole), opened)) = listed else {
            return if is_known { CommitState::Missing } else { CommitState::Unknown };
        };
        is_known &= is_whole;
        for entry in listed.iter().filter(|entry| entry.name.as_bytes().ends_with(b".pack")) {
            let name = Path::new(&entry.name);
            let index = name.with_extension("idx");
            let file = |name: &Path| open_beneath(&opened, name, FILE).map(File::from).ok();
            let (Some(listing), Some(pack)) = (file(&index), file(name)) else {
                is_known = false;
                continue;
            };
            match holds(&listing, &hash) {
                Some(true) if is_whole_pack(&pack, &listing, hash.len()) == Some(true) => {
                    self.examine(&packs.join(name));
                    self.examine(&packs.join(index));
                    return CommitState::Found(CommitObject { hash, content: None });
                }
                Some(_) => {}
                None => is_known = false,
            }
        }
        if is_known { CommitState::Missing } else { CommitState::Unknown }
    }

    /// Content of the file `path` of an object, with the status `stat`. `Ok(None)`: it is too large.
    fn loose(&self, path: &Path, stat: &Stat) -> Result<Option<Arc<[u8]>>, Damaged> {
        if stat.kind != PlaceKind::File {
            return Err(Damaged);
        }
        let Some(bytes) = self.bytes(path, OBJECT_BYTES_MAX) else { return Ok(None) };
        // The header of zlib, RFC 1950, section 2.2.
        let is_compressed = match bytes[..] {
            [method, flags, ..] => {
                method & 0x0f == 8 && u16::from_be_bytes([method, flags]).is_multiple_of(31)
            }
            _ => false,
        };
        if is_compressed { Ok(Some(bytes.into())) } else { Err(Damaged) }
    }
}

/// The file of an object is no object.
struct Damaged;

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

/// True if `pack` ends with the checksum that its `index` names, of `length` bytes, so that it was not
/// cut off. `None` if one cannot be read.
fn is_whole_pack(pack: &File, index: &File, length: usize) -> Option<bool> {
    let end = |file: &File, from_end: usize| {
        let size = file.metadata().ok()?.len();
        let mut bytes = vec![0; length];
        let at = size.checked_sub(u64::try_from(from_end).ok()?)?;
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    };
    let Some(of_pack) = end(pack, length) else { return Some(false) };
    Some(of_pack == end(index, 2 * length)?)
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
