//! Events with their position in the event stream, and their JSON form.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::SessionId;
use crate::event::{Event, FORMAT_VERSION, Origin, RecordId, StoredRecord};

/// An event with its position in the event stream of one process. Serialised, it is one line of the
/// output format `stream-json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Announcement {
    /// Position in the event stream of this process, from 1. Only an estimate for an event that was
    /// read back from the journal.
    pub seq: u64,
    /// The event, stored or ephemeral.
    pub fact: AnnouncedEvent,
}

/// Content of an [`Announcement`]: a stored or an ephemeral event.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "deltas are many, and a box for each would cost more"
)]
pub enum AnnouncedEvent {
    /// A durable event with its journal record. It was written before it was announced.
    Stored(Arc<StoredRecord>),
    /// An ephemeral event, which is in no journal.
    Ephemeral {
        /// Time of the event in milliseconds since 1970.
        ts: u64,
        /// Id of the session.
        session_id: SessionId,
        /// The invocation that the event belongs to; `None` if it belongs to the session.
        origin: Option<Arc<Origin>>,
        /// The event.
        event: Event,
    },
}

/// Fields of an announcement as they are serialised.
#[derive(Serialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct AnnouncementLine<'a> {
    /// Version of the format.
    v: u32,
    /// Position in the event stream of this process, from 1.
    seq: u64,
    /// Number of the event's journal record. Ephemeral events have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<u64>,
    /// Time of the event in milliseconds since 1970.
    ts: u64,
    /// Id of the session.
    session_id: &'a SessionId,
    /// The invocation that the event belongs to.
    #[serde(flatten)]
    origin: Option<&'a Origin>,
    /// The event.
    #[serde(flatten)]
    #[cfg_attr(feature = "testing", schemars(skip))]
    event: &'a Event,
}

/// JSON Schemas, as serialised, of the fields that every line of `stream-json` has, and of the
/// events.
#[cfg(feature = "testing")]
pub fn line_schemas() -> [serde_json::Value; 2] {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let line =
        settings.clone().into_generator().into_root_schema_for::<AnnouncementLine<'static>>();
    let event = settings.into_generator().into_root_schema_for::<Event>();
    [line.into(), event.into()]
}

impl Announcement {
    /// The event.
    pub fn event(&self) -> &Event {
        self.line().event
    }

    /// Number of the event's journal record; `None` for an ephemeral event.
    pub fn record(&self) -> Option<u64> {
        self.line().record
    }

    /// The invocation that the event belongs to; `None` if it belongs to the session.
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

    /// The announcement as a line of `stream-json`, without the final newline.
    pub fn to_json(&self) -> Vec<u8> {
        self.to_json_as(self.seq)
    }

    /// The announcement as the line with the number `seq` of another event stream, without the final
    /// newline.
    pub fn to_json_as(&self, seq: u64) -> Vec<u8> {
        serde_json::to_vec(&AnnouncementLine { seq, ..self.line() }).unwrap_or_default()
    }

    /// Parses a line of `stream-json`; `None` if the line is no valid event. An event of an unknown
    /// type becomes [`Event::Unknown`]. Otherwise the result equals the announcement, except for
    /// the id of the record, which the line does not contain and which is set to 0.
    pub fn parse(line: &[u8]) -> Option<Announcement> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct EventLine {
            v: u32,
            seq: u64,
            #[serde(default)]
            record: Option<u64>,
            ts: u64,
            session_id: SessionId,
            // Before `origin`: both have a field `agent`, and the event takes its own first.
            #[serde(flatten)]
            event: Event,
            #[serde(flatten)]
            origin: Option<Arc<Origin>>,
        }
        let EventLine { v, seq, record, ts, session_id, event, origin } =
            serde_json::from_slice(line).ok()?;
        let fact = match record {
            Some(record) => {
                let id = RecordId { process: 0, count: 0 };
                let stored = StoredRecord { v, record, ts, id, session_id, event, origin };
                AnnouncedEvent::Stored(Arc::new(stored))
            }
            None => AnnouncedEvent::Ephemeral { ts, session_id, origin, event },
        };
        Some(Announcement { seq, fact })
    }
}

#[cfg(test)]
mod tests {
    use crate::conversation::InvocationId;
    use crate::event::SandboxTier;

    use super::*;

    fn stored(event: Event, origin: Option<Origin>) -> Announcement {
        let stored = StoredRecord {
            v: 1,
            record: 7,
            ts: 1,
            id: RecordId { process: 0, count: 0 },
            session_id: SessionId::new("s"),
            event,
            origin: origin.map(Arc::new),
        };
        Announcement { seq: 9, fact: AnnouncedEvent::Stored(Arc::new(stored)) }
    }

    #[test]
    fn announcements_parse_back() {
        let origin = Origin {
            invocation_id: InvocationId::new("i1"),
            parent_invocation_id: Some(InvocationId::new("i0")),
            agent: "worker".to_owned(),
            agent_path: "build/worker".to_owned(),
        };
        let started = Event::SessionStarted {
            posse: "1".to_owned(),
            cwd: "/x".to_owned(),
            agent: "build".to_owned(),
            provider: "p".to_owned(),
            model: "m".to_owned(),
            mode: "single-agent".to_owned(),
            tier: SandboxTier::Full,
            permission_mode: None,
            instructions: String::new(),
            prompt: crate::event::PromptOverrides::default(),
            forked_from: None,
            budget: crate::cost::Budget::default(),
        };
        let delta = AnnouncedEvent::Ephemeral {
            ts: 3,
            session_id: SessionId::new("s"),
            origin: Some(Arc::new(origin.clone())),
            event: Event::TextDelta { text: "a\u{1b}\"".to_owned() },
        };
        let warning = Event::Warning { message: "w".to_owned() };
        let all = [
            stored(started, None),
            stored(warning, Some(origin)),
            Announcement { seq: 1, fact: delta },
        ];
        for announced in all {
            assert_eq!(Announcement::parse(&announced.to_json()), Some(announced));
        }
    }

    #[test]
    fn other_lines_are_none_and_unknown_events_are_kept() {
        for line in ["", "{}", "nonsense", r#"{"type":"attach.done","line":1}"#] {
            assert_eq!(Announcement::parse(line.as_bytes()), None, "{line}");
        }
        let later = r#"{"v":1,"seq":1,"ts":2,"sessionId":"s","type":"of.tomorrow","x":[1]}"#;
        assert_eq!(Announcement::parse(later.as_bytes()).unwrap().event(), &Event::Unknown);
    }
}
