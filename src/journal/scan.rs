//! Reads lines and checks each against the hash chain, up to the first one that does not fit.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::OFlag;
use posse_actors::conversation::SessionId;
use posse_actors::event::{Event, FORMAT_VERSION, Origin, RecordId, StoredRecord};
use serde::Deserialize;

use crate::format::{self, HashChain, Head, LINE_BYTES_MAX};

/// Bytes of the read buffer.
const BUFFER: usize = 1 << 20;

/// Result of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScanStep {
    /// A valid record; its bytes are in [`Scanner::line`].
    Record(Head),
    /// End of the file, after a whole line.
    End,
    /// End of the file within a line.
    Torn,
    /// A line written by a later version of posse.
    Newer(u32),
    /// A line that no version writes here.
    Damaged(Damage),
}

/// Kind of damage of a line or of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// The bytes of a record do not match its hash.
    Hash,
    /// The line is not a record.
    NoRecord,
    /// Zero bytes in place of a line.
    Zeros,
    /// The line ends in CR LF: a program treated the journal as a text file.
    CarriageReturn,
    /// A record that is already in the journal.
    Repeated {
        /// Its number.
        found: u64,
    },
    /// A record with a later number than expected: records are missing.
    Gap {
        /// Its number.
        found: u64,
        /// The expected number.
        expected: u64,
    },
    /// A line longer than the limit for written lines.
    TooLong,
    /// A closed segment ends within a line.
    Torn,
    /// A segment file is missing.
    Missing {
        /// Its name.
        name: String,
    },
}

impl Damage {
    /// One word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Damage::Hash => "hash",
            Damage::NoRecord => "no_record",
            Damage::Zeros => "zeros",
            Damage::CarriageReturn => "carriage_return",
            Damage::Repeated { .. } => "repeated",
            Damage::Gap { .. } => "gap",
            Damage::TooLong => "too_long",
            Damage::Torn => "torn",
            Damage::Missing { .. } => "missing",
        }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Hash => f.write_str("a line whose hash does not fit"),
            Damage::NoRecord => f.write_str("a line that is not a record"),
            Damage::Zeros => f.write_str("zero bytes where a line belongs"),
            Damage::CarriageReturn => f.write_str("a line that ends in CR LF"),
            Damage::Repeated { found } => write!(f, "record {found} once more"),
            Damage::Gap { found, expected } => {
                write!(f, "record {found} where record {expected} belongs")
            }
            Damage::TooLong => write!(f, "a line of more than {} MiB", LINE_BYTES_MAX >> 20),
            Damage::Torn => f.write_str("the last line of a closed segment is cut off"),
            Damage::Missing { name } => write!(f, "{name} is missing"),
        }
    }
}

/// Describes a line that does not continue the chain. The description is a guess for people: only
/// the hash decides that the line is damaged.
fn damage_of(line: &[u8], expected: Option<u64>) -> Damage {
    if line.ends_with(b"\r\n") {
        return Damage::CarriageReturn;
    }
    if line.contains(&0) {
        return Damage::Zeros;
    }
    let Some(head) = format::split(line).and_then(|_| format::head(line)) else {
        return Damage::NoRecord;
    };
    match expected {
        Some(expected) if head.record != expected => out_of_place(head.record, expected),
        _ => Damage::Hash,
    }
}

fn out_of_place(found: u64, expected: u64) -> Damage {
    if found < expected { Damage::Repeated { found } } else { Damage::Gap { found, expected } }
}

/// Reads and checks the lines of one file.
pub(crate) struct Scanner<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    chain: HashChain,
    /// Expected number of the next record, if it is known.
    expected: Option<u64>,
    /// Offset of the next line.
    offset: u64,
}

impl<R: Read> Scanner<R> {
    /// Scanner for a file from `offset` on, where a line begins that continues `chain`.
    pub(crate) fn new(
        reader: R,
        chain: HashChain,
        expected: Option<u64>,
        offset: u64,
    ) -> Scanner<R> {
        let reader = BufReader::with_capacity(BUFFER, reader);
        Scanner { reader, line: Vec::new(), chain, expected, offset }
    }

