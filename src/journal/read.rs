//! Reads a session's records from the first to the last that the chain proves.

use std::io;

use posse_actors::event::StoredRecord;
use posse_actors::record::{Replay, Replayed};

use crate::failure::Failure;
use crate::journal::commands::{damaged, unreadable};
use crate::journal::format::{Chain, Head};
use crate::journal::scan::{Scanner, Step, open_to_read, parse};
use crate::journal::segments::{ACTIVE, closed_name, closed_segments};
use crate::journal::state::{Found, StateDir, Within};

/// Bytes of journal that are read into memory at once.
const BYTES_MAX: usize = 512 << 20;

/// Why reading stopped before its time.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// Whoever is told about the records cannot take them.
    Out(io::Error),
    /// The journal cannot be read.
    Journal(io::Error),
}

/// Calls `each` with every line and its head. What stops it before the end of the journal, such
/// as damage, is returned as a text.
pub(crate) fn records(
    found: &Found,
    each: &mut dyn FnMut(&[u8], Head) -> io::Result<()>,
) -> Result<Option<String>, ReadError> {
    let closed = match closed_segments(&found.dir).map_err(ReadError::Journal)? {
        Ok(closed) => closed,
        Err(gap) => return Ok(Some(gap)),
    };
    let mut chain = Chain::start(&found.id);
    let mut expected = Some(1);
    for name in (1..=closed).map(closed_name).chain([ACTIVE.to_owned()]) {
        let file = match open_to_read(&found.dir.join(&name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(ReadError::Journal(error)),
        };
        let mut scanner = Scanner::new(file, chain, expected, 0);
        loop {
            match scanner.step().map_err(ReadError::Journal)? {
                Step::Record(head) => each(scanner.line(), head).map_err(ReadError::Out)?,
                // The line that a process writes, or wrote when it was killed.
                Step::End | Step::Torn => break,
                Step::Newer(version) => {
                    return Ok(Some(format!(
                        "a later version of posse wrote the rest (format {version})"
                    )));
                }
                Step::Damaged(what) => return Ok(Some(format!("the journal is damaged: {what}"))),
            }
        }
        (chain, expected) = (scanner.chain(), scanner.expected());
    }
    Ok(None)
}

/// What the records of a session say, up to the last that the chain proves; and what stops the
/// reading before the end of the journal, if something does.
pub fn replayed(found: &Found) -> Result<(Replayed, Option<String>), Failure> {
    let mut replay = Replay::new(None);
    let read = records(found, &mut |line, head| {
        replay.push(&parse(line, head, &found.id));
        Ok(())
    });
    match read {
        Ok(problem) => Ok((replay.finish(), problem)),
        Err(ReadError::Out(error) | ReadError::Journal(error)) => Err(unreadable(found, &error)),
    }
}

/// Every record of session `id`, for a reader that needs them all. Damage is an error.
pub fn whole_session(state: &StateDir, id: &str) -> Result<(Found, Vec<StoredRecord>), Failure> {
    let found = state.find(Within::Everywhere, id)?;
    let mut bytes = 0;
    let mut all = Vec::new();
    let read = records(&found, &mut |line, head| {
        bytes += line.len();
        if bytes > BYTES_MAX {
            return Err(io::Error::other(format!("it is larger than {} MiB", BYTES_MAX >> 20)));
        }
        all.push(parse(line, head, &found.id));
        Ok(())
    });
    match read {
        Ok(None) => Ok((found, all)),
        Ok(Some(problem)) => Err(damaged(&found, problem)),
        Err(ReadError::Out(error) | ReadError::Journal(error)) => Err(unreadable(&found, &error)),
    }
}
