//! A session: it runs at most one main invocation at a time, owns every other actor, and survives
//! their crashes.
//!
//! Its message handlers never wait for a model, a tool, a user or a disk.

mod admission;
mod children;
mod clients;
mod compaction;
mod handle;
mod jobs;
mod messages;
mod own_call;
mod resume;
mod resumption;
mod settings;
mod supervised;
mod title;

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent};
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::agent_invocation::{
    self, AgentInvocation, InvocationOutcome, ModelRoutes, QueuedInput, TimeLimit, UnfinishedCall,
};
use crate::compaction::CompactedHistory;
use crate::context::ContextMeter;
use crate::conversation::{ContentPart, InvocationId, Message, Prompt, Usage};
use crate::cost::usd;
use crate::delegation::{ActionLog, DelegationHandle, Forget};
use crate::event::{AnnouncedEvent, Branch, ContextUse, Durability, Event, MessageKind, Origin};
use crate::hook_events::HookOutcome;
use crate::ledger::{BudgetHandle, BudgetKeeper, BudgetMsg};
use crate::mailbox::{
    AliveToken, AllGone, HandlerResult, Lost, OwnedTask, Report, StartResult, answer, spawn_task,
    tell,
};
use crate::outcome::{Ending, Memories};
use crate::permission_coordinator as permission;
use crate::ports::{BackgroundScope, JournalError, Ports, ProviderInfo, ToolOutput, ToolSpec};
use crate::replay::{Replayed, awaits_answer};
use crate::restarts::RestartBudget;
use crate::subscription::Feed;
use crate::tool_call::Services;
use crate::transcript_writer::{self, Outbox, Transcript};

pub use crate::testing_seam::FailPoints;
pub use handle::{RunningPrompt, SessionHandle, StartError};
pub use own_call::UserCall;
pub use resumption::Resumption;
pub use settings::{DeliverError, PromptError, SessionEnding, SessionSettings, TurnOutcome};

use admission::{PendingAdmission, RunTask, StartHooks};
use children::{ChildMsg, Children};
use clients::Clients;
use compaction::PendingCompaction;
use messages::Withdrawal;
use own_call::OwnCall;
use resume::Unfinished;
use supervised::Supervised;
use title::Title;

/// Scope of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The main agent, and the subagents it waits for.
    Foreground,
    /// All subagents.
    All,
}

type PromptAdmission = Result<(InvocationId, oneshot::Receiver<TurnOutcome>), PromptError>;

