//! Journal port. The implementation owns its thread; no method blocks.

use std::sync::Arc;

use crate::event::{Durability, StoredRecord};
use crate::ports::{BoxError, PortFuture};

/// Access to the journal of one session.
///
/// A store holds the lock of the session, so no other process can write the journal.
pub trait JournalStore: Send + Sync + 'static {
    /// Opens the journal for appending: checks the end of the file, keeps the longest valid prefix,
    /// and moves damaged data aside. A journal returned by an earlier call does not append any
    /// more.
    fn open(&self) -> PortFuture<Result<OpenedJournal, JournalError>>;

    /// Reads the records `from..=to`. May return fewer; an empty list means that there are none
    /// from `from` on.
    fn read(&self, from: u64, to: u64) -> PortFuture<Result<Vec<StoredRecord>, JournalError>>;
}

/// Result of opening a journal.
#[derive(Debug)]
pub struct OpenedJournal {
    /// The journal, ready for appending.
    pub journal: Box<dyn Journal>,
    /// Number of the last record, 0 if there is none.
    pub last_record: u64,
    /// Ids of the last records, newest last, by which records that are submitted again are
    /// recognised.
    pub recent_ids: Vec<crate::event::RecordId>,
    /// One-line description for the user of damaged data that was moved aside; `None` if there was
    /// none.
    pub repaired: Option<String>,
}

/// An open journal. Appends batches in the order of submission.
pub trait Journal: Send + Sync + std::fmt::Debug + 'static {
    /// Queues a batch and returns without waiting for the disk. `batch.done` is called when the
    /// batch is written or has failed, in order of submission, on any thread; if the journal is
    /// closed, it may be called before this function returns.
    fn submit(&self, batch: JournalBatch);
}

/// Callback that gets the result of a batch.
pub type JournalDone = Box<dyn FnOnce(Result<Committed, JournalError>) + Send>;

/// Records that are appended together and have one common result.
pub struct JournalBatch {
    /// The records in order, with consecutive numbers; may be empty, to check for disk space.
    pub records: Vec<Arc<StoredRecord>>,
    /// Durability that is reached before `done` is called.
    pub durability: Durability,
    /// Callback for the result, which is called exactly once.
    pub done: JournalDone,
}

impl std::fmt::Debug for JournalBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalBatch").field("records", &self.records.len()).finish_non_exhaustive()
    }
}

/// Result of a batch that was written with the requested durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Number of the last record of the journal.
    pub last_record: u64,
    /// True if disk space is nearly exhausted: running work can still be recorded, but no new work
    /// that needs a record should start.
    pub scarce: bool,
}

/// Reason why the journal cannot be opened, read or written. The affected records must not be
/// announced, and no side effect that depends on them may start.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The journal could not be opened, read or written. After a failed write, the file may end
    /// with an incomplete line.
    #[error("the journal cannot be written")]
    Write {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// The disk is full, or a quota or the maximum file size is reached. The write can be repeated
    /// when there is space.
    #[error("there is no room for the journal")]
    Full {
        /// Cause, for the user and the log.
        source: BoxError,
    },
    /// A later version of posse wrote records that this version cannot interpret. The journal was
    /// not changed.
    #[error(
        "a later version of posse has to resume this session (format {version}); it was not changed"
    )]
    Newer {
        /// Version of the format in which the records were written.
        version: u32,
    },
    /// Another process holds the lock of the session.
    #[error("the session is in use by another process")]
    Locked {
        /// Description of the process that holds the lock, as far as known.
        owner: String,
    },
    /// The journal is damaged and cannot be continued.
    #[error("the journal is damaged: {what}")]
    Damaged {
        /// Position and kind of the damage.
        what: String,
    },
    /// The journal was closed, or opened again by a later call.
    #[error("the journal is closed")]
    Closed,
}
