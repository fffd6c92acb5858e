//! Writer thread: takes all queued batches, writes them together, syncs at most once, and reports a
//! result for each batch.
//!
//! After a failed write or sync nothing is written until the journal is opened again: the contents
//! of the file are unknown after an error.

pub(crate) mod disk;

mod rotation;

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use posse_actors::event::{Durability, StoredRecord};
use posse_actors::ports::{Committed, JournalBatch, JournalDone, JournalError};

use crate::format;
use crate::segments::{Mark, Segments};
use crate::steps::Steps;
use crate::writer::disk::{Disk, NextDisk};

pub(crate) use rotation::NEXT;

/// Size in bytes at which a group of batches is complete: no further batch is added. The batches of
/// a group are written together.
const GROUP_BYTES: usize = 4 << 20;
/// Capacity of the write buffer that is kept for the next group, in bytes.
const BUFFER_KEPT: usize = 256 << 10;
/// Maximum number of retries of a write that would block, `BLOCKED_PAUSE` apart.
const BLOCKED_MAX: u32 = 1000;
const BLOCKED_PAUSE: Duration = Duration::from_millis(1);

/// Write permission of a session's journal: only the journal whose generation is current may write.
#[derive(Debug, Default)]
pub(crate) struct WriterTurn {
    /// Current generation; each opening and each fold increments it.
    pub(crate) generation: u64,
    /// True if a sync failed: the content on disk is unknown, so the next opening or fold rewrites
    /// the active file.
    pub(crate) suspect: bool,
}

/// State of the writer thread: the active file, and the position at which the next record is
/// appended.
pub(crate) struct Tail {
    /// The active file. `None` after a rotation that failed half-way; then nothing is written any
    /// more.
    pub(crate) disk: Option<Box<dyn Disk>>,
    pub(crate) next_disk: NextDisk,
    /// Position after the last record, in the active file.
    pub(crate) end: Mark,
    /// Directories with new entries that are not synced yet. A new file is durable only after its
    /// directory is synced.
    pub(crate) new_entries: Vec<PathBuf>,
    pub(crate) segments: Arc<Mutex<Segments>>,
    /// Length in bytes at which the active file is closed.
    pub(crate) segment_bytes: u64,
    /// Minimum length in bytes at which the next rotation is tried; 0 unless an earlier one failed.
    pub(crate) rotate_from: u64,
    /// True if the disk was nearly full at the last check.
    pub(crate) scarce: bool,
    /// Callback that receives the number of each segment after it was closed.
    pub(crate) closed: Box<dyn Fn(u32) + Send>,
    pub(crate) steps: Steps,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail").field("end", &self.end).finish_non_exhaustive()
    }
}

/// Batches queued for the writer thread.
#[derive(Debug, Default)]
pub(crate) struct BatchQueue {
    state: Mutex<QueuedBatches>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedBatches {
    batches: VecDeque<JournalBatch>,
    closed: bool,
}

impl BatchQueue {
    /// Queues a batch. Returns the batch as the error if the queue is closed.
    pub(crate) fn push(&self, batch: JournalBatch) -> Result<(), JournalBatch> {
        let mut waiting = lock(&self.state);
        if waiting.closed {
            return Err(batch);
        }
        waiting.batches.push_back(batch);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// Closes the queue: the writer thread finishes the queued batches and ends.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_one();
    }

