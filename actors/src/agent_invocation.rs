//! One run of the agent loop, from a prompt to a final answer: performs what the loop decides.
//!
//! Nothing here waits for the model, a tool or a human, so an interrupt is never stuck behind
//! slow work.

mod agent_loop;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent};
use tokio::task::JoinError;

use crate::conversation::{CallId, Message, ToolCall, Usage};
use crate::event::{Event, Origin};
use crate::mailbox::{Beside, Handled, Line, Lost, Report, Started, answer, beside, tell};
use crate::ports::{
    Completion, ProviderError, ProviderInfo, Request, SideEffect, ToolOutput, ToolSpec,
};
use crate::provider_client;
use crate::tool_call::{self, Services, ToolCallRun, outcome_unknown, unknown_event};
use crate::transcript_writer::Unrecorded;

pub use agent_loop::Ending;
pub(crate) use agent_loop::Queued;
use agent_loop::{AgentLoop, Bounds, Effect, Input};

/// What an invocation is started with.
pub(crate) struct Args {
    pub(crate) origin: Arc<Origin>,
    pub(crate) services: Arc<Services>,
    pub(crate) provider: Line<provider_client::Msg>,
    pub(crate) provider_info: ProviderInfo,
    pub(crate) options: RequestOptions,
    pub(crate) tools: Arc<[ToolSpec]>,
    /// Valid, and ending with what the model is to answer.
    pub(crate) history: Vec<Arc<Message>>,
    /// Replies that an earlier incarnation had.
    pub(crate) turns: u32,
    pub(crate) report: Report<Outcome>,
}

/// How the model is asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestOptions {
    /// Whether replies are streamed.
    pub stream: bool,
    /// Upper bound of a reply, if one is wanted.
    pub tokens_max: Option<u64>,
    /// Sampling temperature, if one is wanted.
    pub temperature: Option<f64>,
}

/// What an invocation leaves behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    pub(crate) history: Vec<Arc<Message>>,
    pub(crate) turns: u32,
    pub(crate) usage: Usage,
}

pub(crate) enum Msg {
    /// Facts have room in the journal: the model may be asked.
    Cleared(Result<Result<(), Unrecorded>, JoinError>),
    /// `None`: the provider's client is gone for good.
    Replied(Result<Option<Result<Completion, ProviderError>>, JoinError>),
    CallEnded(CallId, Result<ToolOutput, Lost>),
    Deliver(Queued, RpcReplyPort<Result<(), QueueFull>>),
    Stop(Ending),
    TimeUp,
}

/// A message could not be queued: too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::Cleared(_) => "Cleared",
            Msg::Replied(_) => "Replied",
            Msg::CallEnded(..) => "CallEnded",
            Msg::Deliver(..) => "Deliver",
            Msg::Stop(_) => "Stop",
            Msg::TimeUp => "TimeUp",
        }
    }
}

pub(crate) struct AgentInvocation {
    origin: Arc<Origin>,
    services: Arc<Services>,
    provider: Line<provider_client::Msg>,
    provider_info: ProviderInfo,
    options: RequestOptions,
    tools: Arc<[ToolSpec]>,
    visible: Arc<[String]>,
}

pub(crate) struct State {
    agent_loop: AgentLoop,
    calls: HashMap<CallId, Running>,
    report: Option<Report<Outcome>>,
    clearing: Option<Beside>,
    asking: Option<Beside>,
    _time_limit: Option<Beside>,
}

/// A call in flight.
struct Running {
    call: ToolCall,
    actor: Option<ActorRef<tool_call::Msg>>,
    started: Arc<AtomicBool>,
}

/// The part of the arguments that becomes state.
pub(crate) struct Work {
    agent_loop: AgentLoop,
    report: Report<Outcome>,
    duration_max: Option<Duration>,
}

