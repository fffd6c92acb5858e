//! The cache of a snapshot: which content the store has for each file, and by which stamp a file is
//! known to be unchanged.
//!
//! The file `state-<roots>.bin` is trusted, like everything in the state directory. If it is
//! missing, of another version or damaged, every file is read again.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use crate::entry::{Entry, Kind, Stamp};

/// Magic text with the version of the format.
const MAGIC: &[u8] = b"posse checkpoint cache 2\n";
/// Maximum size of the file in bytes.
const BYTES_MAX: u64 = 1 << 30;
/// Length of a git object id in hex.
const ID_LENGTH: usize = 40;

/// State of the roots that is stored in the commit `commit`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Commit with the tree `tree`, in hex. Empty if there are no files.
    pub(crate) commit: String,
    /// Tree with the files of all roots, in hex.
    pub(crate) tree: String,
    /// Files of each root, sorted by path, in the order of the roots.
    pub(crate) roots: Vec<Vec<Entry>>,
}

impl Snapshot {
    /// Number of files.
    pub(crate) fn files(&self) -> usize {
        self.roots.iter().map(Vec::len).sum()
    }

    /// Number of bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.roots.iter().flatten().map(|entry| entry.stamp.size).sum()
    }

    /// The file `path` of the root with index `root`.
    pub(crate) fn entry(&self, root: usize, path: &[u8]) -> Option<&Entry> {
        let entries = self.roots.get(root)?;
        let at = entries.binary_search_by(|entry| (*entry.path).cmp(path)).ok()?;
        Some(&entries[at])
    }

    /// Reads a snapshot. `None` if the file is missing or of another form.
    pub(crate) fn read(file: &Path) -> Option<Snapshot> {
        let mut bytes = Vec::new();
        File::open(file).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        parse(&bytes)
    }

    /// Replaces the file. It is not synced: a half-written one is read as damaged.
    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        let unfinished = file.with_extension("new");
        let mut written = File::create(&unfinished)?;
        written.write_all(&self.to_bytes())?;
        fs::rename(&unfinished, file)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.files() * 140);
        bytes.extend(MAGIC);
        for id in [&self.commit, &self.tree] {
            // An empty id is stored as zeros.
            bytes.extend(format!("{id:0>ID_LENGTH$}").bytes());
        }
        bytes.extend((self.roots.len() as u64).to_le_bytes());
        for entries in &self.roots {
            bytes.extend((entries.len() as u64).to_le_bytes());
            for entry in entries {
                let Stamp { kind, size, mtime, ctime, ino, dev } = entry.stamp;
                bytes.extend((entry.path.len() as u64).to_le_bytes());
                bytes.extend(&*entry.path);
                bytes.push(kind as u8 | if entry.is_settled { 0x80 } else { 0 });
                for number in [size, ino, dev, mtime.cast_unsigned(), ctime.cast_unsigned()] {
                    bytes.extend(number.to_le_bytes());
                }
                bytes.extend(entry.hash);
            }
        }
        bytes.extend(MAGIC);
        bytes
    }
}

fn parse(bytes: &[u8]) -> Option<Snapshot> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let mut id = || -> Option<String> {
        let id = String::from_utf8(take(&mut rest, ID_LENGTH)?.to_vec()).ok()?;
        let is_id = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| if id.bytes().all(|byte| byte == b'0') { String::new() } else { id })
    };
    let (commit, tree) = (id()?, id()?);
    let count = number(&mut rest)?;
    let mut roots = Vec::new();
    for _ in 0..count {
        let count = number(&mut rest)?;
        let mut entries = Vec::with_capacity(usize::try_from(count).ok()?.min(rest.len() / 80));
        for _ in 0..count {
            entries.push(entry(&mut rest)?);
        }
        roots.push(entries);
    }
    (rest == MAGIC).then_some(Snapshot { commit, tree, roots })
}

fn entry(rest: &mut &[u8]) -> Option<Entry> {
    let length = usize::try_from(number(rest)?).ok()?;
    let path = take(rest, length)?.into();
    let flags = take(rest, 1)?[0];
    let kind = match flags & 0x7f {
        0 => Kind::File,
        1 => Kind::Executable,
        2 => Kind::Link,
        _ => return None,
    };
    let (size, ino, dev) = (number(rest)?, number(rest)?, number(rest)?);
    let (mtime, ctime) = (number(rest)?.cast_signed(), number(rest)?.cast_signed());
    let stamp = Stamp { kind, size, mtime, ctime, ino, dev };
    let hash = take(rest, 32)?.try_into().ok()?;
    Some(Entry { path, stamp, is_settled: flags & 0x80 != 0, hash })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let entry = |path: &str, kind, is_settled| Entry {
            path: path.as_bytes().into(),
            stamp: Stamp { kind, size: 3, mtime: -4, ctime: 5, ino: 6, dev: 7 },
            is_settled,
            hash: [9; 32],
        };
        let one = vec![entry("a", Kind::File, true), entry("b/c", Kind::Executable, false)];
        let roots = vec![one, Vec::new(), vec![entry("l", Kind::Link, true)]];
        Snapshot { commit: "a".repeat(40), tree: "b".repeat(40), roots }
    }

    #[test]
    fn snapshots_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.bin");
        for snapshot in [snapshot(), Snapshot::default()] {
            snapshot.write(&file).unwrap();
            assert_eq!(Snapshot::read(&file), Some(snapshot));
        }
        let stored = snapshot();
        assert_eq!(stored.entry(0, b"b/c"), Some(&stored.roots[0][1]));
        assert_eq!((stored.entry(1, b"a"), stored.entry(9, b"a")), (None, None));
    }

    #[test]
    fn damaged_caches_are_not_used() {
        let bytes = snapshot().to_bytes();
        assert!(parse(&bytes).is_some());
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]), None, "{length}");
        }
        let mut long = bytes.clone();
        long.push(0);
        assert_eq!(parse(&long), None);
        // A length that is larger than the file.
        let mut wrong = bytes;
        let at = MAGIC.len() + 80 + 8;
        wrong[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(parse(&wrong), None);
    }
}
