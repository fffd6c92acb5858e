//! Types for attaching a front end to a session of another process. The owning process opens a
//! socket for the session; the attached front end gets two channels instead of the session handle.

use std::fmt;
use std::pin::Pin;

use posse_actors::conversation::SessionId;
use posse_actors::root_session::SessionHandle;
use posse_base::failure::{Failure, lines};
use posse_base::or_pending;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::response::Response;
use crate::{ReplacedChanges, RewindExtent};

/// Maximum number of queued requests of attached clients to the front end of the owning process.
const REQUESTS_MAX: usize = 4;

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

/// Earlier state of files and conversation to which an attached client returns a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revert {
    /// The files before the last step: `/undo`.
    LastChange,
    /// The files of the checkpoint with this number: `/undo N`.
    ToCheckpoint(u64),
    /// The state before the prompt with this number, counted from 1: `/rewind`.
    ToPrompt(usize, RewindExtent),
}

impl fmt::Display for Revert {
    /// Writes the command, such as `/rewind 2 files`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Revert::LastChange => f.write_str("/undo"),
            Revert::ToCheckpoint(id) => write!(f, "/undo {id}"),
            Revert::ToPrompt(prompt, extent) => write!(f, "/rewind {prompt} {}", extent.name()),
        }
    }
}

/// Request of an attached client to return to an earlier state. The front end of the owning process
/// carries it out, because it replaces the session if the conversation returns.
#[derive(Debug)]
pub struct RevertRequest {
    /// The earlier state.
    pub revert: Revert,
    /// Name of the client, such as `process 123`.
    pub client: String,
    answer: oneshot::Sender<Result<(), String>>,
}

impl RevertRequest {
    /// Creates a request, and the channel of its answer: `Ok` as soon as the return begins, or the
    /// reason of a refusal.
    pub fn new(
        revert: Revert,
        client: String,
    ) -> (RevertRequest, oneshot::Receiver<Result<(), String>>) {
        let (answer, answered) = oneshot::channel();
        (RevertRequest { revert, client, answer }, answered)
    }

    /// True if the client does not wait for the answer any more.
    pub fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Sends the errors to the client as a reason on one line, if it still waits.
    pub fn refuse(self, failures: &[Failure]) {
        let text = lines(failures);
        let parts: Vec<&str> = text.lines().map(str::trim).collect();
        self.answer(Err(parts.join("; ")));
    }

    /// Refuses the return until the client asks for it again, because it replaces changes of the user.
    pub fn ask(self, replaced: &ReplacedChanges) {
        let text = format!(
            "{} replaces what you have changed since: {}; nothing was restored; the same again \
             restores them",
            self.revert,
            replaced.lines.join(", ")
        );
        self.answer(Err(text));
    }

    /// Sends the answer to the client, if it still waits.
    pub fn answer(self, answer: Result<(), String>) {
        self.answer.send(answer).ok();
    }
}

/// Opens the attach socket of a session that has just started. Requests of clients go to the
/// channel, which is closed if the front end takes none.
type OpenSocket =
    Box<dyn FnOnce(&SessionHandle, mpsc::Sender<RevertRequest>) -> Box<dyn SocketGuard> + Send>;

/// Opens the attach socket of a session; a front end calls [`SessionServer::start`] after the
/// session has started. Does nothing if attaching is disabled.
#[derive(Default)]
pub struct SessionServer(Option<OpenSocket>);

impl SessionServer {
    /// Enables attaching. `opens` opens the socket; [`SessionServer::start`] calls it.
    pub fn new(
        opens: impl FnOnce(&SessionHandle, mpsc::Sender<RevertRequest>) -> Box<dyn SocketGuard>
        + Send
        + 'static,
    ) -> SessionServer {
        SessionServer(Some(Box::new(opens)))
    }

    /// Disables attaching.
    pub fn disabled() -> SessionServer {
        SessionServer(None)
    }

    /// Opens the socket, if attaching is enabled, for a front end that cannot return to an earlier
    /// state. Needs a tokio runtime.
    pub fn start(self, session: &SessionHandle) -> AttachSocket {
        let mut socket = self.start_with_reverts(session);
        socket.reverts = None;
        socket
    }

    /// Opens the socket, if attaching is enabled. The front end handles the requests of
    /// [`AttachSocket::next_revert`]. Needs a tokio runtime.
    pub fn start_with_reverts(self, session: &SessionHandle) -> AttachSocket {
        let (requests, reverts) = mpsc::channel(REQUESTS_MAX);
        AttachSocket { guard: self.0.map(|opens| opens(session, requests)), reverts: Some(reverts) }
    }
}

impl fmt::Debug for SessionServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionServer").field(&self.0.is_some()).finish()
    }
}

/// The attach socket of a session, if one is open.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "the guard is opaque")]
pub struct AttachSocket {
    guard: Option<Box<dyn SocketGuard>>,
    reverts: Option<mpsc::Receiver<RevertRequest>>,
}

impl AttachSocket {
    /// Closes the socket, if one is open. If the session has ended before the call, attached
    /// clients receive its last event, unless they are slower than a short grace period.
    pub async fn close(&mut self) {
        if let Some(door) = self.guard.take() {
            door.close().await;
        }
    }

    /// Waits for the next request of an attached client to return to an earlier state. Dropping
    /// the future loses none.
    pub async fn next_revert(&mut self) -> RevertRequest {
        let next = or_pending(self.reverts.as_mut().map(mpsc::Receiver::recv)).await;
        or_pending(next.map(std::future::ready)).await
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
    /// The response to an instruction that had an id, or that asked for a result.
    Response(Box<Response>),
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
