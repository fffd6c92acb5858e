//! The files of one session, and where in them which record is found.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::journal::format::{self, Chain, HEAD_BYTES_MAX, Head, SUFFIX_LEN};
use crate::journal::scan::open_to_read;

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

/// How many closed segments `dir` has; the outer error is the disk's, the inner one names a gap.
pub(crate) fn closed_segments(dir: &Path) -> io::Result<Result<u32, String>> {
    let mut numbers: Vec<u32> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| {
            let digits = name.strip_prefix("session-")?.strip_suffix(".jsonl")?;
            digits.parse().ok().filter(|number| closed_name(*number) == name)
        });
        numbers.extend(number);
    }
    numbers.sort_unstable();
    for (number, expected) in numbers.iter().zip(1..) {
        if *number != expected {
            return Ok(Err(format!("{} is missing", closed_name(expected))));
        }
    }
    Ok(Ok(u32::try_from(numbers.len()).unwrap_or(u32::MAX)))
}

/// The first line's beginning, if the file has one.
pub(crate) fn first_head(file: &mut File) -> io::Result<Option<Head>> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES_MAX);
    file.seek(SeekFrom::Start(0))?;
    file.by_ref().take(HEAD_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(format::head(&bytes))
}

/// The hash that the last line claims, if there is a whole one.
pub(crate) fn last_chain(file: &mut File) -> io::Result<Option<Chain>> {
    let length = file.metadata()?.len();
    let mut bytes = [0; SUFFIX_LEN];
    let Some(start) = length.checked_sub(SUFFIX_LEN as u64) else { return Ok(None) };
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    Ok(format::split(&bytes).map(|(_, chain)| chain))
}

/// A place where reading can begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// The record that begins here.
    pub(crate) record: u64,
    /// Its segment, from 1; the active file is the one after the last closed one.
    pub(crate) segment: u32,
    /// Where in the file.
    pub(crate) offset: u64,
    /// What it continues.
    pub(crate) chain: Chain,
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

    /// Renames the active file to the next closed segment.
    pub(crate) fn close_active(&mut self) -> io::Result<()> {
        let closed = self.dir.join(closed_name(self.closed + 1));
        std::fs::rename(self.dir.join(ACTIVE), closed)?;
        self.closed += 1;
        Ok(())
    }

    /// The best mark to find `record` from.
    pub(crate) fn mark_before(&self, record: u64) -> Option<Mark> {
        let after = self.marks.partition_point(|mark| mark.record <= record);
        self.marks[..after].last().or(self.marks.first()).copied()
    }

    /// Opens a segment for reading; `None` after the last one.
    pub(crate) fn open(&self, segment: u32) -> io::Result<Option<File>> {
        let name = match segment {
            closed if closed <= self.closed => closed_name(closed),
            active if active == self.active() => ACTIVE.to_owned(),
            _ => return Ok(None),
        };
        match open_to_read(&self.dir.join(name)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
