//! Attached client for a person: shows events as text and sends typed lines as messages. While a
//! permission request is open, a typed line answers it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::ContentPart;
use posse_actors::event::{Announcement, Event};
use posse_actors::permission_coordinator::HumanDecision;
use posse_base::failure::{Exit, lines, printable, printable_lines};
use posse_base::or_pending;
use posse_frontend::commands::{
    Choice, Command, CommandContext, Page, ParsedLine, ReportRequest, SessionQuery, SessionSwitch,
    parse,
};
use posse_frontend::history::History;
use posse_frontend::instruction::{Instruction, SessionRequest, line_of};
use posse_frontend::jobs::Jobs;
use posse_frontend::notifier::Notifier;
use posse_frontend::remote_session::{
    AttachAccepted, AttachRole, RemoteMessage, RemoteSession, Revert,
};
use posse_frontend::response::Response;
use posse_frontend::signals::Signals;
use posse_frontend::{BackgroundJob, RewindExtent, rewind_extents_text, rewind_points_text};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::attached::attention::TaskTime;
use crate::attached::output::AttachedOutput;
use crate::attached::{AttachOutcome, GONE, end_of};
use crate::output::{Output, OutputTarget, when_read};
use crate::plain::terminal::{LineTerminal, TerminalInput};
use crate::question::{AnswerLine, TRYING, TerminalQuestions};

/// Output of `/help`.
const HELP: &str = "  /stop [all]   stop what runs there; all: agents in the background, too\n\
    \x20 /compact [WHAT]  make the history shorter; WHAT is to be kept in it\n\
    \x20 /context      what a request is made of\n\
    \x20 /permission-mode MODE  change the permission mode of the session\n\
    \x20 /undo [N]     take back the last change of files; N: restore the files of checkpoint N\n\
    \x20 /rewind [N [WHAT]]  return to the state before prompt N; without N: list the prompts\n\
    \x20 /rename TITLE  give the session a title\n\
    \x20 !COMMAND      run a command yourself, under the same rules; !!COMMAND: the model is not told\n\
    \x20 /exit         leave; the session goes on (also Ctrl+C and Ctrl+D)\n\
    \x20 Everything else is said to the model: at its next step, or as a new task if nothing runs.\n";

/// Options of an attached client for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachDisplay {
    /// True if a person is present: typed lines are read and, unless the client only observes,
    /// sent. False if input is not read.
    pub interactive: bool,
    /// True if colours may be used on standard error.
    pub color: bool,
    /// True if the client attaches again because the conversation continues in the same journal, for
    /// example with another model. The line about the session is then not printed again.
    pub again: bool,
}

/// Delay before this client shows a permission request. A request that is answered earlier, for
/// example by `--yes`, is not shown.
const ANSWERED_WITHIN: Duration = Duration::from_millis(300);

/// Effect of a typed line.
#[derive(Debug, PartialEq)]
enum TypedEffect {
    /// No effect: an attached client cannot do this, only the process that owns the session.
    Elsewhere,
    Help,
    /// List the prompts to which the session can return.
    ListPrompts,
    /// List what can return to the state before the prompt with this number.
    ListExtents(usize),
    /// Show this text.
    Tell(String),
    Send(Instruction),
    Detach,
}

/// Returns a closure that lists the prompts of the session, as [`Sessions::rewind_points`] does.
///
/// [`Sessions::rewind_points`]: posse_frontend::Sessions::rewind_points
pub type RewindPoints<'a> = &'a (dyn Fn() -> BackgroundJob<Vec<(usize, String)>> + Sync);

/// An instruction that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SentInstruction {
    Interrupt,
    /// A return to an earlier prompt, after which the conversation goes on in a copy of the session.
    ConversationRewind,
    Other,
}

impl SentInstruction {
    fn of(instruction: &Instruction) -> SentInstruction {
        match instruction {
            Instruction::Interrupt { .. } => SentInstruction::Interrupt,
            Instruction::Revert(Revert::ToPrompt(
                _,
                RewindExtent::Conversation | RewindExtent::Both,
            )) => SentInstruction::ConversationRewind,
            _ => SentInstruction::Other,
        }
    }
}

