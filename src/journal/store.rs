//! File journal of one session.
//!
//! A [`FileJournal`] holds the session's lock. A new session costs a directory, a lock file and an
//! empty journal; the writer thread starts with the first record.

mod fold;
mod open;
mod repair;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use posse_actors::conversation::SessionId;
use posse_actors::event::StoredRecord;
use posse_actors::ports::{
    Journal, JournalBatch, JournalError, JournalStore, OpenedJournal, PortFuture,
};
use tokio::sync::oneshot;

use crate::lock::SessionLock;
use crate::scan::{Stop, parse};
use crate::segments::{ACTIVE, Mark, SEGMENT_BYTES, Segments};
use crate::steps::Steps;
use crate::walk::{ReadError, Walked, walk};
use crate::writer::{self, BatchQueue, Tail, WriterTurn, io_error, lock};

pub use fold::Folded;

/// Maximum size of an active file that is opened on the calling thread, in bytes. A larger one, or
/// one that an earlier writer thread is using, is opened on a thread of its own.
const SMALL_BYTES: u64 = 256 << 10;
/// Stack size of the writer thread in bytes. Small, because the thread only serialises records,
/// whose JSON is shallow.
const STACK_BYTES: usize = 1 << 20;

/// Journal of one session, stored in the session's folder. Holds the session's lock.
///
/// Dropping it waits until all submitted records are written.
#[derive(Debug)]
pub struct FileJournal {
    shared: Arc<StoreState>,
    _lock: SessionLock,
}

/// State shared by a [`FileJournal`], the journals that it has opened, and the writer thread.
#[derive(Debug)]
struct StoreState {
    dir: PathBuf,
    session: SessionId,
    turn: Mutex<WriterTurn>,
    segments: Arc<Mutex<Segments>>,
    /// Queue and writer thread of the journal that was opened last; `None` before the first opening
    /// and after a fold.
    current: Mutex<Option<Arc<WriterThread>>>,
    /// End of the journal that the last fold found; the next opening takes it.
    known: Mutex<Option<open::ValidPrefix>>,
    /// Directories in which folders of this session were created, and which are not synced yet.
    new_entries: Mutex<Vec<PathBuf>>,
    segment_bytes: u64,
    /// Minimum number of bytes that a fold must read to write a fold cache; `u64::MAX` disables
    /// fold caches.
    cache_bytes: u64,
    steps: Steps,
}

/// Queue of a journal and the thread that writes its batches.
#[derive(Debug, Default)]
struct WriterThread {
    queue: BatchQueue,
    /// The thread; `None` until the first batch starts it.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl FileJournal {
    /// Creates the folder `dir` of `session` if it is missing, and takes the session's lock. Reads
    /// and writes no records. Fails with [`JournalError::Locked`] if another process holds the
    /// lock.
    pub fn lock(dir: &Path, session: SessionId) -> Result<FileJournal, JournalError> {
        FileJournal::with_sizes(dir, session, SEGMENT_BYTES, fold::WORTH_BYTES, Steps::default())
    }

    fn with_sizes(
        dir: &Path,
        session: SessionId,
        segment_bytes: u64,
        cache_bytes: u64,
        steps: Steps,
    ) -> Result<FileJournal, JournalError> {
        let new_entries = open::make_private(dir).map_err(io_error)?;
        // A directory created just now is on a file system that responds.
        let lock = if new_entries.is_empty() {
            SessionLock::take(dir)?
        } else {
            SessionLock::take_now(dir)?
        };
        let shared = StoreState {
            dir: dir.to_owned(),
            session,
            turn: Mutex::default(),
            segments: Arc::new(Mutex::new(Segments::new(dir.to_owned()))),
            current: Mutex::new(None),
            known: Mutex::new(None),
            new_entries: Mutex::new(new_entries),
            segment_bytes,
            cache_bytes,
            steps,
        };
        Ok(FileJournal { shared: Arc::new(shared), _lock: lock })
    }

    /// Folder of the session, which contains the journal, `outputs/` and `blobs/`.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }
}

