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

/// Flags that contain the length of the path, or are full.
const LENGTH: u16 = 0x0fff;

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
    // Position of each entry, and true if nothing of the path before it is kept.
    let mut starts: Vec<(usize, bool)> = Vec::new();
    for _ in 0..count {
        let entry = rest;
        let mut is_fresh = true;
        let (mode, _) = number(entry.get(MODE_AT..)?)?;
        rest = entry.get(STAT_BYTES + name_bytes..)?;
        let flags = u16::from_be_bytes([*rest.first()?, *rest.get(1)?]);
        let is_extended = flags & EXTENDED != 0;
        // git reads the further flags in any version.
        if is_extended && version == 2 {
            return None;
        }
        rest = rest.get(if is_extended { 4 } else { 2 }..)?;
        if version == 4 {
            let (removed, after) = offset(rest)?;
            path.truncate(path.len().checked_sub(removed)?);
            is_fresh = path.is_empty();
            rest = after;
        } else {
            path.clear();
        }
        let end = rest.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(&rest[..end]);
        // git takes the length from the flags, unless they are full.
        let length = usize::from(flags & LENGTH);
        if length != path.len().min(usize::from(LENGTH)) {
            return None;
        }
        rest = &rest[end + 1..];
        starts.push((bytes.len() - entry.len(), is_fresh));
        if version < 4 {
            // The length of an entry is a multiple of eight, with one to eight zero bytes.
            let length = entry.len() - rest.len();
            let (padding, after) = rest.split_at_checked(length.next_multiple_of(8) - length)?;
            if padding.iter().any(|byte| *byte != 0) {
                return None;
            }
            rest = after;
        }
        if !is_safe(&path, mode & 0o170_000 == FOLDER_MODE) {
            return Some(IndexPaths::Unsafe(path));
        }
    }
    let end = bytes.len() - rest.len();
    let extensions = rest.get(..rest.len().checked_sub(name_bytes)?)?;
    has_plain_extensions(extensions, end, &starts).then_some(IndexPaths::Safe)
}

/// True if the extensions are known ones, and those with positions of entries name the positions
/// `starts`, and `end` as the end of the entries: git may read the entries from there.
fn has_plain_extensions(mut rest: &[u8], end: usize, starts: &[(usize, bool)]) -> bool {
    while !rest.is_empty() {
        let Some((name, after)) = rest.split_first_chunk::<4>() else { return false };
        let Some((size, after)) = number(after) else { return false };
        let Some(content) = usize::try_from(size).ok().and_then(|size| after.get(..size)) else {
            return false;
        };
        rest = &after[content.len()..];
        let is_plain = match name {
            b"TREE" | b"REUC" | b"UNTR" | b"FSMN" | b"link" | b"sdir" => true,
            b"EOIE" => number(content).is_some_and(|(at, _)| usize::try_from(at) == Ok(end)),
            b"IEOT" => has_plain_blocks(content, starts),
            _ => false,
        };
        if !is_plain {
            return false;
        }
    }
    true
}

/// True if the blocks in the table `content` begin at entries in order.
fn has_plain_blocks(content: &[u8], starts: &[(usize, bool)]) -> bool {
    let Some((_version, mut rest)) = number(content) else { return false };
    let mut nth = 0_usize;
    while !rest.is_empty() {
        let Some((at, after)) = number(rest) else { return false };
        let Some((count, after)) = number(after) else { return false };
        let is_start = starts
            .get(nth)
            .is_some_and(|(start, is_fresh)| *is_fresh && usize::try_from(at) == Ok(*start));
        if !is_start {
            return false;
        }
        nth = nth.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
        rest = after;
    }
    nth == starts.len()
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
    fn positions_in_extensions_are_those_of_the_entries() {
        let plain = index(2, &["a", "b/c"], 20);
        let with = |extensions: &[(&[u8; 4], Vec<u32>)]| {
            let mut bytes = plain[..plain.len() - 20].to_vec();
            for (name, numbers) in extensions {
                bytes.extend(*name);
                bytes.extend(u32::try_from(numbers.len() * 4).unwrap().to_be_bytes());
                bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
            }
            bytes.extend([0; 20]);
            check(&bytes, 20)
        };
        let end = u32::try_from(plain.len() - 20).unwrap();
        assert_eq!(with(&[(b"TREE", vec![1]), (b"EOIE", vec![end])]), IndexPaths::Safe);
        assert_eq!(with(&[(b"IEOT", vec![1, 12, 1, 12 + 64, 1])]), IndexPaths::Safe);
        assert_eq!(with(&[(b"EOIE", vec![12])]), IndexPaths::Unknown);
        assert_eq!(with(&[(b"IEOT", vec![1, 12, 1, 80, 1])]), IndexPaths::Unknown);
        assert_eq!(with(&[(b"IEOT", vec![1, 12, 1])]), IndexPaths::Unknown);
        assert_eq!(with(&[(b"ZZZZ", vec![1])]), IndexPaths::Unknown);
        // Further flags, which version 2 does not have.
        let mut extended = plain.clone();
        extended[12 + STAT_BYTES + 20] = 0x40;
        assert_eq!(check(&extended, 20), IndexPaths::Unknown);
        // Padding is zero.
        let mut padded = plain.clone();
        padded[plain.len() - 21] = b'x';
        assert_eq!(check(&padded, 20), IndexPaths::Unknown);
        // A path that the flags end elsewhere than the zero byte.
        let mut hidden = plain.clone();
        hidden[12 + STAT_BYTES + 20 + 1] = 3;
        assert_eq!(check(&hidden, 20), IndexPaths::Unknown);
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
