//! Agents that work for others: each is started with a permit, recorded, rebuilt when it crashes, and
//! its end is recorded before whoever asked hears of it.
//!
//! Every one of them is a child of the session, not of its caller, so that a caller that crashes
//! costs nobody their work. Stopping goes from the deepest upwards.

mod ends;
mod kinds;
mod stopping;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorId, ActorRef, SpawnErr};
use tokio::sync::oneshot;

use crate::agent_invocation::{self, AgentInvocation, Ending, Fitter, Queued, RequestOptions};
use crate::conversation::{ContentPart, InvocationId, Message, Usage};
use crate::delegation::{Ended, Request, Seen, Start, Started, depth_of};
use crate::event::{Event, Origin};
use crate::governor::{Frees, Governor, Permit, Refused, Wish};
use crate::mailbox::{Absence, Beside, Handled, Presence, Report};
use crate::restarts::RestartBudget;
use crate::root_session::clients::Clients;
use crate::root_session::{Msg, RootSession, State};

use kinds::Kind;
use stopping::Stopping;

pub(super) use stopping::Reach;

/// What the children say to the session, besides how they end.
pub(super) enum ChildMsg {
    /// A tool wants something.
    Asked(Request),
    /// Those that were told to stop should have by now.
    Overdue,
    /// A message came too late for whoever it was for.
    Unheard(InvocationId, Queued),
}

/// All of them, from the first to the last.
#[derive(Default)]
pub(super) struct Children {
    governor: Option<Governor>,
    kinds: Vec<Kind>,
    all: BTreeMap<u32, Child>,
    /// Messages for those that are being rebuilt.
    pending: Vec<(InvocationId, Queued)>,
    stopping: Option<Stopping>,
}

struct Child {
    origin: Arc<Origin>,
    /// The one that it works for.
    caller: Arc<Origin>,
    kind: usize,
    call_id: crate::conversation::CallId,
    task: String,
    /// Its caller did not want to wait.
    background: bool,
    /// Its caller crashed while it waited.
    reattached: bool,
    turns_max: Option<u32>,
    permit: Permit,
    began: Duration,
    waiter: Option<oneshot::Sender<Arc<Ended>>>,
    /// `None` while it is rebuilt from the journal.
    actor: Option<ActorRef<agent_invocation::Msg>>,
    absence: Option<Absence>,
    rereading: Option<Beside>,
    restarts: RestartBudget,
    /// How it was told to end.
    stopping: Option<Ending>,
    ended: Option<(Arc<Ended>, Duration)>,
}

impl Child {
    fn id(&self) -> &InvocationId {
        &self.origin.invocation_id
    }

    fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    fn depth(&self) -> u32 {
        depth_of(&self.origin)
    }
}

impl Children {
    pub(super) fn any_live(&self) -> bool {
        self.governor.as_ref().is_some_and(|governor| governor.live() > 0)
    }

    fn find(&mut self, id: &InvocationId) -> Option<&mut Child> {
        self.all.values_mut().rev().find(|child| child.id() == id)
    }

    pub(super) fn has(&self, id: &InvocationId) -> bool {
        self.all.values().rev().any(|child| child.id() == id)
    }

    pub(super) fn running(&self, actor: ActorId) -> Option<InvocationId> {
        let is =
            |child: &&Child| child.actor.as_ref().is_some_and(|running| running.get_id() == actor);
        self.all.values().find(is).map(|child| child.id().clone())
    }

    /// Whether `above` is on the way from the root to `child`.
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

impl RootSession {
    /// Ready for the first of them; nothing, where agents work alone.
    pub(super) fn children(&self, me: &ActorRef<Msg>, clients: &Clients) -> Children {
        let Some(desk) = &self.desk else { return Children::default() };
        let session = me.clone();
        desk.open(move |request| {
            crate::mailbox::tell(&session, Msg::Children(ChildMsg::Asked(request)));
        });
        Children {
            governor: Some(Governor::new(desk.delegation.limits.clone())),
            kinds: self.kinds(desk, clients),
            ..Children::default()
        }
    }

