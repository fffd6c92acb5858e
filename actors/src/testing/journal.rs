//! Journal in memory with fault injection.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::event::{Durability, Event, StoredRecord};
use crate::ports::{
    Committed, Journal, JournalBatch, JournalError, JournalStore, OpenedJournal, PortFuture,
};

/// Journal that keeps its records in memory and can simulate faults.
#[derive(Debug, Default)]
pub struct MemoryStore {
    shared: Arc<JournalState>,
}

#[derive(Debug, Default)]
struct JournalState {
    records: Mutex<Vec<Arc<StoredRecord>>>,
    generation: AtomicU64,
    failing: AtomicU32,
    full: AtomicBool,
    scarce: AtomicBool,
    opened: AtomicU32,
    synced: AtomicU64,
    held: Mutex<Option<Vec<HeldBatch>>>,
}

/// A batch that is held back, with the number of the open journal to which it was submitted.
type HeldBatch = (u64, JournalBatch);

impl MemoryStore {
    /// Creates a journal with the records of an earlier process.
    pub fn of(records: Vec<StoredRecord>) -> MemoryStore {
        let store = MemoryStore::default();
        store.shared.lock().extend(records.into_iter().map(Arc::new));
        store
    }

    /// All stored records, in order.
    pub fn records(&self) -> Vec<StoredRecord> {
        self.shared.lock().iter().map(|record| StoredRecord::clone(record)).collect()
    }

    /// The events of all stored records, in order.
    pub fn events(&self) -> Vec<Event> {
        self.shared.lock().iter().map(|record| record.event.clone()).collect()
    }

    /// Makes the next `times` batches fail with a write error; replaces an earlier number. After
    /// each failure the journal must be opened again.
    pub fn fail(&self, times: u32) {
        self.shared.failing.store(times, Ordering::SeqCst);
    }

    /// Simulates a full disk (`true`), on which each batch fails and closes the journal, or ends
    /// the simulation (`false`).
    pub fn set_full(&self, full: bool) {
        self.shared.full.store(full, Ordering::SeqCst);
    }

    /// Simulates a nearly full disk (`true`), which each written batch reports, or ends the
    /// simulation (`false`).
    pub fn set_scarce(&self, scarce: bool) {
        self.shared.scarce.store(scarce, Ordering::SeqCst);
    }

    /// Simulates a slow disk: batches are held back until [`release`](MemoryStore::release).
    pub fn block_writes(&self) {
        self.shared.held_batches().get_or_insert_default();
    }

    /// Writes the batches that were held back, in order. Later ones are written at once.
    pub fn release(&self) {
        let held = self.shared.held_batches().take();
        for (generation, batch) in held.into_iter().flatten() {
            self.shared.write(generation, batch);
        }
    }

    /// Number of the last record at the latest batch that was synced; 0 if there is none.
    pub fn synced(&self) -> u64 {
        self.shared.synced.load(Ordering::SeqCst)
    }

    /// Number of times that the journal was opened.
    pub fn opened(&self) -> u32 {
        self.shared.opened.load(Ordering::SeqCst)
    }
}

impl JournalState {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<StoredRecord>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalState {
    fn held_batches(&self) -> std::sync::MutexGuard<'_, Option<Vec<HeldBatch>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, generation: u64, batch: JournalBatch) {
        if self.generation.load(Ordering::SeqCst) != generation {
            return (batch.done)(Err(JournalError::Closed));
        }
        if self.full.load(Ordering::SeqCst) {
            self.generation.fetch_add(1, Ordering::SeqCst);
            return (batch.done)(Err(JournalError::Full { source: "no space left".into() }));
        }
        let failing = self.failing.load(Ordering::SeqCst);
        if failing > 0 {
            self.failing.store(failing - 1, Ordering::SeqCst);
            // Nothing is written behind a hole: first it must be opened again.
            self.generation.fetch_add(1, Ordering::SeqCst);
            return (batch.done)(Err(JournalError::Write { source: "disk full".into() }));
        }
        let mut records = self.lock();
        for record in &batch.records {
            let last = records.last().map_or(0, |record| record.record);
            assert_eq!(record.record, last + 1, "records are numbered without a hole");
            records.push(Arc::clone(record));
        }
        let last_record = records.last().map_or(0, |record| record.record);
        drop(records);
        if batch.durability == Durability::Synced {
            self.synced.store(last_record, Ordering::SeqCst);
        }
        (batch.done)(Ok(Committed { last_record, scarce: self.scarce.load(Ordering::SeqCst) }));
    }
}

impl JournalStore for MemoryStore {
    fn open(&self) -> PortFuture<Result<OpenedJournal, JournalError>> {
        let shared = Arc::clone(&self.shared);
        shared.opened.fetch_add(1, Ordering::SeqCst);
        let generation = shared.generation.fetch_add(1, Ordering::SeqCst) + 1;
        let (last_record, recent_ids) = {
            let records = shared.lock();
            let last = records.last().map_or(0, |record| record.record);
            (last, records.iter().map(|record| record.id).collect())
        };
        let journal = Box::new(MemoryJournal { shared, generation });
        Box::pin(
            async move { Ok(OpenedJournal { journal, last_record, recent_ids, repaired: None }) },
        )
    }

    fn read(&self, from: u64, to: u64) -> PortFuture<Result<Vec<StoredRecord>, JournalError>> {
        let within = |record: &StoredRecord| (from..=to).contains(&record.record);
        let records = self.records().into_iter().filter(within).collect();
        Box::pin(async move { Ok(records) })
    }
}

#[derive(Debug)]
struct MemoryJournal {
    shared: Arc<JournalState>,
    generation: u64,
}

impl Journal for MemoryJournal {
    fn submit(&self, batch: JournalBatch) {
        if let Some(held) = &mut *self.shared.held_batches() {
            return held.push((self.generation, batch));
        }
        self.shared.write(self.generation, batch);
    }
}
