//! Agents that work in a place of their own: how they get there again, and what is found there when
//! they have ended, before anybody hears that they have.

use std::sync::Arc;

use ractor::ActorRef;
use tokio::task::JoinError;

use crate::agent_invocation::Ending;
use crate::conversation::{InvocationId, Usage};
use crate::delegation::{LeftBelow, NO_PLACE};
use crate::event::Origin;
use crate::mailbox::{OwnedTask, spawn_task};
use crate::ports::{IsolatedWorkspace, Toolbox, WorkLeft, WorktreeSummary};
use crate::root_session::children::{Child, ChildMsg, Children};
use crate::root_session::{Msg, RootSession, State};
use crate::tool_call::Services;

/// What came of opening a place again.
pub(in crate::root_session) type Reopened = Result<Result<IsolatedWorkspace, String>, JoinError>;
/// What came of looking at what is in one.
pub(in crate::root_session) type Closed = Result<Result<Option<WorkLeft>, String>, JoinError>;

/// Where one agent works that has a place of its own.
pub(in crate::root_session) struct Room {
    pub(super) cwd: String,
    /// `None` until it is opened again.
    place: Option<IsolatedWorkspace>,
    /// Its tools, and those of the session that work nowhere in particular.
    tools: Option<Arc<Toolbox>>,
    /// How its agent has ended, while it is found out what that left.
    ending: Option<(Ending, (u32, Usage), OwnedTask)>,
    /// What is there of it.
    remains: Option<WorktreeSummary>,
}

impl Room {
    /// One that is open.
    pub(super) fn open(place: IsolatedWorkspace, session: &Toolbox) -> Room {
        let mut room = Room::known(place.cwd.clone());
        room.take(place, session);
        room
    }

    /// One that an agent has had.
    pub(super) fn known(cwd: String) -> Room {
        Room { cwd, place: None, tools: None, ending: None, remains: None }
    }

    fn take(&mut self, place: IsolatedWorkspace, session: &Toolbox) {
        self.tools = Some(Arc::new(session.with(&place.tools)));
        self.place = Some(place);
    }

    /// Its agent has ended, and what it left is looked at.
    pub(super) fn is_closing(&self) -> bool {
        self.ending.is_some()
    }

    /// What is there of it, once that was looked at.
    pub(super) fn remains(&self) -> Option<WorktreeSummary> {
        self.remains.clone()
    }

    /// What the calls of its agent share.
    pub(super) fn services(&self, of_kind: &Arc<Services>) -> Arc<Services> {
        let (Some(place), Some(tools)) = (&self.place, &self.tools) else {
            return Arc::clone(of_kind);
        };
        Arc::new(Services {
            tools: Arc::clone(tools),
            policy: Arc::clone(&place.policy),
            cwd: place.cwd.clone(),
            ..(**of_kind).clone()
        })
    }

    /// What its agent is told.
    pub(super) fn system_prompt(&self) -> Option<&str> {
        self.place.as_ref().map(|place| place.system_prompt.as_str())
    }
}

impl Children {
    /// Whether `origin` works in a place of its own: nobody can work for it there.
    pub(super) fn is_in_room(&self, origin: &Origin) -> bool {
        let child = self.all.values().rev().find(|child| *child.id() == origin.invocation_id);
        child.is_some_and(|child| child.room.is_some())
    }
}

impl RootSession {
    /// Who is asked to go on is told of its place.
    pub(super) fn knows_room(&self, child: &Child) {
        if let Some(desk) = self.desk.as_ref().filter(|_| child.room.is_some()) {
            desk.rooms().insert(child.id().clone());
        }
    }

    /// Lets an agent that is known go on from its records, in its own place if it had one. `anew`:
    /// where that is gone, in a new one, as it was told.
    pub(super) fn wake(&self, me: &ActorRef<Msg>, child: &Child, anew: bool) -> OwnedTask {
        let id = child.id().clone();
        let room = child.room.as_ref().filter(|room| room.place.is_none());
        if room.is_none() {
            return self.reread_child(me, &id, None);
        }
        let workplaces = self.desk.as_ref().and_then(|desk| desk.delegation.workplaces.clone());
        let (whose, agent) = (id.clone(), child.origin.agent.clone());
        let caller = Arc::clone(&child.caller);
        let work = async move {
            match workplaces {
                Some(workplaces) if anew && !workplaces.is_there(&whose) => {
                    let opened = workplaces.open(&whose, &agent, &caller).await;
                    opened.map_err(|why| format!("it is gone, and there can be no new one: {why}"))
                }
                Some(workplaces) => workplaces.reopen(&whose, &agent).await,
                None => Err("there are no worktrees here".to_owned()),
            }
        };
        spawn_task(me, work, move |opened| Msg::Children(ChildMsg::Reopened(id, opened)))
    }

