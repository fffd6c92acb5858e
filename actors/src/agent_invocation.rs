//! One run of the agent loop, from a prompt to a final answer: performs the effects that the loop
//! requests.
//!
//! No handler waits for the model, a tool or a person, so an interrupt is never delayed by slow
//! work.

mod agent_loop;
mod auto_compact;
mod auxiliary_request;
mod calls;
mod completion;
mod ending;
mod failover;
mod fallback;
mod model_turn;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent};
use tokio::task::JoinError;

use crate::conversation::{CallId, ContentPart, Message, MessageId, QuestionId, ToolCall, Usage};
use crate::delegation::ActionLog;
use crate::event::{Event, HookEvent, Origin, ToolFailureClass};
use crate::hook_events::HookOutcome;
use crate::ledger::TokenCalibration;
use crate::mailbox::{
    AliveToken, HandlerResult, Lost, OwnedTask, Report, StartResult, answer, spawn_task, tell,
};
use crate::outcome::Ending;
use crate::ports::{Thinking, ToolOutput, ToolSpec};
use crate::provider_client;
use crate::tool_call::{self, Services};
use crate::transcript_writer::{Transcript, Unrecorded};

pub(crate) use agent_loop::QueuedInput;
pub(crate) use auto_compact::{ContextFitter, Summary, compacted_event, without_summary};
pub(crate) use auxiliary_request::AuxiliaryRequest;
pub(crate) use calls::lost_output;
pub(crate) use ending::{ended_event, hooked};
pub(crate) use failover::{ModelRoute, ModelRoutes};
pub(crate) use model_turn::requested_event;

use agent_loop::{AgentLoop, Effect, LoopBounds, LoopInput, LoopStart};
use auto_compact::PendingSummary;
use calls::RunningCall;
use ending::{failed_event, limit_event};
use model_turn::{ModelOutcome, OpenTurn, RequestClearance};

/// The time that an invocation may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    pub(crate) whole: Duration,
    /// Without what an earlier incarnation took.
    pub(crate) left: Duration,
}

/// Arguments for starting an invocation.
pub(crate) struct Args {
    pub(crate) origin: Arc<Origin>,
    pub(crate) services: Arc<Services>,
    /// The models that may be asked; the first is the one that was chosen.
    pub(crate) model_routes: ModelRoutes,
    pub(crate) options: RequestOptions,
    pub(crate) tools: Arc<[ToolSpec]>,
    /// Valid history. Ends with the message to answer, or with the reply whose calls are `pending`.
    pub(crate) history: Vec<Arc<Message>>,
    /// The calls of the last reply, if an earlier incarnation did not get all of them done.
    pub(crate) pending: Vec<UnfinishedCall>,
    /// Messages that wait already.
    pub(crate) queued: Vec<QueuedInput>,
    /// Replies that an earlier incarnation had.
    pub(crate) turns: u32,
    /// Tokens used so far.
    pub(crate) usage: Usage,
    /// Actions so far.
    pub(crate) actions: ActionLog,
    /// Time limit, if there is one.
    pub(crate) time: Option<TimeLimit>,
    /// Tokens that it may use, if there is a limit.
    pub(crate) tokens_max: Option<u64>,
    /// Context budget and compaction.
    pub(crate) fitter: ContextFitter,
    pub(crate) presence: AliveToken,
    pub(crate) report: Report<InvocationOutcome>,
}

/// A call of a reply that an earlier incarnation did not get done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnfinishedCall {
    pub(crate) call: ToolCall,
    /// Its result, if it has one. If not, nothing has happened yet.
    pub(crate) output: Option<ToolOutput>,
    /// True if observers know the invocation.
    pub(crate) requested: bool,
    /// The question about it that is open in front of the user.
    pub(crate) question: Option<QuestionId>,
    /// It had started a subagent and waits for it again.
    pub(crate) attached: bool,
}

/// Options of model requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestOptions {
    /// True if replies are streamed.
    pub stream: bool,
    /// Upper bound of a reply, if one is wanted.
    pub tokens_max: Option<u64>,
    /// Sampling temperature, if one is wanted.
    pub temperature: Option<f64>,
    /// Reasoning effort, if set.
    pub thinking: Option<Thinking>,
}

