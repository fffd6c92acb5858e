//! Asking the model: one request at a time, asked again when the provider's client crashes with
//! it, and silenced at once when the run is stopped.

use std::sync::Arc;

use ractor::{ActorProcessingErr, ActorRef};
use tokio::task::JoinError;

use crate::agent_invocation::agent_loop::Input;
use crate::agent_invocation::ending::unwritable;
use crate::agent_invocation::walking::Inquiry;
use crate::agent_invocation::{AgentInvocation, Ending, Msg, State};
use crate::conversation::StopReason;
use crate::event::{Event, Origin};
use crate::mailbox::{Beside, beside, panic_text};
use crate::ports::{Completion, Request, SideEffect};
use crate::provider_client::{Draft, keep_partial};
use crate::transcript_writer::{Transcript, Unrecorded};

/// What a model answered, or how the run ends without it.
pub(super) type Answer = Result<Completion, Ending>;

/// A request that the model has not answered yet.
pub(super) struct Asking {
    turn: u32,
    draft: Draft,
    _work: Beside,
}

impl Asking {
    /// Keeps what had arrived. Nothing of the reply is announced after it.
    pub(super) fn cut_off(self, transcript: &Transcript, origin: &Arc<Origin>) {
        keep_partial(&self.draft, transcript, origin, self.turn, "interrupted");
    }
}

impl AgentInvocation {
    /// Asks the model as soon as the journal has room; almost always that is at once.
    pub(super) fn clear_way(&self, me: &ActorRef<Msg>, state: &mut State) {
        if self.services.transcript.has_room() {
            return self.ask_model(me, state);
        }
        let transcript = self.services.transcript.clone();
        let room = async move { transcript.room().await };
        state.clearing = Some(beside(me, room, Msg::Cleared));
    }

    pub(super) fn cleared(
        &self,
        me: &ActorRef<Msg>,
        cleared: Result<Result<(), Unrecorded>, JoinError>,
        state: &mut State,
    ) -> Result<Option<Input>, ActorProcessingErr> {
        // A run that was stopped hears of the wait that it gave up.
        if state.clearing.take().is_none() {
            return Ok(None);
        }
        match cleared {
            Ok(Ok(())) => {
                self.ask_model(me, state);
                Ok(None)
            }
            Ok(Err(unrecorded)) => Ok(Some(Input::Unanswered(unwritable(&unrecorded)))),
            Err(died) => Err(panic_text(died).into()),
        }
    }

    fn ask_model(&self, me: &ActorRef<Msg>, state: &mut State) {
        let history = state.agent_loop.history().to_vec();
        let turn = state.agent_loop.turns() + 1;
        let request = Request {
            messages: history,
            tools: Arc::clone(&self.tools),
            stream: self.options.stream,
            tokens_max: self.options.tokens_max,
            temperature: self.options.temperature,
        };
        let draft = Draft::default();
        let inquiry = Inquiry {
            services: Arc::clone(&self.services),
            origin: Arc::clone(&self.origin),
            request,
            turn,
            draft: draft.clone(),
        };
        let answer = self.contacts.clone().ask(inquiry);
        state.asking = Some(Asking { turn, draft, _work: beside(me, answer, Msg::Replied) });
    }

    pub(super) fn heard(
        &self,
        replied: Result<Answer, JoinError>,
        state: &mut State,
    ) -> Result<Option<Input>, ActorProcessingErr> {
        // An answer may be on its way when the run is stopped: it was not heard, and is not kept.
        if state.asking.take().is_none() {
            return Ok(None);
        }
        match replied {
            Ok(Ok(completion)) => Ok(Some(self.replied(completion, state))),
            Ok(Err(ending)) => Ok(Some(Input::Unanswered(ending))),
            Err(died) => Err(panic_text(died).into()),
        }
    }

    fn replied(&self, completion: Completion, state: &State) -> Input {
        let Completion { mut message, stop_reason, usage, model } = completion;
        // What a filter cut is not carried out.
        if stop_reason == StopReason::ContentFilter {
            message.tool_calls.clear();
        }
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
        if stop_reason == StopReason::ContentFilter {
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
}
