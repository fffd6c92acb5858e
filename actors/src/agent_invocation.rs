//! Actor of an invocation: runs the agent loop from a prompt to a final answer, and performs the
//! effects that the loop requests.
//!
//! No message handler waits for the model, a tool or a person, so an interrupt takes effect at
//! once.

mod agent_loop;
mod auto_compact;
mod auxiliary_request;
mod calls;
mod completion;
mod ending;
mod failover;
mod fallback;
mod model_turn;
mod text_calls;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::task::JoinError;

use crate::conversation::{CallId, Message, MessageId, ToolCall, Usage};
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
use crate::replay::{ContinuedRequest, QueuedInput};
use crate::tool_call::{self, Services};
use crate::transcript_writer::{Transcript, Unrecorded};

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

/// Time limit of an invocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    pub(crate) whole: Duration,
    /// Time that is left after earlier incarnations.
    pub(crate) left: Duration,
}

/// Arguments for starting an invocation.
pub(crate) struct Args {
    pub(crate) origin: Arc<Origin>,
    pub(crate) services: Arc<Services>,
    /// Models that may be used; the first is the configured one.
    pub(crate) model_routes: ModelRoutes,
    pub(crate) options: RequestOptions,
    pub(crate) tools: Arc<[ToolSpec]>,
    /// Valid history with the system message. It ends with the message to answer, with the reply
    /// whose calls are pending, or with the answer of an earlier incarnation that ended before it
    /// finished.
    pub(crate) history: Vec<Arc<Message>>,
    pub(crate) resumed: Resumed,
    /// Time limit; `None`: no limit.
    pub(crate) time: Option<TimeLimit>,
    /// Limit for the sum of input and output tokens of all replies, checked before each model
    /// request; `None`: no limit.
    pub(crate) tokens_max: Option<u64>,
    /// Context budget, token estimate and summary model.
    pub(crate) fitter: ContextFitter,
    pub(crate) presence: AliveToken,
    pub(crate) report: Report<InvocationOutcome>,
}

/// State that an invocation takes over from an earlier incarnation. The default is a new
/// invocation.
#[derive(Default)]
pub(crate) struct Resumed {
    /// All calls of the last reply, if some of them have not ended; otherwise empty. The history
    /// does not contain their results yet.
    pub(crate) pending: Vec<UnfinishedCall>,
    /// Queued messages that were not delivered.
    pub(crate) queued: Vec<QueuedInput>,
    pub(crate) turns: u32,
    pub(crate) usage: Usage,
    pub(crate) actions: ActionLog,
}

/// A call of the last reply, of which an earlier incarnation left some calls open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnfinishedCall {
    pub(crate) call: ToolCall,
    /// Result of the call. `None` if the call must start, or wait again for its subagent.
    pub(crate) output: Option<ToolOutput>,
    /// True if the event `tool.requested` is recorded for the call.
    pub(crate) requested: bool,
    /// Permission request of the call that is still open; `None` if there is none.
    pub(crate) question: Option<ContinuedRequest>,
    /// True if the call has started a subagent and waits for it again.
    pub(crate) attached: bool,
}

/// Options of all model requests of an agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestOptions {
    /// True if replies are streamed.
    pub stream: bool,
    /// Maximum tokens of a reply; `None`: the provider's default.
    pub tokens_max: Option<u64>,
    /// Sampling temperature; `None`: the provider's default.
    pub temperature: Option<f64>,
    /// Reasoning effort; `None`: the provider's default.
    pub thinking: Option<Thinking>,
}

/// Final state of an invocation that has ended.
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

#[derive(strum::IntoStaticStr)]
pub(crate) enum Msg {
    /// The checks before a model request have ended: its hooks, and the free disk space of the
    /// journal.
    Cleared(Result<Result<RequestClearance, Unrecorded>, JoinError>),
    Replied(Result<ModelOutcome, JoinError>),
    /// The model has written the summary for a compaction, or failed.
    Summarised(Result<Result<String, String>, JoinError>),
    Settled(Result<HookOutcome, JoinError>),
    CallEnded(CallId, Result<ToolOutput, Lost>),
    Deliver(QueuedInput, RpcReplyPort<Result<(), QueueFull>>),
    /// Replace queued messages and reply with those that were removed, or with `None` if one is not
    /// queued or is a notice. No reply means that the invocation has ended.
    ReplaceQueued(Vec<MessageId>, Vec<QueuedInput>, RpcReplyPort<Option<Vec<QueuedInput>>>),
    /// Queue a message that is already recorded, also if too many messages wait. A dropped report
    /// means that it was not accepted.
    Notice(QueuedInput, Report<()>),
    Stop(Ending),
    TimeUp,
}

