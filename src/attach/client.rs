//! The end of whoever joins: a connection as two channels.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::attach::SocketAddress;
use crate::attach::handshake::{Hello, HostReply, heard, line};
use crate::attach::lines::{BoundedLine, LineBuffer};
use crate::failure::{Exit, Failure};
use crate::frontend::remote_session::{AttachRole, RemoteMessage, RemoteSession};

/// Lines that wait to be shown; then the host waits, which costs it nothing.
const HEARD_WAITING: usize = 64;

/// Instructions that wait to be sent.
const SAID_WAITING: usize = 16;

/// Bytes of a line from the host: one may hold a whole history with its images.
const LINE_BYTES_MAX: usize = 512 << 20;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// How long the host may take to answer: it does within milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How somebody wants to join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joining {
    /// What they want to do.
    pub role: AttachRole,
    /// Records up to this one are not wanted.
    pub after: u64,
    /// Of those that were there before, only so many are wanted, and questions that may be open.
    pub last: Option<u64>,
}

/// Joins the session at `place`. Within a runtime.
pub async fn join(place: &SocketAddress, joining: Joining) -> Result<RemoteSession, Failure> {
    let address = place.address().map_err(|error| unreachable_at(&error))?;
    let connected = timeout(ANSWER_MAX, UnixStream::connect(&address.path)).await;
    let mut stream = connected
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
        .map_err(|error| unreachable_at(&error))?;
    let token = place.token().map_err(|error| {
        Failure::new("ATT003", Exit::Session, "there is no token to join a session with")
            .because(error.to_string())
    })?;
    let hello = Hello::new(token, joining.role, joining.after, joining.last);
    stream.write_all(&line(&hello)).await.map_err(|error| unreachable_at(&error))?;
    let (read, write) = stream.into_split();
    let mut lines =
        Incoming { read, lines: LineBuffer::new(LINE_BYTES_MAX), chunk: Vec::new(), used: 0 };
    // A connection that was taken just before the session ended, or goes on anew, is closed unanswered.
    let first = match timeout(ANSWER_MAX, lines.next()).await {
        Ok(Some(first)) => first,
        Ok(None) => return Err(unreachable_at(&io::ErrorKind::UnexpectedEof.into())),
        Err(_) => Vec::new(),
    };
    let accepted = match serde_json::from_slice(&first) {
        Ok(HostReply::Accepted { accepted, .. }) => accepted,
        Ok(HostReply::Refused { code, message, .. }) => {
            let what = format!("the session cannot be joined: {message}");
            let code = if code == "ATT005" { "ATT005" } else { "ATT003" };
            return Err(Failure::new(code, Exit::Session, what));
        }
        Ok(_) | Err(_) => {
            return Err(Failure::new("ATT004", Exit::Session, "the session does not answer")
                .fix("try again; the process that owns it may be stopped"));
        }
    };
    let (out, heard) = mpsc::channel(HEARD_WAITING);
    let (voice, said) = mpsc::channel(SAID_WAITING);
    tokio::spawn(listen(lines, out));
    tokio::spawn(speak(write, said));
    Ok(RemoteSession { accepted, messages: heard, commands: voice })
}

fn unreachable_at(error: &io::Error) -> Failure {
    Failure::new("ATT002", Exit::Session, "the session cannot be reached")
        .because(error.to_string())
        .fix("it may have ended just now: `posse sessions list` shows how it stands")
}

async fn listen(mut lines: Incoming, out: mpsc::Sender<RemoteMessage>) {
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            // Nobody listens any more: the host should not have to find out.
            () = out.closed() => return,
        };
        let Some(line) = line else { return };
        if out.send(heard(line)).await.is_err() {
            return;
        }
    }
}

/// Sends until nobody says anything any more; the connection stays until its other half ends.
async fn speak(mut write: OwnedWriteHalf, mut said: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = said.recv().await {
        if write.write_all(&line).await.is_err() {
            return;
        }
    }
    // An end of what is said is no end of what is heard: the host takes one for the other.
    write.forget();
}

struct Incoming {
    read: OwnedReadHalf,
    lines: LineBuffer,
    chunk: Vec<u8>,
    used: usize,
}

impl Incoming {
    /// The next line; one that is too long is left out. `None` at the end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((line, rest)) = self.lines.next(&self.chunk[self.used..]) {
                self.used = self.chunk.len() - rest.len();
                if let BoundedLine::Whole(line) = line {
                    return Some(line);
                }
                continue;
            }
            self.chunk.clear();
            self.used = 0;
            self.chunk.reserve(READ_BYTES);
            if self.read.read_buf(&mut self.chunk).await.ok()? == 0 {
                return None;
            }
        }
    }
}
