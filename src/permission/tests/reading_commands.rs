//! Commands that only read: allowed without a grant where a sandbox confines them.

use serde::Deserialize;

use super::corpus::grants;
use super::*;

/// Commands that only read, and commands that look like them.
const CORPUS: &str = include_str!("../../../tests/corpus/bash-commands-reading.jsonl");

fn reading_policy(settings: PolicySettings) -> RulePolicy {
    RulePolicy::new(PolicySettings {
        roots: vec![ROOT.into()],
        own_dirs: vec!["/w/own".into()],
        ..settings
    })
    .unwrap()
}

#[derive(Deserialize)]
struct CorpusRow {
    command: String,
    expect: String,
    why: String,
}

#[test]
fn passes_the_corpus_of_reading_commands() {
    let policy = reading_policy(PolicySettings::default());
    let (mut rows, mut misses) = (0, Vec::new());
    for line in CORPUS.lines() {
        let row: CorpusRow = serde_json::from_str(line).unwrap();
        let checked = checked(&policy, &row.command);
        rows += 1;
        if checked.decision != row.expect {
            let CorpusRow { command, expect, why } = row;
            misses.push(format!(
                "{expect} -> {}: {command:?} {why}: {}",
                checked.decision, checked.reason
            ));
        }
    }
    misses.sort();
    assert!(rows >= 700, "{rows} rows");
    assert!(misses.is_empty(), "{} of {rows}: {misses:#?}", misses.len());
}

/// Decision about `command` in the permission mode `ask`, without grants.
fn checked(policy: &RulePolicy, command: &str) -> Checked {
    let mode = Some(PermissionMode::Ask);
    policy.check_resolved(CommandToCheck { mode, ..resolved(command, &[]) }, &[])
}

