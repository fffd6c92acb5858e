//! Checks the whole chain of a session, closed segments included, without changing anything.

use std::io;
use std::path::Path;

use serde::Serialize;

use crate::journal::format::Chain;
use crate::journal::lock::is_held;
use crate::journal::scan::{Scanner, Step, open_to_read};
use crate::journal::segments::{ACTIVE, closed_name, closed_segments};

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
    let mut verified = Verified {
        records: 0,
        bytes: 0,
        segments: 0,
        last_hash: String::new(),
        running: is_held(dir),
        problem: None,
    };
    let closed = match closed_segments(dir)? {
        Ok(closed) => closed,
        Err(what) => {
            verified.problem = Some(Problem::of_file(what));
            0
        }
    };
    let mut chain = Chain::start(id);
    let mut expected = Some(1);
    for name in (1..=closed).map(closed_name).chain([ACTIVE.to_owned()]) {
        if verified.problem.is_some() {
            break;
        }
        let file = match open_to_read(&dir.join(&name)) {
            Ok(file) => file,
            // A session that was killed between two segments, or before its first record.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name == ACTIVE => break,
            Err(error) => {
                verified.problem = Some(Problem::of_file(format!("{name}: {error}")));
                break;
            }
        };
        let mut scanner = Scanner::new(file, chain, expected, 0);
        verified.problem = scan(&mut scanner, name, &mut verified.records)?;
        verified.segments += 1;
        verified.bytes += scanner.offset();
        (chain, expected) = (scanner.chain(), scanner.expected());
    }
    chain.as_str().clone_into(&mut verified.last_hash);
    Ok(verified)
}

fn scan<R: io::Read>(
    scanner: &mut Scanner<R>,
    file: String,
    records: &mut u64,
) -> io::Result<Option<Problem>> {
    let mut line = 1;
    let (what, torn_tail) = loop {
        match scanner.step()? {
            Step::Record(_) => {
                *records += 1;
                line += 1;
            }
            Step::End => return Ok(None),
            // Closed segments are complete, so there it is damage.
            Step::Torn => {
                break ("torn tail: the last line is incomplete".to_owned(), file == ACTIVE);
            }
            Step::Newer(version) => {
                break (format!("written by a later version (format {version})"), false);
            }
            Step::Damaged(what) => break (what, false),
        }
    };
    Ok(Some(Problem { file, line, offset: scanner.offset(), what, torn_tail }))
}

impl Problem {
    fn of_file(what: String) -> Problem {
        Problem { file: ACTIVE.to_owned(), line: 0, offset: 0, what, torn_tail: false }
    }
}
