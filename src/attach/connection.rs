//! One connection, seen from the process that owns the session: the first line, then events out and
//! instructions in, side by side.

use std::sync::Arc;

use posse_actors::conversation::{ContentPart, Prompt};
use posse_actors::event::{Announcement, Event, MessageKind, Subscription};
use posse_actors::root_session::{DeliverError, PromptError, SessionHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::attach::SocketAddress;
use crate::attach::address::same;
use crate::attach::handshake::{AttachRefusal, HELLO_BYTES_MAX, Hello, HostReply, line};
use crate::attach::host::{AttachBounds, refuse};
use crate::attach::lines::{BoundedLine, LineBuffer};
use crate::frontend::instruction::{Instruction, LINE_BYTES_MAX, parse};
use crate::frontend::remote_session::{AttachAccepted, AttachRole};

/// Answers to instructions that wait to be read; then no instruction is read.
const ANSWERS_WAITING: usize = 16;

/// Lines that are written before others have their turn.
const LINES_AT_ONCE: u32 = 16;

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;

/// Why a connection is over.
#[derive(Debug, PartialEq, Eq)]
enum Over {
    /// Whoever joined has gone.
    Left,
    /// The session has ended, and they have heard it.
    Heard,
    /// They are let go of.
    Dropped(String),
}

/// Serves one connection to its end.
pub(super) async fn serve(
    stream: UnixStream,
    session: SessionHandle,
    place: &SocketAddress,
    bounds: AttachBounds,
) {
    let process = match peer(&stream) {
        Ok(process) => process,
        Err(refused) => return refuse(stream, refused, bounds.refusal_max).await,
    };
    let mut reader =
        InstructionReader { lines: LineBuffer::new(HELLO_BYTES_MAX), chunk: Vec::new(), read: 0 };
    let mut stream = stream;
    let first = match timeout(bounds.hello_max, reader.next(&mut stream)).await {
        Ok(Some(BoundedLine::Whole(first))) => Hello::read(&first),
        Ok(Some(BoundedLine::TooLong)) => {
            Err(AttachRefusal::new("ATT004", "the first line is too long"))
        }
        Ok(None) => return,
        Err(_) => Err(AttachRefusal::new("ATT004", "no first line came")),
    };
    let hello = first.and_then(|hello| admit(hello, place));
    let hello = match hello {
        Ok(hello) => hello,
        Err(refused) => return refuse(stream, refused, bounds.refusal_max).await,
    };
    reader.lines.allow(LINE_BYTES_MAX);
    let name = process.map_or("another process".to_owned(), |process| format!("process {process}"));
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
        session.warn(format!("{name} joined this session and may control it"));
    }
    let whole_after = hello.last.map_or(0, |last| records.saturating_sub(last));
    let (read, write) = stream.into_split();
    let (answers, waiting) = mpsc::channel(ANSWERS_WAITING);
    answers.try_send(HostReply::accepted(accepted)).ok();
    let mut out = Out { write, bounds, seq: 0 };
    let heard = Following { events: session.subscribe_after(hello.after), whole_after };
    let role = hello.role;
    let obeying = Obeying { session: session.clone(), answers, role, name: name.clone(), bounds };
    let over = tokio::select! {
        over = out.follow(heard, waiting) => over,
        over = obeying.follow(reader, read) => over,
    };
    if let Over::Dropped(why) = &over {
        tracing::info!(name, why, "a front end is let go of");
        let last = line(&HostReply::dropped(why.clone()));
        timeout(bounds.refusal_max, out.write.write_all(&last)).await.ok();
    }
    if controls && over != Over::Heard {
        let why = match over {
            Over::Dropped(why) => format!(" ({why})"),
            Over::Left | Over::Heard => String::new(),
        };
        session.warn(format!("{name} left this session{why}"));
    }
}

/// The process at the other end, if it is one of this user.
fn peer(stream: &UnixStream) -> Result<Option<i32>, AttachRefusal> {
    let peer =
        stream.peer_cred().map_err(|error| AttachRefusal::new("ATT003", error.to_string()))?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Err(AttachRefusal::new("ATT003", "the session belongs to another user"));
    }
    Ok(peer.pid().filter(|pid| *pid > 0))
}

fn admit(hello: Hello, place: &SocketAddress) -> Result<Hello, AttachRefusal> {
    let ours = place.token();
    let ours =
        ours.map_err(|error| AttachRefusal::new("ATT003", format!("there is no token: {error}")))?;
    if same(&ours, &hello.token) {
        Ok(hello)
    } else {
        Err(AttachRefusal::new("ATT003", "that is not the token of this state directory"))
    }
}

/// Lines that come in.
struct InstructionReader {
    lines: LineBuffer,
    chunk: Vec<u8>,
    /// Bytes of the chunk that were understood.
    read: usize,
}

impl InstructionReader {
    /// The next line. `None` at the end. Dropping the future loses nothing.
    async fn next(&mut self, from: &mut (impl AsyncReadExt + Unpin)) -> Option<BoundedLine> {
        loop {
            let rest = &self.chunk[self.read..];
            if let Some((found, left)) = self.lines.next(rest) {
                self.read = self.chunk.len() - left.len();
                return Some(found);
            }
            self.chunk.clear();
            self.read = 0;
            self.chunk.reserve(READ_BYTES);
            if from.read_buf(&mut self.chunk).await.ok()? == 0 {
                return None;
            }
        }
    }
}

