//! Scopes that a permission request offers, and the grant that an answer with one of them creates.

use crate::event::{Grant, GrantedAgent, Scope};
use crate::permission_coordinator::{ApprovalRequest, Args};

/// The scopes that `ask` offers: those that its policy accepts and the grant store allows, and
/// `Agent` if it differs from `Session`.
pub(super) fn offered(ask: &ApprovalRequest, args: &Args) -> Vec<Scope> {
    let question = &ask.question;
    let widest = if question.grant.is_some() { args.book.widest_scope() } else { Scope::Once };
    let allowed = |scope: &Scope| *scope == Scope::Once || *scope <= widest;
    let policy = question.scopes.iter().copied().filter(|scope| *scope != Scope::Agent);
    let mut scopes: Vec<Scope> = policy.filter(allowed).collect();
    let at = scopes.iter().position(|scope| *scope == Scope::Session);
    if let Some(at) = at.filter(|_| has_other_agents(ask, args)) {
        scopes.insert(at, Scope::Agent);
    }
    scopes
}

/// True if an agent asks, and the session has other agents or can have them.
fn has_other_agents(ask: &ApprovalRequest, args: &Args) -> bool {
    let agent = ask.caller.agent(&ask.origin);
    agent.is_some_and(|agent| agent.parent_invocation_id.is_some() || args.main_delegates)
}

/// The grant that an answer with `scope` creates; `None` if it allows only the call of `ask`.
pub(super) fn grant(ask: &ApprovalRequest, scope: Scope) -> Option<Grant> {
    let grant = ask.question.grant.clone().filter(|_| scope > Scope::Once)?;
    let agent = (scope == Scope::Agent).then(|| GrantedAgent::of(&ask.origin));
    Some(Grant { scope, agent, ..grant })
}
