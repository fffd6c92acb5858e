//! The main run: admission of prompts, the queue, resume, interruption, and calls of the user.

pub(super) mod admission;
pub(super) mod messages;
pub(super) mod own_call;
pub(super) mod resume;

use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorRef, RpcReplyPort, SpawnErr};
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::agent_invocation::{
    self, AgentInvocation, InvocationOutcome, QueuedInput, TimeLimit, UnfinishedCall,
};
use crate::conversation::{InvocationId, Message, Prompt, Usage};
use crate::delegation::ActionLog;
use crate::event::{Event, MessageKind, Origin};
use crate::hook_events::HookOutcome;
use crate::mailbox::{AliveToken, AllGone, HandlerResult, Lost, OwnedTask, Report, answer, tell};
use crate::outcome::Ending;
use crate::ports::{JournalError, ToolOutput};
use crate::replay::{Replayed, awaits_answer};
use crate::root_session::{
    DeliverError, Msg, PromptError, RootSession, State, TurnOutcome, UserCall,
};

use admission::{PendingAdmission, RunTask};
use messages::Withdrawal;

/// Scope of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The main agent, and the subagents it waits for.
    Foreground,
    /// All subagents.
    All,
}

pub(super) type PromptAdmission =
    Result<(InvocationId, oneshot::Receiver<TurnOutcome>), PromptError>;

/// Messages about the main run.
pub(super) enum MainRunMsg {
    Prompt(Prompt, RpcReplyPort<PromptAdmission>),
    /// Continue an interrupted run.
    Continue(RpcReplyPort<PromptAdmission>),
    /// The session-start hooks have finished.
    Opened(Result<HookOutcome, JoinError>),
    /// The prompt hooks have finished.
    Admitted(InvocationId, Result<HookOutcome, JoinError>),
    Deliver(QueuedInput, RpcReplyPort<Result<(), DeliverError>>),
    Withdraw(Withdrawal),
    /// The user runs a tool.
    OwnCall(UserCall, RpcReplyPort<PromptAdmission>),
    OwnCallEnded(Result<ToolOutput, Lost>),
    Interrupt(Reach),
    History(RpcReplyPort<Vec<Arc<Message>>>),
    Ended(InvocationId, Result<InvocationOutcome, Lost>),
    /// Journal state of the crashed invocation.
    Reread(InvocationId, Box<Result<Result<Replayed, JournalError>, JoinError>>),
}

impl MainRunMsg {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            MainRunMsg::Prompt(..) => "Prompt",
            MainRunMsg::Continue(_) => "Continue",
            MainRunMsg::Opened(_) => "Opened",
            MainRunMsg::Admitted(..) => "Admitted",
            MainRunMsg::Deliver(..) => "Deliver",
            MainRunMsg::Withdraw(_) => "Withdraw",
            MainRunMsg::OwnCall(..) => "OwnCall",
            MainRunMsg::OwnCallEnded(_) => "OwnCallEnded",
            MainRunMsg::Interrupt(_) => "Interrupt",
            MainRunMsg::History(_) => "History",
            MainRunMsg::Ended(..) => "InvocationEnded",
            MainRunMsg::Reread(..) => "Reread",
        }
    }
}

/// State of an earlier incarnation of an invocation.
#[derive(Default)]
pub(super) struct Resumed {
    /// The calls of the last reply, if not all of them are done; their results end the history.
    pub(super) pending: Vec<UnfinishedCall>,
    pub(super) queued: Vec<QueuedInput>,
    pub(super) turns: u32,
    pub(super) usage: Usage,
    /// Its actions, if it is a subagent.
    pub(super) actions: ActionLog,
}

/// The main invocation.
pub(super) struct MainRun {
    pub(super) origin: Arc<Origin>,
    /// `None` while it is rebuilt from the journal, and while hooks check its prompt.
    pub(super) actor: Option<ActorRef<agent_invocation::Msg>>,
    /// Prompt that waits for hooks and is not in the history yet.
    pub(super) admitting: Option<PendingAdmission>,
    pub(super) outcome: oneshot::Sender<TurnOutcome>,
    pub(super) rereading: Option<OwnedTask>,
    /// The ending that it was asked for.
    pub(super) stopping: Option<Ending>,
    /// Length of the history before it.
    pub(super) base: usize,
    /// Replies that the session has counted already.
    pub(super) counted: u32,
    /// Start time (monotonic), unchanged by crashes.
    pub(super) began: Duration,
    /// Completes when nothing of its last incarnation is left.
    pub(super) absence: Option<AllGone>,
}

impl RootSession {
    pub(super) async fn handle_main_run(
        &self,
        me: &ActorRef<Msg>,
        msg: MainRunMsg,
        state: &mut State,
    ) -> HandlerResult {
        match msg {
            MainRunMsg::Prompt(prompt, reply) => {
                let admission = self.prompt(me, prompt, state).await?;
                answer(reply, admission);
            }
            MainRunMsg::Continue(reply) => {
                let admission = self.resume_run(me, state).await?;
                answer(reply, admission);
            }
            MainRunMsg::Opened(hooked) => self.opened(me, hooked, state).await?,
            MainRunMsg::Admitted(id, hooked) => self.admitted(me, &id, hooked, state).await?,
            MainRunMsg::Deliver(queued, reply) => messages::deliver(queued, reply, state),
            MainRunMsg::Withdraw(withdrawal) => self.withdraw_message(me, withdrawal, state),
            MainRunMsg::OwnCall(wanted, reply) => {
                let admission = self.own_call(me, wanted, state).await?;
                answer(reply, admission);
            }
            MainRunMsg::OwnCallEnded(output) => self.own_call_ended(me, output, state),
            MainRunMsg::Interrupt(reach) => self.stop(me, reach, Ending::Interrupted, state),
            MainRunMsg::History(reply) => {
                self.append_own_calls(state);
                answer(reply, state.history.clone());
            }
            MainRunMsg::Ended(id, outcome) => self.invocation_ended(me, &id, outcome, state),
            MainRunMsg::Reread(id, replayed) => self.reread(me, &id, *replayed, state).await?,
        }
        Ok(())
    }

