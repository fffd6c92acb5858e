//! SHA-256 over several parts, which identifies the effect of a call.

use posse_base::hex::hex;
use sha2::{Digest, Sha256};

/// SHA-256 of `parts`, as 64 hex digits. Each part is hashed with its length, so that moving bytes
/// from one part to the next changes the digest.
pub(crate) fn of(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_boundaries_change_the_digest() {
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_eq!(of(&[]).len(), 64);
        assert!(of(&[]).starts_with("e3b0c442"));
    }
}
