//! One task without a screen: `text`, `json` or `stream-json` on standard output, everything else
//! on standard error.

mod driven;

use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::{Prompt, Usage};
use posse_actors::event::{Announcement, Event, Subscription};
use posse_actors::root_session::{SessionEnding, SessionHandle, TurnOutcome};
use serde::Serialize;

use crate::failure::{Exit, Failure, lines};
use crate::front::outcome::{Advised, Verdict, judge, unwritten};
use crate::front::output::{Output, Target};
use crate::front::progress::Progress;
use crate::front::question::{self, Answered, Questions};
use crate::front::signals::Signals;

pub use driven::drive;

/// Whether a person sees questions and can answer them, wherever standard input comes from.
pub fn can_ask() -> bool {
    question::can_ask()
}

/// How long a run that was told to stop may take to do so.
const WIND_DOWN: Duration = Duration::from_secs(2);

/// A deadline before there is one.
const fn far_away() -> Duration {
    Duration::from_hours(365 * 24)
}

/// How long the end of a session may take.
const PATIENT_END: Duration = Duration::from_secs(30);

/// The same, for somebody who wants out.
const HURRIED_END: Duration = Duration::from_millis(500);

/// What standard output gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The final answer.
    Text,
    /// One object at the end.
    Json,
    /// One event a line.
    StreamJson,
}

/// How a run is shown, and whether a person can be asked.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct Manner {
    /// What standard output gets.
    pub format: Format,
    /// Whether questions go to the terminal.
    pub interactive: bool,
    /// Whether colours may be used on standard error.
    pub color: bool,
    /// Whether progress is shown at all.
    pub quiet: bool,
    /// Whether questions are answered with yes already.
    pub yes: bool,
    /// Whether tools only say what they would do.
    pub dry_run: bool,
}

/// Works on `prompt`, shows it as `manner` says, and ends the session.
pub async fn run(session: SessionHandle, prompt: Prompt, manner: Manner) -> Exit {
    let mut front = Front::new(session, manner);
    let outcome = front.work(prompt).await;
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
    /// The signal that stopped the run.
    stopped: Option<Exit>,
    /// It was told twice, or did not stop in time.
    hurried: bool,
    denials: Vec<Denial>,
    /// What it cost, once that is known.
    cost_usd: Option<f64>,
}