impl AgentInvocation {
    pub(crate) async fn start<M: ractor::Message>(
        args: Args,
        parent: &ActorRef<M>,
    ) -> Result<ActorRef<Msg>, SpawnErr> {
        let Args {
            origin,
            services,
            provider,
            provider_info,
            options,
            tools,
            history,
            turns,
            report,
        } = args;
        let limits = &services.limits;
        let bounds = Bounds {
            turns_max: limits.turns_max,
            parallel_calls_max: limits.parallel_calls_max,
            calls_per_turn_max: limits.calls_per_turn_max,
            repeated_failures_max: limits.repeated_failures_max,
            queued_messages_max: limits.queued_messages_max,
        };
        let work = Work {
            agent_loop: AgentLoop::new(bounds, history, turns),
            report,
            duration_max: limits.duration_max,
        };
        let visible = tools.iter().map(|tool| tool.name.clone()).collect();
        let actor =
            AgentInvocation { origin, services, provider, provider_info, options, tools, visible };
        let (actor, _) = Actor::spawn_linked(None, actor, work, parent.get_cell()).await?;
        Ok(actor)
    }
}

impl Actor for AgentInvocation {
    type Msg = Msg;
    type State = State;
    type Arguments = Work;

    async fn pre_start(&self, me: ActorRef<Msg>, work: Work) -> Started<State> {
        let Work { agent_loop, report, duration_max } = work;
        let limit = |duration| beside(&me, self.services.clock.sleep(duration), |_| Msg::TimeUp);
        let mut state = State {
            agent_loop,
            calls: HashMap::new(),
            report: Some(report),
            clearing: None,
            asking: None,
            _time_limit: duration_max.map(limit),
        };
        let effects = state.agent_loop.step(Input::Begin);
        self.perform(&me, effects, &mut state).await?;
        Ok(state)
    }

    async fn handle(&self, me: ActorRef<Msg>, msg: Msg, state: &mut State) -> Handled {
        self.services.fail.hit("AgentInvocation", msg.kind());
        let input = match msg {
            Msg::Cleared(Ok(Ok(()))) => return self.ask_model(&me, state),
            Msg::Cleared(Ok(Err(unrecorded))) => Input::Unanswered(unwritable(&unrecorded)),
            Msg::Cleared(Err(died)) => return Err(Box::new(died)),
            Msg::Replied(Err(died)) if died.is_panic() => return Err(Box::new(died)),
            Msg::Replied(Err(_cancelled)) => return Ok(()),
            Msg::Replied(Ok(None)) => Input::Unanswered(no_provider()),
            Msg::Replied(Ok(Some(Err(error)))) => Input::Unanswered(unanswered(&error)),
            Msg::Replied(Ok(Some(Ok(completion)))) => self.replied(completion, state),
            Msg::CallEnded(id, output) => self.call_ended(id, output, state),
            Msg::Deliver(queued, reply) => match self.queue(queued, reply, state) {
                Some(input) => input,
                None => return Ok(()),
            },
            Msg::Stop(ending) => Input::Stop(ending),
            Msg::TimeUp => Input::Stop(self.time_is_up()),
        };
        let effects = state.agent_loop.step(input);
        self.perform(&me, effects, state).await
    }

    // A crashing call costs that call. ractor's default would end us with it.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Handled {
        if let SupervisionEvent::ActorFailed(child, cause) = event {
            let theirs = |running: &Running| {
                running.actor.as_ref().is_some_and(|actor| actor.get_id() == child.get_id())
            };
            let id = state.calls.iter().find(|(_, running)| theirs(running));
            if let Some((id, _)) = id {
                let crashed = Event::ActorCrashed {
                    actor: "ToolCallRun".to_owned(),
                    cause: cause.to_string(),
                };
                self.services.transcript.note(Some(&self.origin), crashed);
                tell(&me, Msg::CallEnded(id.clone(), Err(Lost)));
            }
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
    ) -> Handled {
        for effect in effects {
            match effect {
                Effect::AskModel => self.clear_way(me, state)?,
                Effect::Start(call) => self.start_call(me, call, state).await?,
                Effect::Skip(call, output) => self.skip(call, output),
                Effect::Deliver(queued) => self.delivered(queued),
                Effect::Cancel(calls) => self.cancel(calls, state),
                Effect::Finish(ending) => self.finish(ending, state),
            }
        }
        Ok(())
    }

