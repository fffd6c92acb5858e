//! Live output: joins bytes into pieces of valid UTF-8, to limit the number of updates.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum interval between pieces.
const INTERVAL: Duration = Duration::from_millis(30);

/// Maximum size of a piece in bytes. If more bytes arrive between two pieces, the oldest are
/// dropped.
const PIECE_BYTES_MAX: usize = 8 << 10;

/// Collects bytes into pieces.
#[derive(Debug, Default)]
pub(crate) struct OutputChunker {
    pending: Vec<u8>,
    /// Earliest time of the next piece. `None` before the first byte.
    next: Option<Instant>,
}

impl OutputChunker {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.next.get_or_insert_with(Instant::now);
        let bytes = &bytes[bytes.len().saturating_sub(PIECE_BYTES_MAX)..];
        let over = (self.pending.len() + bytes.len()).saturating_sub(PIECE_BYTES_MAX);
        self.pending.drain(..over);
        self.pending.extend_from_slice(bytes);
    }

    /// Time at which the next piece is due. `None` if there is no data.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.pending.is_empty() { None } else { self.next }
    }

    /// Takes the collected bytes as text, and sets the time of the next piece. An incomplete code
    /// point at the end waits for its remaining bytes, unless `is_end`. `None` if there is nothing
    /// to take.
    pub(crate) fn take(&mut self, is_end: bool) -> Option<String> {
        self.next = Some(Instant::now() + INTERVAL);
        let whole = if is_end { self.pending.len() } else { whole_code_points(&self.pending) };
        if whole == 0 {
            return None;
        }
        let rest = self.pending.split_off(whole);
        let piece = std::mem::replace(&mut self.pending, rest);
        Some(String::from_utf8_lossy(&piece).into_owned())
    }
}

/// Number of bytes without an incomplete code point at the end.
fn whole_code_points(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    for at in (from..bytes.len()).rev() {
        let needs = match bytes[at] {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if at + needs > bytes.len() { at } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_splits_a_code_point() {
        let text = "aé€😀z";
        for cut in 0..=text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            let mut live = OutputChunker::default();
            let mut all = String::new();
            for part in [a, b] {
                live.push(part);
                all.extend(live.take(false));
            }
            all.extend(live.take(true));
            assert_eq!(all, text, "cut at {cut}");
        }
    }

    #[test]
    fn incomplete_code_point_is_replaced() {
        let mut live = OutputChunker::default();
        live.push(b"ok\xf0\x9f");
        assert_eq!(live.take(false).as_deref(), Some("ok"));
        assert_eq!(live.take(true).as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn newest_output_is_kept() {
        let mut live = OutputChunker::default();
        live.push(&[b'a'; 9000]);
        live.push(b"end");
        let piece = live.take(false).unwrap();
        assert_eq!(piece.len(), PIECE_BYTES_MAX);
        assert!(piece.ends_with("aend"));
    }
}
