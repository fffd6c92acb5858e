//! Reads all segments of a session in order, as one chain.
//!
//! No lock is taken: a running session may grow and close a segment meanwhile.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::format::{HashChain, Head};
use crate::scan::{Damage, ScanStep, Scanner, open_to_read};
use crate::segments::{ACTIVE, Mark, closed_name, closed_segments};

/// Error of a walk.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The callback failed.
    Out(io::Error),
    /// The journal cannot be read.
    Journal(io::Error),
}

/// Callback for every line, with its head and position.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&[u8], Head, Mark) -> io::Result<()>;

/// Reason for the end of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All records were read.
    End,
    /// The active file ends within a line.
    Torn,
    /// The next line was written by a later version.
    Newer(u32),
    /// The next line or file is not the expected one.
    Damaged(Damage),
}

/// Position and reason of the end of a walk.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) stop: Stop,
    /// Position after the last valid record.
    pub(crate) end: Mark,
    /// File of `end`.
    pub(crate) file: String,
    /// Number of lines in that file before `end`.
    pub(crate) lines: u64,
    /// Number of files read.
    pub(crate) files: u32,
    /// Bytes of valid records.
    pub(crate) bytes: u64,
}

/// Start position of session `id`.
pub(crate) fn beginning(id: &str) -> Mark {
    Mark { record: 1, segment: 1, offset: 0, chain: HashChain::start(id) }
}

/// Calls `each` with every line from `from` on, its head and its position.
pub(crate) fn walk(dir: &Path, from: Mark, each: Each<'_>) -> Result<Walked, ReadError> {
    let gap = closed_segments(dir).map_err(ReadError::Journal)?.gap_after();
    let mut walked = Walked {
        stop: Stop::End,
        end: from,
        file: name_of(from.segment, false),
        lines: 0,
        files: 0,
        bytes: 0,
    };
    loop {
        let segment = walked.end.segment;
        if let Some(last) = gap
            && segment > last
        {
            walked.file = closed_name(segment);
            walked.stop = Stop::Damaged(Damage::Missing { name: closed_name(segment) });
            return Ok(walked);
        }
        let Some((mut file, closed)) = open_segment(dir, segment).map_err(ReadError::Journal)?
        else {
            return Ok(walked);
        };
        walked.file = name_of(segment, closed);
        walked.files += 1;
        walked.lines = 0;
        let at = io::SeekFrom::Start(walked.end.offset);
        io::Seek::seek(&mut file, at).map_err(ReadError::Journal)?;
        let stop = read_file(file, &mut walked, each)?;
        // The file may have been closed during the read.
        let closed = closed || (stop == Stop::End && dir.join(closed_name(segment)).exists());
        match (stop, closed) {
            (Stop::End, true) => {
                walked.end = Mark { segment: segment + 1, offset: 0, ..walked.end };
            }
            (Stop::Torn, true) => {
                walked.stop = Stop::Damaged(Damage::Torn);
                return Ok(walked);
            }
            (stop, _) => {
                walked.stop = stop;
                return Ok(walked);
            }
        }
    }
}

fn read_file(file: File, walked: &mut Walked, each: Each<'_>) -> Result<Stop, ReadError> {
    let Mark { record, offset, chain, segment } = walked.end;
    let mut scanner = Scanner::new(file, chain, Some(record), offset);
    loop {
        match scanner.step().map_err(ReadError::Journal)? {
            ScanStep::Record(head) => {
                each(scanner.line(), head, walked.end).map_err(ReadError::Out)?;
                walked.lines += 1;
                walked.bytes += scanner.line().len() as u64;
                walked.end = Mark {
                    record: head.record + 1,
                    segment,
                    offset: scanner.offset(),
                    chain: scanner.chain(),
                };
            }
            ScanStep::End => return Ok(Stop::End),
            ScanStep::Torn => return Ok(Stop::Torn),
            ScanStep::Newer(version) => return Ok(Stop::Newer(version)),
            ScanStep::Damaged(damage) => return Ok(Stop::Damaged(damage)),
        }
    }
}

/// Opens segment `number` and reports if it is closed. `None` if it does not exist yet.
pub(crate) fn open_segment(dir: &Path, number: u32) -> io::Result<Option<(File, bool)>> {
    let open = |name: &str| match open_to_read(&dir.join(name)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
    };
    let closed = closed_name(number);
    if let Some(file) = open(&closed)? {
        return Ok(Some((file, true)));
    }
    let active = open(ACTIVE)?;
    // If it was closed in between, the active file is already the next segment.
    match open(&closed)? {
        Some(file) => Ok(Some((file, true))),
        None => Ok(active.map(|file| (file, false))),
    }
}

fn name_of(segment: u32, closed: bool) -> String {
    if closed { closed_name(segment) } else { ACTIVE.to_owned() }
}