/// Final state of an invocation.
#[derive(Debug)]
pub(crate) struct InvocationOutcome {
    pub(crate) ending: Ending,
    pub(crate) history: Vec<Arc<Message>>,
    /// Messages that were queued and not delivered.
    pub(crate) queued: Vec<QueuedInput>,
    pub(crate) turns: u32,
    pub(crate) usage: Usage,
    pub(crate) actions: ActionLog,
}

pub(crate) enum Msg {
    /// The journal has space and hooks have run: the model request may start.
    Cleared(Result<Result<RequestClearance, Unrecorded>, JoinError>),
    Replied(Result<ModelOutcome, JoinError>),
    /// Hooks have seen the final answer.
    Summarised(Result<Result<String, String>, JoinError>),
    Settled(Result<HookOutcome, JoinError>),
    CallEnded(CallId, Result<ToolOutput, Lost>),
    Deliver(QueuedInput, RpcReplyPort<Result<(), QueueFull>>),
    /// Take back a message that waits. Without an answer nothing runs any more.
    Withdraw(MessageId, RpcReplyPort<Option<Vec<ContentPart>>>),
    /// Already recorded. A dropped report means that it was not delivered.
    Notice(QueuedInput, Report<()>),
    Stop(Ending),
    TimeUp,
}

/// A message could not be queued: too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl QueuedInput {
    /// Records that it entered the history.
    pub(crate) fn note_delivered(self, transcript: &Transcript, origin: &Arc<Origin>) {
        let QueuedInput { id, kind: _, content } = self;
        transcript.note(Some(origin), Event::MessageDelivered { message_id: id.clone() });
        let event = Event::UserMessage { content, message_id: Some(id) };
        transcript.note(Some(origin), event);
    }
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::Cleared(_) => "Cleared",
            Msg::Replied(_) => "Replied",
            Msg::Summarised(_) => "Summarised",
            Msg::Settled(_) => "Settled",
            Msg::CallEnded(..) => "CallEnded",
            Msg::Deliver(..) => "Deliver",
            Msg::Withdraw(..) => "Withdraw",
            Msg::Notice(..) => "Notice",
            Msg::Stop(_) => "Stop",
            Msg::TimeUp => "TimeUp",
        }
    }
}

pub(crate) struct AgentInvocation {
    origin: Arc<Origin>,
    services: Arc<Services>,
    model_routes: ModelRoutes,
    options: RequestOptions,
    tools: Arc<[ToolSpec]>,
    visible: Arc<[String]>,
    /// Token calibration for its history.
    calibration: TokenCalibration,
    fitter: ContextFitter,
    presence: AliveToken,
    /// Time limit in total.
    time_max: Option<Duration>,
}

pub(crate) struct State {
    agent_loop: AgentLoop,
    calls: HashMap<CallId, RunningCall>,
    /// Questions about calls that did not start yet, from an earlier incarnation.
    asked: HashMap<CallId, QuestionId>,
    /// Calls that an earlier incarnation had started agents with.
    attached: HashSet<CallId>,
    report: Option<Report<InvocationOutcome>>,
    clearing: Option<OwnedTask>,
    asking: Option<OpenTurn>,
    /// History that a model is summarising before the next request.
    fitting: Option<PendingSummary>,
    /// The user's last message at the start, if the run began with one.
    prompt: Option<Arc<Message>>,
    /// Requests in a row that the provider refused for their size.
    overflows: u32,
    settling: Option<OwnedTask>,
    /// Number of times that hooks made this run continue.
    holds: u32,
    /// Actions of its calls so far.
    actions: ActionLog,
    _time_limit: Option<OwnedTask>,
}

/// The part of the arguments that becomes state.
pub(crate) struct InvocationWork {
    agent_loop: AgentLoop,
    asked: HashMap<CallId, QuestionId>,
    attached: HashSet<CallId>,
    report: Report<InvocationOutcome>,
    actions: ActionLog,
    time_left: Option<Duration>,
}

