//! Line mode: a conversation without control of the screen.
//!
//! Answers go to standard output; permission requests, activity and notices to standard error.
//! During a run, typed lines are steering messages, unless a permission request is open.

mod attention;
mod background_events;
mod commands;
mod idle_events;
mod run;
mod selection;
pub(super) mod terminal;
mod tree;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use posse_actors::compaction::bytes_of;
use posse_actors::conversation::{InvocationId, Usage};
use posse_actors::event::{SandboxTier, SessionEndReason};
use posse_actors::root_session::{SessionEnding, SessionHandle};
use posse_actors::subscription::Subscription;
use posse_base::failure::{ErrorCode, Exit, Failure, lines, printable};
use posse_frontend::commands::permission_mode_changed;
use posse_frontend::history::History;
use posse_frontend::jobs::Jobs;
use posse_frontend::notifications::Notifications;
use posse_frontend::notifier::Notifier;
use posse_frontend::outcome::output_error;
use posse_frontend::queue::Queue;
use posse_frontend::remote_session::AttachSocket;
use posse_frontend::signals::Signals;
use posse_frontend::{
    OpenedSession, RewindConfirmation, Selectable, SelectionSources, SessionSelection, Sessions,
    Task, resume_line, thinking_name,
};

use crate::output::{Output, OutputTarget};
use crate::progress::ProgressPrinter;
use crate::question::TerminalQuestions;

use terminal::{LineTerminal, TerminalInput};

/// Text before the input of a line while no task runs.
const PROMPT: &str = "> ";

/// Time after a Ctrl+C in which a second one exits.
const AGAIN: Duration = Duration::from_secs(2);

/// Time limit for the end of a session.
const PATIENT_END: Duration = Duration::from_secs(30);

/// Time limit for the end of a session after a signal.
const HURRIED_END: Duration = Duration::from_millis(500);

/// Options of line mode.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct Options {
    /// True if a user is at the terminal: lines are edited, and permission requests are shown and
    /// answered. False if lines come from a pipe.
    pub interactive: bool,
    /// True if colours may be used on standard error.
    pub color: bool,
    /// True if sessions are not stored.
    pub forgotten: bool,
    /// Flags that resuming a session needs again.
    pub resume_flags: Vec<String>,
    /// True if `--yes` was given; used for the advice in errors.
    pub yes: bool,
    /// True if tools only describe their effects.
    pub dry_run: bool,
    /// True if the terminal may support clipboard access.
    pub clipboard: bool,
    /// File of the input history; `None`: the history ends with the process.
    pub history: Option<PathBuf>,
    /// Notifications at the terminal of standard error.
    pub notifications: Notifications,
    /// Working directory, which names a session without a title in notifications.
    pub folder: PathBuf,
    /// Task that runs before the first line is read; `None` to read a line at once.
    pub first: Option<Task>,
}

/// Runs line mode until the user exits, the input ends, a signal ends it, or standard output is
/// lost. Returns the exit code. Fails if the first session or the input thread cannot be started.
pub async fn run(sessions: &mut dyn Sessions, options: Options) -> Result<Exit, Vec<Failure>> {
    let choice = SessionSelection::default();
    let opened = sessions.open(&choice, false)?;
    let internal =
        |what: String| vec![Failure::new(ErrorCode::InternalFailure, Exit::Internal, what)];
    let history = History::open(options.history.filter(|_| options.interactive));
    let terminal = LineTerminal::open(options.interactive, history)
        .map_err(|error| internal(format!("no thread to read with: {error}")))?;
    let current = Current::start(opened).await.map_err(internal)?;
    let stderr = Output::new(OutputTarget::Stderr);
    let live = stderr.is_terminal();
    let mut plain = LineMode {
        sessions,
        choice,
        current,
        terminal,
        interactive: options.interactive,
        forgotten: options.forgotten,
        resume_flags: options.resume_flags,
        yes: options.yes,
        rule_shown: false,
        progress: ProgressPrinter::new(live, options.color).of_dry_run(options.dry_run),
        questions: TerminalQuestions::default(),
        at_work: BTreeSet::new(),
        signals: Signals::listen(),
        stdout: Output::new(OutputTarget::Stdout),
        stderr,
        waiting: VecDeque::new(),
        interrupted: None,
        leaving: None,
        last: Exit::Done,
        totals: Totals::default(),
        clipboard: options.clipboard,
        last_reply: String::new(),
        notifier: Notifier::new(options.notifications),
        unsaved: None,
        confirmation: RewindConfirmation::default(),
    };
    plain.begin_notifications(&options.folder).await;
    plain.introduce(options.forgotten, options.dry_run).await;
    if let Some(task) = options.first {
        plain.work(task).await;
    }
    plain.run_conversation().await;
    Ok(plain.exit().await)
}

