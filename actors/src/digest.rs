//! SHA-256 of lists of texts.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// SHA-256 of a list of texts, as 64 hex digits. The hash depends on the boundaries between the
/// texts.
pub(crate) fn digest_of(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length goes first, so that different lists of parts have different hashes.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(text, "{byte:02x}");
        text
    })
}
