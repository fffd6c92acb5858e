//! Actor of a session: runs at most one main invocation at a time, supervises all other actors
//! directly or through its children, and survives their crashes.
//!
//! Its message handlers never wait for a model, a tool, a user or the disk.

mod budget;
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

use crate::delegation::DelegationHandle;
use crate::event::{Branch, Event};
use crate::ledger::{BudgetHandle, BudgetMsg};
use crate::mailbox::{HandlerResult, StartResult, tell};
use crate::ports::{Ports, ProviderInfo, ToolSpec, chain};
use crate::restarts::RestartBudget;
use crate::subscription::Feed;
use crate::tool_call::Services;
use crate::transcript_writer::{Outbox, Transcript};

pub use crate::testing_seam::FailPoints;
use handle::ChildActors;
pub use handle::{RunningPrompt, SessionHandle, StartError};
pub use main_run::own_call::UserCall;
pub use resumption::Resumption;
pub use settings::{DeliverError, PromptError, SessionEnding, SessionSettings, TurnOutcome};

use budget::SessionBudget;
use compactor::{Compactor, CompactorMsg};
use end::{EndMsg, SessionEnd};
use jobs::JobsMsg;
use main_run::{MainRun, MainRunMsg};
use subagents::{Subagents, SubagentsMsg};
use supervised::clients::Clients;
use supervised::{Supervised, SupervisedActors};
use titler::{Titler, TitlerMsg};

enum Msg {
    MainRun(MainRunMsg),
    Subagents(SubagentsMsg),
    Budget(BudgetMsg),
    Compactor(CompactorMsg),
    Titler(TitlerMsg),
    Jobs(JobsMsg),
    End(EndMsg),
    /// Announce and record an event of the front end.
    Note(Event),
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::MainRun(msg) => msg.into(),
            Msg::Subagents(msg) => msg.into(),
            Msg::Budget(_) => "Ledger",
            Msg::Compactor(msg) => msg.into(),
            Msg::Titler(msg) => msg.into(),
            Msg::Jobs(msg) => msg.into(),
            Msg::End(msg) => msg.into(),
            Msg::Note(_) => "Note",
        }
    }
}

struct RootSession;

/// Parts of a session that do not change: ports, settings, shared services, and the connections to
/// its actors.
struct SessionBase {
    me: ActorRef<Msg>,
    ports: Ports,
    settings: Arc<SessionSettings>,
    provider_info: ProviderInfo,
    specs: Arc<[ToolSpec]>,
    /// Delegation handle; `None` in single-agent mode.
    delegation_handle: Option<Arc<DelegationHandle>>,
    services: Arc<Services>,
    transcript: Transcript,
    feed: Feed,
    outbox: Arc<Outbox>,
}

struct State {
    base: SessionBase,
    supervised: SupervisedActors,
    main_run: MainRun,
    subagents: Subagents,
    budget: SessionBudget,
    compactor: Compactor,
    titler: Titler,
    /// Must be the last field: its drop closes the event stream if that is still open.
    end: SessionEnd,
}

/// Arguments for starting a session: ports, settings, channels for the references to transcript
/// writer and permission coordinator, and the event stream.
type SessionParts = (Ports, SessionSettings, ChildActors, Feed);

impl Actor for RootSession {
    type Msg = Msg;
    type State = State;
    type Arguments = SessionParts;

    async fn pre_start(
        &self,
        me: ActorRef<Msg>,
        (ports, settings, tree, feed): SessionParts,
    ) -> StartResult<State> {
        let base = SessionBase::new(me, ports, settings, &tree, feed);
        let settings = Arc::clone(&base.settings);
        let budget =
            || RestartBudget::new(settings.limits.restarts_max, settings.limits.restart_window);
        let own = base.delegation_handle.iter().flat_map(|handle| &handle.delegation.subagents);
        let own = own.filter_map(|one| Some((one.provider.as_ref()?, one.price.clone())));
        let context = &settings.context;
        let roles = context.compact.iter().chain(&context.title);
        let own = own.chain(roles.map(|role| (&role.provider, role.price.clone())));
        let clients = Clients::new(&base.ports, settings.price.as_ref(), own, budget);
        base.subscribe_notices();
        let (session, accounts) = (base.me.clone(), base.accounts());
        let line = move |order| tell(&session, Msg::Budget(order));
        let budget_handle = BudgetHandle::new(settings.budget, accounts.last_request, line);
        let mut state = State {
            main_run: MainRun::new(
                settings.history.clone(),
                clients.model_routes(&base.ports),
                budget(),
            ),
            subagents: base.subagents(&clients),
            budget: SessionBudget::new(budget_handle, accounts),
            compactor: Compactor::new(clients.of_role(context.compact.as_ref())),
            titler: base.titler(&clients),
            end: base.session_end(),
            supervised: SupervisedActors {
                writer: Supervised::new("TranscriptWriter", tree.writer, budget()),
                coordinator: Supervised::new("PermissionCoordinator", tree.coordinator, budget()),
                clients,
            },
            base,
        };
        state.start_supervised().await?;
        state.begin_or_resume();
        for event in settings.noted.iter().cloned() {
            state.base.transcript.note(None, event);
        }
        state.open();
        Ok(state)
    }

    async fn handle(&self, _: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        state.base.settings.fail.hit("RootSession", msg.kind());
        match msg {
            Msg::MainRun(msg) => state.handle_main_run(msg).await?,
            Msg::Subagents(msg) => state.handle_subagents(msg).await?,
            Msg::Budget(order) => state.budget.keeper.take(order),
            Msg::Compactor(msg) => state.handle_compactor(msg),
            Msg::Titler(msg) => state.handle_titler(msg),
            Msg::Jobs(msg) => state.handle_jobs(msg),
            Msg::End(msg) => state.handle_end(msg).await,
            Msg::Note(event) => state.base.transcript.note(None, event),
        }
        Ok(())
    }

    // ractor's default stops a parent with its child. A session must survive its children.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> HandlerResult {
        match event {
            SupervisionEvent::ActorFailed(child, cause) => {
                state.child_crashed(child.get_id(), &chain(&*cause)).await
            }
            // Subagents that end normally were stopped by the session.
            SupervisionEvent::ActorTerminated(..)
            | SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }
}

impl SessionBase {
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
            permission_mode: Some(self.services.mode.current()),
            instructions: self.settings.instructions.clone(),
            budget: self.settings.own_budget,
            prompt: self.settings.own_prompt.clone(),
            forked_from,
        }
    }
}
