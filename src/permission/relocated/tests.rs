//! Rules of the workspace apply to the copy, and nothing more.

use std::time::Duration;

use posse_actors::event::SandboxTier;
use posse_actors::ports::{AnswerSource, Caller, CommandDeletions};
use proptest::prelude::*;

use super::*;
use crate::PolicySettings;
use crate::tests::{UNKNOWN, judged};

const COPY: &str = "/state/sessions/s/worktrees/i1/tree";

fn policy(rules: &[&str], relocated: bool) -> RulePolicy {
    let (workspace, copy, writable) = ("/w".into(), COPY.into(), COPY.into());
    let relocated = relocated.then_some(Relocated { workspace, copy, writable });
    RulePolicy::new(PolicySettings {
        roots: vec!["/w".into(), "/extra".into()],
        own_dirs: vec!["/state".into()],
        read_only_agents: vec!["plan".into()],
        rules: rules.iter().map(|rule| serde_json::from_str(rule).unwrap()).collect(),
        multi_agent: true,
        relocated,
        ..PolicySettings::default()
    })
    .unwrap()
}

fn call(tool: &str, operations: Vec<Operation>) -> Action {
    let (summary, detail) = (tool.to_owned(), String::new());
    Action { tool: tool.to_owned(), operations, summary, detail, digest: String::new() }
}

fn write(root: &str, relative: &str) -> Action {
    let path = format!("{root}/{relative}");
    let (relative, root) = (relative.to_owned(), root.to_owned());
    call(
        "edit_file",
        vec![Operation::Write { path, relative, root, repository: None, ways: Vec::new() }],
    )
}

fn runs(command: &str, cwd: &str) -> Action {
    call(
        "bash",
        vec![Operation::Execute {
            command: command.into(),
            cwd: cwd.into(),
            links: Vec::new(),
            replaces: Vec::new(),
            deletions: CommandDeletions::default(),
            in_trial: false,
            secrets: posse_actors::ports::CommandSecrets::default(),
        }],
    )
}

fn judge(policy: &RulePolicy, agent: &str, grants: &[Grant], action: &Action) -> Verdict {
    let situation = Situation {
        tool: &UNKNOWN,
        caller: Caller::Agent,
        agent,
        grants,
        asking: AnswerSource::Human,
        mode: posse_actors::event::PermissionMode::default(),
        now_ms: 0,
        uptime: Duration::ZERO,
        tier: &SandboxTier::Full,
    };
    judged(policy, action, &situation)
}

fn grant(operation: &str, target: &str) -> Grant {
    Grant { operation: operation.into(), target: target.into(), scope: Scope::Session, agent: None }
}

fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Allow(confinement) => {
            assert!(confinement.writable_roots.iter().all(|root| root == COPY), "{confinement:?}");
            "allow".to_owned()
        }
        Verdict::Ask(question) => {
            assert!(question.confinement.writable_roots.iter().all(|root| root == COPY));
            "ask".to_owned()
        }
        Verdict::Deny { rule, .. } => format!("deny by {rule}"),
    }
}

#[test]
fn rules_and_grants_apply_equally_in_the_worktree() {
    let rules = [
        r#"{"tool":"edit_file","match":{"pathGlob":"/w/closed/**"},"decision":"deny"}"#,
        r#"{"tool":"edit_file","match":{"pathGlob":"free/**"},"decision":"allow"}"#,
        r#"{"tool":"Bash(make:*)","decision":"allow"}"#,
    ];
    let policy = policy(&rules, true);
    let grants = [grant("write", "/w/src"), grant("execute", "git log")];
    for (action, expected) in [
        (write(COPY, "src/a"), "allow"),
        (write(COPY, "other/a"), "ask"),
        (write(COPY, "free/a"), "allow"),
        (write(COPY, "closed/a"), "deny by permissions: "),
        (write(COPY, ".env"), "deny by global-deny: secrets"),
        (write(COPY, ".git/config"), "ask"),
        // Paths outside the copy are denied in every case.
        (write("/w", "src/a"), "deny by hard-deny: worktree"),
        (write("/extra", "a"), "deny by hard-deny: worktree"),
        (write(&format!("{COPY}x"), "a"), "deny by hard-deny: worktree"),
        (runs("git log", COPY), "allow"),
        (runs("make", COPY), "allow"),
        (runs("git log", "/w"), "deny by hard-deny: worktree"),
        (runs("rm -rf x", COPY), "ask"),
        (runs(&format!("cat {COPY}/a && git log"), COPY), "allow"),
        (runs("cat /w/a", COPY), "ask"),
        (runs("cat /w/a && git log", COPY), "ask"),
    ] {
        let verdict = word(&judge(&policy, "build/worker", &grants, &action));
        assert!(verdict.starts_with(expected), "{action:?}: {verdict}");
    }
    // A read-only agent may not write a copy either.
    let verdict = word(&judge(&policy, "plan/worker", &grants, &write(COPY, "src/a")));
    assert_eq!(verdict, "deny by agent plan: read-only");
}