impl TypedEffect {
    fn of(command: &Command, argument: Option<&str>) -> TypedEffect {
        let mut effect = TypedEffect::Elsewhere;
        (command.run)(&mut effect, argument);
        effect
    }
}

impl CommandContext for TypedEffect {
    fn show(&mut self, page: Page) {
        if matches!(page, Page::Help | Page::Keys) {
            *self = TypedEffect::Help;
        }
    }

    fn query(&mut self, query: SessionQuery) {
        if let Some(instruction) = query.instruction {
            *self = TypedEffect::Send(instruction);
        }
    }

    fn tell(&mut self, text: String) {
        *self = TypedEffect::Tell(text);
    }

    fn stop(&mut self, all: bool) {
        *self = TypedEffect::Send(Instruction::Interrupt { all });
    }

    fn exit(&mut self) {
        *self = TypedEffect::Detach;
    }

    fn jobs(&self) -> Jobs {
        Jobs::default()
    }

    fn report(&mut self, _: ReportRequest) {}
    fn choose(&mut self, choice: Choice) {
        match choice {
            Choice::RewindPoint => *self = TypedEffect::ListPrompts,
            Choice::RewindExtent(prompt) => *self = TypedEffect::ListExtents(prompt),
            Choice::Setting(_) | Choice::StoredSession | Choice::QueuedMessage | Choice::Branch => {
            }
        }
    }

    fn rewind(&mut self, prompt: usize, extent: RewindExtent) {
        *self = TypedEffect::Send(Instruction::Revert(Revert::ToPrompt(prompt, extent)));
    }

    fn switch(&mut self, _: SessionSwitch) {}
    fn prompt(&mut self, text: String) {
        *self = TypedEffect::Send(Instruction::Steer(vec![ContentPart::text(text)]));
    }

    fn run_skill(&mut self, _: &str, _: &str) {}

    fn undo(&mut self, checkpoint: Option<u64>) {
        let revert = checkpoint.map_or(Revert::LastChange, Revert::ToCheckpoint);
        *self = TypedEffect::Send(Instruction::Revert(revert));
    }

    fn tree(&mut self, _: usize, _: Option<String>) {}
    fn withdraw(&mut self, _: &str) {}
    fn copy_answer(&mut self) {}
    fn theme(&mut self, _: Option<&str>) {}
}

/// Text of a response for a person: the error, the title that was given, or the output of a command.
/// `None` if events show the effect.
fn response_text(response: &Response) -> Option<String> {
    if let Some(error) = &response.error {
        return Some(format!("({})\n", printable(&error.what)));
    }
    let result = response.result.as_ref()?;
    if let Some(title) = result["title"].as_str() {
        return Some(format!("title: {}\n", printable(title)));
    }
    let output = result["output"].as_str()?.trim_end();
    (!output.is_empty()).then(|| printable_lines(output) + "\n")
}

