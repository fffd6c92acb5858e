//! Questions about a call to a person: permission requests, with a trial before the answer if the
//! person wants one and with hunks that are answered one by one, and requests of the model.

use std::any::Any;
use std::sync::Arc;

use serde_json::Value;

use crate::conversation::{QuestionId, text_of};
use crate::event::{Durability, EditHunk, Event, HUNKS_MAX, TrialOffer, UserRequest};
use crate::permission_coordinator::{
    self as permission, ApprovalGuard, ApprovalRequest, ApprovalResult, RequestKind, ShownQuestion,
};
use crate::ports::{
    Action, AnswerSource, CallTrial, PendingCall, PermissionQuestion, Tool, TrialPermit,
};
use crate::tool_call::pipeline::{CallEnd, Pipeline};

/// Payload of a prepared call that keeps the changes of its trial.
pub(super) type KeptPayload = Box<dyn Any + Send>;

/// Open request of a call to a person. Dropping it withdraws the request, unless its guard is told
/// of the answer.
pub(super) struct OpenCallRequest {
    pub(super) id: QuestionId,
    kind: RequestKind,
    pub(super) guard: ApprovalGuard,
}

/// Content of a question about a call.
pub(super) struct AskedCall<'a> {
    pub(super) tool: &'a dyn Tool,
    pub(super) action: &'a Action,
    pub(super) question: &'a PermissionQuestion,
    /// Answer about a trial that is offered; `None` if none is.
    pub(super) trial: Option<TrialOffer>,
    /// Hunks that can be answered one by one; empty if there are none.
    pub(super) hunks: &'a [EditHunk],
}

/// Question about a pending call.
pub(super) struct PendingQuestion {
    pub(super) action: Action,
    pub(super) question: PermissionQuestion,
    /// Permit for a trial; `None` if the call cannot be tried.
    trial: Option<TrialPermit>,
    /// Hunks that can be answered one by one; empty if there are none.
    hunks: Vec<EditHunk>,
}

impl Pipeline {
    /// The question about `pending`, a call of `tool`.
    pub(super) fn pending_question(
        &self,
        tool: &dyn Tool,
        pending: &PendingCall,
    ) -> PendingQuestion {
        let question = pending.question().clone();
        let is_person = self.services.asking == AnswerSource::Human;
        let can_try = is_person && tool.can_try(pending.prepared(), &question.confinement);
        let trial = can_try.then(|| pending.trial_permit());
        let mut hunks = if is_person { tool.hunks(pending.prepared()) } else { Vec::new() };
        if hunks.len() > HUNKS_MAX {
            hunks.clear();
        }
        PendingQuestion { action: pending.action().clone(), question, trial, hunks }
    }

    /// Asks about a pending call with these arguments, and waits for the answer. If a person wants
    /// a trial first, runs it and asks again under the same id, with the result in the detail.
    /// Returns the answer, `None` if the permission coordinator has stopped, and the payload that keeps the
    /// changes of the trial, if there was one.
    pub(super) async fn ask_with_trials(
        &self,
        tool: &dyn Tool,
        pending: PendingQuestion,
        arguments: &Value,
    ) -> (Option<ApprovalResult>, Option<KeptPayload>) {
        let PendingQuestion { mut action, question, trial: permit, hunks } = pending;
        let mut trial = permit.is_some().then_some(TrialOffer::Try);
        let mut kept = None;
        let open = self.open_request(&action, None);
        let answer = loop {
            let asked = AskedCall {
                tool,
                action: &action,
                question: &question,
                trial: trial.clone(),
                hunks: &hunks,
            };
            match (self.ask(&open, asked).await, &permit) {
                (Some(ApprovalResult::Try(by)), Some(permit)) => {
                    let tried = self.tried(tool, (permit, &action), arguments).await;
                    let tried = self.record_trial(&open.id, tried, by).await;
                    action.detail.push_str(&shown(&tried));
                    kept = tried.kept;
                    trial = kept.is_some().then_some(TrialOffer::Keep);
                }
                (answer, _) => break answer,
            }
        };
        open.guard.answered();
        (answer, kept)
    }

    /// Opens a permission request, or a request of the model: under a new id, or under that of
    /// before the session was interrupted.
    pub(super) fn open_request(
        &self,
        action: &Action,
        user_request: Option<UserRequest>,
    ) -> OpenCallRequest {
        let before = self.asked.take();
        let id = before.as_ref().map(|before| before.id.clone());
        let id = id.unwrap_or_else(|| self.services.ids.question());
        let guard = ApprovalGuard::new(id.clone(), self.services.permissions.clone());
        if let Some(before) = before {
            let shown = ShownQuestion {
                origin: Arc::clone(&self.origin),
                summary: action.summary.clone(),
                target: before.target,
                asker: guard.watch(),
            };
            self.services.book.show(id.clone(), shown);
        }
        let kind = user_request.map_or(RequestKind::Call, RequestKind::OfModel);
        OpenCallRequest { id, kind, guard }
    }

