//! Resume of subagents after their process died. An end that was not reported is reported now;
//! subagents that were running continue from their own records together with the main agent.
//!
//! Nothing starts before the user acts, so opening a session costs nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::conversation::{ContentPart, InvocationId, Message, text_of};
use crate::delegation::{DELEGATE, DetachedSubagent, StartedSubagent, SubagentEnd};
use crate::event::{Event, MessageKind, Origin};
use crate::governor::{Permit, PermitRequest, SubagentRefusal, SubagentUsage};
use crate::ledger::tokens;
use crate::mailbox::{AllGone, OwnedTask};
use crate::outcome::{Memories, SubagentOutcome};
use crate::replay::{Delegated, OpenCall, QueuedInput, Replayed};
use crate::root_session::budget::NANO_IN_MICRO;
use crate::root_session::main_run::resume::{OpenCalls, Unfinished};
use crate::root_session::subagents::isolated_workspaces::SubagentWorkspace;
use crate::root_session::subagents::{Child, Subagents, SubagentsMsg};
use crate::root_session::{Msg, SessionBase, State};

/// Decision about a subagent that was running when its process died.
enum ResumeDecision {
    /// The subagent continues with this permit.
    Resume(Permit),
    /// The subagent ends with this outcome.
    End(SubagentOutcome),
}

/// True if `messages` contains the result of the call that started the subagent, and this result
/// reports the end of the subagent.
fn is_end_reported(one: &Delegated, messages: &[Arc<Message>]) -> bool {
    let head = format!("({}): ", one.id());
    messages.iter().any(|message| match &**message {
        Message::Tool { tool_call_id, content, .. } => {
            *tool_call_id == one.call_id && text_of(content).contains(&head)
        }
        Message::System { .. } | Message::User { .. } | Message::Assistant(_) => false,
    })
}

impl Subagents {
    /// True if a background subagent of the main agent was running and has not continued yet.
    pub(crate) fn has_unresumed(&self) -> bool {
        self.returning.iter().any(Delegated::runs_in_background)
    }

    fn insert(&mut self, child: Child) {
        let nth = self.all.last_key_value().map_or(0, |(nth, _)| nth + 1);
        self.all.insert(nth, child);
    }

    /// Open calls with which `caller`, which is being rebuilt, continues. A call that had started a
    /// subagent waits for it again, so no subagent is started twice. A call that had not started
    /// runs if an earlier process left it (`returned`); after a crash in this process the model
    /// decides again.
    pub(crate) fn open_calls_of(
        &mut self,
        caller: &Origin,
        replayed: &Replayed,
        returned: bool,
    ) -> OpenCalls {
        let mut left = OpenCalls::default();
        for open in &replayed.open_calls {
            let child = if open.started && open.call.name == DELEGATE {
                self.by_call(&open.call.id, caller)
            } else {
                None
            };
            if let Some(child) = child {
                child.waiter = None;
                child.expected = !child.background;
                left.attached.push(open.clone());
            } else if returned && open.can_start() {
                left.waiting.push(open.clone());
            }
        }
        if returned {
            let asked = replayed.open_questions.iter().filter(|asked| {
                asked
                    .origin
                    .as_ref()
                    .is_some_and(|theirs| theirs.invocation_id == caller.invocation_id)
                    && left.waiting.iter().any(|open| open.call.id == asked.call_id)
            });
            left.questions = asked.cloned().collect();
        }
        left
    }

    /// State of the subagent that `call` started, for the result of this call, which was stopped;
    /// `None` if it started none. The end of a subagent that has ended is then not reported again
    /// with the next prompt.
    pub(super) fn detach(
        &mut self,
        call: &crate::conversation::CallId,
        caller: &Origin,
    ) -> Option<DetachedSubagent> {
        let child = self.by_call(call, caller)?;
        let id = child.id().clone();
        let Some((ended, _)) = &child.ended else {
            return Some(DetachedSubagent::Running(id, child.origin.agent.clone()));
        };
        let ended = Arc::clone(ended);
        self.stopped.retain(|stopped| *stopped != id);
        Some(DetachedSubagent::Ended(ended))
    }

