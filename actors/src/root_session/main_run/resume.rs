//! Resume of a session from its journal: unfinished work is closed or continued, and open
//! permission requests are repeated.
//!
//! A journal is data and grants no authority: the current settings and policy do. Only session
//! grants are restored, and only in the same folder under the same sandbox tier.

use std::sync::Arc;

use ractor::SpawnErr;

use crate::agent_invocation::Resumed;
use crate::agent_invocation::UnfinishedCall;
use crate::conversation::{CallId, ContentPart, Message, text_of};
use crate::event::{Branch, Event, MessageKind, Origin, ResumedConfig, ToolFailureClass};
use crate::ledger::{Accounts, RecoveredUsage};
use crate::outcome::Memories;
use crate::ports::ToolOutput;
use crate::replay::{LastInvocation, OpenCall, OpenQuestion, QueuedInput, Replayed};
use crate::root_session::main_run::{MainInvocation, MainRun, PromptAdmission};
use crate::root_session::{PromptError, SessionBase, SessionSettings, State};

/// Reason for withdrawing a permission request whose call does not run again.
const BROKE_OFF: &str = "the session broke off";

/// Text for the model about lost records.
const LOST_RECORDS: &str = "(from posse, not from the user) Part of the journal of this session was \
    damaged. What followed here is lost: replies, calls and what they did. Look at how things are \
    before you do something again.";

/// A run of an earlier process that was interrupted and can be continued.
pub(crate) struct Unfinished {
    last: LastInvocation,
    open: OpenCalls,
}

impl Unfinished {
    /// True if this call of the run waits again for its subagent.
    pub(crate) fn waits_for(&self, call: &CallId) -> bool {
        self.open.attached.iter().any(|open| open.call.id == *call)
    }
}

/// Open calls of an interrupted invocation that continue with it.
#[derive(Default)]
pub(crate) struct OpenCalls {
    /// Calls that had not started. They run when the invocation continues.
    pub(crate) waiting: Vec<OpenCall>,
    /// Calls that had started subagents, for which they wait again.
    pub(crate) attached: Vec<OpenCall>,
    /// Open permission requests of the calls in `waiting`.
    pub(crate) questions: Vec<OpenQuestion>,
}

impl State {
    /// Records the start, resume or fork of the session, and restores its history, queue, subagents
    /// and counters. Work of an earlier process that cannot continue is recorded as ended; nothing
    /// is started.
    pub(crate) fn begin_or_resume(&mut self) {
        let settings = Arc::clone(&self.base.settings);
        let Some(resumption) = &settings.resumption else {
            return self.base.transcript.note(None, self.base.started(None));
        };
        let replayed = &resumption.replayed;
        self.base.services.todos.set_main(&replayed.todos);
        self.main_run.history.clone_from(&replayed.messages);
        self.main_run.queued.clone_from(&replayed.queued);
        if resumption.lost {
            self.base.queue_lost_records_message(resumption.branch.is_some(), &mut self.main_run);
        }
        if resumption.branch.is_some() {
            self.base.report_fork_jobs(replayed, &mut self.main_run);
        }
        if let Some(branch) = &resumption.branch {
            self.base.branch_off(branch, replayed, &self.main_run);
        } else {
            let records = replayed.last_record;
            let (with, changed) = (Some(Box::new(self.base.with())), resumption.changed.clone());
            let event = Event::SessionResumed { records, with, changed };
            self.base.transcript.note(None, event);
            for RecoveredUsage { origin, event } in &resumption.salvaged {
                self.base.transcript.note(origin.as_ref(), event.clone());
            }
            self.main_run.turns = replayed.turns;
            self.main_run.turns += SessionBase::uncounted_subagent_turns(replayed);
            if let (Some(delegation_handle), Some(last)) =
                (&self.base.delegation_handle, &replayed.last)
                && let Some(Message::User { content }) =
                    replayed.messages.get(last.base).map(|first| &**first)
            {
                delegation_handle.set_user_request(&text_of(content));
            }
            self.main_run.unfinished = self.base.close_started(replayed);
            self.base.report_lost_jobs(replayed, &mut self.main_run);
            self.restore_subagents(replayed);
        }
        // A call of the forked session may still run there.
        if let Some(open) = replayed.own_call.clone().filter(|_| resumption.branch.is_none()) {
            self.base.close_own_call(open, &mut self.main_run);
        }
        if let Some(message) = resumption.damage.clone() {
            self.base.transcript.note(None, Event::Warning { message });
        }
    }

