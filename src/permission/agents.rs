//! Policies of agents: their own rules and default decisions.
//!
//! A denial by an agent's rule also applies to agents that work for it; with delegation enabled, it
//! is a permission request. A rule that allows or asks, and the default decision, apply to the
//! agent itself only.

use posse_actors::event::{Grant, Scope};
use posse_actors::ports::{
    Access, Action, Operation, PermissionQuestion, Situation, ToolAnnotations, Verdict,
};
use posse_base::failure::Failure;
use serde_json::Value;

use crate::rules::{self, Rule, RuleDecision};
use crate::{JudgedAction, RulePolicy, deny};

/// Policy of one agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentPolicy {
    /// Name of the agent.
    pub name: String,
    /// Rules of the agent, as JSON in the form of the setting `permissions`.
    pub rules: Vec<Value>,
    /// Decision for calls without a matching rule: `allow`, `ask` or `deny`; any other text denies.
    /// `None`: the built-in decision applies.
    pub default_decision: Option<String>,
}

#[derive(Debug)]
pub(super) struct AgentRules {
    name: String,
    rules: Vec<Rule>,
    default: Option<RuleDecision>,
}

impl AgentRules {
    /// Rules of the agent.
    pub(super) fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

pub(super) fn compile(
    agents: &[AgentPolicy],
    home: Option<&str>,
) -> Result<Vec<AgentRules>, Vec<Failure>> {
    let compiled = |agent: &AgentPolicy| {
        // An unknown value does not allow.
        let default = agent.default_decision.as_deref().map(|decision| match decision {
            "allow" => RuleDecision::Allow,
            "ask" => RuleDecision::Ask,
            _ => RuleDecision::Deny,
        });
        let rules = rules::compile(&agent.rules, None, home).map_err(rules::without_indexes)?;
        Ok(AgentRules { name: agent.name.clone(), rules, default })
    };
    agents.iter().map(compiled).collect()
}

/// Operation of grants for starting an agent ([`Grant::operation`]).
const INVOKE: &str = "agent";

/// True if the action starts one or more agents and does nothing else.
pub(super) fn is_invocation(action: &Action) -> bool {
    let invokes = |operation: &Operation| matches!(operation, Operation::Invoke { .. });
    !action.operations.is_empty() && action.operations.iter().all(invokes)
}

/// Name under which rules know the tool that reads the files of a reference.
const READER: &str = "read_file";

/// Splits an action that starts an agent and reads files for it into the start and the reads, as an
/// action of the tool that reads files. `None` for other actions.
pub(super) fn with_references(action: &Action) -> Option<(Action, Action)> {
    let (invocation, reads) = action.operations.split_first()?;
    let is_read = |one: &Operation| matches!(one, Operation::Read { .. });
    let splits = matches!(invocation, Operation::Invoke { .. })
        && !reads.is_empty()
        && reads.iter().all(is_read);
    splits.then(|| {
        let with = |tool: &str, operations: Vec<Operation>| Action {
            tool: tool.to_owned(),
            operations,
            ..action.clone()
        };
        (with(&action.tool, vec![invocation.clone()]), with(READER, reads.to_vec()))
    })
}

impl RulePolicy {
    /// Judges the start of an agent and the reads of its references: the stricter decision counts.
    /// An answer to a permission request about the reads applies to this call only.
    pub(super) fn judge_references(
        &self,
        invocation: &Action,
        reads: &Action,
        situation: &Situation<'_>,
    ) -> Verdict {
        let annotations = ToolAnnotations::new(Access::Read).in_rules("Read").opening_file();
        let reading = Situation { tool: &annotations, ..*situation };
        let started = self.judge_here(invocation, situation);
        match (self.judge_here(reads, &reading), started) {
            (denied @ Verdict::Deny { .. }, _) | (_, denied @ Verdict::Deny { .. }) => denied,
            (Verdict::Allow(_), started) => started,
            (Verdict::Ask(question), Verdict::Allow(_)) => Verdict::Ask(PermissionQuestion {
                scopes: vec![Scope::Once],
                grant: None,
                grant_text: Box::default(),
                ..question
            }),
            (Verdict::Ask(question), Verdict::Ask(start)) => Verdict::Ask(PermissionQuestion {
                reason: format!("{}; {}", question.reason, start.reason),
                scopes: vec![Scope::Once],
                grant: None,
                grants_part: false,
                grant_text: Box::default(),
                yes_covers: question.yes_covers && start.yes_covers,
                rule: None,
                confinement: start.confinement,
            }),
        }
    }

