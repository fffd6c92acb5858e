//! Client side of an attached session: a connection as two channels.

use std::io;
use std::time::Duration;

use posse_actors::event::PermissionMode;
use posse_base::failure::{ErrorCode, Exit, Failure};
use posse_frontend::remote_session::{AttachRole, RemoteMessage, RemoteSession};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::SocketAddress;
use crate::handshake::{Hello, HostReply, classify_host_line, line};
use crate::lines::LineReader;

/// Capacity of the queue of received lines. When it is full, the client reads no further, and the
/// host disconnects it after a minute.
const RECEIVED_LINES_MAX: usize = 64;

/// Capacity of the queue of instructions to send.
const QUEUED_COMMANDS_MAX: usize = 16;

/// Maximum length of a line from the host in bytes: one line may contain a whole history with its
/// images. A longer line is skipped.
const LINE_BYTES_MAX: usize = 512 << 20;

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// Time limit for connecting, and again for the host's first answer, which normally takes
/// milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Options of an attach request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachOptions {
    /// Requested role: controller, or observer that cannot send instructions.
    pub role: AttachRole,
    /// Records up to and including this number are skipped.
    pub after: u64,
    /// Limits the existing records to the last `last` ones, plus earlier ones about permission
    /// requests and about resuming the session. `None`: no limit.
    pub last: Option<u64>,
    /// Permission mode of the start, of a controller: the session gets it if it is stricter than
    /// its own. `None`: the mode of the session stays.
    pub permission_mode: Option<PermissionMode>,
}

/// Attaches to the session at `place`: connects, sends the token, and waits for the answer of the
/// host. Must run within a tokio runtime.
///
/// Errors: `ATT002` if the session cannot be reached or closes the connection without an answer,
/// `ATT003` if the request is rejected or the token cannot be read, `ATT005` if too many front ends
/// are attached, `ATT007` if no answer comes within 5 seconds or the answer is unknown.
pub async fn join(place: &SocketAddress, options: AttachOptions) -> Result<RemoteSession, Failure> {
    let address = place.address().map_err(|error| unreachable_session(&error))?;
    let connected = timeout(ANSWER_MAX, UnixStream::connect(&address.path)).await;
    let mut stream = connected
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
        .map_err(|error| unreachable_session(&error))?;
    let token = place.token().map_err(|error| {
        Failure::new(ErrorCode::AttachRefused, Exit::Session, "cannot read the attach token")
            .because(error.to_string())
    })?;
    let mut hello = Hello::new(token, options.role, options.after, options.last);
    hello.permission_mode = options.permission_mode;
    stream.write_all(&line(&hello)).await.map_err(|error| unreachable_session(&error))?;
    let (mut read, write) = stream.into_split();
    let mut lines = LineReader::new(LINE_BYTES_MAX, READ_BYTES);
    // The host closes a connection unanswered if it accepted it just before the session ended or
    // continued under another assembly.
    let first = match timeout(ANSWER_MAX, lines.next_whole(&mut read)).await {
        Ok(Some(first)) => first,
        Ok(None) => return Err(unreachable_session(&io::ErrorKind::UnexpectedEof.into())),
        Err(_) => Vec::new(),
    };
    let accepted = match serde_json::from_slice(&first) {
        Ok(HostReply::Accepted { accepted, .. }) => accepted,
        Ok(HostReply::Refused { code, message, .. }) => {
            let what = format!("cannot attach to the session: {message}");
            let is_limit = code == ErrorCode::AttachLimit.as_str();
            let code = if is_limit { ErrorCode::AttachLimit } else { ErrorCode::AttachRefused };
            return Err(Failure::new(code, Exit::Session, what));
        }
        Ok(_) | Err(_) => {
            return Err(Failure::new(
                ErrorCode::AttachNoAnswer,
                Exit::Session,
                "the session does not respond",
            )
            .fix("try again; the process that owns it may be stopped"));
        }
    };
    let (out, heard) = mpsc::channel(RECEIVED_LINES_MAX);
    let (voice, said) = mpsc::channel(QUEUED_COMMANDS_MAX);
    tokio::spawn(receive_lines(read, lines, out));
    tokio::spawn(send_commands(write, said));
    Ok(RemoteSession { accepted, messages: heard, commands: voice })
}

fn unreachable_session(error: &io::Error) -> Failure {
    Failure::new(ErrorCode::AttachUnreachable, Exit::Session, "cannot connect to the session")
        .because(error.to_string())
        .fix("it may just have ended: `posse sessions list` shows its state")
}

async fn receive_lines(
    mut read: OwnedReadHalf,
    mut lines: LineReader,
    out: mpsc::Sender<RemoteMessage>,
) {
    loop {
        let line = tokio::select! {
            line = lines.next_whole(&mut read) => line,
            // Notices a closed channel at once, so that the host does not have to detect a dead
            // connection.
            () = out.closed() => return,
        };
        let Some(line) = line else { return };
        if out.send(classify_host_line(line)).await.is_err() {
            return;
        }
    }
}

/// Sends instructions until their channel closes or sending fails. After the channel has closed,
/// the connection stays open until the reading half ends.
async fn send_commands(mut write: OwnedWriteHalf, mut said: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = said.recv().await {
        if write.write_all(&line).await.is_err() {
            return;
        }
    }
    // Does not shut down the write half: the host would take that for a closed connection.
    write.forget();
}