    /// Reads and checks the next line.
    pub(crate) fn step(&mut self) -> io::Result<ScanStep> {
        self.line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(ScanStep::End);
        }
        if read > LINE_BYTES_MAX {
            return Ok(ScanStep::Damaged(Damage::TooLong));
        }
        if self.line.last() != Some(&b'\n') {
            // A power cut leaves zeros in place of data, also after the beginning of a line. A
            // kill leaves only that beginning. No record contains a zero byte.
            let zeros = self.line.contains(&0);
            return Ok(if zeros { ScanStep::Damaged(Damage::Zeros) } else { ScanStep::Torn });
        }
        Ok(self.check())
    }

    fn check(&mut self) -> ScanStep {
        let fits = format::split(&self.line).and_then(|(body, claimed)| {
            let next = self.chain.next(body);
            (next == claimed).then_some((body, next))
        });
        let Some((body, next)) = fits else {
            return ScanStep::Damaged(damage_of(&self.line, self.expected));
        };
        let Some(head) = format::head(body).filter(|head| head.version > 0) else {
            return ScanStep::Damaged(Damage::NoRecord);
        };
        if head.version > FORMAT_VERSION {
            return ScanStep::Newer(head.version);
        }
        if let Some(expected) = self.expected
            && head.record != expected
        {
            return ScanStep::Damaged(out_of_place(head.record, expected));
        }
        self.chain = next;
        self.expected = Some(head.record + 1);
        self.offset += self.line.len() as u64;
        ScanStep::Record(head)
    }

    /// Bytes of the last record's line, newline included.
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }

    /// Offset of the end of the last record's line.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Hash of the last record.
    pub(crate) fn chain(&self) -> HashChain {
        self.chain
    }

    /// Expected number of the next record, if it is known.
    pub(crate) fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Continues with the next segment.
    pub(crate) fn follow<S: Read>(self, reader: S) -> Scanner<S> {
        Scanner::new(reader, self.chain, self.expected, 0)
    }
}

/// Deserialised form of a record. The event comes before the origin: a missing origin would
/// otherwise consume the `agent` of `session.started`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordLine {
    v: u32,
    record: u64,
    ts: u64,
    id: RecordId,
    session_id: SessionId,
    #[serde(flatten)]
    event: Event,
    #[serde(flatten)]
    origin: Option<Arc<Origin>>,
}

/// Parses the record of a line, without checking its hash. `None` if this version cannot parse it.
pub(crate) fn record_of(line: &[u8]) -> Option<StoredRecord> {
    let RecordLine { v, record, ts, id, session_id, event, origin } =
        serde_json::from_slice(line).ok()?;
    Some(StoredRecord { v, record, ts, id, session_id, origin, event })
}

/// Parses the record of a verified line. A record that this version cannot parse becomes
/// [`Event::Unknown`], so that the numbers have no gap.
pub(crate) fn parse(line: &[u8], head: Head, session: &str) -> StoredRecord {
    record_of(line).unwrap_or_else(|| StoredRecord {
        v: head.version,
        record: head.record,
        ts: head.ts,
        id: head.id,
        session_id: SessionId::new(session),
        origin: None,
        event: Event::Unknown,
    })
}