impl AgentInvocation {
    pub(crate) async fn start<M: ractor::Message>(
        args: Args,
        parent: &ActorRef<M>,
    ) -> Result<ActorRef<Msg>, SpawnErr> {
        let Args {
            origin,
            services,
            model_routes,
            options,
            tools,
            history,
            pending,
            queued,
            turns,
            usage,
            actions,
            time,
            tokens_max,
            fitter,
            presence,
            report,
        } = args;
        let limits = &services.limits;
        let bounds = LoopBounds {
            turns_max: limits.turns_max,
            parallel_calls_max: limits.parallel_calls_max,
            calls_per_turn_max: limits.calls_per_turn_max,
            repeated_failures_max: limits.repeated_failures_max,
            queued_messages_max: limits.queued_messages_max,
            tokens_max,
            settles: services.hooks.has_hook(HookEvent::Stop, None),
        };
        let attached = pending.iter().filter(|one| one.attached).map(|one| one.call.id.clone());
        let attached = attached.collect();
        let (pending, asked) = calls::take_up(pending, &tools, &services.transcript, &origin);
        let work = InvocationWork {
            agent_loop: AgentLoop::new(
                bounds,
                LoopStart { history, pending, queued, turns, usage },
            ),
            asked,
            attached,
            report,
            actions,
            time_left: time.map(|time| time.left),
        };
        let time_max = time.map(|time| time.whole);
        let visible = tools.iter().map(|tool| tool.name.clone()).collect();
        let actor = AgentInvocation {
            origin,
            services,
            model_routes,
            options,
            tools,
            visible,
            calibration: TokenCalibration::default(),
            fitter,
            presence,
            time_max,
        };
        let (actor, _) = Actor::spawn_linked(None, actor, work, parent.get_cell()).await?;
        Ok(actor)
    }
}

impl Actor for AgentInvocation {
    type Msg = Msg;
    type State = State;
    type Arguments = InvocationWork;

    async fn pre_start(&self, me: ActorRef<Msg>, work: InvocationWork) -> StartResult<State> {
        let InvocationWork { agent_loop, asked, attached, report, actions, time_left } = work;
        let limit =
            |duration| spawn_task(&me, self.services.clock.sleep(duration), |_| Msg::TimeUp);
        let is_user = |message: &&Arc<Message>| matches!(***message, Message::User { .. });
        let prompt = agent_loop.history().last().filter(is_user).cloned();
        let mut state = State {
            agent_loop,
            calls: HashMap::new(),
            asked,
            attached,
            report: Some(report),
            clearing: None,
            asking: None,
            fitting: None,
            prompt,
            overflows: 0,
            settling: None,
            holds: 0,
            actions,
            _time_limit: time_left.map(limit),
        };
        let effects = state.agent_loop.step(LoopInput::Begin);
        self.perform(&me, effects, &mut state).await?;
        Ok(state)
    }

    async fn handle(&self, me: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        self.services.fail.hit("AgentInvocation", msg.kind());
        let input = match msg {
            Msg::Cleared(cleared) => self.cleared(&me, cleared, state)?,
            Msg::Replied(replied) => self.heard(&me, replied, state)?,
            Msg::Summarised(summary) => {
                self.summarised(&me, summary, state)?;
                None
            }
            Msg::Settled(hooked) => self.settled(hooked, state)?,
            Msg::CallEnded(id, output) => self.call_ended(id, output, state),
            Msg::Deliver(queued, reply) => self.queue(queued, reply, state),
            Msg::Withdraw(id, reply) => {
                self.withdraw(&id, reply, state);
                None
            }
            Msg::Notice(queued, heard) => state.report.is_some().then(|| {
                heard.send(());
                LoopInput::QueuedInput(queued)
            }),
            Msg::Stop(ending) => Some(LoopInput::Stop(ending)),
            Msg::TimeUp => Some(LoopInput::Stop(self.time_is_up())),
        };
        let Some(input) = input else { return Ok(()) };
        let effects = state.agent_loop.step(input);
        self.perform(&me, effects, state).await
    }