enum Msg {
    Prompt(Prompt, RpcReplyPort<PromptAdmission>),
    /// Continue an interrupted run.
    Continue(RpcReplyPort<PromptAdmission>),
    /// The session-start hooks have finished.
    Opened(Result<HookOutcome, JoinError>),
    /// The prompt hooks have finished.
    Admitted(InvocationId, Result<HookOutcome, JoinError>),
    Deliver(QueuedInput, RpcReplyPort<Result<(), DeliverError>>),
    Withdraw(Withdrawal),
    /// The user runs a tool.
    OwnCall(UserCall, RpcReplyPort<PromptAdmission>),
    OwnCallEnded(Result<ToolOutput, Lost>),
    /// Scope: the main agent and subagents that it waits for, or everything.
    Interrupt(Reach),
    Children(ChildMsg),
    /// Message of background work for the agent of its call.
    Notice(Arc<Origin>, Vec<ContentPart>),
    Release(BackgroundScope),
    History(RpcReplyPort<Vec<Arc<Message>>>),
    /// With the user's words about text to keep.
    Compact(Option<String>, RpcReplyPort<Result<Option<CompactedHistory>, PromptError>>),
    /// Result of the summary request.
    Summarised(Result<Result<String, String>, JoinError>),
    /// Result of the title request.
    Titled(Result<Result<String, String>, JoinError>),
    /// The title did not arrive in time.
    Untitled,
    /// To the caller, or to every observer.
    Context(Option<RpcReplyPort<ContextUse>>),
    /// Message to the ledger.
    Ledger(BudgetMsg),
    /// Memory of subagents, after deleting part of it.
    Memories(Forget, RpcReplyPort<Memories>),
    /// Warning about a front-end action.
    Warn(String),
    InvocationEnded(InvocationId, Result<InvocationOutcome, Lost>),
    /// Journal state of a crashed invocation.
    Reread(InvocationId, Box<Result<Result<Replayed, JournalError>, JoinError>>),
    End(SessionEnding, Report<()>),
    /// The last record is written.
    Closed,
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::Prompt(..) => "Prompt",
            Msg::Continue(_) => "Continue",
            Msg::Opened(_) => "Opened",
            Msg::Admitted(..) => "Admitted",
            Msg::Deliver(..) => "Deliver",
            Msg::Withdraw(_) => "Withdraw",
            Msg::OwnCall(..) => "OwnCall",
            Msg::OwnCallEnded(_) => "OwnCallEnded",
            Msg::Interrupt(_) => "Interrupt",
            Msg::Children(_) => "Children",
            Msg::Notice(..) => "Notice",
            Msg::Release(_) => "Release",
            Msg::History(_) => "History",
            Msg::Compact(..) => "Compact",
            Msg::Summarised(_) => "Summarised",
            Msg::Titled(_) => "Titled",
            Msg::Untitled => "Untitled",
            Msg::Context(_) => "Context",
            Msg::Ledger(_) => "Ledger",
            Msg::Memories(..) => "Memories",
            Msg::Warn(_) => "Warn",
            Msg::InvocationEnded(..) => "InvocationEnded",
            Msg::Reread(..) => "Reread",
            Msg::End(..) => "End",
            Msg::Closed => "Closed",
        }
    }
}

struct RootSession {
    ports: Ports,
    settings: Arc<SessionSettings>,
    provider_info: ProviderInfo,
    specs: Arc<[ToolSpec]>,
    /// Delegation handle, if subagents are enabled.
    delegation_handle: Option<Arc<DelegationHandle>>,
    services: Arc<Services>,
    transcript: Transcript,
    feed: Feed,
    outbox: Arc<Outbox>,
}

struct State {
    writer: Supervised<transcript_writer::Msg>,
    coordinator: Supervised<permission::Msg>,
    clients: Clients,
    /// Routes to the models, with their state.
    model_routes: ModelRoutes,
    /// Route to the summary model, if configured.
    summariser: Option<ModelRoutes>,
    title: Title,
    /// A compaction in progress.
    compacting: Option<PendingCompaction>,
    /// Token state of the history.
    meter: ContextMeter,
    invocation_budget: RestartBudget,
    /// The conversation, without system messages.
    history: Vec<Arc<Message>>,
    /// Messages that were queued and not delivered before their run ended.
    queued: Vec<QueuedInput>,
    main: Option<MainRun>,
    /// Unfinished work of an earlier process.
    unfinished: Option<Unfinished>,
    /// Budget and accounts.
    budget_keeper: BudgetKeeper,
    turns: u32,
    ending: Option<(SessionEnding, Vec<Report<()>>)>,
    /// Result of the start hooks.
    opening: StartHooks,
    parked: Option<String>,
    /// Subagents.
    children: Children,
    /// Tool call of the user.
    own_call: Option<OwnCall>,
    closing: Option<OwnedTask>,
    _observed: EndNotifier,
}

/// Ends the event stream in every case.
struct EndNotifier {
    feed: Feed,
    session_id: crate::conversation::SessionId,
    clock: Arc<dyn crate::ports::Clock>,
}

impl Drop for EndNotifier {
    fn drop(&mut self) {
        if self.feed.is_closed() {
            return;
        }
        let (actor, cause) = ("RootSession".to_owned(), "the session itself crashed".to_owned());
        self.feed.publish(AnnouncedEvent::Ephemeral {
            ts: self.clock.wall_ms(),
            session_id: self.session_id.clone(),
            origin: None,
            event: Event::ActorCrashed { actor, cause },
        });
        self.feed.close();
    }
}

