//! Handle through which front ends control a session.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use ractor::{Actor, ActorRef, RpcReplyPort};
use tokio::sync::{oneshot, watch};

use crate::compaction::CompactedHistory;
use crate::conversation::{
    CallId, ContentPart, InvocationId, Message, MessageId, Prompt, QuestionId, SessionId,
};
use crate::delegation::{self, DelegationHandle, DelegationSurroundings, Forget};
use crate::event::{ContextUse, Event, MessageKind, PermissionMode};
use crate::guarded::Guarded;
use crate::ledger::{Accounts, BudgetMsg};
use crate::mailbox::{Report, SupervisedRef, ask, tell};
use crate::outcome::Memories;
use crate::permission_coordinator::{
    self as permission, AnswerError, GrantView, HumanDecision, ModeChange, ModeError, ModeView,
};
use crate::ports::{BackgroundScope, Ids, JournalStore, Ports};
use crate::replay::QueuedInput;
use crate::root_session::compactor::CompactorMsg;
use crate::root_session::end::EndMsg;
use crate::root_session::jobs::JobsMsg;
use crate::root_session::main_run::messages::QueueReplacement;
use crate::root_session::main_run::stop::Reach;
use crate::root_session::main_run::{MainRunMsg, PromptAdmission};
use crate::root_session::subagents::SubagentsMsg;
use crate::root_session::titler::{TitlerMsg, one_line};
use crate::root_session::{
    DeliverError, Msg, PromptError, RootSession, SessionBase, SessionEnding, SessionSettings,
    TurnOutcome, UserCall,
};
use crate::subscription::{Feed, Subscription};
use crate::tool_call::{Checkpoints, Notices, Services, TodoLists};
use crate::transcript_writer::{self, Outbox, Transcript};

/// Maximum wait for a requested compaction; the request for its summary times out long before.
const SUMMARY_MAX: std::time::Duration = std::time::Duration::from_hours(24);

/// Handle of a running session. Cheap to clone; dropping it does not end the session, only
/// [`end`](SessionHandle::end) does.
#[derive(Clone)]
pub struct SessionHandle {
    session: ActorRef<Msg>,
    session_id: SessionId,
    permissions: SupervisedRef<permission::Msg>,
    mode: ModeView,
    feed: Feed,
    journal: Arc<dyn JournalStore>,
    ids: Arc<dyn Ids>,
    ask_timeout: std::time::Duration,
    events_buffered_max: usize,
    /// Subscription from the first event on, for the first subscriber. `None` once it is taken, or
    /// a run or a tool call of the user was requested.
    first: Arc<Guarded<Option<Subscription>>>,
}

/// Error: a session did not start, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("the session did not start: {0}")]
pub struct StartError(String);

/// A run that was started by a prompt or a resume, or a tool call of the user.
#[derive(Debug)]
pub struct RunningPrompt {
    invocation: InvocationId,
    outcome: oneshot::Receiver<TurnOutcome>,
}

impl RunningPrompt {
    /// Invocation id of the run or tool call.
    pub fn invocation(&self) -> &InvocationId {
        &self.invocation
    }

    /// Waits for the end of the run or tool call and returns its outcome. `None` if the session
    /// died.
    pub async fn outcome(self) -> Option<TurnOutcome> {
        self.outcome.await.ok()
    }
}

/// Channels that publish the current references to the transcript writer and the permission
/// coordinator.
pub(super) struct ChildActors {
    pub(super) writer: watch::Sender<Option<ActorRef<transcript_writer::Msg>>>,
    pub(super) coordinator: watch::Sender<Option<ActorRef<permission::Msg>>>,
    pub(super) mode: ModeView,
}

/// Spawns the actor of a session. The future is boxed, so that the code of all actors is compiled
/// in this crate only; as part of an `async fn` it would be compiled again in every crate that
/// awaits it.
fn spawn(
    arguments: <RootSession as Actor>::Arguments,
) -> BoxFuture<'static, Result<ActorRef<Msg>, StartError>> {
    Box::pin(async move {
        let spawned = Actor::spawn(None, RootSession, arguments).await;
        Ok(spawned.map_err(|error| StartError(error.to_string()))?.0)
    })
}

