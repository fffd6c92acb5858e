//! Headless runs: one task, with `text`, `json` or `stream-json` on standard output and everything
//! else on standard error.

mod driven;
mod leaving;
mod losing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::Usage;
use posse_actors::event::{Announcement, Begun, Event, Subscription};
use posse_actors::ledger::dollars;
use posse_actors::root_session::{SessionHandle, TurnOutcome};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::front::again::Again;
use crate::front::output::{Output, Target};
use crate::front::progress::Progress;
use crate::front::question::{self, Answered, Questions};
use crate::talk::Task;
use crate::talk::outcome::{Advised, Verdict, judge};
use crate::talk::signals::Signals;

pub use driven::drive;

use losing::Told;

/// Returns `true` if a user can see and answer questions on a terminal, independent of standard
/// input.
pub fn can_ask() -> bool {
    question::can_ask()
}

/// Time limit for a run to stop after a request.
const WIND_DOWN: Duration = Duration::from_secs(2);

/// Initial deadline, effectively infinite.
const fn far_away() -> Duration {
    Duration::from_hours(365 * 24)
}

/// Deadline of a stop request that arrives now.
fn wind_down() -> tokio::time::Instant {
    tokio::time::Instant::now() + WIND_DOWN
}

/// Format of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The final answer.
    Text,
    /// One object at the end.
    Json,
    /// One event per line.
    StreamJson,
}

/// Reaction to the loss of the terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HangUp {
    /// The run ends.
    #[default]
    Ends,
    /// The run continues and appends its output to this file. `None`: output is discarded.
    GoesOn(Option<PathBuf>),
}

/// Options of a headless run.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct Manner {
    /// Format of standard output.
    pub format: Format,
    /// `true` to ask questions on the terminal.
    pub interactive: bool,
    /// `true` to use colours on standard error.
    pub color: bool,
    /// `true` to hide progress.
    pub quiet: bool,
    /// `true` if `--yes` answers permission requests.
    pub yes: bool,
    /// `true` for a dry run: tools only report what they would do.
    pub dry_run: bool,
    /// Reaction to the loss of the terminal.
    pub hang_up: HangUp,
    /// Resume hint, if the session is stored.
    pub again: Option<Again>,
    /// Worktrees of subagents from earlier runs; those that still exist are listed at the end.
    pub worktrees: Vec<String>,
}

/// Runs `task` with the options `manner`, and ends the session.
pub async fn run(session: SessionHandle, task: Task, manner: Manner) -> Exit {
    let mut front = Front::new(session, manner);
    let outcome = front.work(task).await;
    front.conclude(outcome).await
}

struct Front {
    session: SessionHandle,
    events: Subscription,
    progress: Progress,
    questions: Option<Questions>,
    signals: Signals,
    stdout: Output,
    stderr: Output,
    manner: Manner,
    /// Signal that stopped the run.
    stopped: Option<Exit>,
    /// A second stop request came, or the run did not stop in time.
    hurried: bool,
    /// The run continues without its terminal.
    detached: bool,
    denials: Vec<Denial>,
    /// Calls of an earlier run that started and whose outcome is unknown.
    unknown: Vec<UnknownEnd>,
    /// Cost of the session, once known.
    spent: Option<Spent>,
    /// Worktrees that subagents left behind.
    worktrees: Vec<String>,
}

/// Cost of a session.
struct Spent {
    usage: Usage,
    cost_usd: Option<f64>,
    nano_usd: Option<u64>,
    unpriced: u64,
}

/// Permission request that was denied because no user could be asked.
#[derive(Debug, Serialize)]
struct Denial {
    reason: String,
    /// Rule that would have allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

/// Call that started and whose outcome is unknown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UnknownEnd {
    tool: String,
    /// Description and start time, if recorded.
    #[serde(flatten)]
    begun: Option<Begun>,
}

