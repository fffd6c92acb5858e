//! Server side of one connection: the handshake, then events out and instructions in,
//! concurrently.

use std::sync::Arc;

use posse_actors::conversation::{ContentPart, Prompt};
use posse_actors::event::{Announcement, Event, MessageKind};
use posse_actors::root_session::{DeliverError, PromptError, SessionHandle};
use posse_actors::subscription::Subscription;
use posse_base::failure::{ErrorCode, Failure};
use posse_frontend::instruction::{ClientLine, Instruction, LINE_BYTES_MAX};
use posse_frontend::remote_session::{AttachAccepted, AttachRole, Revert, RevertRequest, joined};
use posse_frontend::requests::{
    InstructionAnswer, SessionRequests, busy, elsewhere, in_one_line, not_begun, refused,
};
use posse_frontend::response::{Caller, InstructionResult, Response};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::timeout;

use crate::SocketAddress;
use crate::address::constant_time_eq;
use crate::handshake::{AttachRefusal, HELLO_BYTES_MAX, Hello, HostReply, line};
use crate::host::{AttachBounds, ServedSession, refuse};
use crate::lines::{BoundedLine, LineReader};

/// Capacity of the queue of answers to instructions. When it is full, no further instruction is
/// read.
const QUEUED_ANSWERS_MAX: usize = 16;

/// Number of lines after which the writing task yields to other tasks.
const LINES_BEFORE_YIELD_MAX: u32 = 16;

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// Reason for the end of a connection.
#[derive(Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// The client disconnected, or the connection failed.
    ClientLeft,
    /// The session ended, and all events were sent to the client.
    SessionEnded,
    /// The host disconnected the client, for this reason.
    Dropped(String),
}

/// A client that has passed the handshake. It can still be refused because of the limit of
/// connections.
#[derive(Debug)]
pub(super) struct Admitted {
    stream: UnixStream,
    /// Reader of `stream`, positioned after the first line.
    reader: LineReader,
    hello: Hello,
    /// Name of the client for the user, such as `process 123`.
    name: String,
}

impl Admitted {
    /// Sends the client the reason of its rejection and closes the connection.
    pub(super) async fn refuse(self, refused: AttachRefusal, bounds: AttachBounds) {
        refuse(self.stream, refused, bounds.refusal_max).await;
    }
}

/// Reads and checks the first line of a client. `None` if the client disconnected or was sent a
/// refusal: it belongs to another user, sent no valid line in time, or has the wrong token.
pub(super) async fn handshake(
    stream: UnixStream,
    place: &SocketAddress,
    bounds: AttachBounds,
) -> Option<Admitted> {
    let process = match peer_process(&stream) {
        Ok(process) => process,
        Err(refused) => {
            refuse(stream, refused, bounds.refusal_max).await;
            return None;
        }
    };
    let mut stream = stream;
    let mut reader = LineReader::new(HELLO_BYTES_MAX, READ_BYTES);
    let invalid = |what: &str| Err(AttachRefusal::new(ErrorCode::AttachInvalidRequest, what));
    let first = match timeout(bounds.handshake_max, reader.next(&mut stream)).await {
        Ok(Some(BoundedLine::Whole(first))) => Hello::read(&first),
        Ok(Some(BoundedLine::TooLong)) => invalid("the first line is too long"),
        Ok(None) => return None,
        Err(_) => invalid("no first line was received"),
    };
    let hello = match first.and_then(|hello| admit(hello, place)) {
        Ok(hello) => hello,
        Err(refused) => {
            refuse(stream, refused, bounds.refusal_max).await;
            return None;
        }
    };
    reader.set_limit(LINE_BYTES_MAX);
    let name = process.map_or("another process".to_owned(), |process| format!("process {process}"));
    Some(Admitted { stream, reader, hello, name })
}