impl JournalStore for FileJournal {
    fn open(&self) -> PortFuture<Result<OpenedJournal, JournalError>> {
        let shared = Arc::clone(&self.shared);
        let size = std::fs::metadata(shared.dir.join(ACTIVE)).map_or(0, |file| file.len());
        // A writer thread may hold the turn for as long as its disk takes.
        let idle = shared.turn.try_lock().is_ok();
        if idle && size <= SMALL_BYTES {
            let opened = shared.open();
            return Box::pin(async move { opened });
        }
        run_on_thread("posse-journal-open", move || shared.open())
    }

    fn read(&self, from: u64, to: u64) -> PortFuture<Result<Vec<StoredRecord>, JournalError>> {
        let shared = Arc::clone(&self.shared);
        run_on_thread("posse-journal-read", move || shared.read(from, to))
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        let Some(running) = lock(&self.shared.current).take() else { return };
        running.queue.close();
        let thread = lock(&running.thread).take();
        if let Some(thread) = thread
            // The last owner may be a callback that runs on the thread itself.
            && thread.thread().id() != std::thread::current().id()
        {
            thread.join().ok();
        }
    }
}

impl StoreState {
    fn read(&self, from: u64, to: u64) -> Result<Vec<StoredRecord>, JournalError> {
        let mut records = Vec::new();
        let Some(mark) = lock(&self.segments).mark_before(from) else { return Ok(records) };
        let walked = walk(&self.dir, mark, &mut |line, head, _| {
            if head.record >= from {
                records.push(parse(line, head, self.session.as_str()));
            }
            if head.record < to { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        });
        match walked {
            Err(ReadError::Journal(error)) => Err(io_error(error)),
            Ok(Walked { stop: Stop::Newer(version), .. }) => Err(JournalError::Newer { version }),
            Ok(Walked { stop: Stop::Damaged(what), end, .. }) => {
                let Mark { segment, offset, .. } = end;
                let what = format!("{what}, in segment {segment} at byte {offset}");
                Err(JournalError::Damaged { what })
            }
            // It is enough, or a line is being written.
            Err(ReadError::Out(_)) | Ok(Walked { stop: Stop::End | Stop::Torn, .. }) => Ok(records),
        }
    }
}

/// Runs `work` on a new thread called `name`. The future resolves to its result.
fn run_on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> PortFuture<Result<T, JournalError>> {
    let (sender, receiver) = oneshot::channel();
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // The receiver may have stopped waiting.
        sender.send(work()).ok();
    });
    Box::pin(async move {
        spawned.map_err(io_error)?;
        receiver.await.unwrap_or(Err(JournalError::Closed))
    })
}

/// Journal that one opening returned. After a later opening or fold it answers every batch with
/// `JournalError::Closed`.
#[derive(Debug)]
struct FileAppender {
    shared: Arc<StoreState>,
    generation: u64,
    writer: Arc<WriterThread>,
    /// Start position of the writer thread; `None` after the thread was started.
    tail: Mutex<Option<Tail>>,
}

impl FileAppender {
    /// Starts the writer thread if it was not started before. If that fails, the journal is closed.
    fn start(&self) -> Result<(), String> {
        let Some(tail) = lock(&self.tail).take() else { return Ok(()) };
        let (shared, writer) = (Arc::clone(&self.shared), Arc::clone(&self.writer));
        let generation = self.generation;
        let spawned = std::thread::Builder::new()
            .name("posse-journal".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || writer::run(&writer.queue, &shared.turn, generation, tail));
        match spawned {
            Ok(thread) => {
                *lock(&self.writer.thread) = Some(thread);
                Ok(())
            }
            Err(error) => {
                self.writer.queue.close();
                Err(format!("cannot start the writer thread: {error}"))
            }
        }
    }
}

impl Journal for FileAppender {
    fn submit(&self, batch: JournalBatch) {
        if let Err(cause) = self.start() {
            (batch.done)(Err(JournalError::Write { source: cause.into() }));
            return;
        }
        if let Err(batch) = self.writer.queue.push(batch) {
            (batch.done)(Err(JournalError::Closed));
        }
    }
}

impl Drop for FileAppender {
    fn drop(&mut self) {
        self.writer.queue.close();
    }
}

#[cfg(test)]
mod tests;