    /// Continues the interrupted run, or starts a run for unanswered messages or interrupted
    /// background subagents. Refused if there are none, other work is in progress, or the session
    /// accepts no work.
    pub(crate) async fn resume_run(&mut self) -> Result<PromptAdmission, SpawnErr> {
        if let Err(error) = self.may_begin() {
            return Ok(Err(error));
        }
        let (origin, base) = match &self.main_run.unfinished {
            Some(Unfinished { last, .. }) => (Arc::clone(&last.origin), last.base),
            None if self.main_run.awaits_model() || self.subagents.has_unresumed() => {
                (self.base.new_origin(), self.main_run.history.len())
            }
            None => return Ok(Err(PromptError::NothingUnfinished)),
        };
        self.main_run
            .model_routes
            .retry_now(self.base.ports.clock.monotonic(), &self.base.settings.limits);
        self.admit_as(origin, base, None).await
    }

    /// Starts the invocation of a run without a new prompt: continues the interrupted run, or
    /// delivers messages that the model has not received. Also resumes interrupted subagents.
    pub(crate) async fn resume_now(&mut self, main: &mut MainInvocation) -> Result<(), SpawnErr> {
        let unfinished = self.main_run.unfinished.take();
        self.resume_subagents(unfinished.as_ref());
        let mut resumed =
            Resumed { queued: std::mem::take(&mut self.main_run.queued), ..Resumed::default() };
        let known = unfinished.as_ref().is_some_and(|unfinished| unfinished.last.tools.is_some());
        if !known {
            self.base.transcript.note(Some(&main.origin), self.base.invocation_started());
        }
        if let Some(Unfinished { last, open }) = unfinished {
            (resumed.turns, resumed.usage) = (last.turns, last.usage);
            main.counted = last.turns;
            resumed.pending = pending(&self.main_run.history, &open);
        }
        self.start_invocation(main, resumed).await
    }

    /// Drops the interrupted run, if there is one: records the ends of its calls and of the run.
    /// The session continues with other work.
    pub(crate) fn drop_unfinished(&mut self) {
        let Some(unfinished) = self.main_run.unfinished.take() else { return };
        let Unfinished { last, open: OpenCalls { waiting, attached, questions } } = unfinished;
        self.base.withdraw(questions);
        for open in &attached {
            self.abandon_wait(&last.origin, open);
            let event = closed_event(open, &self.main_run.history);
            self.base.transcript.note(Some(&last.origin), event);
        }
        for open in &waiting {
            let event = closed_event(open, &self.main_run.history);
            self.base.transcript.note(Some(&last.origin), event);
        }
        let event = Event::InvocationFailed {
            class: "broke_off".to_owned(),
            cause: "the session broke off, and went on with something else".to_owned(),
            turns: last.turns,
            usage: last.usage,
        };
        if last.tools.is_some() {
            self.base.transcript.note(Some(&last.origin), event);
        }
    }
}

impl SessionBase {
    /// Queues a message that informs the model about lost records. In a fork, `branch_off` records
    /// it together with the queue.
    fn queue_lost_records_message(&self, is_branch: bool, run: &mut MainRun) {
        let queued = if is_branch { self.lost_records_notice() } else { self.lost_records(None) };
        run.queued.push(queued);
    }

    fn lost_records_notice(&self) -> QueuedInput {
        let (id, kind) = (self.ports.ids.message(), MessageKind::Notice);
        QueuedInput { id, kind, content: vec![ContentPart::text(LOST_RECORDS)] }
    }

    /// Makes and records the message about lost records, for the subagent `origin` or, if `None`,
    /// the main agent.
    pub(crate) fn lost_records(&self, origin: Option<&Arc<Origin>>) -> QueuedInput {
        let queued = self.lost_records_notice();
        self.transcript.note(origin, queued.event());
        queued
    }

    /// True if this session was resumed or forked, and records after the last verified one are
    /// lost.
    pub(crate) fn has_lost_records(&self) -> bool {
        self.settings.resumption.as_ref().is_some_and(|resumption| resumption.lost)
    }

    /// Spending before this process: of a resumed session, that in its journal; of a new session or
    /// a fork, that in the settings.
    pub(crate) fn accounts(&self) -> Accounts {
        match &self.settings.resumption {
            Some(resumption) if resumption.branch.is_none() => resumption.accounts(),
            _ => self.settings.accounts.clone(),
        }
    }

    fn branch_off(&self, branch: &Branch, replayed: &Replayed, run: &MainRun) {
        let memories = Memories::of(replayed);
        if let Some(delegation_handle) = &self.delegation_handle {
            delegation_handle.memories.lock().clone_from(&memories);
        }
        self.transcript.note(None, self.started(Some(branch.clone())));
        let forked = Event::SessionForked {
            parent: branch.session.clone(),
            parent_record: branch.record,
            history: run.history.clone(),
            prompts: replayed.prompts,
            memories,
            todos: replayed.todos.clone(),
        };
        self.transcript.note(None, forked);
        for queued in &run.queued {
            self.transcript.note(None, queued.event());
        }
    }

