//! Splits a byte stream into lines of bounded length, independent of chunk borders.

use tokio::io::{AsyncRead, AsyncReadExt};

/// A line, or a marker for one above the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BoundedLine {
    /// Content without the newline.
    Whole(Vec<u8>),
    /// The line was longer than the limit and was discarded.
    TooLong,
}

/// Line splitter: stores the bytes of an incomplete line.
#[derive(Debug)]
struct LineBuffer {
    bytes_max: usize,
    incomplete: Vec<u8>,
    /// True if the incomplete line is already above the limit.
    too_long: bool,
}

impl LineBuffer {
    /// Consumes bytes up to the end of the next line. Returns the line and the remaining bytes.
    /// `None` if `bytes` do not complete a line; then they are stored, or discarded if the line is
    /// above the limit.
    fn next<'b>(&mut self, bytes: &'b [u8]) -> Option<(BoundedLine, &'b [u8])> {
        let end = memchr::memchr(b'\n', bytes);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        if self.too_long || piece.len() > self.bytes_max - self.incomplete.len() {
            // Frees the memory at once: the client may send more such lines.
            (self.incomplete, self.too_long) = (Vec::new(), true);
        } else {
            self.incomplete.extend_from_slice(piece);
        }
        let rest = &bytes[end? + 1..];
        let whole = std::mem::take(&mut self.incomplete);
        let line = if std::mem::take(&mut self.too_long) {
            BoundedLine::TooLong
        } else {
            BoundedLine::Whole(whole)
        };
        Some((line, rest))
    }

    /// Bytes held of an incomplete line.
    #[cfg(test)]
    fn incomplete_bytes(&self) -> usize {
        self.incomplete.capacity()
    }
}

/// Reader of the lines of a connection.
#[derive(Debug)]
pub(crate) struct LineReader {
    lines: LineBuffer,
    chunk: Vec<u8>,
    /// Number of bytes of the chunk that are already consumed.
    used: usize,
    read_bytes: usize,
}

impl LineReader {
    /// Creates a reader of lines of at most `bytes_max` bytes, which reads about `read_bytes` bytes
    /// at once.
    pub(crate) fn new(bytes_max: usize, read_bytes: usize) -> LineReader {
        let lines = LineBuffer { bytes_max, incomplete: Vec::new(), too_long: false };
        LineReader { lines, chunk: Vec::new(), used: 0, read_bytes }
    }

    /// Changes the limit, also for a line that is incomplete now. It must not be lowered.
    pub(crate) fn set_limit(&mut self, bytes_max: usize) {
        self.lines.bytes_max = bytes_max;
    }

    /// Returns the next line, or `None` at the end of the connection or after an error. A last line
    /// without a newline is dropped. Cancel-safe.
    pub(crate) async fn next(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Option<BoundedLine> {
        loop {
            if let Some((line, rest)) = self.lines.next(&self.chunk[self.used..]) {
                self.used = self.chunk.len() - rest.len();
                return Some(line);
            }
            self.chunk.clear();
            self.used = 0;
            self.chunk.reserve(self.read_bytes);
            if from.read_buf(&mut self.chunk).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Returns the next line within the limit and skips longer ones. `None`: end of the connection,
    /// or an error. Cancel-safe.
    pub(crate) async fn next_whole(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Option<Vec<u8>> {
        loop {
            if let BoundedLine::Whole(line) = self.next(from).await? {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn buffer(bytes_max: usize) -> LineBuffer {
        LineReader::new(bytes_max, 1).lines
    }

    /// Feeds `bytes` in chunks of the given sizes, repeated as needed, and collects the lines.
    fn cut(bytes: &[u8], sizes: &[usize], bytes_max: usize) -> Vec<BoundedLine> {
        let (mut lines, mut found, mut rest) = (buffer(bytes_max), Vec::new(), bytes);
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at((*size).clamp(1, rest.len()));
            let mut piece = piece;
            while let Some((line, more)) = lines.next(piece) {
                found.push(line);
                piece = more;
            }
            assert!(
                lines.incomplete_bytes() <= 2 * bytes_max.max(8),
                "{} bytes are kept",
                lines.incomplete_bytes()
            );
            rest = later;
        }
        found
    }

    /// Reference implementation of the expected lines.
    fn expected(bytes: &[u8], bytes_max: usize) -> Vec<BoundedLine> {
        let mut parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // An incomplete last part is not a line.
        parts.pop();
        let line = |part: &[u8]| {
            if part.len() <= bytes_max {
                BoundedLine::Whole(part.to_vec())
            } else {
                BoundedLine::TooLong
            }
        };
        parts.into_iter().map(line).collect()
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_chunk_borders(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
            sizes in proptest::collection::vec(1..40_usize, 1..6),
            bytes_max in 0..50_usize,
        ) {
            prop_assert_eq!(cut(&bytes, &sizes, bytes_max), expected(&bytes, bytes_max));
        }
    }

    #[test]
    fn a_line_above_the_limit_uses_no_memory() {
        let mut lines = buffer(100);
        let piece = [b'x'; 64];
        for _ in 0..100_000 {
            assert_eq!(lines.next(&piece), None);
            assert!(lines.incomplete_bytes() <= 200);
        }
        assert_eq!(lines.next(b"\nok\n"), Some((BoundedLine::TooLong, &b"ok\n"[..])));
        assert_eq!(lines.next(b"ok\n"), Some((BoundedLine::Whole(b"ok".to_vec()), &b""[..])));
    }
}