    /// Asks the model as soon as the journal has room; almost always that is at once.
    fn clear_way(&self, me: &ActorRef<Msg>, state: &mut State) -> Handled {
        if self.services.transcript.has_room() {
            return self.ask_model(me, state);
        }
        let transcript = self.services.transcript.clone();
        let room = async move { transcript.room().await };
        state.clearing = Some(beside(me, room, Msg::Cleared));
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is the end of handlers")]
    fn ask_model(&self, me: &ActorRef<Msg>, state: &mut State) -> Handled {
        state.clearing = None;
        let history = state.agent_loop.history().to_vec();
        let turn = state.agent_loop.turns() + 1;
        let event = Event::ModelRequest {
            turn,
            provider: self.provider_info.profile.clone(),
            model: self.provider_info.model.clone(),
            messages: history.len(),
        };
        self.services.transcript.note(Some(&self.origin), event);
        let request = Request {
            messages: history,
            tools: Arc::clone(&self.tools),
            stream: self.options.stream,
            tokens_max: self.options.tokens_max,
            temperature: self.options.temperature,
        };
        let deadline = self.services.clock.monotonic() + self.services.limits.patience;
        let (origin, provider) = (Arc::clone(&self.origin), self.provider.clone());
        // When the provider's client crashes with our request, no tool ran for it: ask again.
        let answer = async move {
            let question = |report| {
                let (request, origin) = (request.clone(), Arc::clone(&origin));
                let question =
                    provider_client::Question { request, origin, turn, deadline, report };
                provider_client::Msg::Complete(question)
            };
            provider.insist(question).await
        };
        state.asking = Some(beside(me, answer, Msg::Replied));
        Ok(())
    }

    fn replied(&self, completion: Completion, state: &State) -> Input {
        let Completion { mut message, stop_reason, usage, model } = completion;
        let turn = state.agent_loop.turns() + 1;
        for call in &mut message.tool_calls {
            let theirs = std::mem::replace(&mut call.id, self.services.ids.call());
            call.provider_id = Some(theirs.as_str().to_owned()).filter(|id| !id.is_empty());
        }
        let note = |event| self.services.transcript.note(Some(&self.origin), event);
        let reply = Event::ModelReply { turn, message: message.clone(), stop_reason, model };
        note(reply);
        if let Some(usage) = usage {
            note(Event::ModelUsage { turn, usage });
        }
        if stop_reason == crate::conversation::StopReason::ContentFilter {
            note(Event::ContentFilter { turn });
        }
        for call in &message.tool_calls {
            note(Event::ToolRequested {
                call_id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            });
        }
        let alone = message.tool_calls.iter().map(|call| self.runs_alone(&call.name)).collect();
        Input::Replied { message, alone, stop: stop_reason, usage }
    }

    fn runs_alone(&self, tool: &str) -> bool {
        let effect = self.tools.iter().find(|spec| spec.name == tool);
        effect.is_some_and(|spec| spec.side_effect != SideEffect::None)
    }

    async fn start_call(&self, me: &ActorRef<Msg>, call: ToolCall, state: &mut State) -> Handled {
        let started = Arc::new(AtomicBool::new(false));
        let id = call.id.clone();
        let args = tool_call::Args {
            call: call.clone(),
            origin: Arc::clone(&self.origin),
            services: Arc::clone(&self.services),
            visible: Arc::clone(&self.visible),
            started: Arc::clone(&started),
            report: Report::to(me, {
                let id = id.clone();
                move |output| Msg::CallEnded(id, output)
            }),
        };
        let actor = match Actor::spawn_linked(None, ToolCallRun, args, me.get_cell()).await {
            Ok((actor, _)) => Some(actor),
            // Its report was dropped with it, so the call ends as lost.
            Err(SpawnErr::StartupFailed(_)) => None,
            Err(error) => return Err(Box::new(error)),
        };
        state.calls.insert(id, Running { call, actor, started });
        Ok(())
    }

    fn call_ended(&self, id: CallId, output: Result<ToolOutput, Lost>, state: &mut State) -> Input {
        let Some(running) = state.calls.remove(&id) else {
            return Input::CallEnded(id, ToolOutput::error(""));
        };
        // The child has reported; its parent does the stopping.
        if let Some(actor) = &running.actor {
            actor.stop(None);
        }
        let output = output.unwrap_or_else(|Lost| self.lost(&running));
        Input::CallEnded(id, output)
    }

    fn lost(&self, running: &Running) -> ToolOutput {
        let started = running.started.load(Ordering::Acquire);
        let output = if started {
            outcome_unknown("the part that ran it crashed")
        } else {
            ToolOutput::error("The part that ran the call crashed before it started.")
        };
        let event = if started {
            unknown_event(&running.call, &output)
        } else {
            failed_event(&running.call, &output, "crashed")
        };
        self.services.transcript.note(Some(&self.origin), event);
        output
    }

    fn skip(&self, call: ToolCall, output: ToolOutput) {
        let event = failed_event(&call, &output, "skipped");
        self.services.transcript.note(Some(&self.origin), event);
    }

    fn queue(
        &self,
        queued: Queued,
        reply: RpcReplyPort<Result<(), QueueFull>>,
        state: &State,
    ) -> Option<Input> {
        if !state.agent_loop.has_room() || state.report.is_none() {
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
        Some(Input::Queued(queued))
    }

    fn delivered(&self, queued: Queued) {
        let Queued { id, kind: _, content } = queued;
        let note = |event| self.services.transcript.note(Some(&self.origin), event);
        note(Event::MessageDelivered { message_id: id.clone() });
        note(Event::UserMessage { content, message_id: Some(id) });
    }

    fn cancel(&self, calls: Vec<CallId>, state: &mut State) {
        state.clearing = None;
        state.asking = None;
        self.provider.tell(provider_client::Msg::Cancel(self.origin.invocation_id.clone()));
        for id in calls {
            if let Some(actor) = state.calls.get(&id).and_then(|running| running.actor.as_ref()) {
                tell(actor, tool_call::Msg::Cancel("the run was stopped".to_owned()));
            }
        }
    }

    fn finish(&self, ending: Ending, state: &mut State) {
        if let Ending::Limited { limit, value, said: _ } = &ending {
            let event = Event::LimitReached { limit: (*limit).to_owned(), value: *value };
            self.services.transcript.note(Some(&self.origin), event);
        }
        let (turns, usage) = (state.agent_loop.turns(), state.agent_loop.usage());
        let event = ended_event(&ending, turns, usage);
        self.services.transcript.note(Some(&self.origin), event);
        let history = state.agent_loop.history().to_vec();
        if let Some(report) = state.report.take() {
            report.send(Outcome { ending, history, turns, usage });
        }
    }

    fn time_is_up(&self) -> Ending {
        let seconds = self.services.limits.duration_max.unwrap_or_default().as_secs();
        Ending::Limited { limit: "timeout", value: seconds, said: None }
    }
}

fn failed_event(call: &ToolCall, output: &ToolOutput, class: &str) -> Event {
    Event::ToolFailed {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content: output.content.clone(),
        class: class.to_owned(),
        metadata: output.metadata.clone(),
        duration_ms: 0,
    }
}

fn ended_event(ending: &Ending, turns: u32, usage: Usage) -> Event {
    let failed = |class: &str, cause: String| Event::InvocationFailed {
        class: class.to_owned(),
        cause,
        turns,
        usage,
    };
    match ending {
        Ending::Answered(result) => {
            Event::InvocationCompleted { result: result.clone(), turns, usage }
        }
        Ending::Limited { limit, value, said: _ } => {
            failed("limit", format!("the limit {limit} ({value}) was reached"))
        }
        Ending::Failed { class, cause } => failed(class, cause.clone()),
        Ending::Interrupted => Event::InvocationCancelled { turns, usage },
    }
}

fn unanswered(error: &ProviderError) -> Ending {
    Ending::Failed { class: format!("provider.{}", error.class()), cause: error.chain() }
}

fn no_provider() -> Ending {
    let cause = "the part that reaches the provider crashed too often".to_owned();
    Ending::Failed { class: "parked".to_owned(), cause }
}

fn unwritable(unrecorded: &Unrecorded) -> Ending {
    Ending::Failed { class: "journal".to_owned(), cause: unrecorded.to_string() }
}
