//! How front ends come together on one session: whoever owns it lets others in, and whoever joins
//! one that runs elsewhere has two channels instead of it.

use std::pin::Pin;
use std::sync::Arc;

use posse_actors::conversation::SessionId;
use posse_actors::event::{Announcement, Event, Fact, Origin, StoredRecord};
use posse_actors::record::RecordId;
use posse_actors::root_session::SessionHandle;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// An open door: others may join the session until it is closed or dropped.
pub trait Door: Send {
    /// Lets nobody in any more, and returns when those who are there have heard the last event, or
    /// have had a moment for that.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Opens the door of a session that has just started.
type Opens = Box<dyn FnOnce(&SessionHandle) -> Box<dyn Door> + Send>;

/// Whether, and how, others may join a session.
#[derive(Default)]
pub struct Invitation(Option<Opens>);

impl Invitation {
    /// They may, through this door.
    pub fn new(opens: impl FnOnce(&SessionHandle) -> Box<dyn Door> + Send + 'static) -> Invitation {
        Invitation(Some(Box::new(opens)))
    }

    /// They may not.
    pub fn none() -> Invitation {
        Invitation(None)
    }

    /// Opens the door, if there is to be one. Within a runtime.
    pub(crate) fn open(self, session: &SessionHandle) -> Joinable {
        Joinable(self.0.map(|opens| opens(session)))
    }
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Invitation").field(&self.0.is_some()).finish()
    }
}

/// A session with a door, or without one.
#[derive(Default)]
pub(crate) struct Joinable(Option<Box<dyn Door>>);

impl Joinable {
    /// The session has ended: nobody comes in any more, and everybody hears the end.
    pub(crate) async fn close(&mut self) {
        if let Some(door) = self.0.take() {
            door.close().await;
        }
    }
}

/// What a front end that joined may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See.
    Observer,
    /// Ask, steer, stop and answer as well.
    Controller,
}

/// What a host says to whoever it lets in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The session.
    pub session_id: SessionId,
    /// The process that owns it.
    pub process: u32,
    /// What whoever joined may do.
    #[serde(rename = "as")]
    pub role: Role,
    /// How it is called in records and in what others are told.
    pub name: String,
    /// The last record there was. What comes with a number up to this one has been.
    pub records: u64,
    /// Records that were asked to be left out.
    pub after: u64,
}

/// What is heard of a session that runs elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// An event, as one line without its newline.
    Event(Vec<u8>),
    /// An instruction was followed: the line with this number, from 1.
    Done(u64),
    /// It was not, and why.
    Failed(u64, String),
    /// The host lets go of whoever joined, and why.
    Dropped(String),
}

/// A session that runs elsewhere, as a front end that joined it holds it.
#[derive(Debug)]
pub struct Remote {
    /// How it was joined.
    pub accepted: Accepted,
    /// What happens. At its end the connection is over.
    pub heard: mpsc::Receiver<Heard>,
    /// Takes instructions, one line each with its newline.
    pub voice: mpsc::Sender<Vec<u8>>,
}

/// A line of `stream-json`, read. `None`: it is none. Its record, if it has one, is as it was
/// announced, save the id, which lines do not have.
pub(crate) fn announcement(line: &[u8]) -> Option<Announcement> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Line {
        v: u32,
        seq: u64,
        #[serde(default)]
        record: Option<u64>,
        ts: u64,
        session_id: SessionId,
        // Before `origin`: both have an `agent`, and this one takes its own first.
        #[serde(flatten)]
        event: Event,
        #[serde(flatten)]
        origin: Option<Arc<Origin>>,
    }
    let Line { v, seq, record, ts, session_id, event, origin } =
        serde_json::from_slice(line).ok()?;
    let fact = match record {
        Some(record) => {
            let id = RecordId { process: 0, count: 0 };
            let stored = StoredRecord { v, record, ts, id, session_id, event, origin };
            Fact::Stored(Arc::new(stored))
        }
        None => Fact::Passing { ts, session_id, origin, event },
    };
    Some(Announcement { seq, fact })
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::InvocationId;

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
        Announcement { seq: 9, fact: Fact::Stored(Arc::new(stored)) }
    }

    #[test]
    fn what_is_announced_can_be_read_back() {
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
            tier: "full".to_owned(),
            instructions: String::new(),
            forked_from: None,
            budget: posse_actors::ledger::Budget::default(),
        };
        let delta = Fact::Passing {
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
            let line = serde_json::to_vec(&announced).unwrap();
            assert_eq!(announcement(&line), Some(announced));
        }
    }

    #[test]
    fn what_is_no_line_is_none_and_what_is_unknown_is_kept() {
        for line in ["", "{}", "nonsense", r#"{"type":"attach.done","line":1}"#] {
            assert_eq!(announcement(line.as_bytes()), None, "{line}");
        }
        let later = r#"{"v":1,"seq":1,"ts":2,"sessionId":"s","type":"of.tomorrow","x":[1]}"#;
        assert_eq!(announcement(later.as_bytes()).unwrap().event(), &Event::Unknown);
    }
}