    pub(super) async fn child_said(
        &self,
        me: &ActorRef<Msg>,
        msg: ChildMsg,
        state: &mut State,
    ) -> Handled {
        match msg {
            ChildMsg::Asked(Request::Start(start, report)) => {
                self.delegate(me, *start, report, state).await?;
            }
            ChildMsg::Asked(Request::Look(origin, report)) => {
                report.send(self.look(&origin, &state.children));
            }
            ChildMsg::Overdue => self.stop_overdue(me, state),
            ChildMsg::Unheard(parent, queued) => Self::unheard(&parent, queued, state),
        }
        Ok(())
    }

    /// Starts an agent, if there is a permit for it. Whoever is being stopped hears nothing.
    async fn delegate(
        &self,
        me: &ActorRef<Msg>,
        start: Start,
        report: Report<Result<Started, Refused>>,
        state: &mut State,
    ) -> Result<(), SpawnErr> {
        if state.ending.is_some()
            || state.parked.is_some()
            || RootSession::is_stopping(&start.origin, state)
        {
            return Ok(());
        }
        let id = self.ports.ids.invocation();
        let permit = match self.admit_child(&id, &start, state) {
            Ok(permit) => permit,
            Err(refused) => {
                report.send(Err(refused));
                return Ok(());
            }
        };
        let Start { call_id, origin: caller, deputy, handoff, background, turns_max } = start;
        let Some(kind) = state.children.kinds.get(deputy) else { return Ok(()) };
        let origin = Arc::new(Origin {
            invocation_id: id.clone(),
            parent_invocation_id: Some(caller.invocation_id.clone()),
            agent: kind.name.clone(),
            agent_path: format!("{}/{}", caller.agent_path, kind.name),
        });
        let content = vec![ContentPart::text(handoff.text)];
        self.transcript.note(
            Some(&caller),
            Event::InvocationRequested {
                child_invocation_id: id.clone(),
                target: kind.name.clone(),
                call_id: call_id.clone(),
                provider: kind.info.profile.clone(),
                task: handoff.task.clone(),
                background,
            },
        );
        let message = Event::UserMessage { content: content.clone(), message_id: None };
        self.transcript.note(Some(&origin), message);
        self.transcript.note(Some(&origin), kind.started(&permit));
        let (waiter, ended) = oneshot::channel();
        let limits = &self.settings.limits;
        let mut child = Child {
            origin,
            caller,
            kind: deputy,
            call_id,
            task: handoff.task,
            background,
            reattached: false,
            turns_max,
            permit,
            began: self.ports.clock.monotonic(),
            waiter: (!background).then_some(waiter),
            actor: None,
            absence: None,
            rereading: None,
            restarts: RestartBudget::new(limits.restarts_max, limits.restart_window),
            stopping: None,
            ended: None,
        };
        let history = vec![Arc::new(Message::User { content })];
        let fitter = self.child_fitter(state);
        let beginning = (Vec::new(), 0, Usage::default());
        self.start_child(me, &mut child, kind, (history, fitter), beginning).await?;
        let nth = state.children.all.last_key_value().map_or(0, |(nth, _)| nth + 1);
        state.children.all.insert(nth, child);
        report.send(Ok(Started { id, ended }));
        Ok(())
    }

    fn admit_child(
        &self,
        id: &InvocationId,
        start: &Start,
        state: &mut State,
    ) -> Result<Permit, Refused> {
        let now = self.ports.clock.monotonic();
        self.own_depth(start)?;
        // The task as a whole may have a limit, which its parts share.
        let left = state.main.as_ref().and_then(|main| {
            let max = self.settings.limits.duration_max?;
            Some(max.saturating_sub(now.saturating_sub(main.began)))
        });
        let kind = state.children.kinds.get(start.deputy);
        let own = kind.and_then(|kind| kind.duration_max);
        let wish = Wish {
            parent: start
                .origin
                .parent_invocation_id
                .is_some()
                .then(|| start.origin.invocation_id.clone()),
            duration_max: [left, own].into_iter().flatten().min(),
            tokens_max: None,
        };
        match &mut state.children.governor {
            Some(governor) => governor.admit(id, &wish, now),
            None => Err(Refused { limit: "agentMode", value: 0, left: 0, frees: Frees::OwnWork }),
        }
    }