#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
struct LineMode<'a> {
    sessions: &'a mut dyn Sessions,
    choice: SessionSelection,
    current: Current,
    terminal: LineTerminal,
    interactive: bool,
    /// True if sessions are not stored.
    forgotten: bool,
    /// Flags that resuming a session needs again.
    resume_flags: Vec<String>,
    yes: bool,
    /// True if a rule that would have allowed a denied call was shown during this task.
    rule_shown: bool,
    progress: ProgressPrinter,
    questions: TerminalQuestions,
    /// Running subagents, and main agents whose tasks attached front ends have given. Line mode
    /// watches them between its own tasks.
    at_work: BTreeSet<InvocationId>,
    signals: Signals,
    stdout: Output,
    stderr: Output,
    /// Typed lines that are handled after the current task.
    waiting: VecDeque<String>,
    /// Time of the last Ctrl+C while no task ran; `None` if there was none since the last typed
    /// line.
    interrupted: Option<Instant>,
    /// Exit code; `None` until line mode is to end.
    leaving: Option<Exit>,
    /// Exit code of the last task.
    last: Exit,
    totals: Totals,
    /// True if the terminal may support clipboard access.
    clipboard: bool,
    /// Last answer, for `/copy`; empty if there is none.
    last_reply: String,
    notifier: Notifier,
    /// Selected provider or model that is saved when it has answered; `None` if there is none.
    unsaved: Option<(Selectable, String)>,
    confirmation: RewindConfirmation,
}

/// The current session of line mode, and the state that ends with it.
struct Current {
    session: SessionHandle,
    attach_socket: AttachSocket,
    events: Subscription,
    sources: SelectionSources,
    provider: String,
    model: String,
    agent: String,
    /// Reasoning effort; `default` if that of the provider applies.
    thinking: String,
    tier: SandboxTier,
    /// Number of permission requests of this session so far that no person could answer.
    unanswered: u32,
    /// Number of these requests that `--yes` would not have answered.
    not_by_yes: u32,
    /// Running background jobs.
    jobs: Jobs,
    /// Queued messages.
    queue: Queue,
    /// True if files were restored since this was last reset.
    is_restored: bool,
}

#[derive(Debug, Default)]
struct Totals {
    prompts: u32,
    turns: u32,
    usage: Usage,
}

impl Current {
    async fn start(opened: OpenedSession) -> Result<Current, String> {
        let OpenedSession { ports, settings, sources, session_server, .. } = opened;
        let info = ports.provider.info();
        let (agent, tier) = (settings.agent.clone(), settings.tier.clone());
        let thinking = thinking_name(&settings).to_owned();
        let session = SessionHandle::start(ports, settings).await;
        let session = session.map_err(|error| error.to_string())?;
        let attach_socket = session_server.start_with_reverts(&session);
        let events = session.subscribe();
        let (provider, model) = (info.profile, info.model);
        Ok(Current {
            session,
            attach_socket,
            events,
            sources,
            provider,
            model,
            agent,
            thinking,
            tier,
            unanswered: 0,
            not_by_yes: 0,
            jobs: Jobs::default(),
            queue: Queue::default(),
            is_restored: false,
        })
    }

    async fn end(&mut self, reason: SessionEndReason, exit: Exit, limit: Duration) {
        let exit_code = i32::from(exit as u8);
        let ending = SessionEnding { reason, exit_code, result: None, error: None };
        tokio::time::timeout(limit, self.session.end(ending)).await.ok();
        self.attach_socket.close().await;
    }

