//! Reads a slice of the lines of a file, with or without line numbers. Keeps only the shown lines and one
//! chunk of the file in memory.

use std::fmt::Write;
use std::io::{self, BufRead, Read};

use posse_actors::ports::{ToolError, ToolOutput};
use serde_json::json;

use crate::SMALL_BYTES;
use crate::builtin_tool::RunResult;
use crate::listing::Stop;
use crate::text::{BOM, is_binary, lines_ended};

/// Default number of lines per call.
pub(super) const LINES_DEFAULT: u64 = 2000;
/// Maximum number of lines per call.
pub(super) const LINES_MAX: u64 = 5000;
/// Maximum of the `bytes_max` of [`read`].
pub(super) const PAGE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes shown of a line.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Offset in bytes up to which lines are always counted. If counting ends there, the count is a
/// lower bound.
const COUNTED_BYTES_MAX: u64 = 64 << 20;
/// Number of bytes per read of a large file.
const CHUNK_BYTES: usize = 128 << 10;

/// Requested lines of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slice {
    /// First line, from 1.
    pub(super) offset: u64,
    /// Maximum number of lines.
    pub(super) limit: u64,
    /// True if lines are shown without their numbers.
    pub(super) bare: bool,
}

/// Slice of a file for the model, and facts about the file.
#[derive(Default)]
pub(super) struct FileLines {
    slice: Slice,
    /// The lines of the slice, with their numbers unless the slice is bare.
    text: String,
    /// Number of lines shown.
    shown: u64,
    /// Number of lines in the file, as far as they were counted.
    total: u64,
    /// True if the whole file was read, so that `total` is exact.
    pub(super) complete: bool,
    /// True if a line that is shown completely contained invalid UTF-8.
    lossy: bool,
    /// True if a shown line ended with CR LF.
    crlf: bool,
}

/// Reads the lines of `slice` from `file`, whose size is about `size` bytes. `None` if the file is
/// binary: it has a NUL byte in its first 8 KiB. When `stop` is cancelled, returns the lines read
/// so far. The output has about `bytes_max` bytes at most: no further line is added if less than
/// `LINE_BYTES_MAX` or a quarter of it is left.
pub(super) fn read(
    mut file: impl Read,
    size: u64,
    slice: Slice,
    bytes_max: usize,
    stop: &Stop,
) -> io::Result<Option<FileLines>> {
    let mut chunk = vec![0; usize::try_from(size.min(SMALL_BYTES)).unwrap_or(0).max(4095) + 1];
    let mut length = fill(&mut file, &mut chunk)?;
    if is_binary(&chunk[..length]) {
        return Ok(None);
    }
    let lines = FileLines { slice, ..FileLines::default() };
    let full_at = bytes_max - (bytes_max / 4).min(LINE_BYTES_MAX);
    let mut scan = Scan { line: 1, lines, full_at, ..Scan::default() };
    let mut start = if chunk[..length].starts_with(BOM) { BOM.len() } else { 0 };
    let mut done = 0;
    while length > 0 {
        scan.take(&chunk[start..length]);
        start = 0;
        done += length as u64;
        // A file has no more lines than bytes: an offset beyond its size is beyond its end.
        let enough = scan.is_full()
            || scan.length > LINE_BYTES_MAX
            || (scan.line < slice.offset && slice.offset > size);
        if stop.is_cancelled() || (enough && done >= COUNTED_BYTES_MAX) {
            return Ok(Some(scan.finish(false)));
        }
        if length < chunk.len() {
            break;
        }
        chunk.resize(CHUNK_BYTES, 0);
        length = fill(&mut file, &mut chunk)?;
    }
    Ok(Some(scan.finish(true)))
}