/// Opens a journal file for reading. Accepts only a regular file, follows no link and never
/// blocks.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::append_line;
    use crate::format::tests::{newlines, record};

    fn journal(records: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut chain = HashChain::start("s");
        for number in 1..=records {
            chain = append_line(&mut bytes, &chain, &record(number, "text")).unwrap();
        }
        bytes
    }

    /// Number of valid records, the offset of their end, and the reason for stopping.
    fn scan(bytes: &[u8]) -> (u64, u64, ScanStep) {
        let mut scanner = Scanner::new(bytes, HashChain::start("s"), Some(1), 0);
        let mut records = 0;
        loop {
            match scanner.step().unwrap() {
                ScanStep::Record(_) => records += 1,
                stop => return (records, scanner.offset(), stop),
            }
        }
    }

    #[test]
    fn keeps_every_record_before_any_flipped_byte() {
        let whole = journal(36);
        assert!(whole.len() > 8 << 10, "{}", whole.len());
        let starts: Vec<usize> =
            (0..whole.len()).filter(|at| *at == 0 || whole[at - 1] == b'\n').collect();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            let damaged = starts.iter().filter(|start| **start <= at).count() - 1;
            let (records, offset, stop) = scan(&bytes);
            // The hash has 128 bits: no flip may pass.
            assert_eq!((records, offset), (damaged as u64, starts[damaged] as u64), "byte {at}");
            assert_ne!(stop, ScanStep::End, "byte {at}");
        }
    }

    #[test]
    fn keeps_every_record_before_any_truncation() {
        let whole = journal(36);
        for length in 0..whole.len() {
            let bytes = &whole[..length];
            let complete = newlines(bytes) as u64;
            let torn = bytes.last().is_some_and(|byte| *byte != b'\n');
            let (records, _, stop) = scan(bytes);
            assert_eq!(records, complete);
            assert_eq!(stop, if torn { ScanStep::Torn } else { ScanStep::End });
        }
    }

    #[test]
    fn names_a_repeated_line_and_a_block_of_zeros() {
        let whole = journal(3);
        let line = &whole[..=whole.iter().position(|byte| *byte == b'\n').unwrap()];
        let repeated = ScanStep::Damaged(Damage::Repeated { found: 1 });
        assert_eq!(scan(&[&whole, line].concat()).2, repeated);
        let zeros = vec![0; 4096];
        let expected = (3, whole.len() as u64, ScanStep::Damaged(Damage::Zeros));
        assert_eq!(scan(&[&whole, &zeros[..]].concat()), expected);
        let hole = [&whole[..], &zeros, b"\n", &whole].concat();
        assert_eq!(scan(&hole).0, 3);
        // The file has its full length, but its last data was not written.
        for begun in [1, line.len() / 2, line.len() - 1] {
            let tail = [&whole, &line[..begun], &zeros[..]].concat();
            assert_eq!(scan(&tail), expected, "{begun}");
        }
    }

    #[test]
    fn does_not_report_a_later_version_as_damage() {
        let mut later = record(1, "text");
        later.v = 2;
        let mut line = Vec::new();
        append_line(&mut line, &HashChain::start("s"), &later).unwrap();
        assert_eq!(scan(&line).2, ScanStep::Newer(2));
        let flipped = String::from_utf8(journal(1)).unwrap().replace("{\"v\":1,", "{\"v\":3,");
        assert_eq!(scan(flipped.as_bytes()).2, ScanStep::Damaged(Damage::Hash));
    }

    #[test]
    fn an_unknown_record_keeps_its_number() {
        let mut line = Vec::new();
        append_line(&mut line, &HashChain::start("s"), &record(5, "text")).unwrap();
        let text = String::from_utf8(line).unwrap();
        let head = format::head(text.as_bytes()).unwrap();
        let later = text.replace("user.message", "user.thought");
        let parsed = parse(later.as_bytes(), head, "s");
        assert_eq!((parsed.record, parsed.event), (5, Event::Unknown));
        let broken = parse(text.replace("\"content\":[", "\"content\":{").as_bytes(), head, "s");
        assert_eq!((broken.record, broken.event), (5, Event::Unknown));
    }

    #[expect(clippy::print_stderr, reason = "a report")]
    /// Not an assertion: prints the rate, which depends on the machine and the profile.
    #[test]
    fn reports_how_fast_it_verifies() {
        let mut bytes = Vec::new();
        let mut chain = HashChain::start("s");
        let text = "x".repeat(1000);
        for number in 1..=20_000 {
            chain = append_line(&mut bytes, &chain, &record(number, &text)).unwrap();
        }
        let start = std::time::Instant::now();
        let (records, ..) = scan(&bytes);
        let seconds = start.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = bytes.len() as f64 / seconds / 1e6;
        eprintln!("verified {} MB at {rate:.0} MB/s", bytes.len() / 1_000_000);
        assert_eq!(records, 20_000);
    }
}
