//! Journal records: durable events, before and after they have a place in the journal.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::conversation::SessionId;
use crate::event::{Event, Origin};

/// Identifies a record before it has a number. A record with a repeated id is stored once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    /// Random number of the process.
    pub process: u32,
    /// Counter within the process.
    pub count: u32,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:x}", self.process, self.count)
    }
}

impl Serialize for RecordId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RecordId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RecordId, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let halves = text.split_once('-').and_then(|(process, count)| {
            let process = u32::from_str_radix(process, 16).ok()?;
            Some(RecordId { process, count: u32::from_str_radix(count, 16).ok()? })
        });
        halves.ok_or_else(|| serde::de::Error::custom("a record id is `<hex>-<hex>`"))
    }
}

/// A durable event without a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Created by the sender.
    pub id: RecordId,
    /// The invocation it belongs to, if any.
    pub origin: Option<Arc<Origin>>,
    /// The event.
    pub event: Event,
}

/// Durability that the sender waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Handed to the operating system: survives `kill -9` of posse.
    #[default]
    Written,
    /// Synced to the disk: survives a power cut.
    Synced,
}

/// A durable event with its place in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRecord {
    /// [`FORMAT_VERSION`](crate::event::FORMAT_VERSION).
    pub v: u32,
    /// Position in the journal, from 1.
    pub record: u64,
    /// Milliseconds since 1970.
    pub ts: u64,
    /// Minted by the sender, so that one who asks twice is stored once.
    pub id: RecordId,
    /// The session.
    pub session_id: SessionId,
    /// The event. Declared before `origin`: both have an `agent`, and the event's is read first.
    #[serde(flatten)]
    pub event: Event,
    /// The invocation, if it is about one.
    #[serde(flatten)]
    pub origin: Option<Arc<Origin>>,
}

/// The format is compiled here alone: as generic code it would be compiled again in every crate that
/// reads or writes records.
impl StoredRecord {
    /// Appends the record as JSON to `out`.
    pub fn append_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(out, self)
    }

    /// Parses a record. Unknown members are ignored.
    pub fn parse(json: &[u8]) -> serde_json::Result<StoredRecord> {
        serde_json::from_slice(json)
    }
}
