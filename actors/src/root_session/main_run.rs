//! Run of the main agent: admission of prompts, message queue, resume, interruption, and tool calls
//! of the user.

pub(super) mod admission;
pub(super) mod messages;
pub(super) mod own_call;
pub(super) mod recovery;
pub(super) mod resume;
pub(super) mod stop;

use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorId, ActorRef, RpcReplyPort, SpawnErr};
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::agent_invocation::{
    self, AgentInvocation, InvocationOutcome, ModelRoutes, Resumed, TimeLimit,
};
use crate::conversation::{InvocationId, Message, MessageId, Prompt, Usage};
use crate::event::{Event, MessageKind, Origin};
use crate::hook_events::HookOutcome;
use crate::mailbox::{
    AliveToken, AllGone, HandlerResult, Lost, OwnedTask, Report, answer, spawn_child,
};
use crate::outcome::Ending;
use crate::ports::ToolOutput;
use crate::replay::{QueuedInput, Replayed, awaits_answer};
use crate::restarts::RestartBudget;
use crate::root_session::{
    DeliverError, Msg, PromptError, SessionBase, State, TurnOutcome, UserCall,
};

use admission::{PendingAdmission, StartHooks};
use messages::QueueReplacement;
use own_call::OwnCall;
use resume::Unfinished;
use stop::Reach;

pub(super) type PromptAdmission =
    Result<(InvocationId, oneshot::Receiver<TurnOutcome>), PromptError>;

/// Messages about the run of the main agent.
#[derive(strum::IntoStaticStr)]
pub(super) enum MainRunMsg {
    Prompt(Prompt, RpcReplyPort<PromptAdmission>),
    /// Continue an interrupted run, or start one for messages without an answer.
    Continue(RpcReplyPort<PromptAdmission>),
    /// The hooks for the start of the session have finished.
    Opened(Result<HookOutcome, JoinError>),
    /// The hooks for the prompt of this invocation have finished.
    Admitted(InvocationId, Result<HookOutcome, JoinError>),
    Deliver(QueuedInput, RpcReplyPort<Result<(), DeliverError>>),
    ReplaceQueued(QueueReplacement),
    /// Run a tool for the user.
    OwnCall(UserCall, RpcReplyPort<PromptAdmission>),
    OwnCallEnded(Result<ToolOutput, Lost>),
    Interrupt(Reach),
    History(RpcReplyPort<Vec<Arc<Message>>>),
    /// Is neither a run, nor a tool call of the user, nor a subagent in progress?
    Idle(RpcReplyPort<bool>),
    #[strum(serialize = "InvocationEnded")]
    Ended(InvocationId, Result<InvocationOutcome, Lost>),
    /// The records of the crashed main invocation were read back from the journal, or could not be
    /// read.
    Reread(InvocationId, Box<Result<Replayed, String>>),
}

/// The current invocation of the main agent.
pub(super) struct MainInvocation {
    origin: Arc<Origin>,
    /// Its actor. `None` while it is rebuilt from the journal, and while the run waits for hooks.
    actor: Option<ActorRef<agent_invocation::Msg>>,
    /// Admission that waits for hooks, with its prompt, which is not in the history yet; `None` if
    /// the run is admitted.
    admitting: Option<PendingAdmission>,
    outcome: oneshot::Sender<TurnOutcome>,
    rereading: Option<OwnedTask>,
    /// Ending with which it was asked to stop; `None` if it was not.
    stopping: Option<Ending>,
    /// Number of messages of the history before this invocation; 0 after it was rebuilt from a
    /// compacted history.
    base: usize,
    /// Number of its replies that [`MainRun::turns`] contains already: those of an earlier process.
    counted: u32,
    /// Start time (monotonic); a crash does not change it.
    began: Duration,
    /// Completes when nothing of its last incarnation is left; `None` if it was never started or is
    /// rebuilt.
    absence: Option<AllGone>,
}

