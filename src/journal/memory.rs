//! In-memory journal for `--no-transcript`. Its records are lost when the process ends.

use std::sync::{Arc, Mutex};

use posse_actors::event::{RecordId, StoredRecord};
use posse_actors::ports::{
    Committed, Journal, JournalBatch, JournalError, JournalStore, OpenedJournal, PortFuture,
};

use crate::writer::lock;

/// Maximum total bytes of the records, measured as JSON.
const BYTES_MAX: usize = 256 << 20;
/// Maximum number of recent record ids that are returned for the detection of duplicates.
const RECENT_IDS: usize = 1024;

/// Journal that keeps its records in memory, up to `BYTES_MAX`. A batch that would exceed this is
/// refused with a write error, because dropping old records would break replay.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    kept: Arc<Mutex<MemoryRecords>>,
}

#[derive(Debug)]
struct MemoryRecords {
    generation: u64,
    records: Vec<Arc<StoredRecord>>,
    bytes: usize,
    bytes_max: usize,
}

impl Default for MemoryRecords {
    fn default() -> MemoryRecords {
        MemoryRecords { generation: 0, records: Vec::new(), bytes: 0, bytes_max: BYTES_MAX }
    }
}

impl JournalStore for MemoryJournal {
    fn open(&self) -> PortFuture<Result<OpenedJournal, JournalError>> {
        let mut kept = lock(&self.kept);
        kept.generation += 1;
        let recent = kept.records.len().saturating_sub(RECENT_IDS);
        let recent_ids: Vec<RecordId> =
            kept.records[recent..].iter().map(|record| record.id).collect();
        let (store, generation) = (Arc::clone(&self.kept), kept.generation);
        let journal = MemoryAppender { kept: store, generation };
        let last_record = kept.last();
        let opened =
            OpenedJournal { journal: Box::new(journal), last_record, recent_ids, repaired: None };
        Box::pin(async move { Ok(opened) })
    }

    fn read(&self, from: u64, to: u64) -> PortFuture<Result<Vec<StoredRecord>, JournalError>> {
        let kept = lock(&self.kept);
        let found = kept.records.iter().filter(|record| (from..=to).contains(&record.record));
        let records: Vec<StoredRecord> = found.map(|record| (**record).clone()).collect();
        Box::pin(async move { Ok(records) })
    }
}

impl MemoryRecords {
    fn last(&self) -> u64 {
        self.records.last().map_or(0, |record| record.record)
    }

    fn add(&mut self, records: Vec<Arc<StoredRecord>>) -> Result<(), String> {
        let (mut bytes, mut json) = (self.bytes, Vec::new());
        for (record, expected) in records.iter().zip(self.last() + 1..) {
            if record.record != expected {
                return Err(format!("record {} where {expected} belongs", record.record));
            }
            json.clear();
            record.append_json(&mut json).map_err(|error| error.to_string())?;
            bytes += json.len();
        }
        if bytes > self.bytes_max {
            return Err(format!("the session is larger than {} MiB", self.bytes_max >> 20));
        }
        self.bytes = bytes;
        self.records.extend(records);
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryAppender {
    kept: Arc<Mutex<MemoryRecords>>,
    generation: u64,
}

impl Journal for MemoryAppender {
    fn submit(&self, batch: JournalBatch) {
        let mut kept = lock(&self.kept);
        let result = if kept.generation == self.generation {
            kept.add(batch.records).map_err(|cause| JournalError::Write { source: cause.into() })
        } else {
            Err(JournalError::Closed)
        };
        let committed = result.map(|()| Committed { last_record: kept.last(), scarce: false });
        drop(kept);
        (batch.done)(committed);
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::event::Durability;
    use tokio::sync::oneshot;

    use super::*;
    use crate::format::tests::record;

    async fn submit(journal: &dyn Journal, number: u64) -> Result<Committed, JournalError> {
        let (sender, receiver) = oneshot::channel();
        journal.submit(JournalBatch {
            records: vec![Arc::new(record(number, "text"))],
            durability: Durability::Synced,
            done: Box::new(|end| sender.send(end).unwrap()),
        });
        receiver.await.unwrap()
    }

    #[tokio::test]
    async fn keeps_records_up_to_the_limit_and_refuses_the_rest() {
        let store = MemoryJournal::default();
        lock(&store.kept).bytes_max = 500;
        let opened = store.open().await.unwrap();
        assert_eq!(opened.last_record, 0);
        assert_eq!(submit(&*opened.journal, 1).await.unwrap().last_record, 1);
        assert!(matches!(submit(&*opened.journal, 3).await, Err(JournalError::Write { .. })));
        assert_eq!(submit(&*opened.journal, 2).await.unwrap().last_record, 2);
        assert!(matches!(submit(&*opened.journal, 3).await, Err(JournalError::Write { .. })));

        let again = store.open().await.unwrap();
        assert_eq!((again.last_record, again.recent_ids.len()), (2, 2));
        assert!(matches!(submit(&*opened.journal, 3).await, Err(JournalError::Closed)));
        assert_eq!(store.read(2, 9).await.unwrap(), [record(2, "text")]);
    }
}
