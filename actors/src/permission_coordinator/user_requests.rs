//! Requests of the model in the permission queue: check of answers, time limit, and the mode of an
//! accepted plan.

use std::time::Duration;

use crate::conversation::QuestionId;
use crate::event::{
    DecisionSource, Event, HunkAnswer, PermissionMode, Scope, TrialOffer, UserReply, UserRequest,
};
use crate::mailbox::OwnedTask;
use crate::permission_coordinator::grant_view::QuestionEnd;
use crate::permission_coordinator::{
    AnswerError, ApprovalRequest, ApprovalResult, HumanDecision, Msg, State, denied, granted,
};
use crate::ports::{UserAnswer, Verdict};

/// Reason of a denial: no person answers in this run.
pub(super) const NOBODY: &str = "no user can be asked in this run";

/// Reason of a denial: the mode asks nothing.
const LOCKED: &str =
    "no user can be asked: the permission mode is locked, in which nothing is asked";

/// Reason in the record of a refusal without words.
pub(super) const REFUSED: &str = "the user did not answer";

/// Decision about a request of the model in `mode`; `None` if the user is asked.
pub(super) fn judge(mode: PermissionMode) -> Option<Verdict> {
    let (reason, rule) = (LOCKED.to_owned(), String::new());
    (mode == PermissionMode::Locked).then_some(Verdict::Deny { reason, rule })
}

/// Event that records the reply of a person.
pub(super) fn replied(ask: &ApprovalRequest, by: Option<String>, answered: UserReply) -> Event {
    let mut event = granted(ask, DecisionSource::User, by, Scope::Once, None);
    if let Event::PermissionGranted { reply, .. } = &mut event {
        *reply = Some(Box::new(answered));
    }
    event
}

impl ApprovalRequest {
    /// Checks that `decision` is one that the request can have.
    pub(super) fn accepts(&self, decision: &HumanDecision) -> Result<(), AnswerError> {
        let invalid = |text: &str| Err(AnswerError::Invalid(text.to_owned()));
        match (self.user_request(), decision) {
            (_, HumanDecision::Deny { .. }) => Ok(()),
            (_, HumanDecision::Try) if self.trial == Some(TrialOffer::Try) => Ok(()),
            (_, HumanDecision::Try) => invalid("the call cannot be tried"),
            (_, HumanDecision::Keep) if self.trial == Some(TrialOffer::Keep) => Ok(()),
            (_, HumanDecision::Keep) => invalid("there is no trial whose changes can be kept"),
            (_, HumanDecision::Hunks(answers)) => {
                HunkAnswer::check(self.hunks.len(), answers).map_err(AnswerError::Invalid)
            }
            (None, HumanDecision::Allow(scope)) if self.question.scopes.contains(scope) => Ok(()),
            (None, HumanDecision::Allow(scope)) => Err(AnswerError::ScopeNotOffered(*scope)),
            (None, HumanDecision::Reply(_)) => {
                invalid("this is a permission request; answer with permission.answer")
            }
            (Some(UserRequest::Questions { .. }), HumanDecision::Allow(_)) => {
                invalid("these are questions of the model; answer with question.answer")
            }
            (Some(UserRequest::Plan { .. }), HumanDecision::Allow(_)) => {
                invalid("this is a plan of the model; answer with plan.answer")
            }
            (Some(request), HumanDecision::Reply(reply)) => {
                request.check(reply).map_err(AnswerError::Invalid)
            }
        }
    }

    /// Permission mode into which a person has accepted the plan. `None` for all other results, and
    /// for a plan of a subagent, which never changes the mode.
    pub(super) fn accepted_mode(&self, result: &ApprovalResult) -> Option<PermissionMode> {
        let is_main = self.origin.parent_invocation_id.is_none();
        match result {
            ApprovalResult::Answered(UserAnswer::Replied(UserReply::Plan { mode, .. })) => {
                is_main.then_some(*mode)
            }
            ApprovalResult::Answered(_)
            | ApprovalResult::Allowed(_)
            | ApprovalResult::Covered
            | ApprovalResult::Try(_)
            | ApprovalResult::Keep(_)
            | ApprovalResult::Hunks(..)
            | ApprovalResult::Denied { .. } => None,
        }
    }
}

impl State {
    /// Timer that ends the request when its time has passed; `None` if it has no time limit.
    pub(super) fn timer(&self, ask: &ApprovalRequest) -> Option<OwnedTask> {
        let Some(UserRequest::Questions { timeout_seconds: Some(seconds), .. }) =
            ask.user_request()
        else {
            return None;
        };
        let passed = self.args.clock.sleep(Duration::from_secs(*seconds));
        let (line, id) = (self.args.line.clone(), ask.id.clone());
        Some(OwnedTask::run(async move {
            passed.await;
            line.tell(Msg::Expire(id));
        }))
    }

    /// Ends a request whose time has passed, if it is still open.
    pub(super) fn expire(&mut self, id: &QuestionId) {
        let at = self.open.iter().position(|ask| ask.id == *id);
        let Some(ask) = at.and_then(|at| self.open.remove(at)) else { return };
        self.args.book.end(&ask.id, QuestionEnd::Answered(None));
        let reason = "there was no answer in time";
        let event = denied(&ask, DecisionSource::Timeout, None, reason);
        self.args.transcript.note(Some(&ask.origin), event);
        ask.reply.send(ApprovalResult::Answered(UserAnswer::TimedOut));
    }
}
