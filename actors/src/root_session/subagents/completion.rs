//! Ends of subagents: recorded first, then reported to the current incarnation of their caller.
//! Also the rebuilding of crashed subagents.

use std::sync::Arc;

use ractor::ActorRef;

use crate::agent_invocation::Resumed;
use crate::agent_invocation::{self, InvocationOutcome as Left, ended_event};
use crate::conversation::{CallId, InvocationId, Usage};
use crate::delegation::{FinishedTask, SubagentEnd, WORKSPACE_GONE, files_of, notice_id};
use crate::event::{Event, MessageKind, Origin};
use crate::governor::SubagentUsage;
use crate::mailbox::{HandlerResult, Lost, Report, tell};
use crate::outcome::{Ending, SubagentOutcome, WorktreeSummary};
use crate::ports::BackgroundScope;
use crate::provider_client;
use crate::replay::{QueuedInput, Replayed};
use crate::root_session::budget::NANO_IN_MICRO;
use crate::root_session::main_run::recovery::journal_failed;
use crate::root_session::main_run::resume::pending;
use crate::root_session::subagents::isolated_workspaces::SubagentWorkspace;
use crate::root_session::subagents::subagent_config::SubagentConfig;
use crate::root_session::subagents::{Child, Subagents, SubagentsMsg};
use crate::root_session::{Msg, SessionBase, State};

impl Subagents {
    /// Moves messages for the invocation `id` that arrived while it was rebuilt into `queued`,
    /// except those that are in it already.
    pub(crate) fn take_pending(&mut self, id: &InvocationId, queued: &mut Vec<QueuedInput>) {
        let theirs = self.pending.extract_if(.., |(whose, _)| whose == id);
        for (_, message) in theirs {
            if !queued.iter().any(|known| known.id == message.id) {
                queued.push(message);
            }
        }
    }
}

impl State {
    pub(crate) fn child_ended(&mut self, id: &InvocationId, left: Result<Left, Lost>) {
        // Supervision reports a crash as well, and restarts the invocation.
        let Ok(Left { ending, history, turns, usage, actions, .. }) = left else { return };
        let Some(child) = self.subagents.find(id).filter(|child| child.is_live()) else { return };
        if let Some(actor) = child.actor.take() {
            actor.stop(None);
        }
        child.files = files_of(&history);
        child.actions = Some(actions);
        self.finish_child(id, &ending, (turns, usage));
    }

    /// Ends a subagent that has no actor to report its end: records the end with `ending`, 0
    /// replies and no tokens, and reports it. No effect if it has ended already, or its isolated
    /// workspace is being examined.
    pub(super) fn conclude_child(&mut self, id: &InvocationId, ending: &Ending) {
        let (turns, usage) = (0, Usage::default());
        let Some(child) = self.subagents.find(id).filter(|child| child.is_live()) else { return };
        if child.workspace.as_ref().is_some_and(SubagentWorkspace::is_closing) {
            // It has ended already; reported once its workspace was examined.
            return;
        }
        child.rereading = None;
        self.base.transcript.note(Some(&child.origin), ended_event(ending, turns, usage));
        self.finish_child(id, ending, (turns, usage));
    }

    pub(super) fn finish_child(
        &mut self,
        id: &InvocationId,
        ending: &Ending,
        (turns, usage): (u32, Usage),
    ) {
        if self.inspect_workspace(id, (ending, (turns, usage))) {
            return;
        }
        let now = self.base.ports.clock.monotonic();
        let cost_nano_usd = self.subagents.all.values().rev().find(|child| child.id() == id);
        let cost_nano_usd = cost_nano_usd.and_then(|child| child.cost_so_far(&self.budget));
        let unmerged_below = self.base.unmerged_below(id, &self.subagents);
        self.budget.give_share(id, None);
        if let Some(delegation_handle) = &self.base.delegation_handle {
            delegation_handle.background.lock().remove(id);
        }
        let Some(child) = self.subagents.find(id) else { return };
        let (outcome, said) = SubagentOutcome::of(ending, turns);
        let agent = child.origin.agent.clone();
        let workspace = child.workspace.as_ref();
        // Nothing is known about a subagent that is gone.
        let is_gone = matches!(ending, Ending::Failed { class, .. } if class == WORKSPACE_GONE);
        let workspace = workspace.filter(|_| !is_gone);
        let workplace = workspace.map(|workspace| {
            workspace.summary().unwrap_or_else(|| WorktreeSummary::unknown(workspace.cwd.clone()))
        });
        let (id, actions, brief) = (id.clone(), child.actions.clone(), child.brief);
        let ended = SubagentEnd {
            id,
            agent,
            outcome,
            said,
            turns,
            usage,
            cost_nano_usd,
            actions,
            workplace,
            unmerged_below,
            brief,
        };
        let id = &ended.id.clone();
        let ended = Arc::new(ended);
        child.ended = Some((Arc::clone(&ended), now));
        child.absence = None;
        let caller = Arc::clone(&child.caller);
        let kinds = &self.subagents.kinds;
        if let Some(child) = self.subagents.all.values().rev().find(|child| child.id() == id) {
            // Before its caller is informed, because the caller may start the next one at once.
            self.base.remember(child, &ended, kinds);
        }
        self.base.transcript.note(Some(&caller), ended.event());
        let tokens =
            usage.input_tokens.unwrap_or_default() + usage.output_tokens.unwrap_or_default();
        if let Some(governor) = &mut self.subagents.governor {
            let micro_usd = cost_nano_usd.map(|nano| nano.div_ceil(NANO_IN_MICRO));
            governor.end(id, SubagentUsage { tokens, micro_usd });
        }
        if !self.subagents.waiting.is_empty() {
            tell(&self.base.me, Msg::Subagents(SubagentsMsg::PlaceFreed));
        }
        self.main_run.turns += turns;
        self.base.release(&BackgroundScope::Invocation(id.clone()));
        self.report_end(id, &ended);
        // The answers of its own subagents would have no reader.
        self.stop_below(id);
        self.continue_stop();
        self.close_if_idle();
    }

