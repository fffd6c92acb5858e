//! Outbox: records on their way to the journal. It survives a crash of the writer, whose successor
//! receives the same outbox.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::{oneshot, watch};

use crate::conversation::SessionId;
use crate::event::{
    AnnouncedEvent, Durability, Event, FORMAT_VERSION, Origin, RecordId, StoredRecord,
};
use crate::guarded::Guarded;
use crate::mailbox::{Report, tell};
use crate::ports::{Clock, Ids};
use crate::subscription::Feed;
use crate::transcript_writer::Msg;

/// Maximum number of ephemeral events that wait behind durable ones; further ones are dropped.
const PASSING_MAX: usize = 1024;

/// Number of waiting entries from which on senders that can wait have to wait.
const ROOM: usize = 1024;

/// Error: an event is not recorded, because the writer gave up or the disk was too full too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal cannot be written: {cause}")]
pub(crate) struct Unrecorded {
    pub(crate) cause: String,
}

type Ack = oneshot::Sender<Result<(), Unrecorded>>;

pub(crate) struct Outbox {
    session_id: SessionId,
    entries: Guarded<Entries>,
    room: tokio::sync::Notify,
}

#[derive(Default)]
struct Entries {
    /// Entries in order of arrival. The first `submitted` of them are submitted to the journal.
    waiting: VecDeque<OutboxEntry>,
    submitted: usize,
    passing: usize,
    given_up: Option<Unrecorded>,
    room: OutboxCapacity,
    /// True if free disk space is not waited for any more.
    hurried: bool,
    /// Reason for refusing new work after the disk was nearly full for too long; `None`: new work
    /// may wait.
    refused: Option<Unrecorded>,
}

/// Free space on the disk of the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OutboxCapacity {
    /// Enough space.
    #[default]
    Enough,
    /// Enough space for running work only, since this time (monotonic).
    Scarce { since: Duration },
    /// Not enough space for the submitted records, since this time (monotonic).
    None { since: Duration },
}

enum OutboxEntry {
    Durable { id: RecordId, fact: Durable, durability: Durability, ack: Option<Ack> },
    Ephemeral(AnnouncedEvent),
}

#[expect(clippy::large_enum_variant, reason = "what is new gets its box with its number")]
enum Durable {
    New { ts: u64, origin: Option<Arc<Origin>>, event: Event },
    Numbered(Arc<StoredRecord>),
}

/// Entries that the writer can process now: ephemeral events to announce, and records to write.
#[derive(Default)]
pub(crate) struct ReadyEntries {
    pub(crate) passing: Vec<AnnouncedEvent>,
    pub(crate) records: Vec<Arc<StoredRecord>>,
    pub(crate) durability: Durability,
    /// Number of outbox entries in the batch, including ephemeral events between the records.
    pub(crate) entries: usize,
}

/// Event that may be announced now, with the acknowledgement for its sender.
pub(crate) struct Announceable {
    fact: AnnouncedEvent,
    ack: Option<Ack>,
}

impl Announceable {
    /// Announces the event to observers, then acknowledges it to its sender, so that effects of the
    /// sender follow the announcement.
    pub(crate) fn announce(self, feed: &Feed) {
        feed.publish(self.fact);
        if let Some(ack) = self.ack {
            ack.send(Ok(())).ok();
        }
    }
}

