//! Answers about single hunks of a change in the permission queue.

use crate::event::{DecisionSource, Event, HunkAnswer, Scope};
use crate::permission_coordinator::{ApprovalRequest, HumanDecision, granted};

/// The decision that `decision` amounts to: answers that leave out every hunk deny the call.
pub(super) fn plain(decision: HumanDecision) -> HumanDecision {
    let HumanDecision::Hunks(answers) = &decision else { return decision };
    if HunkAnswer::made(answers) > 0 {
        return decision;
    }
    let reason = match answers.len() {
        1 => "the user said no to its only hunk".to_owned(),
        all => format!("the user said no to each of its {all} hunks"),
    };
    HumanDecision::Deny { reason: Some(reason) }
}

/// Event that records the answers about the hunks of a request.
pub(super) fn chosen(ask: &ApprovalRequest, by: Option<String>, answers: &[HunkAnswer]) -> Event {
    // Such an answer is never a grant: the next change has other hunks.
    let mut event = granted(ask, DecisionSource::User, by, Scope::Once, None);
    if let Event::PermissionGranted { hunks, .. } = &mut event {
        *hunks = answers.to_vec();
    }
    event
}
