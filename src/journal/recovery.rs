//! Recovers spending from records after damage, in the damaged files or in quarantine files. The
//! hash chain does not prove these records, so they are used for costs only.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use posse_actors::event::{Event, StoredRecord};
use posse_actors::ledger::{Accounts, RecoveredUsage, UnverifiedRecord, UnverifiedRecords};

use crate::fold_cache::FoldCache;
use crate::format::{self, HashChain, LINE_BYTES_MAX};
use crate::scan::{Damage, Stop, if_exists, open_to_read, record_of};
use crate::segments::{ACTIVE, closed_name, closed_segments};
use crate::walk::Walked;

/// Part of a file name that marks a quarantine file.
const QUARANTINE_MARK: &str = ".jsonl.damaged-";

/// Returns the spending of the session in `dir` that is missing in `proven`, the accounts of the
/// valid records.
///
/// The sources are the unproved records after the end of `walked`, the quarantine files, and, if
/// `fold_cache` is true, a fold cache that covers more records than `walked`.
pub(crate) fn recover(
    dir: &Path,
    walked: &Walked,
    proven: &Accounts,
    fold_cache: bool,
) -> Vec<RecoveredUsage> {
    let mut unproved = UnverifiedRecords::default();
    // Quarantined by a process that was killed before it recorded the contents.
    for name in quarantined_files(dir) {
        let mut reader = UnverifiedReader::default();
        reader.file(&dir.join(name), 0).ok();
        let later = |doubted: &UnverifiedRecord| {
            request_of(&doubted.record.event).is_some_and(|number| number > proven.last_request)
        };
        unproved.records.extend(reader.found.records.into_iter().filter(later));
    }
    if matches!(walked.stop, Stop::Damaged(_)) {
        let behind = read_unverified(dir, walked);
        unproved.records.extend(behind.records);
        unproved.unreadable = behind.unreadable;
    }
    let beside = fold_cache.then(|| FoldCache::last_accounts(dir)).flatten();
    let ahead = beside.filter(|(record, _)| *record > walked.end.record);
    unproved.floor = ahead.map(|(_, accounts)| Box::new(accounts));
    proven.recover(&unproved)
}

/// Reads the cost records after the damage: from the damaged file, and from the journal files after
/// it.
fn read_unverified(dir: &Path, walked: &Walked) -> UnverifiedRecords {
    let mut reader = UnverifiedReader {
        last: walked.end.record.saturating_sub(1),
        before: Some(walked.end.chain),
        ..UnverifiedReader::default()
    };
    if matches!(walked.stop, Stop::Damaged(Damage::Missing { .. } | Damage::Torn)) {
        reader.found.unreadable += 1;
    }
    let mut names = vec![walked.file.clone()];
    if walked.file != ACTIVE {
        let closed = closed_segments(dir).unwrap_or_default();
        let later = (1..=closed.count).chain(closed.stray);
        names.extend(later.filter(|number| *number > walked.end.segment).map(closed_name));
        names.push(ACTIVE.to_owned());
    }
    for (nth, name) in names.iter().enumerate() {
        let offset = if nth == 0 { walked.end.offset } else { 0 };
        let read = if_exists(reader.file(&dir.join(name), offset));
        reader.found.unreadable += u64::from(read.is_err());
    }
    reader.found
}

/// Names of the quarantine files in `dir`, sorted.
fn quarantined_files(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.contains(QUARANTINE_MARK)).collect();
    names.sort_unstable();
    names
}

/// Number in the session of the attempt to which a cost record belongs; `None` for another event.
fn request_of(event: &Event) -> Option<u64> {
    match event {
        Event::ModelUsage { billing: Some(billing), .. } => Some(billing.request),
        Event::BudgetReserved { request, .. } | Event::BudgetReleased { request } => Some(*request),
        _ => None,
    }
}

/// Collects cost records (model usage, budget reservations and releases) from lines that the hash
/// chain does not prove.
#[derive(Default)]
struct UnverifiedReader {
    found: UnverifiedRecords,
    /// Number of the last record; a record with this or a lower number is a duplicate.
    last: u64,
    /// Hash written in the previous line; `None` if there is none.
    before: Option<HashChain>,
}

impl UnverifiedReader {
    fn file(&mut self, path: &Path, offset: u64) -> io::Result<()> {
        let mut file: File = open_to_read(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = LINE_BYTES_MAX as u64 + 1;
            let read = reader.by_ref().take(limit).read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                // An incomplete last line is no loss; zeros and a line above the limit are.
                let lost = read > LINE_BYTES_MAX || line.contains(&0);
                self.found.unreadable += u64::from(lost);
                return Ok(());
            }
            self.line(&line);
        }
    }

    fn line(&mut self, line: &[u8]) {
        let split = format::split(line);
        let intact = split.is_some_and(|(body, claimed)| {
            self.before.is_none_or(|before| before.next(body) == claimed)
        });
        self.before = split.map(|(_, claimed)| claimed);
        match record_of(line) {
            Some(StoredRecord { event: Event::Unknown, .. }) if intact => (),
            None | Some(StoredRecord { event: Event::Unknown, .. }) => self.found.unreadable += 1,
            // Duplicate of an earlier record.
            Some(record) if record.record <= self.last => (),
            Some(record) => {
                self.last = record.record;
                let counts = matches!(
                    record.event,
                    Event::ModelUsage { .. }
                        | Event::BudgetReserved { .. }
                        | Event::BudgetReleased { .. }
                );
                if counts {
                    self.found.records.push(UnverifiedRecord { record, intact });
                }
            }
        }
    }
}