    /// Decides about starting an agent by its entry in `invocations`; a grant for the agent and its
    /// provider answers `ask`. The calls of that agent are judged one by one later. `None` unless
    /// the action is exactly the start of one agent.
    pub(super) fn invoked(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        let [Operation::Invoke { agent, provider }] = case.action.operations.as_slice() else {
            return None;
        };
        let target = format!("{agent}:{provider}");
        let covers = |grant: &Grant| grant.operation == INVOKE && grant.target == target;
        let confinement = self.confinement(case.situation);
        Some(match self.settings.invocations.get(agent).map(String::as_str) {
            Some("allow") => Verdict::Allow(confinement),
            Some("ask") if case.situation.grants.iter().any(covers) => Verdict::Allow(confinement),
            Some("ask") => Verdict::Ask(PermissionQuestion {
                reason: format!(
                    "{agent} would start, and {provider} would receive the text shown; its calls \
                     are then asked about as usual"
                ),
                scopes: vec![Scope::Once, Scope::Session, Scope::Project, Scope::Global],
                grant: Some(Grant {
                    operation: INVOKE.to_owned(),
                    target,
                    scope: Scope::Session,
                    agent: None,
                }),
                grants_part: false,
                grant_text: Box::default(),
                yes_covers: true,
                rule: None,
                confinement,
            }),
            Some(_) | None => {
                deny("delegation: invocationDecision", "this agent must not be started")
            }
        })
    }

    pub(super) fn agent_named(&self, name: &str) -> Option<&AgentRules> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// Rules of the calling agent, without those of agents that it works for.
    pub(super) fn own_rules<'a>(
        &'a self,
        case: &JudgedAction<'_>,
    ) -> impl Iterator<Item = &'a Rule> {
        let name = case.situation.agent.rsplit('/').next().unwrap_or_default();
        self.agent_named(name).into_iter().flat_map(|agent| &agent.rules)
    }

    /// Returns the denial by a rule of the calling agent or of an agent that it works for. `None`
    /// if no such rule denies the call.
    pub(super) fn agent_denies(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        case.situation.agent.split('/').filter_map(|name| self.agent_named(name)).find_map(
            |agent| {
                let denies = |rule: &&Rule| rule.denies(case);
                let rule = agent.rules.iter().find(denies)?;
                let reason = rule.reason.as_deref().unwrap_or("the agent's own rules deny it");
                Some(deny(&format!("agent {}: {}", agent.name, rule.text), reason))
            },
        )
    }

    /// If delegation is enabled (`multi_agent`), turns a denial by the rules of agents into a
    /// permission request for this call only. `None` if it is disabled or no such rule denies.
    pub(super) fn agent_asks(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        let Some(Verdict::Deny { reason, rule }) =
            self.agent_denies(case).filter(|_| self.settings.multi_agent)
        else {
            return None;
        };
        Some(self.ask_once(case, format!("{reason} ({rule})")))
    }

    /// True if neither a rule nor the default decision of the calling agent asks about the call or
    /// denies it, and no rule of an agent that it works for denies it.
    pub(super) fn has_no_opinion(&self, case: &JudgedAction<'_>) -> bool {
        let name = case.situation.agent.rsplit('/').next().unwrap_or_default();
        let default = self.agent_named(name).and_then(|agent| agent.default);
        let asks = |rule: &Rule| rule.decision == RuleDecision::Ask && rule.applies(case);
        !matches!(default, Some(RuleDecision::Ask | RuleDecision::Deny))
            && !self.own_rules(case).any(asks)
            && self.agent_denies(case).is_none()
    }

    /// Applies the default decision of the calling agent, after all rules. `None`: the built-in
    /// decision applies, because the agent has no default, or because the default is `allow`
    /// but `may_allow` is false.
    pub(super) fn agent_default(&self, case: &JudgedAction<'_>) -> Option<Verdict> {
        let name = case.situation.agent.rsplit('/').next().unwrap_or_default();
        let default = self.agent_named(name)?.default?;
        match default {
            RuleDecision::Deny => Some(deny(
                &format!("agent {name}: defaultDecision"),
                "this agent denies calls without a matching rule",
            )),
            RuleDecision::Allow if self.may_allow(case) => {
                Some(Verdict::Allow(self.confinement(case.situation)))
            }
            RuleDecision::Ask if case.is_read() => {
                Some(self.ask(case, format!("{name} asks before every call")))
            }
            RuleDecision::Ask => Some(self.built_in(case)),
            RuleDecision::Allow => None,
        }
    }
}

#[cfg(test)]
mod tests;
