//! Calls in flight. Each is a child actor of the invocation and ends exactly once, even if its
//! actor crashes.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{ActorId, ActorRef};

use crate::agent_invocation::agent_loop::{LoopInput, TurnCall};
use crate::agent_invocation::auto_compact::ContextFitter;
use crate::agent_invocation::ending::failed_event;
use crate::agent_invocation::model_turn::{has_effects, requested_event};
use crate::agent_invocation::{Msg, State, UnfinishedCall};
use crate::context::bytes_in;
use crate::conversation::{CallId, Message, ToolCall};
use crate::delegation::{ActionLog, DELEGATE};
use crate::event::{Event, Origin, ToolFailureClass};
use crate::mailbox::{HandlerResult, Lost, Report, spawn_unless_lost, tell};
use crate::ports::{Caller, ToolOutput, ToolSpec};
use crate::replay::ContinuedRequest;
use crate::tool_call::Services;
use crate::tool_call::{self, IntentProgress, ToolCallRun, outcome_unknown, unknown_event};
use crate::transcript_writer::Transcript;

/// A call in flight.
pub(super) struct RunningCall {
    call: ToolCall,
    pub(super) actor: Option<ActorRef<tool_call::Msg>>,
    progress: Arc<IntentProgress>,
    /// True if its actor has died.
    died: bool,
    /// True if its report was dropped, so that its actor and task are gone.
    lost: bool,
}

impl RunningCall {
    /// Adds the call to the log `actions`, with the same entries as its records would give.
    fn add_to(&self, actions: &mut ActionLog) {
        let RunningCall { call, progress, .. } = self;
        if progress.intended.get().is_some() {
            actions.began(&call.id, progress.begun.get().map(|begun| begun.summary.as_str()));
        }
        if let Some(&well) = progress.ran.get() {
            actions.ended(&call.id, well);
        }
    }
}

/// Calls with the results of those that have ended, and open permission requests by call.
type TakenUp = (Vec<(TurnCall, Option<ToolOutput>)>, HashMap<CallId, ContinuedRequest>);

/// Converts the calls of the last reply of an earlier incarnation to inputs for the loop and open
/// permission requests. Records the event `tool.requested` of calls that lack it.
pub(super) fn restore_calls(
    pending: Vec<UnfinishedCall>,
    tools: &[ToolSpec],
    services: &Services,
    origin: &Arc<Origin>,
) -> TakenUp {
    let mut asked = HashMap::new();
    let mut calls = Vec::with_capacity(pending.len());
    for UnfinishedCall { call, output, requested, question, attached: _ } in pending {
        if !requested {
            services.transcript.note(Some(origin), requested_event(&call));
        }
        asked.extend(question.map(|question| (call.id.clone(), question)));
        let alone = services.limits.effects_run_alone && has_effects(tools, &call.name);
        calls.push((TurnCall { call, alone }, output));
    }
    (calls, asked)
}

impl State {
    /// Notes that the actor of a call has died. The call has ended when its task is gone, too.
    pub(super) fn call_died(&mut self, child: ActorId) {
        let is_child = |actor: &ActorRef<tool_call::Msg>| actor.get_id() == child;
        for (id, running) in &mut self.calls {
            if running.actor.as_ref().is_some_and(is_child) {
                running.died = true;
                if running.lost {
                    tell(&self.me, Msg::CallEnded(id.clone(), Err(Lost)));
                }
            }
        }
    }

    /// Bytes of text that the context budget leaves for the result of each call of the last reply.
    fn room_bytes(&self) -> usize {
        let calls = self.agent_loop.history().iter().rev().find_map(|message| match &**message {
            Message::Assistant(said) => Some(said.tool_calls.len()),
            Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
        });
        let ContextFitter { budget, settings, meter, .. } = &self.fitter;
        let info = self.model_routes.info();
        let tools = &self.tools;
        meter.read(self.agent_loop.history(), tools, budget, settings, info.as_ref());
        let room = meter.room(budget, settings, info.as_ref());
        bytes_in(room / u64::try_from(calls.unwrap_or(1).max(1)).unwrap_or(u64::MAX))
    }