/// Sends events to an admitted client and executes its instructions, until the client or the
/// session ends or the client exceeds a limit. Warnings of the session report that a controller
/// joins, and that it leaves before the session ends.
pub(super) async fn serve(client: Admitted, served: ServedSession, bounds: AttachBounds) {
    let ServedSession { session, reverts } = served;
    let Admitted { stream, reader, hello, name } = client;
    if let Err(why) = apply_mode(&session, &hello, &name).await {
        return refuse(stream, rejected(why), bounds.refusal_max).await;
    }
    let records = session.last_record();
    let accepted = AttachAccepted {
        session_id: session.id().clone(),
        process: std::process::id(),
        role: hello.role,
        name: name.clone(),
        records,
        after: hello.after,
    };
    let controls = hello.role == AttachRole::Controller;
    if controls {
        session.warn(joined(&name));
    }
    let complete_after = hello.last.map_or(0, |last| records.saturating_sub(last));
    let (read, write) = stream.into_split();
    let (answers, waiting) = mpsc::channel(QUEUED_ANSWERS_MAX);
    answers.try_send(line(&HostReply::accepted(accepted))).ok();
    let mut out = EventWriter { write, bounds, seq: 0 };
    let heard = EventFilter { events: session.subscribe_after(hello.after), complete_after };
    let role = hello.role;
    let instructions = InstructionHandler {
        requests: SessionRequests::new(session.clone(), Some(name.clone())),
        session: session.clone(),
        reverts,
        answers,
        role,
        name: name.clone(),
        bounds,
    };
    let over = tokio::select! {
        over = out.follow(heard, waiting) => over,
        over = instructions.follow(reader, read) => over,
    };
    if let ConnectionEnd::Dropped(why) = &over {
        tracing::info!(name, why, "front end disconnected");
        let last = line(&HostReply::dropped(why.clone()));
        timeout(bounds.refusal_max, out.write.write_all(&last)).await.ok();
    }
    if controls && over != ConnectionEnd::SessionEnded {
        let why = match over {
            ConnectionEnd::Dropped(why) => format!(" ({why})"),
            ConnectionEnd::ClientLeft | ConnectionEnd::SessionEnded => String::new(),
        };
        session.warn(format!("{name} left this session{why}"));
    }
}

/// Changes the session to the mode that `hello` brings, if that is stricter than the mode of the
/// session. Fails if an observer brings one, or if neither mode is stricter.
async fn apply_mode(session: &SessionHandle, hello: &Hello, name: &str) -> Result<(), String> {
    let Some(start) = hello.permission_mode else { return Ok(()) };
    if hello.role == AttachRole::Observer {
        return Err("an observer cannot change the permission mode".to_owned());
    }
    let own = session.requested_permission_mode();
    let Some(stricter) = own.stricter(start) else {
        return Err(format!("the permission modes {own} and {start} cannot be combined"));
    };
    if stricter == own {
        return Ok(());
    }
    let changed = session.set_permission_mode(stricter, Some(name.to_owned())).await;
    changed.map(drop).map_err(|error| error.to_string())
}

/// Process id of the client. `None`: the system does not report it. A client of another user is an
/// error, and so are unknown credentials.
fn peer_process(stream: &UnixStream) -> Result<Option<i32>, AttachRefusal> {
    let peer = stream.peer_cred().map_err(|error| rejected(error.to_string()))?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Err(rejected("the session belongs to another user"));
    }
    Ok(peer.pid().filter(|pid| *pid > 0))
}

fn admit(hello: Hello, place: &SocketAddress) -> Result<Hello, AttachRefusal> {
    let unreadable = |error| rejected(format!("cannot read the attach token: {error}"));
    let ours = place.token().map_err(unreadable)?;
    if constant_time_eq(&ours, &hello.token) {
        Ok(hello)
    } else {
        Err(rejected("the token does not match that of this state directory"))
    }
}

fn rejected(message: impl Into<String>) -> AttachRefusal {
    AttachRefusal::new(ErrorCode::AttachRefused, message)
}

/// Events for one connection, without the older records that the client does not want.
struct EventFilter {
    events: Subscription,
    /// Number of a record. Of the records up to and including it, only those about permission
    /// requests and about resuming the session are sent.
    complete_after: u64,
}