    fn with(&self) -> ResumedConfig {
        let SessionSettings {
            posse, cwd, agent, tier, instructions, own_budget, own_prompt, ..
        } = &*self.settings;
        ResumedConfig {
            posse: posse.clone(),
            cwd: cwd.clone(),
            agent: agent.clone(),
            provider: self.provider_info.profile.clone(),
            model: self.provider_info.model.clone(),
            tier: tier.clone(),
            permission_mode: Some(self.services.mode.current()),
            instructions: instructions.clone(),
            budget: *own_budget,
            prompt: own_prompt.clone(),
        }
    }

    /// Records ends for open calls of the last run that cannot continue, and withdraws their
    /// permission requests. Returns the interrupted run with the calls that can continue; `None` if
    /// the run itself cannot be continued.
    fn close_started(&self, replayed: &Replayed) -> Option<Unfinished> {
        let last = replayed.last.clone()?;
        let can_resume = last.ended.is_none() && !replayed.messages.is_empty();
        let (mut waiting, mut attached) = (Vec::new(), Vec::new());
        for open in &replayed.open_calls {
            if can_resume && open.can_start() {
                waiting.push(open.clone());
            } else if can_resume && self.has_started_subagent(&last.origin, open, replayed) {
                attached.push(open.clone());
            } else {
                let event = closed_event(open, &replayed.messages);
                self.transcript.note(Some(&last.origin), event);
            }
        }
        let (questions, moot) = replayed
            .open_questions
            .iter()
            .cloned()
            .partition(|asked| waiting.iter().any(|open| open.call.id == asked.call_id));
        self.withdraw(moot);
        let open = OpenCalls { waiting, attached, questions };
        can_resume.then_some(Unfinished { last, open })
    }

    pub(crate) fn withdraw(&self, questions: Vec<OpenQuestion>) {
        for OpenQuestion { request_id, origin, target, .. } in questions {
            let reason = BROKE_OFF.to_owned();
            let event = Event::PermissionWithdrawn { request_id, reason, target };
            self.transcript.note(origin.as_ref(), event);
        }
    }

    pub(crate) fn new_origin(&self) -> Arc<Origin> {
        Arc::new(Origin {
            invocation_id: self.ports.ids.invocation(),
            parent_invocation_id: None,
            agent: self.settings.agent.clone(),
            agent_path: self.settings.agent.clone(),
        })
    }
}

impl MainInvocation {
    /// Number of replies out of `turns` that the session has not counted yet.
    pub(crate) fn uncounted(&self, turns: u32) -> u32 {
        turns.saturating_sub(self.counted)
    }
}

/// Event that records the end of an open call as failed or unknown. Its content is the placeholder
/// result in `messages`, or empty if there is none.
pub(crate) fn closed_event(open: &OpenCall, messages: &[Arc<Message>]) -> Event {
    let content = match messages.get(open.message).map(|message| &**message) {
        Some(Message::Tool { content, .. }) => content.clone(),
        _ => Vec::new(),
    };
    let (call_id, name) = (open.call.id.clone(), open.call.name.clone());
    if open.effect {
        return Event::ToolOutcomeUnknown { call_id, name, content, begun: open.begun.clone() };
    }
    let class = if open.started { ToolFailureClass::Crashed } else { ToolFailureClass::Skipped };
    let (metadata, duration_ms) = (serde_json::Value::Null, 0);
    Event::ToolFailed { call_id, name, content, class, metadata, duration_ms }
}

/// All calls of the last reply of `messages`, for an invocation that continues with the open calls
/// `left`; empty if `left` is. The results of the calls, real or placeholders, must be the last
/// messages.
pub(crate) fn pending(messages: &[Arc<Message>], left: &OpenCalls) -> Vec<UnfinishedCall> {
    let OpenCalls { waiting, attached, questions } = left;
    if waiting.is_empty() && attached.is_empty() {
        return Vec::new();
    }
    let results =
        messages.iter().rev().take_while(|m| matches!(***m, Message::Tool { .. })).count();
    let (before, results) = messages.split_at(messages.len() - results);
    let Some(Message::Assistant(said)) = before.last().map(|last| &**last) else {
        return Vec::new();
    };
    let calls = said.tool_calls.iter().zip(results).map(|(call, result)| {
        let open = waiting.iter().find(|open| open.call.id == call.id);
        let attached = attached.iter().any(|open| open.call.id == call.id);
        let question = questions.iter().find(|asked| asked.call_id == call.id);
        let output = match (open, &**result) {
            (None, Message::Tool { content, is_error, .. }) if !attached => Some(ToolOutput {
                content: content.clone(),
                is_error: *is_error,
                metadata: serde_json::Value::Null,
            }),
            _ => None,
        };
        UnfinishedCall {
            call: call.clone(),
            output,
            requested: open.is_none_or(|open| open.requested),
            question: question.map(OpenQuestion::request),
            attached,
        }
    });
    calls.collect()
}
