//! Line mode: an interactive session without control of the screen.
//!
//! Answers go to standard output; questions, actions and notices go to standard error. During a
//! task, typed lines are steering messages, unless a question is open.

mod beside;
mod between;
mod commands;
mod run;
pub(super) mod terminal;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use posse_actors::compaction::bytes_of;
use posse_actors::conversation::{InvocationId, Usage};
use posse_actors::event::Subscription;
use posse_actors::root_session::{SessionEnding, SessionHandle};

use crate::failure::{Exit, Failure, lines, printable};
use crate::front::output::{Output, Target};
use crate::front::progress::Progress;
use crate::front::question::Questions;
use crate::talk::history::History;
use crate::talk::jobs::Jobs;
use crate::talk::joining::Joinable;
use crate::talk::outcome::unwritten;
use crate::talk::queue::Queue;
use crate::talk::signals::Signals;
use crate::talk::{Choice, Opened, Selected, Sessions, Sources, Task, is_default};

use terminal::{Input, Terminal};

/// Prompt of the line editor.
const PROMPT: &str = "> ";

/// Interval in which a second Ctrl+C exits.
const AGAIN: Duration = Duration::from_secs(2);

/// Time limit for the end of a session.
const PATIENT_END: Duration = Duration::from_secs(30);

/// Time limit for the end of a session after a second Ctrl+C.
const HURRIED_END: Duration = Duration::from_millis(500);

/// Options of line mode.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct Options {
    /// `true` if a user is at the terminal: lines are edited, and questions are asked.
    pub interactive: bool,
    /// `true` to use colours on standard error.
    pub color: bool,
    /// `true` if sessions are not stored.
    pub forgotten: bool,
    /// `true` if `--yes` answers permission requests.
    pub yes: bool,
    /// `true` for a dry run: tools only report what they would do.
    pub dry_run: bool,
    /// `true` if the terminal may support a clipboard.
    pub clipboard: bool,
    /// File of the input history, if any.
    pub history: Option<PathBuf>,
    /// First task, before any input.
    pub first: Option<Task>,
}

/// Runs line mode until the user exits.
pub async fn run(sessions: &mut dyn Sessions, options: Options) -> Result<Exit, Vec<Failure>> {
    let choice = Choice::default();
    let opened = sessions.open(&choice, false)?;
    let internal = |what: String| vec![Failure::new("INT003", Exit::Internal, what)];
    let history = History::open(options.history.filter(|_| options.interactive));
    let terminal = Terminal::open(options.interactive, history)
        .map_err(|error| internal(format!("cannot start the thread that reads standard input: {error}")))?;
    let current = Current::start(opened).await.map_err(internal)?;
    let stderr = Output::new(Target::Stderr);
    let live = stderr.is_terminal();
    let mut plain = Plain {
        sessions,
        choice,
        current,
        terminal,
        interactive: options.interactive,
        forgotten: options.forgotten,
        yes: options.yes,
        rule_shown: false,
        progress: Progress::new(live, options.color).of_dry_run(options.dry_run),
        questions: Questions::default(),
        at_work: BTreeSet::new(),
        signals: Signals::listen(),
        stdout: Output::new(Target::Stdout),
        stderr,
        waiting: VecDeque::new(),
        interrupted: None,
        leaving: None,
        last: Exit::Done,
        totals: Totals::default(),
        clipboard: options.clipboard,
        last_reply: String::new(),
    };
    plain.introduce(options.forgotten, options.dry_run).await;
    if let Some(task) = options.first {
        plain.work(task).await;
    }
    plain.talk().await;
    Ok(plain.leave().await)
}

#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
struct Plain<'a> {
    sessions: &'a mut dyn Sessions,
    choice: Choice,
    current: Current,
    terminal: Terminal,
    interactive: bool,
    /// Sessions are not stored.
    forgotten: bool,
    yes: bool,
    /// The rule that would have allowed a denied call was shown during this task.
    rule_shown: bool,
    progress: Progress,
    questions: Questions,
    /// Running subagents.
    at_work: BTreeSet<InvocationId>,
    signals: Signals,
    stdout: Output,
    stderr: Output,
    /// Lines that could not be handled yet.
    waiting: VecDeque<String>,
    /// Time of the last Ctrl+C.
    interrupted: Option<Instant>,
    /// Exit code, once the user exits.
    leaving: Option<Exit>,
    /// Exit code of the last task.
    last: Exit,
    totals: Totals,
    /// The terminal may support a clipboard.
    clipboard: bool,
    /// Last answer, for `/copy`.
    last_reply: String,
}

