//! Line mode: a conversation that lives as long as the process, without control of the screen.
//!
//! Answers go to standard output; what is asked, done and said meanwhile goes to standard error.
//! While a run goes on, what is typed is said to the model, unless a question waits for an answer.

mod beside;
pub(super) mod commands;
mod jobs;
mod run;
pub(super) mod terminal;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use posse_actors::compaction::bytes_of;
use posse_actors::conversation::{CallId, InvocationId, Prompt, Usage};
use posse_actors::delegation::Memories;
use posse_actors::event::Subscription;
use posse_actors::root_session::{SessionEnding, SessionHandle};

use crate::failure::{Exit, Failure, lines, printable, printable_lines};
use crate::front::output::{Output, Target};
use crate::front::progress::Progress;
use crate::front::question::Questions;
use crate::talk::context;
use crate::talk::history::History;
use crate::talk::joining::Joinable;
use crate::talk::outcome::unwritten;
use crate::talk::signals::Signals;
use crate::talk::{Choice, Opened, Selected, Sessions, Sources, Task};

use commands::{Typed, help, parse};
use terminal::{Input, Terminal};

/// What stands in front of a line that is typed.
const PROMPT: &str = "> ";

/// A second Ctrl+C within this leaves.
const AGAIN: Duration = Duration::from_secs(2);

/// How long the end of a session may take.
const PATIENT_END: Duration = Duration::from_secs(30);

/// The same, for somebody who wants out.
const HURRIED_END: Duration = Duration::from_millis(500);

/// How line mode behaves.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct Options {
    /// A person is at the terminal: lines are edited, and questions are asked.
    pub interactive: bool,
    /// Whether colours may be used on standard error.
    pub color: bool,
    /// Whether sessions are not kept.
    pub forgotten: bool,
    /// Whether questions are answered with yes already.
    pub yes: bool,
    /// Whether tools only say what they would do.
    pub dry_run: bool,
    /// Where typed lines are kept, if they are.
    pub history: Option<PathBuf>,
    /// What is done before anything is typed.
    pub first: Option<Task>,
}

/// Talks until the user leaves.
pub async fn run(sessions: &mut dyn Sessions, options: Options) -> Result<Exit, Vec<Failure>> {
    let choice = Choice::default();
    let opened = sessions.open(&choice, false)?;
    let internal = |what: String| vec![Failure::new("INT003", Exit::Internal, what)];
    let history = History::open(options.history.filter(|_| options.interactive));
    let terminal = Terminal::open(options.interactive, history)
        .map_err(|error| internal(format!("no thread to read with: {error}")))?;
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
    /// Sessions are not kept.
    forgotten: bool,
    yes: bool,
    /// A rule that would have allowed what was denied was shown, in this task.
    rule_shown: bool,
    progress: Progress,
    questions: Questions,
    /// Agents that work for others, and have not ended.
    at_work: BTreeSet<InvocationId>,
    signals: Signals,
    stdout: Output,
    stderr: Output,
    /// Lines that came when they could not be followed yet.
    waiting: VecDeque<String>,
    /// When Ctrl+C was pressed last.
    interrupted: Option<Instant>,
    /// How the process ends, once that is decided.
    leaving: Option<Exit>,
    /// How the last task ended.
    last: Exit,
    totals: Totals,
}