    /// Waits for batches and takes all of them. Returns an empty list only if the queue is closed.
    fn take(&self) -> VecDeque<JournalBatch> {
        let mut waiting = lock(&self.state);
        while waiting.batches.is_empty() && !waiting.closed {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut waiting.batches)
    }
}

/// Locks `mutex` even if it is poisoned: no change under the locks of the journal can be left half
/// done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Main loop of the writer thread. Writes only while `generation` is current, and returns when the
/// queue is closed and empty.
pub(crate) fn run(queue: &BatchQueue, turn: &Mutex<WriterTurn>, generation: u64, mut tail: Tail) {
    let mut buffer = Vec::new();
    let mut failed: Option<String> = None;
    let mut first = true;
    // Exceeding a file size limit is then a write error and does not kill the process.
    SigSet::from(Signal::SIGXFSZ).thread_block().ok();
    loop {
        let mut batches = queue.take();
        if batches.is_empty() {
            let turn = lock(turn);
            if turn.generation == generation
                && failed.is_none()
                && let Some(disk) = &mut tail.disk
            {
                disk.release(tail.end.offset);
            }
            return;
        }
        while !batches.is_empty() {
            let mut group = BatchGroup::new(&mut buffer, &tail);
            while group.bytes.len() < GROUP_BYTES
                && let Some(batch) = batches.pop_front()
            {
                group.add(batch, failed.as_deref());
            }
            let mut turn = lock(turn);
            let result = if turn.generation != generation {
                Err(CommitError::Superseded)
            } else if group.is_idle() && failed.is_some() {
                Ok(())
            } else {
                tail.commit(&mut group, &mut turn)
            };
            if result.is_ok() && failed.is_none() {
                tail.reserve_space(&group, first);
                first = false;
            }
            drop(turn);
            if let Err(CommitError::Failed(error)) = &result {
                failed = Some(error.to_string());
            }
            group.finish(&result, tail.scarce);
            // A vector keeps at least the capacity for its content.
            buffer.clear();
            buffer.shrink_to(BUFFER_KEPT);
        }
    }
}

#[derive(Debug)]
enum CommitError {
    /// A later opening or fold took the write permission.
    Superseded,
    /// Writing or syncing failed.
    Failed(io::Error),
}

/// Batches that are written together, with the result for each.
struct BatchGroup<'a> {
    bytes: &'a mut Vec<u8>,
    /// Position after the last record of the group.
    end: Mark,
    marks: Vec<Mark>,
    sync: bool,
    ends: Vec<(JournalDone, Result<Committed, JournalError>)>,
}

impl<'a> BatchGroup<'a> {
    fn new(bytes: &'a mut Vec<u8>, tail: &Tail) -> BatchGroup<'a> {
        bytes.clear();
        BatchGroup { bytes, end: tail.end, marks: Vec::new(), sync: false, ends: Vec::new() }
    }

    /// Returns true if the group has nothing to write and nothing to sync.
    fn is_idle(&self) -> bool {
        self.bytes.is_empty() && !self.sync
    }

    fn add(&mut self, batch: JournalBatch, failed: Option<&str>) {
        let encoded = match failed {
            Some(cause) => Err(write_error(format!("an earlier write failed: {cause}"))),
            None => self.encode(&batch),
        };
        let end = encoded.map(|()| {
            self.sync |= batch.durability == Durability::Synced;
            Committed { last_record: self.end.record - 1, scarce: false }
        });
        self.ends.push((batch.done, end));
    }

    /// Appends the records of a batch to the buffer: all of them, or none after an error.
    fn encode(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        let start = (self.bytes.len(), self.end, self.marks.len());
        batch.records.iter().try_for_each(|record| self.append(record)).map_err(|error| {
            self.bytes.truncate(start.0);
            self.end = start.1;
            self.marks.truncate(start.2);
            write_error(error)
        })
    }

    /// Appends a record to the buffer as the next line. Its number must be the next one.
    fn append(&mut self, record: &StoredRecord) -> io::Result<()> {
        let (number, expected) = (record.record, self.end.record);
        if number != expected {
            let last = expected - 1;
            let what = format!("record {number} does not follow record {last}");
            return Err(io::Error::other(what));
        }
        let before = self.bytes.len();
        let chain = format::append_line(self.bytes, &self.end.chain, record)?;
        self.marks.push(self.end);
        let offset = self.end.offset + (self.bytes.len() - before) as u64;
        self.end = Mark { record: number + 1, offset, chain, ..self.end };
        Ok(())
    }

    /// Calls the callback of every batch with its result. `result` is the result of writing the
    /// group; `scarce` is passed on to successful batches.
    fn finish(self, result: &Result<(), CommitError>, scarce: bool) {
        for (done, end) in self.ends {
            let end = match result {
                Ok(()) => end.map(|committed| Committed { scarce, ..committed }),
                Err(CommitError::Superseded) => Err(JournalError::Closed),
                Err(CommitError::Failed(error)) => end.and(Err(io_error(error))),
            };
            // A callback may panic; the others are still called.
            catch_unwind(AssertUnwindSafe(move || done(end))).ok();
        }
    }
}

/// Converts an I/O error. A full disk, an exceeded quota and an exceeded file size are
/// [`JournalError::Full`], because space may become free; other errors are [`JournalError::Write`].
pub(crate) fn io_error(error: impl Borrow<io::Error>) -> JournalError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let error = error.borrow();
    let source = error.to_string().into();
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => JournalError::Full { source },
        _ => JournalError::Write { source },
    }
}