/// State of the main agent's conversation and of its current run.
pub(super) struct MainRun {
    /// History of the conversation, without system messages.
    pub(super) history: Vec<Arc<Message>>,
    /// Queued messages for the next run.
    queued: Vec<QueuedInput>,
    invocation: Option<MainInvocation>,
    /// Interrupted run of an earlier process, until it is continued or dropped; `None` if there is
    /// none.
    unfinished: Option<Unfinished>,
    /// Tool call of the user in progress; `None` if there is none.
    own_call: Option<OwnCall>,
    /// Progress and decision of the hooks for the start of the session.
    opening: StartHooks,
    /// Routes to the models of the main agent, with what is known about their availability.
    model_routes: ModelRoutes,
    restarts: RestartBudget,
    /// Number of model replies in this session, including those of subagents. Replies of the
    /// current run in this process and of running subagents are added at their end.
    pub(super) turns: u32,
}

impl MainRun {
    pub(super) fn new(
        history: Vec<Arc<Message>>,
        model_routes: ModelRoutes,
        restarts: RestartBudget,
    ) -> MainRun {
        MainRun {
            history,
            queued: Vec::new(),
            invocation: None,
            unfinished: None,
            own_call: None,
            opening: StartHooks::Open,
            model_routes,
            restarts,
            turns: 0,
        }
    }

    /// Replaces the message of the history with this index, if there is one.
    pub(super) fn replace_message(&mut self, index: usize, message: Message) {
        if let Some(place) = self.history.get_mut(index) {
            *place = Arc::new(message);
        }
    }

    /// Queues a message for the next run.
    pub(super) fn queue(&mut self, queued: QueuedInput) {
        self.queued.push(queued);
    }

    pub(super) fn has_queued(&self, id: &MessageId) -> bool {
        self.queued.iter().any(|queued| queued.id == *id)
    }

    /// Removes and returns the queued messages about tool calls of the user.
    fn take_asides(&mut self) -> Vec<QueuedInput> {
        self.queued.extract_if(.., |queued| queued.kind == MessageKind::Aside).collect()
    }

    /// True while there is a current invocation, including one that is rebuilt or waits for hooks.
    pub(super) fn is_running(&self) -> bool {
        self.invocation.is_some()
    }

    /// True while a run or a tool call of the user is in progress. Subagents and compactions do not
    /// count.
    pub(super) fn is_busy(&self) -> bool {
        self.is_running() || self.own_call.is_some()
    }

    /// Id of the current invocation; `None` if there is none.
    pub(super) fn id(&self) -> Option<&InvocationId> {
        self.invocation.as_ref().map(|main| &main.origin.invocation_id)
    }

    pub(super) fn is(&self, id: &InvocationId) -> bool {
        self.id() == Some(id)
    }

    /// Start time of the current run (monotonic); `None` if there is none.
    pub(super) fn began(&self) -> Option<Duration> {
        self.invocation.as_ref().map(|main| main.began)
    }

    /// True if the current run was asked to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.invocation.as_ref().is_some_and(|main| main.stopping.is_some())
    }

    /// True if `id` is the current invocation and it has no actor.
    pub(super) fn is_rebuilding(&self, id: &InvocationId) -> bool {
        self.is(id) && self.actor().is_none()
    }

    /// Origin and actor of the current invocation, for sending messages to it; `None` if there is
    /// none. The actor is `None` while it does not exist.
    pub(super) fn recipient(
        &self,
    ) -> Option<(Arc<Origin>, Option<ActorRef<agent_invocation::Msg>>)> {
        self.invocation.as_ref().map(|main| (Arc::clone(&main.origin), main.actor.clone()))
    }

    fn actor(&self) -> Option<&ActorRef<agent_invocation::Msg>> {
        self.invocation.as_ref().and_then(|main| main.actor.as_ref())
    }

    pub(super) fn has_actor(&self, id: ActorId) -> bool {
        self.actor().is_some_and(|actor| actor.get_id() == id)
    }

    pub(super) fn has_own_call(&self, id: ActorId) -> bool {
        self.own_call.as_ref().is_some_and(|own| own.is(id))
    }

    /// Removes and returns the current invocation if it is being rebuilt: it has no actor and does
    /// not wait for hooks.
    pub(super) fn take_rebuilding(&mut self) -> Option<MainInvocation> {
        self.invocation.take_if(|main| main.actor.is_none() && main.admitting.is_none())
    }

    /// True if a run can start without a new prompt: a steering message or a follow-up is queued,
    /// or the last message of the history has no answer.
    fn awaits_model(&self) -> bool {
        // Ended background work does not start a run.
        let asks = |queued: &QueuedInput| {
            matches!(queued.kind, MessageKind::Steer | MessageKind::FollowUp)
        };
        self.queued.iter().any(asks) || self.history.last().is_some_and(|last| awaits_answer(last))
    }
}

