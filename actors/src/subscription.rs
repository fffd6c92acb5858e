//! Delivery of events to observers. Each observer has a bounded queue, and the session never waits
//! for one.
//!
//! A slow observer loses only ephemeral events. Durable events that did not fit into its queue are
//! read back from the journal when it catches up, in order and without gaps. Records that the
//! journal cannot read are lost, with a line in the log.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::conversation::SessionId;
use crate::event::{AnnouncedEvent, Announcement, Event};
use crate::guarded::Guarded;
use crate::ports::JournalStore;
use crate::text::clipped;

/// Maximum number of records that an observer reads back at a time.
const REREAD_MAX: u64 = 256;

/// Sender of events to all observers of a session. It survives crashes of the `TranscriptWriter`.
#[derive(Clone)]
pub(crate) struct Feed(Arc<Guarded<Publisher>>);

struct Publisher {
    session_id: SessionId,
    seq: u64,
    /// Number of the last record that was announced or existed before this process. `None`: the
    /// journal is not open yet.
    last_record: Option<u64>,
    readers: Vec<Weak<EventBuffer>>,
    closed: bool,
}

struct EventBuffer {
    queue: Guarded<AnnouncementQueue>,
    arrived: Notify,
    buffered_max: usize,
}

#[derive(Default)]
struct AnnouncementQueue {
    announcements: VecDeque<Arc<Announcement>>,
    missed: Option<Missed>,
    closed: bool,
}

/// Durable events that an observer has to read back from the journal, because its queue was full or
/// it subscribed late: the records `from..=to`, of which the first has the stream position `seq`.
/// If `to < from`, the last number is not known yet.
#[derive(Clone, Copy)]
struct Missed {
    from: u64,
    to: u64,
    seq: u64,
}

/// Maximum characters of an event in the log.
const LOGGED_CHARS_MAX: usize = 1000;

/// Logs an announcement: a durable event at the level `INFO` by its type, and any event at the
/// level `DEBUG` as a line of JSON, which is cut.
fn log(announcement: &Announcement) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let agent = announcement.origin().map_or("", |origin| origin.agent_path.as_str());
    let line = announcement.to_json();
    if let Some(record) = announcement.record() {
        let kind = serde_json::from_slice::<serde_json::Value>(&line);
        let kind = kind.ok().and_then(|line| Some(line["type"].as_str()?.to_owned()));
        tracing::info!(event = kind.unwrap_or_default(), record, agent, "event");
    }
    tracing::debug!(
        json = clipped(&String::from_utf8_lossy(&line), LOGGED_CHARS_MAX, "…"),
        "event in full"
    );
}

impl Feed {
    /// Creates the feed of the session `session_id`.
    pub(crate) fn new(session_id: SessionId) -> Feed {
        let readers = Vec::new();
        Feed(Arc::new(Guarded::new(Publisher {
            session_id,
            seq: 0,
            last_record: None,
            readers,
            closed: false,
        })))
    }

    /// Assigns the next position in the event stream to `fact` and delivers it to all observers.
    pub(crate) fn publish(&self, fact: AnnouncedEvent) {
        let mut publisher = self.0.lock();
        publisher.seq += 1;
        if let AnnouncedEvent::Stored(record) = &fact {
            publisher.last_record = Some(record.record);
        }
        let announcement = Arc::new(Announcement { seq: publisher.seq, fact });
        log(&announcement);
        publisher.readers.retain(|reader| match reader.upgrade() {
            Some(reader) => {
                reader.push(&announcement);
                true
            }
            None => false,
        });
    }

    /// Sets the number of the last record that existed before this process. Observers can read
    /// records up to it. No effect if a number is known already.
    pub(crate) fn begins_after(&self, last_record: u64) {
        let mut publisher = self.0.lock();
        if publisher.last_record.is_some() {
            // Opened again: later announcements are known already.
            return;
        }
        publisher.last_record = Some(last_record);
        for reader in publisher.readers.iter().filter_map(Weak::upgrade) {
            let mut queue = reader.queue.lock();
            if let Some(missed) = &mut queue.missed {
                missed.to = last_record;
                if missed.from > last_record {
                    queue.missed = None;
                }
                drop(queue);
                reader.arrived.notify_one();
            }
        }
    }

    /// Number of the last record that was announced or existed before this process; 0 if there is
    /// none.
    pub(crate) fn last_record(&self) -> u64 {
        self.0.lock().last_record.unwrap_or_default()
    }

    /// True after `close`: no more events will come.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// Ends the event stream of all observers.
    pub(crate) fn close(&self) {
        let mut publisher = self.0.lock();
        publisher.closed = true;
        for reader in publisher.readers.drain(..).filter_map(|reader| reader.upgrade()) {
            reader.queue.lock().closed = true;
            reader.arrived.notify_one();
        }
    }