    /// Reports the end of the subagent `id` to its caller: as the result of its call, or as a
    /// message if the caller did not wait or crashed meanwhile. While the main agent is being
    /// stopped, nothing is reported: its next prompt mentions the subagents that it called.
    fn report_end(&mut self, id: &InvocationId, ended: &Arc<SubagentEnd>) {
        // The caller is about to be stopped, and the result must not restart it. Its next prompt
        // mentions that this subagent can be resumed.
        if self.subagents.stops_main() {
            if self.subagents.find(id).is_some_and(|child| child.called_by_main()) {
                self.subagents.stopped.push(id.clone());
            }
            return;
        }
        let Some(child) = self.subagents.find(id) else { return };
        if child.expected {
            return;
        }
        if let Some(waiter) = child.waiter.take() {
            let caller = child.caller.invocation_id.clone();
            let heard = waiter.send(Arc::clone(ended)).is_ok();
            if heard || self.is_rebuilding(&caller) {
                // A caller that is being rebuilt finds the answer when it looks for its call.
                return;
            }
        }
        self.send_end_notice(id, ended);
    }

    fn is_rebuilding(&self, id: &InvocationId) -> bool {
        let child = self.subagents.all.values().find(|child| child.id() == id);
        self.main_run.is_rebuilding(id)
            || child.is_some_and(|child| child.is_live() && child.actor.is_none())
    }

    pub(super) fn send_end_notice(&mut self, id: &InvocationId, ended: &SubagentEnd) {
        let Some(child) = self.subagents.find(id) else { return };
        let caller = Arc::clone(&child.caller);
        let queued = self.base.notice(id, (&caller, &child.call_id), ended);
        self.notify(&caller, queued);
    }

    /// Records a message from posse and delivers it to `caller`; to a caller that is being rebuilt,
    /// when it runs again. A message for the main agent waits in the queue if nothing runs; one for
    /// a subagent that has ended is dropped without a record.
    pub(crate) fn notify(&mut self, caller: &Arc<Origin>, queued: QueuedInput) {
        let note = |origin| {
            self.base.transcript.note(Some(origin), queued.event());
        };
        if caller.parent_invocation_id.is_some() {
            let above = self.subagents.find(&caller.invocation_id).filter(|above| above.is_live());
            let Some(above) = above else { return };
            note(&above.origin);
            let (id, actor) = (above.id().clone(), above.actor.clone());
            return self.send_notice(id, actor.as_ref(), queued);
        }
        // The main agent may have another prompt by now, or none.
        let Some((origin, actor)) = self.main_run.recipient() else {
            note(caller);
            return self.main_run.queue(queued);
        };
        note(&origin);
        let id = origin.invocation_id.clone();
        self.send_notice(id, actor.as_ref(), queued);
    }

    fn send_notice(
        &mut self,
        id: InvocationId,
        actor: Option<&ActorRef<agent_invocation::Msg>>,
        queued: QueuedInput,
    ) {
        let Some(actor) = actor else {
            self.subagents.pending.push((id, queued));
            return;
        };
        let (session, unheard) = (self.base.me.clone(), queued.clone());
        let report = Report::call(move |heard| {
            if heard == Err(Lost) {
                tell(&session, Msg::Subagents(SubagentsMsg::Undelivered(id, unheard)));
            }
        });
        tell(actor, agent_invocation::Msg::Notice(queued, report));
    }

    /// Handles a message that the invocation `id` did not accept before it ended or crashed. If
    /// `id` is a main invocation that has ended, the message waits for the next prompt. Otherwise
    /// nothing is done: a crashed recipient is rebuilt and finds the message in the journal.
    pub(super) fn requeue_undelivered(&mut self, id: &InvocationId, queued: QueuedInput) {
        let crashed = self.main_run.is(id) || self.subagents.has(id);
        if !crashed && !self.main_run.has_queued(&queued.id) {
            self.main_run.queue(queued);
        }
    }

