//! Journal records: durable events, with and without a record number.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::conversation::SessionId;
use crate::event::{Event, Origin};

/// Id of a record, assigned before the record has a number. A record that is submitted to the
/// journal again with the same id is not stored twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    /// Random number of the process that created the record.
    pub process: u32,
    /// Number of the record within the process.
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

/// A durable event that has no record number yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Id, created by the sender.
    pub id: RecordId,
    /// The invocation that the event belongs to; `None` if it belongs to the session.
    pub origin: Option<Arc<Origin>>,
    /// The event.
    pub event: Event,
}

/// Durability of a record that its sender waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Written to the operating system: the record survives if posse is killed.
    #[default]
    Written,
    /// Synced to the disk: the record survives a power failure.
    Synced,
}

/// A record of the journal: a durable event with its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRecord {
    /// Version of the format: [`FORMAT_VERSION`](crate::event::FORMAT_VERSION) of the posse that
    /// wrote the record.
    pub v: u32,
    /// Number of the record in the journal, from 1.
    pub record: u64,
    /// Time of the event in milliseconds since 1970.
    pub ts: u64,
    /// Id, created by the sender. A record that is sent again has the same id.
    pub id: RecordId,
    /// Id of the session.
    pub session_id: SessionId,
    /// The event. Declared before `origin`: both have a field `agent`, and the event reads its own
    /// first.
    #[serde(flatten)]
    pub event: Event,
    /// The invocation that the event belongs to; `None` if it belongs to the session.
    #[serde(flatten)]
    pub origin: Option<Arc<Origin>>,
}

/// JSON format of records. These functions are not generic, so that the code is compiled once and
/// not in every crate that reads or writes records.
impl StoredRecord {
    /// Appends the record as JSON to `out`.
    pub fn append_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(out, self)
    }

    /// Parses a record. Unknown members are ignored, and an event of an unknown type becomes
    /// [`Event::Unknown`].
    pub fn parse(json: &[u8]) -> serde_json::Result<StoredRecord> {
        serde_json::from_slice(json)
    }
}
