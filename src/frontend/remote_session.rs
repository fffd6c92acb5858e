//! Attaching front ends to one session. The process that owns the session opens a socket for it; a
//! front end that attaches gets two channels in its place.

use std::pin::Pin;
use std::sync::Arc;

use posse_actors::conversation::SessionId;
use posse_actors::event::{AnnouncedEvent, Announcement, Event, Origin, RecordId, StoredRecord};
use posse_actors::root_session::SessionHandle;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Open attach socket of a session. Clients may attach until it is closed or dropped.
pub trait SocketGuard: Send {
    /// Stops accepting clients. Returns when the attached clients have received the last event, or
    /// after a short grace period.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Opens the attach socket of a session that has just started.
type OpenSocket = Box<dyn FnOnce(&SessionHandle) -> Box<dyn SocketGuard> + Send>;

/// Opens the attach socket of a session once it has started, if attaching is enabled.
#[derive(Default)]
pub struct SessionServer(Option<OpenSocket>);

impl SessionServer {
    /// Enables attaching; `open` opens the socket.
    pub fn new(
        opens: impl FnOnce(&SessionHandle) -> Box<dyn SocketGuard> + Send + 'static,
    ) -> SessionServer {
        SessionServer(Some(Box::new(opens)))
    }

    /// Disables attaching.
    pub fn disabled() -> SessionServer {
        SessionServer(None)
    }

    /// Opens the socket, if attaching is enabled. Needs a tokio runtime.
    pub fn start(self, session: &SessionHandle) -> AttachSocket {
        AttachSocket(self.0.map(|opens| opens(session)))
    }
}

impl std::fmt::Debug for SessionServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SessionServer").field(&self.0.is_some()).finish()
    }
}

/// The attach socket of a session, if one is open.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "the guard is opaque")]
pub struct AttachSocket(Option<Box<dyn SocketGuard>>);

impl AttachSocket {
    /// Closes the socket after the session has ended; attached clients receive the last event.
    pub async fn close(&mut self) {
        if let Some(door) = self.0.take() {
            door.close().await;
        }
    }
}

/// Permissions of an attached front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachRole {
    /// May follow events.
    Observer,
    /// May also prompt, steer, stop and answer permission requests.
    Controller,
}

/// Reply of the host to a client that it accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachAccepted {
    /// Id of the session.
    pub session_id: SessionId,
    /// Id of the process that owns the session.
    pub process: u32,
    /// Permissions of the client.
    #[serde(rename = "as")]
    pub role: AttachRole,
    /// Name of the client in records and notices.
    pub name: String,
    /// Number of the latest record. Events with a number up to this one are from the past.
    pub records: u64,
    /// Number of records that the client asked to skip.
    pub after: u64,
}

/// Message from a remote session.
#[derive(Debug, Clone, PartialEq)]
pub enum RemoteMessage {
    /// An event as one line, without its newline.
    Event(Vec<u8>),
    /// The instruction on the line with this number, counted from 1, was carried out.
    Done(u64),
    /// The instruction on that line failed, with the reason.
    Failed(u64, String),
    /// The host closed the connection, with the reason.
    Dropped(String),
}

/// A session in another process that this front end is attached to.
#[derive(Debug)]
pub struct RemoteSession {
    /// Reply of the host.
    pub accepted: AttachAccepted,
    /// Messages of the session. The channel ends when the connection is closed.
    pub messages: mpsc::Receiver<RemoteMessage>,
    /// Sends instructions, one line each with its newline.
    pub commands: mpsc::Sender<Vec<u8>>,
}

/// Parses a line of `stream-json`; `None` if it is no event. The record is as it was announced,
/// except for its id, which lines do not contain.
pub fn announcement(line: &[u8]) -> Option<Announcement> {
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
            tier: "full".to_owned(),
            instructions: String::new(),
            forked_from: None,
            budget: posse_actors::cost::Budget::default(),
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
            let line = serde_json::to_vec(&announced).unwrap();
            assert_eq!(announcement(&line), Some(announced));
        }
    }

    #[test]
    fn other_lines_are_none_and_unknown_events_are_kept() {
        for line in ["", "{}", "nonsense", r#"{"type":"attach.done","line":1}"#] {
            assert_eq!(announcement(line.as_bytes()), None, "{line}");
        }
        let later = r#"{"v":1,"seq":1,"ts":2,"sessionId":"s","type":"of.tomorrow","x":[1]}"#;
        assert_eq!(announcement(later.as_bytes()).unwrap().event(), &Event::Unknown);
    }
}
