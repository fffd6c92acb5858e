//! Admission of a prompt: the hooks run first, then the prompt enters the history.

use std::sync::Arc;

use ractor::SpawnErr;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::agent_invocation::Resumed;
use crate::agent_invocation::hooked as blocked_ending;
use crate::conversation::{InvocationId, Message, Prompt, Usage, text_of};
use crate::event::{Event, HookEvent, Origin, SessionEndReason};
use crate::hook_events::HookOutcome;
use crate::mailbox::{HandlerResult, OwnedTask, spawn_task};
use crate::ports::HookPayload;
use crate::root_session::main_run::{MainInvocation, MainRunMsg, PromptAdmission};
use crate::root_session::{Msg, SessionBase, State};

/// Progress and decision of the hooks for the start of the session.
pub(crate) enum StartHooks {
    /// The hooks have no objection, or there are none.
    Open,
    /// The hooks are running; runs wait for them.
    Asking(#[expect(dead_code, reason = "dropping it stops the work")] OwnedTask),
    /// A hook denied the start of the session, for the contained reason: every run ends at once
    /// with it, and tool calls of the user are refused.
    Blocked(String),
}

/// A run that waits for the hooks of the session start, or for those of its prompt, before it
/// starts. `prompt` is `None` for a run without a new prompt, which waits only for the former.
pub(crate) struct PendingAdmission {
    prompt: Option<Prompt>,
    /// Task that runs the hooks for the prompt; `None` while those for the start of the session
    /// run.
    _work: Option<OwnedTask>,
}

/// Title of the checkpoint of a run without a prompt.
const CONTINUED: &str = "continued run";

fn title(prompt: &Prompt) -> String {
    text_of(&prompt.content)
}

impl State {
    /// Starts the hooks for the start of the session, if there are any. Runs wait for them, and
    /// tool calls of the user are refused meanwhile.
    pub(crate) fn open(&mut self) {
        if self.base.ports.hooks.has_hook(HookEvent::SessionStart, None) {
            let fired = self.base.services.fire(None, HookPayload::SessionStart);
            let opened = |hooked| Msg::MainRun(MainRunMsg::Opened(hooked));
            self.main_run.opening = StartHooks::Asking(spawn_task(&self.base.me, fired, opened));
        }
    }

    pub(crate) async fn opened(&mut self, hooked: Result<HookOutcome, JoinError>) -> HandlerResult {
        self.main_run.opening = match block_reason(hooked) {
            None => StartHooks::Open,
            Some(why) => StartHooks::Blocked(why),
        };
        let waits = |main: &mut MainInvocation| main.admitting.is_some();
        if let Some(mut main) = self.main_run.invocation.take_if(waits)
            && let Some(PendingAdmission { prompt, .. }) = main.admitting.take()
        {
            self.admit(main, prompt).await?;
        }
        Ok(())
    }

    /// Starts the admission of `prompt` (`None`: a run without a new prompt) as the invocation of
    /// `origin`. `base`: number of messages in the history before it. Returns its id and the
    /// receiver of its outcome.
    pub(crate) async fn admit_as(
        &mut self,
        origin: Arc<Origin>,
        base: usize,
        prompt: Option<Prompt>,
    ) -> Result<PromptAdmission, SpawnErr> {
        let (outcome, receiver) = oneshot::channel();
        let id = origin.invocation_id.clone();
        let title = prompt.as_ref().map_or_else(|| CONTINUED.to_owned(), title);
        self.base.services.checkpoints.begin(id.clone(), title, &self.base.transcript);
        let main = MainInvocation {
            origin,
            actor: None,
            admitting: None,
            outcome,
            rereading: None,
            stopping: None,
            base,
            counted: 0,
            began: self.base.ports.clock.monotonic(),
            absence: None,
        };
        self.admit(main, prompt).await?;
        Ok(Ok((id, receiver)))
    }