/// Output of the `json` format.
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
    error: Option<Error<'a>>,
    /// Permission requests denied because no user could be asked.
    #[serde(skip_serializing_if = "<[Denial]>::is_empty")]
    denied: &'a [Denial],
    /// Calls with unknown outcome: they may have had their effect.
    #[serde(skip_serializing_if = "<[UnknownEnd]>::is_empty")]
    outcome_unknown: &'a [UnknownEnd],
    /// Nothing was written or run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    usage: Usage,
    cost_usd: Option<f64>,
    /// Known cost in billionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_nano_usd: Option<u64>,
    /// Number of requests without a complete price.
    #[serde(skip_serializing_if = "is_zero")]
    unpriced_requests: u64,
    turns: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize)]
struct Error<'a> {
    code: &'a str,
    what: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'a str>,
}

impl Front {
    fn new(session: SessionHandle, manner: Manner) -> Front {
        let events = session.subscribe();
        let stderr = Output::new(Target::Stderr);
        let live = manner.format == Format::Text && stderr.is_terminal();
        Front {
            session,
            events,
            progress: Progress::new(live, manner.color).of_dry_run(manner.dry_run),
            questions: manner.interactive.then(Questions::at_terminal),
            signals: Signals::listen(),
            stdout: Output::new(Target::Stdout),
            stderr,
            stopped: None,
            hurried: false,
            detached: false,
            denials: Vec::new(),
            unknown: Vec::new(),
            spent: None,
            worktrees: manner.worktrees.clone(),
            manner,
        }
    }