#[test]
fn approval_applies_to_the_worktree_only() {
    let (here, there) = (policy(&[], false), policy(&[], true));
    let Verdict::Ask(question) = judge(&there, "build/worker", &[], &write(COPY, "src/a")) else {
        panic!()
    };
    let given = question.grant.unwrap();
    assert_eq!(given.target, format!("{COPY}/src"));
    assert_eq!(question.scopes, [Scope::Once, Scope::Session]);
    let given = [given];
    assert_eq!(word(&judge(&there, "build/worker", &given, &write(COPY, "src/b"))), "allow");
    assert_eq!(word(&judge(&there, "build/worker", &given, &write(COPY, "b"))), "ask");
    let verdict = judge(&here, "build", &given, &write("/w", "src/b"));
    assert!(matches!(verdict, Verdict::Ask(_)), "{verdict:?}");
}

#[test]
fn merge_is_judged_as_an_edit_of_every_file() {
    let rules = [
        r#"{"tool":"write_file","match":{"pathGlob":"closed/**"},"decision":"deny"}"#,
        r#"{"tool":"Edit(free/**)","decision":"allow"}"#,
    ];
    let policy = policy(&rules, false);
    let merge = |paths: &[&str]| {
        let operations = paths.iter().map(|path| Operation::Write {
            path: format!("/w/{path}"),
            relative: (*path).to_owned(),
            root: "/w".into(),
            repository: None,
            ways: Vec::new(),
        });
        call("agent_merge", operations.collect())
    };
    let cases: [(&[&str], &str); 6] = [
        (&["free/a", "free/b"], "allow"),
        (&["free/a", "b"], "ask"),
        (&["free/a", "closed/b"], "deny"),
        (&["free/a", ".env"], "deny"),
        (&["free/a", "AGENTS.md"], "ask"),
        (&["node_modules/a"], "deny"),
    ];
    for (paths, expected) in cases {
        let verdict = match judge(&policy, "build", &[], &merge(paths)) {
            Verdict::Allow(_) => "allow",
            Verdict::Ask(question) => {
                // A protected file needs approval each time, however many others there are.
                assert_eq!(question.yes_covers, !paths.contains(&"AGENTS.md"), "{paths:?}");
                "ask"
            }
            Verdict::Deny { .. } => "deny",
        };
        assert_eq!(verdict, expected, "{paths:?}");
    }
    let verdict = judge(&policy, "plan", &[], &merge(&["free/a"]));
    assert!(matches!(verdict, Verdict::Deny { .. }), "{verdict:?}");
}

proptest! {
    /// For any grants and operations: the copy is never judged more permissively than the
    /// workspace.
    #[test]
    fn worktree_allows_nothing_that_the_workspace_denies(
        granted in prop::sample::select(vec!["/w", "/w/a", "/w/a/b", "/extra", "/", "/state"]),
        relative in prop::sample::select(vec!["x", "a/x", "a/b/x", ".git/hooks/x", "CLAUDE.md"]),
        agent in prop::sample::select(vec!["build/worker", "plan/worker"]),
    ) {
        let (here, there) = (policy(&[], false), policy(&[], true));
        let grants = [grant("write", granted)];
        let in_copy = judge(&there, agent, &grants, &write(COPY, relative));
        let in_workspace = judge(&here, agent, &grants, &write("/w", relative));
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Allow(_) => 2,
            Verdict::Ask(_) => 1,
            Verdict::Deny { .. } => 0,
        };
        prop_assert!(rank(&in_copy) <= rank(&in_workspace), "{in_copy:?} {in_workspace:?}");
    }
}