impl Outbox {
    pub(crate) fn new(session_id: SessionId) -> Outbox {
        Outbox { session_id, entries: Guarded::default(), room: tokio::sync::Notify::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.lock().waiting.is_empty()
    }

    /// Gives new records their numbers after `last_record`, and returns the records to write and
    /// the ephemeral events before them.
    pub(crate) fn take_ready(&self, last_record: &mut u64) -> ReadyEntries {
        let mut entries = self.entries.lock();
        let mut ready = ReadyEntries::default();
        while entries.submitted == 0
            && matches!(entries.waiting.front(), Some(OutboxEntry::Ephemeral(_)))
        {
            if let Some(OutboxEntry::Ephemeral(fact)) = entries.waiting.pop_front() {
                ready.passing.push(fact);
            }
            entries.passing -= 1;
        }
        let submitted = entries.submitted;
        for entry in entries.waiting.iter_mut().skip(submitted) {
            ready.entries += 1;
            if let OutboxEntry::Durable { id, fact, durability, .. } = entry {
                let record = fact.number(*id, &self.session_id, last_record);
                ready.records.push(record);
                ready.durability = ready.durability.max(*durability);
            }
        }
        // Deltas at the end need no disk; they only have to follow the records being written.
        if ready.records.is_empty() {
            ready.entries = 0;
        }
        entries.submitted += ready.entries;
        ready
    }

    /// Removes the first `count` entries, which are written now, and returns them for announcing.
    pub(crate) fn committed(&self, count: usize) -> Vec<Announceable> {
        let mut entries = self.entries.lock();
        let mut facts = Vec::with_capacity(count);
        entries.submitted = entries.submitted.saturating_sub(count);
        for _ in 0..count {
            match entries.waiting.pop_front() {
                Some(entry) => facts.extend(entry.publish(&mut entries.passing)),
                None => break,
            }
        }
        // Entries behind them that need no disk follow at once, in order.
        while entries.submitted == 0
            && matches!(entries.waiting.front(), Some(OutboxEntry::Ephemeral(_)))
        {
            if let Some(entry) = entries.waiting.pop_front() {
                facts.extend(entry.publish(&mut entries.passing));
            }
        }
        self.make_room(&entries);
        facts
    }

    /// Compares the entries with a journal that was opened again. Returns the submitted records
    /// that were written, for announcing; the others are submitted again under new numbers.
    /// `recent` and `last_record`: ids and number of the last records in the journal.
    pub(crate) fn reconcile(&self, recent: &[RecordId], last_record: u64) -> Vec<Announceable> {
        let mut entries = self.entries.lock();
        entries.submitted = 0;
        let recent: HashSet<&RecordId> = recent.iter().collect();
        let arrived = |entry: &OutboxEntry| match entry {
            OutboxEntry::Durable { id, fact: Durable::Numbered(record), .. } => {
                record.record <= last_record && recent.contains(id)
            }
            OutboxEntry::Durable { fact: Durable::New { .. }, .. } | OutboxEntry::Ephemeral(_) => {
                false
            }
        };
        // A journal appends in order: records submitted before one that arrived have arrived as
        // well, also if they are older than the recent ones.
        let mut count = entries.waiting.iter().rposition(arrived).map_or(0, |last| last + 1);
        let passing = |entry: &&OutboxEntry| matches!(entry, OutboxEntry::Ephemeral(_));
        count += entries.waiting.iter().skip(count).take_while(passing).count();
        let mut facts = Vec::with_capacity(count);
        for _ in 0..count {
            if let Some(entry) = entries.waiting.pop_front() {
                facts.extend(entry.publish(&mut entries.passing));
            }
        }
        self.make_room(&entries);
        for entry in &mut entries.waiting {
            if let OutboxEntry::Durable { fact, .. } = entry {
                fact.forget_number();
            }
        }
        facts
    }

    /// Inserts a warning as an ephemeral event before all entries that are not submitted yet.
    pub(crate) fn warn(&self, message: String, ts: u64) {
        let fact = AnnouncedEvent::Ephemeral {
            ts,
            session_id: self.session_id.clone(),
            origin: None,
            event: Event::Warning { message },
        };
        let mut entries = self.entries.lock();
        let at = entries.submitted;
        entries.waiting.insert(at, OutboxEntry::Ephemeral(fact));
        entries.passing += 1;
    }

    /// Drops all entries, because nothing will be written any more, and informs all senders.
    pub(crate) fn give_up(&self, cause: String) {
        let mut entries = self.entries.lock();
        let unrecorded = Unrecorded { cause };
        entries.given_up = Some(unrecorded.clone());
        entries.submitted = 0;
        entries.passing = 0;
        for entry in entries.waiting.drain(..) {
            if let OutboxEntry::Durable { ack: Some(ack), .. } = entry {
                ack.send(Err(unrecorded.clone())).ok();
            }
        }
        self.room.notify_waiters();
    }

    pub(crate) fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// Sets the free disk space to `room`. Returns false if the variant is unchanged; then the
    /// earlier `since` stays. Otherwise work that waits for space checks again.
    pub(crate) fn set_room(&self, room: OutboxCapacity) -> bool {
        let mut entries = self.entries.lock();
        let news = match (entries.room, room) {
            // It began when it began.
            (OutboxCapacity::None { .. }, OutboxCapacity::None { .. })
            | (OutboxCapacity::Scarce { .. }, OutboxCapacity::Scarce { .. }) => {
                return false;
            }
            (before, now) => before != now,
        };
        if room == OutboxCapacity::Enough {
            entries.refused = None;
        }
        entries.room = room;
        if news {
            self.room.notify_waiters();
        }
        news
    }

    /// Makes new work that needs a record fail with `cause` instead of waiting, until there is
    /// enough space again.
    pub(crate) fn refuse(&self, cause: String) {
        self.entries.lock().refused = Some(Unrecorded { cause });
        self.room.notify_waiters();
    }

    /// True if the disk is full or nearly full, and has been so for at least `patience` or is not
    /// waited for any more. `now`: monotonic time.
    pub(crate) fn has_waited(&self, now: Duration, patience: Duration) -> bool {
        let entries = self.entries.lock();
        match entries.room {
            OutboxCapacity::None { since } | OutboxCapacity::Scarce { since } => {
                entries.hurried || now.saturating_sub(since) >= patience
            }
            OutboxCapacity::Enough => false,
        }
    }

    /// True if the disk was full or nearly full at the last check.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.entries.lock().room != OutboxCapacity::Enough
    }

    /// True if the disk is full and space is not waited for any more.
    pub(crate) fn is_out_of_patience(&self) -> bool {
        let entries = self.entries.lock();
        entries.hurried && matches!(entries.room, OutboxCapacity::None { .. })
    }

    /// Stops waiting for disk space, because the session ends.
    pub(crate) fn stop_waiting(&self) {
        self.entries.lock().hurried = true;
    }

