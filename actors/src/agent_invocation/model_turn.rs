//! Model requests of an invocation: one at a time, and cancelled at once when the run is stopped.

use std::sync::Arc;

use ractor::ActorProcessingErr;
use tokio::task::JoinError;

use crate::agent_invocation::agent_loop::LoopInput;
use crate::agent_invocation::auto_compact::{CONTEXT_FULL, is_too_large};
use crate::agent_invocation::ending::{hooked, unwritable};
use crate::agent_invocation::failover::ModelCall;
use crate::agent_invocation::text_calls::{call_as_text, text_call_warning};
use crate::agent_invocation::{Msg, State};
use crate::context::WindowCheck;
use crate::conversation::{StopReason, ToolCall};
use crate::event::{Event, HookEvent, Origin};
use crate::mailbox::{OwnedTask, panic_text, spawn_task};
use crate::outcome::Ending;
use crate::ports::{Completion, HookPayload, Request, SideEffect, ToolSpec};
use crate::provider_client::{INTERRUPTED, MeteredReply, PartialReply, keep_partial};
use crate::tool_call::Services;
use crate::transcript_writer::{Transcript, Unrecorded};

/// Result of the hooks before a model request: it may be sent, or not.
pub(crate) enum RequestClearance {
    Clear,
    /// Denied by a hook, with its reason.
    Blocked(String),
}

/// Result of a model request after the hooks for replies.
pub(crate) enum ModelOutcome {
    /// Reply of a model, or the ending without one.
    Answer(Result<MeteredReply, Ending>),
    /// A hook discarded the reply for the reason `why`. `said`: text of the reply; `None` if it had
    /// none.
    Discarded { said: Option<String>, why: String },
}

/// Cause of a partial reply that a hook discarded.
const DISCARDED: &str = "discarded by a hook";

/// A model request in progress.
pub(super) struct OpenTurn {
    turn: u32,
    draft: PartialReply,
    _work: OwnedTask,
}

impl OpenTurn {
    /// Cancels the request, and records and returns the text that has arrived. Nothing of the reply
    /// is announced after it.
    pub(super) fn cut_off(self, transcript: &Transcript, origin: &Arc<Origin>) -> String {
        keep_partial(&self.draft, transcript, origin, self.turn, INTERRUPTED, true)
    }
}

impl State {
    /// Starts the next model request when the hooks have run and the journal has space. Usually
    /// there are no hooks and there is space, so it starts at once. Otherwise the result of the
    /// checks arrives as [`Msg::Cleared`].
    pub(super) fn clear_way(&mut self) {
        let heard = self.services.hooks.has_hook(HookEvent::BeforeModelRequest, None);
        if !heard && self.services.transcript.has_capacity() {
            return self.ask_model();
        }
        let moment = heard.then(|| HookPayload::BeforeModelRequest {
            turn: self.agent_loop.turns() + 1,
            messages: self.agent_loop.history().len(),
            model: self.model_routes.info().map(|info| info.model).unwrap_or_default(),
        });
        let fired = moment.map(|moment| self.services.fire(Some(&self.origin), moment));
        let transcript = self.services.transcript.clone();
        let way = async move {
            if let Some(fired) = fired
                && let Some(why) = fired.await.blocked
            {
                return Ok(RequestClearance::Blocked(why));
            }
            transcript.may_begin().await.map(|()| RequestClearance::Clear)
        };
        self.clearing = Some(spawn_task(&self.me, way, Msg::Cleared));
    }

    pub(super) fn cleared(
        &mut self,
        cleared: Result<Result<RequestClearance, Unrecorded>, JoinError>,
    ) -> Result<Option<LoopInput>, ActorProcessingErr> {
        // The run was stopped; the wait was cancelled.
        if self.clearing.take().is_none() {
            return Ok(None);
        }
        match cleared {
            Ok(Ok(RequestClearance::Clear)) => {
                self.ask_model();
                Ok(None)
            }
            Ok(Ok(RequestClearance::Blocked(why))) => Ok(Some(LoopInput::Unanswered(hooked(why)))),
            Ok(Err(unrecorded)) => Ok(Some(LoopInput::Unanswered(unwritable(&unrecorded)))),
            Err(died) => Err(panic_text(died).into()),
        }
    }

    pub(super) fn ask_model(&mut self) {
        if !self.fit() {
            return;
        }
        let history = self.agent_loop.history().to_vec();
        let turn = self.agent_loop.turns() + 1;
        self.note(self.compiled_event(turn));
        let request = Request {
            messages: history,
            tools: Arc::clone(&self.tools),
            stream: self.options.stream,
            tokens_max: self.options.tokens_max,
            temperature: self.options.temperature,
            thinking: self.options.thinking,
            session: Some(self.services.session_id.clone()),
        };
        let draft = PartialReply::default();
        let (services, origin) = (Arc::clone(&self.services), Arc::clone(&self.origin));
        let model_call = ModelCall {
            services: Arc::clone(&services),
            origin: Arc::clone(&origin),
            request,
            turn,
            draft: draft.clone(),
            calibration: self.calibration.clone(),
            size: Some((self.fitter.meter.clone(), self.fitter.settings.clone())),
        };
        let asked = self.model_routes.clone().ask(model_call);
        let answer = async move { review(asked.await, turn, &services, &origin).await };
        self.asking =
            Some(OpenTurn { turn, draft, _work: spawn_task(&self.me, answer, Msg::Replied) });
    }

