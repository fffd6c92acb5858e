//! Parser of server-sent events, according to the WHATWG standard.
//!
//! Chunk boundaries do not affect the events, time is linear in the bytes, and the buffer of one
//! event never exceeds [`EVENT_BYTES_MAX`]. Independent of HTTP and JSON.

use std::borrow::Cow;

/// Maximum size of one event in bytes: its name, its data and the line being read.
pub const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One event. It borrows from the parser or from the chunk that ended it.
#[derive(Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Name of the event; empty if the server gave none.
    pub name: Cow<'a, str>,
    /// Data lines of the event, joined by newlines. Bytes that are not UTF-8 are U+FFFD.
    pub data: Cow<'a, str>,
    /// Byte offset in the stream of the event's first data line.
    pub offset: u64,
}

/// Error after which a stream cannot be parsed any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// An event, or a line, exceeds the size limit.
    #[error("an event is larger than {bytes_max} bytes (the line at byte {offset})")]
    TooLarge {
        /// Byte offset of the line that exceeds the limit.
        offset: u64,
        /// The limit in bytes.
        bytes_max: usize,
    },
}

/// Parser of one stream.
#[derive(Debug)]
pub struct SseParser {
    /// Beginning of a line whose end has not arrived yet.
    line: Vec<u8>,
    /// The data lines of the event being read, joined by newlines.
    data: Vec<u8>,
    name: Vec<u8>,
    /// Byte offset of the first data line of the event being read. `None`: it has no data line yet.
    data_offset: Option<u64>,
    /// Byte offset of the current line.
    line_offset: u64,
    /// Number of bytes parsed so far.
    offset: u64,
    after_cr: bool,
    bytes_max: usize,
}

impl Default for SseParser {
    fn default() -> SseParser {
        SseParser::with_limit(EVENT_BYTES_MAX)
    }
}

impl SseParser {
    /// Creates a parser with the size limit `bytes_max` instead of [`EVENT_BYTES_MAX`].
    pub fn with_limit(bytes_max: usize) -> SseParser {
        SseParser {
            line: Vec::new(),
            data: Vec::new(),
            name: Vec::new(),
            data_offset: None,
            line_offset: 0,
            offset: 0,
            after_cr: false,
            bytes_max,
        }
    }

    /// Number of bytes parsed so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Parses `chunk` and calls `on_event` for every completed event that has a data line. Fails if
    /// an event exceeds the size limit; then the stream cannot be continued.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        on_event: &mut impl FnMut(SseEvent<'_>),
    ) -> Result<(), SseError> {
        let mut rest = chunk;
        // The only data line so far of the event being read, as long as it need not be copied.
        let mut fresh: Option<&[u8]> = None;
        while !rest.is_empty() {
            if self.after_cr {
                self.after_cr = false;
                if rest[0] == b'\n' {
                    rest = &rest[1..];
                    self.offset += 1;
                    self.line_offset = self.offset;
                    continue;
                }
            }
            let end = memchr::memchr2(b'\n', b'\r', rest);
            let piece = &rest[..end.unwrap_or(rest.len())];
            self.check_size(piece.len() + fresh.map_or(0, <[u8]>::len))?;
            let Some(end) = end else {
                self.line.extend_from_slice(piece);
                self.offset += piece.len() as u64;
                break;
            };
            self.offset += end as u64 + 1;
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if self.line.is_empty() {
                self.take_line(piece, &mut fresh, on_event);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(piece);
                let mut copied = None;
                self.take_line(&line, &mut copied, on_event);
                self.keep(copied);
                line.clear();
                self.line = line;
            }
            self.line_offset = self.offset;
        }
        self.keep(fresh);
        Ok(())
    }

    fn check_size(&self, more: usize) -> Result<(), SseError> {
        let held = self.line.len() + self.data.len() + self.name.len() + more;
        if held > self.bytes_max {
            return Err(SseError::TooLarge { offset: self.line_offset, bytes_max: self.bytes_max });
        }
        Ok(())
    }

    /// Copies a borrowed data line to the buffer, because its chunk ends or another data line
    /// follows.
    fn keep(&mut self, fresh: Option<&[u8]>) {
        if let Some(line) = fresh {
            self.data.extend_from_slice(line);
        }
    }

    fn take_line<'l>(
        &mut self,
        line: &'l [u8],
        fresh: &mut Option<&'l [u8]>,
        on_event: &mut impl FnMut(SseEvent<'_>),
    ) {
        let line = match self.line_offset {
            0 => line.strip_prefix(BOM).unwrap_or(line),
            _ => line,
        };
        if line.is_empty() {
            self.dispatch(fresh.take(), on_event);
            return;
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" if self.data_offset.is_none() => {
                self.data_offset = Some(self.line_offset);
                *fresh = Some(value);
            }
            b"data" => {
                self.keep(fresh.take());
                self.data.push(b'\n');
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // `id` and `retry` concern reconnecting, which is not done; a field without a name is a
            // comment; other fields are ignored.
            _ => {}
        }
    }

    fn dispatch(&mut self, fresh: Option<&[u8]>, on_event: &mut impl FnMut(SseEvent<'_>)) {
        if let Some(offset) = self.data_offset.take() {
            on_event(SseEvent {
                name: text(&self.name),
                data: text(fresh.unwrap_or(&self.data)),
                offset,
            });
        }
        self.name.clear();
        self.data.clear();
    }
}

/// Converts bytes to text; invalid UTF-8 becomes U+FFFD. Validation of the common case is faster
/// than repair.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests;