    /// Lets the caller wait again for the subagent that `call` has started: returns the receiver of
    /// its end, which receives nothing while a background subagent runs. `None` if there is no such
    /// subagent.
    pub(super) fn attach(
        &mut self,
        call: &crate::conversation::CallId,
        caller: &Origin,
    ) -> Option<StartedSubagent> {
        let child = self.by_call(call, caller)?;
        let (waiter, ended) = tokio::sync::oneshot::channel();
        child.expected = false;
        if let Some((ended, _)) = &child.ended {
            waiter.send(Arc::clone(ended)).ok();
        } else if !child.background {
            child.waiter = Some(waiter);
        }
        Some(StartedSubagent { id: child.id().clone(), background: child.background, ended })
    }
}

impl State {
    /// Restores all subagents and their usage from the journal; nothing is started. Reports of ends
    /// that the main agent has not received are queued for it.
    pub(crate) fn restore_subagents(&mut self, replayed: &Replayed) {
        let Some(delegation_handle) = &self.base.delegation_handle else { return };
        *delegation_handle.memories.lock() = Memories::of(replayed);
        let (mut total, mut spent, mut spent_nano) = (0_u32, SubagentUsage::default(), 0_u64);
        for one in &replayed.delegated {
            total = total.saturating_add(one.starts);
            let mut nano_usd = one.nano_usd;
            spent.tokens = spent.tokens.saturating_add(tokens(&one.used));
            if one.ended.is_none() {
                // Spending of the continuing run is counted at its end.
                spent.tokens = spent.tokens.saturating_sub(tokens(&one.usage));
                nano_usd = nano_usd.saturating_sub(one.run_nano_usd);
            }
            spent_nano = spent_nano.saturating_add(nano_usd);
            let Some(outcome) = one.ended.clone() else {
                self.subagents.returning.push(one.clone());
                continue;
            };
            let ended = self.register_ended(one, outcome);
            let cancelled = ended.outcome == SubagentOutcome::Cancelled;
            let unheard = || !one.noticed && !is_end_reported(one, &replayed.messages);
            if one.is_unreported() {
                let queued = self.base.queue_notice(one, &ended);
                self.main_run.queue(queued);
            } else if one.called_by_main() && cancelled && unheard() {
                self.subagents.stopped.push(one.id().clone());
            } else if one.background && !one.called_by_main() && !one.noticed {
                // If it continues, it reads this in the journal.
                let is_caller = |above: &Delegated| above.id() == &one.caller.invocation_id;
                if self.subagents.returning.iter().any(is_caller) {
                    self.base.queue_notice(one, &ended);
                }
            }
        }
        if let Some(governor) = &mut self.subagents.governor {
            let micro_usd = Some(spent_nano.div_ceil(NANO_IN_MICRO));
            governor.restore(total, SubagentUsage { micro_usd, ..spent });
        }
    }

    /// Continues every subagent that was running when the earlier process ended, or ends it with a
    /// recorded reason. Queues a list of the continued background subagents, and the ends of
    /// stopped ones, for the main agent. Runs before the main agent starts. `unfinished`: the run
    /// that continues; `None`: subagents that it would wait for end as cancelled.
    pub(crate) fn resume_subagents(&mut self, unfinished: Option<&Unfinished>) {
        let mut at_work = Vec::new();
        for one in std::mem::take(&mut self.subagents.returning) {
            match self.decide_resume(&one, unfinished) {
                ResumeDecision::Resume(permit) => {
                    if one.background && one.called_by_main() {
                        at_work.push(format!(
                            "- {} ({}): {}",
                            one.origin.agent,
                            one.id(),
                            one.task
                        ));
                    }
                    self.resume_subagent(&one, permit);
                }
                ResumeDecision::End(outcome) => self.end_unresumed(&one, outcome),
            }
        }
        for id in std::mem::take(&mut self.subagents.stopped) {
            let ended = self.subagents.find(&id).and_then(|child| child.ended.clone());
            if let Some((ended, _)) = ended {
                self.send_end_notice(&id, &ended);
            }
        }
        if !at_work.is_empty() {
            let text = format!(
                "(from posse, not from the user) The session broke off, and goes on. Agents that work \
                 for you in the background go on where they were; their answers come as messages:\n{}",
                at_work.join("\n")
            );
            let (id, kind) = (self.base.ports.ids.message(), MessageKind::Notice);
            let queued = QueuedInput { id, kind, content: vec![ContentPart::text(text)] };
            self.base.transcript.note(None, queued.event());
            self.main_run.queue(queued);
        }
    }

