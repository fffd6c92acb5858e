//! Queue of start requests of subagents, in order of arrival. A request waits only for a
//! concurrency slot, and only if its caller waits for the result; every other limit refuses it at
//! once.
//!
//! There is no deadlock: a subagent uses the slot of a caller that waits for it, so the deepest
//! subagents always proceed, and each end frees a slot.

use ractor::SpawnErr;
use tokio::sync::oneshot;

use crate::agent_invocation::Resumed;
use crate::conversation::{InvocationId, Message};
use crate::delegation::{NotStarted, StartRequest, StartedSubagent, SubagentInfo, waiting_for};
use crate::event::{Event, Origin};
use crate::governor::Permit;
use crate::mailbox::Report;
use crate::root_session::State;
use crate::root_session::subagents::Subagents;
use crate::root_session::subagents::isolated_workspaces::SubagentWorkspace;

/// Start request of a subagent that waits in the queue.
pub(super) struct QueuedSubagent {
    /// Invocation id that the subagent will have.
    pub(super) id: InvocationId,
    pub(super) start: StartRequest,
    pub(super) report: Report<Result<StartedSubagent, NotStarted>>,
}

impl QueuedSubagent {
    /// True if the caller still wants the subagent: its call was not cancelled.
    fn is_wanted(&self) -> bool {
        self.start.wanted.strong_count() > 0
    }
}

impl Subagents {
    fn slots(&self) -> u32 {
        self.governor.as_ref().map_or(0, crate::governor::Governor::slots)
    }

    /// Entries of the new subagents below `origin` that wait in the queue. Ended subagents that
    /// wait to be resumed are left out.
    pub(super) fn queued_status(&self, origin: &Origin) -> Vec<SubagentInfo> {
        let is_main = origin.parent_invocation_id.is_none();
        let theirs = |one: &&QueuedSubagent| {
            let caller = &one.start.origin.invocation_id;
            let above = self.all.values().find(|child| child.id() == caller);
            let is_below = |child| self.is_below(child, &origin.invocation_id);
            is_main || *caller == origin.invocation_id || above.is_some_and(is_below)
        };
        let seen = |one: &QueuedSubagent| {
            let kind = self.kinds.get(one.start.subagent);
            let name = kind.map_or("", |kind| kind.name.as_str());
            SubagentInfo {
                id: one.id.clone(),
                path: format!("{}/{name}", one.start.origin.agent_path),
                state: waiting_for(self.slots()),
                task: one.start.handoff.task.clone(),
                took: std::time::Duration::ZERO,
                cost_nano_usd: None,
                ended: None,
            }
        };
        // A subagent that is to be resumed is listed already.
        let fresh = self.waiting.iter().filter(|one| one.start.resume.is_none());
        fresh.filter(|one| one.is_wanted()).filter(theirs).map(seen).collect()
    }
}

impl State {
    /// Queues a start request and starts what can start. Requests of a caller that is being
    /// stopped, or of a session that is ending or parked, are dropped; those of a caller in an
    /// isolated workspace are refused.
    pub(super) async fn delegate(&mut self, one: QueuedSubagent) -> Result<(), SpawnErr> {
        if self.end.refusal().is_err() || self.is_stopping(&one.start.origin) {
            return Ok(());
        }
        if self.subagents.is_isolated(&one.start.origin) {
            let why = "An agent with its own worktree cannot call other agents: do it yourself."
                .to_owned();
            one.report.send(Err(NotStarted::Cannot(why)));
            return Ok(());
        }
        self.subagents.waiting.push_back(one);
        self.start_queued().await
    }

    /// Starts queued subagents in order, as far as the governor grants permits. Requests that must
    /// wait, and those of callers that are being stopped, stay queued; cancelled ones are dropped;
    /// other refusals are reported to the caller. Does nothing if the session is ending or parked.
    pub(super) async fn start_queued(&mut self) -> Result<(), SpawnErr> {
        if self.end.refusal().is_err() {
            return Ok(());
        }
        let mut queue = std::mem::take(&mut self.subagents.waiting);
        while let Some(one) = queue.pop_front() {
            if !one.is_wanted() {
                continue;
            }
            // Its call is about to be stopped and reports that itself.
            if self.is_stopping(&one.start.origin) {
                self.subagents.waiting.push_back(one);
                continue;
            }
            self.try_start(one).await?;
        }
        Ok(())
    }

    async fn try_start(&mut self, mut one: QueuedSubagent) -> Result<(), SpawnErr> {
        let resumed_entry = match &one.start.resume {
            None => None,
            Some(id) => match self.subagents.resumable(id, &one.start) {
                Ok(nth) => Some(nth),
                Err(why) => {
                    one.report.send(Err(NotStarted::Cannot(why)));
                    return Ok(());
                }
            },
        };
        let ahead = self.subagents.waiting.len();
        match self.admit_child(&one.id, &one.start, ahead) {
            Ok(permit) => self.begin_child(one, resumed_entry, permit).await?,
            Err(refused) if refused.is_place_limit() && !one.start.background => {
                if let Some(queued) = one.start.queued.take() {
                    queued.send(self.subagents.slots()).ok();
                }
                self.subagents.waiting.push_back(one);
            }
            Err(refused) => one.report.send(Err(NotStarted::Limit(refused))),
        }
        Ok(())
    }

    /// Records and starts a subagent with its permit, or begins to resume it, and reports this to
    /// the caller. `resumed_entry`: index of the entry of an ended subagent that is resumed; `None`
    /// for a new one.
    async fn begin_child(
        &mut self,
        one: QueuedSubagent,
        resumed_entry: Option<u32>,
        permit: Permit,
    ) -> Result<(), SpawnErr> {
        let QueuedSubagent { id, start, report } = one;
        let Some(kind) = self.subagents.kinds.get(start.subagent) else { return Ok(()) };
        let cost_before = self.budget.cost_of(&id).unwrap_or_default();
        self.budget.give_share(&id, permit.micro_usd);
        let (waiter, ended) = oneshot::channel();
        let (mut child, content) = self.base.child_for(id.clone(), kind, start, permit);
        child.cost.1 = cost_before;
        child.waiter = (!child.background).then_some(waiter);
        if let Some(nth) = &resumed_entry {
            let before = self.subagents.all.get(nth).and_then(|before| before.workspace.as_ref());
            child.workspace =
                before.map(|workspace| SubagentWorkspace::known(workspace.cwd.clone()));
        }
        self.base.register_workspace(&child);
        self.base.transcript.note(Some(&child.caller), child.requested(kind));
        let message = Event::UserMessage { content: content.clone(), message_id: None };
        self.base.transcript.note(Some(&child.origin), message);
        self.base.transcript.note(Some(&child.origin), child.started(kind));
        self.base.transcript.note(Some(&child.origin), child.tool_policy(kind));
        if let Some(nth) = resumed_entry {
            self.subagents.all.remove(&nth);
            child.rereading = Some(self.base.resume_from_records(&child, true));
        } else {
            let messages = vec![Message::User { content }.into()];
            self.base.start_child(&mut child, kind, messages, Resumed::default()).await?;
        }
        self.base.register_background(&child);
        let background = child.background;
        let nth = self.subagents.all.last_key_value().map_or(0, |(nth, _)| nth + 1);
        self.subagents.all.insert(nth, child);
        report.send(Ok(StartedSubagent { id, background, ended }));
        Ok(())
    }
}
