//! A session: it runs at most one main invocation at a time, owns every other actor, and survives
//! their crashes.
//!
//! Its message handlers never wait for a model, a tool, a user or a disk.

mod clients;
mod compactor;
mod end;
mod handle;
mod jobs;
mod main_run;
mod resumption;
mod settings;
mod subagents;
mod supervised;
mod titler;

use std::sync::Arc;

use ractor::{Actor, ActorRef, SupervisionEvent};

use crate::agent_invocation::{ModelRoutes, QueuedInput};
use crate::context::ContextMeter;
use crate::conversation::Message;
use crate::delegation::DelegationHandle;
use crate::event::{Branch, Event};
use crate::ledger::{BudgetHandle, BudgetKeeper, BudgetMsg};
use crate::mailbox::{HandlerResult, OwnedTask, Report, StartResult, tell};
use crate::permission_coordinator as permission;
use crate::ports::{Ports, ProviderInfo, ToolSpec};
use crate::restarts::RestartBudget;
use crate::subscription::Feed;
use crate::tool_call::Services;
use crate::transcript_writer::{self, Outbox, Transcript};

pub use crate::testing_seam::FailPoints;
pub use handle::{RunningPrompt, SessionHandle, StartError};
pub use main_run::own_call::UserCall;
pub use resumption::Resumption;
pub use settings::{DeliverError, PromptError, SessionEnding, SessionSettings, TurnOutcome};

use clients::Clients;
use compactor::{CompactorMsg, PendingCompaction};
use end::{EndMsg, EndNotifier};
use jobs::JobsMsg;
use main_run::admission::StartHooks;
use main_run::own_call::OwnCall;
use main_run::resume::Unfinished;
use main_run::{MainRun, MainRunMsg};
use subagents::{Subagents, SubagentsMsg};
use supervised::Supervised;
use titler::{Title, TitlerMsg};

enum Msg {
    MainRun(MainRunMsg),
    Subagents(SubagentsMsg),
    Budget(BudgetMsg),
    Compactor(CompactorMsg),
    Titler(TitlerMsg),
    Jobs(JobsMsg),
    End(EndMsg),
    /// Warning about a front-end action.
    Warn(String),
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::MainRun(msg) => msg.kind(),
            Msg::Subagents(msg) => msg.kind(),
            Msg::Budget(_) => "Ledger",
            Msg::Compactor(msg) => msg.kind(),
            Msg::Titler(msg) => msg.kind(),
            Msg::Jobs(msg) => msg.kind(),
            Msg::End(msg) => msg.kind(),
            Msg::Warn(_) => "Warn",
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
    subagents: Subagents,
    /// Tool call of the user.
    own_call: Option<OwnCall>,
    closing: Option<OwnedTask>,
    _observed: EndNotifier,
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
        let line = move |order| tell(&session, Msg::Budget(order));
        let budget_handle = BudgetHandle::new(self.settings.budget, accounts.last_request, line);
        let mut state = State {
            writer: Supervised::new("TranscriptWriter", tree.writer, budget()),
            coordinator: Supervised::new("PermissionCoordinator", tree.coordinator, budget()),
            model_routes: clients.model_routes(&self.ports),
            summariser: clients.of_role(self.settings.context.compact.as_ref()),
            compacting: None,
            title: self.title(&clients),
            meter: ContextMeter::default(),
            subagents: self.subagents(&me, &clients),
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
            _observed: self.end_notifier(),
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
            Msg::MainRun(msg) => self.handle_main_run(&me, msg, state).await?,
            Msg::Subagents(msg) => self.handle_subagents(&me, msg, state).await?,
            Msg::Budget(order) => state.budget_keeper.take(order),
            Msg::Compactor(msg) => self.handle_compactor(&me, msg, state),
            Msg::Titler(msg) => self.handle_titler(&me, msg, state),
            Msg::Jobs(msg) => self.handle_jobs(&me, msg, state),
            Msg::End(msg) => self.handle_end(&me, msg, state).await,
            Msg::Warn(message) => self.transcript.note(None, Event::Warning { message }),
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
            // Subagents that end normally were stopped by the session.
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
