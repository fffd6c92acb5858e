//! The current session and its task. Requests run in asynchronous tasks; the UI does not wait for
//! the results.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::context::assumed_window;
use posse_actors::conversation::{ContentPart, InvocationId, SessionId};
use posse_actors::event::{
    Announcement, ContextUse, DecisionSource, Event, MessageKind, SessionEndReason,
};
use posse_actors::ledger::Accounts;
use posse_actors::ports::Thinking;
use posse_actors::root_session::{
    PromptError, RunningPrompt, SessionEnding, SessionHandle, TurnOutcome, UserCall,
};
use posse_actors::subscription::Subscription;
use posse_base::failure::{Exit, Failure};
use posse_base::or_pending;
use posse_frontend::past_conversation::PastConversation;
use posse_frontend::remote_session::{AttachSocket, RevertRequest};
use posse_frontend::session_records::Changes;
use posse_frontend::session_tree::TreeRow;
use posse_frontend::{ListedValue, LoadedSession, OpenedSession, Rewind, RewindExtent};

use crate::SetupFacts;
use crate::app::App;

type Outcome = Pin<Box<dyn Future<Output = Option<TurnOutcome>> + Send>>;

/// Result of work that runs beside the event loop: a request to the session, a lookup, a file
/// query, or reading an image.
pub(super) enum RequestResult {
    /// The task has started.
    Runs(RunningPrompt),
    /// The task was refused, with the reason.
    Refused(String),
    /// A note for the user.
    Note(String),
    /// A message that could not be delivered because no task ran any more.
    Undelivered(Vec<ContentPart>),
    /// A withdrawn message, which returns to the prompt.
    Withdrawn(Vec<ContentPart>),
    /// The name of an image file, and the image with its description, or the error.
    Attached(String, Result<(ContentPart, String), Failure>),
    /// The image in the clipboard with its description, or why there is none.
    ClipboardImage(Result<(ContentPart, String), Vec<Failure>>),
    /// A file query and the names that match it.
    Found(String, Vec<String>),
    /// A provider, and the models that it lists or why it does not.
    LiveModels(String, Result<Vec<ListedValue>, String>),
    /// Id of a stored session, and its last messages.
    Preview(String, Vec<String>),
    /// Id of a resumed session, and the end of its conversation or why it cannot be read.
    Past(SessionId, Result<PastConversation, Vec<Failure>>),
    /// Id of a background job, and its output if it could be read.
    JobOutput(String, Option<String>),
    /// Git branch of the folder.
    Branch(Option<String>),
    /// Output of the status line command, or why it failed.
    StatusLine(Result<String, String>),
    /// Context usage of the session with this id.
    Measured(SessionId, ContextUse),
    /// Answer of the session to the query of a slash command.
    Answer(String),
    /// Number and result of a lookup.
    LookupResult(u64, Result<LookupResult, Vec<Failure>>),
}

