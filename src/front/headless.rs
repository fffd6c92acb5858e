//! Headless run of one task: `text`, `json` or `stream-json` on standard output, everything else on
//! standard error.

mod attention;
mod denials;
mod driven;
mod shutdown;
mod shutdown_signals;
mod start_error;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posse_actors::conversation::Usage;
use posse_actors::cost::dollars;
use posse_actors::event::{Announcement, Event, SessionEndReason, SessionError, StartedCall};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::ports::NEEDS_NETWORK;
use posse_actors::root_session::{SessionHandle, TurnOutcome};
use posse_actors::subscription::Subscription;
use posse_base::failure::{ErrorCode, Exit, Failure};
use posse_base::or_pending;
use posse_cli::OutputFormat;
use posse_frontend::Task;
use posse_frontend::notifications::Notifications;
use posse_frontend::notifier::Notifier;
use posse_frontend::outcome::{PermissionHints, Verdict, judge};
use posse_frontend::response::{Caller, InstructionResult, Response, error_of};
use posse_frontend::signals::Signals;
use serde::Serialize;

use tokio::time::sleep;

use crate::output::{Output, OutputTarget, when_read};
use crate::progress::ProgressPrinter;
use crate::question::{self, AnswerLine, TRYING, TerminalQuestions};
use crate::resume_hint::Again;

pub use driven::drive;
pub use start_error::{command_error, start_error};

use denials::{Denial, Denials};
use shutdown_signals::SignalEffect;

/// True if a person can answer permission requests: standard error is a terminal, and answers can
/// be read from standard input or, if that is not a terminal, from the controlling terminal.
pub fn can_ask() -> bool {
    question::can_ask()
}

/// Maximum time that a stopped run may take to end.
const WIND_DOWN: Duration = Duration::from_secs(2);

/// Duration until a deadline that is not set yet: effectively infinite.
const fn no_deadline() -> Duration {
    Duration::from_hours(365 * 24)
}

/// Deadline of a run that is stopped now.
fn stop_deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + WIND_DOWN
}

/// Reaction to a hangup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OnHangup {
    /// A hangup stops the run and ends its session.
    #[default]
    Ends,
    /// The run continues. Output streams that are lost or at a terminal continue in this file,
    /// which is appended to; `None` discards their output.
    GoesOn(Option<PathBuf>),
}

/// Options of a headless run.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct RunOptions {
    /// Format of standard output.
    pub format: OutputFormat,
    /// True if permission requests are shown at the terminal and answered there. If false, the run
    /// asks nothing itself.
    pub interactive: bool,
    /// True if colours may be used on standard error.
    pub color: bool,
    /// True if `--yes` was given; used for the advice in errors.
    pub yes: bool,
    /// True if tools only describe their effects.
    pub dry_run: bool,
    /// True if commands have no network; used for the advice in errors.
    pub is_offline: bool,
    /// Reaction to a hangup.
    pub hang_up: OnHangup,
    /// Session id, flags and variables for the resume hint; `None` if the session is not stored.
    pub again: Option<Again>,
    /// Working directories, in worktrees, of subagents from earlier runs of the session. Those that
    /// still exist are listed at the end.
    pub worktrees: Vec<String>,
    /// Notifications at the terminal of standard error.
    pub notifications: Notifications,
    /// Working directory, which names the session in notifications.
    pub folder: PathBuf,
}

/// Runs `task`, shows it according to `manner`, ends the session, prints the result and the resume
/// hint, and returns the exit code.
pub async fn run(session: SessionHandle, task: Task, manner: RunOptions) -> Exit {
    let mut front = Front::new(session, manner);
    let begun = Instant::now();
    let outcome = front.work(task).await;
    front.notify_end(outcome.as_ref(), begun.elapsed()).await;
    front.finish(outcome).await
}

