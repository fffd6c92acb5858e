//! Facts on their way to the journal. They survive the writer: whoever restarts it hands it the
//! same outbox.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ractor::ActorRef;
use tokio::sync::{oneshot, watch};

use crate::conversation::SessionId;
use crate::event::{Event, FORMAT_VERSION, Fact, Origin, StoredRecord};
use crate::mailbox::{Report, tell};
use crate::ports::{Clock, Ids};
use crate::record::{Durability, RecordId};
use crate::transcript_writer::Msg;

/// Ephemeral events waiting behind durable ones; more are dropped.
const PASSING_MAX: usize = 1024;

/// Durable facts waiting for the disk before senders that can wait are made to.
const ROOM: usize = 1024;

/// A fact is not in the journal, and will not be: the session's writer has given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal cannot be written: {cause}")]
pub(crate) struct Unrecorded {
    pub(crate) cause: String,
}

type Ack = oneshot::Sender<Result<(), Unrecorded>>;

pub(crate) struct Outbox {
    session_id: SessionId,
    entries: Mutex<Entries>,
    room: tokio::sync::Notify,
}

#[derive(Default)]
struct Entries {
    /// In order of arrival. The first `submitted` are in the journal's hands.
    waiting: VecDeque<Entry>,
    submitted: usize,
    passing: usize,
    given_up: Option<Unrecorded>,
}

enum Entry {
    Durable { id: RecordId, fact: Durable, durability: Durability, ack: Option<Ack> },
    Passing(Fact),
}

enum Durable {
    New { ts: u64, origin: Option<Arc<Origin>>, event: Event },
    Numbered(Arc<StoredRecord>),
}

/// What the writer may do now.
pub(crate) struct Ready {
    pub(crate) passing: Vec<Fact>,
    pub(crate) records: Vec<Arc<StoredRecord>>,
    pub(crate) durability: Durability,
    /// How many entries of the outbox the batch stands for.
    pub(crate) entries: usize,
}