    /// Takes the next step of an admission: waits for the hooks of the session start, runs the
    /// hooks for the prompt, or starts the run.
    async fn admit(
        &mut self,
        mut main: MainInvocation,
        prompt: Option<Prompt>,
    ) -> Result<(), SpawnErr> {
        match &self.main_run.opening {
            StartHooks::Open => {}
            StartHooks::Blocked(why) => {
                let why = why.clone();
                self.conclude(main, blocked_ending(why), 0, Usage::default());
                return Ok(());
            }
            StartHooks::Asking(_) => {
                main.admitting = Some(PendingAdmission { prompt, _work: None });
                self.main_run.invocation = Some(main);
                return Ok(());
            }
        }
        // Messages before the start were seen by hooks of the earlier process.
        let heard = self.base.ports.hooks.has_hook(HookEvent::UserPromptSubmit, None);
        let Some(text) = prompt.as_ref().filter(|_| heard) else {
            return self.begin(main, prompt).await;
        };
        let moment = HookPayload::UserPromptSubmit { content: text.content.clone() };
        let id = main.origin.invocation_id.clone();
        let fired = self.base.services.fire(Some(&main.origin), moment);
        let admitted = move |hooked| Msg::MainRun(MainRunMsg::Admitted(id, hooked));
        let work = spawn_task(&self.base.me, fired, admitted);
        main.admitting = Some(PendingAdmission { prompt, _work: Some(work) });
        self.main_run.invocation = Some(main);
        Ok(())
    }

    pub(crate) async fn admitted(
        &mut self,
        id: &InvocationId,
        hooked: Result<HookOutcome, JoinError>,
    ) -> HandlerResult {
        let theirs = |main: &mut MainInvocation| {
            main.origin.invocation_id == *id && main.admitting.is_some()
        };
        let Some(mut main) = self.main_run.invocation.take_if(theirs) else { return Ok(()) };
        let Some(PendingAdmission { prompt, .. }) = main.admitting.take() else { return Ok(()) };
        match block_reason(hooked) {
            None => self.begin(main, prompt).await?,
            Some(why) => self.conclude(main, blocked_ending(why), 0, Usage::default()),
        }
        Ok(())
    }

    /// Starts an admitted run: with its prompt, or, without one, as a continuation.
    async fn begin(
        &mut self,
        mut main: MainInvocation,
        prompt: Option<Prompt>,
    ) -> Result<(), SpawnErr> {
        match prompt {
            Some(prompt) => self.begin_with(&mut main, prompt).await?,
            None => self.resume_now(&mut main).await?,
        }
        self.main_run.invocation = Some(main);
        Ok(())
    }

    /// Adds the queued messages and the prompt to the history and starts the run. Drops an
    /// interrupted run, and resumes its background subagents.
    async fn begin_with(
        &mut self,
        main: &mut MainInvocation,
        prompt: Prompt,
    ) -> Result<(), SpawnErr> {
        self.drop_unfinished();
        self.resume_subagents(None);
        let origin = Arc::clone(&main.origin);
        // Messages that arrived too late for the previous run precede this prompt.
        for queued in std::mem::take(&mut self.main_run.queued) {
            self.main_run.history.push(Arc::new(Message::User { content: queued.content.clone() }));
            queued.note_delivered(&self.base.transcript, &origin);
        }
        if let Some(delegation_handle) = &self.base.delegation_handle {
            delegation_handle.set_user_request(&text_of(&prompt.content));
        }
        let event = Event::UserMessage { content: prompt.content.clone(), message_id: None };
        self.base.transcript.note(Some(&origin), event);
        self.base.transcript.note(Some(&origin), self.base.invocation_started());
        self.main_run.history.push(Arc::new(Message::User { content: prompt.content }));
        self.start_invocation(main, Resumed::default()).await
    }
}

impl SessionBase {
    /// The hooks for the end of the session, as a future; `None` if none is registered.
    pub(crate) fn closing_hooks(
        &self,
        reason: &SessionEndReason,
    ) -> Option<impl Future<Output = HookOutcome> + Send + 'static> {
        let heard = self.ports.hooks.has_hook(HookEvent::SessionEnd, None);
        heard.then(|| self.services.fire(None, HookPayload::SessionEnd { reason: reason.clone() }))
    }
}

/// Reason for which a hook denied the start of the session or the prompt; `None` if none did. A
/// crash of the hook runner counts as a denial.
fn block_reason(hooked: Result<HookOutcome, JoinError>) -> Option<String> {
    match hooked {
        Ok(hooked) => hooked.blocked,
        Err(_) => Some("the hook runner crashed".to_owned()),
    }
}
