//! Opens a journal: finds the end of the longest valid prefix, quarantines everything after it, and
//! continues from there.
//!
//! The active file is always verified whole. Of a closed segment only the first head and the last
//! hash are read, unless they do not fit: then everything is verified from the first record on.

use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use posse_actors::event::RecordId;
use posse_actors::ports::{JournalError, OpenedJournal};

use crate::format::{HashChain, Head};
use crate::scan::{Stop, if_exists, open_to_read};
use crate::segments::{ACTIVE, Mark, closed_name, closed_segments, first_head, last_chain};
use crate::store::fold::advance;
use crate::store::{FileAppender, StoreState, WriterThread};
use crate::walk::{Each, Walked, start_of, walk};
use crate::writer::disk::{ActiveFile, NextDisk};
use crate::writer::{NEXT, Tail, WriterTurn, io_error, lock};

/// Maximum number of recent record ids that are returned for the detection of duplicates.
pub(super) const RECENT_IDS: usize = 1024;

/// Result of a walk over the journal, with the ids of the last records.
pub(super) struct Scanned {
    pub(super) walked: Walked,
    pub(super) recent_ids: Vec<RecordId>,
}

/// End of a valid journal, at which it is continued. `repaired` describes the repair; `None` if
/// none was needed or the fold has reported it.
#[derive(Debug)]
pub(super) struct ValidPrefix {
    pub(super) end: Mark,
    pub(super) recent_ids: Vec<RecordId>,
    pub(super) repaired: Option<String>,
}

impl StoreState {
    /// Opens the journal for appending, and repairs damage first. A journal that an earlier call
    /// opened is closed.
    pub(super) fn open(self: &Arc<Self>) -> Result<OpenedJournal, JournalError> {
        let mut turn = self.take_turn();
        let found = match self.known_end(&turn) {
            Some(found) => found,
            None => self.find_end(&mut turn)?,
        };
        let path = self.dir.join(ACTIVE);
        let created = !path.exists();
        let disk = ActiveFile::open(&path).map_err(io_error)?;
        let mut new_entries = lock(&self.new_entries).clone();
        if created {
            new_entries.push(self.dir.clone());
        }
        let next = self.dir.join(NEXT);
        let next_disk: NextDisk = Box::new(move || Ok(Box::new(ActiveFile::next(&next, &path)?)));
        let tail = Tail {
            disk: Some(Box::new(disk)),
            next_disk,
            end: found.end,
            new_entries,
            segments: Arc::clone(&self.segments),
            segment_bytes: self.segment_bytes,
            rotate_from: 0,
            scarce: false,
            closed: self.after_closing(),
            steps: self.steps.clone(),
        };
        let generation = turn.generation;
        drop(turn);
        let writer = Arc::new(WriterThread::default());
        *lock(&self.current) = Some(Arc::clone(&writer));
        let (shared, tail) = (Arc::clone(self), Mutex::new(Some(tail)));
        let journal = Box::new(FileAppender { shared, generation, writer, tail });
        let ValidPrefix { recent_ids, repaired, end } = found;
        Ok(OpenedJournal { journal, last_record: end.record - 1, recent_ids, repaired })
    }

