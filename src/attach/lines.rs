//! Bytes to lines of bounded length, however the bytes arrive. Pure.

/// A line that is longer than the bound is left out, and this stands in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BoundedLine {
    /// Without its newline.
    Whole(Vec<u8>),
    /// It was longer than the bound.
    TooLong,
}

/// What has arrived of a line.
#[derive(Debug)]
pub(crate) struct LineBuffer {
    bytes_max: usize,
    begun: Vec<u8>,
    /// The line that goes on is too long already.
    too_long: bool,
}

impl LineBuffer {
    /// Lines of at most so many bytes, without their newline.
    pub(crate) fn new(bytes_max: usize) -> LineBuffer {
        LineBuffer { bytes_max, begun: Vec::new(), too_long: false }
    }

    /// From now on lines may be so long.
    pub(crate) fn allow(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Takes bytes up to the end of the next line, which is returned with what is left of them.
    /// What has no end yet is kept, and counts as part of the next line.
    pub(crate) fn next<'b>(&mut self, bytes: &'b [u8]) -> Option<(BoundedLine, &'b [u8])> {
        let end = memchr::memchr(b'\n', bytes);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        if self.too_long || piece.len() > self.bytes_max - self.begun.len() {
            // Its memory is given back at once: whoever sends such lines may send more.
            (self.begun, self.too_long) = (Vec::new(), true);
        } else {
            self.begun.extend_from_slice(piece);
        }
        let rest = &bytes[end? + 1..];
        let whole = std::mem::take(&mut self.begun);
        let line = if std::mem::take(&mut self.too_long) {
            BoundedLine::TooLong
        } else {
            BoundedLine::Whole(whole)
        };
        Some((line, rest))
    }

    /// Bytes that are kept.
    #[cfg(test)]
    fn kept(&self) -> usize {
        self.begun.capacity()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What comes out when `bytes` come in pieces of these sizes, over and over.
    fn cut(bytes: &[u8], sizes: &[usize], bytes_max: usize) -> Vec<BoundedLine> {
        let (mut lines, mut found, mut rest) = (LineBuffer::new(bytes_max), Vec::new(), bytes);
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
            assert!(lines.kept() <= 2 * bytes_max.max(8), "{} bytes are kept", lines.kept());
            rest = later;
        }
        found
    }

    /// The same, said otherwise.
    fn expected(bytes: &[u8], bytes_max: usize) -> Vec<BoundedLine> {
        let mut parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // What has no end is no line.
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
        fn lines_do_not_depend_on_how_their_bytes_arrive(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
            sizes in proptest::collection::vec(1..40_usize, 1..6),
            bytes_max in 0..50_usize,
        ) {
            prop_assert_eq!(cut(&bytes, &sizes, bytes_max), expected(&bytes, bytes_max));
        }
    }

    #[test]
    fn a_line_without_end_keeps_nothing() {
        let mut lines = LineBuffer::new(100);
        let piece = [b'x'; 64];
        for _ in 0..100_000 {
            assert_eq!(lines.next(&piece), None);
            assert!(lines.kept() <= 200);
        }
        assert_eq!(lines.next(b"\nok\n"), Some((BoundedLine::TooLong, &b"ok\n"[..])));
        assert_eq!(lines.next(b"ok\n"), Some((BoundedLine::Whole(b"ok".to_vec()), &b""[..])));
    }
}
