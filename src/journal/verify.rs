//! Checks the whole chain of a session, closed segments included, without changing anything.

use std::io;
use std::path::Path;

use serde::Serialize;

use crate::journal::lock::is_held;
use crate::journal::scan::Damage;
use crate::journal::segments::ACTIVE;
use crate::journal::walk::{ReadError, Stop, Walked, beginning, walk};

/// How often progress is told.
const PROGRESS_BYTES: u64 = 32 << 20;

/// What was found in a session's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// Records whose hash fits, up to the first problem.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were read.
    pub segments: u32,
    /// Hash of the last good record.
    pub last_hash: String,
    /// Whether a process owns the session.
    pub running: bool,
    /// What does not fit.
    pub problem: Option<Problem>,
}

/// Where a journal stops being one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The line in it, from 1.
    pub line: u64,
    /// Where that line begins.
    pub offset: u64,
    /// The record that belongs there.
    pub record: u64,
    /// What is wrong, in one word: `torn`, `newer`, `hash`, `no_record`, `zeros`,
    /// `carriage_return`, `repeated`, `gap`, `too_long`, `missing` or `empty`.
    pub kind: String,
    /// What is wrong.
    pub what: String,
    /// Only the last line is incomplete: a process that was killed leaves that, and one that
    /// writes at this moment shows it.
    pub torn_tail: bool,
}

impl Verified {
    /// Whether everything that was ever announced is there: the journal is complete, or its last
    /// line is being written, or was when the process was killed.
    pub fn is_sound(&self) -> bool {
        self.problem.as_ref().is_none_or(|problem| problem.torn_tail)
    }
}

/// Checks the journal in `dir`, which is that of session `id`.
pub fn verify_session(dir: &Path, id: &str) -> io::Result<Verified> {
    verify_telling(dir, id, &mut |_| ())
}

/// The same; `progress` hears now and then how many bytes were checked.
pub(crate) fn verify_telling(
    dir: &Path,
    id: &str,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Verified> {
    let running = is_held(dir);
    let (mut bytes, mut told) = (0, 0);
    let walked = walk(dir, beginning(id), &mut |line, _, _| {
        bytes += line.len() as u64;
        if bytes - told >= PROGRESS_BYTES {
            told = bytes;
            progress(bytes);
        }
        Ok(())
    });
    let walked = match walked {
        Ok(walked) => walked,
        Err(ReadError::Out(error) | ReadError::Journal(error)) => return Err(error),
    };
    // One that has just begun has written nothing so far.
    let gone = if running { None } else { emptied(dir, &walked)? };
    let problem = Problem::of(&walked).or(gone);
    Ok(Verified {
        records: walked.end.record - 1,
        bytes: walked.bytes,
        segments: walked.files,
        last_hash: walked.end.chain.as_str().to_owned(),
        running,
        problem,
    })
}

/// What is wrong with a journal without any record. No process leaves that but one that is killed in
/// the moment when it makes the folder. An active file without records behind a closed segment is
/// nothing unusual.
pub(crate) fn emptied(dir: &Path, walked: &Walked) -> io::Result<Option<Problem>> {
    if walked.stop != Stop::End || walked.end.record > 1 {
        return Ok(None);
    }
    let what = match dir.join(ACTIVE).symlink_metadata() {
        Ok(_) => "the journal is empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "the journal is missing",
        Err(error) => return Err(error),
    };
    Ok(Some(Problem {
        file: ACTIVE.to_owned(),
        line: 0,
        offset: 0,
        record: walked.end.record,
        kind: "empty".to_owned(),
        what: what.to_owned(),
        torn_tail: false,
    }))
}

impl Problem {
    /// Why a walk ended before the end.
    pub(crate) fn of(walked: &Walked) -> Option<Problem> {
        let (what, kind) = match &walked.stop {
            Stop::End => return None,
            Stop::Torn => ("torn tail: the last line is incomplete".to_owned(), "torn"),
            Stop::Newer(version) => {
                (format!("written by a later version (format {version})"), "newer")
            }
            Stop::Damaged(damage) => (damage.to_string(), damage.kind()),
        };
        let missing = matches!(&walked.stop, Stop::Damaged(Damage::Missing { .. }));
        Some(Problem {
            file: walked.file.clone(),
            line: if missing { 0 } else { walked.lines + 1 },
            offset: walked.end.offset,
            record: walked.end.record,
            kind: kind.to_owned(),
            what,
            torn_tail: walked.stop == Stop::Torn,
        })
    }
}