impl SessionHandle {
    /// Starts a session and returns when its actors run. Sends no model request.
    pub async fn start(
        ports: Ports,
        settings: SessionSettings,
    ) -> Result<SessionHandle, StartError> {
        let mode = ModeView::new(settings.first_mode());
        let tree = ChildActors {
            writer: watch::Sender::new(None),
            coordinator: watch::Sender::new(None),
            mode: mode.clone(),
        };
        let permissions = SupervisedRef::new(tree.coordinator.subscribe());
        let feed = Feed::new(settings.session_id.clone());
        let (journal, ids) = (Arc::clone(&ports.journal), Arc::clone(&ports.ids));
        let session_id = settings.session_id.clone();
        let (ask_timeout, events_buffered_max) =
            (settings.limits.ask_timeout, settings.limits.events_buffered_max);
        let first = feed.subscribe(Arc::clone(&journal), events_buffered_max);
        let session = spawn((ports, settings, tree, feed.clone())).await?;
        Ok(SessionHandle {
            session,
            session_id,
            permissions,
            mode,
            feed,
            journal,
            ids,
            ask_timeout,
            events_buffered_max,
            first: Arc::new(Guarded::new(Some(first))),
        })
    }

    /// Id of the session.
    pub fn id(&self) -> &SessionId {
        &self.session_id
    }

    /// Subscribes to the events from now on. The first subscriber gets all events from the start of
    /// the session in this process, if no run or tool call of the user was requested before.
    pub fn subscribe(&self) -> Subscription {
        let first = self.first.lock().take();
        first.unwrap_or_else(|| {
            self.feed.subscribe(Arc::clone(&self.journal), self.events_buffered_max)
        })
    }

    /// Subscribes to the durable events after the record `after`, then to new events, without gaps
    /// or duplicates. 0 means all records, also those of earlier processes. Ephemeral events follow
    /// when the subscriber has caught up.
    pub fn subscribe_after(&self, after: u64) -> Subscription {
        self.feed.subscribe_after(Arc::clone(&self.journal), self.events_buffered_max, after)
    }

    /// Number of the last record that was announced or existed before this process; 0 if there is
    /// none.
    pub fn last_record(&self) -> u64 {
        self.feed.last_record()
    }

    /// Starts a run for `prompt` and returns when it is accepted. An interrupted earlier run is
    /// dropped, except its background subagents.
    pub async fn prompt(&self, prompt: Prompt) -> Result<RunningPrompt, PromptError> {
        self.begin(|reply| MainRunMsg::Prompt(prompt, reply)).await
    }

    /// Starts a run without a new prompt: continues an interrupted run and background subagents, or
    /// answers messages that the model has not answered. Calls of the interrupted run that had not
    /// started run now; calls that had started do not run again.
    pub async fn resume(&self) -> Result<RunningPrompt, PromptError> {
        self.begin(MainRunMsg::Continue).await
    }

    async fn begin(
        &self,
        message: impl FnOnce(RpcReplyPort<PromptAdmission>) -> MainRunMsg,
    ) -> Result<RunningPrompt, PromptError> {
        // A client that has not subscribed by now does not need the beginning.
        drop(self.first.lock().take());
        let message = |reply| Msg::MainRun(message(reply));
        let admission = ask(&self.session, self.ask_timeout, message);
        let (invocation, outcome) = admission.await.unwrap_or(Err(PromptError::Ended))?;
        Ok(RunningPrompt { invocation, outcome })
    }

    /// Queues a message for the current run, which receives it exactly once, at the time that
    /// `kind` determines (see [`MessageKind`]). Returns the id of the message, or an error if there
    /// is no run or the queue is full.
    pub async fn deliver(
        &self,
        kind: MessageKind,
        content: Vec<ContentPart>,
    ) -> Result<MessageId, DeliverError> {
        let id = self.ids.message();
        let queued = QueuedInput { id: id.clone(), kind, content };
        let delivered = ask(&self.session, self.ask_timeout, |reply| {
            Msg::MainRun(MainRunMsg::Deliver(queued, reply))
        });
        delivered.await.unwrap_or(Err(DeliverError::Idle))?;
        Ok(id)
    }

    /// Withdraws a queued message of the user. Returns its content; `None` if it is no longer
    /// queued, or the session has ended.
    pub async fn withdraw(&self, id: MessageId) -> Option<Vec<ContentPart>> {
        let taken = self.replace_queued(vec![id], Vec::new()).await?;
        taken.into_iter().next().map(|queued| queued.content)
    }

