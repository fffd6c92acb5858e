//! Hexadecimal encoding of bytes, and SHA-256 in this encoding.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Converts bytes to hexadecimal text, two lower-case digits per byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(text, "{byte:02x}");
    }
    text
}

/// SHA-256 of `bytes` as 64 lower-case hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        let table: [(&[u8], &str); 4] =
            [(&[], ""), (&[0], "00"), (&[0x0f, 0xf0], "0ff0"), (&[0xab, 1, 255], "ab01ff")];
        for (bytes, expected) in table {
            assert_eq!(hex(bytes), expected);
        }
    }
}
