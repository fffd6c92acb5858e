//! Policies of agents combined with other rules.

use posse_actors::event::{Grant, Scope};
use posse_actors::ports::{Action, AnswerSource, Operation, Situation, Verdict};
use serde_json::{Value, json};

use super::*;
use crate::PolicySettings;
use crate::tests::{action, judged, situation};

fn policy(multi_agent: bool, agents: &[(&str, Value, Option<&str>)]) -> RulePolicy {
    let agents = agents.iter().map(|(name, rules, default)| AgentPolicy {
        name: (*name).to_owned(),
        rules: rules.as_array().unwrap().clone(),
        default_decision: default.map(str::to_owned),
    });
    RulePolicy::new(PolicySettings {
        roots: vec!["/w".into()],
        read_only_agents: vec!["reader".into()],
        agents: agents.collect(),
        multi_agent,
        ..PolicySettings::default()
    })
    .unwrap()
}

fn says(policy: &RulePolicy, path: &str, grants: &[Grant], call: &str) -> &'static str {
    let situation: Situation<'_> = situation(path, grants, AnswerSource::Human);
    match judged(policy, &action(call), &situation) {
        Verdict::Allow(_) => "allow",
        Verdict::Ask(_) => "ask",
        Verdict::Deny { .. } => "deny",
    }
}

#[test]
fn deny_rules_of_an_agent_apply_to_its_subagents() {
    let rules = json!([
        {"tool": "write_file", "match": {"pathGlob": "docs/**"}, "decision": "allow"},
        {"tool": "write_file", "match": {"pathGlob": "src/**"}, "decision": "deny"},
    ]);
    let agents = [("lead", rules, None), ("hand", json!([]), None)];
    let (single, multi) = (policy(false, &agents), policy(true, &agents));
    for (path, call, alone, among) in [
        ("lead", "write_file docs/a", "allow", "allow"),
        ("lead", "write_file src/a", "deny", "ask"),
        ("lead/hand", "write_file src/a", "deny", "ask"),
        ("hand", "write_file src/a", "ask", "ask"),
        // What one is allowed, another is not.
        ("lead/hand", "write_file docs/a", "ask", "ask"),
        ("reader", "write_file docs/a", "deny", "deny"),
        ("reader/lead", "write_file docs/a", "deny", "deny"),
        ("lead/reader", "bash ls", "deny", "deny"),
        ("lead", "write_file .env", "deny", "deny"),
    ] {
        assert_eq!(says(&single, path, &[], call), alone, "alone: {path} {call}");
        assert_eq!(says(&multi, path, &[], call), among, "among others: {path} {call}");
    }
}

#[test]
fn starting_an_agent_needs_its_own_permission() {
    let invocations = [("scout", "allow"), ("hand", "ask"), ("ghost", "deny")];
    let policy = RulePolicy::new(PolicySettings {
        roots: vec!["/w".into()],
        read_only_agents: vec!["reader".into()],
        invocations: invocations.map(|(name, word)| (name.to_owned(), word.to_owned())).into(),
        multi_agent: true,
        ..PolicySettings::default()
    })
    .unwrap();
    let call = |path: &str, name: &str, grants: &[Grant], asking: AnswerSource| {
        let (agent, provider) = (name.to_owned(), "fast".to_owned());
        let operations = vec![Operation::Invoke { agent, provider }];
        let action = Action { operations, ..action("delegate_agent") };
        judged(&policy, &action, &situation(path, grants, asking))
    };
    let human = |name| call("build", name, &[], AnswerSource::Human);
    assert!(matches!(human("scout"), Verdict::Allow(_)));
    assert!(matches!(human("ghost"), Verdict::Deny { .. }));
    assert!(matches!(human("nobody"), Verdict::Deny { .. }));
    // A read-only agent may delegate, but its subagents get no more authority.
    assert!(matches!(call("reader", "scout", &[], AnswerSource::Human), Verdict::Allow(_)));
    let Verdict::Ask(question) = human("hand") else { panic!("it is not asked") };
    assert!(question.yes_covers);
    let grant = question.grant.unwrap();
    assert_eq!((grant.operation.as_str(), grant.target.as_str()), ("agent", "hand:fast"));
    assert!(matches!(call("build", "hand", &[grant], AnswerSource::Human), Verdict::Allow(_)));
    let other = Grant {
        operation: "agent".into(),
        target: "hand:slow".into(),
        scope: Scope::Session,
        agent: None,
    };
    assert!(matches!(call("build", "hand", &[other], AnswerSource::Human), Verdict::Ask(_)));
}

#[test]
fn default_decision_of_the_agent_is_the_last_resort() {
    let agents = [
        ("bold", json!([]), Some("allow")),
        ("shy", json!([{"tool": "grep", "decision": "allow"}]), Some("deny")),
        ("odd", json!([]), Some("nonsense")),
        ("slow", json!([]), Some("ask")),
    ];
    let policy = policy(false, &agents);
    for (path, call, expected) in [
        ("bold", "write_file a", "allow"),
        ("bold", "write_file .env", "deny"),
        ("shy/bold", "write_file a", "allow"),
        ("bold/shy", "write_file a", "deny"),
        ("shy", "grep a", "allow"),
        ("shy", "read_file a", "deny"),
        ("odd", "write_file a", "deny"),
        ("slow", "read_file a", "ask"),
        ("slow", "write_file a", "ask"),
    ] {
        assert_eq!(says(&policy, path, &[], call), expected, "{path} {call}");
    }
}

#[test]
fn references_of_a_start_are_judged_as_reads_of_the_caller() {
    let invocations = [("scout", "allow"), ("hand", "ask"), ("ghost", "deny")];
    let policy = RulePolicy::new(PolicySettings {
        roots: vec!["/w".into()],
        rules: vec![
            json!({"tool": "read_file", "match": {"pathGlob": "private/**"}, "decision": "deny"}),
            json!({"tool": "read_file", "match": {"pathGlob": "asked/**"}, "decision": "ask"}),
        ],
        invocations: invocations.map(|(name, word)| (name.to_owned(), word.to_owned())).into(),
        multi_agent: true,
        ..PolicySettings::default()
    })
    .unwrap();
    let call = |name: &str, file: &str| {
        let (agent, provider) = (name.to_owned(), "fast".to_owned());
        let read = Operation::Read {
            path: format!("/w/{file}"),
            relative: file.to_owned(),
            root: "/w".to_owned(),
            is_committed: false,
            ways: Vec::new(),
        };
        let operations = vec![Operation::Invoke { agent, provider }, read];
        let action = Action { operations, ..action("delegate_agent") };
        judged(&policy, &action, &situation("build", &[], AnswerSource::Human))
    };
    for (agent, file, expected) in [
        ("scout", "src/a.rs", "allow"),
        ("hand", "src/a.rs", "ask session"),
        ("ghost", "src/a.rs", "deny"),
        ("scout", "asked/a", "ask once"),
        ("hand", "asked/a", "ask once"),
        ("scout", "private/a", "deny"),
        ("hand", ".env", "deny"),
        ("scout", ".env", "deny"),
    ] {
        let seen = match call(agent, file) {
            Verdict::Allow(_) => "allow",
            Verdict::Ask(question) if question.grant.is_some() => "ask session",
            Verdict::Ask(question) => {
                assert_eq!(question.scopes, [Scope::Once], "{agent} {file}");
                "ask once"
            }
            Verdict::Deny { .. } => "deny",
        };
        assert_eq!(seen, expected, "{agent} {file}");
    }
}
