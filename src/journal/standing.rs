//! How a session stands, in one line for a person: what it waits for, and what is not known of it.

use std::path::Path;
use std::time::SystemTime;

use jiff::tz::TimeZone;
use posse_actors::record::Replayed;

use crate::journal::lock;
use crate::journal::segments::{ACTIVE, closed_name};
use crate::journal::transcript::{counted, local};

/// When the journal in `dir` was last written to, as far as the file system says.
pub fn last_change(dir: &Path) -> Option<SystemTime> {
    dir.join(ACTIVE).metadata().and_then(|about| about.modified()).ok()
}

/// Which process owns the session in `dir`, in words, if one does.
pub fn owner(dir: &Path) -> Option<String> {
    lock::held_by(dir)
}

/// Whether the journal in `dir` has anything in it.
pub fn has_begun(dir: &Path) -> bool {
    let has_bytes = dir.join(ACTIVE).metadata().is_ok_and(|about| about.len() > 0);
    has_bytes || dir.join(closed_name(1)).exists()
}

/// How the session in `dir` stands, whose records say `replayed`.
pub(crate) fn standing(dir: &Path, replayed: &Replayed, zone: &TimeZone) -> String {
    if let Some(owner) = lock::held_by(dir) {
        return format!("running ({owner})");
    }
    if let Some(parked) = &replayed.parked {
        let until = parked.next_try_ms.and_then(|at| local(at, zone));
        let until = until.map_or_else(
            || "its user looks".to_owned(),
            |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        );
        return format!("parked until {until}: {}", parked.cause);
    }
    let unknown = replayed.open_calls.iter().filter(|open| open.effect).count() as u64;
    let broke_off = replayed.last.as_ref().is_some_and(|last| last.ended.is_none());
    match (broke_off, &replayed.ended) {
        (true, _) if unknown > 0 => {
            format!("broke off with {} of unknown outcome", counted(unknown, "call"))
        }
        (true, _) | (false, None) => "broke off".to_owned(),
        (false, Some(reason)) => reason.clone(),
    }
}
