//! Grants: permissions that an answer gives beyond one call, their scopes, and the agents for which
//! they count.

use serde::{Deserialize, Serialize};

use super::Origin;
use crate::conversation::InvocationId;

/// Scope of a permission: how long and where it applies, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Only the call for which the permission was requested.
    Once,
    /// Matching calls of the agent that asked, in this session, also after a resume in the same
    /// folder and sandbox tier. All other agents of the session are still asked, also those that
    /// this agent starts.
    Agent,
    /// Matching calls of this session, also after a resume in the same folder and sandbox tier.
    Session,
    /// Matching calls in all sessions of this project, until the grant expires.
    Project,
    /// Matching calls in all projects, until the grant expires.
    Global,
}

/// A permission that the user gave for more than one call: an operation on a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The permitted operation: `write` (files), `execute` (commands), `agent` (start of a
    /// subagent), `connect` (to a server) or `upload` (of more bytes than the limit).
    pub operation: String,
    /// The permitted target. `write`: absolute path of a folder, including everything below it;
    /// `execute`: first words of a command; `agent`: name and provider profile, as `NAME:PROVIDER`;
    /// `connect` and `upload`: `DOMAIN:PORT`.
    pub target: String,
    /// Scope of the permission.
    pub scope: Scope,
    /// The agent for whose calls a grant of scope `agent` counts: without it, the grant counts for
    /// no call. `None` for other scopes, which do not depend on the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<GrantedAgent>,
}

impl Grant {
    /// True if the grant counts for calls of `agent`; `None` stands for calls of the user.
    pub fn counts_for(&self, agent: Option<&Origin>) -> bool {
        if self.scope != Scope::Agent {
            return true;
        }
        let identities = self.agent.as_ref().zip(agent);
        identities.is_some_and(|(granted, origin)| *granted == GrantedAgent::of(origin))
    }
}

/// Identity of the agent that a grant of scope `agent` names: of a subagent its invocation, because
/// subagents with equal paths can run one after another or side by side; of the main agent its path,
/// because each of its runs is another invocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GrantedAgent {
    /// Names of the agents from the main agent down to this one, separated by `/`.
    pub agent_path: String,
    /// Id of the invocation of a subagent, which it keeps when it is resumed; `None` for the main
    /// agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_id: Option<InvocationId>,
}

impl GrantedAgent {
    /// Identity of the agent of `origin`.
    pub fn of(origin: &Origin) -> GrantedAgent {
        let is_subagent = origin.parent_invocation_id.is_some();
        GrantedAgent {
            agent_path: origin.agent_path.clone(),
            invocation_id: is_subagent.then(|| origin.invocation_id.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(path: &str, id: &str, parent: Option<&str>) -> Origin {
        Origin {
            invocation_id: InvocationId::new(id),
            parent_invocation_id: parent.map(InvocationId::new),
            agent: path.rsplit('/').next().unwrap_or_default().to_owned(),
            agent_path: path.to_owned(),
        }
    }

    fn grant(scope: Scope, agent: Option<GrantedAgent>) -> Grant {
        Grant { operation: "execute".to_owned(), target: "make".to_owned(), scope, agent }
    }

    #[test]
    fn a_grant_for_an_agent_counts_for_no_other_agent() {
        let agents = [
            origin("build", "i1", None),
            origin("build/worker", "i2", Some("i1")),
            // The same agent once more, a subagent of the first one, and a sibling.
            origin("build/worker", "i3", Some("i1")),
            origin("build/worker/worker", "i4", Some("i2")),
            origin("build/scout", "i5", Some("i1")),
        ];
        for (granted, agent) in agents.iter().enumerate() {
            let grant = grant(Scope::Agent, Some(GrantedAgent::of(agent)));
            for (asking, agent) in agents.iter().enumerate() {
                let counts = grant.counts_for(Some(agent));
                assert_eq!(counts, granted == asking, "{granted}, {asking}");
            }
            assert!(!grant.counts_for(None), "a call of the user");
        }
    }

    #[test]
    fn a_grant_for_the_main_agent_counts_for_its_later_runs() {
        let grant = grant(Scope::Agent, Some(GrantedAgent::of(&origin("build", "i1", None))));
        assert!(grant.counts_for(Some(&origin("build", "i9", None))));
        assert!(!grant.counts_for(Some(&origin("plan", "i9", None))), "another main agent");
    }

    #[test]
    fn a_grant_for_an_agent_without_a_known_agent_counts_for_nothing() {
        let worker = origin("build/worker", "i2", Some("i1"));
        let identity = |path: &str, id: Option<&str>| GrantedAgent {
            agent_path: path.to_owned(),
            invocation_id: id.map(InvocationId::new),
        };
        let unknown = [
            None,
            Some(identity("build/worker", None)),
            Some(identity("build/worker", Some("gone"))),
            Some(identity("", Some("i2"))),
        ];
        for agent in unknown {
            let grant = grant(Scope::Agent, agent);
            for asking in [Some(&worker), Some(&origin("build", "i1", None)), None] {
                assert!(!grant.counts_for(asking), "{grant:?}, {asking:?}");
            }
        }
        let parsed: Grant =
            serde_json::from_str(r#"{"operation": "execute", "target": "make", "scope": "agent"}"#)
                .unwrap();
        assert!(!parsed.counts_for(Some(&worker)));
        for scope in [Scope::Session, Scope::Project, Scope::Global] {
            assert!(grant(scope, None).counts_for(Some(&worker)));
            assert!(grant(scope, None).counts_for(None));
        }
    }

    #[test]
    fn only_grants_for_an_agent_have_the_member() {
        let worker = GrantedAgent::of(&origin("build/worker", "i2", Some("i1")));
        let text = serde_json::to_string(&grant(Scope::Agent, Some(worker))).unwrap();
        assert!(
            text.ends_with(
                r#""scope":"agent","agent":{"agentPath":"build/worker","invocationId":"i2"}}"#
            ),
            "{text}"
        );
        let text = serde_json::to_string(&grant(Scope::Session, None)).unwrap();
        assert!(text.ends_with(r#""scope":"session"}"#), "{text}");
    }
}