struct Front {
    session: SessionHandle,
    events: Subscription,
    progress: ProgressPrinter,
    questions: Option<TerminalQuestions>,
    signals: Signals,
    stdout: Output,
    stderr: Output,
    manner: RunOptions,
    /// Exit code for the signal or the lost reader that stopped the run; `None` if it was not
    /// stopped.
    stopped: Option<Exit>,
    /// True if the session gets less time to end: after a second signal, after a signal while the
    /// session ends, or if a stopped run did not end in time.
    hurried: bool,
    /// True if the run continues after it has lost its terminal or a reader of its output.
    detached: bool,
    denials: Denials,
    /// Calls that had started and whose outcome is unknown.
    unknown: Vec<UnknownEnd>,
    /// Cost of the session; `None` until the session has ended.
    spent: Option<SessionCost>,
    /// Working directories, in worktrees, of subagents of this run and of earlier runs of the
    /// session.
    worktrees: Vec<String>,
    notifier: Notifier,
    /// Number of lines of `stream-json` so far.
    lines: u64,
}

/// Token usage and cost of a session.
struct SessionCost {
    usage: Usage,
    cost_usd: Option<f64>,
    nano_usd: Option<u64>,
    unpriced: u64,
}

/// Call that had started and whose outcome is unknown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UnknownEnd {
    tool: String,
    /// Description and start time of the call, if recorded.
    #[serde(flatten)]
    begun: Option<StartedCall>,
}