    /// Withdraws the queued messages `old` of the user, and queues `new` instead, at the end of the
    /// queue. Nothing is delivered in between. Returns the ids of the new messages; `None`, without
    /// a change, if one of `old` is no longer queued, or the session has ended.
    pub async fn requeue(
        &self,
        old: Vec<MessageId>,
        new: Vec<(MessageKind, Vec<ContentPart>)>,
    ) -> Option<Vec<MessageId>> {
        let new = new.into_iter();
        let next = new.map(|(kind, content)| QueuedInput { id: self.ids.message(), kind, content });
        let next: Vec<QueuedInput> = next.collect();
        let ids = next.iter().map(|queued| queued.id.clone()).collect();
        self.replace_queued(old, next).await.map(|_| ids)
    }

    async fn replace_queued(
        &self,
        ids: Vec<MessageId>,
        next: Vec<QueuedInput>,
    ) -> Option<Vec<QueuedInput>> {
        let taken = ask(&self.session, self.ask_timeout, |reply| {
            let replacement = QueueReplacement { ids, next, again: false, reply };
            Msg::MainRun(MainRunMsg::ReplaceQueued(replacement))
        });
        taken.await.unwrap_or_default()
    }

    /// Starts a tool call of the user. Refused while a run, a compaction, another such call or the
    /// hooks for the session start are in progress. The call is judged, confined and recorded like
    /// a call of the agent. The model is informed with its next request.
    pub async fn call(&self, wanted: UserCall) -> Result<RunningPrompt, PromptError> {
        self.begin(|reply| MainRunMsg::OwnCall(wanted, reply)).await
    }

    /// Messages of the main conversation so far, without system messages, and without replies and
    /// results that the current run has added since its last start or restart. Empty if the session
    /// has ended. This function also moves queued messages about tool calls of the user into the
    /// history. The messages are suitable as `history` in the settings of another session.
    pub async fn history(&self) -> Vec<Arc<Message>> {
        let history = |reply| Msg::MainRun(MainRunMsg::History(reply));
        ask(&self.session, self.ask_timeout, history).await.unwrap_or_default()
    }

    /// True if neither a run, nor a tool call of the user, nor a subagent is in progress, and the
    /// session has not ended.
    pub async fn is_idle(&self) -> bool {
        let idle = |reply| Msg::MainRun(MainRunMsg::Idle(reply));
        ask(&self.session, self.ask_timeout, idle).await.unwrap_or_default()
    }

    /// Compacts the history between prompts. The model of the role `compact` writes the summary, or
    /// rules if none is configured or it fails; see [`compaction`]. The journal keeps everything.
    /// Returns `None` if nothing, or less than a tenth of the history, could be removed.
    ///
    /// [`compaction`]: crate::compaction
    pub async fn compact(&self) -> Result<Option<CompactedHistory>, PromptError> {
        self.compact_keeping(None).await
    }

    /// Compacts the history as [`compact`](SessionHandle::compact) does; the summary also contains
    /// the topic `keep` and removed sentences about it. `None`: no topic.
    pub async fn compact_keeping(
        &self,
        keep: Option<String>,
    ) -> Result<Option<CompactedHistory>, PromptError> {
        let compact = |reply| Msg::Compactor(CompactorMsg::Compact(keep, reply));
        // A model may need long, and has its own limits.
        let compacted = ask(&self.session, SUMMARY_MAX, compact).await;
        compacted.unwrap_or(Err(PromptError::Ended))
    }

    /// Composition in tokens of the main agent's next request (during a run: of its last request),
    /// with the context budget. `None` if the session has ended.
    pub async fn context(&self) -> Option<ContextUse> {
        let context = |reply| Msg::Compactor(CompactorMsg::Context(Some(reply)));
        ask(&self.session, self.ask_timeout, context).await
    }

    /// Announces the composition of the main agent's context to all observers as an event.
    pub fn announce_context(&self) {
        tell(&self.session, Msg::Compactor(CompactorMsg::Context(None)));
    }

    /// Accounts of the session, including spending of earlier processes. `None` if the session has
    /// ended.
    pub async fn accounts(&self) -> Option<Accounts> {
        ask(&self.session, self.ask_timeout, |reply| Msg::Budget(BudgetMsg::Show(reply))).await
    }

