//! Isolated workspaces of subagents in the session: reopening after a resume, and examination
//! before the end of a subagent is reported.

use std::sync::Arc;

use tokio::task::JoinError;

use crate::conversation::{InvocationId, Usage};
use crate::delegation::{UnmergedWorkspace, WORKSPACE_GONE};
use crate::event::Origin;
use crate::mailbox::{OwnedTask, spawn_task};
use crate::outcome::{Ending, WorkspaceChanges, WorktreeSummary};
use crate::ports::{IsolatedWorkspace, IsolatedWorkspaces, Toolbox};
use crate::root_session::subagents::{Child, Subagents, SubagentsMsg};
use crate::root_session::{Msg, SessionBase, State};
use crate::tool_call::{Checkpoints, Services};

/// Result of reopening an isolated workspace; the outer error is a panic.
pub(crate) type Reopened = Result<Result<IsolatedWorkspace, String>, JoinError>;
/// Changes found in an isolated workspace; `Ok(Ok(None))`: there were none, and it was removed. The
/// outer error is a panic, the inner one a failed examination.
pub(crate) type Closed = Result<Result<Option<WorkspaceChanges>, String>, JoinError>;

/// State of the isolated workspace of a subagent.
pub(crate) struct SubagentWorkspace {
    pub(super) cwd: String,
    /// The open isolated workspace; `None` until it is reopened.
    place: Option<IsolatedWorkspace>,
    /// Tools of the session, of which those that work in a folder are replaced by tools of the
    /// isolated workspace. `None` until it is reopened.
    tools: Option<Arc<Toolbox>>,
    /// Ending, number of replies and tokens of its subagent, and the task that examines the
    /// isolated workspace; `None` if it is not being examined.
    ending: Option<(Ending, (u32, Usage), OwnedTask)>,
    /// Result of the examination: if the isolated workspace still exists, and the changes in it.
    /// `None` before the examination.
    remains: Option<WorktreeSummary>,
}

impl SubagentWorkspace {
    /// Creates the state of an open isolated workspace. `session`: tools of the session.
    pub(super) fn open(place: IsolatedWorkspace, session: &Toolbox) -> SubagentWorkspace {
        let mut workspace = SubagentWorkspace::known(place.cwd.clone());
        workspace.take(place, session);
        workspace
    }

    /// Creates the state of an isolated workspace that is not open: its subagent has ended or is
    /// being resumed.
    pub(super) fn known(cwd: String) -> SubagentWorkspace {
        SubagentWorkspace { cwd, place: None, tools: None, ending: None, remains: None }
    }

    fn take(&mut self, place: IsolatedWorkspace, session: &Toolbox) {
        self.tools = Some(Arc::new(session.with(&place.tools)));
        self.place = Some(place);
    }

    /// True while the isolated workspace of an ended subagent is examined.
    pub(super) fn is_closing(&self) -> bool {
        self.ending.is_some()
    }

    /// Result of the examination at the end of its subagent; `None` before it.
    pub(super) fn summary(&self) -> Option<WorktreeSummary> {
        self.remains.clone()
    }

    /// Services for the calls of its subagent: those of its definition, with the tools, the policy
    /// and the folder of the isolated workspace if it is open.
    pub(super) fn services(&self, of_kind: &Arc<Services>) -> Arc<Services> {
        let (Some(place), Some(tools)) = (&self.place, &self.tools) else {
            return Arc::clone(of_kind);
        };
        Arc::new(Services {
            tools: Arc::clone(tools),
            policy: Arc::clone(&place.policy),
            // Its calls change a copy of the workspace.
            checkpoints: Checkpoints::none(of_kind.session_id.clone()),
            cwd: place.cwd.clone(),
            ..(**of_kind).clone()
        })
    }

    /// System prompt of its subagent; `None` if the isolated workspace is not open.
    pub(super) fn system_prompt(&self) -> Option<&str> {
        self.place.as_ref().map(|place| place.system_prompt.as_str())
    }
}

impl Subagents {
    /// True if `origin` works in an isolated workspace, where it cannot call agents.
    pub(super) fn is_isolated(&self, origin: &Origin) -> bool {
        let child = self.all.values().rev().find(|child| *child.id() == origin.invocation_id);
        child.is_some_and(|child| child.workspace.is_some())
    }
}

impl State {
    /// Reads back the records of a subagent whose isolated workspace was reopened, so that it
    /// continues; ends the subagent if reopening failed.
    pub(super) fn reopened(&mut self, id: &InvocationId, opened: Reopened) {
        let Some(child) = self.subagents.find(id).filter(|child| child.is_live()) else { return };
        let opened = opened.unwrap_or_else(|died| Err(crate::mailbox::panic_text(died)));
        match (opened, &mut child.workspace) {
            (Ok(place), Some(workspace)) => {
                workspace.take(place, &self.base.services.tools);
                child.rereading = Some(self.base.reread_child(id, None));
            }
            (Ok(_), None) => (),
            (Err(why), _) => {
                let class = WORKSPACE_GONE.to_owned();
                let cause = format!("it cannot continue in its worktree: {why}");
                let ending = Ending::Failed { class, cause };
                self.conclude_child(id, &ending);
            }
        }
    }

