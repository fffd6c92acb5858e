//! The files of one session, and where in them which record is found.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::journal::format::{self, HEAD_BYTES_MAX, HashChain, Head, SUFFIX_LEN};

/// The file that grows.
pub(crate) const ACTIVE: &str = "session.jsonl";
/// Bytes at which the active file is closed and another one begins.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 20;
/// A mark is set each that many records.
const MARK_EVERY: u64 = 512;

/// The name of closed segment `number`, from 1.
pub(crate) fn closed_name(number: u32) -> String {
    format!("session-{number:06}.jsonl")
}

/// The closed segments of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// How many there are without a gap, from 1.
    pub(crate) count: u32,
    /// Numbers of those behind a gap, in order.
    pub(crate) stray: Vec<u32>,
}

impl Closed {
    /// The segment that should be there and is not.
    pub(crate) fn gap(&self) -> Option<String> {
        self.gap_after().map(|last| closed_name(last + 1))
    }

    /// The last segment before a gap, if there is a gap.
    pub(crate) fn gap_after(&self) -> Option<u32> {
        (!self.stray.is_empty()).then_some(self.count)
    }
}

/// Finds the closed segments in `dir`. Only names are read.
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

/// The first line's beginning, if the file has one.
pub(crate) fn first_head(file: &mut File) -> io::Result<Option<Head>> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES_MAX);
    file.seek(SeekFrom::Start(0))?;
    file.by_ref().take(HEAD_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(format::head(&bytes))
}

/// The hash that the last line claims, if there is a whole one.
pub(crate) fn last_chain(file: &mut File) -> io::Result<Option<HashChain>> {
    let length = file.metadata()?.len();
    chain_before(file, length)
}

/// The hash that the line claims which ends at `length`.
pub(crate) fn chain_before(file: &mut File, length: u64) -> io::Result<Option<HashChain>> {
    let mut bytes = [0; SUFFIX_LEN];
    let Some(start) = length.checked_sub(SUFFIX_LEN as u64) else { return Ok(None) };
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    Ok(format::split(&bytes).map(|(_, chain)| chain))
}

/// A place where reading can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The record that begins here.
    pub(crate) record: u64,
    /// Its segment, from 1; the active file is the one after the last closed one.
    pub(crate) segment: u32,
    /// Where in the file.
    pub(crate) offset: u64,
    /// What it continues.
    pub(crate) chain: HashChain,
}

/// Where which record is. A cache in memory, made on opening.
#[derive(Debug)]
pub(crate) struct Segments {
    dir: PathBuf,
    closed: u32,
    marks: Vec<Mark>,
}

impl Segments {
    pub(crate) fn new(dir: PathBuf) -> Segments {
        Segments { dir, closed: 0, marks: Vec::new() }
    }

    /// Forgets everything but the directory.
    pub(crate) fn reset(&mut self, closed: u32) {
        self.closed = closed;
        self.marks.clear();
    }

    /// Forgets the marks that are not before `mark`.
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

    /// Number of the segment that grows.
    pub(crate) fn active(&self) -> u32 {
        self.closed + 1
    }

    /// Remembers `mark` if it is far enough from the last one.
    pub(crate) fn note(&mut self, mark: Mark) {
        let far = self.marks.last().is_none_or(|last| {
            last.segment != mark.segment || mark.record >= last.record + MARK_EVERY
        });
        if far {
            self.marks.push(mark);
        }
    }

    /// Says how many segments are closed now.
    pub(crate) fn set_closed(&mut self, closed: u32) {
        self.closed = closed;
        let after = self.marks.partition_point(|mark| mark.segment <= closed + 1);
        self.marks.truncate(after);
    }

    /// The best mark to find `record` from.
    pub(crate) fn mark_before(&self, record: u64) -> Option<Mark> {
        let after = self.marks.partition_point(|mark| mark.record <= record);
        self.marks[..after].last().or(self.marks.first()).copied()
    }
}
