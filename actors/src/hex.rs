//! Bytes as hex digits, and hashes of texts.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Hash of a list of parts, in hex digits.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length goes first, so that different lists of parts have different hashes.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

/// Two digits for each byte, lower case.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_two_digits_for_each_byte() {
        let table: [(&[u8], &str); 4] =
            [(&[], ""), (&[0], "00"), (&[0x0f, 0xf0], "0ff0"), (&[0xab, 1, 255], "ab01ff")];
        for (bytes, expected) in table {
            assert_eq!(hex(bytes), expected);
        }
    }
}