    fn decide_resume(
        &mut self,
        one: &Delegated,
        unfinished: Option<&Unfinished>,
    ) -> ResumeDecision {
        let failed = |class: &str, cause: String| {
            ResumeDecision::End(SubagentOutcome::Failed { class: class.to_owned(), cause })
        };
        if !one.briefed {
            let cause = "the session broke off before it was told its task; nothing was done";
            return failed("broke_off", cause.to_owned());
        }
        let waited_for = || unfinished.is_some_and(|run| run.waits_for(&one.call_id));
        let wanted = if one.called_by_main() {
            one.background || waited_for()
        } else {
            self.subagents.find(&one.caller.invocation_id).is_some_and(|above| above.is_live())
        };
        if !wanted {
            return ResumeDecision::End(SubagentOutcome::Cancelled);
        }
        if !self.subagents.kinds.iter().any(|kind| kind.name == one.origin.agent) {
            return failed("agent", format!("there is no agent {} any more", one.origin.agent));
        }
        match self.readmit(one) {
            Ok(permit) => ResumeDecision::Resume(permit),
            Err(refused) => failed("limit", refused.to_string()),
        }
    }

    fn readmit(&mut self, one: &Delegated) -> Result<Permit, SubagentRefusal> {
        let now = self.base.ports.clock.monotonic();
        let own = self.subagents.kinds.iter().find(|kind| kind.name == one.origin.agent);
        let left = self.budget.left();
        let request = PermitRequest {
            parent: (!one.called_by_main()).then(|| one.caller.invocation_id.clone()),
            duration_max: own.and_then(|kind| kind.duration_max),
            worked: Duration::from_millis(one.worked_ms),
            again: true,
            waits: !one.background,
            tokens_left: left.tokens,
            micro_usd_left: left.micro_usd,
            ..PermitRequest::default()
        };
        match &mut self.subagents.governor {
            Some(governor) => governor.admit(one.id(), &request, now),
            None => Err(SubagentRefusal::single_agent()),
        }
    }

    /// Starts to resume a subagent of an earlier process from its own records, with the permit
    /// `permit`.
    fn resume_subagent(&mut self, one: &Delegated, permit: Permit) {
        let mut child = self.child_of(one, permit);
        if !one.began
            && let Some(kind) = self.subagents.kinds.get(child.kind)
        {
            self.base.transcript.note(Some(&child.origin), child.started(kind));
            self.base.transcript.note(Some(&child.origin), child.tool_policy(kind));
        }
        child.rereading = Some(self.base.resume_from_records(&child, false));
        child.returned = true;
        child.began = child.began.saturating_sub(Duration::from_millis(one.worked_ms));
        child.cost = (one.run_nano_usd, 0);
        // Earlier usage counts against its current limits.
        child.permit.tokens = permit.tokens.map(|left| left.saturating_add(tokens(&one.usage)));
        self.budget.give_share(one.id(), permit.micro_usd);
        child.expected = !one.background;
        self.base.register_background(&child);
        self.subagents.insert(child);
    }

    fn child_of(&self, one: &Delegated, permit: Permit) -> Child {
        let kind = self.subagents.kinds.iter().position(|kind| kind.name == one.origin.agent);
        // A subagent that is no longer configured starts nothing.
        let kind = kind.unwrap_or(usize::MAX);
        let whose = (Arc::clone(&one.origin), Arc::clone(&one.caller));
        let idle = self.base.idle(whose, kind, one.call_id.clone(), permit);
        let workspace = one.workplace.clone().map(SubagentWorkspace::known);
        let (background, brief) = (one.background, one.brief);
        let child = Child { task: one.task.clone(), background, brief, workspace, ..idle };
        self.base.register_workspace(&child);
        child
    }

    /// Restores a subagent that has ended, so that its result can be read and it can be resumed.
    /// Records its end for its caller if this is missing.
    fn register_ended(&mut self, one: &Delegated, outcome: SubagentOutcome) -> Arc<SubagentEnd> {
        let ended = Arc::new(one.ending(outcome));
        if !one.announced {
            self.base.transcript.note(Some(&one.caller), ended.event());
        }
        let mut child = self.child_of(one, Permit::default());
        // The time between its start and its end is what it worked in earlier processes.
        let end = child.began.saturating_add(Duration::from_millis(one.worked_ms));
        child.ended = Some((Arc::clone(&ended), end));
        self.subagents.insert(child);
        ended
    }