    /// Its place is open again, or is not there any more.
    pub(super) fn reopened(
        &self,
        me: &ActorRef<Msg>,
        id: &InvocationId,
        opened: Reopened,
        state: &mut State,
    ) {
        let Some(child) = state.children.find(id).filter(|child| child.is_live()) else { return };
        let opened = opened.unwrap_or_else(|died| Err(crate::mailbox::panic_text(died)));
        match (opened, &mut child.room) {
            (Ok(place), Some(room)) => {
                room.take(place, &self.services.tools);
                child.rereading = Some(self.reread_child(me, id, None));
            }
            (Ok(_), None) => (),
            (Err(why), _) => {
                let class = NO_PLACE.to_owned();
                let cause = format!("it cannot go on in its worktree: {why}");
                let ending = Ending::Failed { class, cause };
                self.conclude_child(me, id, &ending, (0, Usage::default()), state);
            }
        }
    }

    /// Finds out what an agent has left in its place before it is said that it has ended. `false`:
    /// there is nothing to find out, or it is known.
    pub(super) fn looks_after(
        &self,
        me: &ActorRef<Msg>,
        id: &InvocationId,
        (ending, counted): (&Ending, (u32, Usage)),
        state: &mut State,
    ) -> bool {
        let workplaces = self.desk.as_ref().and_then(|desk| desk.delegation.workplaces.clone());
        let room = state.children.find(id).and_then(|child| child.room.as_mut());
        let (Some(workplaces), Some(room)) = (workplaces, room) else { return false };
        if room.place.is_none() || room.remains.is_some() {
            return false;
        }
        if room.ending.is_none() {
            let (whose, told) = (id.clone(), id.clone());
            // Commands that the agent had in the background write no more by then.
            let released = self.released(&crate::ports::Release::Invocation(id.clone()));
            let work = async move {
                released.await;
                workplaces.close(&whose).await
            };
            let work =
                spawn_task(me, work, move |left| Msg::Children(ChildMsg::Closed(told, left)));
            room.ending = Some((ending.clone(), counted, work));
        }
        true
    }

    /// Places that those below `id` have left or will leave, where something may be to be taken over.
    pub(super) fn left_below(&self, id: &InvocationId, children: &Children) -> Vec<LeftBelow> {
        let workplaces = self.desk.as_ref().and_then(|desk| desk.delegation.workplaces.as_ref());
        let Some(workplaces) = workplaces else { return Vec::new() };
        let below = children.all.values().filter(|child| children.is_below(child, id));
        let left = below.filter_map(|child| {
            let room = child.room.as_ref().filter(|_| workplaces.is_there(child.id()))?;
            let (id, agent) = (child.id().clone(), child.origin.agent.clone());
            Some(LeftBelow { id, agent, cwd: room.cwd.clone() })
        });
        left.collect()
    }

    /// What an agent has left in its place is known.
    pub(super) fn room_closed(
        &self,
        me: &ActorRef<Msg>,
        id: &InvocationId,
        left: Closed,
        state: &mut State,
    ) {
        let Some(child) = state.children.find(id).filter(|child| child.is_live()) else { return };
        let Some(room) = &mut child.room else { return };
        let Some((ending, counted, _)) = room.ending.take() else { return };
        let cwd = room.cwd.clone();
        room.remains = Some(match left {
            Ok(Ok(None)) => WorktreeSummary { cwd, kept: false, left: None },
            Ok(Ok(left)) => WorktreeSummary { cwd, kept: true, left },
            Ok(Err(_)) | Err(_) => WorktreeSummary::unknown(cwd),
        });
        self.child_over(me, id, &ending, counted, state);
    }
}
