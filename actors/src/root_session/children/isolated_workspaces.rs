//! Isolated workspaces of subagents: reopening after a resume, and examination before the end of a
//! subagent is reported.

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

/// Result of reopening a workspace.
pub(in crate::root_session) type Reopened = Result<Result<IsolatedWorkspace, String>, JoinError>;
/// Result of examining a workspace.
pub(in crate::root_session) type Closed = Result<Result<Option<WorkLeft>, String>, JoinError>;

/// Isolated workspace of a subagent in the session.
pub(in crate::root_session) struct Room {
    pub(super) cwd: String,
    /// `None` until it is opened again.
    place: Option<IsolatedWorkspace>,
    /// Its tools, and those of the session that work nowhere in particular.
    tools: Option<Arc<Toolbox>>,
    /// End of its subagent, while the workspace is examined.
    ending: Option<(Ending, (u32, Usage), OwnedTask)>,
    /// State after the examination.
    remains: Option<WorktreeSummary>,
}

impl Room {
    /// An open workspace.
    pub(super) fn open(place: IsolatedWorkspace, session: &Toolbox) -> Room {
        let mut room = Room::known(place.cwd.clone());
        room.take(place, session);
        room
    }

    /// A workspace of an earlier subagent.
    pub(super) fn known(cwd: String) -> Room {
        Room { cwd, place: None, tools: None, ending: None, remains: None }
    }

    fn take(&mut self, place: IsolatedWorkspace, session: &Toolbox) {
        self.tools = Some(Arc::new(session.with(&place.tools)));
        self.place = Some(place);
    }

    /// True while the workspace of an ended subagent is examined.
    pub(super) fn is_closing(&self) -> bool {
        self.ending.is_some()
    }

    /// Its state, after the examination.
    pub(super) fn remains(&self) -> Option<WorktreeSummary> {
        self.remains.clone()
    }

    /// Services for the calls of its subagent.
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

    /// Instructions of its subagent.
    pub(super) fn system_prompt(&self) -> Option<&str> {
        self.place.as_ref().map(|place| place.system_prompt.as_str())
    }
}

impl Children {
    /// True if `origin` works in an isolated workspace, where it cannot call agents.
    pub(super) fn is_in_room(&self, origin: &Origin) -> bool {
        let child = self.all.values().rev().find(|child| *child.id() == origin.invocation_id);
        child.is_some_and(|child| child.room.is_some())
    }
}

impl RootSession {
    /// Adds the workspace to a subagent that is to be resumed.
    pub(super) fn knows_room(&self, child: &Child) {
        if let Some(desk) = self.desk.as_ref().filter(|_| child.room.is_some()) {
            desk.rooms().insert(child.id().clone());
        }
    }

    /// Resumes a known subagent from its records, in its own workspace if it had one. `anew`: if
    /// that is gone, in a new one, and the subagent is informed.
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

    /// Examines the workspace of a subagent before its end is reported. Returns false if there is
    /// nothing to examine or the result is known.
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

    /// The examination is complete.
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
