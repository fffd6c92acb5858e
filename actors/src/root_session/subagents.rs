//! Subagents: each is started with a permit and recorded, and rebuilt after a crash. Its end is
//! recorded before its caller is informed.
//!
//! Every subagent is a child actor of the session, not of its caller, so a crash of the caller
//! loses no work. Stopping proceeds from the deepest upwards.

mod completion;
mod isolated_workspaces;
mod queue;
mod resume;
mod stopping;
mod subagent_config;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorId, ActorRef, RpcReplyPort, SpawnErr};
use tokio::sync::oneshot;

use crate::agent_invocation::Resumed;
use crate::agent_invocation::{
    self, AgentInvocation, InvocationOutcome, RequestOptions, TimeLimit,
};
use crate::conversation::{CallId, ContentPart, InvocationId, Message};
use crate::delegation::{
    ActionLog, BackgroundWork, DelegationRequest, Forget, StartRequest, SubagentEnd, SubagentInfo,
    depth_of,
};
use crate::event::{Event, Origin};
use crate::governor::{FreedBy, Governor, Permit, PermitRequest, RunTime, SubagentRefusal};
use crate::mailbox::{self, AliveToken, AllGone, HandlerResult, Lost, Report, answer, spawn_child};
use crate::outcome::{Ending, Memories};
use crate::ports::ToolSpec;
use crate::replay::{Delegated, QueuedInput, Replayed};
use crate::restarts::RestartBudget;
use crate::root_session::budget::SessionBudget;
use crate::root_session::supervised::clients::Clients;
use crate::root_session::{Msg, SessionBase, State};
use crate::tool_call::Services;

use isolated_workspaces::{Closed, Reopened, SubagentWorkspace};
use queue::QueuedSubagent;
use stopping::StopInProgress;
use subagent_config::SubagentConfig;

/// Messages about subagents.
#[derive(strum::IntoStaticStr)]
pub(super) enum SubagentsMsg {
    /// A request of a delegation tool.
    Request(DelegationRequest),
    /// A concurrency slot may be free: start queued subagents.
    PlaceFreed,
    /// The grace period of this number is over: kill the subagents that were asked to stop and still
    /// run.
    /// `None`: the timer of a grace period was dropped.
    Overdue(Option<u64>),
    /// The invocation ended or crashed before it accepted this message.
    Undelivered(InvocationId, QueuedInput),
    /// Reopening the isolated workspace of a subagent succeeded or failed.
    Reopened(InvocationId, Reopened),
    /// The isolated workspace of a subagent that has ended was examined, or this failed.
    Closed(InvocationId, Closed),
    /// The invocation of a subagent has ended; `Err` if its actor crashed.
    #[strum(serialize = "InvocationEnded")]
    Ended(InvocationId, Result<InvocationOutcome, Lost>),
    /// The records of a crashed or resumed subagent were read back from the journal, or could not
    /// be read.
    Reread(InvocationId, Box<Result<Replayed, String>>),
    /// Delete the given part of the memory of subagents, and reply with the rest.
    Memories(Forget, RpcReplyPort<Memories>),
}

/// All subagents of the session, their start requests and messages, and the governor.
#[derive(Default)]
pub(super) struct Subagents {
    governor: Option<Governor>,
    kinds: Vec<SubagentConfig>,
    all: BTreeMap<u32, Child>,
    /// Start requests that wait for a concurrency slot, in order.
    waiting: VecDeque<QueuedSubagent>,
    /// Messages for invocations that are being rebuilt after a crash or resumed from the journal, each
    /// with the id of its recipient.
    pending: Vec<(InvocationId, QueuedInput)>,
    stopping: Option<StopInProgress>,
    /// Number of grace periods that have begun.
    grace_periods: u64,
    /// Subagents that were running when an earlier process ended, and are not resumed yet.
    returning: Vec<Delegated>,
    /// Subagents of the main agent that ended while it was being stopped, or that an earlier
    /// process stopped. Their ends are reported to the main agent with its next prompt, so that it
    /// can resume them.
    stopped: Vec<InvocationId>,
}