/// Error: a message was not queued, because too many messages wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl QueuedInput {
    /// Records that the message was delivered and entered the history.
    pub(crate) fn note_delivered(self, transcript: &Transcript, origin: &Arc<Origin>) {
        let QueuedInput { id, kind: _, content } = self;
        transcript.note(Some(origin), Event::MessageDelivered { message_id: id.clone() });
        let event = Event::UserMessage { content, message_id: Some(id) };
        transcript.note(Some(origin), event);
    }
}

pub(crate) struct AgentInvocation;

pub(crate) struct State {
    me: ActorRef<Msg>,
    origin: Arc<Origin>,
    services: Arc<Services>,
    model_routes: ModelRoutes,
    options: RequestOptions,
    tools: Arc<[ToolSpec]>,
    visible: Arc<[String]>,
    /// Token calibration for the history.
    calibration: TokenCalibration,
    fitter: ContextFitter,
    /// Time limit including earlier incarnations; `None`: no limit.
    time_max: Option<Duration>,
    agent_loop: AgentLoop,
    calls: HashMap<CallId, RunningCall>,
    /// Open permission requests of calls that have not started, from an earlier incarnation.
    asked: HashMap<CallId, ContinuedRequest>,
    /// Calls that have started subagents in an earlier incarnation and wait for them again.
    attached: HashSet<CallId>,
    report: Option<Report<InvocationOutcome>>,
    clearing: Option<OwnedTask>,
    asking: Option<OpenTurn>,
    /// Summary that a model is writing before the next request; `None` if there is none.
    fitting: Option<PendingSummary>,
    /// The last message of the history at the start; `None` if it is not in the user's role.
    prompt: Option<Arc<Message>>,
    /// Number of consecutive requests that the provider rejected for their size.
    overflows: u32,
    settling: Option<OwnedTask>,
    /// Number of times that hooks have made this incarnation continue after its answer.
    holds: u32,
    /// Log of the actions of its calls.
    actions: ActionLog,
    _time_limit: Option<OwnedTask>,
    /// Must be the last field: when it is dropped, nothing of the invocation is left.
    presence: AliveToken,
}