/// State of an earlier incarnation of an invocation.
#[derive(Default)]
struct Resumed {
    /// The calls of the last reply, if not all of them are done; their results end the history.
    pending: Vec<UnfinishedCall>,
    queued: Vec<QueuedInput>,
    turns: u32,
    usage: Usage,
    /// Its actions, if it is a subagent.
    actions: ActionLog,
}

/// The main invocation.
struct MainRun {
    origin: Arc<Origin>,
    /// `None` while it is rebuilt from the journal, and while hooks check its prompt.
    actor: Option<ActorRef<agent_invocation::Msg>>,
    /// Prompt that waits for hooks and is not in the history yet.
    admitting: Option<PendingAdmission>,
    outcome: oneshot::Sender<TurnOutcome>,
    rereading: Option<OwnedTask>,
    /// The ending that it was asked for.
    stopping: Option<Ending>,
    /// Length of the history before it.
    base: usize,
    /// Replies that the session has counted already.
    counted: u32,
    /// Start time (monotonic), unchanged by crashes.
    began: Duration,
    /// Completes when nothing of its last incarnation is left.
    absence: Option<AllGone>,
}

impl Actor for RootSession {
    type Msg = Msg;
    type State = State;
    type Arguments = handle::ChildActors;

    async fn pre_start(&self, me: ActorRef<Msg>, tree: handle::ChildActors) -> StartResult<State> {
        let budget = || {
            let limits = &self.settings.limits;
            RestartBudget::new(limits.restarts_max, limits.restart_window)
        };
        let own = self
            .delegation_handle
            .iter()
            .flat_map(|delegation_handle| &delegation_handle.delegation.subagents);
        let own = own.filter_map(|one| Some((one.provider.as_ref()?, one.price.clone())));
        let context = &self.settings.context;
        let roles = context.compact.iter().chain(&context.title);
        let own = own.chain(roles.map(|role| (&role.provider, role.price.clone())));
        let clients = Clients::new(&self.ports, self.settings.price.as_ref(), own, budget);
        let (session, accounts) = (me.clone(), self.accounts());
        let line = move |order| tell(&session, Msg::Ledger(order));
        let budget_handle = BudgetHandle::new(self.settings.budget, accounts.last_request, line);
        let mut state = State {
            writer: Supervised::new("TranscriptWriter", tree.writer, budget()),
            coordinator: Supervised::new("PermissionCoordinator", tree.coordinator, budget()),
            model_routes: clients.model_routes(&self.ports),
            summariser: clients.of_role(self.settings.context.compact.as_ref()),
            compacting: None,
            title: self.title(&clients),
            meter: ContextMeter::default(),
            children: self.children(&me, &clients),
            clients,
            invocation_budget: budget(),
            history: self.settings.history.clone(),
            queued: Vec::new(),
            main: None,
            unfinished: None,
            budget_keeper: BudgetKeeper::new(budget_handle, accounts),
            turns: 0,
            ending: None,
            opening: StartHooks::Open,
            parked: None,
            own_call: None,
            closing: None,
            _observed: EndNotifier {
                feed: self.feed.clone(),
                session_id: self.settings.session_id.clone(),
                clock: Arc::clone(&self.ports.clock),
            },
        };
        self.subscribe_notices(&me);
        self.start_writer(&me, &mut state).await?;
        self.start_coordinator(&me, &mut state).await?;
        self.start_clients(&me, &mut state).await?;
        self.begin_or_resume(&mut state);
        for event in self.settings.noted.iter().cloned() {
            self.transcript.note(None, event);
        }
        self.open(&me, &mut state);
        Ok(state)
    }

