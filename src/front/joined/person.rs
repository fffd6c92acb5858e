//! Attach client for a user at a terminal: shows events as text, sends input to the model, and
//! handles questions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::{ContentPart, QuestionId};
use posse_actors::event::{Announcement, Event};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::failure::{Exit, printable};
use crate::front::joined::shown::Shown;
use crate::front::joined::{GONE, Visit, end_of};
use crate::front::output::{Output, Target};
use crate::front::plain::terminal::{Input, Terminal};
use crate::front::question::{Answered, Questions};
use crate::talk::commands::{Command, Typed, parse};
use crate::talk::history::History;
use crate::talk::instruction::{Instruction, line_of};
use crate::talk::joining::{Heard, Remote, Role, announcement};
use crate::talk::signals::Signals;

/// Help text.
const HELP: &str = "  /stop [all]   stop what runs there; all: agents in the background, too\n\
    \x20 /compact [WHAT]  make the history shorter; WHAT is to be kept in it\n\
    \x20 /context      what a request is made of\n\
    \x20 /exit         leave; the session goes on (also Ctrl+C and Ctrl+D)\n\
    \x20 Everything else is said to the model: at its next step, or as a new task if nothing runs.\n";

/// Options of the terminal client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// `true` if a user is at the terminal and input counts.
    pub interactive: bool,
    /// `true` to use colours on standard error.
    pub color: bool,
    /// `true` after a reconnect of the same client.
    pub again: bool,
}

/// Delay before a question is shown: with `--yes` the answer arrives at once, and the question need
/// not be shown.
const ANSWERED_WITHIN: Duration = Duration::from_millis(300);

/// Kind of a request, which determines the message shown after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Say,
    Stop,
    Answer,
}

/// Shows the session and sends the user's input, until one of both ends.
pub async fn person(remote: Remote, manner: Manner) -> Visit {
    let controls = remote.accepted.role == Role::Controller && manner.interactive;
    let Ok(mut terminal) = Terminal::open(manner.interactive, History::open(None)) else {
        return Visit::Cut("cannot start the thread that reads standard input".to_owned());
    };
    if manner.interactive {
        terminal.watch();
    }
    let (stdout, stderr) = (Output::new(Target::Stdout), Output::new(Target::Stderr));
    let (live, one_screen) = (stderr.is_terminal(), stdout.is_terminal());
    let shown = Shown::new(&remote.accepted, live, manner.color, one_screen);
    let Remote { accepted, mut heard, voice } = remote;
    let mut person = Person {
        voice,
        shown,
        terminal,
        questions: Questions::default(),
        stdout,
        stderr,
        controls,
        asked: Vec::new(),
        held: VecDeque::new(),
        last_record: accepted.after,
        ended: None,
    };
    if !manner.again {
        let (id, process) = (printable(accepted.session_id.as_str()), accepted.process);
        let role = match (accepted.role, controls) {
            (Role::Observer, _) => "observing only",
            (Role::Controller, true) => "you control it; /help lists commands, /exit detaches",
            (Role::Controller, false) => "input is disabled",
        };
        person.say(&format!("session {id} in process {process} · {role}\n")).await;
    }
    let mut signals = Signals::listen();
    let visit = loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                // Ctrl+C detaches, which is no error.
                let exit = if signal == Exit::Interrupt { Exit::Done } else { signal };
                break Visit::Left(exit);
            }
            what = next_when_read(&mut heard, &person.stdout, &person.stderr) => match what {
                Some(what) => if let Some(visit) = person.hear(what).await {
                    break visit;
                },
                None => break person.ended.take().unwrap_or_else(|| Visit::Cut(GONE.to_owned())),
            },
            () = shown_at(person.held.front().map(|(at, _)| *at)) => person.show_held().await,
            input = person.terminal.next(), if manner.interactive => {
                if let Some(visit) = person.typed(input).await {
                    break visit;
                }
            }
        }
        if person.stdout.is_broken() || person.stderr.is_broken() {
            break Visit::Left(Exit::Failed);
        }
    };
    person.leave(&visit).await;
    visit
}

async fn next_when_read(
    heard: &mut mpsc::Receiver<Heard>,
    stdout: &Output,
    stderr: &Output,
) -> Option<Heard> {
    stdout.room().await;
    stderr.room().await;
    heard.recv().await
}

