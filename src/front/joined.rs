//! Attach client: shows a session of another process, as lines for a program or as text for a user.
//! Detaching does not affect the session.

mod person;
mod shown;

use std::io;

use posse_actors::event::Event;
use tokio::sync::mpsc;

use crate::failure::{Exit, Failure, lines as all_lines};
use crate::front::driver::{Line, next_line};
use crate::front::output::{Output, Target};
use crate::talk::joining::{Heard, Remote, announcement};
use crate::talk::signals::Signals;

pub use person::{Manner, person};

/// Maximum number of queued instructions.
const WAITING_MAX: usize = 16;

/// Reason for the end of an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visit {
    /// The session has ended.
    Ended,
    /// The process switched to another session, after this record.
    Switched(u64),
    /// The user detached.
    Left(Exit),
    /// The connection was lost, with the reason.
    Cut(String),
}

impl Visit {
    /// Exit code of the process. Prints further details on standard error.
    pub async fn conclude(self) -> Exit {
        let why = match self {
            Visit::Ended | Visit::Switched(_) => return Exit::Done,
            Visit::Left(exit) => return exit,
            Visit::Cut(why) => why,
        };
        let failure = Failure::new("ATT006", Exit::Session, "the connection to the session ended")
            .because(why)
            .fix("`posse sessions list` shows its state; `posse attach` connects again");
        let mut stderr = Output::new(Target::Stderr);
        stderr.write(all_lines(&[failure]).into_bytes()).await;
        stderr.finish().await.ok();
        Exit::Session
    }
}

/// Reason if the owning process closed the connection without a message.
const GONE: &str = "the process that owns the session has ended";

/// Writes received messages to standard output, one per line. With `drives`, standard input
/// contains instructions, and the client ends at its end once all were answered.
pub async fn program(remote: Remote, drives: bool) -> Visit {
    let Remote { accepted, mut heard, voice } = remote;
    let mut stdout = Output::new(Target::Stdout);
    let mut signals = Signals::listen();
    let mut input = drives.then(|| read(voice.clone()));
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
            break Visit::Left(Exit::Done);
        }
        let what = tokio::select! {
            biased;
            signal = signals.next() => break Visit::Left(signal),
            what = next_when_read(&mut heard, &stdout) => what,
            count = counted(&mut input) => {
                (sent, input) = (Some(count), None);
                continue;
            }
        };
        let text = match what {
            None => break ended.unwrap_or_else(|| Visit::Cut(GONE.to_owned())),
            Some(Heard::Event(mut line)) => {
                if let Some(announcement) = announcement(&line) {
                    last_record = announcement.record().unwrap_or(last_record);
                    ended = end_of(announcement.event(), last_record).or(ended);
                }
                line.push(b'\n');
                line
            }
            Some(Heard::Done(line)) => {
                answered += 1;
                format!("{{\"type\":\"attach.done\",\"v\":1,\"line\":{line}}}\n").into_bytes()
            }
            Some(Heard::Failed(line, message)) => {
                answered += 1;
                let failed = serde_json::json!({"type": "attach.failed", "v": 1, "line": line, "message": message});
                format!("{failed}\n").into_bytes()
            }
            Some(Heard::Dropped(why)) => break Visit::Cut(why),
        };
        stdout.write(text).await;
        if stdout.is_broken() {
            break Visit::Left(Exit::Failed);
        }
    };
    stdout.finish().await.ok();
    visit
}

/// Reason for the end, if this is the session's last event.
fn end_of(event: &Event, last_record: u64) -> Option<Visit> {
    match event {
        Event::SessionEnded { reason, .. } if reason == "switched" => {
            Some(Visit::Switched(last_record))
        }
        Event::SessionEnded { .. } => Some(Visit::Ended),
        _ => None,
    }
}

/// Next message, once the output has room for it.
async fn next_when_read(heard: &mut mpsc::Receiver<Heard>, stdout: &Output) -> Option<Heard> {
    stdout.room().await;
    heard.recv().await
}

/// Number of lines sent, once standard input has ended.
async fn counted(input: &mut Option<mpsc::Receiver<u64>>) -> u64 {
    match input {
        Some(input) => input.recv().await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// Sends standard input line by line, on a separate thread, and returns the number of lines. Blank
/// lines are skipped; a line that is too long is rejected by the session, as in driven mode.
fn read(voice: mpsc::Sender<Vec<u8>>) -> mpsc::Receiver<u64> {
    let (said, count) = mpsc::channel(WAITING_MAX);
    std::thread::spawn(move || {
        let (mut input, mut sent) = (io::stdin().lock(), 0);
        while let Ok(Some(line)) = next_line(&mut input) {
            let mut bytes = match line {
                Line::Whole(bytes) if bytes.trim_ascii().is_empty() => continue,
                Line::Whole(bytes) => bytes,
                Line::TooLong => b"too long".to_vec(),
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
    });
    count
}