/// Runs an attached client until the session ends, the person detaches, a signal arrives, an output
/// cannot be written, or the connection is cut. Ctrl+C detaches. `notifier`: sends
/// notifications to the terminal of standard error, and knows the folder of the session.
pub async fn person(
    remote: RemoteSession,
    manner: AttachDisplay,
    mut notifier: Notifier,
    rewind_points: RewindPoints<'_>,
) -> AttachOutcome {
    let controls = remote.accepted.role == AttachRole::Controller && manner.interactive;
    let Ok(mut terminal) = LineTerminal::open(manner.interactive, History::open(None)) else {
        return AttachOutcome::Cut("there is no thread to read with".to_owned());
    };
    if manner.interactive {
        terminal.watch();
    }
    let (stdout, stderr) = (Output::new(OutputTarget::Stdout), Output::new(OutputTarget::Stderr));
    let (live, one_screen) = (stderr.is_terminal(), stdout.is_terminal());
    let shown = AttachedOutput::new(&remote.accepted, live, manner.color, one_screen);
    let RemoteSession { accepted, messages: mut heard, commands: voice } = remote;
    notifier.enter(accepted.session_id.as_str(), None);
    let mut person = Person {
        notifier,
        task: TaskTime::default(),
        voice,
        shown,
        terminal,
        questions: TerminalQuestions::default(),
        stdout,
        stderr,
        controls,
        rewind_points,
        sent: Vec::new(),
        moves: false,
        held: VecDeque::new(),
        last_record: accepted.after,
        ended: None,
    };
    if !manner.again {
        person.introduce(&accepted).await;
    }
    let mut signals = Signals::listen();
    let visit = loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                // Ctrl+C is a normal way to detach.
                let exit = if signal == Exit::Interrupt { Exit::Done } else { signal };
                break AttachOutcome::Left(exit);
            }
            what = when_read([&person.stdout, &person.stderr], heard.recv()) => match what {
                Some(what) => if let Some(visit) = person.handle_message(what).await {
                    break visit;
                },
                None => break person.ended.take().unwrap_or_else(|| AttachOutcome::Cut(GONE.to_owned())),
            },
            () = or_pending(person.held.front().map(|(at, _)| sleep_until(*at))) => person.show_held().await,
            () = or_pending(person.notifier.wait().map(sleep)) => person.notify().await,
            warning = person.notifier.failed() => person.print(&format!("! {warning}\n")).await,
            input = person.terminal.next(), if manner.interactive => {
                if let Some(visit) = person.typed(input).await {
                    break visit;
                }
            }
        }
        person.question_waits();
        if person.stdout.is_broken() || person.stderr.is_broken() {
            break AttachOutcome::Left(Exit::Failed);
        }
    };
    person.finish(visit).await
}

pub(super) struct Person<'a> {
    pub(super) notifier: Notifier,
    pub(super) task: TaskTime,
    voice: mpsc::Sender<Vec<u8>>,
    shown: AttachedOutput,
    terminal: LineTerminal,
    pub(super) questions: TerminalQuestions,
    stdout: Output,
    pub(super) stderr: Output,
    controls: bool,
    rewind_points: RewindPoints<'a>,
    /// The instructions that were sent, in order.
    sent: Vec<SentInstruction>,
    /// True if the conversation goes on in a copy of the session, because this client asked for it.
    moves: bool,
    /// Permission requests that are not shown yet, each with the time at which it will be shown.
    held: VecDeque<(Instant, Arc<Announcement>)>,
    last_record: u64,
    ended: Option<AttachOutcome>,
}

