//! References in `packed-refs` that let git take an object for another one.

use memchr::memmem;

/// Maximum size of `packed-refs` in bytes. A larger file is not read.
pub(super) const BYTES_MAX: u64 = 256 << 20;

/// Beginning of the names of these references.
const NAME: &[u8] = b"refs/replace/";

/// True if this line of `packed-refs` is a reference that replaces an object.
pub(super) fn is_replacement(line: &[u8]) -> bool {
    let mut found = memmem::find_iter(line, NAME);
    found.any(|at| at > 0 && line[at - 1].is_ascii_whitespace())
}

/// Returns the lines of `packed-refs` with references that replace objects.
pub(super) fn replacements(bytes: &[u8]) -> Vec<u8> {
    if memmem::find(bytes, NAME).is_none() {
        return Vec::new();
    }
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| is_replacement(line));
    lines.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_are_found_behind_any_white_space() {
        let packed =
            b"# pack-refs with: peeled\n1 refs/heads/a\n2 refs/replace/3\n4\trefs/replace/5\n";
        assert_eq!(replacements(packed), b"2 refs/replace/3\n4\trefs/replace/5\n");
        assert_eq!(replacements(b"1 refs/heads/refs/replace/2\n"), b"");
    }
}