    /// Memory of subagents in this session; empty if the session has ended.
    pub async fn memories(&self) -> Memories {
        self.remembered(Forget::Nothing).await
    }

    /// Deletes the memory of the subagents with this name (`None`: of all), which is recorded.
    /// Returns the remaining memory; empty if the session has ended.
    pub async fn forget(&self, agent: Option<String>) -> Memories {
        self.remembered(agent.map_or(Forget::Everything, Forget::Of)).await
    }

    async fn remembered(&self, forget: Forget) -> Memories {
        let memories = |reply| Msg::Subagents(SubagentsMsg::Memories(forget, reply));
        ask(&self.session, self.ask_timeout, memories).await.unwrap_or_default()
    }

    /// Title of the session: that of the user, or of a model. `None` if it has none, or has ended.
    pub async fn title(&self) -> Option<String> {
        ask(&self.session, self.ask_timeout, |reply| Msg::Titler(TitlerMsg::Show(reply))).await?
    }

    /// Gives the session this title, which no model replaces, and records it. Returns it as
    /// recorded: on one line, cut to 80 characters. `None` if no visible character is left, or the
    /// session has ended; it then keeps its title.
    pub async fn rename(&self, title: String) -> Option<String> {
        let rename = |reply| Msg::Titler(TitlerMsg::Rename(title, reply));
        ask(&self.session, self.ask_timeout, rename).await?
    }

    /// Labels the prompt with the number `prompt` of the session `of`, this one or one of its
    /// branches, and records it. Returns the label as recorded: on one line, cut to 80 characters;
    /// empty if it removes the label.
    pub fn label_prompt(&self, of: SessionId, prompt: u32, label: &str) -> String {
        let label = one_line(label).unwrap_or_default();
        let event = Event::PromptLabelled { of, prompt, label: label.clone() };
        tell(&self.session, Msg::Note(event));
        label
    }

    /// Announces a one-line warning of the front end to all observers, and records it.
    pub fn warn(&self, message: impl Into<String>) {
        tell(&self.session, Msg::Note(Event::Warning { message: message.into() }));
    }

    /// Stops the current run or tool call of the user, and the subagents that the run waits for.
    /// Background work continues; a compaction continues without the summary of a model. Does not
    /// wait for the ends.
    pub fn interrupt(&self) {
        tell(&self.session, Msg::MainRun(MainRunMsg::Interrupt(Reach::Foreground)));
    }

    /// Stops everything that [`interrupt`](SessionHandle::interrupt) stops, and also all other
    /// subagents and all background work. Does not wait for the ends.
    pub fn interrupt_all(&self) {
        tell(&self.session, Msg::MainRun(MainRunMsg::Interrupt(Reach::All)));
    }

    /// Stops the background work that `call` has started, such as a job. Does not wait for its end.
    /// No effect if there is none.
    pub fn stop_job(&self, call: CallId) {
        tell(&self.session, Msg::Jobs(JobsMsg::Release(BackgroundScope::Call(call))));
    }

    /// Answers a permission request, and returns when the answer is on disk and applied. Only the
    /// first answer to a request is applied; later ones are errors.
    pub async fn answer(&self, id: QuestionId, decision: HumanDecision) -> Result<(), AnswerError> {
        self.answer_by(id, decision, None).await
    }

    /// Answers a permission request like [`answer`](SessionHandle::answer). `by`: name of the
    /// attached front end that answers, which is recorded and reported to later answers; `None` for
    /// the front end that owns the session.
    pub async fn answer_by(
        &self,
        id: QuestionId,
        decision: HumanDecision,
        by: Option<String>,
    ) -> Result<(), AnswerError> {
        let coordinator = self.permissions.current().ok_or(AnswerError::Ended)?;
        let answered = ask(&coordinator, self.ask_timeout, |reply| {
            permission::Msg::Answer(id, decision, by, reply)
        });
        let lost = || match self.permissions.current() {
            Some(_) => AnswerError::Lost,
            None => AnswerError::Ended,
        };
        answered.await.unwrap_or_else(|| Err(lost()))
    }

    /// Current permission mode of the session.
    pub fn permission_mode(&self) -> PermissionMode {
        self.mode.current()
    }

    /// Permission mode of the latest request, which may still be recorded.
    pub fn requested_permission_mode(&self) -> PermissionMode {
        self.mode.requested()
    }

