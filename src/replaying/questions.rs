//! What the user was asked before a call ran, and what became of it.

use std::collections::HashMap;

use posse_actors::conversation::{CallId, QuestionId};
use posse_actors::event::{Event, Grant, Scope};
use posse_actors::permission_coordinator::HumanDecision;
use serde::Serialize;

/// A question about a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedQuestion {
    /// What would happen, in one line and as a whole.
    pub(crate) summary: String,
    pub(crate) detail: String,
    /// Why it was asked.
    pub(crate) reason: String,
    /// How it ended. `None`: the record does not say.
    pub(crate) end: Option<RecordedAnswer>,
    /// What the answer covers besides the call.
    #[serde(skip)]
    pub(crate) grant: Option<Grant>,
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordedAnswer {
    /// For this call, by whoever may say so.
    Allowed,
    /// For this call and others like it.
    AllowedFromNowOn,
    /// The model is told why.
    Denied(String),
    /// Another answer covers it.
    Covered,
    /// Nobody waited for the answer any more.
    Withdrawn,
}

impl RecordedQuestion {
    /// What the user answers, if they did.
    pub(crate) fn decision(&self) -> Option<HumanDecision> {
        match self.end.as_ref()? {
            RecordedAnswer::Allowed => Some(HumanDecision::Allow(Scope::Once)),
            // As far as it can reach where nothing is kept.
            RecordedAnswer::AllowedFromNowOn => Some(HumanDecision::Allow(Scope::Session)),
            RecordedAnswer::Denied(reason) => {
                Some(HumanDecision::Deny { reason: Some(reason.clone()) })
            }
            RecordedAnswer::Covered | RecordedAnswer::Withdrawn => None,
        }
    }
}

/// Enters what `event` says of a question.
pub(crate) fn hear(
    event: &Event,
    questions: &mut HashMap<QuestionId, CallId>,
    asked: &mut HashMap<CallId, RecordedQuestion>,
) {
    let mut end = |id: &QuestionId, end: RecordedAnswer, grant: Option<&Grant>| {
        if let Some(asked) = questions.get(id).and_then(|call| asked.get_mut(call)) {
            asked.end = Some(end);
            asked.grant = grant.cloned();
        }
    };
    match event {
        Event::PermissionRequested { request_id, call_id, summary, detail, reason, .. } => {
            questions.insert(request_id.clone(), call_id.clone());
            let (summary, detail) = (summary.clone(), detail.clone());
            let reason = reason.clone();
            let new = RecordedQuestion { summary, detail, reason, end: None, grant: None };
            asked.insert(call_id.clone(), new);
        }
        Event::PermissionGranted { request_id, scope: Scope::Once, .. } => {
            end(request_id, RecordedAnswer::Allowed, None);
        }
        Event::PermissionGranted { request_id, grant, .. } => {
            end(request_id, RecordedAnswer::AllowedFromNowOn, grant.as_ref());
        }
        Event::PermissionDenied { request_id, reason, .. } => {
            end(request_id, RecordedAnswer::Denied(reason.clone()), None);
        }
        Event::PermissionWithdrawn { request_id, reason } => {
            let how = if reason.contains("covers it") {
                RecordedAnswer::Covered
            } else {
                RecordedAnswer::Withdrawn
            };
            end(request_id, how, None);
        }
        _ => (),
    }
}