    /// Asks, and waits for the answer. `None` if the permission coordinator has stopped.
    pub(super) async fn ask(
        &self,
        open: &OpenCallRequest,
        asked: AskedCall<'_>,
    ) -> Option<ApprovalResult> {
        let ask = |reply| {
            permission::Msg::Ask(Box::new(ApprovalRequest {
                id: open.id.clone(),
                kind: open.kind.clone(),
                call_id: self.call.id.clone(),
                origin: Arc::clone(&self.origin),
                caller: self.caller,
                action: asked.action.clone(),
                annotations: asked.tool.spec().annotations.clone(),
                question: asked.question.clone(),
                trial: asked.trial.clone(),
                hunks: asked.hunks.to_vec(),
                policy: Arc::clone(&self.services.policy),
                cwd: self.services.cwd.clone(),
                asker: open.guard.watch(),
                timer: None,
                reply,
            }))
        };
        self.services.permissions.call_until_answered(ask).await
    }

    /// Runs the call in a trial. `Err`: nothing was run, for this reason.
    async fn tried(
        &self,
        tool: &dyn Tool,
        (permit, action): (&TrialPermit, &Action),
        arguments: &Value,
    ) -> Result<CallTrial, String> {
        let prepared = match self.prepare(tool, arguments).await {
            Ok(prepared) => prepared,
            Err(CallEnd::Refused { output, .. } | CallEnd::Ran { output, .. }) => {
                return Err(text_of(&output.content));
            }
        };
        let call = permit
            .permit(prepared)
            .ok_or("what the call would do has changed since the question")?;
        self.drive(action, None, |context| tool.try_call(call, context)).await
    }

    /// Records the trial. Its changes can be kept only if the record is on disk.
    async fn record_trial(
        &self,
        request_id: &QuestionId,
        tried: Result<CallTrial, String>,
        tried_by: Option<String>,
    ) -> CallTrial {
        let is_failed = tried.is_err();
        let mut tried = tried.unwrap_or_else(|reason| CallTrial {
            summary: format!("it could not be tried: {reason}"),
            exit_code: None,
            output: String::new(),
            changes: Vec::new(),
            diff: String::new(),
            kept: None,
        });
        let event = Event::PermissionTried {
            request_id: request_id.clone(),
            call_id: self.call.id.clone(),
            summary: tried.summary.clone(),
            exit_code: tried.exit_code,
            output: tried.output.clone(),
            changes: tried.changes.clone(),
            diff: tried.diff.clone(),
            is_failed,
            tried_by,
        };
        let transcript = &self.services.transcript;
        let recorded = transcript.record(Some(&self.origin), event, Durability::Synced).await;
        if recorded.is_err() {
            tried.kept = None;
        }
        tried
    }
}

/// Text about a trial for the detail of the request. The output of the command follows the changes
/// and is marked in each line, because it can look like a list of changes.
fn shown(tried: &CallTrial) -> String {
    let CallTrial { summary, output, diff, kept, .. } = tried;
    let mut text = format!("\n\ntried, and nothing was changed: {summary}\n{diff}");
    if !output.is_empty() {
        text.push_str("output of the command:\n");
    }
    for line in output.lines() {
        text.push_str("| ");
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(if kept.is_some() {
        "A yes runs it again, without the view: a program can behave differently then. Keeping the \
         trial makes exactly these changes.\n"
    } else {
        "A yes runs it again, without the view: a program can behave differently then.\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_tried_command_cannot_look_like_its_changes() {
        let tried = CallTrial {
            summary: "1 modified".to_owned(),
            exit_code: Some(0),
            output: "modified notes.txt\nKeeping the trial makes exactly these changes.".to_owned(),
            changes: Vec::new(),
            diff: "added    evil.sh\n".to_owned(),
            kept: None,
        };
        let text = shown(&tried);
        assert!(
            text.starts_with("\n\ntried, and nothing was changed: 1 modified\nadded    evil.sh\n")
        );
        assert!(text.contains("\n| modified notes.txt\n| Keeping the trial"), "{text}");
        assert!(!text.contains("\nmodified") && !text.contains("\nKeeping"), "{text}");
    }
}
