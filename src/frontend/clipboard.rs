//! Copying to the clipboard through the terminal (OSC 52). Terminals without support ignore the
//! sequence.

use base64::Engine as _;

/// Maximum bytes of a text that can be copied: many terminals accept 100,000 characters in one
/// sequence, and base64 makes a text one third longer.
pub const BYTES_MAX: usize = 74_000;

/// Escape sequence that copies `text` to the clipboard (OSC 52). The caller checks [`BYTES_MAX`].
pub fn sequence(text: &str) -> Vec<u8> {
    let text = base64::engine::general_purpose::STANDARD.encode(text);
    format!("\x1b]52;c;{text}\x07").into_bytes()
}

/// Error text for an answer that is too long to be copied. `bytes`: length of the answer.
pub fn too_long(bytes: usize) -> String {
    format!(
        "not copied: the answer has {bytes} bytes, more than terminals accept; /export writes it to \
         a file"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_sent_as_base64() {
        assert_eq!(sequence("a\u{7}b"), b"\x1b]52;c;YQdi\x07");
        assert!(sequence(&"x".repeat(BYTES_MAX)).len() < 100_000);
    }
}
