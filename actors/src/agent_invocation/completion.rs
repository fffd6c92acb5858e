//! Review of the final answer: hooks can make the run continue, a bounded number of times.

use ractor::{ActorProcessingErr, ActorRef};
use tokio::task::JoinError;

use crate::agent_invocation::agent_loop::LoopInput;
use crate::agent_invocation::{AgentInvocation, Msg, QueuedInput, State};
use crate::conversation::ContentPart;
use crate::event::{Event, MessageKind};
use crate::hook_events::HookOutcome;
use crate::mailbox::{panic_text, spawn_task};
use crate::ports::HookPayload;

impl AgentInvocation {
    pub(super) fn settle(&self, me: &ActorRef<Msg>, answer: String, state: &mut State) {
        let moment = HookPayload::Stop { answer, holds: state.holds };
        state.settling =
            Some(spawn_task(me, self.services.fire(&self.origin, moment), Msg::Settled));
    }

    pub(super) fn settled(
        &self,
        hooked: Result<HookOutcome, JoinError>,
        state: &mut State,
    ) -> Result<Option<LoopInput>, ActorProcessingErr> {
        // The run was stopped; its hooks were cancelled.
        if state.settling.take().is_none() {
            return Ok(None);
        }
        let hooked = hooked.map_err(panic_text)?;
        let Some(why) = hooked.blocked else { return Ok(Some(LoopInput::Settled(None))) };
        let holds_max = self.services.limits.holds_max;
        if state.holds >= holds_max {
            let message = format!(
                "a hook held the answer back {holds_max} times; it counts now all the same: {why}"
            );
            self.services.transcript.note(Some(&self.origin), Event::Warning { message });
            return Ok(Some(LoopInput::Settled(None)));
        }
        state.holds += 1;
        let text = format!("Your answer is not accepted yet: {why}");
        let queued = QueuedInput {
            id: self.services.ids.message(),
            kind: MessageKind::FollowUp,
            content: vec![ContentPart::text(text)],
        };
        let event = Event::MessageQueued {
            message_id: queued.id.clone(),
            kind: queued.kind,
            content: queued.content.clone(),
        };
        self.services.transcript.note(Some(&self.origin), event);
        Ok(Some(LoopInput::Settled(Some(queued))))
    }
}