/// Reads until `chunk` is full or the file ends. Returns the number of bytes read.
fn fill(file: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < chunk.len() {
        match file.read(&mut chunk[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// State of one pass over a file, which is read in chunks.
#[derive(Default)]
struct Scan {
    /// Number of the line that is read next or was read in part, from 1.
    line: u64,
    /// True if a part of line number `line` was read.
    begun: bool,
    /// Beginning of line number `line` as far as it was read; empty if the slice does not contain
    /// the line.
    kept: Vec<u8>,
    /// Number of bytes of line number `line` that were read; 0 if the slice does not contain the
    /// line.
    length: usize,
    lines: FileLines,
    /// Size of the output in bytes after which no further line is added.
    full_at: usize,
}

impl Scan {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.line < self.lines.slice.offset {
                bytes = self.skip(bytes);
            } else if self.is_full() {
                self.line += lines_ended(bytes) as u64;
                self.begun = bytes.last() != Some(&b'\n');
                return;
            } else {
                bytes = self.collect(bytes);
            }
        }
    }

    /// Skips the lines before the slice. Returns the remaining bytes, empty if the slice does not
    /// begin in `bytes`.
    fn skip<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        let wanted = self.lines.slice.offset - self.line;
        let ended = lines_ended(bytes) as u64;
        if ended < wanted {
            self.line += ended;
            self.begun = bytes.last() != Some(&b'\n');
            return &[];
        }
        for _ in 0..wanted {
            skip_line(&mut bytes);
        }
        self.line = self.lines.slice.offset;
        self.begun = false;
        bytes
    }

    /// Adds the next line of the slice to the output, or stores its part in `bytes` until the line
    /// is complete. Returns the remaining bytes.
    fn collect<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        let taken = skip_line(&mut rest);
        let line = &bytes[..taken];
        let ended = line.last() == Some(&b'\n');
        if ended && !self.begun {
            self.emit(line, line.len());
        } else {
            let room = (LINE_BYTES_MAX + 2).saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&line[..taken.min(room)]);
            self.length += taken;
            if ended {
                self.emit_kept();
            }
        }
        self.begun = !ended;
        self.line += u64::from(ended);
        rest
    }

    fn emit_kept(&mut self) {
        let (kept, length) = (std::mem::take(&mut self.kept), std::mem::take(&mut self.length));
        self.emit(&kept, length);
    }

    /// Adds a line to the output. The line has `length` bytes, of which those in `line` are
    /// available.
    fn emit(&mut self, line: &[u8], length: usize) {
        let lines = &mut self.lines;
        let without_crlf = line.strip_suffix(b"\r\n");
        lines.crlf |= without_crlf.is_some();
        let bare = without_crlf.or(line.strip_suffix(b"\n")).unwrap_or(line);
        let cut = bare.len().min(LINE_BYTES_MAX);
        let text = String::from_utf8_lossy(&bare[..cut]);
        lines.lossy |= cut == bare.len() && matches!(text, std::borrow::Cow::Owned(_));
        // Writing to a string cannot fail.
        if !lines.slice.bare {
            let _ = write!(lines.text, "{}\t", self.line);
        }
        lines.text.push_str(&text);
        if cut < bare.len() || length > line.len() {
            let _ = write!(lines.text, " … [cut: the line has {length} bytes]");
        }
        lines.text.push('\n');
        lines.shown += 1;
    }

    fn is_full(&self) -> bool {
        self.lines.shown >= self.lines.slice.limit || self.lines.text.len() > self.full_at
    }

    fn finish(mut self, complete: bool) -> FileLines {
        if !self.kept.is_empty() {
            self.emit_kept();
        }
        let total = self.line - 1 + u64::from(self.begun);
        FileLines { total, complete, ..self.lines }
    }
}

/// Advances `bytes` past the first LF, or to the end. Returns the number of bytes passed.
fn skip_line(bytes: &mut &[u8]) -> usize {
    // Reading from memory cannot fail.
    bytes.skip_until(b'\n').unwrap_or(0)
}

impl FileLines {
    /// Converts the slice to the result of a call: the lines, and a last line about the file. The
    /// model knows the file as `shown`. Fails with `ARG004` if the slice begins after the end of
    /// the file.
    pub(super) fn into_output(mut self, shown: &str) -> RunResult {
        let Slice { offset, .. } = self.slice;
        let bound = if self.complete { "" } else { "at least " };
        let total = self.total;
        if total == 0 && offset == 1 {
            return Ok(ToolOutput::text(format!("{shown} is empty")));
        }
        if self.shown == 0 {
            let noun = if total == 1 { "line" } else { "lines" };
            let what = format!("{shown} has {bound}{total} {noun}; offset {offset} is beyond");
            return Err(ToolError::new("ARG004", what));
        }
        let last = offset + self.shown - 1;
        let mut footer = format!("[lines {offset}-{last} of {bound}{total}");
        let next = (last < total || !self.complete).then_some(last + 1);
        if let Some(next) = next {
            let _ = write!(footer, "; next offset {next}");
        }
        if self.crlf {
            footer.push_str("; lines end with CRLF");
        }
        if self.lossy {
            footer.push_str("; bytes that are not UTF-8 are shown as \u{fffd}");
        }
        footer.push(']');
        self.text.push_str(&footer);
        Ok(ToolOutput::text(self.text).with_metadata(json!({
            "totalLines": total,
            "totalIsExact": self.complete,
            "linesRead": self.shown,
            "offset": offset,
            "nextOffset": next,
        })))
    }
}