    fn of(&self, what: Selectable) -> (&str, &str) {
        match what {
            Selectable::Model => (&self.model, &self.sources.model),
            Selectable::Provider => (&self.provider, &self.sources.provider),
            Selectable::Agent => (&self.agent, &self.sources.agent),
            Selectable::Thinking => (&self.thinking, &self.sources.thinking),
        }
    }
}

impl LineMode<'_> {
    async fn introduce(&mut self, forgotten: bool, dry_run: bool) {
        let kept = if forgotten { " (not stored, cannot be resumed)" } else { "" };
        let mut text = format!("session {}{kept}\n", self.current.session.id());
        text.push_str(&self.selection());
        text.push_str(match self.current.tier {
            SandboxTier::Full => "sandbox   full\n",
            SandboxTier::Reduced => "sandbox   reduced: secret files can be read by commands\n",
            _ => "sandbox   none: commands run with all of your rights\n",
        });
        text.push_str(&self.mode());
        if dry_run {
            text.push_str("dry run   nothing is written or run\n");
        }
        if self.interactive {
            text.push_str("Describe a task, or type /help for the commands.\n");
        }
        self.print(&text).await;
    }

    /// Line with the permission mode of the session.
    fn mode(&self) -> String {
        format!("mode      {}\n", self.current.session.permission_mode())
    }

    fn selection(&self) -> String {
        let line = |what: Selectable| {
            let (name, source) = self.current.of(what);
            format!("{:<9} {} ({})\n", what.word(), printable(name), printable(source))
        };
        [Selectable::Provider, Selectable::Model, Selectable::Agent].map(line).concat()
    }

    /// Prints text to standard error, on a line of its own.
    async fn print(&mut self, text: &str) {
        let text = format!("{}{text}", self.progress.finish_line());
        self.stderr.write(text.into_bytes()).await;
    }

    async fn failed(&mut self, failures: &[Failure]) {
        self.print(&lines(failures)).await;
    }

    async fn run_conversation(&mut self) {
        while self.leaving.is_none() {
            let line = match self.waiting.pop_front() {
                Some(line) => line,
                None => match self.next_line().await {
                    Some(line) => line,
                    None => continue,
                },
            };
            self.follow_line(&line).await;
        }
    }

    /// Reads the next line while no task runs. `None` if Ctrl+C or the end of background work comes
    /// first, or if line mode is to end.
    async fn next_line(&mut self) -> Option<String> {
        self.stdout.flushed().await;
        self.stderr.flushed().await;
        if self.interactive && (!self.at_work.is_empty() || self.questions.any_open()) {
            return self.line_beside().await;
        }
        self.terminal.edit(PROMPT);
        // Events from now on, besides those shown with the next task.
        let mut watched = self.current.session.subscribe_after(u64::MAX);
        let mut given = false;
        let input = loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    self.leaving = Some(signal);
                    return None;
                }
                input = self.terminal.next() => break input,
                request = self.current.attach_socket.next_revert() => {
                    self.revert_elsewhere(request).await;
                    if self.leaving.is_some() {
                        return None;
                    }
                    watched = self.current.session.subscribe_after(u64::MAX);
                }
                id = LineMode::task_started_elsewhere(&mut watched), if self.interactive && !given => {
                    given = true;
                    self.at_work.insert(id);
                    self.print("\n(another front end has given a task: Enter shows it)\n").await;
                }
            }
        };
        match input {
            TerminalInput::Line(line) => {
                self.interrupted = None;
                Some(line)
            }
            TerminalInput::Interrupted => {
                self.interrupt_idle().await;
                None
            }
            TerminalInput::End => {
                self.leaving = Some(match self.interactive {
                    // The end of the terminal can be noticed before its signal.
                    true if terminal::is_gone() => Exit::HangUp,
                    true => Exit::Done,
                    false => self.last,
                });
                None
            }
            TerminalInput::Quiet | TerminalInput::Stopped => None,
        }
    }

    /// Handles Ctrl+C while no task runs: the first one shows a hint, and a second one within
    /// [`AGAIN`] ends line mode.
    async fn interrupt_idle(&mut self) {
        let again = self.interrupted.is_some_and(|before| before.elapsed() < AGAIN);
        if again {
            self.leaving = Some(Exit::Interrupt);
        } else {
            self.interrupted = Some(Instant::now());
            self.print("(Ctrl+C again, Ctrl+D or /exit leaves)\n").await;
        }
    }

    async fn status(&mut self) -> String {
        let history = self.current.session.history().await;
        let Totals { prompts, turns, usage } = &self.totals;
        let replies = if *turns == 1 { "reply" } else { "replies" };
        let tokens = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        format!(
            "session   {}\n{}{}prompts   {prompts}, with {turns} {replies}\n\
             tokens    {} read, {} written\nhistory   {} messages, {} bytes\n",
            self.current.session.id(),
            self.selection(),
            self.mode(),
            tokens(usage.input_tokens),
            tokens(usage.output_tokens),
            history.len(),
            bytes_of(&history),
        )
    }

    async fn clear(&mut self) {
        if self.reopen(self.choice.clone(), false).await {
            self.totals = Totals::default();
            self.last_reply.clear();
            let text = format!("session {}\n", self.current.session.id());
            self.print(&text).await;
        }
    }

    /// Replaces the current session. `goes_on`: true to continue the same conversation, false to
    /// begin a new one. Returns false on failure: the current session continues if the new one
    /// cannot be assembled, and line mode ends if it cannot be started.
    async fn reopen(&mut self, choice: SessionSelection, goes_on: bool) -> bool {
        let mut opened = match self.sessions.open(&choice, goes_on) {
            Ok(opened) => opened,
            Err(failures) => {
                self.failed(&failures).await;
                return false;
            }
        };
        if goes_on {
            opened.continue_conversation(&self.current.session).await;
        }
        let mode = self.current.session.permission_mode();
        opened.keep_permission_mode(mode, &self.current.agent);
        // The current session ends first: both may write to the same journal.
        let reason = if goes_on { SessionEndReason::Switched } else { SessionEndReason::Completed };
        self.current.end(reason, Exit::Done, PATIENT_END).await;
        self.enter(opened, choice).await
    }

    /// Starts `opened` as the current session, after the end of the previous one. Returns false if
    /// it cannot be started; line mode then ends.
    async fn enter(&mut self, opened: OpenedSession, choice: SessionSelection) -> bool {
        match Current::start(opened).await {
            Ok(current) => {
                let before = self.current.session.permission_mode();
                self.current = current;
                self.choice = choice;
                self.enter_notifier();
                let mode = self.current.session.permission_mode();
                if mode != before {
                    self.print(&(permission_mode_changed(mode, None) + "\n")).await;
                }
                true
            }
            Err(what) => {
                self.failed(&[Failure::new(ErrorCode::InternalFailure, Exit::Internal, what)])
                    .await;
                self.leaving = Some(Exit::Internal);
                false
            }
        }
    }

    /// Last line for the user: the resume command. Empty if the session is not stored.
    fn exit_line(&self) -> String {
        if self.forgotten {
            return String::new();
        }
        let line = resume_line(self.current.session.id().as_str(), &self.resume_flags);
        format!("{}\n", self.progress.dim(&line))
    }

    async fn exit(mut self) -> Exit {
        self.terminal.restore();
        self.end_notifications().await;
        let exit = self.leaving.unwrap_or(Exit::Done);
        let signal = matches!(exit, Exit::Interrupt | Exit::Terminate | Exit::HangUp);
        let (reason, limit) = if signal {
            (SessionEndReason::Interrupted, HURRIED_END)
        } else {
            (SessionEndReason::Completed, PATIENT_END)
        };
        let line = self.progress.finish_line();
        self.stderr.write(line.into()).await;
        let farewell = self.exit_line();
        self.stderr.write(farewell.into_bytes()).await;
        let LineMode { mut current, mut signals, stdout, mut stderr, .. } = self;
        tokio::select! {
            () = current.end(reason, exit, limit) => (),
            _ = signals.next() => (),
        }
        let written = stdout.finish().await;
        if let Err(cause) = &written {
            stderr.write(lines(&[output_error(cause.clone())]).into_bytes()).await;
        }
        // Standard error is not writable, so nothing can be reported.
        stderr.finish().await.ok();
        if written.is_err() && exit == Exit::Done { Exit::Failed } else { exit }
    }
}
