//! The session that goes on, and the task that is worked on. Requests are made beside: whoever
//! draws does not wait for an answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::context::ContextUse;
use posse_actors::conversation::{ContentPart, InvocationId, MessageId, QuestionId, SessionId};
use posse_actors::event::{Announcement, Event, MessageKind, Subscription};
use posse_actors::ledger::{Accounts, usd};
use posse_actors::permission_coordinator::HumanDecision;
use posse_actors::root_session::{
    DeliverError, PromptError, RunningPrompt, SessionEnding, SessionHandle, TurnOutcome, UserCall,
};
use tokio::sync::mpsc;

use crate::failure::{Exit, Failure};
use crate::talk::asked::Changes;
use crate::talk::joining::Joinable;
use crate::talk::{self, Opened, Ready, Sources};
use crate::tui::Found;
use crate::tui::app::App;

type Outcome = Pin<Box<dyn Future<Output = Option<TurnOutcome>> + Send>>;

/// What a request came to.
#[derive(Debug)]
pub(super) enum Told {
    /// The task runs.
    Runs(RunningPrompt),
    /// It does not.
    Refused(String),
    /// Something to know.
    Note(String),
    /// A message found nobody: nothing ran any more.
    Unsaid(Vec<ContentPart>),
    /// A message that waited is the user's again, to go on with.
    Back(Vec<ContentPart>),
    /// An image that was named so.
    Attached(String, Result<(ContentPart, String), Failure>),
    /// Files that were looked for.
    Found(String, Vec<String>),
    /// How full the context of that session is.
    Measured(SessionId, ContextUse),
    /// What somebody asked the session for, in words.
    Answer(String),
    /// What was looked up, and the number of that.
    Looked(u64, Looked),
}

/// What was looked up on another thread.
pub(super) enum Looked {
    /// A text with that title.
    Text(&'static str, Result<String, Vec<Failure>>),
    /// What is on this machine.
    Around(Result<Found, Vec<Failure>>),
    /// Changes of files.
    Changes(Changes),
    /// Stored sessions.
    Stored(Result<Vec<(String, String)>, Vec<Failure>>),
    /// One of them, that can be taken up; with `true` as a branch of it.
    Ready(Result<Ready, Vec<Failure>>, bool),
    /// The call that takes a change back.
    Undo(Result<UserCall, Vec<Failure>>),
}

impl std::fmt::Debug for Looked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Looked::Text(title, _) => title,
            Looked::Around(_) => "around",
            Looked::Changes(_) => "changes",
            Looked::Stored(_) => "stored",
            Looked::Ready(..) => "ready",
            Looked::Undo(_) => "undo",
        })
    }
}

/// A task that is worked on.
struct Task {
    invocation: InvocationId,
    since: Duration,
    outcome: Option<Outcome>,
    /// How it ended, and when that was known.
    ended: Option<(Option<TurnOutcome>, Duration)>,
    /// Its last event was followed.
    over: bool,
    rule_shown: bool,
}

/// How a task ended.
#[derive(Debug)]
pub(super) struct Concluded {
    pub(super) outcome: Option<TurnOutcome>,
    pub(super) took: Duration,
    pub(super) rule_shown: bool,
}

/// The session that goes on.
pub(super) struct Current {
    pub(super) session: SessionHandle,
    joinable: Joinable,
    pub(super) events: Subscription,
    pub(super) provider: String,
    pub(super) model: String,
    sources: Sources,
    agent: String,
    tier: String,
    accounts: Accounts,
    /// Tokens that a request may have.
    context_max: u64,
    /// Something was said already.
    goes_on: bool,
    task: Option<Task>,
    /// Questions so far that nobody could be asked.
    unanswered: u32,
    /// Of these, what `--yes` would not have covered.
    not_by_yes: u32,
}

