//! Tool calls of the user, according to the records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::{CallId, ContentPart, MessageId};
use crate::event::{Event, Origin, StartedCall, StoredRecord};
use crate::replay::Replay;

/// Tool call of the user for which the message that informs the model is not queued yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenOwnCall {
    /// Origin under which the call was recorded and judged.
    pub origin: Arc<Origin>,
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the tool.
    pub name: String,
    /// Id of the message that informs the model.
    pub message_id: MessageId,
    /// Beginning of that message; the output follows it.
    pub said: String,
    /// Description and start time of the call. `None` if the intent is not recorded; then the call
    /// has had no effect.
    pub begun: Option<StartedCall>,
    /// Output of the call; `None` if no end is recorded.
    pub output: Option<Vec<ContentPart>>,
}

impl Replay {
    /// Updates the state of the user's tool call. Returns false if the record does not belong to
    /// such a call, and always in the fold of a subagent.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only its beginning and its end matter")]
    pub(super) fn own_call(&mut self, record: &StoredRecord) -> bool {
        let Some(origin) = record.origin.as_ref().filter(|_| self.invocation.is_none()) else {
            return false;
        };
        if let Event::UserCall { call_id, tool, message_id, said } = &record.event {
            self.replayed.own_call = Some(OpenOwnCall {
                origin: Arc::clone(origin),
                call_id: call_id.clone(),
                name: tool.clone(),
                message_id: message_id.clone(),
                said: said.clone(),
                begun: None,
                output: None,
            });
            return true;
        }
        let theirs = |own: &&mut OpenOwnCall| own.origin.invocation_id == origin.invocation_id;
        let Some(own) = self.replayed.own_call.as_mut().filter(theirs) else { return false };
        match &record.event {
            Event::ToolStarted { summary, .. } => {
                own.begun = Some(StartedCall { summary: summary.clone(), started_ms: record.ts });
            }
            Event::ToolCompleted { content, .. }
            | Event::ToolFailed { content, .. }
            | Event::ToolOutcomeUnknown { content, .. } => own.output = Some(content.clone()),
            _ => (),
        }
        true
    }
}