/// The session that goes on.
struct Current {
    session: SessionHandle,
    joinable: Joinable,
    events: Subscription,
    sources: Sources,
    provider: String,
    model: String,
    agent: String,
    tier: String,
    /// Questions so far that nobody could be asked.
    unanswered: u32,
    /// Of these, what `--yes` would not have covered.
    not_by_yes: u32,
    /// Commands in the background, as far as was heard: their calls, in one line each.
    jobs: Vec<(CallId, String)>,
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
            jobs: Vec::new(),
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
        let kept = if forgotten { " (not kept, cannot be resumed)" } else { "" };
        let mut text = format!("session {}{kept}\n", self.current.session.id());
        text.push_str(&self.selection());
        text.push_str(match self.current.tier.as_str() {
            "full" => "sandbox   full\n",
            "reduced" => "sandbox   reduced: secret files can be read by commands\n",
            _ => "sandbox   none: commands run with all of your rights\n",
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

    /// Text for a person, on a line of its own.
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

    /// A line that was typed while nothing runs.
    async fn next_line(&mut self) -> Option<String> {
        self.stdout.settle().await;
        self.stderr.settle().await;
        if self.interactive && (!self.at_work.is_empty() || self.questions.any_open()) {
            return self.line_beside().await;
        }
        self.terminal.edit(PROMPT);
        // What happens from now on, besides what is shown with the next task.
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
                    self.say("\n(another front end has given a task: Enter shows it)\n").await;
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
                    // Its end is seen before the signal that tells of it, sometimes.
                    true if terminal::is_gone() => Exit::HangUp,
                    true => Exit::Done,
                    false => self.last,
                });
                None
            }
            Input::Quiet | Input::Stopped => None,
        }
    }

    /// Ctrl+C while nothing runs that it could stop.
    async fn interrupt_idle(&mut self) {
        let again = self.interrupted.is_some_and(|before| before.elapsed() < AGAIN);
        if again {
            self.leaving = Some(Exit::Interrupt);
        } else {
            self.interrupted = Some(Instant::now());
            self.say("(Ctrl+C again, Ctrl+D or /exit leaves)\n").await;
        }
    }

    async fn follow_line(&mut self, line: &str) {
        match parse(line) {
            Typed::Blank => (),
            Typed::Text(text) => self.work(Task::Prompt(Prompt::text(text))).await,
            Typed::Help => self.say(&help()).await,
            Typed::Status => self.status().await,
            Typed::Select(what, None) => self.show_names(what).await,
            Typed::Select(what, Some(name)) => self.select(what, name).await,
            Typed::Skill(name, task) => match self.sessions.skill(&name, &task) {
                Ok(prompt) => self.work(Task::Prompt(prompt)).await,
                Err(failures) => self.complain(&failures).await,
            },
            Typed::Skills => {
                let text = self.sessions.skills();
                self.say(&text).await;
            }
            Typed::Compact(keep) => self.compact(keep).await,
            Typed::Context(json) => self.context(json).await,
            Typed::Cost => self.cost().await,
            Typed::Memory => self.memory().await,
            Typed::Forget(agent) => self.forget(agent).await,
            Typed::Jobs(which) => self.jobs(which).await,
            Typed::Clear => self.clear().await,
            Typed::Stop => self.say("Nothing runs.\n").await,
            Typed::StopAll => {
                self.current.session.interrupt_all();
                self.say("(agents in the background are told to stop)\n").await;
            }
            Typed::Exit => {
                self.leaving = Some(if self.interactive { Exit::Done } else { self.last });
            }
            Typed::Unknown(name, meant) => self.unknown(&name, meant).await,
        }
    }

    async fn unknown(&mut self, name: &str, meant: Option<&str>) {
        let name = printable(name);
        let hint = match meant {
            Some(meant) => format!("There is no /{name}. Did you mean /{meant}?\n"),
            None => format!("There is no /{name}. /help lists what there is.\n"),
        };
        self.say(&hint).await;
    }

    async fn status(&mut self) {
        let history = self.current.session.history().await;
        let Totals { prompts, turns, usage } = &self.totals;
        let tokens = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        let text = format!(
            "session   {}\n{}prompts   {prompts}, with {turns} replies\n\
             tokens    {} read, {} written\nhistory   {} messages, {} bytes\n",
            self.current.session.id(),
            self.selection(),
            tokens(usage.input_tokens),
            tokens(usage.output_tokens),
            history.len(),
            bytes_of(&history),
        );
        self.say(&text).await;
    }

    pub(super) async fn cost(&mut self) {
        let text = match self.current.session.accounts().await {
            Some(accounts) if accounts.total.requests > 0 => accounts.table(printable),
            _ => "No model was asked for anything yet.\n".to_owned(),
        };
        self.say(&text).await;
    }

    /// What agents have reported.
    pub(super) async fn memory(&mut self) {
        let memories = self.current.session.memories().await;
        self.show_memories(&memories).await;
    }

    /// Forgets that, of one agent or of all.
    pub(super) async fn forget(&mut self, agent: Option<String>) {
        let left = self.current.session.forget(agent).await;
        self.show_memories(&left).await;
    }

    async fn show_memories(&mut self, memories: &Memories) {
        let mut text = String::new();
        for memory in memories.all() {
            let head = format!("{} ({})", memory.agent, memory.provider);
            text.extend([printable(&head).as_str(), "\n"]);
            for line in printable_lines(&memory.text()).lines() {
                text.extend(["  ", line, "\n"]);
            }
        }
        if text.is_empty() {
            text.push_str("No agent has reported anything.\n");
        }
        self.say(&text).await;
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
            let what = format!("a name has no white space: \"{}\"", printable(&name));
            let failure = Failure::new("CFG003", Exit::Configuration, what);
            self.complain(&[failure]).await;
            return;
        }
        let mut choice = self.choice.clone();
        let chosen = Some(name.clone());
        match what {
            Selected::Agent => choice.agent = chosen,
            Selected::Model => choice.model = chosen,
            Selected::Provider => {
                // A model belongs to its provider.
                choice.model = None;
                choice.provider = chosen;
            }
        }
        if !self.reopen(choice, true).await {
            return;
        }
        let selection = self.selection();
        self.say(&selection).await;
        if let Err(failure) = self.sessions.remember(what, &name) {
            self.complain(&[failure]).await;
        }
    }

    async fn clear(&mut self) {
        if self.reopen(self.choice.clone(), false).await {
            self.totals = Totals::default();
            let text = format!("session {}\n", self.current.session.id());
            self.say(&text).await;
        }
    }

    /// Goes on in another session: the same conversation, or a new one. If it cannot be put
    /// together, the one that is there goes on.
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
            // A budget is one for the whole conversation.
            opened.settings.accounts = self.current.session.accounts().await.unwrap_or_default();
        }
        // First the end: both may write to the same journal.
        let reason = if goes_on { "switched" } else { "completed" };
        self.current.end(reason, Exit::Done, PATIENT_END).await;
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

    async fn compact(&mut self, keep: Option<String>) {
        let text = match self.current.session.compact_keeping(keep).await {
            Ok(Some(compacted)) => context::made_shorter(&compacted),
            Ok(None) => "There is nothing to remove yet.\n".to_owned(),
            Err(error) => format!("{error}\n"),
        };
        self.say(&text).await;
    }

    pub(super) async fn context(&mut self, json: bool) {
        let text = match self.current.session.context().await {
            Some(used) if json => serde_json::to_string(&used).unwrap_or_default() + "\n",
            Some(used) => context::table(&used),
            None => "The session has ended.\n".to_owned(),
        };
        self.say(&text).await;
    }

    /// The last line that a person sees.
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
        // Where standard error cannot be written, there is nobody to tell.
        stderr.finish().await.ok();
        if written.is_err() && exit == Exit::Done { Exit::Failed } else { exit }
    }
}