/// Current session.
struct Current {
    session: SessionHandle,
    joinable: Joinable,
    events: Subscription,
    sources: Sources,
    provider: String,
    model: String,
    agent: String,
    tier: String,
    /// Number of questions that no user could be asked.
    unanswered: u32,
    /// Number of those that `--yes` would not have answered.
    not_by_yes: u32,
    /// Background jobs.
    jobs: Jobs,
    /// Queued messages.
    queue: Queue,
}

#[derive(Debug, Default)]
struct Totals {
    prompts: u32,
    turns: u32,
    usage: Usage,
}

impl Current {
    async fn start(opened: Opened) -> Result<Current, String> {
        let Opened { ports, settings, sources, invitation } = opened;
        let info = ports.provider.info();
        let (agent, tier) = (settings.agent.clone(), settings.tier.clone());
        let session = SessionHandle::start(ports, settings).await;
        let session = session.map_err(|error| error.to_string())?;
        let joinable = invitation.open(&session);
        let events = session.subscribe();
        let (provider, model) = (info.profile, info.model);
        Ok(Current {
            session,
            joinable,
            events,
            sources,
            provider,
            model,
            agent,
            tier,
            unanswered: 0,
            not_by_yes: 0,
            jobs: Jobs::default(),
            queue: Queue::default(),
        })
    }

    async fn end(&mut self, reason: &str, exit: Exit, limit: Duration) {
        let ending = SessionEnding {
            reason: reason.to_owned(),
            exit_code: i32::from(exit as u8),
            result: None,
        };
        tokio::time::timeout(limit, self.session.end(ending)).await.ok();
        self.joinable.close().await;
    }

    fn of(&self, what: Selected) -> (&str, &str) {
        match what {
            Selected::Model => (&self.model, &self.sources.model),
            Selected::Provider => (&self.provider, &self.sources.provider),
            Selected::Agent => (&self.agent, &self.sources.agent),
        }
    }
}