/// The JSON object that `--output-format json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    v: u32,
    r#type: &'a str,
    session_id: &'a str,
    reason: &'a str,
    exit_code: u8,
    result: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<SessionError>,
    /// Denials because no person could be asked.
    #[serde(skip_serializing_if = "<[Denial]>::is_empty")]
    denied: &'a [Denial],
    /// Calls with an unknown outcome: they may have had their effect.
    #[serde(skip_serializing_if = "<[UnknownEnd]>::is_empty")]
    outcome_unknown: &'a [UnknownEnd],
    /// True if tools only described their effects.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    usage: Usage,
    cost_usd: Option<f64>,
    /// Known part of the cost, in billionths of a dollar; `None` if no cost is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_nano_usd: Option<u64>,
    /// Number of attempts whose cost is unknown or only partly known.
    #[serde(skip_serializing_if = "is_zero")]
    unpriced_requests: u64,
    turns: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Front {
    fn new(session: SessionHandle, manner: RunOptions) -> Front {
        let events = session.subscribe();
        let stderr = Output::new(OutputTarget::Stderr);
        let mut notifier = Notifier::new(manner.notifications.clone());
        notifier.enter(session.id().as_str(), None);
        notifier.set_folder(&manner.folder);
        let live = manner.format == OutputFormat::Text && stderr.is_terminal();
        Front {
            session,
            events,
            progress: ProgressPrinter::new(live, manner.color).of_dry_run(manner.dry_run),
            questions: manner.interactive.then(TerminalQuestions::at_terminal),
            signals: Signals::listen(),
            stdout: Output::new(OutputTarget::Stdout),
            stderr,
            stopped: None,
            hurried: false,
            detached: false,
            denials: Denials::default(),
            unknown: Vec::new(),
            spent: None,
            worktrees: manner.worktrees.clone(),
            notifier,
            manner,
            lines: 0,
        }
    }

    /// Continues with the events of another session, after the last event of the current one.
    fn enter(&mut self, session: SessionHandle) {
        self.events = session.subscribe();
        self.notifier.enter(session.id().as_str(), None);
        if let Some(again) = &mut self.manner.again {
            again.session = session.id().to_string();
        }
        self.session = session;
    }

    async fn work(&mut self, task: Task) -> Option<TurnOutcome> {
        let running = task.begin(&self.session).await.ok()?;
        let mut outcome = std::pin::pin!(running.outcome());
        let mut deadline = std::pin::pin!(sleep(no_deadline()));
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => match self.on_signal(signal).await {
                    SignalEffect::GoOn => (),
                    SignalEffect::Stop => deadline.as_mut().reset(stop_deadline()),
                    SignalEffect::Leave => return None,
                },
                () = &mut deadline, if self.stopped.is_some() => {
                    self.hurried = true;
                    return None;
                }
                announcement = when_read([&self.stdout, &self.stderr], self.events.next()) => {
                    self.follow(&announcement?).await;
                }
                () = or_pending(self.notifier.wait().map(sleep)) => self.notify().await,
                warning = self.notifier.failed() => self.notify_failed(&warning).await,
                answered = or_pending(self.questions.as_mut().map(TerminalQuestions::answer)) => self.answered(answered).await,
                outcome = &mut outcome => return outcome,
            }
            self.follow_question();
            if self.check_readers().await == SignalEffect::Stop {
                deadline.as_mut().reset(stop_deadline());
            }
        }
    }

    async fn follow(&mut self, announcement: &Arc<Announcement>) {
        let event = announcement.event();
        self.denials.follow(event);
        match event {
            Event::ToolOutcomeUnknown { name, begun, .. } => {
                self.unknown.push(UnknownEnd { tool: name.clone(), begun: begun.clone() });
            }
            Event::DelegationEnded { workplace: Some(remains), .. }
                if remains.kept && !self.worktrees.contains(&remains.cwd) =>
            {
                // A resumed subagent has ended more than once.
                self.worktrees.push(remains.cwd.clone());
            }
            Event::SessionEnded { usage, cost_usd, cost_nano_usd, unpriced_requests, .. } => {
                self.spent = Some(SessionCost {
                    usage: *usage,
                    cost_usd: *cost_usd,
                    nano_usd: *cost_nano_usd,
                    unpriced: *unpriced_requests,
                });
            }
            _ => (),
        }
        if self.manner.format == OutputFormat::StreamJson {
            self.lines += 1;
            self.write_line(announcement.to_json_as(self.lines)).await;
        } else {
            let text = self.progress.follow(announcement);
            self.stderr.write(text.into_bytes()).await;
        }
        self.notifier.follow(event);
        let question =
            self.questions.as_mut().and_then(|questions| questions.follow_announced(announcement));
        self.show_question(question).await;
    }

    /// Writes the response to an instruction.
    async fn respond(&mut self, caller: Caller, result: InstructionResult) {
        self.lines += 1;
        let mut response = Response::new(caller, self.session.id().as_str(), result);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        response.ts = u64::try_from(now.as_millis()).ok();
        response.seq = Some(self.lines);
        self.write_line(response.to_json()).await;
    }

    /// Writes a line of `stream-json`, which has no newline yet.
    async fn write_line(&mut self, mut line: Vec<u8>) {
        line.push(b'\n');
        self.stdout.write(line.clone()).await;
        if self.is_output_replaced().await {
            self.stdout.write(line).await;
        }
    }

    async fn show_question(&mut self, question: Option<String>) {
        if let Some(question) = question {
            let text = format!("{}{question}", self.progress.finish_line());
            self.stderr.write(text.into_bytes()).await;
        }
    }

    async fn answered(&mut self, answered: AnswerLine) {
        match answered {
            AnswerLine::Unclear(text) => self.stderr.write(text.into_bytes()).await,
            AnswerLine::Decided(id, decision) => {
                if decision == HumanDecision::Try {
                    self.stderr.write(TRYING.as_bytes().to_vec()).await;
                }
                if let Err(error) = self.session.answer(id, decision).await {
                    self.stderr.write(format!("! {error}\n").into_bytes()).await;
                }
                let next = self.questions.as_mut().and_then(TerminalQuestions::next_text);
                self.show_question(next).await;
            }
        }
    }

    async fn finish(self, outcome: Option<TurnOutcome>) -> Exit {
        let verdict = self.verdict(outcome.as_ref());
        self.close(verdict, outcome).await
    }

    /// Ends the session with the error that no prompt was given.
    async fn finish_without_prompt(self) -> Exit {
        let failure = Failure::new(ErrorCode::PromptMissing, Exit::Usage, "there was no message")
            .fix(r#"write a line like {"type":"message","content":"fix the test"}"#);
        let verdict = Verdict {
            exit: Exit::Usage,
            reason: SessionEndReason::Failed,
            result: None,
            failure: Some(failure),
        };
        self.close(verdict, None).await
    }

    /// Ends the session without an error: there were requests, and no task.
    async fn finish_without_task(self) -> Exit {
        let verdict = Verdict {
            exit: Exit::Done,
            reason: SessionEndReason::Completed,
            result: None,
            failure: None,
        };
        self.close(verdict, None).await
    }

    fn verdict(&self, outcome: Option<&TurnOutcome>) -> Verdict {
        match (outcome, self.stopped) {
            (None, Some(signal)) => Verdict {
                exit: signal,
                reason: SessionEndReason::Interrupted,
                result: None,
                failure: None,
            },
            (outcome, signal) => judge(outcome, signal, self.permission_hints()),
        }
    }

    fn permission_hints(&self) -> PermissionHints {
        let shows = self.manner.format != OutputFormat::StreamJson;
        let rule = shows && self.denials.list.iter().any(|denial| denial.rule.is_some());
        let needs = |denial: &Denial| denial.reason.contains(NEEDS_NETWORK);
        let network = self.manner.is_offline && self.denials.list.iter().any(needs);
        let mode = Some(self.session.permission_mode());
        PermissionHints { yes: self.manner.yes, rule, network, mode }
    }

    async fn print(&mut self, verdict: &Verdict, outcome: Option<&TurnOutcome>) {
        match self.manner.format {
            OutputFormat::StreamJson => (),
            OutputFormat::Json => {
                let summary = self.summary(verdict, outcome);
                self.stdout.write(summary).await;
            }
            OutputFormat::Text => {
                let seen = self.progress.shown_live && self.stdout.is_terminal();
                if let Some(result) = verdict.result.as_ref().filter(|_| !seen) {
                    let end = if result.ends_with('\n') { "" } else { "\n" };
                    self.stdout.write(format!("{result}{end}").into_bytes()).await;
                }
                if let Some(line) = self.cost_line() {
                    self.stderr.write(line.into_bytes()).await;
                }
            }
        }
    }

    /// Line with the cost and the tokens of the session. `None` if the known cost is zero or
    /// missing, or if the session has not ended.
    fn cost_line(&self) -> Option<String> {
        let SessionCost { usage, nano_usd, unpriced, .. } = self.spent.as_ref()?;
        let nano = nano_usd.filter(|nano| *nano > 0)?;
        let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        let least = if *unpriced > 0 { "at least " } else { "" };
        Some(format!(
            "cost {least}{} ({} tokens read, {} written)\n",
            dollars(nano),
            count(usage.input_tokens),
            count(usage.output_tokens)
        ))
    }

    fn summary(&self, verdict: &Verdict, outcome: Option<&TurnOutcome>) -> Vec<u8> {
        let error = verdict.failure.as_ref().map(error_of);
        let spent = self.spent.as_ref();
        let summary = Summary {
            v: posse_actors::event::FORMAT_VERSION,
            r#type: "result",
            session_id: self.session.id().as_str(),
            reason: verdict.reason.as_str(),
            exit_code: verdict.exit as u8,
            result: verdict.result.as_deref(),
            error,
            denied: &self.denials.list,
            outcome_unknown: &self.unknown,
            dry_run: self.manner.dry_run,
            usage: match (spent, outcome) {
                (Some(spent), _) => spent.usage,
                (None, outcome) => outcome.map(|outcome| outcome.usage).unwrap_or_default(),
            },
            cost_usd: spent.and_then(|spent| spent.cost_usd),
            cost_nano_usd: spent.and_then(|spent| spent.nano_usd),
            unpriced_requests: spent.map_or(0, |spent| spent.unpriced),
            turns: outcome.map_or(0, |outcome| outcome.turns),
        };
        let mut line = serde_json::to_vec(&summary).unwrap_or_default();
        line.push(b'\n');
        line
    }
}
