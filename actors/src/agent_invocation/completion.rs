//! Review of the final answer by hooks, which can make the run continue a limited number of times.

use ractor::ActorProcessingErr;
use tokio::task::JoinError;

use crate::agent_invocation::agent_loop::LoopInput;
use crate::agent_invocation::{Msg, State};
use crate::conversation::ContentPart;
use crate::event::{Event, MessageKind};
use crate::hook_events::HookOutcome;
use crate::mailbox::{panic_text, spawn_task};
use crate::ports::HookPayload;
use crate::replay::QueuedInput;

impl State {
    pub(super) fn settle(&mut self, answer: String) {
        let moment = HookPayload::Stop { answer, holds: self.holds };
        self.settling = Some(spawn_task(
            &self.me,
            self.services.fire(Some(&self.origin), moment),
            Msg::Settled,
        ));
    }

    pub(super) fn settled(
        &mut self,
        hooked: Result<HookOutcome, JoinError>,
    ) -> Result<Option<LoopInput>, ActorProcessingErr> {
        // The run was stopped; its hooks were cancelled.
        if self.settling.take().is_none() {
            return Ok(None);
        }
        let hooked = hooked.map_err(panic_text)?;
        let Some(why) = hooked.blocked else { return Ok(Some(LoopInput::Settled(None))) };
        let holds_max = self.services.limits.holds_max;
        if self.holds >= holds_max {
            let message = format!(
                "a hook held the answer back {holds_max} times; it counts now all the same: {why}"
            );
            self.note(Event::Warning { message });
            return Ok(Some(LoopInput::Settled(None)));
        }
        self.holds += 1;
        let text = format!("Your answer is not accepted yet: {why}");
        let queued = QueuedInput {
            id: self.services.ids.message(),
            kind: MessageKind::FollowUp,
            content: vec![ContentPart::text(text)],
        };
        self.note(queued.event());
        Ok(Some(LoopInput::Settled(Some(queued))))
    }
}
