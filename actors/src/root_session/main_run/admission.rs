//! Admission of a prompt: hooks first, then the history.

use std::sync::Arc;

use ractor::SpawnErr;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::agent_invocation::hooked as blocked_ending;
use crate::conversation::{InvocationId, Message, Prompt, Usage, text_of};
use crate::event::{Event, HookEvent, Origin, SessionEndReason};
use crate::hook_events::{self, HookOutcome};
use crate::mailbox::{HandlerResult, OwnedTask, spawn_task};
use crate::outcome::Ending;
use crate::ports::{HookInvocation, HookPayload};
use crate::root_session::main_run::{MainInvocation, MainRunMsg, PromptAdmission, Resumed};
use crate::root_session::{Msg, RootSession, State};

/// Result of the hooks at the start of the session.
pub(in crate::root_session) enum StartHooks {
    /// No objection.
    Open,
    /// Hooks are running.
    Asking(#[expect(dead_code, reason = "dropping it stops the work")] OwnedTask),
    /// Denied: the session accepts no prompt, with the reason.
    Blocked(String),
}

/// Task of a run.
pub(in crate::root_session) enum RunTask {
    /// A prompt of the user.
    Prompt(Prompt),
    /// Continue unfinished work.
    Continue,
}

/// A task that waits for hooks.
pub(in crate::root_session) struct PendingAdmission {
    task: RunTask,
    /// `None` while the session-start hooks run.
    _work: Option<OwnedTask>,
}

impl RootSession {
    /// Starts the session-start hooks, if there are any. Prompts wait for them.
    pub(in crate::root_session) fn open(&self, state: &mut State) {
        if self.ports.hooks.has_hook(HookEvent::SessionStart, None) {
            let fired = self.fire(None, HookPayload::SessionStart);
            let opened = |hooked| Msg::MainRun(MainRunMsg::Opened(hooked));
            state.main_run.opening = StartHooks::Asking(spawn_task(&state.me, fired, opened));
        }
    }

    pub(in crate::root_session) async fn opened(
        &self,
        hooked: Result<HookOutcome, JoinError>,
        state: &mut State,
    ) -> HandlerResult {
        state.main_run.opening = match block_reason(hooked) {
            None => StartHooks::Open,
            Some(why) => StartHooks::Blocked(why),
        };
        let waits = |main: &mut MainInvocation| main.admitting.is_some();
        if let Some(mut main) = state.main_run.invocation.take_if(waits)
            && let Some(PendingAdmission { task, .. }) = main.admitting.take()
        {
            self.admit(main, task, state).await?;
        }
        Ok(())
    }

    /// Admits `task` as the invocation of `origin`, whose history begins after `base` messages.
    pub(in crate::root_session) async fn admit_as(
        &self,
        origin: Arc<Origin>,
        base: usize,
        task: RunTask,
        state: &mut State,
    ) -> Result<PromptAdmission, SpawnErr> {
        let (outcome, receiver) = oneshot::channel();
        let id = origin.invocation_id.clone();
        let main = MainInvocation {
            origin,
            actor: None,
            admitting: None,
            outcome,
            rereading: None,
            stopping: None,
            base,
            counted: 0,
            began: self.ports.clock.monotonic(),
            absence: None,
        };
        self.admit(main, task, state).await?;
        Ok(Ok((id, receiver)))
    }

    /// Takes `task` one step further: session-start hooks, prompt hooks, start of the run.
    async fn admit(
        &self,
        mut main: MainInvocation,
        task: RunTask,
        state: &mut State,
    ) -> Result<(), SpawnErr> {
        match &state.main_run.opening {
            StartHooks::Open => {}
            StartHooks::Blocked(why) => {
                let why = why.clone();
                self.refuse(main, blocked_ending(why), state);
                return Ok(());
            }
            StartHooks::Asking(_) => {
                main.admitting = Some(PendingAdmission { task, _work: None });
                state.main_run.invocation = Some(main);
                return Ok(());
            }
        }
        // Messages before the start were seen by hooks of the earlier process.
        let heard = self.ports.hooks.has_hook(HookEvent::UserPromptSubmit, None);
        let RunTask::Prompt(prompt) = task else { return self.begin(main, task, state).await };
        if !heard {
            return self.begin(main, RunTask::Prompt(prompt), state).await;
        }
        let moment = HookPayload::UserPromptSubmit { content: prompt.content.clone() };
        let id = main.origin.invocation_id.clone();
        let fired = self.fire(Some(&main), moment);
        let admitted = move |hooked| Msg::MainRun(MainRunMsg::Admitted(id, hooked));
        let work = spawn_task(&state.me, fired, admitted);
        main.admitting =
            Some(PendingAdmission { task: RunTask::Prompt(prompt), _work: Some(work) });
        state.main_run.invocation = Some(main);
        Ok(())
    }

