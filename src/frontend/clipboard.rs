//! Copying to the clipboard through the terminal (OSC 52). Terminals without support ignore the
//! sequence.

use base64::Engine as _;
use posse_base::failure::is_invisible;

/// Maximum bytes of a text that can be copied: many terminals accept 100,000 characters in one
/// sequence, and base64 makes a text one third longer.
pub const BYTES_MAX: usize = 74_000;

/// Escape sequence that copies `text` to the clipboard (OSC 52), without control and invisible
/// characters: pasted into a shell, they could end the paste and run the rest. The caller checks
/// [`BYTES_MAX`].
pub fn sequence(text: &str) -> Vec<u8> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    // Some scripts and emoji need joiners.
    let is_text = |c: &char| {
        matches!(c, '\n' | '\t' | '\u{200c}' | '\u{200d}') || !(c.is_control() || is_invisible(*c))
    };
    let text: String = text.chars().filter(is_text).collect();
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
        assert_eq!(sequence("a\tb\n"), b"\x1b]52;c;YQliCg==\x07");
        // The end of a bracketed paste, and characters that are not shown.
        assert_eq!(sequence("a\x1b[201~\rb\u{200b}\u{7}"), sequence("a[201~\nb"));
        assert!(sequence(&"x".repeat(BYTES_MAX)).len() < 100_000);
    }
}
