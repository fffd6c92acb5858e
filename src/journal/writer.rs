//! The thread that appends: it takes all batches that wait, writes them together, syncs at most
//! once, and tells each how it ended.
//!
//! After a write or a sync that failed nothing is written until the journal is opened again: what
//! a disk says after an error cannot be trusted.

pub(crate) mod disk;

mod rotation;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use posse_actors::ports::{Committed, JournalBatch, JournalDone, JournalError};
use posse_actors::record::Durability;

use crate::journal::format::{self, HashChain};
use crate::journal::segments::{Mark, Segments};
use crate::journal::steps::Steps;
use crate::journal::writer::disk::{Disk, NextDisk};

pub(crate) use rotation::NEXT;

/// Bytes that are written together.
const GROUP_BYTES: usize = 4 << 20;
/// Bytes that the buffer keeps for the next group.
const BUFFER_KEPT: usize = 256 << 10;
/// How often a write that would block is tried again, after `BLOCKED_PAUSE` each.
const BLOCKED_MAX: u32 = 1000;
const BLOCKED_PAUSE: Duration = Duration::from_millis(1);

/// Who may write: the journal that was opened last.
#[derive(Debug, Default)]
pub(crate) struct WriterTurn {
    /// Counted up by each opening.
    pub(crate) generation: u64,
    /// A sync failed: what the file seems to hold may not be on the disk.
    pub(crate) suspect: bool,
}

/// The end of the journal, where the thread goes on.
pub(crate) struct Tail {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) next_disk: NextDisk,
    /// Length of the active file, up to the last whole line.
    pub(crate) length: u64,
    pub(crate) chain: HashChain,
    /// Number of the last record.
    pub(crate) last: u64,
    /// Directories whose entries are new: a file is not durable before its name is.
    pub(crate) new_entries: Vec<PathBuf>,
    pub(crate) segments: Arc<Mutex<Segments>>,
    /// Length at which the active file is closed.
    pub(crate) segment_bytes: u64,
    /// After a rotation that failed: the length at which it is tried again.
    pub(crate) rotate_from: u64,
    /// There is hardly any room left on the disk.
    pub(crate) scarce: bool,
    /// Told of each segment that was closed.
    pub(crate) closed: Box<dyn Fn(u32) + Send>,
    pub(crate) steps: Steps,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail")
            .field("length", &self.length)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// Batches on their way to the thread.
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
    /// Adds a batch, or gives it back if nobody will take it.
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

    /// Lets the thread finish what waits, and end.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_one();
    }

    /// Waits for batches. Empty means that there will be none.
    fn take(&self) -> VecDeque<JournalBatch> {
        let mut waiting = lock(&self.state);
        while waiting.batches.is_empty() && !waiting.closed {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut waiting.batches)
    }
}

/// Locks also after a panic elsewhere: each change under these locks is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's work, until the queue is closed.
pub(crate) fn run(queue: &BatchQueue, turn: &Mutex<WriterTurn>, generation: u64, mut tail: Tail) {
    let mut buffer = Vec::new();
    let mut failed: Option<String> = None;
    let mut first = true;
    // A file may not be larger than a limit says: that is an error of the write, not an end.
    SigSet::from(Signal::SIGXFSZ).thread_block().ok();
    loop {
        let mut batches = queue.take();
        if batches.is_empty() {
            let turn = lock(turn);
            if turn.generation == generation && failed.is_none() {
                tail.disk.release(tail.length);
            }
            return;
        }
        while !batches.is_empty() {
            let mut group = BatchGroup::new(&mut buffer, &tail);
            while !group.is_full()
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
                tail.look_for_room(&group, first);
                first = false;
            }
            group.scarce(tail.scarce);
            drop(turn);
            if let Err(CommitError::Failed(error)) = &result {
                failed = Some(error.to_string());
            }
            group.finish(&result);
            buffer.shrink_to(BUFFER_KEPT);
        }
    }
}

#[derive(Debug)]
enum CommitError {
    /// The journal was opened again.
    Superseded,
    /// The disk failed.
    Failed(io::Error),
}

/// Batches that are written together.
struct BatchGroup<'a> {
    bytes: &'a mut Vec<u8>,
    chain: HashChain,
    last: u64,
    segment: u32,
    length: u64,
    marks: Vec<Mark>,
    sync: bool,
    ends: Vec<(JournalDone, Result<Committed, JournalError>)>,
}