    fn push(&self, entry: OutboxEntry) -> Result<(), Unrecorded> {
        let mut entries = self.entries.lock();
        if let Some(unrecorded) = &entries.given_up {
            return Err(unrecorded.clone());
        }
        if matches!(entry, OutboxEntry::Ephemeral(_)) {
            if entries.passing >= PASSING_MAX {
                return Ok(());
            }
            entries.passing += 1;
        }
        entries.waiting.push_back(entry);
        Ok(())
    }

    fn make_room(&self, entries: &Entries) {
        if entries.waiting.len() < ROOM {
            self.room.notify_waiters();
        }
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

impl OutboxEntry {
    fn publish(self, passing: &mut usize) -> Option<Announceable> {
        match self {
            OutboxEntry::Durable { fact: Durable::Numbered(record), ack, .. } => {
                Some(Announceable { fact: AnnouncedEvent::Stored(record), ack })
            }
            OutboxEntry::Durable { fact: Durable::New { .. }, .. } => None,
            OutboxEntry::Ephemeral(fact) => {
                *passing -= 1;
                Some(Announceable { fact, ack: None })
            }
        }
    }
}

/// Interface for recording and announcing events. Cheap to clone; it survives restarts of the
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

    /// Records an event, or announces it if it is ephemeral, without waiting. Records keep their
    /// order. A durable event is lost only if the writer gives up; an ephemeral one also if too
    /// many wait.
    pub(crate) fn note(&self, origin: Option<&Arc<Origin>>, event: Event) {
        let entry = if event.is_durable() {
            self.durable_entry(origin, event, Durability::Written, None)
        } else {
            OutboxEntry::Ephemeral(AnnouncedEvent::Ephemeral {
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

    /// Records an event, which must be durable. The future resolves to `Ok` when the event and
    /// everything before it are as durable as `durability` requires, and to `Err` if the writer
    /// gives up before. The position of the record is fixed by this call, even if the future is not
    /// awaited.
    pub(crate) fn record(
        &self,
        origin: Option<&Arc<Origin>>,
        event: Event,
        durability: Durability,
    ) -> impl Future<Output = Result<(), Unrecorded>> + Send + use<> {
        let (ack, acknowledged) = oneshot::channel();
        let pushed = self.outbox.push(self.durable_entry(origin, event, durability, Some(ack)));
        if pushed.is_ok() {
            self.wake();
        }
        async move {
            pushed?;
            let gone = || Unrecorded { cause: "the writer is gone".to_owned() };
            acknowledged.await.unwrap_or_else(|_| Err(gone()))
        }
    }

    /// True if new work may start without waiting: few records wait, and there is enough disk
    /// space.
    pub(crate) fn has_capacity(&self) -> bool {
        let entries = self.outbox.entries.lock();
        entries.given_up.is_none()
            && entries.waiting.len() < ROOM
            && entries.room == OutboxCapacity::Enough
    }

    /// Waits until new work that needs a record may start, such as a request or a side effect.
    /// `Err` if the writer has given up, or after [`Outbox::refuse`] while space is missing.
    pub(crate) async fn may_begin(&self) -> Result<(), Unrecorded> {
        let crowded = |entries: &Entries| {
            entries.refused.is_none()
                && (entries.waiting.len() >= ROOM || entries.room != OutboxCapacity::Enough)
        };
        self.wait_while(crowded).await?;
        self.outbox.entries.lock().refused.clone().map_or(Ok(()), Err)
    }

    /// Waits while too many records wait for the disk. `Err` if the writer has given up.
    pub(crate) async fn room(&self) -> Result<(), Unrecorded> {
        self.wait_while(|entries| entries.waiting.len() >= ROOM).await
    }

    async fn wait_while(&self, crowded: impl Fn(&Entries) -> bool) -> Result<(), Unrecorded> {
        loop {
            let notified = self.outbox.room.notified();
            {
                let entries = self.outbox.entries.lock();
                if let Some(unrecorded) = &entries.given_up {
                    return Err(unrecorded.clone());
                }
                if !crowded(&entries) {
                    return Ok(());
                }
            }
            notified.await;
        }
    }

    /// Waits until all records so far are written, or cannot be written any more.
    pub(crate) async fn drained(&self) {
        let mut writer = self.writer.clone();
        while !self.outbox.is_empty() {
            let (report, drained) = Report::channel();
            if let Some(writer) = &*writer.borrow_and_update() {
                tell(writer, Msg::Drain(report));
            }
            // A writer that died with the question has a successor, or there will be none.
            let heard = matches!(drained.await, Ok(Ok(())));
            if !heard && !self.outbox.is_empty() && writer.changed().await.is_err() {
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
    ) -> OutboxEntry {
        let ts = self.clock.wall_ms();
        let fact = Durable::New { ts, origin: origin.cloned(), event };
        OutboxEntry::Durable { id: self.ids.record(), fact, durability, ack }
    }

    fn wake(&self) {
        if let Some(writer) = &*self.writer.borrow() {
            tell(writer, Msg::Wake);
        }
    }
}

#[cfg(test)]
mod tests;
