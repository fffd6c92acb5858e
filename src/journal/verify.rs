//! Verifies the whole hash chain of a session, closed segments included, without changing
//! anything.

use std::fs::Metadata;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::lock::{lock_file, owner_of};
use crate::scan::{Damage, Stop, if_exists};
use crate::segments::ACTIVE;
use crate::walk::{Walked, start_of, walk};

/// Bytes between two progress reports.
const PROGRESS_BYTES: u64 = 32 << 20;

/// Result of verifying a session's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// Number of valid records before the first problem.
    pub records: u64,
    /// Total size of the valid records, in bytes.
    pub bytes: u64,
    /// Number of journal files read: closed segments and the active file.
    pub segments: u32,
    /// Hash of the last valid record, in hex; the start value of the hash chain if there is none.
    pub last_hash: String,
    /// True if a process owns the session.
    pub running: bool,
    /// First problem of the journal; `None` if there is none.
    pub problem: Option<Problem>,
}

/// First problem of a journal: its position, kind and description.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Name of the file with the problem, without its folder.
    pub file: String,
    /// Number of the invalid line in the file, from 1; 0 if the file is missing or empty.
    pub line: u64,
    /// Offset of that line in the file, in bytes.
    pub offset: u64,
    /// Number of the record that belongs at this position.
    pub record: u64,
    /// Kind of the problem in one word: `torn`, `newer`, `hash`, `no_record`, `zeros`,
    /// `carriage_return`, `repeated`, `gap`, `too_long`, `missing` or `empty`.
    pub kind: String,
    /// Description of the problem.
    pub what: String,
    /// True if the problem is only an incomplete last line: the line is being written, or its
    /// process was killed while writing it.
    pub torn_tail: bool,
    /// True if the journal has no record because its process ended before it wrote one. By the
    /// times of the file system nothing was written or removed.
    pub never_begun: bool,
}

impl Verified {
    /// Returns true if the journal has no problem by which records are lost. An incomplete last
    /// line, whose record was never announced, and a journal that was never begun are none.
    pub fn is_sound(&self) -> bool {
        self.problem.as_ref().is_none_or(|problem| problem.torn_tail || problem.never_begun)
    }
}

/// Verifies the journal of session `id` in `dir`. Damage is part of the result; only a file that
/// cannot be read is an error.
pub fn verify_session(dir: &Path, id: &str) -> io::Result<Verified> {
    verify_with_progress(dir, id, &mut |_| ())
}

/// Like [`verify_session`], and calls `progress` about every 32 MiB with the number of bytes
/// verified so far.
pub(crate) fn verify_with_progress(
    dir: &Path,
    id: &str,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Verified> {
    let running = owner_of(dir).is_some();
    let (mut bytes, mut told) = (0, 0);
    let walked = walk(dir, start_of(id), &mut |line, _, _| {
        bytes += line.len() as u64;
        if bytes - told >= PROGRESS_BYTES {
            told = bytes;
            progress(bytes);
        }
        Ok(())
    })?;
    // A session that has just begun has written nothing yet.
    let gone = if running { None } else { empty_journal(dir, &walked)? };
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

/// Returns the problem "empty" if `walked` found neither a record nor another problem, also if the
/// journal file is missing; otherwise `None`. A journal without records remains if the process was
/// killed before it wrote the first one. An empty active file after a closed segment is normal.
pub(crate) fn empty_journal(dir: &Path, walked: &Walked) -> io::Result<Option<Problem>> {
    if walked.stop != Stop::End || walked.end.record > 1 {
        return Ok(None);
    }
    let file = if_exists(dir.join(ACTIVE).symlink_metadata())?;
    let never_begun = match &file {
        Some(about) => is_as_created(about),
        None => is_nothing_removed(dir),
    };
    let what = match file {
        _ if never_begun => "the journal has no record: its process ended before it wrote one",
        Some(_) => "the journal is empty",
        None => "the journal is missing",
    };
    Ok(Some(Problem {
        file: ACTIVE.to_owned(),
        record: walked.end.record,
        kind: "empty".to_owned(),
        what: what.to_owned(),
        never_begun,
        ..Problem::default()
    }))
}

/// Returns true if the file was not written since it was created. False if the file system does not
/// record the time of creation.
fn is_as_created(about: &Metadata) -> bool {
    about.created().is_ok_and(|created| about.modified().is_ok_and(|changed| changed <= created))
}

/// Returns true if the last change of the folder `dir` was its creation or that of the lock file,
/// which is made before the journal. False if the file system does not record these times.
fn is_nothing_removed(dir: &Path) -> bool {
    let created = |path: &Path| path.symlink_metadata().and_then(|about| about.created()).ok();
    let last = created(&lock_file(dir)).max(created(dir));
    let changed = dir.metadata().and_then(|about| about.modified()).ok();
    changed.is_some_and(|changed| last.is_some_and(|last| changed <= last))
}

impl Problem {
    /// Describes the problem that stopped a walk; `None` if the walk read all records.
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
            never_begun: false,
        })
    }
}
