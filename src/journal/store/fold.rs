//! Folds the records of a session: one pass in order, starting at the fold cache if it is valid.
//!
//! Only one line is in memory at a time.

use std::io;
use std::path::Path;

use posse_actors::ledger::RecoveredUsage;
use posse_actors::ports::JournalError;
use posse_actors::replay::Replay;

use crate::fold_cache::FoldCache;
use crate::format::Head;
use crate::recovery::recover;
use crate::scan::{Stop, parse};
use crate::store::open::{RECENT_IDS, Scanned};
use crate::store::{FileJournal, StoreState};
use crate::walk::{Each, start_of, walk};
use crate::writer::lock;

/// Minimum number of bytes that a fold must read to write a fold cache, outside of tests.
pub(super) const WORTH_BYTES: u64 = 4 << 20;

/// Result of folding a session's records.
#[derive(Debug)]
pub struct Folded {
    /// Folded state of all valid records.
    pub replay: Replay,
    /// Description of the damage that was quarantined, in one line for the user; `None` if there
    /// was none.
    pub repaired: Option<String>,
    /// True if the journal was damaged, so that complete records may be lost. False if there was no
    /// damage, or only an incomplete last line.
    pub lost: bool,
    /// Spending that was recovered from lost records.
    pub salvaged: Vec<RecoveredUsage>,
    /// Number of records that were folded in this pass, without those that the fold cache covers.
    pub read: u64,
    /// Number of the last record that the fold cache covers, which was not folded again; 0 without
    /// a fold cache.
    pub spared: u64,
}

impl FileJournal {
    /// Folds all records, from the fold cache if it fits, and repairs damage. Writes a new
    /// fold cache if many bytes were read. A journal that an earlier call opened is closed. The
    /// next opening uses the result and reads no records again, unless the files have changed.
    ///
    /// Errors: [`JournalError::Newer`] if only a later version can continue the journal,
    /// [`JournalError::Damaged`] if not even the first record is valid, and disk errors. The first
    /// two leave the files unchanged.
    pub fn replayed(&self) -> Result<Folded, JournalError> {
        let store = &*self.shared;
        let session = store.session.as_str();
        let mut turn = store.take_turn();
        *lock(&store.known) = None;
        let tried = match FoldCache::read(&store.dir, session) {
            Some(fold_cache) => store.fold_after(fold_cache)?,
            None => None,
        };
        let (fold, scanned) = if let Some(folded) = tried {
            folded
        } else {
            let mut fold = Fold::new(session);
            store.last_start()?;
            let each: Each<'_> = &mut |line, head, _| fold.push(line, head);
            let scanned = store.scan(start_of(session), each)?;
            (fold, scanned)
        };
        // No record is valid: a repair would quarantine everything and leave no explanation.
        if scanned.is_damaged() && scanned.walked.end.record == 1 && !turn.suspect {
            return Err(scanned.no_valid_record());
        }
        let lost = matches!(scanned.walked.stop, Stop::Damaged(_));
        // A fold cache that was used is not ahead of the fold.
        let accounts = fold.replay.accounts();
        let salvaged = recover(&store.dir, &scanned.walked, accounts, fold.spared == 0);
        let mut found = store.truncate_to_valid(&mut turn, scanned)?;
        if fold.bytes >= store.cache_bytes {
            // Only a cache: if it cannot be written, the next opening takes longer.
            FoldCache::write(&store.dir, found.end, &found.recent_ids, &fold.replay).ok();
        }
        let Fold { replay, read, spared, .. } = fold;
        // The caller of the fold reports the repair; opening has nothing to add.
        let repaired = found.repaired.take();
        *lock(&store.known) = Some(found);
        Ok(Folded { replay, repaired, lost, salvaged, read, spared })
    }
}

impl StoreState {
    /// Folds the records after `fold_cache`. `None` if the journal does not continue the
    /// fold cache, or if the first record that must be verified is damaged.
    fn fold_after(
        &self,
        fold_cache: FoldCache,
    ) -> Result<Option<(Fold<'_>, Scanned)>, JournalError> {
        let FoldCache { place, recent_ids, replay } = fold_cache;
        let last = self.last_start()?;
        // The active file is verified whole, even if its beginning is covered.
        let start = if place.segment < last.segment { place } else { last };
        let mut fold =
            Fold { replay, spared: place.record - 1, ..Fold::new(self.session.as_str()) };
        let mut met = start == place;
        let mut foreign = false;
        let mut scanned = self.scan(start, &mut |line, head, mark| {
            met |= mark == place;
            if met {
                return fold.push(line, head);
            }
            foreign |= mark.record >= place.record;
            Ok(())
        })?;
        met |= scanned.walked.end == place;
        let nothing = scanned.walked.end.record == start.record && scanned.is_damaged();
        if foreign || !met || nothing {
            return Ok(None);
        }
        let missing = RECENT_IDS.saturating_sub(scanned.recent_ids.len());
        if start == place && missing > 0 {
            let from = recent_ids.len().saturating_sub(missing);
            scanned.recent_ids.splice(0..0, recent_ids[from..].iter().copied());
        }
        Ok(Some((fold, scanned)))
    }
}

/// Folds the segments closed since the last fold cache and writes a new fold cache at the end of
/// closed segment `number`. `None` if that fails.
pub(super) fn advance(dir: &Path, session: &str, number: u32) -> Option<()> {
    let (mut fold, start, mut ids) = match FoldCache::read(dir, session) {
        Some(FoldCache { place, recent_ids, replay }) => {
            (Fold { replay, ..Fold::new(session) }, place, recent_ids)
        }
        None => (Fold::new(session), start_of(session), Vec::new()),
    };
    let mut end = None;
    let walked = walk(dir, start, &mut |line, head, mark| {
        if mark.segment > number {
            end.get_or_insert(mark);
            return Err(io::ErrorKind::Interrupted.into());
        }
        if ids.len() >= 2 * RECENT_IDS {
            ids.drain(..RECENT_IDS);
        }
        ids.push(head.id);
        fold.push(line, head)
    });
    let end = match (end, walked) {
        (Some(end), _) => end,
        (None, Ok(walked)) if walked.stop == Stop::End => walked.end,
        (None, _) => return None,
    };
    let recent = ids.len().saturating_sub(RECENT_IDS);
    FoldCache::write(dir, end, &ids[recent..], &fold.replay).ok()
}

/// State of a fold in progress.
struct Fold<'a> {
    session: &'a str,
    replay: Replay,
    read: u64,
    bytes: u64,
    spared: u64,
}

impl Fold<'_> {
    fn new(session: &str) -> Fold<'_> {
        Fold { session, replay: Replay::new(None), read: 0, bytes: 0, spared: 0 }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the callback may fail")]
    fn push(&mut self, line: &[u8], head: Head) -> io::Result<()> {
        self.replay.push(&parse(line, head, self.session));
        self.read += 1;
        self.bytes += line.len() as u64;
        Ok(())
    }
}