/// Result of a lookup.
pub(super) enum LookupResult {
    /// A report: heading, `true` if users search in it, and text.
    Report(&'static str, bool, String),
    /// Id and output of a background job.
    Job(String, String),
    /// Facts that help to set up a model.
    Setup(SetupFacts),
    /// File changes of the current session.
    Changes(Changes),
    /// Stored sessions, as pairs of id and description.
    Stored(Vec<(String, String)>),
    /// A loaded session, and a flag: true if it is a fork of a stored session, false if it is the
    /// stored session.
    LoadedSession(LoadedSession, bool),
    /// The call that reverts the last file change.
    Undo(UserCall),
    /// Prompts to which the user can return, as pairs of number and description.
    RewindPoints(Vec<(usize, String)>),
    /// Rows of the tree of branches.
    Tree(Vec<TreeRow>),
    /// Rows of the tree, the number of one of them, and the label for its prompt; without a label,
    /// the place of the row is where to go.
    TreeRow(Vec<TreeRow>, usize, Option<String>),
    /// Number of the prompt before which to return, and the prompts as in `RewindPoints`.
    RewindExtents(usize, Vec<(usize, String)>),
    /// Number of the prompt before which to return, the part that returns, and the prepared return.
    Rewind(usize, RewindExtent, Rewind),
    /// A return that an attached client asked for: prepared, or the reasons why it is not possible.
    RevertElsewhere(RevertRequest, Result<Rewind, Vec<Failure>>),
}

/// The task that runs, or that has ended and was not summarised yet.
struct ActiveTask {
    invocation: InvocationId,
    since: Duration,
    outcome: Option<Outcome>,
    /// Outcome, and the time at which it was known; `None` while the task runs. The outcome is
    /// `None` if the session ended unexpectedly.
    ended: Option<(Option<TurnOutcome>, Duration)>,
    /// True if the last event of the task was handled.
    over: bool,
    rule_shown: bool,
}

/// Outcome and duration of a finished task, and a flag: true if an allow rule for a denied call was
/// shown.
#[derive(Debug)]
pub(super) struct TaskSummary {
    pub(super) outcome: Option<TurnOutcome>,
    pub(super) took: Duration,
    pub(super) rule_shown: bool,
}

/// The session that the UI shows, with its events, accounts and task.
pub(super) struct CurrentSession {
    pub(super) session: SessionHandle,
    attach_socket: AttachSocket,
    pub(super) events: Subscription,
    accounts: Accounts,
    task: Option<ActiveTask>,
    /// Number of permission requests up to the end of the last task that were denied because no
    /// user could be asked.
    unanswered: u32,
    /// Number of these requests that `--yes` would not have covered.
    not_by_yes: u32,
    /// True while the end of the resumed conversation is read. Events wait for it.
    pub(super) reads_past: bool,
    /// True if files were restored since this was last reset.
    pub(super) is_restored: bool,
}

impl CurrentSession {
    /// Starts a session, opens its attach socket, subscribes to its events, and shows its id,
    /// provider, model, agent and sandbox in `app`. The error is the reason why the session did not
    /// start.
    pub(super) async fn start(opened: OpenedSession, app: &mut App) -> Result<Self, String> {
        let OpenedSession { ports, settings, sources, network, session_server, .. } = opened;
        let info = ports.provider.info();
        let (agent, tier) = (settings.agent.clone(), settings.tier.clone());
        let calls = settings.delegation.as_ref().map(|delegation| delegation.main_calls.clone());
        app.agents = calls.unwrap_or_default();
        let effort = settings.options.thinking.map(Thinking::name);
        let resumed = settings.resumption.as_ref().filter(|resumed| resumed.branch.is_none());
        let accounts = match resumed {
            Some(resumed) => resumed.replayed.accounts.clone(),
            None => settings.accounts.clone(),
        };
        let window = settings.context.windows.as_ref().and_then(|windows| windows(&info));
        let context_max = settings.limits.context_main.tokens_max(window, assumed_window(&info));
        let session = SessionHandle::start(ports, settings).await;
        let session = session.map_err(|error| error.to_string())?;
        let attach_socket = session_server.start_with_reverts(&session);
        let events = session.subscribe();
        app.session = session.id().to_string();
        app.sources = sources;
        (app.view.status.agent, app.view.status.tier) = (agent, tier);
        app.view.status.permission_mode = Some(session.permission_mode());
        (app.view.status.effort, app.view.status.network) = (effort, Some(network));
        app.view.status.limit = Some(context_max);
        (app.view.status.provider, app.view.status.model) = (info.profile, info.model);
        Ok(CurrentSession {
            session,
            attach_socket,
            events,
            accounts,
            task: None,
            unanswered: 0,
            not_by_yes: 0,
            reads_past: false,
            is_restored: false,
        })
    }

    /// Known cost so far in nano-USD; `None` if no cost is known.
    pub(super) fn cost(&self) -> Option<u64> {
        self.accounts.total.known_cost()
    }

    pub(super) fn runs(&mut self, running: RunningPrompt, now: Duration) {
        self.task = Some(ActiveTask {
            invocation: running.invocation().clone(),
            since: now,
            outcome: Some(Box::pin(running.outcome())),
            ended: None,
            over: false,
            rule_shown: false,
        });
    }

