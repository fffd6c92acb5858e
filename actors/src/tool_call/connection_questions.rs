//! Questions to a person about connections that the processes of a call want to make.

use std::sync::Arc;
use std::time::Duration;

use crate::conversation::CallId;
use crate::digest::digest_of;
use crate::event::{Grant, Origin, PermissionMode, Scope};
use crate::mailbox::SupervisedRef;
use crate::permission_coordinator::{
    self as permission, ApprovalGuard, ApprovalRequest, ApprovalResult, GrantView, ModeView,
    RequestKind,
};
use crate::ports::{
    Access, Action, AnswerSource, Caller, Clock, Confinement, ConnectionAnswer, ConnectionAsker,
    ConnectionRequest, Ids, NetworkAccess, PermissionQuestion, Policy, PortFuture, Situation,
    ToolAnnotations, Verdict,
};
use crate::tool_call::Services;

/// Call on whose behalf a person is asked. It must not keep the tools of the session alive, because
/// a background job keeps it.
#[derive(Clone)]
struct AskingCall {
    ids: Arc<dyn Ids>,
    clock: Arc<dyn Clock>,
    permissions: SupervisedRef<permission::Msg>,
    book: GrantView,
    mode: ModeView,
    cwd: String,
    /// Time for an answer.
    wait: Duration,
    origin: Arc<Origin>,
    caller: Caller,
    call_id: CallId,
    tool: String,
    /// One-line description of the call.
    summary: String,
}

/// Creates the way of a call's processes to ask about connections. Without a person it is closed.
pub(super) fn asker(
    services: &Arc<Services>,
    (origin, caller): (&Arc<Origin>, Caller),
    call_id: &CallId,
    action: &Action,
) -> ConnectionAsker {
    if services.asking != AnswerSource::Human {
        return ConnectionAsker::default();
    }
    let call = AskingCall {
        ids: Arc::clone(&services.ids),
        clock: Arc::clone(&services.clock),
        permissions: services.permissions.clone(),
        book: services.book.clone(),
        mode: services.mode.clone(),
        cwd: services.cwd.clone(),
        wait: services.limits.connection_wait,
        origin: Arc::clone(origin),
        caller,
        call_id: call_id.clone(),
        tool: action.tool.clone(),
        summary: action.summary.clone(),
    };
    ConnectionAsker::new(move |request| {
        let call = call.clone();
        let asked: PortFuture<ConnectionAnswer> = Box::pin(async move { call.ask(request).await });
        asked
    })
}

impl AskingCall {
    /// Asks a person, unless a grant covers the connection. Without an answer in time, withdraws the
    /// question and denies.
    async fn ask(&self, mut request: ConnectionRequest) -> ConnectionAnswer {
        let AskingCall { ids, permissions, clock, wait, book, .. } = self;
        let (reason, within) = (request.reason, duration(*wait));
        request.reason = format!("{reason}; without an answer within {within} it is refused");
        let policy = Arc::new(ConnectionPolicy::new(&request));
        let grants = || book.grants(self.caller.agent(&self.origin));
        if let Some(lasting) = policy.granted(&grants()) {
            return ConnectionAnswer::Allowed { lasting };
        }
        if let Some(reason) = denial(self.mode.current()) {
            return ConnectionAnswer::Denied { reason };
        }
        let id = ids.question();
        let guard = ApprovalGuard::new(id.clone(), permissions.clone());
        let ask = |reply| {
            permission::Msg::Ask(Box::new(ApprovalRequest {
                id: id.clone(),
                kind: RequestKind::Connection(request.target.clone()),
                call_id: self.call_id.clone(),
                origin: Arc::clone(&self.origin),
                caller: self.caller,
                action: self.action(&request),
                annotations: ToolAnnotations::new(Access::Network),
                question: policy.question.clone(),
                trial: None,
                hunks: Vec::new(),
                policy: Arc::clone(&policy) as Arc<dyn Policy>,
                cwd: self.cwd.clone(),
                asker: guard.watch(),
                timer: None,
                reply,
            }))
        };
        let answer = tokio::select! {
            answer = permissions.call_until_answered(ask) => answer,
            () = clock.sleep(*wait) => {
                // Dropping the guard withdraws the question.
                let reason = format!("the user did not answer within {} s", wait.as_secs());
                return ConnectionAnswer::Denied { reason };
            }
        };
        guard.answered();
        match answer {
            Some(ApprovalResult::Allowed(_) | ApprovalResult::Covered) => {
                let lasting = policy.granted(&grants()).unwrap_or(false);
                ConnectionAnswer::Allowed { lasting }
            }
            Some(ApprovalResult::Denied { reason }) => ConnectionAnswer::Denied { reason },
            // The others belong to calls and to requests of the model.
            None
            | Some(
                ApprovalResult::Answered(_)
                | ApprovalResult::Try(_)
                | ApprovalResult::Keep(_)
                | ApprovalResult::Hunks(..),
            ) => {
                let reason = "the permission prompt is unavailable".to_owned();
                ConnectionAnswer::Denied { reason }
            }
        }
    }