    /// An agent may say itself how deep others may go below it.
    fn own_depth(&self, start: &Start) -> Result<(), Refused> {
        let depth = depth_of(&start.origin) + 1;
        let Some(desk) = &self.desk else { return Ok(()) };
        for (above, name) in (0..).zip(start.origin.agent_path.split('/')).skip(1) {
            let limit = desk.deputy(name).and_then(|(_, deputy)| deputy.depth_max);
            if let Some(max) = limit.filter(|max| depth - above > *max) {
                let frees = Frees::OwnWork;
                return Err(Refused {
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
        me: &ActorRef<Msg>,
        child: &mut Child,
        kind: &Kind,
        (messages, fitter): (Vec<Arc<Message>>, Fitter),
        (queued, turns, usage): (Vec<Queued>, u32, Usage),
    ) -> Result<(), SpawnErr> {
        let mut history = Vec::with_capacity(messages.len() + 1);
        history.push(Arc::clone(&kind.system));
        history.extend(messages);
        let id = child.id().clone();
        let (presence, absence) = Presence::new();
        let now = self.ports.clock.monotonic();
        let args = agent_invocation::Args {
            origin: Arc::clone(&child.origin),
            services: kind.services(child.turns_max),
            contacts: kind.contacts.clone(),
            options: RequestOptions { thinking: kind.thinking, ..self.settings.options.clone() },
            tools: kind.specs(&child.permit),
            history,
            pending: Vec::new(),
            queued,
            turns,
            usage,
            time_left: child.permit.until.map(|until| until.saturating_sub(now)),
            tokens_max: child.permit.tokens,
            fitter,
            presence,
            report: Report::to(me, move |outcome| Msg::InvocationEnded(id, outcome)),
        };
        child.actor = Some(AgentInvocation::start(args, me).await?);
        child.absence = Some(absence);
        Ok(())
    }

    /// What `origin` may know of the others: everything below it.
    fn look(&self, origin: &Origin, children: &Children) -> Vec<Seen> {
        let now = self.ports.clock.monotonic();
        let is_main = origin.parent_invocation_id.is_none();
        let below = |child: &&Child| is_main || children.is_below(child, &origin.invocation_id);
        let seen = |child: &Child| Seen {
            id: child.id().clone(),
            path: child.origin.agent_path.clone(),
            state: match (&child.ended, &child.stopping, &child.actor) {
                (Some((ended, _)), ..) => ended.outcome.to_string(),
                (None, Some(_), _) => "stopping".to_owned(),
                (None, None, None) => "restarting".to_owned(),
                (None, None, Some(_)) => "running".to_owned(),
            },
            task: child.task.clone(),
            took: child.ended.as_ref().map_or(now, |(_, at)| *at).saturating_sub(child.began),
            ended: child.ended.as_ref().map(|(ended, _)| Arc::clone(ended)),
        };
        children.all.values().filter(below).map(seen).collect()
    }

    /// Whether whoever this is about is being stopped.
    fn is_stopping(origin: &Origin, state: &State) -> bool {
        let id = &origin.invocation_id;
        let main = state.main.as_ref().filter(|main| main.origin.invocation_id == *id);
        let child = state.children.all.values().find(|child| child.id() == id);
        match (main, child) {
            (Some(main), _) => main.stopping.is_some() || state.children.stops_main(),
            (None, Some(child)) => child.stopping.is_some() || !child.is_live(),
            // Nobody by that name is at work any more.
            (None, None) => true,
        }
    }
}