    pub(in crate::root_session) async fn admitted(
        &self,
        id: &InvocationId,
        hooked: Result<HookOutcome, JoinError>,
        state: &mut State,
    ) -> HandlerResult {
        let theirs = |main: &mut MainInvocation| {
            main.origin.invocation_id == *id && main.admitting.is_some()
        };
        let Some(mut main) = state.main_run.invocation.take_if(theirs) else { return Ok(()) };
        let Some(PendingAdmission { task, .. }) = main.admitting.take() else { return Ok(()) };
        match block_reason(hooked) {
            None => self.begin(main, task, state).await?,
            Some(why) => self.refuse(main, blocked_ending(why), state),
        }
        Ok(())
    }

    /// Starts the run.
    async fn begin(
        &self,
        mut main: MainInvocation,
        task: RunTask,
        state: &mut State,
    ) -> Result<(), SpawnErr> {
        match task {
            RunTask::Prompt(prompt) => self.begin_with(&mut main, prompt, state).await?,
            RunTask::Continue => self.resume_now(&mut main, state).await?,
        }
        state.main_run.invocation = Some(main);
        Ok(())
    }

    /// Adds the prompt to the history and starts the run.
    async fn begin_with(
        &self,
        main: &mut MainInvocation,
        prompt: Prompt,
        state: &mut State,
    ) -> Result<(), SpawnErr> {
        self.drop_unfinished(state);
        self.resume_subagents(None, state);
        let origin = Arc::clone(&main.origin);
        // Messages that arrived too late for the previous run precede this prompt.
        for queued in std::mem::take(&mut state.main_run.queued) {
            state
                .main_run
                .history
                .push(Arc::new(Message::User { content: queued.content.clone() }));
            queued.note_delivered(&self.transcript, &origin);
        }
        if let Some(delegation_handle) = &self.delegation_handle {
            delegation_handle.set_user_request(&text_of(&prompt.content));
        }
        let event = Event::UserMessage { content: prompt.content.clone(), message_id: None };
        self.transcript.note(Some(&origin), event);
        self.transcript.note(Some(&origin), self.invocation_started());
        state.main_run.history.push(Arc::new(Message::User { content: prompt.content }));
        self.start_invocation(main, Resumed::default(), state).await
    }

    /// Concludes an invocation that never began: its prompt is in no history.
    pub(super) fn refuse(&self, main: MainInvocation, ending: Ending, state: &mut State) {
        self.conclude(main, ending, 0, Usage::default(), state);
    }

    /// Runs the hooks for the end of the session, if any is registered.
    pub(in crate::root_session) fn closing_hooks(
        &self,
        reason: &SessionEndReason,
    ) -> Option<impl Future<Output = HookOutcome> + Send + 'static> {
        let heard = self.ports.hooks.has_hook(HookEvent::SessionEnd, None);
        heard.then(|| self.fire(None, HookPayload::SessionEnd { reason: reason.clone() }))
    }

    fn fire(
        &self,
        main: Option<&MainInvocation>,
        moment: HookPayload,
    ) -> impl Future<Output = HookOutcome> + Send + 'static {
        let occasion = HookInvocation {
            session_id: self.settings.session_id.clone(),
            origin: main.map(|main| Arc::clone(&main.origin)),
            moment,
        };
        let (hooks, transcript) = (Arc::clone(&self.ports.hooks), self.transcript.clone());
        hook_events::fire(hooks, transcript, occasion, self.services.limits.result_bytes_max)
    }
}

/// Reason for a block. A hook without an answer blocks.
fn block_reason(hooked: Result<HookOutcome, JoinError>) -> Option<String> {
    match hooked {
        Ok(hooked) => hooked.blocked,
        Err(_) => Some("the hook runner crashed".to_owned()),
    }
}
