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

impl Announcement {
    /// The event.
    pub fn event(&self) -> &Event {
        match &self.fact {
            AnnouncedEvent::Stored(record) => &record.event,
            AnnouncedEvent::Ephemeral { event, .. } => event,
        }
    }

    /// Its place in the journal, if it is durable.
    pub fn record(&self) -> Option<u64> {
        match &self.fact {
            AnnouncedEvent::Stored(record) => Some(record.record),
            AnnouncedEvent::Ephemeral { .. } => None,
        }
    }

    /// The invocation, if it is about one.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.fact {
            AnnouncedEvent::Stored(record) => record.origin.as_deref(),
            AnnouncedEvent::Ephemeral { origin, .. } => origin.as_deref(),
        }
    }
}

impl Serialize for Announcement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Line<'a> {
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
        let (ts, session_id) = match &self.fact {
            AnnouncedEvent::Stored(record) => (record.ts, &record.session_id),
            AnnouncedEvent::Ephemeral { ts, session_id, .. } => (*ts, session_id),
        };
        let line = Line {
            v: FORMAT_VERSION,
            seq: self.seq,
            record: self.record(),
            ts,
            session_id,
            origin: self.origin(),
            event: self.event(),
        };
        line.serialize(serializer)
    }
}