    /// Note for the agent, in the result of its next call, that its context is nearly full; also
    /// warns the user. `Some` once, and again when the context had become smaller in between.
    fn context_note(&self) -> Option<String> {
        let ContextFitter { budget, settings, meter, .. } = &self.fitter;
        let info = self.model_routes.info();
        let (total, tokens_max) = meter.take_full_report(budget, settings, info.as_ref())?;
        let percent = total.saturating_mul(100) / tokens_max.max(1);
        let whose = &self.origin.agent;
        self.note(Event::Warning {
            message: format!(
                "the context of {whose} is {percent} % full: about {total} of {tokens_max} tokens"
            ),
        });
        Some(format!(
            "\n[From posse: the context is {percent} % full, about {total} of {tokens_max} tokens. \
             Finish what matters first, read parts instead of whole files, and note what must not \
             be forgotten.]"
        ))
    }

    pub(super) async fn start_call(&mut self, call: ToolCall) -> HandlerResult {
        let progress = Arc::<IntentProgress>::default();
        let id = call.id.clone();
        if let Some(delegation_handle) = &self.services.delegation_handle
            && call.name == DELEGATE
        {
            let (turn, history) = (self.agent_loop.turns(), self.agent_loop.history());
            delegation_handle.note_conversation(&self.origin, turn, history);
        }
        let room_bytes = self.room_bytes();
        let note = self.context_note();
        let args = tool_call::Args {
            call: call.clone(),
            caller: Caller::Agent,
            question: self.asked.remove(&id),
            attached: self.attached.remove(&id),
            room_bytes,
            note,
            origin: Arc::clone(&self.origin),
            services: Arc::clone(&self.services),
            visible: Arc::clone(&self.visible),
            progress: Arc::clone(&progress),
            presence: self.presence.clone(),
            report: Report::to(&self.me, {
                let id = id.clone();
                move |output| Msg::CallEnded(id, output)
            }),
        };
        let actor = spawn_unless_lost(ToolCallRun, args, &self.me).await?;
        let died = actor.is_none();
        self.calls.insert(id, RunningCall { call, actor, progress, died, lost: false });
        Ok(())
    }

    pub(super) fn call_ended(
        &mut self,
        id: CallId,
        output: Result<ToolOutput, Lost>,
    ) -> Option<LoopInput> {
        let running = self.calls.get_mut(&id)?;
        // Supervision reports the reason later; wait for both.
        if output.is_err() && !running.died {
            running.lost = true;
            return None;
        }
        let running = self.calls.remove(&id)?;
        running.add_to(&mut self.actions);
        // The child has reported; its parent does the stopping.
        if let Some(actor) = &running.actor {
            actor.stop(None);
        }
        let output = output.unwrap_or_else(|Lost| {
            let RunningCall { call, progress, .. } = &running;
            lost_output(call, progress, &self.services.transcript, &self.origin)
        });
        Some(LoopInput::CallEnded(id, output))
    }
}

/// Result of a call whose actor and task are gone: its recorded outcome, or an error that is
/// recorded now.
pub(crate) fn lost_output(
    call: &ToolCall,
    progress: &IntentProgress,
    transcript: &Transcript,
    origin: &Arc<Origin>,
) -> ToolOutput {
    if let Some(recorded) = progress.outcome() {
        return recorded.clone();
    }
    let (output, event);
    if progress.started() {
        output = outcome_unknown("the part that ran it crashed");
        event = unknown_event(call, &output, progress.begun.get());
    } else {
        output = ToolOutput::error("The part that ran the call crashed. Nothing was changed.");
        event = failed_event(call, &output, ToolFailureClass::Crashed);
    }
    transcript.note(Some(origin), event);
    output
}
