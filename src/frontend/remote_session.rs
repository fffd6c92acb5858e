//! Types for attaching a front end to a session of another process. The owning process opens a
//! socket for the session; the attached front end gets two channels instead of the session handle.

use std::pin::Pin;

use posse_actors::conversation::SessionId;
use posse_actors::root_session::SessionHandle;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Text of the warning that the attached front end `name` can control the session. The front end
/// itself does not show its own.
pub fn joined(name: &str) -> String {
    format!("{name} joined this session and may control it")
}

/// Open attach socket of a session. Clients may attach until it is closed or dropped. Dropping it
/// disconnects them at once.
pub trait SocketGuard: Send {
    /// Stops accepting clients. Returns when the attached clients have received the last event of
    /// the session; after a short grace period, the remaining clients are disconnected.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Opens the attach socket of a session that has just started.
type OpenSocket = Box<dyn FnOnce(&SessionHandle) -> Box<dyn SocketGuard> + Send>;

/// Opens the attach socket of a session; a front end calls [`SessionServer::start`] after the
/// session has started. Does nothing if attaching is disabled.
#[derive(Default)]
pub struct SessionServer(Option<OpenSocket>);

impl SessionServer {
    /// Enables attaching. `opens` opens the socket; [`SessionServer::start`] calls it.
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
    /// Closes the socket, if one is open. If the session has ended before the call, attached
    /// clients receive its last event, unless they are slower than a short grace period.
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
    /// May only receive events.
    Observer,
    /// May also send every [`Instruction`](crate::instruction::Instruction), such as prompts and
    /// answers to permission requests.
    Controller,
}

/// Reply of the host to a client that it accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachAccepted {
    /// Id of the session.
    pub session_id: SessionId,
    /// Process id of the process that owns the session.
    pub process: u32,
    /// Permissions of the client.
    #[serde(rename = "as")]
    pub role: AttachRole,
    /// Name of the client in records and notices, such as `process 123`.
    pub name: String,
    /// Number of the latest record when the client attached. Events with a number up to this one
    /// are history.
    pub records: u64,
    /// Number of records at the start of the journal that the client asked to skip.
    pub after: u64,
}

/// Message from a remote session.
#[derive(Debug, Clone, PartialEq)]
pub enum RemoteMessage {
    /// An event as one line, without its newline.
    Event(Vec<u8>),
    /// The instruction on the line with this number was accepted and carried out; for a prompt, its
    /// run has started. Lines are counted from 1, after the first line of the handshake.
    Done(u64),
    /// The instruction on the line with this number, counted as in `Done`, was invalid or refused,
    /// with the reason.
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
    /// Sends instructions, each as one line with its newline.
    pub commands: mpsc::Sender<Vec<u8>>,
}