    pub(crate) fn subscribe(
        &self,
        journal: Arc<dyn JournalStore>,
        buffered_max: usize,
    ) -> Subscription {
        Feed::reader(&mut self.0.lock(), None, journal, buffered_max)
    }

    /// Creates a subscription that starts with the records after `after`, then continues with new
    /// events.
    pub(crate) fn subscribe_after(
        &self,
        journal: Arc<dyn JournalStore>,
        buffered_max: usize,
        after: u64,
    ) -> Subscription {
        let mut publisher = self.0.lock();
        let (from, to) = (after.saturating_add(1), publisher.last_record.unwrap_or_default());
        let known = publisher.last_record.is_some_and(|last| after >= last);
        let missed = (!known).then_some(Missed { from, to, seq: 0 });
        Feed::reader(&mut publisher, missed, journal, buffered_max)
    }

    fn reader(
        publisher: &mut Publisher,
        missed: Option<Missed>,
        journal: Arc<dyn JournalStore>,
        buffered_max: usize,
    ) -> Subscription {
        let queue =
            AnnouncementQueue { closed: publisher.closed, missed, ..AnnouncementQueue::default() };
        let queue = Guarded::new(queue);
        let reader = Arc::new(EventBuffer { queue, arrived: Notify::new(), buffered_max });
        publisher.readers.push(Arc::downgrade(&reader));
        let session_id = publisher.session_id.clone();
        Subscription { session_id, reader, journal, reread: VecDeque::new() }
    }
}

impl EventBuffer {
    fn push(&self, announcement: &Arc<Announcement>) {
        let mut queue = self.queue.lock();
        match (announcement.record(), &mut queue.missed) {
            (Some(record), Some(missed)) => missed.to = record,
            (None, Some(_)) => return,
            (record, None) => {
                if queue.announcements.len() >= self.buffered_max {
                    queue.announcements.retain(|waiting| waiting.record().is_some());
                }
                if queue.announcements.len() < self.buffered_max {
                    queue.announcements.push_back(Arc::clone(announcement));
                } else if let Some(record) = record {
                    let missed = Missed { from: record, to: record, seq: announcement.seq };
                    queue.missed = Some(missed);
                }
            }
        }
        drop(queue);
        self.arrived.notify_one();
    }
}

/// Receiver of the events of a session. Dropping it ends the subscription.
pub struct Subscription {
    session_id: SessionId,
    reader: Arc<EventBuffer>,
    journal: Arc<dyn JournalStore>,
    reread: VecDeque<Arc<Announcement>>,
}

impl Subscription {
    /// Returns the next event in order, and waits for it. `None` after the last event of the
    /// session.
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Arc<Announcement>> {
        loop {
            if let Some(announcement) = self.reread.pop_front() {
                return Some(announcement);
            }
            let missed = {
                let mut queue = self.reader.queue.lock();
                if let Some(announcement) = queue.announcements.pop_front() {
                    return Some(announcement);
                }
                let missed = queue.missed.filter(|missed| missed.from <= missed.to);
                if missed.is_none() && queue.closed {
                    return None;
                }
                missed
            };
            match missed {
                Some(missed) => self.read_back(missed).await,
                None => self.reader.arrived.notified().await,
            }
        }
    }

    /// Returns the next event that has already arrived, without waiting; `None` if there is none.
    /// Does not read missed events back from the journal.
    pub fn try_next(&mut self) -> Option<Arc<Announcement>> {
        self.reread.pop_front().or_else(|| self.reader.queue.lock().announcements.pop_front())
    }

    async fn read_back(&mut self, Missed { from, to, seq }: Missed) {
        let until = to.min(from + REREAD_MAX - 1);
        let read = self.journal.read(from, until).await;
        let records = read.unwrap_or_else(|error| {
            tracing::warn!(%error, from, until, "an observer lost events");
            let message = format!(
                "the records {from} to {until} of the journal could not be read back, so they are \
                 missing here: {error}"
            );
            let (ts, session_id) = (0, self.session_id.clone());
            let event = Event::Warning { message };
            let fact = AnnouncedEvent::Ephemeral { ts, session_id, origin: None, event };
            self.reread.push_back(Arc::new(Announcement { seq, fact }));
            Vec::new()
        });
        // A journal may return fewer records than requested; records that it does not have at all
        // are lost.
        let until = records.last().map_or(until, |record| record.record);
        self.reread.extend(records.into_iter().map(|record| {
            let seq = seq + record.record.saturating_sub(from);
            Arc::new(Announcement { seq, fact: AnnouncedEvent::Stored(Arc::new(record)) })
        }));
        let mut queue = self.reader.queue.lock();
        if let Some(missed) = &mut queue.missed {
            if missed.to <= until {
                queue.missed = None;
            } else {
                missed.from = until + 1;
                missed.seq = seq + (until + 1 - from);
            }
        }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}
