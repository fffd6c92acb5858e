//! Reads a session's records from the first to the last that the chain proves.

use std::io;

use posse_actors::event::StoredRecord;
use posse_actors::record::{Replay, Replayed};

use crate::failure::Failure;
use crate::journal::commands::{damaged, unreadable};
use crate::journal::format::Head;
use crate::journal::lock::is_held;
use crate::journal::scan::parse;
use crate::journal::state::{StateDir, StoredSession, Within};
use crate::journal::verify::emptied;
use crate::journal::walk::{ReadError, Stop, beginning, walk};

/// Bytes of journal that are read into memory at once.
const BYTES_MAX: usize = 512 << 20;

/// Calls `each` with every line and its head. What stops it before the end of the journal, such
/// as damage, is returned as a text.
pub(crate) fn records(
    found: &StoredSession,
    each: &mut dyn FnMut(&[u8], Head) -> io::Result<()>,
) -> Result<Option<String>, ReadError> {
    let walked = walk(&found.dir, beginning(&found.id), &mut |line, head, _| each(line, head))?;
    let (after, at) = (walked.end.record - 1, walked.end.offset);
    Ok(match walked.stop {
        Stop::End if is_held(&found.dir) => None,
        Stop::End => {
            let gone = emptied(&found.dir, &walked).map_err(ReadError::Journal)?;
            gone.map(|problem| problem.what)
        }
        // The line that a process writes, or wrote when it was killed.
        Stop::Torn => None,
        Stop::Newer(version) => {
            Some(format!("a later version of posse wrote the rest (format {version})"))
        }
        Stop::Damaged(damage) => Some(format!(
            "the journal is damaged: {damage}, after record {after}, in {} at byte {at}",
            walked.file
        )),
    })
}

/// What the records of a session say, up to the last that the chain proves; and what stops the
/// reading before the end of the journal, if something does.
pub fn replayed(found: &StoredSession) -> Result<(Replayed, Option<String>), Failure> {
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

/// Tells `each` of the records up to `last` whose lines `wanted` is true of, the first one first.
/// What stops the reading before `last` is returned as a text.
pub fn until(
    found: &StoredSession,
    last: u64,
    wanted: &dyn Fn(&[u8]) -> bool,
    each: &mut dyn FnMut(StoredRecord),
) -> Result<Option<String>, Failure> {
    let (mut bytes, mut beyond) = (0, false);
    let read = records(found, &mut |line, head| {
        beyond = head.record > last;
        if beyond {
            return Err(io::Error::other("it is enough"));
        }
        bytes += line.len();
        if bytes > BYTES_MAX {
            return Err(io::Error::other(format!("it is larger than {} MiB", BYTES_MAX >> 20)));
        }
        if wanted(line) {
            each(parse(line, head, &found.id));
        }
        Ok(())
    });
    match read {
        Err(_) if beyond => Ok(None),
        Ok(problem) => Ok(problem),
        Err(ReadError::Out(error) | ReadError::Journal(error)) => Err(unreadable(found, &error)),
    }
}

/// Every record of session `id`, for a reader that needs them all. Damage is an error.
pub fn whole_session(
    state: &StateDir,
    id: &str,
) -> Result<(StoredSession, Vec<StoredRecord>), Failure> {
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
