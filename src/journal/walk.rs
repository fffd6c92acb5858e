//! Reads all segments of a session in order, as one hash chain.
//!
//! No lock is taken: meanwhile, the process that owns the session may append records and close a
//! segment.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::format::{HashChain, Head};
use crate::scan::{Damage, Scanner, Stop, if_exists, open_to_read};
use crate::segments::{ACTIVE, Mark, closed_name, closed_segments};

/// Error of a walk.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The callback failed.
    Out(io::Error),
    /// The journal cannot be read.
    Journal(io::Error),
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::Out(error) | ReadError::Journal(error) => error,
        }
    }
}

/// Callback for every valid line, with the line's [`Head`] and the position at which the line
/// begins.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&[u8], Head, Mark) -> io::Result<()>;

/// Result of a walk: the position at which it ended, and the reason.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) stop: Stop,
    /// Position after the last valid record.
    pub(crate) end: Mark,
    /// Name of the file in which the walk ended, or of the missing segment.
    pub(crate) file: String,
    /// Number of valid lines that this walk read from `file`.
    pub(crate) lines: u64,
    /// Number of files read.
    pub(crate) files: u32,
    /// Total bytes of the valid lines read.
    pub(crate) bytes: u64,
}

/// Position of the first record in the journal of session `id`.
pub(crate) fn start_of(id: &str) -> Mark {
    Mark { record: 1, segment: 1, offset: 0, chain: HashChain::start(id) }
}

/// Reads the journal in `dir` from position `from` on and calls `each` for every valid line. Stops
/// at the first invalid line, at a missing segment, or at the end; [`Walked::stop`] is the reason.
/// An error of `each` ends the walk as [`ReadError::Out`].
pub(crate) fn walk(dir: &Path, from: Mark, each: Each<'_>) -> Result<Walked, ReadError> {
    let gap = closed_segments(dir).map_err(ReadError::Journal)?.last_before_gap();
    let mut walked = Walked {
        stop: Stop::End,
        end: from,
        file: ACTIVE.to_owned(),
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
        walked.file = if closed { closed_name(segment) } else { ACTIVE.to_owned() };
        walked.files += 1;
        walked.lines = 0;
        let at = io::SeekFrom::Start(walked.end.offset);
        io::Seek::seek(&mut file, at).map_err(ReadError::Journal)?;
        let stop = read_file(file, &mut walked, each)?;
        // The file may have been closed during the read.
        let closed = closed || (stop == Stop::End && dir.join(closed_name(segment)).exists());
        walked.stop = match stop {
            Stop::Torn if closed => Stop::Damaged(Damage::Torn),
            stop => stop,
        };
        if walked.stop != Stop::End || !closed {
            return Ok(walked);
        }
        walked.end = Mark { segment: segment + 1, offset: 0, ..walked.end };
    }
}

fn read_file(file: File, walked: &mut Walked, each: Each<'_>) -> Result<Stop, ReadError> {
    let mut scanner = Scanner::new(file, walked.end);
    loop {
        let head = match scanner.step().map_err(ReadError::Journal)? {
            Ok(head) => head,
            Err(stop) => return Ok(stop),
        };
        each(&scanner.line, head, walked.end).map_err(ReadError::Out)?;
        walked.lines += 1;
        walked.bytes += scanner.line.len() as u64;
        walked.end = scanner.at;
    }
}

/// Opens segment `number`. The flag is true for a closed segment and false for the active file.
/// `None` if neither file exists.
pub(crate) fn open_segment(dir: &Path, number: u32) -> io::Result<Option<(File, bool)>> {
    let open = |name: &str| {
        if_exists(open_to_read(&dir.join(name)))
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
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
