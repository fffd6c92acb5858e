//! Reads the lines of a journal file and checks each against the hash chain, up to the first
//! invalid line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use posse_actors::conversation::SessionId;
use posse_actors::event::{Event, FORMAT_VERSION, StoredRecord};

use crate::format::{self, Head, LINE_BYTES_MAX};
use crate::segments::Mark;

/// Bytes of the read buffer.
const BUFFER: usize = 1 << 20;

/// Reason why reading stopped after the last valid record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// There is no further line.
    End,
    /// The file ends within a line.
    Torn,
    /// A later version of posse wrote the next line. The number is the format version of the line.
    Newer(u32),
    /// The next line or file is not the expected one.
    Damaged(Damage),
}

/// Kind of damage of a line or of a journal file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Damage {
    /// A record with the expected number whose hash does not fit: its bytes or an earlier line were
    /// changed.
    #[error("a line whose hash does not fit")]
    Hash,
    /// The line is not a record.
    #[error("a line that is not a record")]
    NoRecord,
    /// The line contains zero bytes, as after a power cut.
    #[error("zero bytes where a line belongs")]
    Zeros,
    /// The line ends in CR LF: a program treated the journal as a text file.
    #[error("a line that ends in CR LF")]
    CarriageReturn,
    /// The line is a record with a lower number than expected, which the journal already has.
    #[error("record {found} once more")]
    Repeated {
        /// Number of the repeated record.
        found: u64,
    },
    /// The line is a record with a later number than expected: records are missing.
    #[error("record {found} where record {expected} belongs")]
    Gap {
        /// Number of the record in the line.
        found: u64,
        /// Number of the record that belongs there.
        expected: u64,
    },
    /// The line is longer than `LINE_BYTES_MAX`.
    #[error("a line of more than {} MiB", LINE_BYTES_MAX >> 20)]
    TooLong,
    /// A closed segment ends within a line.
    #[error("the last line of a closed segment is cut off")]
    Torn,
    /// A closed segment file is missing although later ones exist.
    #[error("{name} is missing")]
    Missing {
        /// Name of the missing file.
        name: String,
    },
}

impl Damage {
    /// Name of the kind for programs, in snake case: `no_record`.
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

/// Describes a line that does not continue the hash chain; `expected` is the number of the record
/// that belongs there. The description is a guess for people: only the hash decides that the line
/// is damaged.
fn damage_of(line: &[u8], expected: u64) -> Damage {
    if line.ends_with(b"\r\n") {
        return Damage::CarriageReturn;
    }
    if line.contains(&0) {
        return Damage::Zeros;
    }
    let Some(head) = format::split(line).and_then(|_| format::head(line)) else {
        return Damage::NoRecord;
    };
    if head.record == expected { Damage::Hash } else { wrong_number(head.record, expected) }
}

fn wrong_number(found: u64, expected: u64) -> Damage {
    if found < expected { Damage::Repeated { found } } else { Damage::Gap { found, expected } }
}

/// Reads the lines of one journal file and checks each against the hash chain.
pub(crate) struct Scanner<R> {
    reader: BufReader<R>,
    /// The line that was read last, newline included.
    pub(crate) line: Vec<u8>,
    /// Position after the last valid record.
    pub(crate) at: Mark,
}

impl<R: Read> Scanner<R> {
    /// Creates a scanner for `reader`, whose next byte is at position `at`.
    pub(crate) fn new(reader: R, at: Mark) -> Scanner<R> {
        Scanner { reader: BufReader::with_capacity(BUFFER, reader), line: Vec::new(), at }
    }

    /// Reads the next line into `line`, checks it, and moves `at` behind it. Returns the first members
    /// of the record, or the reason why no valid record follows; `at` then stays. The outer error is
    /// an I/O error.
    pub(crate) fn step(&mut self) -> io::Result<Result<Head, Stop>> {
        self.line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        Ok(if read == 0 {
            Err(Stop::End)
        } else if read > LINE_BYTES_MAX {
            Err(Stop::Damaged(Damage::TooLong))
        } else if self.line.ends_with(b"\n") {
            self.check()
        } else if self.line.contains(&0) {
            // A power cut leaves zeros in place of data, also after the beginning of a line. A
            // kill leaves only that beginning. No record contains a zero byte.
            Err(Stop::Damaged(Damage::Zeros))
        } else {
            Err(Stop::Torn)
        })
    }

    fn check(&mut self) -> Result<Head, Stop> {
        let expected = self.at.record;
        let fits = format::split(&self.line).and_then(|(body, claimed)| {
            let next = self.at.chain.next(body);
            (next == claimed).then_some((body, next))
        });
        let (body, chain) = fits.ok_or_else(|| Stop::Damaged(damage_of(&self.line, expected)))?;
        let head = format::head(body).filter(|head| head.version > 0);
        let head = head.ok_or(Stop::Damaged(Damage::NoRecord))?;
        if head.version > FORMAT_VERSION {
            return Err(Stop::Newer(head.version));
        }
        if head.record != expected {
            return Err(Stop::Damaged(wrong_number(head.record, expected)));
        }
        let offset = self.at.offset + self.line.len() as u64;
        self.at = Mark { record: expected + 1, offset, chain, ..self.at };
        Ok(head)
    }
}

/// Parses the record of a line without checking its hash. `None` if this version of posse cannot
/// parse it.
pub(crate) fn record_of(line: &[u8]) -> Option<StoredRecord> {
    StoredRecord::parse(line).ok()
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

/// Opens a journal file for reading. Fails unless `path` itself is a regular file: symbolic links
/// and pipes are refused without blocking.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Converts the error of a missing file to `None`. Other errors stay errors.
pub(crate) fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::{newlines, record};
    use crate::format::{HashChain, append_line};
    use crate::walk::start_of;

    fn journal(records: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut chain = HashChain::start("s");
        for number in 1..=records {
            chain = append_line(&mut bytes, &chain, &record(number, "text")).unwrap();
        }
        bytes
    }

    /// Number of valid records, the offset of their end, and the reason for stopping.
    fn scan(bytes: &[u8]) -> (u64, u64, Stop) {
        let mut scanner = Scanner::new(bytes, start_of("s"));
        let mut records = 0;
        loop {
            match scanner.step().unwrap() {
                Ok(_) => records += 1,
                Err(stop) => return (records, scanner.at.offset, stop),
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
            assert_ne!(stop, Stop::End, "byte {at}");
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
            assert_eq!(stop, if torn { Stop::Torn } else { Stop::End });
        }
    }

    #[test]
    fn names_a_repeated_line_and_a_block_of_zeros() {
        let whole = journal(3);
        let line = &whole[..=whole.iter().position(|byte| *byte == b'\n').unwrap()];
        let repeated = Stop::Damaged(Damage::Repeated { found: 1 });
        assert_eq!(scan(&[&whole, line].concat()).2, repeated);
        let zeros = vec![0; 4096];
        let expected = (3, whole.len() as u64, Stop::Damaged(Damage::Zeros));
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
        assert_eq!(scan(&line).2, Stop::Newer(2));
        let flipped = String::from_utf8(journal(1)).unwrap().replace("{\"v\":1,", "{\"v\":3,");
        assert_eq!(scan(flipped.as_bytes()).2, Stop::Damaged(Damage::Hash));
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