impl Current {
    pub(super) async fn start(opened: Opened) -> Result<Current, String> {
        let Opened { ports, settings, sources, invitation } = opened;
        let info = ports.provider.info();
        let (agent, tier) = (settings.agent.clone(), settings.tier.clone());
        let resumed = settings.resumption.as_ref().filter(|resumed| resumed.branch.is_none());
        let accounts = match resumed {
            Some(resumed) => resumed.replayed.accounts.clone(),
            None => settings.accounts.clone(),
        };
        let window = settings.context.windows.as_ref().and_then(|windows| windows(&info));
        let context_max = settings.limits.context_main.tokens_max(window);
        let goes_on = settings.resumption.is_some() || !settings.history.is_empty();
        let session = SessionHandle::start(ports, settings).await;
        let session = session.map_err(|error| error.to_string())?;
        let joinable = invitation.open(&session);
        let events = session.subscribe();
        let (provider, model) = (info.profile, info.model);
        Ok(Current {
            session,
            joinable,
            events,
            provider,
            model,
            sources,
            agent,
            tier,
            accounts,
            context_max,
            goes_on,
            task: None,
            unanswered: 0,
            not_by_yes: 0,
        })
    }

    /// Tells what is shown all the time.
    pub(super) fn describe(&self, app: &mut App) {
        app.session = self.session.id().to_string();
        app.sources = self.sources.clone();
        app.status.provider.clone_from(&self.provider);
        app.status.model.clone_from(&self.model);
        app.status.agent.clone_from(&self.agent);
        app.status.tier.clone_from(&self.tier);
        app.status.limit = Some(self.context_max);
        app.view.provider.clone_from(&self.provider);
        app.view.model.clone_from(&self.model);
    }

    /// Asks how full the context is, where something was said before anybody looked.
    pub(super) fn measure(&self, tells: &mpsc::Sender<Told>) {
        if self.goes_on {
            let (session, tells) = (self.session.clone(), tells.clone());
            tokio::spawn(async move {
                let Some(used) = session.context().await else { return };
                tells.send(Told::Measured(session.id().clone(), used)).await.ok();
            });
        }
    }

    /// What is known of the cost so far, in dollars.
    pub(super) fn cost(&self) -> Option<f64> {
        self.accounts.total.known().map(usd)
    }

    pub(super) fn work(&self, task: talk::Task, tells: &mpsc::Sender<Told>) {
        let (session, tells) = (self.session.clone(), tells.clone());
        tokio::spawn(async move {
            let content = match &task {
                talk::Task::Prompt(prompt) => Some(prompt.content.clone()),
                talk::Task::GoOn => None,
            };
            let told = match task.begin(&session).await {
                Ok(running) => Told::Runs(running),
                Err(PromptError::Busy) => Told::Refused(steered(&session, content).await),
                Err(error) => Told::Refused(format!("{error}; /new begins anew")),
            };
            tells.send(told).await.ok();
        });
    }

    pub(super) fn runs(&mut self, running: RunningPrompt, now: Duration) {
        self.task = Some(Task {
            invocation: running.invocation().clone(),
            since: now,
            outcome: Some(Box::pin(running.outcome())),
            ended: None,
            over: false,
            rule_shown: false,
        });
    }

    pub(super) fn deliver(
        &self,
        kind: MessageKind,
        content: Vec<ContentPart>,
        tells: &mpsc::Sender<Told>,
    ) {
        let (session, tells) = (self.session.clone(), tells.clone());
        tokio::spawn(async move {
            let told = match session.deliver(kind, content.clone()).await {
                Ok(_) => return,
                Err(DeliverError::Idle) => Told::Unsaid(content),
                Err(error @ DeliverError::Full) => Told::Note(format!("({error})")),
            };
            tells.send(told).await.ok();
        });
    }

    pub(super) fn withdraw(&self, id: MessageId, back: bool, tells: &mpsc::Sender<Told>) {
        let (session, tells) = (self.session.clone(), tells.clone());
        tokio::spawn(async move {
            let told = match session.withdraw(id).await {
                None => Told::Note("(too late: it was said already)".to_owned()),
                Some(content) if back => Told::Back(content),
                Some(_) => return,
            };
            tells.send(told).await.ok();
        });
    }

    /// Runs a tool for the user.
    pub(super) fn call(&self, wanted: UserCall, tells: &mpsc::Sender<Told>) {
        let (session, tells) = (self.session.clone(), tells.clone());
        tokio::spawn(async move {
            let told = match session.call(wanted).await {
                Ok(running) => Told::Runs(running),
                Err(error) => Told::Refused(error.to_string()),
            };
            tells.send(told).await.ok();
        });
    }