    fn action(&self, request: &ConnectionRequest) -> Action {
        let ConnectionRequest { operation, target, summary, .. } = request;
        Action {
            tool: self.tool.clone(),
            operations: Vec::new(),
            summary: summary.clone(),
            detail: format!("asked for by the command: {}", self.summary),
            digest: digest_of(&[self.call_id.as_str(), operation, target]),
        }
    }
}

/// `wait` in whole minutes, otherwise in seconds.
fn duration(wait: Duration) -> String {
    let (seconds, minutes) = (wait.as_secs(), wait.as_secs() / 60);
    match (seconds, minutes) {
        (60, _) => "a minute".to_owned(),
        (seconds, 2..) if seconds % 60 == 0 => format!("{minutes} minutes"),
        (seconds, _) => format!("{seconds} s"),
    }
}

/// Reason why nothing is asked about connections in `mode`. `None`: a person is asked.
fn denial(mode: PermissionMode) -> Option<String> {
    let is_closed = matches!(mode, PermissionMode::Plan | PermissionMode::Locked);
    is_closed
        .then(|| format!("the permission mode is {mode}: connections to new domains are refused"))
}

/// Policy of one question: a grant for exactly this target allows it, otherwise a person decides.
struct ConnectionPolicy {
    question: PermissionQuestion,
}

impl ConnectionPolicy {
    fn new(request: &ConnectionRequest) -> ConnectionPolicy {
        let ConnectionRequest { operation, target, reason, .. } = request;
        let grant = Grant {
            operation: operation.clone(),
            target: target.clone(),
            scope: Scope::Once,
            agent: None,
        };
        let question = PermissionQuestion {
            reason: reason.clone(),
            scopes: vec![Scope::Once, Scope::Session, Scope::Project],
            grant: Some(grant),
            grants_part: false,
            grant_text: Box::default(),
            yes_covers: false,
            rule: None,
            confinement: ConnectionPolicy::confinement(),
        };
        ConnectionPolicy { question }
    }

    fn confinement() -> Confinement {
        Confinement {
            profile: String::new(),
            writable_roots: Vec::new(),
            network: NetworkAccess::Domains,
        }
    }

    /// `None` if no grant covers the connection. Otherwise true if one counts for all agents, so that
    /// the answer lasts: the proxy must not remember for the session an answer for one agent.
    fn granted(&self, grants: &[Grant]) -> Option<bool> {
        let Grant { operation, target, .. } = self.question.grant.as_ref()?;
        let covers = |grant: &&Grant| grant.operation == *operation && grant.target == *target;
        grants.iter().filter(covers).map(|grant| grant.scope > Scope::Agent).max()
    }
}

impl Policy for ConnectionPolicy {
    fn judge(&self, _: &Action, situation: &Situation<'_>) -> Verdict {
        if self.granted(situation.grants).is_some() {
            return Verdict::Allow(ConnectionPolicy::confinement());
        }
        match denial(situation.mode) {
            Some(reason) => {
                let rule = format!("permission mode: {}", situation.mode);
                Verdict::Deny { reason, rule }
            }
            None => Verdict::Ask(self.question.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_named_in_usual_units() {
        let named = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!([0, 60, 90, 120].map(named), ["0 s", "a minute", "90 s", "2 minutes"]);
    }
}