fn write_error(source: impl Into<posse_actors::ports::BoxError>) -> JournalError {
    JournalError::Write { source: source.into() }
}

impl Tail {
    /// Writes the group, syncs it if one of its batches asks for a sync, and closes the active file
    /// if it is full.
    fn commit(
        &mut self,
        group: &mut BatchGroup<'_>,
        turn: &mut WriterTurn,
    ) -> Result<(), CommitError> {
        let Some(disk) = &mut self.disk else {
            if group.is_idle() {
                return Ok(());
            }
            return Err(CommitError::Failed(io::Error::other("the next segment cannot be opened")));
        };
        // Data appended to an unlinked file would be lost.
        disk.restore_if_removed(self.end.offset).map_err(CommitError::Failed)?;
        if let Err(error) = append_all(&mut **disk, group.bytes) {
            // Half a line must not stay. If this fails too, the next opening quarantines it.
            disk.truncate(self.end.offset).ok();
            return Err(CommitError::Failed(error));
        }
        self.steps.step_done("appended");
        if group.sync
            && let Err(error) = disk.sync().and_then(|()| sync_all(&mut self.new_entries))
        {
            turn.suspect = true;
            disk.truncate(self.end.offset).ok();
            return Err(CommitError::Failed(error));
        }
        self.end = group.end;
        let mut segments = lock(&self.segments);
        for mark in group.marks.drain(..) {
            segments.note(mark);
        }
        drop(segments);
        if self.end.offset >= self.segment_bytes {
            // Written records stay written: only the next group may see an error.
            self.rotate(turn);
        }
        Ok(())
    }

    /// Updates `scarce` after a group was written. If the group was synced or has no records,
    /// reserves disk space. After any other group, checks only that there is free space, and only
    /// if `first` is true: it is the first group of the thread.
    ///
    /// A synced group contains intents, whose outcomes will need the space. A batch without records
    /// only requests a reservation.
    fn reserve_space(&mut self, group: &BatchGroup<'_>, first: bool) {
        let disk = self.disk.as_mut();
        if group.sync || group.bytes.is_empty() {
            self.scarce = disk.is_some_and(|disk| !disk.reserve(self.end.offset));
        } else if first {
            self.scarce = disk.is_some_and(|disk| !disk.has_space());
        }
    }
}

/// Syncs directories and removes them from the list.
fn sync_all(dirs: &mut Vec<PathBuf>) -> io::Result<()> {
    while let Some(dir) = dirs.last() {
        File::open(dir)?.sync_all()?;
        dirs.pop();
    }
    Ok(())
}

/// Appends all of `bytes`, in as many writes as needed. Retries a write that would block.
fn append_all(disk: &mut dyn Disk, mut bytes: &[u8]) -> io::Result<()> {
    let mut blocked = 0;
    while !bytes.is_empty() {
        match disk.append(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written.min(bytes.len())..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && blocked < BLOCKED_MAX => {
                blocked += 1;
                std::thread::sleep(BLOCKED_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