impl Plain<'_> {
    async fn introduce(&mut self, forgotten: bool, dry_run: bool) {
        let kept = if forgotten { " (not stored, cannot be resumed)" } else { "" };
        let mut text = format!("session {}{kept}\n", self.current.session.id());
        text.push_str(&self.selection());
        text.push_str(match self.current.tier.as_str() {
            "full" => "sandbox   full\n",
            "reduced" => "sandbox   reduced: secret files can be read by commands\n",
            _ => "sandbox   none: commands run with your full rights\n",
        });
        if dry_run {
            text.push_str("dry run   nothing is written or run\n");
        }
        if self.interactive {
            text.push_str("Type a task, or /help.\n");
        }
        self.say(&text).await;
    }

    fn selection(&self) -> String {
        let line = |what: Selected| {
            let (name, source) = self.current.of(what);
            format!("{:<9} {} ({})\n", what.word(), printable(name), printable(source))
        };
        [Selected::Provider, Selected::Model, Selected::Agent].map(line).concat()
    }

    /// Prints text on a line of its own.
    async fn say(&mut self, text: &str) {
        let text = format!("{}{text}", self.progress.finish_line());
        self.stderr.write(text.into_bytes()).await;
    }

    async fn complain(&mut self, failures: &[Failure]) {
        self.say(&lines(failures)).await;
    }

    async fn talk(&mut self) {
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

    /// Reads the next line while no task runs.
    async fn next_line(&mut self) -> Option<String> {
        self.stdout.settle().await;
        self.stderr.settle().await;
        if self.interactive && (!self.at_work.is_empty() || self.questions.any_open()) {
            return self.line_beside().await;
        }
        self.terminal.edit(PROMPT);
        // Events from now on that are not shown with the next task.
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
                id = Plain::given_elsewhere(&mut watched), if self.interactive && !given => {
                    given = true;
                    self.at_work.insert(id);
                    self.say("\n(another front end started a task: press Enter to show it)\n").await;
                }
            }
        };
        match input {
            Input::Line(line) => {
                self.interrupted = None;
                Some(line)
            }
            Input::Interrupted => {
                self.interrupt_idle().await;
                None
            }
            Input::End => {
                self.leaving = Some(match self.interactive {
                    // The end of input may be seen before the hangup signal.
                    true if terminal::is_gone() => Exit::HangUp,
                    true => Exit::Done,
                    false => self.last,
                });
                None
            }
            Input::Quiet | Input::Stopped => None,
        }
    }

    /// Handles Ctrl+C while nothing runs.
    async fn interrupt_idle(&mut self) {
        let again = self.interrupted.is_some_and(|before| before.elapsed() < AGAIN);
        if again {
            self.leaving = Some(Exit::Interrupt);
        } else {
            self.interrupted = Some(Instant::now());
            self.say("(press Ctrl+C again, Ctrl+D or /exit to exit)\n").await;
        }
    }

    async fn status(&mut self) -> String {
        let history = self.current.session.history().await;
        let Totals { prompts, turns, usage } = &self.totals;
        let replies = if *turns == 1 { "reply" } else { "replies" };
        let tokens = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        format!(
            "session   {}\n{}prompts   {prompts}, with {turns} {replies}\n\
             tokens    {} read, {} written\nhistory   {} messages, {} bytes\n",
            self.current.session.id(),
            self.selection(),
            tokens(usage.input_tokens),
            tokens(usage.output_tokens),
            history.len(),
            bytes_of(&history),
        )
    }

    async fn show_names(&mut self, what: Selected) {
        let (name, source) = self.current.of(what);
        let mut text = format!("{} {} ({})\n", what.word(), printable(name), printable(source));
        let names = self.sessions.names(what);
        if !names.is_empty() {
            text.push_str("known: ");
            text.push_str(&printable(&names.join(", ")));
            text.push('\n');
        }
        self.say(&text).await;
    }

    async fn select(&mut self, what: Selected, name: String) {
        if name.contains(char::is_whitespace) {
            let what = format!("names cannot contain white space: \"{}\"", printable(&name));
            let failure = Failure::new("CFG003", Exit::Configuration, what);
            self.complain(&[failure]).await;
            return;
        }
        let default = is_default(&name, || self.sessions.names(what));
        if default && let Err(failure) = self.sessions.forget(what) {
            self.complain(&[failure]).await;
            return;
        }
        let choice = self.choice.with(what, (!default).then(|| name.clone()));
        if !self.reopen(choice, true).await {
            return;
        }
        let selection = self.selection();
        self.say(&selection).await;
        if !default && let Err(failure) = self.sessions.remember(what, &name) {
            self.complain(&[failure]).await;
        }
    }

    async fn clear(&mut self) {
        if self.reopen(self.choice.clone(), false).await {
            self.totals = Totals::default();
            self.last_reply.clear();
            let text = format!("session {}\n", self.current.session.id());
            self.say(&text).await;
        }
    }

    /// Switches to another session with the same or a new conversation. If it cannot be opened, the
    /// current session continues.
    async fn reopen(&mut self, choice: Choice, goes_on: bool) -> bool {
        let mut opened = match self.sessions.open(&choice, goes_on) {
            Ok(opened) => opened,
            Err(failures) => {
                self.complain(&failures).await;
                return false;
            }
        };
        if goes_on {
            opened.settings.history = self.current.session.history().await;
            // The budget covers the whole conversation.
            opened.settings.accounts = self.current.session.accounts().await.unwrap_or_default();
        }
        // The current session ends first: both may write to the same journal.
        let reason = if goes_on { "switched" } else { "completed" };
        self.current.end(reason, Exit::Done, PATIENT_END).await;
        self.enter(opened, choice).await
    }

    /// Switches to `opened`, after the previous session has ended.
    async fn enter(&mut self, opened: Opened, choice: Choice) -> bool {
        match Current::start(opened).await {
            Ok(current) => {
                self.current = current;
                self.choice = choice;
                true
            }
            Err(what) => {
                self.complain(&[Failure::new("INT003", Exit::Internal, what)]).await;
                self.leaving = Some(Exit::Internal);
                false
            }
        }
    }

    /// Last line for the user.
    fn farewell(&self) -> String {
        if self.forgotten {
            return String::new();
        }
        let id = printable(self.current.session.id().as_str());
        format!("{}\n", self.progress.dim(&format!("session {id} · posse resume {id}")))
    }

    async fn leave(mut self) -> Exit {
        self.terminal.restore();
        let exit = self.leaving.unwrap_or(Exit::Done);
        let signal = matches!(exit, Exit::Interrupt | Exit::Terminate | Exit::HangUp);
        let (reason, limit) =
            if signal { ("interrupted", HURRIED_END) } else { ("completed", PATIENT_END) };
        let line = self.progress.finish_line();
        self.stderr.write(line.into()).await;
        let farewell = self.farewell();
        self.stderr.write(farewell.into_bytes()).await;
        let Plain { mut current, mut signals, stdout, mut stderr, .. } = self;
        tokio::select! {
            () = current.end(reason, exit, limit) => (),
            _ = signals.next() => (),
        }
        let written = stdout.finish().await;
        if let Err(cause) = &written {
            stderr.write(lines(&[unwritten(cause.clone())]).into_bytes()).await;
        }
        // Errors of standard error cannot be reported.
        stderr.finish().await.ok();
        if written.is_err() && exit == Exit::Done { Exit::Failed } else { exit }
    }
}
