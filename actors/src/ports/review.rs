//! Review of a prepared call by the policy. This file is the only place that creates a
//! [`PermittedCall`].
//!
//! The fields of a permitted call are private, so no other code can create or change one.

use std::any::Any;

use crate::conversation::ToolCall;
use crate::event::HunkAnswer;
use crate::ports::{
    Action, ChosenHunks, Confinement, Operation, PermissionQuestion, Policy, Prepared, Situation,
    Tool, ToolError, Verdict,
};

/// A call that may run. Tools accept nothing else, and only the review can make one:
///
/// ```compile_fail
/// use posse_actors::conversation::ToolCall;
/// use posse_actors::ports::{Confinement, PermittedCall, Prepared};
///
/// fn forge(call: ToolCall, prepared: Prepared, confinement: Confinement) -> PermittedCall {
///     PermittedCall { call, prepared, confinement }
/// }
/// ```
#[derive(Debug)]
pub struct PermittedCall {
    call: ToolCall,
    prepared: Prepared,
    confinement: Confinement,
    is_approved: bool,
}

impl PermittedCall {
    /// The tool call with its original arguments, before corrections and changes by hooks.
    pub fn call(&self) -> &ToolCall {
        &self.call
    }

    /// The effect that was judged.
    pub fn action(&self) -> &Action {
        &self.prepared.action
    }

    /// The confinement in which the call runs.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// True if a permission request with the detail of this call was answered with yes.
    pub fn is_approved(&self) -> bool {
        self.is_approved
    }

    /// The private data of the tool from the preparation.
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        self.prepared.payload
    }

    /// Reduces the effect to the hunks that a person has chosen with `answers`, one for each hunk.
    /// Operations and confinement stay those that were judged.
    pub(crate) async fn reduced(
        self,
        tool: &dyn Tool,
        answers: Vec<HunkAnswer>,
    ) -> Result<PermittedCall, ToolError> {
        let PermittedCall { call, prepared, confinement, is_approved } = self;
        let Prepared { mut action, payload } = prepared;
        let ChosenHunks { summary, payload } = tool.choose_hunks(payload, answers).await?;
        action.summary = summary;
        let prepared = Prepared { action, payload };
        Ok(PermittedCall { call, prepared, confinement, is_approved })
    }

    /// The private data of the tool, and the permit for the reads that were judged with the call.
    pub(crate) fn into_payload_and_reads(self) -> (Box<dyn Any + Send>, ReadPermit) {
        let PermittedCall { call, prepared, confinement, is_approved: _ } = self;
        let Prepared { action, payload } = prepared;
        (payload, ReadPermit { call, operations: action.operations, confinement })
    }
}

/// Permit for the reads of a permitted call, which another tool performs for it.
#[derive(Debug)]
pub(crate) struct ReadPermit {
    call: ToolCall,
    operations: Vec<Operation>,
    confinement: Confinement,
}

impl ReadPermit {
    /// Permits `prepared`, a call of a tool that only reads, if all its operations are reads that
    /// were judged with the permitted call. `None`: it does something else.
    pub(crate) fn permit(&self, prepared: Prepared) -> Option<PermittedCall> {
        let was_judged = |one: &Operation| {
            matches!(one, Operation::Read { .. }) && self.operations.contains(one)
        };
        let all = prepared.action.operations.iter().all(was_judged);
        let (call, confinement) = (self.call.clone(), self.confinement.clone());
        all.then(|| PermittedCall { call, prepared, confinement, is_approved: false })
    }
}

/// Permit for trials of a pending call, for which a person can ask before the answer.
#[derive(Debug)]
pub(crate) struct TrialPermit {
    call: ToolCall,
    digest: String,
    confinement: Confinement,
}

impl TrialPermit {
    /// Permits a trial of `prepared`. `None` if it does something else than the pending call.
    pub(crate) fn permit(&self, prepared: Prepared) -> Option<PermittedCall> {
        let (call, confinement) = (self.call.clone(), self.confinement.clone());
        (prepared.action.digest == self.digest).then(|| PermittedCall {
            call,
            prepared,
            confinement,
            is_approved: false,
        })
    }
}