/// Sleeps until that time, or forever.
async fn shown_at(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Question of an event.
fn question_of(event: &Event) -> Option<&QuestionId> {
    match event {
        Event::PermissionRequested { request_id, .. }
        | Event::PermissionGranted { request_id, .. }
        | Event::PermissionDenied { request_id, .. }
        | Event::PermissionWithdrawn { request_id, .. } => Some(request_id),
        _ => None,
    }
}

struct Person {
    voice: mpsc::Sender<Vec<u8>>,
    shown: Shown,
    terminal: Terminal,
    questions: Questions,
    stdout: Output,
    stderr: Output,
    controls: bool,
    /// Requests without an answer, one per line sent.
    asked: Vec<Asked>,
    /// Questions that are not shown yet, with their time.
    held: VecDeque<(Instant, Arc<Announcement>)>,
    last_record: u64,
    ended: Option<Visit>,
}

impl Person {
    async fn say(&mut self, text: &str) {
        let text = format!("{}{text}", self.shown.progress().finish_line());
        self.stderr.write(text.into_bytes()).await;
    }

    async fn hear(&mut self, what: Heard) -> Option<Visit> {
        match what {
            Heard::Event(line) => {
                if let Some(announcement) = announcement(&line) {
                    self.follow(&Arc::new(announcement)).await;
                }
            }
            Heard::Done(line) => {
                if self.asked_as(line) == Some(Asked::Stop) {
                    self.say("(stop requested)\n").await;
                }
            }
            Heard::Failed(_, message) => self.say(&format!("({})\n", printable(&message))).await,
            Heard::Dropped(why) => return Some(Visit::Cut(why)),
        }
        None
    }

    fn asked_as(&self, line: u64) -> Option<Asked> {
        let nth = usize::try_from(line).ok()?.checked_sub(1)?;
        self.asked.get(nth).copied()
    }

    async fn follow(&mut self, announcement: &Arc<Announcement>) {
        self.last_record = announcement.record().unwrap_or(self.last_record);
        self.ended = end_of(announcement.event(), self.last_record).or(self.ended.take());
        let added = self.shown.follow(announcement);
        self.stderr.write(added.text.into_bytes()).await;
        if !added.answer.is_empty() {
            // Keeps the order of both streams for a reader of both.
            self.stderr.settle().await;
            self.stdout.write(added.answer.into_bytes()).await;
            self.stdout.settle().await;
        }
        for announcement in added.questions {
            if let Event::PermissionRequested { .. } = announcement.event() {
                self.held.push_back((Instant::now() + ANSWERED_WITHIN, announcement));
                continue;
            }
            let before = self.held.len();
            let over = question_of(announcement.event());
            self.held.retain(|(_, held)| question_of(held.event()) != over);
            // A question answered so soon was never shown.
            if self.controls && self.held.len() == before {
                let question = self.questions.follow_announced(&announcement);
                self.show_question(question).await;
            }
        }
    }

    /// Shows the questions whose delay has passed.
    async fn show_held(&mut self) {
        while let Some((at, _)) = self.held.front()
            && *at <= Instant::now()
            && let Some((_, announcement)) = self.held.pop_front()
        {
            if self.controls {
                let question = self.questions.follow_announced(&announcement);
                self.show_question(question).await;
            } else if let Event::PermissionRequested { summary, .. } = announcement.event() {
                let text = format!("? {}\n  waiting for an answer\n", printable(summary));
                self.say(&text).await;
            }
        }
    }

    async fn show_question(&mut self, question: Option<String>) {
        if let Some(question) = question {
            self.say(&question).await;
            self.shown.progress().asked(&question);
            if self.questions.wants_silence() {
                self.terminal.hush();
            }
        }
    }

    async fn typed(&mut self, input: Input) -> Option<Visit> {
        let line = match input {
            Input::Line(line) => {
                self.shown.progress().line_ended();
                line
            }
            Input::End => return Some(Visit::Left(Exit::Done)),
            Input::Quiet => {
                let keys = self.questions.quiet();
                self.show_question(keys).await;
                return None;
            }
            Input::Interrupted | Input::Stopped => return None,
        };
        let typed = parse(&line);
        if matches!(&typed, Typed::Command(Command::Exit, _))
            || matches!(&typed, Typed::Unknown(name, _) if name == "detach")
        {
            return Some(Visit::Left(Exit::Done));
        }
        if !self.controls {
            if typed != Typed::Blank {
                self.say("(observing only: /exit detaches)\n").await;
            }
            return None;
        }
        match &typed {
            Typed::Command(Command::Stop, _) => {
                self.send(&Instruction::Interrupt { all: false }, Asked::Stop).await;
            }
            Typed::Command(Command::StopAll, _) => {
                self.send(&Instruction::Interrupt { all: true }, Asked::Stop).await;
            }
            _ => match self.questions.decide(&line) {
                Some(answered) => self.answered(answered).await,
                None => self.command(typed).await,
            },
        }
        None
    }

    async fn command(&mut self, typed: Typed) {
        match typed {
            Typed::Text(text) => {
                self.send(&Instruction::Steer(vec![ContentPart::text(text)]), Asked::Say).await;
            }
            Typed::Command(Command::Help | Command::Keys, _) => self.say(HELP).await,
            Typed::Command(Command::Compact(keep), _) => {
                self.send(&Instruction::Compact(keep), Asked::Say).await;
            }
            Typed::Command(Command::Context(_), _) => {
                self.shown.wants_context = true;
                self.send(&Instruction::Context, Asked::Say).await;
            }
            Typed::Blank => (),
            Typed::Shell(_) | Typed::Command(..) | Typed::Unknown(..) => {
                self.say("(this command is available in the session's own process only; see /help)\n").await;
            }
        }
    }

    async fn answered(&mut self, answered: Answered) {
        match answered {
            Answered::Unclear(text) => self.show_question(Some(text)).await,
            Answered::Decided(id, decision) => {
                self.send(&Instruction::Answer(id, decision), Asked::Answer).await;
                let next = self.questions.next_text();
                self.show_question(next).await;
            }
        }
    }

    /// Does not wait for a session that does not read: a message that does not fit is dropped with
    /// a notice.
    async fn send(&mut self, instruction: &Instruction, asked: Asked) {
        if self.voice.try_send(line_of(instruction)).is_ok() {
            self.asked.push(asked);
        } else {
            self.say("(the session is busy and did not receive this; send it again)\n").await;
        }
    }

    async fn leave(mut self, visit: &Visit) {
        if matches!(visit, Visit::Left(_)) {
            self.say("(detached; the session continues)\n").await;
        }
        self.terminal.restore();
        self.stdout.finish().await.ok();
        self.stderr.finish().await.ok();
    }
}