impl Person<'_> {
    async fn introduce(&mut self, accepted: &AttachAccepted) {
        let (id, process) = (printable(accepted.session_id.as_str()), accepted.process);
        let role = match (accepted.role, self.controls) {
            (AttachRole::Observer, _) => "you observe",
            (AttachRole::Controller, true) => "you control it; /help, and /exit leaves",
            (AttachRole::Controller, false) => "standard input has ended",
        };
        self.print(&format!("session {id} in process {process} · {role}\n")).await;
    }

    async fn print(&mut self, text: &str) {
        let text = format!("{}{text}", self.shown.progress().finish_line());
        self.stderr.write(text.into_bytes()).await;
    }

    async fn handle_message(&mut self, what: RemoteMessage) -> Option<AttachOutcome> {
        match what {
            RemoteMessage::Event(line) => {
                if let Some(announcement) = Announcement::parse(&line) {
                    self.follow(&Arc::new(announcement)).await;
                }
            }
            RemoteMessage::Done(line) => match self.sent_on(line) {
                SentInstruction::Interrupt => self.print("(told to stop)\n").await,
                SentInstruction::ConversationRewind => self.moves = true,
                SentInstruction::Other => {}
            },
            RemoteMessage::Failed(_, message) => {
                self.print(&format!("({})\n", printable(&message))).await;
            }
            RemoteMessage::Response(response) => {
                if let Some(text) = response_text(&response) {
                    self.print(&text).await;
                }
            }
            RemoteMessage::Dropped(why) => return Some(AttachOutcome::Cut(why)),
        }
        None
    }

    /// The instruction that was sent on this line, counted from 1.
    fn sent_on(&self, line: u64) -> SentInstruction {
        let nth = usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
        nth.and_then(|nth| self.sent.get(nth)).copied().unwrap_or(SentInstruction::Other)
    }

    async fn follow(&mut self, announcement: &Arc<Announcement>) {
        self.last_record = announcement.record().unwrap_or(self.last_record);
        self.ended = end_of(announcement.event(), self.last_record).or(self.ended.take());
        let is_new = self.shown.is_new(announcement);
        self.follow_attention(announcement, is_new).await;
        let added = self.shown.follow(announcement);
        self.stderr.write(added.text.into_bytes()).await;
        if !added.answer.is_empty() {
            // A reader of both streams expects this order.
            self.stderr.flushed().await;
            self.stdout.write(added.answer.into_bytes()).await;
            self.stdout.flushed().await;
        }
        for announcement in added.questions {
            if let Event::PermissionRequested { .. } = announcement.event() {
                self.held.push_back((Instant::now() + ANSWERED_WITHIN, announcement));
                continue;
            }
            let before = self.held.len();
            let over = announcement.event().question();
            self.held.retain(|(_, held)| held.event().question() != over);
            // Otherwise the request was answered before it was shown.
            if self.controls && self.held.len() == before {
                let question = self.questions.follow_announced(&announcement);
                self.show_question(question).await;
            }
        }
    }

    /// Shows the permission requests whose delay has passed: with the possible answers if this
    /// client controls the session, otherwise only a note that they wait.
    async fn show_held(&mut self) {
        while let Some((at, _)) = self.held.front()
            && *at <= Instant::now()
            && let Some((_, announcement)) = self.held.pop_front()
        {
            if self.controls {
                let question = self.questions.follow_announced(&announcement);
                self.show_question(question).await;
            } else if let Event::PermissionRequested { summary, .. } = announcement.event() {
                let text = format!("? {}\n  waits for an answer\n", printable(summary));
                self.print(&text).await;
            }
        }
    }

    async fn show_question(&mut self, question: Option<String>) {
        if let Some(question) = question {
            self.print(&question).await;
            self.shown.progress().asked(&question);
            if self.questions.wants_silence() {
                self.terminal.discard_input();
            }
        }
    }

    async fn typed(&mut self, input: TerminalInput) -> Option<AttachOutcome> {
        self.notifier.key();
        let line = match input {
            TerminalInput::Line(line) => {
                self.shown.progress().line_ended();
                line
            }
            TerminalInput::End => return Some(AttachOutcome::Left(Exit::Done)),
            TerminalInput::Quiet => {
                let keys = self.questions.quiet();
                self.show_question(keys).await;
                return None;
            }
            TerminalInput::Interrupted | TerminalInput::Stopped => return None,
        };
        let typed = parse(&line);
        if matches!(&typed, ParsedLine::Unknown(name, _) if name == "detach") {
            return Some(AttachOutcome::Left(Exit::Done));
        }
        if self.controls
            && !typed.is_immediate()
            && let Some(answered) = self.questions.decide(&line)
        {
            self.answered(answered).await;
            return None;
        }
        let effect = match typed {
            ParsedLine::Blank => return None,
            ParsedLine::Command(command, argument) => TypedEffect::of(command, argument.as_deref()),
            ParsedLine::Text(text) => {
                let content = vec![ContentPart::text(text)];
                TypedEffect::Send(Instruction::Steer(content))
            }
            ParsedLine::Shell(command) => {
                TypedEffect::Send(Instruction::Request(SessionRequest::Bash(command)))
            }
            ParsedLine::Unknown(..) => TypedEffect::Elsewhere,
        };
        match effect {
            TypedEffect::Detach => return Some(AttachOutcome::Left(Exit::Done)),
            _ if !self.controls => self.print("(you observe: /exit leaves)\n").await,
            TypedEffect::Help => self.print(HELP).await,
            TypedEffect::Tell(text) => self.print(&text).await,
            TypedEffect::ListPrompts => self.list_prompts(None).await,
            TypedEffect::ListExtents(prompt) => self.list_prompts(Some(prompt)).await,
            TypedEffect::Send(instruction) => {
                self.shown.wants_context |= instruction == Instruction::Context;
                self.send(&instruction).await;
            }
            TypedEffect::Elsewhere => {
                self.print("(that can only be done where the session runs; /help)\n").await;
            }
        }
        None
    }

    /// Lists the prompts to which the session can return, or what can return to the state before
    /// `prompt`.
    async fn list_prompts(&mut self, prompt: Option<usize>) {
        let listed = tokio::task::spawn_blocking((self.rewind_points)()).await;
        let text = match listed {
            Ok(Ok(points)) => match prompt {
                Some(prompt) => rewind_extents_text(prompt, &points),
                None => rewind_points_text(points),
            },
            Ok(Err(failures)) => lines(&failures),
            Err(error) => format!("! it ended in the middle: {error}\n"),
        };
        self.print(&text).await;
    }

    async fn answered(&mut self, answered: AnswerLine) {
        match answered {
            AnswerLine::Unclear(text) => self.show_question(Some(text)).await,
            AnswerLine::Decided(id, decision) => {
                if decision == HumanDecision::Try {
                    self.print(TRYING).await;
                }
                self.send(&Instruction::Answer(id, decision)).await;
                let next = self.questions.next_text();
                self.show_question(next).await;
            }
        }
    }

    /// Sends an instruction. Does not wait for a blocked host: if the queue is full, drops the
    /// instruction and tells the person.
    async fn send(&mut self, instruction: &Instruction) {
        if self.voice.try_send(line_of(instruction)).is_ok() {
            self.sent.push(SentInstruction::of(instruction));
        } else {
            self.print("(the session does not listen at the moment; say it again)\n").await;
        }
    }

    /// Ends the output. Returns the outcome of the client.
    async fn finish(mut self, visit: AttachOutcome) -> AttachOutcome {
        if let Some(warning) = self.notifier.finish().await {
            self.print(&format!("! {warning}\n")).await;
        }
        if matches!(visit, AttachOutcome::Left(_)) {
            self.print("(left; the session continues)\n").await;
        }
        self.terminal.restore();
        self.stdout.finish().await.ok();
        self.stderr.finish().await.ok();
        match visit {
            AttachOutcome::Ended if self.moves => AttachOutcome::Moved,
            visit => visit,
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::event::PermissionMode;

    use super::*;

    #[test]
    fn commands_become_instructions_or_need_the_owner() {
        let table = [
            ("/help", TypedEffect::Help),
            ("/keys", TypedEffect::Help),
            ("/status", TypedEffect::Elsewhere),
            ("/stop", TypedEffect::Send(Instruction::Interrupt { all: false })),
            ("/stop all", TypedEffect::Send(Instruction::Interrupt { all: true })),
            (
                "/compact the port",
                TypedEffect::Send(Instruction::Compact(Some("the port".to_owned()))),
            ),
            ("/context", TypedEffect::Send(Instruction::Context)),
            (
                "/permission-mode plan",
                TypedEffect::Send(Instruction::PermissionMode(PermissionMode::Plan)),
            ),
            ("/context --json", TypedEffect::Send(Instruction::Context)),
            ("/rewind", TypedEffect::ListPrompts),
            ("/rewind 2", TypedEffect::ListExtents(2)),
            (
                "/rewind 2 both",
                TypedEffect::Send(Instruction::Revert(Revert::ToPrompt(2, RewindExtent::Both))),
            ),
            ("/undo", TypedEffect::Send(Instruction::Revert(Revert::LastChange))),
            ("/undo 7", TypedEffect::Send(Instruction::Revert(Revert::ToCheckpoint(7)))),
            (
                "/undo it",
                TypedEffect::Tell(
                    "write /undo, or /undo N with the number of a checkpoint; /rewind returns \
                     further\n"
                        .to_owned(),
                ),
            ),
            (
                "/rewind 2 nope",
                TypedEffect::Tell(
                    "write /rewind, /rewind N or /rewind N WHAT; WHAT is one of both, \
                     files, conversation, all\n"
                        .to_owned(),
                ),
            ),
            ("/cost", TypedEffect::Elsewhere),
            ("/jobs stop c1", TypedEffect::Elsewhere),
            ("/model x", TypedEffect::Elsewhere),
            ("/quit", TypedEffect::Detach),
        ];
        for (line, effect) in table {
            let ParsedLine::Command(command, argument) = parse(line) else { panic!("{line}") };
            assert_eq!(TypedEffect::of(command, argument.as_deref()), effect, "{line}");
        }
    }
}