impl State {
    /// Returns an error if no run or tool call of the user may start now: one is in progress, a
    /// compaction waits for its summary, or the session is ending or parked.
    fn may_begin(&self) -> Result<(), PromptError> {
        self.end.refusal()?;
        if self.main_run.is_busy() || self.compactor.is_busy() {
            return Err(PromptError::Busy);
        }
        Ok(())
    }
}

impl State {
    pub(super) async fn handle_main_run(&mut self, msg: MainRunMsg) -> HandlerResult {
        match msg {
            MainRunMsg::Prompt(prompt, reply) => {
                let admission = self.prompt(prompt).await?;
                answer(reply, admission);
            }
            MainRunMsg::Continue(reply) => {
                let admission = self.resume_run().await?;
                answer(reply, admission);
            }
            MainRunMsg::Opened(hooked) => self.opened(hooked).await?,
            MainRunMsg::Admitted(id, hooked) => self.admitted(&id, hooked).await?,
            MainRunMsg::Deliver(queued, reply) => messages::deliver(queued, reply, &self.main_run),
            MainRunMsg::ReplaceQueued(replacement) => self.replace_queued(replacement),
            MainRunMsg::OwnCall(wanted, reply) => {
                let admission = self.own_call(wanted).await?;
                answer(reply, admission);
            }
            MainRunMsg::OwnCallEnded(output) => self.own_call_ended(output),
            MainRunMsg::Interrupt(reach) => self.stop(reach, Ending::Interrupted),
            MainRunMsg::History(reply) => {
                self.base.append_own_calls(&mut self.main_run);
                answer(reply, self.main_run.history.clone());
            }
            MainRunMsg::Idle(reply) => {
                answer(reply, !self.main_run.is_busy() && !self.subagents.any_live());
            }
            MainRunMsg::Ended(id, outcome) => self.invocation_ended(&id, outcome),
            MainRunMsg::Reread(id, replayed) => self.reread(&id, *replayed).await?,
        }
        Ok(())
    }

    async fn prompt(&mut self, prompt: Prompt) -> Result<PromptAdmission, SpawnErr> {
        if let Err(error) = self.may_begin() {
            return Ok(Err(error));
        }
        self.main_run
            .model_routes
            .retry_now(self.base.ports.clock.monotonic(), &self.base.settings.limits);
        let base = self.main_run.history.len();
        self.admit_as(self.base.new_origin(), base, Some(prompt)).await
    }

    async fn start_invocation(
        &mut self,
        main: &mut MainInvocation,
        resumed: Resumed,
    ) -> Result<(), SpawnErr> {
        let system = Message::System { content: self.base.settings.system_prompt.clone() };
        let mut history = Vec::with_capacity(self.main_run.history.len() + 64);
        history.push(Arc::new(system));
        history.extend(self.main_run.history.iter().cloned());
        history.truncate(history.len() - resumed.pending.len());
        let id = main.origin.invocation_id.clone();
        let mut resumed = resumed;
        self.subagents.take_pending(&id, &mut resumed.queued);
        let (presence, absence) = AliveToken::new();
        let spent = self.base.ports.clock.monotonic().saturating_sub(main.began);
        let limit = |whole: Duration| TimeLimit { whole, left: whole.saturating_sub(spent) };
        let args = agent_invocation::Args {
            origin: Arc::clone(&main.origin),
            services: Arc::clone(&self.base.services),
            model_routes: self.main_run.model_routes.clone(),
            options: self.base.settings.options.clone(),
            tools: Arc::clone(&self.base.specs),
            history,
            resumed,
            time: self.base.settings.limits.duration_max.map(limit),
            tokens_max: None,
            fitter: self.base.fitter(&self.compactor),
            presence,
            report: Report::to(&self.base.me, move |outcome| {
                Msg::MainRun(MainRunMsg::Ended(id, outcome))
            }),
        };
        main.actor = Some(spawn_child(AgentInvocation, args, &self.base.me).await?);
        main.absence = Some(absence);
        Ok(())
    }

