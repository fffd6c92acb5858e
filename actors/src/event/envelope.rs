//! Events with their place: in the stream of one process, and in the journal.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::conversation::SessionId;
use crate::event::{Event, FORMAT_VERSION, Origin, StoredRecord};

/// An event with its place in the stream of one process. Serialised, it is one line of
/// `stream-json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Announcement {
    /// Position in the event stream of this process, from 1.
    pub seq: u64,
    /// The event or delta.
    pub fact: AnnouncedEvent,
}

/// Content of an [`Announcement`].
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "deltas are many, and a box for each would cost more"
)]
pub enum AnnouncedEvent {
    /// A durable event, written before it was announced.
    Stored(Arc<StoredRecord>),
    /// An ephemeral one.
    Ephemeral {
        /// Milliseconds since 1970.
        ts: u64,
        /// The session.
        session_id: SessionId,
        /// The invocation, if it is about one.
        origin: Option<Arc<Origin>>,
        /// The event.
        event: Event,
    },
}

/// Serialised form of an announcement.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnnouncementLine<'a> {
    v: u32,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<u64>,
    ts: u64,
    session_id: &'a SessionId,
    #[serde(flatten)]
    origin: Option<&'a Origin>,
    #[serde(flatten)]
    event: &'a Event,
}

impl Announcement {
    /// The event.
    pub fn event(&self) -> &Event {
        self.line().event
    }

    /// Its place in the journal, if it is durable.
    pub fn record(&self) -> Option<u64> {
        self.line().record
    }

    /// The invocation, if it is about one.
    pub fn origin(&self) -> Option<&Origin> {
        self.line().origin
    }

    fn line(&self) -> AnnouncementLine<'_> {
        let (record, ts, session_id, origin, event) = match &self.fact {
            AnnouncedEvent::Stored(stored) => {
                let StoredRecord { record, ts, session_id, origin, event, .. } = &**stored;
                (Some(*record), ts, session_id, origin, event)
            }
            AnnouncedEvent::Ephemeral { ts, session_id, origin, event } => {
                (None, ts, session_id, origin, event)
            }
        };
        let (seq, origin) = (self.seq, origin.as_deref());
        AnnouncementLine { v: FORMAT_VERSION, seq, record, ts: *ts, session_id, origin, event }
    }
}

impl Serialize for Announcement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.line().serialize(serializer)
    }
}