#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
struct Child {
    origin: Arc<Origin>,
    /// Origin of its caller.
    caller: Arc<Origin>,
    kind: usize,
    call_id: CallId,
    task: String,
    /// True if its caller does not wait for it.
    background: bool,
    /// True if its caller wants a brief answer.
    brief: bool,
    /// True if its caller is being rebuilt and will ask for its end.
    expected: bool,
    /// True if an earlier process has started it and it has not continued yet.
    returned: bool,
    turns_max: Option<u32>,
    permit: Permit,
    /// Its isolated workspace; `None` if it has none.
    workspace: Option<SubagentWorkspace>,
    began: Duration,
    /// Two amounts in billionths of a dollar: cost since its last start in earlier processes, and
    /// cost before its last start in this process.
    cost: (u64, u64),
    /// Files that its calls named; empty until it has ended.
    files: Vec<String>,
    /// Log of its calls; `None` until it has ended, or if unknown.
    actions: Option<ActionLog>,
    waiter: Option<oneshot::Sender<Arc<SubagentEnd>>>,
    /// Its actor. `None` while it is rebuilt or resumed from the journal, and after its end.
    actor: Option<ActorRef<agent_invocation::Msg>>,
    absence: Option<AllGone>,
    rereading: Option<mailbox::OwnedTask>,
    restarts: RestartBudget,
    /// Ending with which it was asked to stop; `None` if it was not.
    stopping: Option<Ending>,
    ended: Option<(Arc<SubagentEnd>, Duration)>,
}

impl Child {
    fn id(&self) -> &InvocationId {
        &self.origin.invocation_id
    }

    /// Known cost of the subagent since its last start, in billionths of a dollar; `None` if no
    /// cost is known.
    fn cost_so_far(&self, budget: &SessionBudget) -> Option<u64> {
        let (carried, before) = self.cost;
        let here = budget.cost_of(self.id()).map(|cost| cost.saturating_sub(before));
        match (here, carried) {
            (None, 0) => None,
            (here, carried) => Some(here.unwrap_or_default().saturating_add(carried)),
        }
    }

    /// Its description as background work; `None` if its caller waits for it.
    fn background_work(&self) -> Option<BackgroundWork> {
        let Child { caller, origin, task, .. } = self;
        let (caller, agent) = (Arc::clone(caller), origin.agent.clone());
        self.background.then(|| BackgroundWork { caller, agent, task: task.clone() })
    }

    fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    /// True if the main agent called it.
    fn called_by_main(&self) -> bool {
        self.caller.parent_invocation_id.is_none()
    }

    fn depth(&self) -> u32 {
        depth_of(&self.origin)
    }

    /// Services for its calls, which are those of its isolated workspace if it has one.
    fn services(&self, kind: &SubagentConfig) -> Arc<Services> {
        let services = kind.services(self.turns_max);
        self.workspace
            .as_ref()
            .map_or_else(|| Arc::clone(&services), |workspace| workspace.services(&services))
    }

    /// Its system message, which is that of its isolated workspace if it has one.
    fn system(&self, kind: &SubagentConfig) -> Arc<Message> {
        match self.workspace.as_ref().and_then(SubagentWorkspace::system_prompt) {
            Some(prompt) => Arc::new(Message::System { content: prompt.to_owned() }),
            None => Arc::clone(&kind.system),
        }
    }

    /// Descriptions of its tools. A subagent in an isolated workspace cannot call other agents.
    fn specs(&self, kind: &SubagentConfig) -> Arc<[ToolSpec]> {
        if self.workspace.is_some() { kind.own_specs() } else { kind.specs(&self.permit) }
    }

    /// Event that records the start of its invocation.
    fn started(&self, kind: &SubagentConfig) -> Event {
        kind.started(&self.specs(kind))
    }

    /// Event that records its tools.
    fn tool_policy(&self, kind: &SubagentConfig) -> Event {
        kind.tool_policy(&self.specs(kind), self.workspace.is_some())
    }

    /// Event that records the request to start it.
    fn requested(&self, kind: &SubagentConfig) -> Event {
        Event::InvocationRequested {
            child_invocation_id: self.id().clone(),
            target: kind.name.clone(),
            call_id: self.call_id.clone(),
            provider: kind.info.profile.clone(),
            task: self.task.clone(),
            background: self.background,
            brief: self.brief,
            workplace: self.workspace.as_ref().map(|workspace| workspace.cwd.clone()),
        }
    }
}

impl Subagents {
    pub(super) fn any_live(&self) -> bool {
        self.governor.as_ref().is_some_and(|governor| governor.living() > 0)
    }

    fn find(&mut self, id: &InvocationId) -> Option<&mut Child> {
        self.all.values_mut().rev().find(|child| child.id() == id)
    }