/// Outcome of a review: permitted, waiting for a person, or denied.
#[derive(Debug)]
pub(crate) enum Review {
    Permitted(PermittedCall),
    Pending(PendingCall),
    Denied { reason: String, rule: String },
}

/// A call that waits for the answer to a permission request. [`approve`](PendingCall::approve)
/// turns it into a [`PermittedCall`].
#[derive(Debug)]
pub(crate) struct PendingCall {
    call: ToolCall,
    prepared: Prepared,
    question: PermissionQuestion,
}

impl PendingCall {
    pub(crate) fn question(&self) -> &PermissionQuestion {
        &self.question
    }

    pub(crate) fn action(&self) -> &Action {
        &self.prepared.action
    }

    pub(crate) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Permit for trials of the call.
    pub(crate) fn trial_permit(&self) -> TrialPermit {
        TrialPermit {
            call: self.call.clone(),
            digest: self.prepared.action.digest.clone(),
            confinement: self.question.confinement.clone(),
        }
    }

    /// Permits the call with `prepared`, which was prepared again after the answer. If the person
    /// keeps the changes of a trial, `kept` is the payload for that. `Err` returns `prepared` if its
    /// digest differs from the one in the request.
    #[expect(clippy::result_large_err, reason = "it is moved once, and a box would cost more")]
    pub(crate) fn approve(
        self,
        mut prepared: Prepared,
        kept: Option<Box<dyn Any + Send>>,
    ) -> Result<PermittedCall, Prepared> {
        if prepared.action.digest != self.prepared.action.digest {
            return Err(prepared);
        }
        if let Some(kept) = kept {
            prepared.payload = kept;
            prepared.action.summary.insert_str(0, "keep the trial: ");
        }
        let confinement = self.question.confinement;
        Ok(PermittedCall { call: self.call, prepared, confinement, is_approved: true })
    }
}

pub(crate) fn review(
    call: ToolCall,
    prepared: Prepared,
    policy: &dyn Policy,
    situation: &Situation<'_>,
) -> Review {
    match policy.judge(&prepared.action, situation) {
        Verdict::Allow(confinement) => {
            Review::Permitted(PermittedCall { call, prepared, confinement, is_approved: false })
        }
        Verdict::Ask(question) => Review::Pending(PendingCall { call, prepared, question }),
        Verdict::Deny { reason, rule } => Review::Denied { reason, rule },
    }
}

/// Creates a permitted call without a review, so that a tool can be tested alone.
#[cfg(any(test, feature = "testing"))]
pub fn permit_for_test(
    call: ToolCall,
    prepared: Prepared,
    confinement: Confinement,
) -> PermittedCall {
    PermittedCall { call, prepared, confinement, is_approved: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::CallId;

    #[test]
    fn only_judged_reads_are_permitted_with_a_call() {
        let read = |path: &str| Operation::Read {
            path: path.to_owned(),
            relative: path.to_owned(),
            root: "/w".to_owned(),
            is_committed: false,
            ways: Vec::new(),
        };
        let prepared = |operations: Vec<Operation>| Prepared {
            action: Action {
                tool: "t".to_owned(),
                operations,
                summary: String::new(),
                detail: String::new(),
                digest: String::new(),
            },
            payload: Box::new(()),
        };
        let invoke = Operation::Invoke { agent: "a".to_owned(), provider: "p".to_owned() };
        let call = ToolCall {
            id: CallId::new("1"),
            provider_id: None,
            name: "t".to_owned(),
            arguments: String::new(),
        };
        let whole = prepared(vec![invoke.clone(), read("/w/a")]);
        let permitted = permit_for_test(call, whole, crate::testing::test_confinement());
        let (_, permit) = permitted.into_payload_and_reads();
        assert!(permit.permit(prepared(vec![read("/w/a")])).is_some());
        assert!(permit.permit(prepared(Vec::new())).is_some(), "nothing to judge");
        assert!(permit.permit(prepared(vec![read("/w/b")])).is_none());
        assert!(permit.permit(prepared(vec![invoke])).is_none(), "no read");
    }
}
