//! Journal port. The implementation owns its thread; no method blocks.

use std::sync::Arc;

use crate::event::{Durability, StoredRecord};
use crate::ports::{BoxError, PortFuture};

/// Opens the journal of one session, again after a crash of its writer.
///
/// A store holds the lock of the session.
pub trait JournalStore: Send + Sync + 'static {
    /// Reads the tail, keeps the longest valid prefix, moves damaged data aside, and opens for
    /// appending. A journal returned by an earlier call must not append any more.
    fn open(&self) -> PortFuture<Result<OpenedJournal, JournalError>>;

    /// Reads records `from..=to` back, for an observer that lagged.
    fn read(&self, from: u64, to: u64) -> PortFuture<Result<Vec<StoredRecord>, JournalError>>;
}

/// An open journal.
#[derive(Debug)]
pub struct OpenedJournal {
    /// Appends.
    pub journal: Box<dyn Journal>,
    /// Number of the last record, 0 if there is none.
    pub last_record: u64,
    /// Ids of the last records, newest last: enough to recognise one that is sent again.
    pub recent_ids: Vec<crate::event::RecordId>,
    /// One-line description of data that was moved aside, for the user.
    pub repaired: Option<String>,
}

/// Appends batches, in the order of submission.
pub trait Journal: Send + Sync + std::fmt::Debug + 'static {
    /// Queues a batch. Returns at once; `batch.done` is called from any thread, in order.
    fn submit(&self, batch: JournalBatch);
}

/// Callback for the end of a batch.
pub type JournalDone = Box<dyn FnOnce(Result<Committed, JournalError>) + Send>;

/// Records to append together.
pub struct JournalBatch {
    /// In order, with consecutive numbers.
    pub records: Vec<Arc<StoredRecord>>,
    /// Durability that `done` waits for.
    pub durability: Durability,
    /// Called once.
    pub done: JournalDone,
}

impl std::fmt::Debug for JournalBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalBatch").field("records", &self.records.len()).finish_non_exhaustive()
    }
}

/// A batch is as durable as it was asked to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Number of the last record that is this durable.
    pub last_record: u64,
    /// Disk space is nearly exhausted: running work can still be recorded, and nothing new that
    /// needs a record should start.
    pub scarce: bool,
}

/// Why a record is not in the journal. Nothing may be announced and no side effect may start.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk fails; the file may end in a torn line.
    #[error("the journal cannot be written")]
    Write {
        /// For the user and the log.
        source: BoxError,
    },
    /// The disk is full. Space may become available.
    #[error("there is no room for the journal")]
    Full {
        /// For the user and the log.
        source: BoxError,
    },
    /// A later version wrote records that are required to resume.
    #[error(
        "a later version of posse has to go on with this session (format {version}); it was not changed"
    )]
    Newer {
        /// The version of the format.
        version: u32,
    },
    /// Another process owns this session.
    #[error("the session is in use by another process")]
    Locked {
        /// The owner, as far as known.
        owner: String,
    },
    /// The stored data cannot be continued.
    #[error("the journal is damaged: {what}")]
    Damaged {
        /// Position and kind of the damage.
        what: String,
    },
    /// The writer is gone.
    #[error("the journal is closed")]
    Closed,
}