    async fn handle(&self, me: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        self.settings.fail.hit("RootSession", msg.kind());
        match msg {
            Msg::Prompt(prompt, reply) => {
                let admission = self.prompt(&me, prompt, state).await?;
                answer(reply, admission);
            }
            Msg::Continue(reply) => {
                let admission = self.resume_run(&me, state).await?;
                answer(reply, admission);
            }
            Msg::Opened(hooked) => self.opened(&me, hooked, state).await?,
            Msg::Admitted(id, hooked) => self.admitted(&me, &id, hooked, state).await?,
            Msg::Deliver(queued, reply) => messages::deliver(queued, reply, state),
            Msg::Withdraw(withdrawal) => self.withdraw_message(&me, withdrawal, state),
            Msg::OwnCall(wanted, reply) => {
                let admission = self.own_call(&me, wanted, state).await?;
                answer(reply, admission);
            }
            Msg::OwnCallEnded(output) => self.own_call_ended(&me, output, state),
            Msg::Interrupt(reach) => self.stop(&me, reach, Ending::Interrupted, state),
            Msg::Children(said) => self.handle_child_msg(&me, said, state).await?,
            Msg::History(reply) => {
                self.append_own_calls(state);
                answer(reply, state.history.clone());
            }
            Msg::Notice(origin, content) => self.notified(&me, &origin, content, state),
            Msg::Release(what) => self.release(&what),
            Msg::Compact(keep, reply) => self.compact(&me, keep, reply, state),
            Msg::Summarised(summary) => self.summarised(summary, state),
            Msg::Titled(said) => self.titled(&me, said, state),
            Msg::Untitled => self.untitled(&me, state),
            Msg::Context(Some(reply)) => answer(reply, self.context(state)),
            Msg::Context(None) => self.announce_context(state),
            Msg::Ledger(order) => state.budget_keeper.take(order),
            Msg::Memories(forget, reply) => answer(reply, self.memories(forget)),
            Msg::Warn(message) => self.transcript.note(None, Event::Warning { message }),
            Msg::InvocationEnded(id, left) if state.children.has(&id) => {
                self.child_ended(&me, &id, left, state);
            }
            Msg::InvocationEnded(id, outcome) => self.invocation_ended(&me, &id, outcome, state),
            Msg::Reread(id, replayed) if state.children.has(&id) => {
                self.child_reread(&me, &id, *replayed, state).await?;
            }
            Msg::Reread(id, replayed) => self.reread(&me, &id, *replayed, state).await?,
            Msg::End(ending, done) => self.end(&me, ending, done, state),
            Msg::Closed => self.closed(&me, state).await,
        }
        Ok(())
    }

    // ractor's default stops a parent with its child. A session must survive its children.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> HandlerResult {
        match event {
            SupervisionEvent::ActorFailed(child, cause) => {
                self.child_crashed(&me, child.get_id(), &chain(&*cause), state).await
            }
            // Children that end normally were stopped by the session.
            SupervisionEvent::ActorTerminated(..)
            | SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }
}

impl RootSession {
    fn started(&self, forked_from: Option<Branch>) -> Event {
        Event::SessionStarted {
            posse: self.settings.posse.clone(),
            cwd: self.settings.cwd.clone(),
            agent: self.settings.agent.clone(),
            provider: self.provider_info.profile.clone(),
            model: self.provider_info.model.clone(),
            mode: if self.delegation_handle.is_some() { "multi-agent" } else { "single-agent" }
                .to_owned(),
            tier: self.settings.tier.clone(),
            instructions: self.settings.instructions.clone(),
            budget: self.settings.own_budget,
            forked_from,
        }
    }

    async fn prompt(
        &self,
        me: &ActorRef<Msg>,
        prompt: Prompt,
        state: &mut State,
    ) -> Result<PromptAdmission, SpawnErr> {
        if let Err(error) = state.may_begin() {
            return Ok(Err(error));
        }
        state.model_routes.retry_now(self.ports.clock.monotonic(), &self.settings.limits);
        let base = state.history.len();
        self.admit_as(me, self.new_origin(), base, RunTask::Prompt(prompt), state).await
    }