/// What nobody could be asked about.
#[derive(Debug, Serialize)]
struct Denial {
    reason: String,
    /// Would have allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

/// What `json` prints.
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
    /// What was denied because nobody could be asked.
    #[serde(skip_serializing_if = "<[Denial]>::is_empty")]
    denied: &'a [Denial],
    /// Nothing was written or run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    usage: Usage,
    cost_usd: Option<f64>,
    turns: u32,
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
            manner,
            stopped: None,
            hurried: false,
            denials: Vec::new(),
            cost_usd: None,
        }
    }

    async fn work(&mut self, prompt: Prompt) -> Option<TurnOutcome> {
        let running = self.session.prompt(prompt).await.ok()?;
        let mut outcome = std::pin::pin!(running.outcome());
        let mut deadline = std::pin::pin!(tokio::time::sleep(far_away()));
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    if self.stopped.replace(signal).is_some() {
                        self.hurried = true;
                        return None;
                    }
                    self.interrupt().await;
                    deadline.as_mut().reset(tokio::time::Instant::now() + WIND_DOWN);
                }
                () = &mut deadline, if self.stopped.is_some() => {
                    self.hurried = true;
                    return None;
                }
                announcement = self.events.next() => self.follow(&announcement?).await,
                answered = answer(&mut self.questions) => self.answered(answered).await,
                outcome = &mut outcome => return outcome,
            }
            if self.stdout.is_broken() && self.stopped.is_none() {
                // Nobody reads the answer any more.
                self.stopped = Some(Exit::Failed);
                self.session.interrupt();
            }
        }
    }

    /// Winds the run down, because somebody said so.
    async fn interrupt(&mut self) {
        self.session.interrupt();
        // What stands there, a question or the `^C` of the terminal, is no whole line.
        let mid_line = !self.progress.finish_line().is_empty();
        let start = if mid_line || self.stderr.is_terminal() { "\n" } else { "" };
        self.stderr.write(format!("{start}! interrupted\n").into_bytes()).await;
    }

    async fn follow(&mut self, announcement: &Arc<Announcement>) {
        let event = announcement.event();
        match event {
            Event::PermissionDenied { by, reason, rule, .. } if by == "nobody" => {
                self.denials.push(Denial { reason: reason.clone(), rule: rule.clone() });
            }
            Event::SessionEnded { cost_usd, .. } => self.cost_usd = *cost_usd,
            _ => (),
        }
        if self.manner.format == Format::StreamJson {
            self.stdout.write(line_of(announcement)).await;
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

    /// Nobody said what to do.
    async fn nothing_to_do(self) -> Exit {
        let failure = Failure::new("CLI002", Exit::Usage, "there was no message")
            .fix(r#"write a line like {"type":"message","content":"fix the test"}"#);
        let verdict =
            Verdict { exit: Exit::Usage, reason: "failed", result: None, failure: Some(failure) };
        self.leave(verdict, None).await
    }

    async fn leave(mut self, mut verdict: Verdict, outcome: Option<TurnOutcome>) -> Exit {
        let ending = SessionEnding {
            reason: verdict.reason.to_owned(),
            exit_code: i32::from(verdict.exit as u8),
            result: verdict.result.clone(),
        };
        // A second signal, or a disk that hangs, must not keep anybody here.
        let limit = if self.hurried { HURRIED_END } else { PATIENT_END };
        let ended = tokio::select! {
            ended = tokio::time::timeout(limit, self.session.end(ending)) => ended.is_ok(),
            _ = self.signals.next() => false,
        };
        while let Some(announcement) =
            if ended { self.events.next().await } else { self.events.try_next() }
        {
            self.follow(&announcement).await;
        }
        if outcome.is_some() {
            // Advice depends on what was shown, of which the last came just now.
            verdict = self.verdict(outcome.as_ref());
        }
        self.print(&verdict, outcome.as_ref()).await;
        let Front { stdout, mut stderr, .. } = self;
        let written = stdout.finish().await;
        if let Err(cause) = &written {
            stderr.write(lines(&[unwritten(cause.clone())]).into_bytes()).await;
        }
        // Where standard error cannot be written, there is nobody to tell.
        stderr.finish().await.ok();
        if written.is_err() && verdict.exit == Exit::Done { Exit::Failed } else { verdict.exit }
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
        let failures: Vec<_> = verdict.failure.iter().collect();
        let shown = format!("{}{}", self.progress.finish_line(), lines(&failures));
        self.stderr.write(shown.into_bytes()).await;
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
            }
        }
    }

    fn summary(&self, verdict: &Verdict, outcome: Option<&TurnOutcome>) -> Vec<u8> {
        let error = verdict.failure.as_ref().map(|failure| Error {
            code: failure.code,
            what: &failure.what,
            why: failure.why.as_deref(),
            fix: failure.fix.as_deref(),
        });
        let summary = Summary {
            v: posse_actors::event::FORMAT_VERSION,
            r#type: "result",
            session_id: self.session.id().as_str(),
            reason: verdict.reason,
            exit_code: verdict.exit as u8,
            result: verdict.result.as_deref(),
            error,
            denied: &self.denials,
            dry_run: self.manner.dry_run,
            usage: outcome.map(|outcome| outcome.usage).unwrap_or_default(),
            cost_usd: self.cost_usd,
            turns: outcome.map_or(0, |outcome| outcome.turns),
        };
        let mut line = serde_json::to_vec(&summary).unwrap_or_default();
        line.push(b'\n');
        line
    }
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