    pub(super) fn has(&self, id: &InvocationId) -> bool {
        self.all.values().rev().any(|child| child.id() == id)
    }

    /// The subagent that `caller` started with `call`; `None` if there is none.
    fn by_call(&mut self, call: &CallId, caller: &Origin) -> Option<&mut Child> {
        let theirs = |child: &&mut Child| {
            child.call_id == *call && child.caller.invocation_id == caller.invocation_id
        };
        self.all.values_mut().rev().find(theirs)
    }

    pub(super) fn running(&self, actor: ActorId) -> Option<InvocationId> {
        let is =
            |child: &&Child| child.actor.as_ref().is_some_and(|running| running.get_id() == actor);
        self.all.values().find(is).map(|child| child.id().clone())
    }

    /// Index of the ended subagent `id` that `start` is to resume. `Err`: reason why it cannot be
    /// resumed.
    fn resumable(&self, id: &InvocationId, start: &StartRequest) -> Result<u32, String> {
        let is_main = start.origin.parent_invocation_id.is_none();
        // The main agent has a new invocation id with each prompt.
        let theirs = |child: &Child| {
            child.id() == id
                && (child.caller.invocation_id == start.origin.invocation_id
                    || (is_main && child.called_by_main()))
        };
        let found = self.all.iter().rev().find(|(_, child)| theirs(child));
        let Some((nth, child)) = found else {
            return Err(format!("You have started no agent {id}; agent_status lists yours."));
        };
        if child.is_live() {
            return Err(format!("{id} is still at work: agent_result waits for its answer."));
        }
        if child.kind != start.subagent {
            return Err(format!("{id} is {}: name that agent.", child.origin.agent));
        }
        Ok(*nth)
    }

    /// True if the invocation `above` started `child`, directly or through other subagents. False
    /// for subagents that the main agent started in an earlier prompt, because its invocation id
    /// changes.
    fn is_below(&self, child: &Child, above: &InvocationId) -> bool {
        let mut caller = &child.caller;
        loop {
            if caller.invocation_id == *above {
                return true;
            }
            let next = self.all.values().find(|one| one.id() == &caller.invocation_id);
            match next {
                Some(next) => caller = &next.caller,
                None => return false,
            }
        }
    }
}

impl State {
    pub(super) async fn handle_subagents(&mut self, msg: SubagentsMsg) -> HandlerResult {
        match msg {
            SubagentsMsg::Request(DelegationRequest::Start(start, report)) => {
                let placed = || start.workplace.as_ref().map(|(id, _)| id.clone());
                let id = start.resume.clone().or_else(placed);
                let id = id.unwrap_or_else(|| self.base.ports.ids.invocation());
                let waiting = QueuedSubagent { id, start: *start, report };
                self.delegate(waiting).await?;
            }
            SubagentsMsg::Request(DelegationRequest::Attach(call, caller, report)) => {
                report.send(self.subagents.attach(&call, &caller));
            }
            SubagentsMsg::Request(DelegationRequest::Detach(call, caller, report)) => {
                report.send(self.subagents.detach(&call, &caller));
            }
            SubagentsMsg::Request(DelegationRequest::Query(origin, report)) => {
                report.send(self.status_below(&origin));
            }
            SubagentsMsg::PlaceFreed => self.start_queued().await?,
            SubagentsMsg::Overdue(Some(period)) => self.stop_overdue(period),
            SubagentsMsg::Overdue(None) => {}
            SubagentsMsg::Undelivered(parent, queued) => {
                self.requeue_undelivered(&parent, queued);
            }
            SubagentsMsg::Reopened(id, opened) => self.reopened(&id, opened),
            SubagentsMsg::Closed(id, left) => self.workspace_closed(&id, left),
            SubagentsMsg::Ended(id, left) => self.child_ended(&id, left),
            SubagentsMsg::Reread(id, replayed) => {
                self.child_reread(&id, *replayed).await?;
            }
            SubagentsMsg::Memories(forget, reply) => answer(reply, self.base.memories(forget)),
        }
        Ok(())
    }