fn rules<'a>(rules: &'a [&'a str]) -> impl Iterator<Item = Value> + 'a {
    rules.iter().map(|rule| serde_json::from_str(rule).unwrap())
}

fn verdict(
    policy: &RulePolicy,
    command: &str,
    agent: &str,
    granted: &[Grant],
    tier: &SandboxTier,
) -> String {
    let situation = Situation {
        tool: &annotations("bash"),
        caller: Caller::Agent,
        agent,
        grants: granted,
        asking: AnswerSource::Nobody,
        mode: PermissionMode::Ask,
        now_ms: 0,
        uptime: Duration::ZERO,
        tier,
    };
    match policy.judge(&action(&format!("bash {command}")), &situation) {
        Verdict::Allow(confinement) => {
            let Confinement { profile, writable_roots, network } = confinement;
            let reaches = network != NetworkAccess::Denied;
            format!("{profile} {} {reaches}", writable_roots.len())
        }
        Verdict::Ask(question) => format!("ask: {}", question.reason),
        Verdict::Deny { rule, .. } => format!("deny: {rule}"),
    }
}

#[test]
fn command_that_only_reads_is_confined_to_reading() {
    let open = PolicySettings { network: NetworkMode::Inherit, ..PolicySettings::default() };
    let policy = reading_policy(open);
    let granted = grants(&["npm test", "git log", "notify done"]);
    let judged = |command: &str| verdict(&policy, command, "build", &granted, &SandboxTier::Full);
    for command in ["ls -la && git status", "cd src && cat main.rs | sort", "cargo tree"] {
        assert_eq!(judged(command), "read-only 0 false", "{command}");
    }
    // A granted command keeps its confinement, also beside a command that only reads.
    for command in [
        "git log",
        "npm test",
        "npm test | tail -5",
        "cd web && npm test",
        "git status && npm test",
        "ls && notify done",
    ] {
        assert_eq!(judged(command), "workspace-write 1 true", "{command}");
    }
    // A command that may run what the project configures needs a grant beside one that does not.
    assert!(judged("git status && notify done").starts_with("ask: `git status`: "));
    assert!(judged("cargo --version; notify done").starts_with("ask: `cargo --version`: "));
    assert!(judged("cargo tree && npm test").starts_with("ask: `cargo tree`: "));
}

#[test]
fn question_names_only_the_parts_that_need_an_answer() {
    let policy = reading_policy(PolicySettings::default());
    let checked = checked(&policy, "ls -la && make && cat README.md");
    let needs: Vec<_> = checked.needs.iter().map(|need| need.part.as_deref()).collect();
    assert_eq!(needs, [Some("make")]);
    assert!(!checked.reason.contains("ls -la"), "{}", checked.reason);
}

#[test]
fn reading_is_asked_about_without_a_sandbox_or_with_secrets_in_reach() {
    let table = [
        (SandboxTier::Full, false, false, true),
        (SandboxTier::Full, true, false, true),
        (SandboxTier::Reduced, false, false, true),
        (SandboxTier::Reduced, true, false, false),
        (SandboxTier::None, false, false, false),
        // Unconfined commands need approval even if the user turned the sandbox off.
        (SandboxTier::None, false, true, false),
    ];
    for (tier, secrets_in_reach, off, expected) in table {
        let sandbox = if off { SandboxMode::Off } else { SandboxMode::WorkspaceWrite };
        let settings = PolicySettings {
            sandbox,
            sandbox_off_given: off,
            secrets_in_reach,
            ..PolicySettings::default()
        };
        let judged = verdict(&reading_policy(settings), "ls src", "build", &[], &tier);
        assert_eq!(judged == "read-only 0 false", expected, "{tier:?} {off}: {judged}");
    }
}

#[test]
fn rules_and_agents_take_precedence_over_reading() {
    let agent = |name: &str, rule: &str, default: Option<&str>| AgentPolicy {
        name: name.to_owned(),
        rules: rules(&[rule]).collect(),
        default_decision: default.map(str::to_owned),
    };
    let none = r#"{"tool":"edit_file","decision":"ask"}"#;
    let policy = reading_policy(PolicySettings {
        rules: rules(&[
            r#"{"tool":"Bash(cat:*)","decision":"ask"}"#,
            r#"{"tool":"Bash(ps:*)","decision":"deny"}"#,
        ])
        .collect(),
        agents: vec![
            agent("asks", none, Some("ask")),
            agent("denies", none, Some("deny")),
            agent("allows", none, Some("allow")),
            agent("no-shell", r#"{"tool":"bash","decision":"deny"}"#, None),
            agent("asked-shell", r#"{"tool":"bash","decision":"ask"}"#, None),
            agent("no-ls", r#"{"tool":"Bash(ls:*)","decision":"deny"}"#, None),
        ],
        read_only_agents: vec!["plan".to_owned()],
        ..PolicySettings::default()
    });
    let table = [
        ("ls", "build", "read-only"),
        ("ls", "allows", "read-only"),
        ("ls", "asks", "ask"),
        ("ls", "denies", "deny: agent denies"),
        ("ls", "no-shell", "deny: agent no-shell"),
        ("ls", "asked-shell", "ask"),
        ("pwd && ls", "no-ls", "deny: agent no-ls"),
        ("pwd", "no-ls", "read-only"),
        ("ls", "no-ls/build", "deny: agent no-ls"),
        ("ls", "plan", "deny: agent plan"),
        ("cat README.md", "build", "ask"),
        ("ls && cat README.md", "build", "ask"),
        ("ls; ps aux", "build", "deny: permissions"),
    ];
    for (command, agent, expected) in table {
        let judged = verdict(&policy, command, agent, &[], &SandboxTier::Full);
        assert!(judged.starts_with(expected), "{command} {agent}: {judged}");
    }
    let every = reading_policy(PolicySettings {
        rules: rules(&[r#"{"tool":"bash","decision":"ask"}"#]).collect(),
        ..PolicySettings::default()
    });
    assert!(verdict(&every, "ls", "build", &[], &SandboxTier::Full).starts_with("ask"));
    let multi = reading_policy(PolicySettings {
        agents: vec![agent("no-ls", r#"{"tool":"Bash(ls:*)","decision":"deny"}"#, None)],
        multi_agent: true,
        ..PolicySettings::default()
    });
    assert!(verdict(&multi, "ls", "no-ls", &[], &SandboxTier::Full).starts_with("ask"));
}

/// Words that the tables of reading commands do not know leave grants and rules as they are.
#[test]
fn other_uses_of_a_reading_program_can_be_granted_and_allowed_by_rules() {
    let rule = serde_json::from_str(r#"{"tool":"Bash(sed:*)","decision":"allow"}"#).unwrap();
    let policy = reading_policy(PolicySettings { rules: vec![rule], ..PolicySettings::default() });
    let granted = grants(&["git branch topic", "sort -o b a"]);
    for command in ["sed -i s/a/b/ README.md", "git branch topic", "sort -o b a"] {
        let judged = verdict(&policy, command, "build", &granted, &SandboxTier::Full);
        assert_eq!(judged, "workspace-write 1 false", "{command}");
    }
    for command in ["git branch other", "sort -o c a"] {
        let judged = verdict(&policy, command, "build", &granted, &SandboxTier::Full);
        assert!(judged.starts_with("ask"), "{command}: {judged}");
    }
}