    pub(super) fn answer(
        &self,
        id: QuestionId,
        decision: HumanDecision,
        tells: &mpsc::Sender<Told>,
    ) {
        let (session, tells) = (self.session.clone(), tells.clone());
        tokio::spawn(async move {
            if let Err(error) = session.answer(id, decision).await {
                tells.send(Told::Note(format!("({error})"))).await.ok();
            }
        });
    }

    /// Looks whether an event is the last one of the task.
    pub(super) fn notice(&mut self, announcement: &Announcement) {
        self.accounts.follow(announcement.origin(), announcement.event());
        let Some(task) = &mut self.task else { return };
        match announcement.event() {
            Event::PermissionDenied { by, rule: Some(_), .. } => task.rule_shown |= by == "nobody",
            // What is queued last tells the model what the user ran.
            Event::MessageQueued { kind: MessageKind::Aside, .. } => task.over = true,
            Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. } => {
                let origin = announcement.origin();
                task.over |= origin.is_some_and(|origin| origin.invocation_id == task.invocation);
            }
            _ => (),
        }
    }

    pub(super) fn ended(&mut self, outcome: Option<TurnOutcome>, now: Duration) {
        if let Some(task) = &mut self.task {
            task.outcome = None;
            task.ended = Some((outcome, now));
        }
    }

    /// How long the last events are still awaited.
    pub(super) fn waits_until(&self, limit: Duration, now: Duration) -> Option<Duration> {
        let task = self.task.as_ref()?;
        let (_, at) = task.ended.as_ref()?;
        Some((*at + limit).saturating_sub(now))
    }

    /// How the task ended, once, when everything it said was heard.
    pub(super) fn concluded(&mut self, limit: Duration, now: Duration) -> Option<Concluded> {
        let task = self.task.as_ref()?;
        let (_, at) = task.ended.as_ref()?;
        if !task.over && now.saturating_sub(*at) < limit {
            return None;
        }
        let task = self.task.take()?;
        let (outcome, at) = task.ended?;
        let outcome = outcome.map(|mut outcome| {
            // The session counts over all of its tasks.
            let before = std::mem::replace(&mut self.unanswered, outcome.unanswered);
            outcome.unanswered = outcome.unanswered.saturating_sub(before);
            let before = std::mem::replace(&mut self.not_by_yes, outcome.not_by_yes);
            outcome.not_by_yes = outcome.not_by_yes.saturating_sub(before);
            outcome
        });
        let took = at.saturating_sub(task.since);
        Some(Concluded { outcome, took, rule_shown: task.rule_shown })
    }

    pub(super) async fn end(&mut self, reason: &str, exit: Exit, limit: Duration) {
        let ending = SessionEnding {
            reason: reason.to_owned(),
            exit_code: i32::from(exit as u8),
            result: None,
        };
        tokio::time::timeout(limit, self.session.end(ending)).await.ok();
        self.joinable.close().await;
    }
}

/// Another front end has given a task: what was meant as one is said to the model all the same.
async fn steered(session: &SessionHandle, content: Option<Vec<ContentPart>>) -> String {
    let Some(content) = content else { return PromptError::Busy.to_string() };
    match session.deliver(MessageKind::Steer, content).await {
        Ok(_) => "(another front end has given a task: said at its next step)".to_owned(),
        Err(error) => format!("({error}; say it again)"),
    }
}

/// What the session says next.
pub(super) enum Happened {
    /// An event.
    Event(Arc<Announcement>),
    /// How the task ended; `None`: the session died.
    Outcome(Option<TurnOutcome>),
    /// There will be no more.
    Closed,
}

/// What happens next; pending while there is no session. Dropping the future loses nothing.
pub(super) async fn next(current: &mut Option<Current>) -> Happened {
    let Some(Current { events, task, .. }) = current else { return std::future::pending().await };
    let outcome = task.as_mut().and_then(|task| task.outcome.as_mut());
    let outcome = async {
        match outcome {
            Some(outcome) => outcome.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        event = events.next() => event.map_or(Happened::Closed, Happened::Event),
        outcome = outcome => Happened::Outcome(outcome),
    }
}