    fn invocation_ended(&mut self, id: &InvocationId, outcome: Result<InvocationOutcome, Lost>) {
        // Supervision reports a crash as well, and restarts the invocation.
        let Ok(InvocationOutcome { ending, history, queued, turns, usage, .. }) = outcome else {
            return;
        };
        let Some(main) = self.main_run.invocation.take_if(|main| main.origin.invocation_id == *id)
        else {
            return;
        };
        if let Some(actor) = &main.actor {
            actor.stop(None);
        }
        let system = |message: &Arc<Message>| matches!(**message, Message::System { .. });
        self.main_run.history = history.into_iter().filter(|message| !system(message)).collect();
        self.main_run.queued.extend(queued);
        self.stop_awaited(id);
        self.conclude(main, ending, turns, usage);
    }

    fn conclude(&mut self, main: MainInvocation, ending: Ending, turns: u32, usage: Usage) {
        self.base.services.checkpoints.end();
        self.main_run.turns += main.uncounted(turns);
        self.name_session(&main.origin, &ending);
        main.outcome.send(self.base.turn_outcome(ending, turns, usage)).ok();
        self.close_if_idle();
    }
}

impl SessionBase {
    fn turn_outcome(&self, ending: Ending, turns: u32, usage: Usage) -> TurnOutcome {
        let book = &self.services.book;
        let (unanswered, not_by_yes) = book.unanswered();
        TurnOutcome { ending, turns, usage, unanswered, not_by_yes }
    }

    fn invocation_started(&self) -> Event {
        Event::InvocationStarted {
            provider: self.provider_info.profile.clone(),
            model: self.provider_info.model.clone(),
            tools: self.specs.iter().map(|spec| spec.name.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{AssistantMessage, ContentPart};
    use crate::replay::replace_queued;

    fn main_run(history: Vec<Message>, kinds: &[MessageKind]) -> MainRun {
        let history = history.into_iter().map(Arc::new).collect();
        let restarts = RestartBudget::new(0, Duration::ZERO);
        let mut run = MainRun::new(history, ModelRoutes::new(Vec::new()), restarts);
        for kind in kinds {
            let id = MessageId::new(format!("{kind:?}"));
            run.queue(QueuedInput { id, kind: *kind, content: Vec::new() });
        }
        run
    }

    fn queued(run: &MainRun) -> Vec<MessageKind> {
        run.queued.iter().map(|queued| queued.kind).collect()
    }

    #[test]
    fn only_the_user_or_an_unanswered_message_makes_the_model_answer() {
        use MessageKind::{Aside, FollowUp, Notice, Steer};
        let user = || Message::User { content: vec![ContentPart::text("go")] };
        let reply = || {
            let content = Some("done".to_owned());
            Message::Assistant(AssistantMessage { content, ..AssistantMessage::default() })
        };
        let table = [
            (vec![], vec![], false),
            (vec![user()], vec![], true),
            (vec![user(), reply()], vec![], false),
            (vec![user(), reply()], vec![Notice, Aside], false),
            (vec![user(), reply()], vec![Notice, Steer], true),
            (vec![user(), reply()], vec![FollowUp], true),
        ];
        for (at, (history, kinds, awaits)) in table.into_iter().enumerate() {
            assert_eq!(main_run(history, &kinds).awaits_model(), awaits, "row {at}");
        }
    }

    #[test]
    fn messages_of_posse_are_not_withdrawn() {
        use MessageKind::{Aside, FollowUp, Notice, Steer};
        let all = [Steer, Notice, FollowUp, Aside];
        let table = [
            ("Steer", Some(Steer), vec![Notice, FollowUp, Aside]),
            ("FollowUp", Some(FollowUp), vec![Steer, Notice, Aside]),
            ("Notice", None, all.to_vec()),
            ("unknown", None, all.to_vec()),
        ];
        for (id, withdrawn, left) in table {
            let mut run = main_run(Vec::new(), &all);
            let taken = replace_queued(&mut run.queued, &[MessageId::new(id)], Vec::new());
            let taken = taken.and_then(|taken| taken.into_iter().next());
            assert_eq!(taken.map(|queued| queued.kind), withdrawn, "{id}");
            assert_eq!(queued(&run), left, "{id}");
        }
    }

    #[test]
    fn asides_leave_the_queue_in_order() {
        use MessageKind::{Aside, Notice};
        let mut run = main_run(Vec::new(), &[Aside, Notice, Aside]);
        assert_eq!(run.take_asides().len(), 2);
        assert_eq!(queued(&run), [Notice]);
    }
}