    pub(super) fn reply_arrived(
        &mut self,
        replied: Result<ModelOutcome, JoinError>,
    ) -> Result<Option<LoopInput>, ActorProcessingErr> {
        // The run was stopped while a reply was arriving: the reply is not kept.
        let Some(asking) = self.asking.take() else { return Ok(None) };
        match replied.map_err(panic_text)? {
            ModelOutcome::Answer(Ok(answered)) if self.had_no_room(&answered.completion) => {
                match self.refused(no_room()) {
                    None => {
                        answered.receipt.file();
                        Ok(None)
                    }
                    // Nothing can be left out: it counts as a reply.
                    Some(_) => Ok(Some(self.replied(answered))),
                }
            }
            ModelOutcome::Answer(Ok(answered)) => Ok(Some(self.replied(answered))),
            ModelOutcome::Answer(Err(ending)) if is_too_large(&ending) => Ok(self.refused(ending)),
            ModelOutcome::Answer(Err(ending)) => Ok(Some(LoopInput::Unanswered(ending))),
            ModelOutcome::Discarded { said, why } => {
                asking.draft.or(said.as_deref().unwrap_or_default());
                let (transcript, origin) = (&self.services.transcript, &self.origin);
                keep_partial(&asking.draft, transcript, origin, asking.turn, DISCARDED, false);
                Ok(Some(LoopInput::Unanswered(hooked(why))))
            }
        }
    }

    /// True if the reply was cut off before text and calls, and the request is so near the context
    /// window of the model that there was no space for a reply.
    fn had_no_room(&self, completion: &Completion) -> bool {
        let Completion { message, stop_reason, .. } = completion;
        *stop_reason == StopReason::MaxTokens
            && message.is_empty()
            && self.model_routes.info().is_some_and(|info| {
                let (meter, settings) = (self.fitter.meter.clone(), self.fitter.settings.clone());
                WindowCheck { meter, settings, info }.is_near()
            })
    }

    fn replied(&mut self, answered: MeteredReply) -> LoopInput {
        let MeteredReply { completion, receipt } = answered;
        self.overflows = 0;
        if let Some(tokens) = completion.usage.and_then(|usage| usage.input_tokens) {
            self.fitter.meter.reported(tokens);
        }
        let Completion { mut message, stop_reason, usage, model } = completion;
        // Calls of a filtered reply do not run.
        if stop_reason == StopReason::ContentFilter {
            message.tool_calls.clear();
        }
        let turn = self.agent_loop.turns() + 1;
        for call in &mut message.tool_calls {
            let theirs = std::mem::replace(&mut call.id, self.services.ids.call());
            call.provider_id = Some(theirs.as_str().to_owned()).filter(|id| !id.is_empty());
        }
        let note = |event| self.note(event);
        let reply = Event::ModelReply { turn, message: message.clone(), stop_reason, model };
        note(reply);
        receipt.file();
        if stop_reason == StopReason::ContentFilter {
            note(Event::ContentFilter { turn });
        }
        // The run ends with such a reply, so this is said once.
        let is_answer = stop_reason == StopReason::EndTurn && message.tool_calls.is_empty();
        let said = message.content.as_deref().filter(|_| is_answer).unwrap_or_default();
        if let Some(tool) = call_as_text(said, &self.tools) {
            let asked = self.model_routes.info().map(|info| info.model).unwrap_or_default();
            note(Event::Warning { message: text_call_warning(&asked, tool) });
        }
        message.tool_calls.iter().for_each(|call| note(requested_event(call)));
        let waits = self.services.limits.effects_run_alone;
        let runs_alone = |call: &ToolCall| waits && has_effects(&self.tools, &call.name);
        let alone = message.tool_calls.iter().map(runs_alone).collect();
        LoopInput::Replied { message, alone, stop: stop_reason, usage }
    }
}

/// Ending of a request for whose reply the context window had no space.
fn no_room() -> Ending {
    let cause = "the reply is empty, and the request is near the context window".to_owned();
    Ending::Failed { class: CONTEXT_FULL.to_owned(), cause }
}

/// True if the tool with this name has side effects. False for an unknown tool.
pub(super) fn has_effects(tools: &[ToolSpec], tool: &str) -> bool {
    let effect = tools.iter().find(|spec| spec.name == tool);
    effect.is_some_and(|spec| spec.side_effect != SideEffect::None)
}

pub(crate) fn requested_event(call: &ToolCall) -> Event {
    Event::ToolRequested {
        call_id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }
}

/// Runs hooks on a reply before it is processed. A denial discards the reply.
async fn review(
    answer: Result<MeteredReply, Ending>,
    turn: u32,
    services: &Services,
    origin: &Arc<Origin>,
) -> ModelOutcome {
    if let Ok(MeteredReply { completion, receipt: _ }) = &answer
        && services.hooks.has_hook(HookEvent::AfterModelResponse, None)
    {
        let message = completion.message.clone();
        let said = message.content.clone();
        let moment = HookPayload::AfterModelResponse { turn, message };
        if let Some(why) = services.fire(Some(origin), moment).await.blocked {
            return ModelOutcome::Discarded { said, why };
        }
    }
    ModelOutcome::Answer(answer)
}