    async fn prompt(
        &self,
        me: &ActorRef<Msg>,
        prompt: Prompt,
        state: &mut State,
    ) -> Result<PromptAdmission, SpawnErr> {
        if let Err(error) = state.may_begin() {
            return Ok(Err(error));
        }
        state.model_routes.retry_now(self.ports.clock.monotonic(), &self.settings.limits);
        let base = state.history.len();
        self.admit_as(me, self.new_origin(), base, RunTask::Prompt(prompt), state).await
    }

    fn invocation_started(&self) -> Event {
        Event::InvocationStarted {
            provider: self.provider_info.profile.clone(),
            model: self.provider_info.model.clone(),
            tools: self.specs.iter().map(|spec| spec.name.clone()).collect(),
            after: None,
        }
    }

    pub(super) async fn start_invocation(
        &self,
        me: &ActorRef<Msg>,
        main: &mut MainRun,
        resumed: Resumed,
        state: &mut State,
    ) -> Result<(), SpawnErr> {
        let system = Message::System { content: self.settings.system_prompt.clone() };
        let mut history = Vec::with_capacity(state.history.len() + 64);
        history.push(Arc::new(system));
        history.extend(state.history.iter().cloned());
        history.truncate(history.len() - resumed.pending.len());
        let id = main.origin.invocation_id.clone();
        let mut resumed = resumed;
        RootSession::pending(&id, &mut resumed.queued, &mut state.subagents);
        let (presence, absence) = AliveToken::new();
        let spent = self.ports.clock.monotonic().saturating_sub(main.began);
        let limit = |whole: Duration| TimeLimit { whole, left: whole.saturating_sub(spent) };
        let args = agent_invocation::Args {
            origin: Arc::clone(&main.origin),
            services: Arc::clone(&self.services),
            model_routes: state.model_routes.clone(),
            options: self.settings.options.clone(),
            tools: Arc::clone(&self.specs),
            history,
            pending: resumed.pending,
            queued: resumed.queued,
            turns: resumed.turns,
            usage: resumed.usage,
            actions: resumed.actions,
            time: self.settings.limits.duration_max.map(limit),
            tokens_max: None,
            fitter: self.fitter(state),
            presence,
            report: Report::to(me, move |outcome| Msg::MainRun(MainRunMsg::Ended(id, outcome))),
        };
        main.actor = Some(AgentInvocation::start(args, me).await?);
        main.absence = Some(absence);
        Ok(())
    }

    fn invocation_ended(
        &self,
        me: &ActorRef<Msg>,
        id: &InvocationId,
        outcome: Result<InvocationOutcome, Lost>,
        state: &mut State,
    ) {
        // Supervision reports a crash as well, and restarts it.
        let Ok(InvocationOutcome { ending, history, queued, turns, usage, .. }) = outcome else {
            return;
        };
        let Some(main) = state.main.take_if(|main| main.origin.invocation_id == *id) else {
            return;
        };
        if let Some(actor) = &main.actor {
            actor.stop(None);
        }
        let system = |message: &Arc<Message>| matches!(**message, Message::System { .. });
        state.history = history.into_iter().filter(|message| !system(message)).collect();
        state.queued.extend(queued);
        self.stop_awaited(me, id, state);
        self.conclude(me, main, ending, turns, usage, state);
    }

    pub(super) fn conclude(
        &self,
        me: &ActorRef<Msg>,
        main: MainRun,
        ending: Ending,
        turns: u32,
        usage: Usage,
        state: &mut State,
    ) {
        state.turns += main.uncounted(turns);
        let unanswered = self.services.book.unanswered();
        let not_by_yes = self.services.book.not_by_yes();
        self.name_session(me, &main.origin, &ending, state);
        main.outcome.send(TurnOutcome { ending, turns, usage, unanswered, not_by_yes }).ok();
        if state.ending.is_some() && !state.subagents.any_live() {
            self.close(me, state);
        }
    }
}

impl State {
    /// Returns an error if no run may start now.
    fn may_begin(&self) -> Result<(), PromptError> {
        if self.ending.is_some() {
            return Err(PromptError::Ended);
        }
        if let Some(cause) = &self.parked {
            return Err(PromptError::Parked(cause.clone()));
        }
        if self.main.is_some() || self.own_call.is_some() || self.compacting.is_some() {
            return Err(PromptError::Busy);
        }
        Ok(())
    }

    /// True if the model must answer without new input.
    fn awaits_model(&self) -> bool {
        // Ended background work does not start a run.
        let asks = |queued: &QueuedInput| {
            matches!(queued.kind, MessageKind::Steer | MessageKind::FollowUp)
        };
        self.queued.iter().any(asks) || self.history.last().is_some_and(|last| awaits_answer(last))
    }
}

/// Tells the main invocation to end. If it crashes meanwhile, it ends as well.
fn stop_main(ending: Ending, state: &mut State) {
    if let Some(main) = &mut state.main {
        let ending = main.stopping.get_or_insert(ending).clone();
        if let Some(actor) = &main.actor {
            tell(actor, agent_invocation::Msg::Stop(ending));
        }
    }
}