    /// Closes the journal that was opened before and takes the write permission. Waits for a
    /// running write.
    pub(super) fn take_turn(&self) -> MutexGuard<'_, WriterTurn> {
        if let Some(earlier) = lock(&self.current).take() {
            earlier.queue.close();
        }
        let mut turn = lock(&self.turn);
        turn.generation += 1;
        turn
    }

    /// Takes the end of the journal that the last fold found. `None` if there was no fold, the
    /// files have changed since, or a sync failed.
    fn known_end(&self, turn: &WriterTurn) -> Option<ValidPrefix> {
        let found = lock(&self.known).take().filter(|_| !turn.suspect)?;
        let closed = closed_segments(&self.dir).ok()?;
        if closed.count + 1 != found.end.segment || !closed.stray.is_empty() {
            return None;
        }
        let empty = found.end.offset == 0;
        let ends = match if_exists(open_to_read(&self.dir.join(ACTIVE))).ok()? {
            Some(mut file) => {
                let chain = last_chain(&mut file).ok()?;
                file.metadata().ok()?.len() == found.end.offset
                    && (empty || chain == Some(found.end.chain))
            }
            None => empty,
        };
        ends.then_some(found)
    }

    /// Creates the callback for closed segments. It writes a fold cache on a thread of its own, or
    /// does nothing if fold caches are disabled.
    fn after_closing(&self) -> Box<dyn Fn(u32) + Send> {
        let (dir, session) = (self.dir.clone(), self.session.clone());
        let wanted = self.cache_bytes < u64::MAX;
        Box::new(move |number| {
            if !wanted {
                return;
            }
            let (dir, session) = (dir.clone(), session.clone());
            std::thread::Builder::new()
                .name("posse-journal-fold-cache".to_owned())
                .spawn(move || advance(&dir, session.as_str(), number))
                .ok();
        })
    }

    fn find_end(&self, turn: &mut WriterTurn) -> Result<ValidPrefix, JournalError> {
        let start = self.last_start()?;
        let mut nobody = |_: &[u8], _: Head, _: Mark| Ok(());
        let mut scanned = self.scan(start, &mut nobody)?;
        let first = start_of(self.session.as_str());
        // If not even the first line of the active file fits, the fault may be in an earlier
        // segment.
        if start.segment > 1 && scanned.is_damaged() && scanned.walked.end.record == start.record {
            scanned = self.scan(first, &mut nobody)?;
        }
        self.truncate_to_valid(turn, scanned)
    }

    /// Finds the start of the last file with records, which is the active file or the last closed
    /// segment, and rebuilds the index with one mark for each file. Returns the start of the
    /// journal if there are no records or the segments are inconsistent. Only the first head and
    /// the last hash of each file are read.
    pub(super) fn last_start(&self) -> Result<Mark, JournalError> {
        let first = start_of(self.session.as_str());
        let closed = closed_segments(&self.dir).map_err(io_error)?;
        let mut segments = lock(&self.segments);
        segments.reset();
        if closed.gap().is_some() {
            return Ok(first);
        }
        let mut chain = first.chain;
        let mut last = first;
        for segment in 1..=closed.count + 1 {
            let name =
                if segment > closed.count { ACTIVE.to_owned() } else { closed_name(segment) };
            match claimed_end(&self.dir.join(name), chain).map_err(io_error)? {
                // The first record of the session has a fixed number.
                Some((record, _)) if closed.count == 0 && record != first.record => {
                    return Ok(first);
                }
                Some((record, claimed)) => {
                    last = Mark { record, segment, offset: 0, chain };
                    segments.note(last);
                    chain = claimed;
                }
                // Only the active file may be without a record.
                None if segment > closed.count => (),
                None => return Ok(first),
            }
        }
        Ok(last)
    }

    /// Verifies all records from `start` on and calls `each` for each valid one. Adds their
    /// positions to the index.
    pub(super) fn scan(&self, start: Mark, each: Each<'_>) -> Result<Scanned, JournalError> {
        let mut recent_ids = VecDeque::new();
        let mut marks = lock(&self.segments);
        marks.forget_from(start);
        let walked = walk(&self.dir, start, &mut |line, head, mark| {
            marks.note(mark);
            if recent_ids.len() == RECENT_IDS {
                recent_ids.pop_front();
            }
            recent_ids.push_back(head.id);
            each(line, head, mark)
        });
        let walked = walked.map_err(|error| io_error(io::Error::from(error)))?;
        Ok(Scanned { walked, recent_ids: recent_ids.into() })
    }

    /// Quarantines everything after the valid records, so that the journal can be continued there.
    /// After a failed sync, also rewrites the active file. Fails if a later version of posse wrote
    /// the next record.
    pub(super) fn truncate_to_valid(
        &self,
        turn: &mut WriterTurn,
        scanned: Scanned,
    ) -> Result<ValidPrefix, JournalError> {
        let Scanned { walked, recent_ids } = scanned;
        if let Stop::Newer(version) = walked.stop {
            return Err(JournalError::Newer { version });
        }
        let mut repaired = None;
        // A rewritten file has no damaged end, and the old file is kept.
        if walked.stop != Stop::End && !(turn.suspect && walked.file == ACTIVE) {
            repaired = Some(self.cut(&walked).map_err(io_error)?);
        }
        lock(&self.segments).forget_after(walked.end.segment);
        if turn.suspect {
            self.rewrite(walked.end.offset).map_err(io_error)?;
            turn.suspect = false;
        }
        Ok(ValidPrefix { end: walked.end, recent_ids, repaired })
    }
}

impl Scanned {
    pub(super) fn is_damaged(&self) -> bool {
        matches!(self.walked.stop, Stop::Torn | Stop::Damaged(_))
    }

    /// Creates the error for a journal without any valid record.
    pub(super) fn no_valid_record(&self) -> JournalError {
        let why = match &self.walked.stop {
            Stop::Damaged(damage) => damage.to_string(),
            Stop::Torn | Stop::End | Stop::Newer(_) => "its first record was cut off".to_owned(),
        };
        let (file, at) = (&self.walked.file, self.walked.end.offset);
        let what = format!("{why}, in {file} at byte {at}; no record of it can be kept");
        JournalError::Damaged { what }
    }
}

/// Reads the number of the first record, and the hash written at the end, of the file `path`;
/// nothing between them is read. `before` replaces a missing hash. `None` if the file is missing or
/// does not begin with a record.
fn claimed_end(path: &Path, before: HashChain) -> io::Result<Option<(u64, HashChain)>> {
    let Some(mut file) = if_exists(open_to_read(path))? else { return Ok(None) };
    let Some(head) = first_head(&mut file)? else { return Ok(None) };
    // The active file may end anywhere; no segment follows it.
    let claimed = last_chain(&mut file)?.unwrap_or(before);
    Ok(Some((head.record, claimed)))
}

/// Creates `dir` and its missing parents, accessible to the user alone. Returns the directories
/// that have a new entry and need a sync.
pub(super) fn make_private(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut missing = Vec::new();
    let mut at = Some(dir);
    while let Some(path) = at
        && !path.is_dir()
    {
        missing.push(path);
        at = path.parent();
    }
    let mut changed = Vec::new();
    for path in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => changed.extend(path.parent().map(Path::to_owned)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
    }
    Ok(changed)
}