    async fn work(&mut self, task: Task) -> Option<TurnOutcome> {
        let running = task.begin(&self.session).await.ok()?;
        let mut outcome = std::pin::pin!(running.outcome());
        let mut deadline = std::pin::pin!(tokio::time::sleep(far_away()));
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => match self.told(signal).await {
                    Told::GoOn => (),
                    Told::Stop => deadline.as_mut().reset(wind_down()),
                    Told::Leave => return None,
                },
                () = &mut deadline, if self.stopped.is_some() => {
                    self.hurried = true;
                    return None;
                }
                announcement = next_when_read(&mut self.events, &self.stdout, &self.stderr) => {
                    self.follow(&announcement?).await;
                }
                answered = answer(&mut self.questions) => self.answered(answered).await,
                outcome = &mut outcome => return outcome,
            }
            if self.look_who_reads().await == Told::Stop {
                deadline.as_mut().reset(wind_down());
            }
        }
    }

    async fn follow(&mut self, announcement: &Arc<Announcement>) {
        let event = announcement.event();
        match event {
            Event::PermissionDenied { by, reason, rule, .. } if by == "nobody" => {
                self.denials.push(Denial { reason: reason.clone(), rule: rule.clone() });
            }
            Event::ToolOutcomeUnknown { name, begun, .. } => {
                self.unknown.push(UnknownEnd { tool: name.clone(), begun: begun.clone() });
            }
            Event::DelegationEnded { workplace: Some(remains), .. }
                if remains.kept && !self.worktrees.contains(&remains.cwd) =>
            {
                // A resumed subagent ends more than once.
                self.worktrees.push(remains.cwd.clone());
            }
            Event::SessionEnded { usage, cost_usd, cost_nano_usd, unpriced_requests, .. } => {
                self.spent = Some(Spent {
                    usage: *usage,
                    cost_usd: *cost_usd,
                    nano_usd: *cost_nano_usd,
                    unpriced: *unpriced_requests,
                });
            }
            _ => (),
        }
        if self.manner.format == Format::StreamJson {
            self.stdout.write(line_of(announcement)).await;
            if self.look_again().await {
                self.stdout.write(line_of(announcement)).await;
            }
        } else if !self.manner.quiet {
            let text = self.progress.follow(announcement);
            self.stderr.write(text.into_bytes()).await;
        }
        let question =
            self.questions.as_mut().and_then(|questions| questions.follow_announced(announcement));
        self.show_question(question).await;
    }

    async fn show_question(&mut self, question: Option<String>) {
        if let Some(question) = question {
            let text = format!("{}{question}", self.progress.finish_line());
            self.stderr.write(text.into_bytes()).await;
        }
    }

    async fn answered(&mut self, answered: Answered) {
        match answered {
            Answered::Unclear(text) => self.stderr.write(text.into_bytes()).await,
            Answered::Decided(id, decision) => {
                if let Err(error) = self.session.answer(id, decision).await {
                    self.stderr.write(format!("! {error}\n").into_bytes()).await;
                }
                let next = self.questions.as_mut().and_then(Questions::next_text);
                self.show_question(next).await;
            }
        }
    }

    async fn conclude(self, outcome: Option<TurnOutcome>) -> Exit {
        let verdict = self.verdict(outcome.as_ref());
        self.leave(verdict, outcome).await
    }

    /// Standard input contained no message.
    async fn nothing_to_do(self) -> Exit {
        let failure = Failure::new("CLI002", Exit::Usage, "standard input contains no message")
            .fix(r#"send a line like {"type":"message","content":"fix the test"}"#);
        let verdict =
            Verdict { exit: Exit::Usage, reason: "failed", result: None, failure: Some(failure) };
        self.leave(verdict, None).await
    }

    fn verdict(&self, outcome: Option<&TurnOutcome>) -> Verdict {
        match (outcome, self.stopped) {
            (None, Some(signal)) => {
                Verdict { exit: signal, reason: "interrupted", result: None, failure: None }
            }
            (outcome, signal) => judge(outcome, signal, self.advised()),
        }
    }

    fn advised(&self) -> Advised {
        let shows = !self.manner.quiet && self.manner.format != Format::StreamJson;
        let rule = shows && self.denials.iter().any(|denial| denial.rule.is_some());
        Advised { yes: self.manner.yes, rule }
    }

    async fn print(&mut self, verdict: &Verdict, outcome: Option<&TurnOutcome>) {
        match self.manner.format {
            Format::StreamJson => (),
            Format::Json => {
                let summary = self.summary(verdict, outcome);
                self.stdout.write(summary).await;
            }
            Format::Text => {
                let seen = self.progress.shown_live && self.stdout.is_terminal();
                if let Some(result) = verdict.result.as_ref().filter(|_| !seen) {
                    let mut text = result.clone();
                    if !text.ends_with('\n') {
                        text.push('\n');
                    }
                    self.stdout.write(text.into_bytes()).await;
                }
                if let Some(line) = self.cost_line().filter(|_| !self.manner.quiet) {
                    self.stderr.write(line.into_bytes()).await;
                }
            }
        }
    }

    /// Cost of the session, if known.
    fn cost_line(&self) -> Option<String> {
        let Spent { usage, nano_usd, unpriced, .. } = self.spent.as_ref()?;
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
        let error = verdict.failure.as_ref().map(|failure| Error {
            code: failure.code,
            what: &failure.what,
            why: failure.why.as_deref(),
            fix: failure.fix.as_deref(),
        });
        let spent = self.spent.as_ref();
        let summary = Summary {
            v: posse_actors::event::FORMAT_VERSION,
            r#type: "result",
            session_id: self.session.id().as_str(),
            reason: verdict.reason,
            exit_code: verdict.exit as u8,
            result: verdict.result.as_deref(),
            error,
            denied: &self.denials,
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

/// Next event, once the outputs have room for it: a reader that does not read must not delay
/// signals.
async fn next_when_read(
    events: &mut Subscription,
    stdout: &Output,
    stderr: &Output,
) -> Option<Arc<Announcement>> {
    stdout.room().await;
    stderr.room().await;
    events.next().await
}

async fn answer(questions: &mut Option<Questions>) -> Answered {
    match questions {
        Some(questions) => questions.answer().await,
        None => std::future::pending().await,
    }
}

fn line_of(announcement: &Announcement) -> Vec<u8> {
    let mut line = serde_json::to_vec(announcement).unwrap_or_default();
    line.push(b'\n');
    line
}