impl Outbox {
    pub(crate) fn new(session_id: SessionId) -> Outbox {
        Outbox { session_id, entries: Mutex::default(), room: tokio::sync::Notify::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Numbers what is new, and says what may be published and what must be written.
    pub(crate) fn take_ready(&self, last_record: &mut u64) -> Ready {
        let mut entries = self.lock();
        let mut ready = Ready {
            passing: Vec::new(),
            records: Vec::new(),
            durability: Durability::Written,
            entries: 0,
        };
        while entries.submitted == 0 && matches!(entries.waiting.front(), Some(Entry::Passing(_))) {
            if let Some(Entry::Passing(fact)) = entries.waiting.pop_front() {
                ready.passing.push(fact);
            }
            entries.passing -= 1;
        }
        let submitted = entries.submitted;
        for entry in entries.waiting.iter_mut().skip(submitted) {
            ready.entries += 1;
            if let Entry::Durable { id, fact, durability, .. } = entry {
                let record = fact.number(*id, &self.session_id, last_record);
                ready.records.push(record);
                ready.durability = ready.durability.max(*durability);
            }
        }
        // Deltas at the end need no disk, only their place behind what is being written.
        if ready.records.is_empty() {
            ready.entries = 0;
        }
        entries.submitted += ready.entries;
        ready
    }

    /// Takes out the first `count` entries, which are durable now, and says what to publish.
    pub(crate) fn committed(&self, count: usize) -> Vec<Fact> {
        let mut entries = self.lock();
        let mut facts = Vec::with_capacity(count);
        entries.submitted = entries.submitted.saturating_sub(count);
        for _ in 0..count {
            match entries.waiting.pop_front() {
                Some(entry) => facts.extend(entry.publish(&mut entries.passing)),
                None => break,
            }
        }
        // What lies behind and needs no disk follows at once, in order.
        while entries.submitted == 0 && matches!(entries.waiting.front(), Some(Entry::Passing(_))) {
            if let Some(entry) = entries.waiting.pop_front() {
                facts.extend(entry.publish(&mut entries.passing));
            }
        }
        if entries.waiting.len() < ROOM {
            self.room.notify_waiters();
        }
        facts
    }

    /// After the journal was opened: what an earlier incarnation had submitted has either
    /// arrived, and is published, or will be submitted again under a new number.
    pub(crate) fn reconcile(&self, recent: &[RecordId], last_record: u64) -> Vec<Fact> {
        let mut entries = self.lock();
        entries.submitted = 0;
        let mut facts = Vec::new();
        while let Some(entry) = entries.waiting.front() {
            let arrived = match entry {
                Entry::Durable { id, fact: Durable::Numbered(record), .. } => {
                    record.record <= last_record && recent.contains(id)
                }
                Entry::Durable { fact: Durable::New { .. }, .. } => false,
                Entry::Passing(_) => true,
            };
            if !arrived {
                break;
            }
            if let Some(entry) = entries.waiting.pop_front() {
                facts.extend(entry.publish(&mut entries.passing));
            }
        }
        for entry in &mut entries.waiting {
            if let Entry::Durable { fact, .. } = entry {
                fact.forget_number();
            }
        }
        facts
    }

    /// Puts a warning in front of what is new.
    pub(crate) fn warn(&self, message: String, ts: u64) {
        let fact = Fact::Passing {
            ts,
            session_id: self.session_id.clone(),
            origin: None,
            event: Event::Warning { message },
        };
        let mut entries = self.lock();
        let at = entries.submitted;
        entries.waiting.insert(at, Entry::Passing(fact));
        entries.passing += 1;
    }

    /// Nothing will be written any more: everybody who waits hears so.
    pub(crate) fn give_up(&self, cause: String) {
        let mut entries = self.lock();
        let unrecorded = Unrecorded { cause };
        entries.given_up = Some(unrecorded.clone());
        entries.submitted = 0;
        entries.passing = 0;
        for entry in entries.waiting.drain(..) {
            if let Entry::Durable { ack: Some(ack), .. } = entry {
                ack.send(Err(unrecorded.clone())).ok();
            }
        }
        self.room.notify_waiters();
    }

    fn push(&self, entry: Entry) -> Result<(), Unrecorded> {
        let mut entries = self.lock();
        if let Some(unrecorded) = &entries.given_up {
            return Err(unrecorded.clone());
        }
        if matches!(entry, Entry::Passing(_)) {
            if entries.passing >= PASSING_MAX {
                return Ok(());
            }
            entries.passing += 1;
        }
        entries.waiting.push_back(entry);
        Ok(())
    }

    // A panic of the writer must not take the outbox with it.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Durable {
    fn number(
        &mut self,
        id: RecordId,
        session_id: &SessionId,
        last_record: &mut u64,
    ) -> Arc<StoredRecord> {
        *last_record += 1;
        let numbered = match self {
            Durable::New { ts, origin, event } => Arc::new(StoredRecord {
                v: FORMAT_VERSION,
                record: *last_record,
                ts: *ts,
                id,
                session_id: session_id.clone(),
                origin: origin.take(),
                event: std::mem::replace(event, Event::Unknown),
            }),
            Durable::Numbered(record) => Arc::clone(record),
        };
        *self = Durable::Numbered(Arc::clone(&numbered));
        numbered
    }

    fn forget_number(&mut self) {
        if let Durable::Numbered(record) = self {
            let StoredRecord { ts, origin, event, .. } = StoredRecord::clone(record);
            *self = Durable::New { ts, origin, event };
        }
    }
}

impl Entry {
    fn publish(self, passing: &mut usize) -> Option<Fact> {
        match self {
            Entry::Durable { fact: Durable::Numbered(record), ack, .. } => {
                if let Some(ack) = ack {
                    ack.send(Ok(())).ok();
                }
                Some(Fact::Stored(record))
            }
            Entry::Durable { fact: Durable::New { .. }, .. } => None,
            Entry::Passing(fact) => {
                *passing -= 1;
                Some(fact)
            }
        }
    }
}

/// How everybody else records and announces. Cheap to clone; outlives every incarnation of the
/// writer.
#[derive(Clone)]
pub(crate) struct Transcript {
    outbox: Arc<Outbox>,
    writer: watch::Receiver<Option<ActorRef<Msg>>>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Transcript {
    pub(crate) fn new(
        outbox: Arc<Outbox>,
        writer: watch::Receiver<Option<ActorRef<Msg>>>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Transcript {
        Transcript { outbox, writer, clock, ids }
    }

    /// Records a fact, or announces it if it is ephemeral, and does not wait. It will be in the
    /// journal, in order, unless the session's writer gives up.
    pub(crate) fn note(&self, origin: Option<&Arc<Origin>>, event: Event) {
        let entry = if event.is_durable() {
            self.durable_entry(origin, event, Durability::Written, None)
        } else {
            Entry::Passing(Fact::Passing {
                ts: self.clock.wall_ms(),
                session_id: self.outbox.session_id.clone(),
                origin: origin.cloned(),
                event,
            })
        };
        if self.outbox.push(entry).is_ok() {
            self.wake();
        }
    }

    /// Records a fact, and returns when it and everything before it is that durable.
    pub(crate) async fn record(
        &self,
        origin: Option<&Arc<Origin>>,
        event: Event,
        durability: Durability,
    ) -> Result<(), Unrecorded> {
        let (ack, acknowledged) = oneshot::channel();
        self.outbox.push(self.durable_entry(origin, event, durability, Some(ack)))?;
        self.wake();
        let gone = || Unrecorded { cause: "the writer is gone".to_owned() };
        acknowledged.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Whether so few facts wait for the disk that more may be made without waiting.
    pub(crate) fn has_room(&self) -> bool {
        let entries = self.outbox.lock();
        entries.given_up.is_none() && entries.waiting.len() < ROOM
    }

    /// Waits while too many facts wait for the disk.
    pub(crate) async fn room(&self) -> Result<(), Unrecorded> {
        loop {
            let notified = self.outbox.room.notified();
            {
                let entries = self.outbox.lock();
                if let Some(unrecorded) = &entries.given_up {
                    return Err(unrecorded.clone());
                }
                if entries.waiting.len() < ROOM {
                    return Ok(());
                }
            }
            notified.await;
        }
    }

    /// Returns when everything recorded so far is in the journal, or nothing ever will be.
    pub(crate) async fn drained(&self) {
        let mut writer = self.writer.clone();
        while !self.outbox.is_empty() {
            let (done, drained) = oneshot::channel();
            let report = Report::call(move |_| {
                done.send(()).ok();
            });
            let current = writer.borrow_and_update().clone();
            if let Some(writer) = current {
                tell(&writer, Msg::Drain(report));
                drained.await.ok();
            } else if writer.changed().await.is_err() {
                return;
            }
        }
    }

    fn durable_entry(
        &self,
        origin: Option<&Arc<Origin>>,
        event: Event,
        durability: Durability,
        ack: Option<Ack>,
    ) -> Entry {
        let ts = self.clock.wall_ms();
        let fact = Durable::New { ts, origin: origin.cloned(), event };
        Entry::Durable { id: self.ids.record(), fact, durability, ack }
    }

    fn wake(&self) {
        if let Some(writer) = &*self.writer.borrow() {
            tell(writer, Msg::Wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable(count: u32) -> Entry {
        Entry::Durable {
            id: RecordId { process: 1, count },
            fact: Durable::New {
                ts: 0,
                origin: None,
                event: Event::Warning { message: count.to_string() },
            },
            durability: Durability::Written,
            ack: None,
        }
    }

    fn passing(text: &str) -> Entry {
        Entry::Passing(Fact::Passing {
            ts: 0,
            session_id: SessionId::new("s"),
            origin: None,
            event: Event::TextDelta { text: text.to_owned() },
        })
    }

    fn names(facts: &[Fact]) -> Vec<String> {
        let name = |fact: &Fact| match fact {
            Fact::Stored(record) => format!("{}", record.record),
            Fact::Passing { event: Event::TextDelta { text }, .. } => text.clone(),
            Fact::Passing { .. } => "?".to_owned(),
        };
        facts.iter().map(name).collect()
    }

    #[test]
    fn keeps_deltas_in_their_place_behind_what_is_being_written() {
        let outbox = Outbox::new(SessionId::new("s"));
        let mut last = 0;
        for entry in [passing("a"), durable(1), passing("b"), durable(2), passing("c")] {
            outbox.push(entry).unwrap();
        }
        let ready = outbox.take_ready(&mut last);
        assert_eq!(
            (names(&ready.passing), ready.records.len(), ready.entries),
            (vec!["a".to_owned()], 2, 4)
        );
        outbox.push(passing("d")).unwrap();
        assert_eq!(outbox.take_ready(&mut last).entries, 0);
        assert_eq!(names(&outbox.committed(4)), ["1", "b", "2", "c", "d"]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn submits_again_what_did_not_arrive_and_publishes_what_did() {
        let outbox = Outbox::new(SessionId::new("s"));
        let mut last = 0;
        for count in 1..=3 {
            outbox.push(durable(count)).unwrap();
        }
        outbox.take_ready(&mut last);
        let arrived = outbox.reconcile(&[RecordId { process: 1, count: 1 }], 1);
        assert_eq!(names(&arrived), ["1"]);
        let mut last = 1;
        let again = outbox.take_ready(&mut last);
        assert_eq!(again.records.iter().map(|record| record.record).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn leaves_nobody_waiting_when_it_gives_up() {
        let outbox = Outbox::new(SessionId::new("s"));
        let (ack, mut acknowledged) = oneshot::channel();
        let Entry::Durable { id, fact, durability, .. } = durable(1) else { unreachable!() };
        outbox.push(Entry::Durable { id, fact, durability, ack: Some(ack) }).unwrap();
        outbox.give_up("disk full".to_owned());
        assert!(acknowledged.try_recv().unwrap().is_err());
        assert!(outbox.push(durable(2)).is_err());
    }
}
