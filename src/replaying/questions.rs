//! Recorded permission requests for calls, and their answers.

use std::collections::HashMap;

use posse_actors::conversation::{CallId, QuestionId};
use posse_actors::event::{Event, Grant, Scope, TargetType};
use posse_actors::permission_coordinator::HumanDecision;
use serde::Serialize;

/// Permission request for one call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedQuestion {
    /// Effect of the call, in one line.
    pub(crate) summary: String,
    /// Effect of the call, in full.
    pub(crate) detail: String,
    /// Reason for the request.
    pub(crate) reason: String,
    /// Answer to the request, or its withdrawal. `None` if the journal contains neither.
    pub(crate) end: Option<RecordedAnswer>,
    /// Permission that the answer grants beyond this call. `None`: there is none.
    #[serde(skip)]
    pub(crate) grant: Option<Grant>,
}

/// Answer to a permission request, or its withdrawal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordedAnswer {
    /// Allowed for this call.
    Allowed,
    /// Allowed for this call and similar ones.
    AllowedFromNowOn,
    /// Denied, with the reason given to the model.
    Denied(String),
    /// Withdrawn because a grant that answered another request covers it.
    Covered,
    /// Withdrawn before an answer for another reason, such as the end of the run.
    Withdrawn,
}

impl RecordedQuestion {
    /// Decision of the user. `None`: the user did not answer this request, or the answer is not
    /// recorded.
    pub(crate) fn decision(&self) -> Option<HumanDecision> {
        match self.end.as_ref()? {
            RecordedAnswer::Allowed => Some(HumanDecision::Allow(Scope::Once)),
            // The widest scope that works without storage.
            RecordedAnswer::AllowedFromNowOn => Some(HumanDecision::Allow(Scope::Session)),
            RecordedAnswer::Denied(reason) => {
                Some(HumanDecision::Deny { reason: Some(reason.clone()) })
            }
            RecordedAnswer::Covered | RecordedAnswer::Withdrawn => None,
        }
    }
}

/// Applies `event` to the requests: `questions` contains the call of each request, `asked` the last
/// request for each call. Other events are ignored.
pub(crate) fn apply(
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
        // A replayed command makes no connection.
        Event::PermissionRequested { target, .. }
            if target.target_type == TargetType::Connection => {}
        // Requests of the model need no permission: the recorded result of the call is enough.
        Event::PermissionRequested {
            request_id,
            call_id,
            summary,
            detail,
            reason,
            user_request: None,
            ..
        } => {
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
        Event::PermissionWithdrawn { request_id, reason, .. } => {
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
