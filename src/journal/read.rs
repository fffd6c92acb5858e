//! Reads the records of a session up to the last one that the hash chain proves.

use std::io;

use posse_actors::event::StoredRecord;
use posse_actors::replay::{Replay, Replayed};
use posse_base::failure::Failure;

use crate::commands::{damaged, unreadable};
use crate::format::Head;
use crate::lock::owner_of;
use crate::scan::{Stop, parse};
use crate::state::{StateDir, StoredSession, Within};
use crate::verify::empty_journal;
use crate::walk::{ReadError, start_of, walk};

/// Maximum bytes of journal that [`until`] reads.
const BYTES_MAX: usize = 512 << 20;

/// Calls `each` with every valid line of the journal and the line's [`Head`], in order. Returns a
/// description of the problem that stopped the reading (damage, a later format version or an empty
/// journal), or `None`. An incomplete last line is not a problem, and an empty journal is none
/// while a process owns the session.
pub(crate) fn records(
    found: &StoredSession,
    each: &mut dyn FnMut(&[u8], Head) -> io::Result<()>,
) -> Result<Option<String>, ReadError> {
    let walked = walk(&found.dir, start_of(&found.id), &mut |line, head, _| each(line, head))?;
    let (after, at) = (walked.end.record - 1, walked.end.offset);
    Ok(match walked.stop {
        Stop::End if owner_of(&found.dir).is_some() => None,
        Stop::End => {
            let gone = empty_journal(&found.dir, &walked).map_err(ReadError::Journal)?;
            gone.map(|problem| problem.what)
        }
        // A line that is being written, or was when its process was killed.
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

/// Passes every valid record to `each`, in order. Returns a description of the problem that stopped
/// the reading, as [`records`] does, or `None`. Fails if a file cannot be read.
pub(crate) fn each_record(
    found: &StoredSession,
    each: &mut dyn FnMut(StoredRecord),
) -> Result<Option<String>, Failure> {
    let read = records(found, &mut |line, head| {
        each(parse(line, head, &found.id));
        Ok(())
    });
    read.map_err(|error| unreadable(found, &error.into()))
}

/// Folds the valid records of a session. Also returns a description of the problem that stopped the
/// reading (damage, a later format version or an empty journal), or `None`. Fails if a file cannot
/// be read.
pub fn replayed(found: &StoredSession) -> Result<(Replayed, Option<String>), Failure> {
    let mut replay = Replay::new(None);
    let problem = each_record(found, &mut |record| replay.push(&record))?;
    Ok((replay.finish(), problem))
}

/// Passes the records up to and including number `last` to `each`, in order. Skips a record if
/// `wanted` returns false for its line. Returns a description of the problem that stopped the
/// reading before `last`, or `None`. More than `BYTES_MAX` bytes are an error.
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
        read => read.map_err(|error| unreadable(found, &error.into())),
    }
}

/// Reads all records of session `id` into memory; `id` may be a unique prefix. Damage, an empty
/// journal, records of a later format version, and more than 512 MiB are errors.
pub fn whole_session(
    state: &StateDir,
    id: &str,
) -> Result<(StoredSession, Vec<StoredRecord>), Failure> {
    let found = state.find(Within::Everywhere, id)?;
    let mut all = Vec::new();
    match until(&found, u64::MAX, &|_| true, &mut |record| all.push(record))? {
        None => Ok((found, all)),
        Some(problem) => Err(damaged(&found, problem)),
    }
}