impl EventFilter {
    async fn next(&mut self) -> Option<Arc<Announcement>> {
        loop {
            let announcement = self.events.next().await?;
            if announcement.record().is_none_or(|record| record > self.complete_after)
                || is_permission_event(announcement.event())
            {
                return Some(announcement);
            }
        }
    }
}

fn is_permission_event(event: &Event) -> bool {
    event.question().is_some() || matches!(event, Event::SessionResumed { .. })
}

struct EventWriter {
    write: OwnedWriteHalf,
    bounds: AttachBounds,
    /// Number of events sent on this connection, and sequence number of the last one.
    seq: u64,
}

impl EventWriter {
    /// Writes events and answers until the session ends, the client disconnects, or one line takes
    /// longer than `stalled_read_max`. Only the next line is buffered here: a slow client lags
    /// behind and gets the durable records from the journal.
    async fn follow(
        &mut self,
        mut heard: EventFilter,
        mut answers: mpsc::Receiver<Vec<u8>>,
    ) -> ConnectionEnd {
        let mut lines_written = 0;
        loop {
            let text = tokio::select! {
                biased;
                Some(answer) = answers.recv() => answer,
                announcement = heard.next() => {
                    let Some(announcement) = announcement else {
                        return self.finish(&mut answers).await;
                    };
                    self.seq += 1;
                    // Sequence numbers are per connection.
                    let mut line = announcement.to_json_as(self.seq);
                    line.push(b'\n');
                    line
                }
            };
            match timeout(self.bounds.stalled_read_max, self.write.write_all(&text)).await {
                Ok(Ok(())) => (),
                Ok(Err(_)) => return ConnectionEnd::ClientLeft,
                Err(_) => {
                    let seconds = self.bounds.stalled_read_max.as_secs_f32();
                    return ConnectionEnd::Dropped(format!("it read nothing for {seconds} s"));
                }
            }
            lines_written += 1;
            if lines_written >= LINES_BEFORE_YIELD_MAX {
                lines_written = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Sends the queued answers to instructions when the session has ended. Has no time limit and
    /// ignores errors.
    async fn finish(&mut self, answers: &mut mpsc::Receiver<Vec<u8>>) -> ConnectionEnd {
        while let Ok(answer) = answers.try_recv() {
            self.write.write_all(&answer).await.ok();
        }
        ConnectionEnd::SessionEnded
    }
}

/// Reader and executor of the instructions of one connection.
struct InstructionHandler {
    session: SessionHandle,
    requests: SessionRequests,
    /// Requests to the front end of this process.
    reverts: mpsc::Sender<RevertRequest>,
    /// Lines for the client.
    answers: mpsc::Sender<Vec<u8>>,
    role: AttachRole,
    name: String,
    bounds: AttachBounds,
}

impl InstructionHandler {
    /// Reads instructions, executes them in order and answers each one, until the client
    /// disconnects or has sent too many invalid lines. Every line of an observer is invalid, except
    /// an empty one. Empty lines are counted but not answered.
    async fn follow(mut self, mut reader: LineReader, mut read: OwnedReadHalf) -> ConnectionEnd {
        let mut invalid_lines = 0;
        let mut nth = 0;
        loop {
            let Some(found) = reader.next(&mut read).await else {
                return ConnectionEnd::ClientLeft;
            };
            nth += 1;
            let ClientLine { id, command, instruction } = match found {
                BoundedLine::Whole(bytes) if bytes.trim_ascii().is_empty() => continue,
                BoundedLine::Whole(bytes) => ClientLine::read(&bytes),
                BoundedLine::TooLong => ClientLine::too_long(),
            };
            let caller = Caller { line: nth, id, command };
            let instruction = match instruction {
                Ok(_) if self.role == AttachRole::Observer => {
                    Err(elsewhere("an observer cannot send instructions")
                        .fix("attach without --observe"))
                }
                other => other,
            };
            let is_invalid = instruction.is_err();
            invalid_lines += u32::from(is_invalid);
            if !self.answer(caller, instruction).await {
                return ConnectionEnd::ClientLeft;
            }
            if invalid_lines >= self.bounds.invalid_lines_max {
                return ConnectionEnd::Dropped(format!("{invalid_lines} lines were invalid"));
            }
        }
    }

    /// Carries out an instruction and queues the answer, which comes later if work has begun.
    /// Returns false if the client has left.
    async fn answer(&mut self, caller: Caller, instruction: Result<Instruction, Failure>) -> bool {
        let has_response = caller.id.is_some()
            || matches!(&instruction, Ok(Instruction::Request(_) | Instruction::OwnerRequest(_)));
        let answered = match instruction {
            Ok(instruction) => self.requests.handle(instruction).await,
            Err(failure) => InstructionAnswer::Now(Err(failure)),
        };
        let session = self.session.id().clone();
        let line = move |result| answer_line(caller, session.as_str(), has_response, result);
        let result = match answered {
            InstructionAnswer::Now(result) => result,
            InstructionAnswer::Later(work) => {
                let answers = self.answers.clone();
                tokio::spawn(async move { answers.send(line(work.await)).await.ok() });
                return true;
            }
            InstructionAnswer::OfCaller(instruction) => self.execute(instruction).await,
        };
        self.answers.send(line(result)).await.is_ok()
    }

    /// Starts a run, or passes the instruction to the front end of this process.
    async fn execute(&mut self, instruction: Instruction) -> InstructionResult {
        match instruction {
            Instruction::Message(content) => self.prompt(content).await,
            Instruction::Steer(content) => self.deliver(MessageKind::Steer, content).await,
            Instruction::FollowUp(content) => self.deliver(MessageKind::FollowUp, content).await,
            Instruction::Revert(revert) => {
                let begun = self.revert(revert).await;
                begun.map(|()| json!({})).map_err(refused)
            }
            _ => Err(elsewhere("an attached client cannot do that")
                .because("it replaces the session, or needs the settings of its process")
                .fix("do it in the process that owns the session")),
        }
    }

    /// Asks the front end to return to an earlier state. Waits until that begins.
    async fn revert(&self, revert: Revert) -> Result<(), String> {
        if !self.session.is_idle().await {
            return Err("something runs: wait for its end, or stop it".to_owned());
        }
        let (request, answered) = RevertRequest::new(revert, self.name.clone());
        self.reverts.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => {
                "other requests of this kind are waiting: try again".to_owned()
            }
            TrySendError::Closed(_) => "only line mode and the terminal UI revert changes, and \
                                        neither owns this session"
                .to_owned(),
        })?;
        match timeout(self.bounds.revert_max, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the front end where the session runs refused it".to_owned()),
            Err(_) => Err("the front end where the session runs does not answer".to_owned()),
        }
    }

    async fn prompt(&self, content: Vec<ContentPart>) -> InstructionResult {
        // The outcome is part of the event stream.
        match self.session.prompt(Prompt { content }).await {
            Ok(running) => Ok(json!({"invocationId": running.invocation()})),
            Err(PromptError::Busy) => {
                Err(busy("a turn is running: send `steer` or `follow_up`, or wait for its end"))
            }
            Err(error) => Err(not_begun(&error)),
        }
    }

    /// Delivers a message to the current run. If the session is idle, the message starts a run
    /// instead.
    async fn deliver(&mut self, kind: MessageKind, content: Vec<ContentPart>) -> InstructionResult {
        match self.session.deliver(kind, content.clone()).await {
            Ok(id) => {
                self.requests.delivered(id.clone());
                Ok(json!({"messageId": id}))
            }
            Err(DeliverError::Full) => Err(refused(DeliverError::Full.to_string())),
            Err(DeliverError::Idle) => self.prompt(content).await,
        }
    }
}

/// The answer to an instruction as a line: a response if it has one, otherwise a line about the
/// connection.
fn answer_line(
    caller: Caller,
    session: &str,
    has_response: bool,
    result: InstructionResult,
) -> Vec<u8> {
    let number = caller.line;
    let result = result.map_err(|failure| failure.at(format!("line {number}")));
    if has_response {
        return Response::new(caller, session, result).to_line();
    }
    let result = result.map(drop).map_err(|failure| in_one_line(&failure));
    line(&HostReply::of(number, result))
}