/// Events that go out.
struct Following {
    events: Subscription,
    /// Of the records up to this one, only those about questions are wanted.
    whole_after: u64,
}

impl Following {
    async fn next(&mut self) -> Option<Arc<Announcement>> {
        loop {
            let announcement = self.events.next().await?;
            if announcement.record().is_none_or(|record| record > self.whole_after)
                || is_about_questions(announcement.event())
            {
                return Some(announcement);
            }
        }
    }
}

fn is_about_questions(event: &Event) -> bool {
    matches!(
        event,
        Event::PermissionRequested { .. }
            | Event::PermissionGranted { .. }
            | Event::PermissionDenied { .. }
            | Event::PermissionWithdrawn { .. }
            | Event::SessionResumed { .. }
    )
}

struct Out {
    write: OwnedWriteHalf,
    bounds: AttachBounds,
    /// Events that were written.
    seq: u64,
}

impl Out {
    /// Writes events and answers until the session has ended. Nothing waits here but the next line:
    /// whoever reads slowly lags behind, and gets what is durable from the journal.
    async fn follow(
        &mut self,
        mut heard: Following,
        mut answers: mpsc::Receiver<HostReply>,
    ) -> Over {
        let mut at_once = 0;
        loop {
            let text = tokio::select! {
                biased;
                Some(answer) = answers.recv() => line(&answer),
                announcement = heard.next() => {
                    let Some(announcement) = announcement else {
                        return self.finish(&mut answers).await;
                    };
                    self.seq += 1;
                    // Each connection counts its own lines.
                    let fact = announcement.fact.clone();
                    line(&Announcement { seq: self.seq, fact })
                }
            };
            match timeout(self.bounds.standstill_max, self.write.write_all(&text)).await {
                Ok(Ok(())) => (),
                Ok(Err(_)) => return Over::Left,
                Err(_) => {
                    let seconds = self.bounds.standstill_max.as_secs_f32();
                    return Over::Dropped(format!("it read nothing for {seconds} s"));
                }
            }
            at_once += 1;
            if at_once >= LINES_AT_ONCE {
                at_once = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// What was done about the last instructions is still worth a line.
    async fn finish(&mut self, answers: &mut mpsc::Receiver<HostReply>) -> Over {
        while let Ok(answer) = answers.try_recv() {
            self.write.write_all(&line(&answer)).await.ok();
        }
        Over::Heard
    }
}

/// Instructions that come in.
struct Obeying {
    session: SessionHandle,
    answers: mpsc::Sender<HostReply>,
    role: AttachRole,
    name: String,
    bounds: AttachBounds,
}

impl Obeying {
    /// Follows instructions until whoever gives them is gone, or makes no sense.
    async fn follow(self, mut reader: InstructionReader, mut read: OwnedReadHalf) -> Over {
        let mut complaints = 0;
        let mut nth = 0;
        loop {
            let Some(found) = reader.next(&mut read).await else { return Over::Left };
            nth += 1;
            let what = match found {
                BoundedLine::Whole(bytes) if bytes.trim_ascii().is_empty() => continue,
                BoundedLine::Whole(_) if self.role == AttachRole::Observer => {
                    Err("an observer gives no instructions".to_owned())
                }
                BoundedLine::Whole(bytes) => parse(&bytes),
                BoundedLine::TooLong => Err(format!("is longer than {LINE_BYTES_MAX} bytes")),
            };
            let result = match what {
                Ok(instruction) => self.obey(instruction).await,
                Err(wrong) => {
                    complaints += 1;
                    Err(wrong)
                }
            };
            if self.answers.send(HostReply::of(nth, result)).await.is_err() {
                return Over::Left;
            }
            if complaints >= self.bounds.complaints_max {
                return Over::Dropped(format!("{complaints} lines made no sense"));
            }
        }
    }

    async fn obey(&self, instruction: Instruction) -> Result<(), String> {
        match instruction {
            Instruction::Message(content) => self.prompt(content).await,
            Instruction::Steer(content) => self.deliver(MessageKind::Steer, content).await,
            Instruction::FollowUp(content) => self.deliver(MessageKind::FollowUp, content).await,
            Instruction::Interrupt { all: true } => {
                self.session.interrupt_all();
                Ok(())
            }
            Instruction::Interrupt { all: false } => {
                self.session.interrupt();
                Ok(())
            }
            Instruction::Compact(keep) => match self.session.compact_keeping(keep).await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err("there is nothing to remove yet".to_owned()),
                Err(error) => Err(error.to_string()),
            },
            Instruction::Context => {
                self.session.announce_context();
                Ok(())
            }
            Instruction::Answer(id, decision) => {
                let answered = self.session.answer_by(id, decision, Some(self.name.clone())).await;
                answered.map_err(|error| error.to_string())
            }
        }
    }

    async fn prompt(&self, content: Vec<ContentPart>) -> Result<(), String> {
        // What comes of it is among the events.
        match self.session.prompt(Prompt { content }).await {
            Ok(_) => Ok(()),
            Err(PromptError::Busy) => Err("a prompt is being worked on: send `steer` or \
                 `follow_up`, or wait for its end"
                .to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Queues a message; where nothing runs that could take it, it starts work.
    async fn deliver(&self, kind: MessageKind, content: Vec<ContentPart>) -> Result<(), String> {
        match self.session.deliver(kind, content.clone()).await {
            Ok(_) => Ok(()),
            Err(DeliverError::Full) => Err(DeliverError::Full.to_string()),
            Err(DeliverError::Idle) => self.prompt(content).await,
        }
    }
}
