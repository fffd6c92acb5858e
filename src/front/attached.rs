//! Attach client: shows a session of another process, as JSON lines for a program or as text for a
//! user. Detaching does not affect the session.

mod attention;
mod output;
mod person;

use std::io;

use posse_actors::event::{Announcement, Event, SessionEndReason};
use posse_base::failure::{ErrorCode, Exit, Failure, lines as all_lines};
use posse_base::or_pending;
use posse_frontend::remote_session::{RemoteMessage, RemoteSession};
use posse_frontend::signals::Signals;
use tokio::sync::mpsc;

use crate::driver::{InputLine, next_line};
use crate::output::{Output, OutputTarget, when_read};

pub use person::{AttachDisplay, RewindPoints, person};

/// Capacity of the channel in which the input thread reports the number of sent lines.
const WAITING_MAX: usize = 16;

/// Reason why an attached client ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachOutcome {
    /// The session has ended.
    Ended,
    /// The owning process restarts the session with other settings and continues the same journal.
    /// The number is that of the last record received, after which a new client can attach.
    Switched(u64),
    /// The session has ended because this client asked for a return to an earlier prompt: the same
    /// process goes on with a copy of the session.
    Moved,
    /// The client has detached and ends with this exit code.
    Left(Exit),
    /// The connection ended unexpectedly, for this reason.
    Cut(String),
}

impl AttachOutcome {
    /// Returns the exit code of the client: success if the session ended or was restarted, the code
    /// of the client itself if it left. If the connection was cut, prints the error on standard
    /// error and returns `Exit::Session`.
    pub async fn finish(self) -> Exit {
        let why = match self {
            AttachOutcome::Ended | AttachOutcome::Switched(_) | AttachOutcome::Moved => {
                return Exit::Done;
            }
            AttachOutcome::Left(exit) => return exit,
            AttachOutcome::Cut(why) => why,
        };
        let failure = Failure::new(
            ErrorCode::AttachCut,
            Exit::Session,
            "the connection to the session ended",
        )
        .because(why)
        .fix("`posse sessions list` shows how the session stands; `posse attach` joins again");
        let mut stderr = Output::new(OutputTarget::Stderr);
        stderr.write(all_lines(&[failure]).into_bytes()).await;
        stderr.finish().await.ok();
        Exit::Session
    }
}

/// Reason for a cut connection if the owning process closed it without a message.
const GONE: &str = "the process that owns the session is gone";

/// Runs an attached client for a program: writes `attach.accepted` and then the received messages
/// to standard output, one JSON object per line. Ends with the session, on a signal, or if standard
/// output cannot be written. `drives`: true if standard input contains instructions; the client
/// then also ends after the last one was answered. If false, standard input is not read.
pub async fn program(remote: RemoteSession, drives: bool) -> AttachOutcome {
    let RemoteSession { accepted, messages: mut heard, commands: voice } = remote;
    let mut stdout = Output::new(OutputTarget::Stdout);
    let mut signals = Signals::listen();
    let mut input = match drives.then(|| read(voice.clone())).transpose() {
        Ok(input) => input,
        Err(error) => {
            return AttachOutcome::Cut(format!(
                "standard input cannot be read: no thread: {error}"
            ));
        }
    };
    let mut last_record = accepted.after;
    let mut first = serde_json::json!({"type": "attach.accepted", "v": 1});
    if let (Some(first), Ok(serde_json::Value::Object(more))) =
        (first.as_object_mut(), serde_json::to_value(&accepted))
    {
        first.extend(more);
    }
    stdout.write(format!("{first}\n").into_bytes()).await;
    // Number of lines sent, once known, and number of answers.
    let (mut sent, mut answered) = (None, 0);
    let mut ended = None;
    let visit = loop {
        if sent.is_some_and(|sent| answered >= sent) {
            break AttachOutcome::Left(Exit::Done);
        }
        let what = tokio::select! {
            biased;
            signal = signals.next() => break AttachOutcome::Left(signal),
            what = when_read([&stdout], heard.recv()) => what,
            count = or_pending(input.as_mut().map(mpsc::Receiver::recv)) => {
                (sent, input) = (Some(count.unwrap_or_default()), None);
                continue;
            }
        };
        let text = match what {
            None => break ended.unwrap_or_else(|| AttachOutcome::Cut(GONE.to_owned())),
            Some(RemoteMessage::Event(mut line)) => {
                if let Some(announcement) = Announcement::parse(&line) {
                    last_record = announcement.record().unwrap_or(last_record);
                    ended = end_of(announcement.event(), last_record).or(ended);
                }
                line.push(b'\n');
                line
            }
            Some(RemoteMessage::Done(line)) => {
                answered += 1;
                format!("{{\"type\":\"attach.done\",\"v\":1,\"line\":{line}}}\n").into_bytes()
            }
            Some(RemoteMessage::Failed(line, message)) => {
                answered += 1;
                let failed = serde_json::json!({"type": "attach.failed", "v": 1, "line": line, "message": message});
                format!("{failed}\n").into_bytes()
            }
            Some(RemoteMessage::Response(response)) => {
                answered += 1;
                response.to_line()
            }
            Some(RemoteMessage::Dropped(why)) => break AttachOutcome::Cut(why),
        };
        stdout.write(text).await;
        if stdout.is_broken() {
            break AttachOutcome::Left(Exit::Failed);
        }
    };
    stdout.finish().await.ok();
    visit
}

/// Outcome of the client if `event` ends the session; `None` for other events. `last_record`:
/// number of the latest record.
fn end_of(event: &Event, last_record: u64) -> Option<AttachOutcome> {
    match event {
        Event::SessionEnded { reason: SessionEndReason::Switched, .. } => {
            Some(AttachOutcome::Switched(last_record))
        }
        Event::SessionEnded { .. } => Some(AttachOutcome::Ended),
        _ => None,
    }
}

/// Starts a thread that sends standard input to the host line by line, without blank lines. A line
/// that is too long is sent as an invalid one, which the host rejects. The returned channel
/// receives the number of sent lines when the input ends or cannot be read; it closes without a
/// number if the connection has ended. Fails if the thread cannot be started.
fn read(voice: mpsc::Sender<Vec<u8>>) -> io::Result<mpsc::Receiver<u64>> {
    let (said, count) = mpsc::channel(WAITING_MAX);
    std::thread::Builder::new().name("instructions".to_owned()).spawn(move || {
        let (mut input, mut sent) = (io::stdin().lock(), 0);
        while let Ok(Some(line)) = next_line(&mut input) {
            let mut bytes = match line {
                InputLine::Whole(bytes) if bytes.trim_ascii().is_empty() => continue,
                InputLine::Whole(bytes) => bytes,
                InputLine::TooLong => b"too long".to_vec(),
            };
            if bytes.last() != Some(&b'\n') {
                bytes.push(b'\n');
            }
            if voice.blocking_send(bytes).is_err() {
                return;
            }
            sent += 1;
        }
        said.blocking_send(sent).ok();
    })?;
    Ok(count)
}
