//! The clipboard of a terminal: a sequence that many understand, and that the others ignore.

use base64::Engine as _;

/// Bytes that can be copied: many terminals take 100,000 characters in one sequence, and a text
/// becomes a third longer on its way.
pub(crate) const BYTES_MAX: usize = 74_000;

/// What puts `text` into the clipboard (OSC 52).
pub(crate) fn sequence(text: &str) -> Vec<u8> {
    let text = base64::engine::general_purpose::STANDARD.encode(text);
    format!("\x1b]52;c;{text}\x07").into_bytes()
}

/// Why an answer of that many bytes cannot be copied.
pub(crate) fn too_long(bytes: usize) -> String {
    format!(
        "not copied: the answer has {bytes} bytes, more than terminals take; /export writes it to \
         a file"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_on_its_way_as_base64() {
        assert_eq!(sequence("a\u{7}b"), b"\x1b]52;c;YQdi\x07");
        assert!(sequence(&"x".repeat(BYTES_MAX)).len() < 100_000);
    }
}