    /// Memory of subagents, after deleting part of it.
    fn memories(&self, forget: Forget) -> Memories {
        let Some(delegation_handle) = &self.delegation_handle else { return Memories::default() };
        if delegation_handle.memories().forget(&forget) > 0 {
            let agent = match forget {
                Forget::Of(agent) => Some(agent),
                Forget::Nothing | Forget::Everything => None,
            };
            self.transcript.note(None, Event::MemoryForgotten { agent });
        }
        delegation_handle.memories().clone()
    }

    fn invocation_started(&self) -> Event {
        Event::InvocationStarted {
            provider: self.provider_info.profile.clone(),
            model: self.provider_info.model.clone(),
            tools: self.specs.iter().map(|spec| spec.name.clone()).collect(),
            after: None,
        }
    }

    async fn start_invocation(
        &self,
        me: &ActorRef<Msg>,
        main: &mut MainRun,
        resumed: Resumed,
        state: &mut State,
    ) -> Result<(), SpawnErr> {
        let system = Message::System { content: self.settings.system_prompt.clone() };
        let mut history = Vec::with_capacity(state.history.len() + 64);
        history.push(Arc::new(system));
        history.extend(state.history.iter().cloned());
        history.truncate(history.len() - resumed.pending.len());
        let id = main.origin.invocation_id.clone();
        let mut resumed = resumed;
        RootSession::pending(&id, &mut resumed.queued, &mut state.children);
        let (presence, absence) = AliveToken::new();
        let spent = self.ports.clock.monotonic().saturating_sub(main.began);
        let limit = |whole: Duration| TimeLimit { whole, left: whole.saturating_sub(spent) };
        let args = agent_invocation::Args {
            origin: Arc::clone(&main.origin),
            services: Arc::clone(&self.services),
            model_routes: state.model_routes.clone(),
            options: self.settings.options.clone(),
            tools: Arc::clone(&self.specs),
            history,
            pending: resumed.pending,
            queued: resumed.queued,
            turns: resumed.turns,
            usage: resumed.usage,
            actions: resumed.actions,
            time: self.settings.limits.duration_max.map(limit),
            tokens_max: None,
            fitter: self.fitter(state),
            presence,
            report: Report::to(me, move |outcome| Msg::InvocationEnded(id, outcome)),
        };
        main.actor = Some(AgentInvocation::start(args, me).await?);
        main.absence = Some(absence);
        Ok(())
    }

    fn invocation_ended(
        &self,
        me: &ActorRef<Msg>,
        id: &InvocationId,
        outcome: Result<InvocationOutcome, Lost>,
        state: &mut State,
    ) {
        // Supervision reports a crash as well, and restarts it.
        let Ok(InvocationOutcome { ending, history, queued, turns, usage, .. }) = outcome else {
            return;
        };
        let Some(main) = state.main.take_if(|main| main.origin.invocation_id == *id) else {
            return;
        };
        if let Some(actor) = &main.actor {
            actor.stop(None);
        }
        let system = |message: &Arc<Message>| matches!(**message, Message::System { .. });
        state.history = history.into_iter().filter(|message| !system(message)).collect();
        state.queued.extend(queued);
        self.stop_awaited(me, id, state);
        self.conclude(me, main, ending, turns, usage, state);
    }

    fn conclude(
        &self,
        me: &ActorRef<Msg>,
        main: MainRun,
        ending: Ending,
        turns: u32,
        usage: Usage,
        state: &mut State,
    ) {
        state.turns += main.uncounted(turns);
        let unanswered = self.services.book.unanswered();
        let not_by_yes = self.services.book.not_by_yes();
        self.name_session(me, &main.origin, &ending, state);
        main.outcome.send(TurnOutcome { ending, turns, usage, unanswered, not_by_yes }).ok();
        if state.ending.is_some() && !state.children.any_live() {
            self.close(me, state);
        }
    }