impl<'a> BatchGroup<'a> {
    fn new(bytes: &'a mut Vec<u8>, tail: &Tail) -> BatchGroup<'a> {
        bytes.clear();
        let segment = lock(&tail.segments).active();
        BatchGroup {
            bytes,
            chain: tail.chain,
            last: tail.last,
            segment,
            length: tail.length,
            marks: Vec::new(),
            sync: false,
            ends: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= GROUP_BYTES
    }

    /// Whether there is nothing to write and nothing to sync.
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
            Committed { last_record: self.last, scarce: false }
        });
        self.ends.push((batch.done, end));
    }

    /// Appends the records to the buffer, all or none.
    fn encode(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        let start = (self.bytes.len(), self.chain, self.last, self.marks.len());
        for record in &batch.records {
            let mark = Mark {
                record: record.record,
                segment: self.segment,
                offset: self.length + self.bytes.len() as u64,
                chain: self.chain,
            };
            let encoded = if record.record == self.last + 1 {
                format::append_line(self.bytes, &self.chain, record)
            } else {
                let (number, last) = (record.record, self.last);
                Err(io::Error::other(format!("record {number} does not follow record {last}")))
            };
            match encoded {
                Ok(chain) => {
                    self.chain = chain;
                    self.last = record.record;
                    self.marks.push(mark);
                }
                Err(error) => {
                    self.bytes.truncate(start.0);
                    (self.chain, self.last) = (start.1, start.2);
                    self.marks.truncate(start.3);
                    return Err(write_error(error));
                }
            }
        }
        Ok(())
    }

    /// Says to everybody whether there is hardly any room left.
    fn scarce(&mut self, scarce: bool) {
        for (_, end) in &mut self.ends {
            if let Ok(committed) = end {
                committed.scarce = scarce;
            }
        }
    }

    /// Tells every batch how it ended.
    fn finish(self, result: &Result<(), CommitError>) {
        for (done, end) in self.ends {
            let end = match result {
                Ok(()) => end,
                Err(CommitError::Superseded) => Err(JournalError::Closed),
                Err(CommitError::Failed(error)) => end.and(Err(io_error(error))),
            };
            // Whoever listens may panic; the others are told all the same.
            catch_unwind(AssertUnwindSafe(move || done(end))).ok();
        }
    }
}

/// The error of the port: a full disk is one that may have room again.
pub(crate) fn io_error(error: &io::Error) -> JournalError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
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
    /// Writes the group, syncs it if somebody wants that, and closes a full segment.
    fn commit(
        &mut self,
        group: &mut BatchGroup<'_>,
        turn: &mut WriterTurn,
    ) -> Result<(), CommitError> {
        // Appending to a file that has no name any more would keep nothing.
        self.disk.keep_name(self.length).map_err(CommitError::Failed)?;
        if let Err(error) = append_all(&mut *self.disk, group.bytes) {
            // Half a line must not stay. If this fails too, opening moves it aside.
            self.disk.truncate(self.length).ok();
            return Err(CommitError::Failed(error));
        }
        self.steps.reached("appended");
        if group.sync
            && let Err(error) = self.sync()
        {
            turn.suspect = true;
            self.disk.truncate(self.length).ok();
            return Err(CommitError::Failed(error));
        }
        self.length += group.bytes.len() as u64;
        (self.chain, self.last) = (group.chain, group.last);
        let mut segments = lock(&self.segments);
        for mark in group.marks.drain(..) {
            segments.note(mark);
        }
        drop(segments);
        if self.length >= self.segment_bytes {
            // What was written stays written: only the next group may see an error.
            self.rotate(turn);
        }
        Ok(())
    }

    /// Keeps room for what follows from an intent, which is what is synced. A batch without
    /// records asks for no more than that; at first it is enough to know that there is some.
    fn look_for_room(&mut self, group: &BatchGroup<'_>, first: bool) {
        if group.sync || group.bytes.is_empty() {
            self.scarce = !self.disk.reserve(self.length);
        } else if first {
            self.scarce = !self.disk.has_space();
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.sync()?;
        while let Some(dir) = self.new_entries.last() {
            File::open(dir)?.sync_all()?;
            self.new_entries.pop();
        }
        Ok(())
    }
}

/// Appends all of `bytes`, however many writes that takes.
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
