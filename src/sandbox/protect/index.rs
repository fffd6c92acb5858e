//! Paths in an index of git. git checks each path that it adds to an index, but none that it reads
//! from one, and writes the file of each entry on `git checkout .` and `git restore .`.
//!
//! Format: gitformat-index(5), versions 2 to 4.

use posse_base::protected;

/// Maximum size of an index in bytes. A larger one is not accepted.
pub(super) const BYTES_MAX: u64 = 256 << 20;

/// Bytes of an entry before its object name.
const STAT_BYTES: usize = 40;

/// Position of the mode in an entry.
const MODE_AT: usize = 24;

/// Mode of an entry that stands for a folder.
const FOLDER_MODE: u32 = 0o040_000;

/// Flag of an entry with further flags.
const EXTENDED: u16 = 0x4000;

/// Result of reading an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IndexPaths {
    /// All paths are below the work tree and outside of `.git`.
    Safe,
    /// This path is not.
    Unsafe(Vec<u8>),
    /// The text is not an index of a known version.
    Unknown,
}

/// Checks the paths of an index whose object names have `name_bytes` bytes: 20 for SHA-1, 32 for
/// SHA-256.
pub(super) fn check(bytes: &[u8], name_bytes: usize) -> IndexPaths {
    judge(bytes, name_bytes).unwrap_or(IndexPaths::Unknown)
}

/// Judges the paths up to the first that is not safe. `None` if the text is not an index.
fn judge(bytes: &[u8], name_bytes: usize) -> Option<IndexPaths> {
    let rest = bytes.strip_prefix(b"DIRC")?;
    let (version, rest) = number(rest)?;
    let (count, mut rest) = number(rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut path = Vec::new();
    for _ in 0..count {
        let entry = rest;
        let (mode, _) = number(entry.get(MODE_AT..)?)?;
        rest = entry.get(STAT_BYTES + name_bytes..)?;
        let flags = u16::from_be_bytes([*rest.first()?, *rest.get(1)?]);
        let is_extended = version > 2 && flags & EXTENDED != 0;
        rest = rest.get(if is_extended { 4 } else { 2 }..)?;
        if version == 4 {
            let (removed, after) = offset(rest)?;
            path.truncate(path.len().checked_sub(removed)?);
            rest = after;
        } else {
            path.clear();
        }
        let end = rest.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        if version < 4 {
            // The length of an entry is a multiple of eight, with one to eight zero bytes.
            let length = entry.len() - rest.len();
            rest = rest.get(length.next_multiple_of(8) - length..)?;
        }
        if !is_safe(&path, mode & 0o170_000 == FOLDER_MODE) {
            return Some(IndexPaths::Unsafe(path));
        }
    }
    Some(IndexPaths::Safe)
}

/// True if the path is relative, and no part of it is empty, `.`, `..` or a name of `.git`. An empty
/// path stands for an entry of a shared index, and that of a folder ends with a slash.
fn is_safe(path: &[u8], is_folder: bool) -> bool {
    let path = if is_folder { path.strip_suffix(b"/").unwrap_or(path) } else { path };
    let is_safe = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !protected::is_dot_git(part);
    path.is_empty() || path.split(|byte| *byte == b'/').all(is_safe)
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*first), rest))
}

/// Reads a number of variable length, as in the offsets of pack files.
fn offset(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (mut byte, mut rest) = bytes.split_first()?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        (byte, rest) = rest.split_first()?;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 0x7f);
    }
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(version: u32, paths: &[&str], name_bytes: usize) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend(u32::try_from(paths.len()).unwrap().to_be_bytes());
        let mut last = "";
        for path in paths {
            let begin = bytes.len();
            bytes.extend([0; MODE_AT]);
            bytes.extend(0o100_644_u32.to_be_bytes());
            bytes.extend([1; STAT_BYTES - MODE_AT - 4]);
            bytes.extend(vec![7; name_bytes]);
            bytes.extend(u16::try_from(path.len()).unwrap().to_be_bytes());
            if version == 4 {
                let same = last.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
                bytes.push(u8::try_from(last.len() - same).unwrap());
                bytes.extend(&path.as_bytes()[same..]);
                bytes.push(0);
            } else {
                bytes.extend(path.as_bytes());
                bytes.push(0);
                while !(bytes.len() - begin).is_multiple_of(8) {
                    bytes.push(0);
                }
            }
            last = path;
        }
        bytes.extend(vec![0; name_bytes]);
        bytes
    }

    #[test]
    fn only_paths_below_the_work_tree_are_safe() {
        for version in [2, 3, 4] {
            for name_bytes in [20, 32] {
                let of = |paths: &[&str]| check(&index(version, paths, name_bytes), name_bytes);
                assert_eq!(of(&[]), IndexPaths::Safe);
                assert_eq!(of(&["a", "a/b", "a/b.git", "src/.gitignore"]), IndexPaths::Safe);
                for path in [
                    ".git/hooks/post-checkout",
                    "a/.GIT/config",
                    "../home/.bashrc",
                    "a/../../x",
                    "/etc/passwd",
                    "a//b",
                    "./a",
                    "a/",
                ] {
                    let found = IndexPaths::Unsafe(path.as_bytes().to_vec());
                    assert_eq!(of(&["README.md", "a/x", path, "z"]), found, "{version}");
                }
            }
        }
    }

    #[test]
    fn other_texts_are_unknown() {
        let whole = index(2, &["a", "b/c"], 20);
        for end in 0..whole.len() - 20 {
            assert_eq!(check(&whole[..end], 20), IndexPaths::Unknown, "{end}");
        }
        assert_eq!(check(&index(5, &["a"], 20), 20), IndexPaths::Unknown);
        assert_eq!(check(b"", 20), IndexPaths::Unknown);
        // A path longer than the one before it cannot be shortened by more than that.
        let mut short = index(4, &["a"], 20);
        let at = 12 + STAT_BYTES + 20 + 2;
        short[at] = 0x7f;
        assert_eq!(check(&short, 20), IndexPaths::Unknown);
    }
}
