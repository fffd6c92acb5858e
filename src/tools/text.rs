//! Text properties of file content (binary check and line ends), and short texts for people.

/// Number of bytes examined for the binary check.
const PROBE_BYTES: usize = 8 << 10;

/// UTF-8 byte order mark, with which some editors begin a file.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Returns true if the first `PROBE_BYTES` bytes contain a NUL byte.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(PROBE_BYTES)].contains(&0)
}

/// Returns true if `bytes` has line ends and all of them are CR LF.
pub(crate) fn is_crlf(bytes: &[u8]) -> bool {
    let crlf = bytes.windows(2).filter(|pair| pair == b"\r\n").count();
    crlf > 0 && crlf == lines_ended(bytes)
}

/// Number of LF bytes in `bytes`.
#[expect(clippy::naive_bytecount, reason = "it is vectorised well enough, without a dependency")]
pub(crate) fn lines_ended(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Number of lines in `bytes`, including a last line without a line end.
pub(crate) fn lines(bytes: &[u8]) -> usize {
    lines_ended(bytes) + usize::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

/// `text` with every LF replaced by CR LF.
pub(crate) fn with_crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

/// Formats a count with its noun: `1 line`, `2 lines`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// `text` with single blanks in place of line breaks and other white space.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `text` with an upper-case first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings_are_detected() {
        for (bytes, expected) in [
            (&b""[..], false),
            (b"a\r", false),
            (b"a\nb", false),
            (b"a\r\nb\r\n", true),
            (b"a\r\nb\n", false),
        ] {
            assert_eq!(is_crlf(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn unterminated_line_is_counted() {
        assert_eq!([b"".as_slice(), b"a", b"a\n", b"a\nb"].map(lines), [0, 1, 1, 2]);
    }
}
