//! Segment files of one session, and an index from record numbers to positions in them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::format::{self, HEAD_BYTES_MAX, HashChain, Head, SUFFIX_LEN};

/// Name of the active segment, which records are appended to.
pub(crate) const ACTIVE: &str = "session.jsonl";
/// Size in bytes at which the active segment is closed and a new one begins.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 20;
/// Number of records between two marks of the index.
const MARK_EVERY: u64 = 512;

/// File name of closed segment `number`, counted from 1.
pub(crate) fn closed_name(number: u32) -> String {
    format!("session-{number:06}.jsonl")
}

/// Numbers of the closed segments of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Number of closed segments before the first gap: segments 1 to `count` exist.
    pub(crate) count: u32,
    /// Numbers of the segments after the first gap, in ascending order. Empty if no segment is
    /// missing.
    pub(crate) stray: Vec<u32>,
}

impl Closed {
    /// File name of the first missing segment; `None` if no segment is missing.
    pub(crate) fn gap(&self) -> Option<String> {
        self.last_before_gap().map(|last| closed_name(last + 1))
    }

    /// Number of the last segment before the first gap, 0 if segment 1 is missing. `None` if there
    /// is no gap.
    pub(crate) fn last_before_gap(&self) -> Option<u32> {
        (!self.stray.is_empty()).then_some(self.count)
    }
}

/// Lists the closed segments in `dir`. Reads only file names.
pub(crate) fn closed_segments(dir: &Path) -> io::Result<Closed> {
    let mut numbers: Vec<u32> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| {
            let digits = name.strip_prefix("session-")?.strip_suffix(".jsonl")?;
            digits.parse().ok().filter(|number| *number > 0 && closed_name(*number) == name)
        });
        numbers.extend(number);
    }
    numbers.sort_unstable();
    let mut closed = Closed::default();
    for number in numbers {
        if closed.stray.is_empty() && number == closed.count + 1 {
            closed.count = number;
        } else {
            closed.stray.push(number);
        }
    }
    Ok(closed)
}

/// Reads the head of the first line of `file`. `None` if the file does not begin with a record.
pub(crate) fn first_head(file: &mut File) -> io::Result<Option<Head>> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES_MAX);
    file.seek(SeekFrom::Start(0))?;
    file.by_ref().take(HEAD_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(format::head(&bytes))
}

/// Reads the hash written at the end of the last line of `file`, without verifying it. `None` if
/// the file does not end with a complete line.
pub(crate) fn last_chain(file: &mut File) -> io::Result<Option<HashChain>> {
    let length = file.metadata()?.len();
    chain_before(file, length)
}

/// Reads the hash written at the end of the line that ends at byte `length` of `file`, without
/// verifying it. `None` if no complete line ends there.
pub(crate) fn chain_before(file: &mut File, length: u64) -> io::Result<Option<HashChain>> {
    let mut bytes = [0; SUFFIX_LEN];
    let Some(start) = length.checked_sub(SUFFIX_LEN as u64) else { return Ok(None) };
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    Ok(format::split(&bytes).map(|(_, chain)| chain))
}

/// Position in the journal between two records, at which reading or writing can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number of the record after this position.
    pub(crate) record: u64,
    /// Number of the segment, from 1. The active file has the number after the last closed segment.
    pub(crate) segment: u32,
    /// Offset in the segment's file, in bytes.
    pub(crate) offset: u64,
    /// Hash of the record before this position; the start value of the hash chain before record 1.
    pub(crate) chain: HashChain,
}

/// In-memory index from record numbers to positions, with a mark about every `MARK_EVERY` records.
/// It is built when the journal is opened and extended when records are written.
#[derive(Debug)]
pub(crate) struct Segments {
    dir: PathBuf,
    marks: Vec<Mark>,
}

impl Segments {
    pub(crate) fn new(dir: PathBuf) -> Segments {
        Segments { dir, marks: Vec::new() }
    }

    /// Clears the index.
    pub(crate) fn reset(&mut self) {
        self.marks.clear();
    }

    /// Drops the marks at and after the position of `mark`.
    pub(crate) fn forget_from(&mut self, mark: Mark) {
        let after = self
            .marks
            .partition_point(|known| (known.segment, known.offset) < (mark.segment, mark.offset));
        self.marks.truncate(after);
    }

    /// The session's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds `mark` if it is in another segment than the last mark, or at least `MARK_EVERY` records
    /// after it.
    pub(crate) fn note(&mut self, mark: Mark) {
        let far = self.marks.last().is_none_or(|last| {
            last.segment != mark.segment || mark.record >= last.record + MARK_EVERY
        });
        if far {
            self.marks.push(mark);
        }
    }

    /// Drops the marks in segments with a number above `active`.
    pub(crate) fn forget_after(&mut self, active: u32) {
        let after = self.marks.partition_point(|mark| mark.segment <= active);
        self.marks.truncate(after);
    }

    /// Finds the nearest mark at or before record number `record`, or else the first mark. `None`
    /// if the index is empty.
    pub(crate) fn mark_before(&self, record: u64) -> Option<Mark> {
        let after = self.marks.partition_point(|mark| mark.record <= record);
        self.marks[..after].last().or(self.marks.first()).copied()
    }
}