    // A crashing call costs that call. ractor's default would end us with it.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> HandlerResult {
        match event {
            SupervisionEvent::ActorFailed(child, cause) => {
                let (actor, cause) = ("ToolCallRun".to_owned(), cause.to_string());
                let crashed = Event::ActorCrashed { actor, cause };
                self.services.transcript.note(Some(&self.origin), crashed);
                calls::died(&me, child.get_id(), state);
            }
            // Calls that we stopped are forgotten by then.
            SupervisionEvent::ActorTerminated(child, ..) => calls::died(&me, child.get_id(), state),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl AgentInvocation {
    async fn perform(
        &self,
        me: &ActorRef<Msg>,
        effects: Vec<Effect>,
        state: &mut State,
    ) -> HandlerResult {
        for effect in effects {
            match effect {
                Effect::AskModel => self.clear_way(me, state),
                Effect::Start(call) => self.start_call(me, call, state).await?,
                Effect::Skip(call, output) => self.skip(&call, &output, state),
                Effect::Deliver(queued) => {
                    queued.note_delivered(&self.services.transcript, &self.origin);
                }
                Effect::Cancel(calls) => self.cancel(calls, state),
                Effect::Settle(answer) => self.settle(me, answer, state),
                Effect::Finish(ending) => self.finish(ending, state),
            }
        }
        Ok(())
    }

    fn skip(&self, call: &ToolCall, output: &ToolOutput, state: &mut State) {
        if let Some(request_id) = state.asked.remove(&call.id) {
            let reason = "the call that asked was skipped".to_owned();
            let event = Event::PermissionWithdrawn { request_id, reason };
            self.services.transcript.note(Some(&self.origin), event);
        }
        let event = failed_event(call, output, ToolFailureClass::Skipped);
        self.services.transcript.note(Some(&self.origin), event);
    }

    fn queue(
        &self,
        queued: QueuedInput,
        reply: RpcReplyPort<Result<(), QueueFull>>,
        state: &State,
    ) -> Option<LoopInput> {
        // Without a reply the session assumes that nothing runs.
        state.report.as_ref()?;
        if !state.agent_loop.has_room() {
            answer(reply, Err(QueueFull));
            return None;
        }
        let event = Event::MessageQueued {
            message_id: queued.id.clone(),
            kind: queued.kind,
            content: queued.content.clone(),
        };
        self.services.transcript.note(Some(&self.origin), event);
        answer(reply, Ok(()));
        Some(LoopInput::QueuedInput(queued))
    }

    fn withdraw(
        &self,
        id: &MessageId,
        reply: RpcReplyPort<Option<Vec<ContentPart>>>,
        state: &mut State,
    ) {
        if state.report.is_none() {
            return;
        }
        let taken = state.agent_loop.withdraw(id);
        if taken.is_some() {
            let event = Event::MessageWithdrawn { message_id: id.clone() };
            self.services.transcript.note(Some(&self.origin), event);
        }
        answer(reply, taken.map(|queued| queued.content));
    }

    fn cancel(&self, calls: Vec<CallId>, state: &mut State) {
        state.clearing = None;
        self.give_up_fitting(state);
        state.settling = None;
        if let Some(asking) = state.asking.take() {
            asking.cut_off(&self.services.transcript, &self.origin);
        }
        let id = &self.origin.invocation_id;
        self.model_routes.tell(|| provider_client::Msg::Cancel(id.clone()));
        for id in calls {
            if let Some(actor) = state.calls.get(&id).and_then(|running| running.actor.as_ref()) {
                tell(actor, tool_call::Msg::Cancel("the run was stopped".to_owned()));
            }
        }
    }

    fn finish(&self, ending: Ending, state: &mut State) {
        if let Some(event) = limit_event(&ending) {
            self.services.transcript.note(Some(&self.origin), event);
        }
        let (turns, usage) = (state.agent_loop.turns(), state.agent_loop.usage());
        let event = ended_event(&ending, turns, usage);
        self.services.transcript.note(Some(&self.origin), event);
        let history = state.agent_loop.history().to_vec();
        if let Some(report) = state.report.take() {
            let queued = state.agent_loop.take_queue();
            let actions = std::mem::take(&mut state.actions);
            report.send(InvocationOutcome { ending, history, queued, turns, usage, actions });
        }
    }

    fn time_is_up(&self) -> Ending {
        // Never zero: that would read as no time at all.
        let seconds = self.time_max.unwrap_or_default().as_millis().div_ceil(1000);
        let value = u64::try_from(seconds).unwrap_or(u64::MAX);
        Ending::Limited { limit: "timeout", value, said: None }
    }
}

#[cfg(test)]
mod fleet;