    /// Ends a subagent that does not continue, records its end, and reports it to a caller that
    /// does not wait.
    fn end_unresumed(&mut self, one: &Delegated, outcome: SubagentOutcome) {
        self.close_delegated(one, outcome);
        let child = self.subagents.find(one.id()).and_then(|child| child.ended.clone());
        if one.background
            && let Some((ended, _)) = child
        {
            self.send_end_notice(one.id(), &ended);
        }
    }

    fn close_delegated(&mut self, one: &Delegated, outcome: SubagentOutcome) {
        let (turns, usage) = (one.turns, one.usage);
        let event = match &outcome {
            SubagentOutcome::Failed { class, cause } => {
                let (class, cause) = (class.clone(), cause.clone());
                Event::InvocationFailed { class, cause, turns, usage }
            }
            SubagentOutcome::Done
            | SubagentOutcome::Partial { .. }
            | SubagentOutcome::Waiting { .. }
            | SubagentOutcome::Cancelled
            | SubagentOutcome::Refused { .. } => Event::InvocationCancelled { turns, usage },
        };
        if one.began {
            self.base.transcript.note(Some(&one.origin), event);
        }
        self.register_ended(one, outcome);
        if let Some(governor) = &mut self.subagents.governor {
            let micro_usd = Some(one.run_nano_usd.div_ceil(NANO_IN_MICRO));
            governor.count(SubagentUsage { tokens: tokens(&usage), micro_usd });
        }
    }

    /// Ends the subagent for which the call `open` of `caller` waited, because the run of this call
    /// does not continue. The end becomes the result of the call.
    pub(crate) fn abandon_wait(&mut self, caller: &Origin, open: &OpenCall) {
        let theirs = |one: &mut Delegated| one.call_id == open.call.id;
        let returning: Vec<Delegated> = self.subagents.returning.extract_if(.., theirs).collect();
        for one in returning {
            self.close_delegated(&one, SubagentOutcome::Cancelled);
        }
        let child = self.subagents.by_call(&open.call.id, caller);
        let ended = child.and_then(|child| child.ended.as_ref());
        if let Some((ended, _)) = ended {
            let output = ended.output(self.base.result_bytes_max(caller));
            let result = Message::Tool {
                tool_call_id: open.call.id.clone(),
                name: open.call.name.clone(),
                content: output.content,
                is_error: output.is_error,
            };
            self.main_run.replace_message(open.message, result);
        }
    }
}

impl SessionBase {
    /// Number of model replies to all subagents so far. For a subagent that has not ended, those
    /// since its last start are left out: they are counted at its end.
    pub(crate) fn uncounted_subagent_turns(replayed: &Replayed) -> u32 {
        let counted = |one: &Delegated| match &one.ended {
            Some(_) => one.replies,
            // Turns of the continuing run are counted at its end.
            None => one.replies - one.turns,
        };
        replayed.delegated.iter().map(counted).sum()
    }

    /// True if the open call `open` of `caller` has started a subagent according to the journal.
    /// False in single-agent mode.
    pub(crate) fn has_started_subagent(
        &self,
        caller: &Origin,
        open: &OpenCall,
        replayed: &Replayed,
    ) -> bool {
        let theirs = |one: &Delegated| {
            one.call_id == open.call.id && one.caller.invocation_id == caller.invocation_id
        };
        self.delegation_handle.is_some()
            && open.started
            && open.call.name == DELEGATE
            && replayed.delegated.iter().any(theirs)
    }

    /// Makes and records a message that reports the end of a subagent to its caller.
    fn queue_notice(&self, one: &Delegated, ended: &SubagentEnd) -> QueuedInput {
        let queued = self.notice(one.id(), (&one.caller, &one.call_id), ended);
        self.transcript.note(Some(&one.caller), queued.event());
        queued
    }

    /// Folds all records of a subagent from the journal, after `absence` has completed. The result
    /// returns as a message.
    pub(super) fn reread_child(&self, id: &InvocationId, absence: Option<AllGone>) -> OwnedTask {
        self.read_back(id, absence, |id, replayed| {
            Msg::Subagents(SubagentsMsg::Reread(id, replayed))
        })
    }
}
