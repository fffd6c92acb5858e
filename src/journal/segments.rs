//! Segment files of one session, and an index from record numbers to positions in them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::format::{self, HEAD_BYTES_MAX, HashChain, Head, SUFFIX_LEN};

/// Name of the active segment, which records are appended to.
pub(crate) const ACTIVE: &str = "session.jsonl";
/// Size at which the active segment is closed and a new one begins.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 20;
/// Number of records between two marks of the index.
const MARK_EVERY: u64 = 512;

/// File name of closed segment `number`, counted from 1.
pub(crate) fn closed_name(number: u32) -> String {
    format!("session-{number:06}.jsonl")
}

/// Closed segments of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Number of segments without a gap, from 1.
    pub(crate) count: u32,
    /// Numbers of the segments behind a gap, in order.
    pub(crate) stray: Vec<u32>,
}

impl Closed {
    /// Name of the missing segment, if there is a gap.
    pub(crate) fn gap(&self) -> Option<String> {
        self.last_before_gap().map(|last| closed_name(last + 1))
    }

    /// Number of the last segment before the gap, if there is one.
    pub(crate) fn last_before_gap(&self) -> Option<u32> {
        (!self.stray.is_empty()).then_some(self.count)
    }
}

/// Lists the closed segments in `dir`. Reads only names.
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

/// Head of the first line, if the file has one.
pub(crate) fn first_head(file: &mut File) -> io::Result<Option<Head>> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES_MAX);
    file.seek(SeekFrom::Start(0))?;
    file.by_ref().take(HEAD_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(format::head(&bytes))
}

/// Hash that the last complete line claims, if there is one.
pub(crate) fn last_chain(file: &mut File) -> io::Result<Option<HashChain>> {
    let length = file.metadata()?.len();
    chain_before(file, length)
}

/// Hash that the line ending at `length` claims.
pub(crate) fn chain_before(file: &mut File, length: u64) -> io::Result<Option<HashChain>> {
    let mut bytes = [0; SUFFIX_LEN];
    let Some(start) = length.checked_sub(SUFFIX_LEN as u64) else { return Ok(None) };
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    Ok(format::split(&bytes).map(|(_, chain)| chain))
}

/// A position at which reading can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number of the record that begins here.
    pub(crate) record: u64,
    /// Its segment, from 1; the active file comes after the last closed one.
    pub(crate) segment: u32,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Hash of the record before it.
    pub(crate) chain: HashChain,
}

/// In-memory index from record numbers to positions, built when the journal is opened.
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

    /// Drops all marks from `mark` on.
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

    /// Adds `mark` if it is far enough from the last one.
    pub(crate) fn note(&mut self, mark: Mark) {
        let far = self.marks.last().is_none_or(|last| {
            last.segment != mark.segment || mark.record >= last.record + MARK_EVERY
        });
        if far {
            self.marks.push(mark);
        }
    }

    /// Drops the marks behind the active segment.
    pub(crate) fn forget_after(&mut self, active: u32) {
        let after = self.marks.partition_point(|mark| mark.segment <= active);
        self.marks.truncate(after);
    }

    /// Nearest mark at or before `record`.
    pub(crate) fn mark_before(&self, record: u64) -> Option<Mark> {
        let after = self.marks.partition_point(|mark| mark.record <= record);
        self.marks[..after].last().or(self.marks.first()).copied()
    }
}