    fn end(&self, me: &ActorRef<Msg>, ending: SessionEnding, done: Report<()>, state: &mut State) {
        if let Some((_, waiting)) = &mut state.ending {
            waiting.push(done);
            return;
        }
        state.ending = Some((ending, vec![done]));
        self.give_up_summary(state);
        // An ending session does not wait for disk space.
        self.outbox.hurry();
        state.writer.tell(|| transcript_writer::Msg::Wake);
        if state.main.is_some() || state.own_call.is_some() || state.children.any_live() {
            self.stop(me, Reach::All, Ending::Interrupted, state);
        } else {
            self.close(me, state);
        }
    }

    /// Writes the last record. The writer is the last actor to stop.
    fn close(&self, me: &ActorRef<Msg>, state: &mut State) {
        let Some(reason) = state.ending.as_ref().map(|(ending, _)| ending.reason.clone()) else {
            return;
        };
        if self.awaits_title(me, &reason, state) {
            return;
        }
        let Some((ending, _)) = &state.ending else { return };
        let spent = &state.budget_keeper.accounts().total;
        let event = Event::SessionEnded {
            reason: ending.reason.clone(),
            exit_code: ending.exit_code,
            usage: spent.usage,
            cost_usd: spent.cost().map(usd),
            cost_nano_usd: spent.known(),
            unpriced_requests: spent.unpriced,
            turns: state.turns,
            result: ending.result.clone(),
        };
        let (transcript, feed) = (self.transcript.clone(), self.feed.clone());
        let passing = AnnouncedEvent::Ephemeral {
            ts: self.ports.clock.wall_ms(),
            session_id: self.settings.session_id.clone(),
            origin: None,
            event: event.clone(),
        };
        let permissions = state.coordinator.line();
        let hooks = self.closing_hooks(&ending.reason);
        let released = self.release_and_wait(&BackgroundScope::Session);
        let last = async move {
            // The end of background work is recorded before the session's own end.
            released.await;
            if let Some(hooks) = hooks {
                hooks.await;
            }
            // The withdrawal of a permission request may still be queued.
            permissions.call_until_answered(permission::Msg::Settle).await;
            // If recording is impossible, observers are still informed of the end.
            if transcript.record(None, event, Durability::Synced).await.is_err() {
                feed.publish(passing);
            }
            feed.close();
        };
        state.closing = Some(spawn_task(me, last, |_| Msg::Closed));
    }

    async fn closed(&self, me: &ActorRef<Msg>, state: &mut State) {
        me.get_cell().stop_children_and_wait(None, Some(self.settings.limits.ask_timeout)).await;
        if let Some((_, waiting)) = state.ending.take() {
            for done in waiting {
                done.send(());
            }
        }
        me.stop(None);
    }
}

impl State {
    /// Returns an error if no run may start now.
    fn may_begin(&self) -> Result<(), PromptError> {
        if self.ending.is_some() {
            return Err(PromptError::Ended);
        }
        if let Some(cause) = &self.parked {
            return Err(PromptError::Parked(cause.clone()));
        }
        if self.main.is_some() || self.own_call.is_some() || self.compacting.is_some() {
            return Err(PromptError::Busy);
        }
        Ok(())
    }

    /// True if the model must answer without new input.
    fn awaits_model(&self) -> bool {
        // Ended background work does not start a run.
        let asks = |queued: &QueuedInput| {
            matches!(queued.kind, MessageKind::Steer | MessageKind::FollowUp)
        };
        self.queued.iter().any(asks) || self.history.last().is_some_and(|last| awaits_answer(last))
    }
}

/// An error with its sources, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Tells the main invocation to end. If it crashes meanwhile, it ends as well.
fn stop_main(ending: Ending, state: &mut State) {
    if let Some(main) = &mut state.main {
        let ending = main.stopping.get_or_insert(ending).clone();
        if let Some(actor) = &main.actor {
            tell(actor, agent_invocation::Msg::Stop(ending));
        }
    }
}
