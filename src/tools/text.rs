//! Text properties of file content: binary check and line ends.

use posse_base::hex::hex;
use sha2::{Digest, Sha256};

/// Number of bytes examined for the binary check.
const PROBE_BYTES: usize = 8 << 10;

/// UTF-8 byte order mark, which some editors write first.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Line ends of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endings {
    /// No line ends.
    None,
    /// LF only.
    Lf,
    /// CR LF only.
    Crlf,
    /// Both.
    Mixed,
}

/// True if the beginning contains a NUL.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(PROBE_BYTES)].contains(&0)
}

/// Line ends of `bytes`.
pub(crate) fn endings(bytes: &[u8]) -> Endings {
    let all = lines_ended(bytes);
    let crlf = bytes.windows(2).filter(|pair| pair == b"\r\n").count();
    match (all, crlf) {
        (0, _) => Endings::None,
        (_, 0) => Endings::Lf,
        (all, crlf) if all == crlf => Endings::Crlf,
        _ => Endings::Mixed,
    }
}

/// Number of LF.
#[expect(clippy::naive_bytecount, reason = "it is vectorised well enough, without a dependency")]
pub(crate) fn lines_ended(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Number of lines; the last one need not be terminated.
pub(crate) fn lines(bytes: &[u8]) -> usize {
    lines_ended(bytes) + usize::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

/// `text` with every LF replaced by CR LF.
pub(crate) fn with_crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

/// SHA-256 as 64 hex digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// A count with its noun: `1 line`, `2 lines`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_how_lines_end() {
        for (bytes, expected) in [
            (&b""[..], Endings::None),
            (b"a\r", Endings::None),
            (b"a\nb", Endings::Lf),
            (b"a\r\nb\r\n", Endings::Crlf),
            (b"a\r\nb\n", Endings::Mixed),
        ] {
            assert_eq!(endings(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn counts_a_line_that_does_not_end() {
        assert_eq!([b"".as_slice(), b"a", b"a\n", b"a\nb"].map(lines), [0, 1, 1, 2]);
    }
}