    /// Starts to examine the isolated workspace of a subagent before its end is reported. Returns
    /// true while the examination is in progress; false if there is nothing to examine or the
    /// result is known.
    pub(super) fn inspect_workspace(
        &mut self,
        id: &InvocationId,
        (ending, counted): (&Ending, (u32, Usage)),
    ) -> bool {
        let workplaces = self.base.factory().cloned();
        let workspace = self.subagents.find(id).and_then(|child| child.workspace.as_mut());
        let (Some(workplaces), Some(workspace)) = (workplaces, workspace) else { return false };
        if workspace.place.is_none() || workspace.remains.is_some() {
            return false;
        }
        if workspace.ending.is_none() {
            let (whose, told) = (id.clone(), id.clone());
            // Background commands of the subagent have ended by then.
            let released =
                self.base.release_and_wait(&crate::ports::BackgroundScope::Invocation(id.clone()));
            let work = async move {
                released.await;
                workplaces.close(&whose).await
            };
            let work = spawn_task(&self.base.me, work, move |left| {
                Msg::Subagents(SubagentsMsg::Closed(told, left))
            });
            workspace.ending = Some((ending.clone(), counted, work));
        }
        true
    }

    /// Stores the result of the examination and finishes the end of the subagent.
    pub(super) fn workspace_closed(&mut self, id: &InvocationId, left: Closed) {
        let Some(child) = self.subagents.find(id).filter(|child| child.is_live()) else { return };
        let Some(workspace) = &mut child.workspace else { return };
        let Some((ending, counted, _)) = workspace.ending.take() else { return };
        let cwd = workspace.cwd.clone();
        workspace.remains = Some(match left {
            Ok(Ok(None)) => WorktreeSummary { cwd, kept: false, left: None },
            Ok(Ok(left)) => WorktreeSummary { cwd, kept: true, left },
            Ok(Err(_)) | Err(_) => WorktreeSummary::unknown(cwd),
        });
        self.finish_child(id, &ending, counted);
    }
}

impl SessionBase {
    fn factory(&self) -> Option<&Arc<dyn IsolatedWorkspaces>> {
        self.delegation_handle.as_ref()?.delegation.workplaces.as_ref()
    }

    /// Registers a subagent that works in an isolated workspace, so that it can be resumed there.
    /// No effect for other subagents.
    pub(super) fn register_workspace(&self, child: &Child) {
        if let (Some(handle), Some(_)) = (&self.delegation_handle, &child.workspace) {
            handle.isolated.lock().insert(child.id().clone());
        }
    }

    /// Starts to resume a subagent from its records, in its isolated workspace if it had one. If
    /// that is gone, `replace_missing` decides: true opens a new one, false fails the subagent. The
    /// result returns as a message.
    pub(super) fn resume_from_records(&self, child: &Child, replace_missing: bool) -> OwnedTask {
        let id = child.id().clone();
        let workspace = child.workspace.as_ref().filter(|workspace| workspace.place.is_none());
        if workspace.is_none() {
            return self.reread_child(&id, None);
        }
        let workplaces = self.factory().cloned();
        let (whose, agent) = (id.clone(), child.origin.agent.clone());
        let caller = Arc::clone(&child.caller);
        let work = async move {
            match workplaces {
                Some(workplaces) if replace_missing && !workplaces.is_there(&whose) => {
                    let opened = workplaces.open(&whose, &agent, &caller).await;
                    opened.map_err(|why| format!("it is gone, and there can be no new one: {why}"))
                }
                Some(workplaces) => workplaces.reopen(&whose, &agent).await,
                None => Err("there are no worktrees here".to_owned()),
            }
        };
        spawn_task(&self.me, work, move |opened| Msg::Subagents(SubagentsMsg::Reopened(id, opened)))
    }

    /// Existing isolated workspaces of subagents below `id`, which may contain changes to merge.
    pub(super) fn unmerged_below(
        &self,
        id: &InvocationId,
        children: &Subagents,
    ) -> Vec<UnmergedWorkspace> {
        let Some(workplaces) = self.factory() else { return Vec::new() };
        let below = children.all.values().filter(|child| children.is_below(child, id));
        let left = below.filter_map(|child| {
            let workspace = child.workspace.as_ref().filter(|_| workplaces.is_there(child.id()))?;
            let (id, agent) = (child.id().clone(), child.origin.agent.clone());
            Some(UnmergedWorkspace { id, agent, cwd: workspace.cwd.clone() })
        });
        left.collect()
    }
}