    /// Requests a permit for the subagent `id` from the governor, within the depth limits of its
    /// callers. `ahead`: number of start requests queued before this one. `Err`: the limit that
    /// refuses it.
    fn admit_child(
        &mut self,
        id: &InvocationId,
        start: &StartRequest,
        ahead: usize,
    ) -> Result<Permit, SubagentRefusal> {
        let now = self.base.ports.clock.monotonic();
        self.base.own_depth(start)?;
        // The task as a whole may have a limit, which its subagents share.
        let run_time = self.main_run.began().and_then(|began| {
            let max = self.base.settings.limits.duration_max?;
            Some(RunTime { max, left: max.saturating_sub(now.saturating_sub(began)) })
        });
        let kind = self.subagents.kinds.get(start.subagent);
        let own = kind.and_then(|kind| kind.duration_max);
        let left_budget = self.budget.left();
        let request = PermitRequest {
            parent: start
                .origin
                .parent_invocation_id
                .is_some()
                .then(|| start.origin.invocation_id.clone()),
            duration_max: own,
            run_time,
            waits: !start.background,
            ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            tokens_left: left_budget.tokens,
            micro_usd_left: left_budget.micro_usd,
            ..PermitRequest::default()
        };
        match &mut self.subagents.governor {
            Some(governor) => governor.admit(id, &request, now),
            None => Err(SubagentRefusal::single_agent()),
        }
    }

    /// Entries of all subagents that `origin` started directly or indirectly, including queued and
    /// ended ones; for the main agent, of all subagents of the session.
    fn status_below(&self, origin: &Origin) -> Vec<SubagentInfo> {
        let children = &self.subagents;
        let now = self.base.ports.clock.monotonic();
        let is_main = origin.parent_invocation_id.is_none();
        let below = |child: &&Child| is_main || children.is_below(child, &origin.invocation_id);
        let seen = |child: &Child| SubagentInfo {
            id: child.id().clone(),
            path: child.origin.agent_path.clone(),
            state: match (&child.ended, &child.stopping, &child.actor) {
                (Some((ended, _)), ..) => ended.outcome.to_string(),
                _ if child.workspace.as_ref().is_some_and(SubagentWorkspace::is_closing) => {
                    "ending".to_owned()
                }
                (None, Some(_), _) => "stopping".to_owned(),
                (None, None, None) => "restarting".to_owned(),
                (None, None, Some(_)) => "running".to_owned(),
            },
            task: child.task.clone(),
            cost_nano_usd: match &child.ended {
                Some((ended, _)) => ended.cost_nano_usd,
                None => child.cost_so_far(&self.budget),
            },
            took: child.ended.as_ref().map_or(now, |(_, at)| *at).saturating_sub(child.began),
            ended: child.ended.as_ref().map(|(ended, _)| Arc::clone(ended)),
        };
        let all = children.all.values().filter(below).map(seen);
        all.chain(children.queued_status(origin)).collect()
    }

    /// True if the agent `origin` is being stopped or does not run any more.
    fn is_stopping(&self, origin: &Origin) -> bool {
        let id = &origin.invocation_id;
        let child = self.subagents.all.values().find(|child| child.id() == id);
        match (self.main_run.is(id), child) {
            (true, _) => self.main_run.is_stopping() || self.subagents.stops_main(),
            (false, Some(child)) => child.stopping.is_some() || !child.is_live(),
            // No such subagent is running.
            (false, None) => true,
        }
    }
}

impl SessionBase {
    /// Initial state without subagents, connected to the delegation tools if the session has them.
    pub(super) fn subagents(&self, clients: &Clients) -> Subagents {
        let Some(delegation_handle) = &self.delegation_handle else { return Subagents::default() };
        let session = self.me.clone();
        delegation_handle.open(move |request| {
            mailbox::tell(&session, Msg::Subagents(SubagentsMsg::Request(request)));
        });
        Subagents {
            governor: Some(Governor::new(delegation_handle.delegation.limits.clone())),
            kinds: self.kinds(delegation_handle, clients),
            ..Subagents::default()
        }
    }

    /// Deletes the given part of the memory of subagents, records this if it contained something,
    /// and returns the rest; empty in single-agent mode.
    fn memories(&self, forget: Forget) -> Memories {
        let Some(delegation_handle) = &self.delegation_handle else { return Memories::default() };
        if delegation_handle.memories.lock().forget(&forget) > 0 {
            let agent = match forget {
                Forget::Of(agent) => Some(agent),
                Forget::Nothing | Forget::Everything => None,
            };
            self.transcript.note(None, Event::MemoryForgotten { agent });
        }
        delegation_handle.memories.lock().clone()
    }