impl Actor for AgentInvocation {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, me: ActorRef<Msg>, args: Args) -> StartResult<State> {
        let Args { origin, services, tools, history, resumed, time, tokens_max, .. } = args;
        let Resumed { pending, queued, turns, usage, actions } = resumed;
        let limits = &services.limits;
        let bounds = LoopBounds {
            turns_max: limits.turns_max,
            parallel_calls_max: limits.parallel_calls_max,
            calls_per_turn_max: limits.calls_per_turn_max,
            repeated_failures_max: limits.repeated_failures_max,
            queued_messages_max: limits.queued_messages_max,
            delivery: limits.delivery,
            tokens_max,
            settles: services.hooks.has_hook(HookEvent::Stop, None),
        };
        let attached = pending.iter().filter(|one| one.attached).map(|one| one.call.id.clone());
        let attached = attached.collect();
        let (pending, asked) = calls::restore_calls(pending, &tools, &services, &origin);
        let is_user = |message: &&Arc<Message>| matches!(***message, Message::User { .. });
        let prompt = history.last().filter(is_user).cloned();
        let limit =
            |time: TimeLimit| spawn_task(&me, services.clock.sleep(time.left), |_| Msg::TimeUp);
        let mut state = State {
            visible: tools.iter().map(|tool| tool.name.clone()).collect(),
            calibration: TokenCalibration::default(),
            time_max: time.map(|time| time.whole),
            agent_loop: AgentLoop::new(
                bounds,
                LoopStart { history, pending, queued, turns, usage },
            ),
            calls: HashMap::new(),
            asked,
            attached,
            report: Some(args.report),
            clearing: None,
            asking: None,
            fitting: None,
            prompt,
            overflows: 0,
            settling: None,
            holds: 0,
            actions,
            _time_limit: time.map(limit),
            model_routes: args.model_routes,
            options: args.options,
            fitter: args.fitter,
            presence: args.presence,
            origin,
            services,
            tools,
            me,
        };
        let effects = state.agent_loop.step(LoopInput::Begin);
        state.perform_effects(effects).await?;
        Ok(state)
    }

    async fn handle(&self, _: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        state.services.fail.hit("AgentInvocation", (&msg).into());
        let input = match msg {
            Msg::Cleared(cleared) => state.cleared(cleared)?,
            Msg::Replied(replied) => state.reply_arrived(replied)?,
            Msg::Summarised(summary) => {
                state.summarised(summary)?;
                None
            }
            Msg::Settled(hooked) => state.settled(hooked)?,
            Msg::CallEnded(id, output) => state.call_ended(id, output),
            Msg::Deliver(queued, reply) => state.queue(queued, reply),
            Msg::ReplaceQueued(ids, next, reply) => {
                state.replace_queued(&ids, next, reply);
                None
            }
            Msg::Notice(queued, heard) => state.report.is_some().then(|| {
                heard.send(());
                LoopInput::QueuedInput(queued)
            }),
            Msg::Stop(ending) => Some(LoopInput::Stop(ending)),
            Msg::TimeUp => Some(LoopInput::Stop(state.time_limit_ending())),
        };
        let Some(input) = input else { return Ok(()) };
        let effects = state.agent_loop.step(input);
        state.perform_effects(effects).await
    }

    // A crashing call costs that call. ractor's default would end us with it.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> HandlerResult {
        match event {
            SupervisionEvent::ActorFailed(child, cause) => {
                let (actor, cause) = ("ToolCallRun".to_owned(), cause.to_string());
                state.note(Event::ActorCrashed { actor, cause });
                state.call_died(child.get_id());
            }
            // Calls that we stopped are forgotten by then.
            SupervisionEvent::ActorTerminated(child, ..) => state.call_died(child.get_id()),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl State {
    fn note(&self, event: Event) {
        self.services.transcript.note(Some(&self.origin), event);
    }

    async fn perform_effects(&mut self, effects: Vec<Effect>) -> HandlerResult {
        for effect in effects {
            match effect {
                Effect::AskModel => self.clear_way(),
                Effect::Start(call) => self.start_call(call).await?,
                Effect::Skip(call, output) => self.skip(&call, &output),
                Effect::Deliver(queued) => {
                    queued.note_delivered(&self.services.transcript, &self.origin);
                }
                Effect::Cancel(calls) => self.cancel(calls),
                Effect::Settle(answer) => self.settle(answer),
                Effect::Finish(ending) => self.finish(ending),
            }
        }
        Ok(())
    }

    fn skip(&mut self, call: &ToolCall, output: &ToolOutput) {
        if let Some(ContinuedRequest { id: request_id, target }) = self.asked.remove(&call.id) {
            let reason = "the call that asked was skipped".to_owned();
            self.note(Event::PermissionWithdrawn { request_id, reason, target });
        }
        self.note(failed_event(call, output, ToolFailureClass::Skipped));
    }

    fn queue(
        &self,
        queued: QueuedInput,
        reply: RpcReplyPort<Result<(), QueueFull>>,
    ) -> Option<LoopInput> {
        // Without a reply the session assumes that nothing runs.
        self.report.as_ref()?;
        if !self.agent_loop.has_room() {
            answer(reply, Err(QueueFull));
            return None;
        }
        self.note(queued.event());
        answer(reply, Ok(()));
        Some(LoopInput::QueuedInput(queued))
    }

    fn replace_queued(
        &mut self,
        ids: &[MessageId],
        next: Vec<QueuedInput>,
        reply: RpcReplyPort<Option<Vec<QueuedInput>>>,
    ) {
        if self.report.is_none() {
            return;
        }
        let queued: Vec<Event> = next.iter().map(QueuedInput::event).collect();
        let taken = self.agent_loop.replace_queued(ids, next);
        if taken.is_some() {
            let gone = ids.iter().map(|id| Event::MessageWithdrawn { message_id: id.clone() });
            gone.chain(queued).for_each(|event| self.note(event));
        }
        answer(reply, taken);
    }

    fn cancel(&mut self, calls: Vec<CallId>) {
        self.clearing = None;
        self.cancel_fitting();
        self.settling = None;
        if let Some(asking) = self.asking.take() {
            let text = asking.cut_off(&self.services.transcript, &self.origin);
            self.agent_loop.keep_partial(&text);
        }
        let id = &self.origin.invocation_id;
        self.model_routes.send_to_all(|| provider_client::Msg::Cancel(id.clone()));
        for id in calls {
            if let Some(actor) = self.calls.get(&id).and_then(|running| running.actor.as_ref()) {
                tell(actor, tool_call::Msg::Cancel("the run was stopped".to_owned()));
            }
        }
    }

    fn finish(&mut self, ending: Ending) {
        if let Some(event) = limit_event(&ending) {
            self.note(event);
        }
        let (turns, usage) = (self.agent_loop.turns(), self.agent_loop.usage());
        self.note(ended_event(&ending, turns, usage));
        let history = self.agent_loop.history().to_vec();
        if let Some(report) = self.report.take() {
            let queued = self.agent_loop.take_queue();
            let actions = std::mem::take(&mut self.actions);
            report.send(InvocationOutcome { ending, history, queued, turns, usage, actions });
        }
    }

    fn time_limit_ending(&self) -> Ending {
        // Never zero: that would read as no time at all.
        let seconds = self.time_max.unwrap_or_default().as_millis().div_ceil(1000);
        let value = u64::try_from(seconds).unwrap_or(u64::MAX);
        Ending::Limited { limit: "timeout", value, said: None }
    }
}

#[cfg(test)]
mod fleet;