    pub(crate) fn recover_subagent(&mut self, id: &InvocationId, cause: &str) {
        let Some(child) = self.subagents.find(id).filter(|child| child.is_live()) else { return };
        child.actor = None;
        // Its request would continue to cost money without a receiver.
        let model_routes = child.kind;
        let absence = child.absence.take();
        let restarts = child.stopping.is_none()
            && self.base.spend("AgentInvocation", &mut child.restarts, cause);
        if let Some(kind) = self.subagents.kinds.get(model_routes) {
            kind.model_routes.send_to_all(|| provider_client::Msg::Cancel(id.clone()));
        }
        if !restarts {
            let stopped = self.subagents.find(id).and_then(|child| child.stopping.clone());
            let ending = stopped.unwrap_or_else(|| Ending::Failed {
                class: "crashed".to_owned(),
                cause: format!("it crashed too often: {cause}"),
            });
            return self.conclude_child(id, &ending);
        }
        let work = self.base.reread_child(id, absence);
        if let Some(child) = self.subagents.find(id) {
            child.rereading = Some(work);
        }
    }

    pub(crate) async fn child_reread(
        &mut self,
        id: &InvocationId,
        replayed: Result<Replayed, String>,
    ) -> HandlerResult {
        let waits = |child: &mut Child| child.is_live() && child.actor.is_none();
        if !self.subagents.find(id).is_some_and(waits) {
            return Ok(());
        }
        match replayed {
            Ok(replayed) => return self.resume_child(id, replayed).await,
            Err(failed) => self.conclude_child(id, &journal_failed(failed)),
        }
        Ok(())
    }

    async fn resume_child(&mut self, id: &InvocationId, mut replayed: Replayed) -> HandlerResult {
        let key = self.subagents.all.iter().find(|(_, child)| child.id() == id);
        let Some(key) = key.map(|(key, _)| *key) else { return Ok(()) };
        let Some(mut child) = self.subagents.all.remove(&key) else { return Ok(()) };
        child.rereading = None;
        let lost = child.returned && self.base.has_lost_records();
        if lost {
            replayed.mark_uncertain();
        }
        let left = self.subagents.open_calls_of(&child.origin, &replayed, child.returned);
        self.base.close_open_calls(&child.origin, &replayed, &left);
        self.base.services.todos.set(&child.origin, &replayed.todos);
        let Replayed { messages, mut queued, last, actions, .. } = replayed;
        // A resumed subagent has the full number of turns.
        let (turns, usage) = last.map(|last| (last.turns, last.usage)).unwrap_or_default();
        self.subagents.take_pending(id, &mut queued);
        if lost {
            queued.push(self.base.lost_records(Some(&child.origin)));
        }
        if let Some(kind) = self.subagents.kinds.get(child.kind) {
            let resumed =
                Resumed { pending: pending(&messages, &left), queued, turns, usage, actions };
            child.returned = false;
            self.base.start_child(&mut child, kind, messages, resumed).await?;
        }
        self.subagents.all.insert(key, child);
        Ok(())
    }
}

impl SessionBase {
    /// Adds the report of a subagent that has ended to the memory of its name, if it gave an
    /// answer.
    fn remember(&self, child: &Child, ended: &SubagentEnd, kinds: &[SubagentConfig]) {
        let Some(delegation_handle) = &self.delegation_handle else { return };
        let provider = kinds.get(child.kind).map_or("", |kind| kind.info.profile.as_str());
        let (agent, cwd) = (ended.agent.as_str(), delegation_handle.cwd.as_str());
        let mut memories = delegation_handle.memories.lock();
        let added = memories.add_report(&FinishedTask {
            agent,
            provider,
            cwd,
            task: &child.task,
            outcome: &ended.outcome,
            said: &ended.said,
            files: &child.files,
        });
        let tasks = added.map(|memory| memory.tasks);
        let Some(tasks) = tasks.filter(|_| delegation_handle.delegation.remembers) else { return };
        let bytes = memories.text(agent, provider, cwd).len();
        drop(memories);
        let (agent, provider) = (agent.to_owned(), provider.to_owned());
        let event = Event::MemoryUpdated { agent, provider, tasks, bytes };
        self.transcript.note(Some(&child.origin), event);
    }

    /// Maximum number of bytes of a subagent's answer in the result of its call or in a notice for
    /// `caller`; 0 in single-agent mode.
    pub(super) fn result_bytes_max(&self, caller: &Origin) -> usize {
        self.delegation_handle.as_ref().map_or(0, |one| one.answer_bytes_max(caller))
    }

    /// Message that reports the end of the subagent `id`, which `call` of `caller` started.
    pub(super) fn notice(
        &self,
        id: &InvocationId,
        (caller, call): (&Origin, &CallId),
        ended: &SubagentEnd,
    ) -> QueuedInput {
        let content = ended.notice(self.result_bytes_max(caller));
        QueuedInput { id: notice_id(id, call), kind: MessageKind::Notice, content }
    }
}