    /// Updates the accounts and detects the last event of the task.
    pub(super) fn notice(&mut self, announcement: &Announcement) {
        self.accounts.follow(announcement.origin(), announcement.event());
        self.is_restored |= matches!(announcement.event(), Event::CheckpointRestored { .. });
        let Some(task) = &mut self.task else { return };
        match announcement.event() {
            Event::PermissionDenied { by, rule: Some(_), .. } => {
                task.rule_shown |= *by == DecisionSource::Nobody;
            }
            // The last message of a user's own call tells the model about it.
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

    /// Remaining wait for the last events of a task whose outcome is known, at most `limit` after
    /// the outcome; `None` if there is no such task.
    pub(super) fn waits_until(&self, limit: Duration, now: Duration) -> Option<Duration> {
        let task = self.task.as_ref()?;
        let (_, at) = task.ended.as_ref()?;
        Some((*at + limit).saturating_sub(now))
    }

    /// Returns the summary of a finished task, once: when its last event was handled, or `limit`
    /// after its outcome. Otherwise `None`.
    pub(super) fn take_summary(&mut self, limit: Duration, now: Duration) -> Option<TaskSummary> {
        let task = self.task.as_ref()?;
        let (_, at) = task.ended.as_ref()?;
        if !task.over && now.saturating_sub(*at) < limit {
            return None;
        }
        let task = self.task.take()?;
        let (outcome, at) = task.ended?;
        let outcome = outcome.map(|mut outcome| {
            // The counts of the session cover all of its tasks.
            let before = std::mem::replace(&mut self.unanswered, outcome.unanswered);
            outcome.unanswered = outcome.unanswered.saturating_sub(before);
            let before = std::mem::replace(&mut self.not_by_yes, outcome.not_by_yes);
            outcome.not_by_yes = outcome.not_by_yes.saturating_sub(before);
            outcome
        });
        let took = at.saturating_sub(task.since);
        Some(TaskSummary { outcome, took, rule_shown: task.rule_shown })
    }

    pub(super) async fn end(&mut self, reason: SessionEndReason, exit: Exit, limit: Duration) {
        let exit_code = i32::from(exit as u8);
        let ending = SessionEnding { reason, exit_code, result: None, error: None };
        tokio::time::timeout(limit, self.session.end(ending)).await.ok();
        self.attach_socket.close().await;
    }
}

/// Delivers a prompt as a steering message, because another front end has started a task. Returns a
/// text for the user about the result. `content`: `None` delivers nothing.
pub(super) async fn steered(session: &SessionHandle, content: Option<Vec<ContentPart>>) -> String {
    let Some(content) = content else { return PromptError::Busy.to_string() };
    match session.deliver(MessageKind::Steer, content).await {
        Ok(_) => "(another front end has started a task: sent at its next step)".to_owned(),
        Err(error) => format!("({error}; send it again)"),
    }
}

/// Next update of the session.
pub(super) enum SessionUpdate {
    /// An event that was not handled yet.
    Event(Arc<Announcement>),
    /// Outcome of the task; `None` if the session ended unexpectedly.
    Outcome(Option<TurnOutcome>),
    /// An attached client asks to return to an earlier state.
    Revert(RevertRequest),
    /// The session has ended.
    Closed,
}

/// Waits for the next update; never returns while there is no session, or its earlier conversation
/// is being read. Cancel safe.
pub(super) async fn next(current: &mut Option<CurrentSession>) -> SessionUpdate {
    let Some(CurrentSession { events, task, attach_socket, reads_past: false, .. }) = current
    else {
        return std::future::pending().await;
    };
    let outcome = task.as_mut().and_then(|task| task.outcome.as_mut());
    tokio::select! {
        biased;
        event = events.next() => event.map_or(SessionUpdate::Closed, SessionUpdate::Event),
        outcome = or_pending(outcome) => SessionUpdate::Outcome(outcome),
        request = attach_socket.next_revert() => SessionUpdate::Revert(request),
    }
}