    /// Creates the entry of a subagent for a start request, and the content of the message with its
    /// task. The subagent is not started yet.
    fn child_for(
        &self,
        id: InvocationId,
        kind: &SubagentConfig,
        start: StartRequest,
        permit: Permit,
    ) -> (Child, Vec<ContentPart>) {
        let StartRequest {
            call_id,
            origin: caller,
            subagent,
            handoff,
            background,
            brief,
            turns_max,
            workplace,
            ..
        } = start;
        let workspace =
            workplace.map(|(_, place)| SubagentWorkspace::open(place, &self.services.tools));
        let origin = Arc::new(Origin {
            invocation_id: id,
            parent_invocation_id: Some(caller.invocation_id.clone()),
            agent: kind.name.clone(),
            agent_path: format!("{}/{}", caller.agent_path, kind.name),
        });
        let idle = self.idle((origin, caller), subagent, call_id, permit);
        let child = Child { task: handoff.task, background, brief, turns_max, workspace, ..idle };
        (child, vec![ContentPart::text(handoff.text)])
    }

    /// Creates the entry of a subagent without a task and without an actor.
    fn idle(
        &self,
        (origin, caller): (Arc<Origin>, Arc<Origin>),
        kind: usize,
        call_id: CallId,
        permit: Permit,
    ) -> Child {
        let limits = &self.settings.limits;
        Child {
            origin,
            caller,
            kind,
            call_id,
            task: String::new(),
            background: false,
            brief: false,
            expected: false,
            returned: false,
            turns_max: None,
            permit,
            workspace: None,
            began: self.ports.clock.monotonic(),
            cost: (0, 0),
            files: Vec::new(),
            actions: None,
            waiter: None,
            actor: None,
            absence: None,
            rereading: None,
            restarts: RestartBudget::new(limits.restarts_max, limits.restart_window),
            stopping: None,
            ended: None,
        }
    }

    /// Adds a subagent to the list of running background work, if its caller does not wait for it.
    fn register_background(&self, child: &Child) {
        if let (Some(delegation_handle), Some(background_work)) =
            (&self.delegation_handle, child.background_work())
        {
            delegation_handle.background.lock().insert(child.id().clone(), background_work);
        }
    }

    /// Checks the maximum depths in the definitions of the subagents above the new one. `Err`: the
    /// refusal if one is exceeded.
    fn own_depth(&self, start: &StartRequest) -> Result<(), SubagentRefusal> {
        let depth = depth_of(&start.origin) + 1;
        let Some(delegation_handle) = &self.delegation_handle else { return Ok(()) };
        for (above, name) in (0..).zip(start.origin.agent_path.split('/')).skip(1) {
            let limit =
                delegation_handle.subagent(name).and_then(|(_, subagent)| subagent.depth_max);
            if let Some(max) = limit.filter(|max| depth - above > *max) {
                let frees = FreedBy::CallersOwnWork;
                return Err(SubagentRefusal {
                    limit: "delegation.maxDepth",
                    value: max.into(),
                    left: 0,
                    frees,
                });
            }
        }
        Ok(())
    }

    async fn start_child(
        &self,
        child: &mut Child,
        kind: &SubagentConfig,
        messages: Vec<Arc<Message>>,
        resumed: Resumed,
    ) -> Result<(), SpawnErr> {
        let mut history = Vec::with_capacity(messages.len() + 1);
        history.push(child.system(kind));
        history.extend(messages);
        // Results of unfinished calls are at the end.
        history.truncate(history.len() - resumed.pending.len());
        let id = child.id().clone();
        let (presence, absence) = AliveToken::new();
        let now = self.ports.clock.monotonic();
        let args = agent_invocation::Args {
            origin: Arc::clone(&child.origin),
            services: child.services(kind),
            model_routes: kind.model_routes.clone(),
            options: RequestOptions {
                thinking: kind.thinking,
                temperature: kind.temperature,
                ..self.settings.options.clone()
            },
            tools: child.specs(kind),
            history,
            resumed,
            time: child.permit.until.map(|until| TimeLimit {
                whole: until.saturating_sub(child.began),
                left: until.saturating_sub(now),
            }),
            tokens_max: child.permit.tokens,
            fitter: kind.fitter(),
            presence,
            report: Report::to(&self.me, move |left| Msg::Subagents(SubagentsMsg::Ended(id, left))),
        };
        child.actor = Some(spawn_child(AgentInvocation, args, &self.me).await?);
        child.absence = Some(absence);
        Ok(())
    }
}