    /// Changes the permission mode, which only a person may request. Returns when the change is on
    /// disk and applied; a stricter mode applies at once. Open permission requests that the new
    /// mode decides end. A call that already has its permission continues. `by`: name of the
    /// attached front end that changes it; `None` for the front end that owns the session.
    pub async fn set_permission_mode(
        &self,
        mode: PermissionMode,
        by: Option<String>,
    ) -> Result<ModeChange, ModeError> {
        let coordinator = self.permissions.current().ok_or(ModeError::Ended)?;
        let changed =
            ask(&coordinator, self.ask_timeout, |reply| permission::Msg::SetMode(mode, by, reply));
        let lost = || match self.permissions.current() {
            Some(_) => ModeError::Lost,
            None => ModeError::Ended,
        };
        changed.await.unwrap_or_else(|| Err(lost()))
    }

    /// Ends the session and everything that it has started. Returns when the last record is
    /// written, or cannot be written, and its actors have stopped or `Limits::ask_timeout` has
    /// passed. If the session is ending already, the earlier `ending` counts.
    pub async fn end(&self, ending: SessionEnding) {
        let (report, ended) = Report::channel();
        tell(&self.session, Msg::End(EndMsg::End(ending, report)));
        ended.await.ok();
    }
}

impl SessionBase {
    pub(super) fn new(
        me: ActorRef<Msg>,
        mut ports: Ports,
        settings: SessionSettings,
        tree: &ChildActors,
        feed: Feed,
    ) -> SessionBase {
        let provider_info = ports.provider.info();
        let delegation_handle = settings.delegation.clone().map(|delegation| {
            let (info, ids) = (provider_info.clone(), Arc::clone(&ports.ids));
            let surroundings = DelegationSurroundings {
                cwd: settings.cwd.clone(),
                child_context: (settings.limits.context_child.clone(), settings.context.clone()),
                main_tools: settings.tools.clone(),
            };
            Arc::new(DelegationHandle::new(delegation, info, surroundings, ids))
        });
        if let Some(handle) = &delegation_handle {
            let mut tools = (*ports.tools).clone();
            delegation::register(&mut tools, handle, &ports.clock);
            ports.tools = Arc::new(tools);
        }
        let outbox = Arc::new(Outbox::new(settings.session_id.clone()));
        let transcript = Transcript::new(
            Arc::clone(&outbox),
            tree.writer.subscribe(),
            Arc::clone(&ports.clock),
            Arc::clone(&ports.ids),
        );
        let grants = settings.resumption.as_ref();
        let grants = grants.map(|from| from.grants(&settings.cwd, &settings.tier));
        let services = Services {
            session_id: settings.session_id.clone(),
            tools: Arc::clone(&ports.tools),
            hooks: Arc::clone(&ports.hooks),
            policy: Arc::clone(&ports.policy),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            transcript: transcript.clone(),
            permissions: SupervisedRef::new(tree.coordinator.subscribe()),
            book: GrantView::new(
                grants.unwrap_or_default(),
                Arc::clone(&ports.grants),
                Arc::clone(&ports.clock),
                transcript.clone(),
            ),
            mode: tree.mode.clone(),
            checkpoints: Checkpoints::new(
                Arc::clone(&ports.checkpoints),
                settings.session_id.clone(),
            ),
            notices: Notices::default(),
            todos: TodoLists::default(),
            cwd: settings.cwd.clone(),
            asking: settings.asking,
            tier: settings.tier.clone(),
            limits: Arc::new(settings.limits.clone()),
            delegation_handle: delegation_handle.clone(),
            fail: settings.fail.clone(),
        };
        let visible = settings.tools.iter().filter_map(|name| ports.tools.get(name));
        let calls = delegation_handle
            .iter()
            .flat_map(|handle| handle.specs(&ports.tools, &handle.delegation.main_calls, 0));
        let specs = visible.map(|tool| tool.spec().clone()).chain(calls).collect();
        SessionBase {
            me,
            provider_info,
            delegation_handle,
            specs,
            services: Arc::new(services),
            transcript,
            feed,
            outbox,
            settings: Arc::new(settings),
            ports,
        }
    }
}

impl std::fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHandle").field("id", &self.session_id).finish_non_exhaustive()
    }
}
