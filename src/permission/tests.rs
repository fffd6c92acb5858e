//! Policy tables: asked, allowed and denied actions.

use posse_base::failure::ErrorCode;
use std::fmt::Write as _;
use std::time::Duration;

use posse_actors::ports::{Caller, CommandDeletions, ToolAnnotations};
use proptest::prelude::*;

use super::*;
use crate::shell::links::without_links;
use crate::shell::options::Reading;

mod checks;
mod commands;
mod corpus;
mod denied_paths;
mod indirect_paths;
mod lifting;
mod links;
mod modes;
mod named_paths;
mod options;
mod reading;
mod reading_commands;
mod tables;

const ROOT: &str = "/w";

fn policy(rules: &[&str]) -> RulePolicy {
    policy_with(rules, 0)
}

/// The last `project_rules` of the rules are a trusted repository's.
fn policy_with(rules: &[&str], project_rules: usize) -> RulePolicy {
    with(PolicySettings {
        rules: rules.iter().map(|rule| serde_json::from_str(rule).unwrap()).collect(),
        project_rules,
        ..PolicySettings::default()
    })
}

fn with(settings: PolicySettings) -> RulePolicy {
    RulePolicy::new(PolicySettings {
        roots: vec![ROOT.into(), "/extra".into()],
        own_dirs: vec!["/w/own".into()],
        read_only_agents: vec!["plan".into()],
        ..settings
    })
    .unwrap()
}

/// Read tools, and tools that query the session.
const READ_TOOLS: [&str; 10] = [
    "read_file",
    "grep",
    "glob",
    "list_dir",
    "agent_diff",
    "agent_status",
    "agent_result",
    "skill",
    "job_output",
    "job_stop",
];
const WRITE_TOOLS: [&str; 4] = ["write_file", "edit_file", "multi_edit", "agent_merge"];

/// Annotations of the built-in tools; of others nothing is known.
pub(super) fn annotations(tool: &str) -> ToolAnnotations {
    let of = ToolAnnotations::new;
    match tool {
        "bash" => of(Access::Process).in_rules("Bash"),
        "read_file" => of(Access::Read).in_rules("Read"),
        "grep" => of(Access::Read).in_rules("Grep"),
        "write_file" => of(Access::Write).in_rules("Write"),
        "edit_file" | "multi_edit" => of(Access::Write).in_rules("Edit"),
        "agent_merge" => ToolAnnotations {
            restricted_by: ["Write", "write_file", "edit_file", "multi_edit"]
                .map(str::to_owned)
                .into(),
            ..of(Access::Write).in_rules("Edit")
        },
        "glob" | "list_dir" | "agent_diff" => of(Access::Read),
        tool if READ_TOOLS.contains(&tool) || tool == "delegate_agent" => of(Access::Session),
        _ => ToolAnnotations::default(),
    }
}

/// Verdict about `action` with the annotations of its tool.
pub(super) fn judged(policy: &RulePolicy, action: &Action, situation: &Situation<'_>) -> Verdict {
    let situation = Situation { tool: &annotations(&action.tool), ..*situation };
    let verdict = policy.judge(action, &situation);
    let case = policy.judged_action(action, &situation, false);
    let (coverage, without_mode) = policy.covered(&case);
    match (&verdict, &without_mode) {
        // Commands that only read are the only difference of the mode `ask`.
        (Verdict::Allow(confinement), Verdict::Ask(_))
            if policy.settings.relocated.is_none() && action.operations.iter().all(is_command) =>
        {
            assert_eq!(coverage, Coverage::Uncovered);
            let reads =
                confinement.profile == "read-only" && confinement.network == NetworkAccess::Denied;
            let partly = case
                .scripts
                .iter()
                .any(|script| script.parts.iter().any(|part| part.reading != Reading::No));
            assert!(reads || partly, "{action:?}");
            without_mode
        }
        _ => verdict,
    }
}

const NO_DELETIONS: &CommandDeletions = &CommandDeletions {
    paths: Vec::new(),
    are_restorable: false,
    replaced: Vec::new(),
    replaced_are_restorable: false,
};

/// `command` in the root of the workspace, without a permission mode.
pub(super) fn resolved<'a>(command: &'a str, links: &'a [PathLink]) -> CommandToCheck<'a> {
    CommandToCheck {
        command,
        cwd: ROOT,
        links,
        replaces: &[],
        deletions: NO_DELETIONS,
        tier: &SandboxTier::Full,
        mode: None,
    }
}

/// `tool path` or `bash command`.
pub(super) fn action(call: &str) -> Action {
    let (tool, rest) = call.split_once(' ').unwrap_or((call, ""));
    let names = |rest: &str| match rest.strip_prefix('/') {
        None if rest == "." => (ROOT.to_owned(), ".".to_owned(), ROOT.to_owned()),
        None => (format!("{ROOT}/{rest}"), rest.to_owned(), ROOT.to_owned()),
        Some(_) => (rest.to_owned(), rest.trim_start_matches('/').to_owned(), "/extra".to_owned()),
    };
    let operations = match tool {
        "bash" => {
            vec![Operation::Execute {
                command: rest.into(),
                cwd: ROOT.into(),
                links: without_links(rest, ROOT, HOME_UNKNOWN),
                replaces: Vec::new(),
                deletions: CommandDeletions::default(),
                in_trial: false,
                secrets: CommandSecrets::default(),
            }]
        }
        _ if rest.is_empty() => vec![],
        tool if WRITE_TOOLS.contains(&tool) => rest
            .split(' ')
            .map(|rest| {
                let (path, relative, root) = names(rest);
                Operation::Write { path, relative, root, repository: None, ways: Vec::new() }
            })
            .collect(),
        _ => {
            let (path, relative, root) = names(rest);
            vec![Operation::Read { path, relative, root, is_committed: false, ways: Vec::new() }]
        }
    };
    Action {
        tool: tool.into(),
        operations,
        summary: call.into(),
        detail: call.into(),
        digest: "0".repeat(64),
    }
}

fn grant(target: &str) -> Grant {
    Grant { operation: "write".into(), target: target.into(), scope: Scope::Session, agent: None }
}

/// Replaced by [`judged`].
pub(super) static UNKNOWN: ToolAnnotations = ToolAnnotations {
    access: Access::Unknown,
    rule_group: None,
    restricted_by: Vec::new(),
    opens_file: false,
    visible_with: None,
};

pub(super) fn situation<'a>(
    agent: &'a str,
    grants: &'a [Grant],
    asking: AnswerSource,
) -> Situation<'a> {
    Situation {
        tool: &UNKNOWN,
        caller: Caller::Agent,
        agent,
        grants,
        asking,
        mode: PermissionMode::default(),
        now_ms: 0,
        uptime: Duration::ZERO,
        tier: &SandboxTier::Full,
    }
}

fn judge(policy: &RulePolicy, agent: &str, grants: &[Grant], call: &str) -> String {
    match judged(policy, &action(call), &situation(agent, grants, AnswerSource::Human)) {
        Verdict::Allow(confinement) => format!("allow in {}", confinement.profile),
        Verdict::Deny { rule, .. } => format!("deny by {rule}"),
        Verdict::Ask(question) => {
            let mut text = "ask".to_owned();
            if let Some(grant) = &question.grant {
                write!(text, ", grants {} {}", grant.operation, grant.target).unwrap();
            }
            assert_eq!(question.scopes.len() > 1, question.grant.is_some());
            assert_eq!(question.scopes[0], Scope::Once);
            text.push_str(if question.yes_covers { "" } else { ", never by --yes" });
            if let Some(rule) = &question.rule {
                write!(text, ", rule {rule}").unwrap();
            }
            text
        }
    }
}

fn table(policy: &RulePolicy, agent: &str, grants: &[Grant], calls: &[&str]) -> String {
    let line = |call: &&str| format!("{call} => {}", judge(policy, agent, grants, call));
    calls.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn decision_names_the_source_of_the_rule() {
    let rules = [
        r#"{"tool":"Bash(cat:*)","decision":"deny"}"#,
        r#"{"tool":"Bash(ls:*)","decision":"deny"}"#,
        r#"{"tool":"Bash(du:*)","decision":"deny","reason":"too slow"}"#,
        r#"{"tool":"Bash(df:*)","decision":"ask"}"#,
    ];
    let policy = policy_with(&rules, 3);
    let reason = |call| match judged(
        &policy,
        &action(call),
        &situation("build", &[], AnswerSource::Human),
    ) {
        Verdict::Deny { reason, .. } => reason,
        Verdict::Ask(question) => question.reason,
        Verdict::Allow(_) => panic!("{call} is allowed"),
    };
    assert_eq!(reason("bash cat x"), "the user's rules deny it");
    assert_eq!(reason("bash ls"), "the project's rules deny it");
    assert_eq!(reason("bash du"), "too slow");
    assert!(reason("bash df").contains("a rule of the project asks"), "{}", reason("bash df"));
}

#[test]
fn build_agent_uses_its_built_in_rules() {
    let calls = [
        "read_file src/main.rs",
        "read_file .git/HEAD",
        "read_file /extra/a",
        "read_file /etc/passwd",
        "read_file ../x",
        "read_file",
        "grep .",
        "glob src",
        "list_dir .",
        "read_file .env",
        "read_file .env.example",
        "read_file .ssh/config",
        "write_file .env.local",
        "write_file src/main.rs",
        "write_file README.md",
        "edit_file a/[b]/c.rs",
        "multi_edit a/x a/y",
        "multi_edit a/x b/y",
        "write_file node_modules/x/index.js",
        "write_file .git/hooks/pre-commit",
        "edit_file sub/.GIT/config",
        "write_file .posse/config.json",
        "write_file own/state",
        "read_file own/state/session.jsonl",
        "list_dir own",
        "edit_file owner/a",
        "write_file /etc/passwd",
        "bash cargo test --lib",
        "bash cargo test && rm x",
        "bash echo $HOME",
        "bash cat .env",
        "bash cp .env.example x",
        "bash docker run --env-file=.env x",
        "bash rm -rf /",
        "bash a\0b",
        "mystery a",
        "mystery",
    ];
    insta::assert_snapshot!(table(&policy(&[]), "build", &[], &calls));
}

#[test]
fn lets_plan_read_and_nothing_else() {
    let calls = [
        "read_file src/main.rs",
        "grep .",
        "read_file .env",
        "write_file src/main.rs",
        "bash ls",
        "mystery a",
    ];
    let rules = [r#"{"tool":"*","decision":"allow"}"#];
    insta::assert_snapshot!(table(&policy(&rules), "plan", &[grant("/w")], &calls), @"
    read_file src/main.rs => allow in workspace-write
    grep . => allow in workspace-write
    read_file .env => deny by global-deny: secrets
    write_file src/main.rs => deny by agent plan: read-only
    bash ls => deny by agent plan: read-only
    mystery a => deny by agent plan: read-only
    ");
}

#[test]
fn folder_grant_covers_descendants_but_nothing_denied() {
    let calls = [
        "write_file src/a.rs",
        "edit_file src/deep/a.rs",
        "write_file srcs/a.rs",
        "write_file a.rs",
        "write_file src/.env",
        "write_file src/.git/config",
        "write_file src/node_modules/a",
        "multi_edit src/a lib/b",
        "bash touch src/a",
        "mystery src/a",
    ];
    let grants = [grant("/w/src")];
    insta::assert_snapshot!(table(&policy(&[]), "build", &grants, &calls));
}

#[test]
fn most_specific_user_rule_wins() {
    let rules = [
        r#"{"tool":"bash","match":{"commandPrefix":"cargo test"},"decision":"allow"}"#,
        r#"{"tool":"bash","match":{"commandPrefix":"cargo"},"decision":"ask"}"#,
        r#"{"tool":"bash","match":{"commandPrefix":"git push"},"decision":"deny","reason":"by hand"}"#,
        r#"{"tool":"edit_file","match":{"pathGlob":"src/**"},"decision":"allow"}"#,
        r#"{"tool":"*","match":{"pathGlob":"src/gen/**"},"decision":"deny"}"#,
        r#"{"tool":"*","match":{"pathGlob":"**/.git/**"},"decision":"allow"}"#,
        r#"{"tool":"read_file","match":{"pathGlob":"big/*"},"decision":"ask"}"#,
        r#"{"tool":"edit_file","match":{"pathGlob":"src/asked.rs"},"decision":"ask"}"#,
    ];
    let calls = [
        "bash cargo test",
        "bash cargo test --lib 'a b'",
        "bash cargo testify",
        "bash cargo test; rm x",
        "bash cargo test $(rm x)",
        "bash cargo test > x",
        "bash cargo build",
        "bash cd x && git push",
        "bash sudo git push -f",
        "bash git pull",
        "edit_file src/a.rs",
        "edit_file src/asked.rs",
        "edit_file src/gen/a.rs",
        "read_file src/gen/a.rs",
        "write_file src/a.rs",
        "edit_file src/.env",
        "write_file .git/config",
        "read_file big/a",
        "read_file big/a/b",
    ];
    insta::assert_snapshot!(table(&policy(&rules), "build", &[], &calls));
}

#[test]
fn file_tools_never_access_posse_state() {
    let policy = policy(&[r#"{"tool":"*","decision":"allow"}"#]);
    for tool in READ_TOOLS.into_iter().chain(WRITE_TOOLS) {
        let verdict = judge(&policy, "build", &[grant("/w")], &format!("{tool} own/a"));
        assert_eq!(verdict, "deny by hard-deny: own", "{tool}");
    }
}

#[test]
fn dangerous_part_of_a_long_command_is_found() {
    let text = format!("bash {}rm -rf /", ":;".repeat(40_000));
    assert_eq!(judge(&policy(&[]), "build", &[], &text), "deny by hard-deny: delete-everything");
}

#[test]
fn command_too_long_to_show_is_always_denied() {
    let rules = [r#"{"tool":"bash","decision":"allow"}"#];
    let policy = policy(&rules);
    assert_eq!(judge(&policy, "build", &[], "bash ls"), "allow in workspace-write");
    let long = format!("bash echo {}", "x".repeat(COMMAND_CHARS_MAX));
    assert_eq!(judge(&policy, "build", &[], &long), "ask, never by --yes");
    let hidden = format!("{long}; rm -rf /");
    assert_eq!(judge(&policy, "build", &[], &hidden), "deny by hard-deny: delete-everything");
}

#[test]
fn listed_secrets_are_read_only() {
    let policy = with(PolicySettings {
        readable_secrets: vec!["/w/.env".into()],
        ..PolicySettings::default()
    });
    let calls = ["read_file .env", "read_file a/.env", "write_file .env"];
    insta::assert_snapshot!(table(&policy, "build", &[grant("/w")], &calls), @"
    read_file .env => allow in read-only
    read_file a/.env => deny by global-deny: secrets
    write_file .env => deny by global-deny: secrets
    ");
}

#[test]
fn sandbox_follows_the_settings() {
    let confinement = |sandbox, network, asking| {
        let policy = with(PolicySettings { sandbox, network, ..PolicySettings::default() });
        match judged(&policy, &action("bash ls"), &situation("build", &[], asking)) {
            Verdict::Ask(question) => question.confinement,
            other => panic!("{other:?}"),
        }
    };
    let roots = [ROOT.to_owned(), "/extra".to_owned()];
    let table = [
        (
            SandboxMode::WorkspaceWrite,
            NetworkMode::WithHuman,
            AnswerSource::Human,
            &roots[..],
            NetworkAccess::Domains,
        ),
        (
            SandboxMode::WorkspaceWrite,
            NetworkMode::WithHuman,
            AnswerSource::Yes,
            &roots[..],
            NetworkAccess::Denied,
        ),
        (
            SandboxMode::WorkspaceWrite,
            NetworkMode::WithHuman,
            AnswerSource::Nobody,
            &roots[..],
            NetworkAccess::Denied,
        ),
        (
            SandboxMode::WorkspaceWrite,
            NetworkMode::Domains,
            AnswerSource::Nobody,
            &roots[..],
            NetworkAccess::Domains,
        ),
        (
            SandboxMode::ReadOnly,
            NetworkMode::Inherit,
            AnswerSource::Nobody,
            &[],
            NetworkAccess::Host,
        ),
        (
            SandboxMode::Off,
            NetworkMode::Deny,
            AnswerSource::Human,
            &roots[..],
            NetworkAccess::Denied,
        ),
    ];
    for (sandbox, network, asking, writable, reaches) in table {
        assert_eq!(SandboxMode::named(sandbox.name()), Some(sandbox));
        let expected = Confinement {
            profile: sandbox.name().into(),
            writable_roots: writable.to_vec(),
            network: reaches,
        };
        assert_eq!(confinement(sandbox, network, asking), expected);
    }
    let policy =
        with(PolicySettings { sandbox: SandboxMode::ReadOnly, ..PolicySettings::default() });
    assert_eq!(
        judge(&policy, "build", &[grant("/w")], "write_file a"),
        "deny by sandbox.mode: read-only"
    );
}

#[test]
fn session_answer_describes_its_grant() {
    let rules = [
        r#"{"tool":"edit_file","match":{"pathGlob":"asked/**"},"decision":"ask","reason":"mine"}"#,
    ];
    let policy = policy(&rules);
    let reason =
        |call: &str, asking| match judged(&policy, &action(call), &situation("build", &[], asking))
        {
            Verdict::Ask(question) => question.full_reason(),
            other => panic!("{call}: {other:?}"),
        };
    let table = [
        ("write_file src/a.rs", "every change below src/"),
        ("multi_edit src/deep/a.rs", "every change below src/deep/"),
        ("write_file a.rs", "every change in the working directory and below"),
        ("write_file /extra/a.rs", "every change below /extra/"),
        ("write_file a\nb/x", "every change below a\\nb/"),
        ("edit_file asked/x", "every change below asked/"),
    ];
    for (call, allows) in table {
        let asked = reason(call, AnswerSource::Human);
        assert!(asked.ends_with(&format!("; a saved answer allows {allows}")), "{asked}");
        for asking in [AnswerSource::Yes, AnswerSource::Nobody] {
            assert!(!reason(call, asking).contains("saved"), "{call}");
        }
    }
    assert!(reason("edit_file asked/x", AnswerSource::Human).starts_with("mine; "));
    // If only this call can be allowed, no grant is suggested.
    for call in ["multi_edit a/x b/y", "write_file .git/config", "bash ls", "mystery a"] {
        assert!(!reason(call, AnswerSource::Human).contains("session"), "{call}");
    }
}

/// A call of `tool` that only reads `path`: a change that does not fit.
fn refusal(tool: &str, path: &str) -> Action {
    Action { tool: tool.into(), ..action(&format!("read_file {path}")) }
}

#[test]
fn inapplicable_edit_is_judged_as_a_read() {
    let policy = policy(&[r#"{"tool":"edit_file","match":{"pathGlob":"x/*"},"decision":"ask"}"#]);
    let verdict = |agent: &str, action: &Action| match judged(
        &policy,
        action,
        &situation(agent, &[], AnswerSource::Nobody),
    ) {
        Verdict::Allow(confinement) => format!("allow in {}", confinement.profile),
        Verdict::Deny { rule, .. } => format!("deny by {rule}"),
        Verdict::Ask(_) => "ask".to_owned(),
    };
    for tool in WRITE_TOOLS {
        assert_eq!(verdict("build", &refusal(tool, "a.rs")), "allow in read-only");
        assert_eq!(verdict("build", &refusal(tool, ".git/config")), "allow in read-only");
        assert_eq!(verdict("plan", &refusal(tool, "a.rs")), "allow in read-only");
        assert_eq!(verdict("build", &refusal(tool, ".env")), "deny by global-deny: secrets");
        assert_eq!(verdict("build", &refusal(tool, "../a")), "deny by hard-deny: workspace");
        assert_eq!(verdict("build", &action(tool)), "ask", "nothing is known of it");
    }
    assert_eq!(verdict("build", &refusal("edit_file", "x/a")), "ask");
    assert_eq!(verdict("build", &refusal("bash", "a.rs")), "ask");
    assert_eq!(verdict("build", &refusal("mystery", "a.rs")), "ask");
    let mut both = refusal("edit_file", "a.rs");
    both.operations.extend(action("edit_file a.rs").operations);
    assert_eq!(verdict("build", &both), "ask");
}

/// Rule that is suggested without a person.
fn suggested(call: &str) -> Option<Value> {
    match judged(&policy(&[]), &action(call), &situation("build", &[], AnswerSource::Nobody)) {
        Verdict::Ask(question) => question.rule,
        other => panic!("{call}: {other:?}"),
    }
}

#[test]
fn suggested_rules_are_narrow() {
    let table = [
        ("edit_file src/a.rs", "edit_file src/b.rs"),
        ("write_file [x]{y}*.rs", "write_file x.rs"),
        ("write_file a.rs", "write_file /extra/a.rs"),
        ("multi_edit a/x", "multi_edit a/x/y"),
        ("bash cargo test 'a b'", "bash cargo test a b"),
        ("bash  ls -l 'a '", "bash ls -l a"),
        ("bash CI=1 make all", "bash CI=1 rm x"),
        ("bash python3 build.py", "bash python3 other.py"),
    ];
    for (call, other) in table {
        let rule = suggested(call).unwrap_or_else(|| panic!("{call}"));
        assert_eq!(rule["match"].as_object().map(serde_json::Map::len), Some(1), "{rule}");
        let policy = policy(&[&rule.to_string()]);
        assert_eq!(judge(&policy, "build", &[], call), "allow in workspace-write", "{rule}");
        assert!(judge(&policy, "build", &[], other).starts_with("ask"), "{rule} allows {other}");
    }
}

#[test]
fn no_rule_is_suggested_if_none_is_narrow() {
    let long = format!("bash echo {}", "x".repeat(COMMAND_CHARS_MAX));
    let deep = format!("write_file {}x", "deep/".repeat(200));
    let table = [
        "bash a|b",
        "bash cargo test && rm x",
        "bash echo $HOME",
        "bash echo > x",
        "bash echo 'open",
        "bash bash",
        "bash sudo",
        "bash env -i python3 -u",
        "bash A=1",
        "bash timeout 5",
        "bash cat .env",
        "bash",
        "multi_edit a/x a/y",
        "write_file .git/config",
        "write_file a\\b",
        "mystery a",
        "mystery",
        &long,
        &deep,
    ];
    for call in table {
        assert_eq!(suggested(call), None, "{call}");
    }
}

#[test]
fn every_invalid_rule_is_reported() {
    let rules = [
        r#"{"tool":"bash"}"#,
        r#"{"tool":"bash","decision":"maybe"}"#,
        r#"{"tool":"bash","decision":"allow","match":{"pathGlob":"["}}"#,
        r#"{"tool":"bash","decision":"allow","match":{"commandPrefix":"a && b"}}"#,
        r#"{"tool":"bash","decision":"allow","match":{"commandPrefix":" "}}"#,
        r#"{"tool":"","decision":"allow"}"#,
        r#"{"tool":"bash","decision":"allow","matches":{}}"#,
        r#""bash""#,
    ];
    let rules: Vec<Value> = rules.iter().map(|rule| serde_json::from_str(rule).unwrap()).collect();
    let count = rules.len();
    let failures = RulePolicy::new(PolicySettings { rules, ..PolicySettings::default() });
    let failures = failures.unwrap_err();
    assert_eq!(failures.len(), count);
    assert!(failures.iter().all(|failure| failure.code == ErrorCode::RuleInvalid));
    let bomb = format!(
        r#"{{"tool":"*","decision":"deny","match":{{"pathGlob":"{}"}}}}"#,
        "{a,".repeat(200)
    );
    assert_eq!(
        rules::compile(&[serde_json::from_str(&bomb).unwrap()], None, None).unwrap_err().len(),
        1
    );
}

#[test]
fn rule_without_effect_is_an_error() {
    // Rule, part of the message, and the advice.
    let table = [
        (
            r#"{"tool":"wrte_file","decision":"deny"}"#,
            "permissions[0] is not a rule: there is no tool \"wrte_file\"",
            "did you mean \"write_file\"?",
        ),
        (
            r#"{"tool":"Edi(src/**)","decision":"deny"}"#,
            "there is no tool \"Edi\"",
            "did you mean \"Edit\"?",
        ),
        (
            r#"{"tool":"*_file","decision":"deny"}"#,
            "there is no tool \"*_file\"",
            "write one rule for each tool; only `*` alone means every tool",
        ),
        (
            r#"{"tool":"a\u001bb","decision":"deny"}"#,
            "there is no tool \"a\\u001bb\"",
            "choose a name that `posse tools` lists, or `*` for every tool",
        ),
        (
            r#"{"tool":"write_file","match":{"commandPrefix":"rm"},"decision":"deny"}"#,
            "`commandPrefix` is for commands, and write_file runs none",
            "write \"tool\": \"bash\", or remove `commandPrefix`",
        ),
    ];
    let tools = ["bash", "write_file"];
    for (rule, what, fix) in table {
        let failures = check_rules(&[serde_json::from_str(rule).unwrap()], &tools);
        assert_eq!(failures.len(), 1, "{rule}");
        assert_eq!(failures[0].1.code, ErrorCode::RuleInvalid, "{rule}");
        assert!(failures[0].1.what.contains(what), "{}", failures[0].1.what);
        assert_eq!(failures[0].1.fix.as_deref(), Some(fix), "{rule}");
    }
    for rule in [
        r#"{"tool":"*","match":{"commandPrefix":"rm"},"decision":"deny"}"#,
        r#"{"tool":"TodoWrite","decision":"deny"}"#,
    ] {
        assert_eq!(check_rules(&[serde_json::from_str(rule).unwrap()], &tools).len(), 0, "{rule}");
    }
}

/// `tail` without redirections that only duplicate or close a descriptor, such as `2>&1` and `<&-`.
fn without_duplications(tail: &str) -> String {
    let mut parts = tail.split('&');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let target = part.find(|c: char| " \n;|()<>".contains(c)).unwrap_or(part.len());
        let (target, after) = part.split_at(target);
        let digits = target.strip_suffix('-').unwrap_or(target);
        let is_descriptor = !target.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
        if is_descriptor && rest.ends_with(['<', '>']) {
            rest.pop();
            rest.push_str(after);
        } else {
            rest.push('&');
            rest.push_str(part);
        }
    }
    rest
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn secrets_are_always_denied(
        folder in prop::sample::select(vec!["", "src/", "a/b/", ".git/", "node_modules/"]),
        name in prop::sample::select(vec![".env", ".env.local", ".ENV", "id_rsa", "k.pem", ".netrc"]),
        tool in prop::sample::select(vec![
            "read_file", "grep", "glob", "list_dir", "write_file", "edit_file", "multi_edit", "other",
        ]),
        agent in prop::sample::select(vec!["build", "plan", "unknown", ""]),
        asking in prop::sample::select(vec![AnswerSource::Human, AnswerSource::Yes, AnswerSource::Nobody]),
        granted in prop::sample::select(vec!["/", "/w", "/w/src", ""]),
        rule in prop::sample::select(vec![
            r#"{"tool":"*","decision":"allow"}"#,
            r#"{"tool":"*","match":{"pathGlob":"**"},"decision":"allow"}"#,
            r#"{"tool":"read_file","match":{"pathGlob":"**/.env"},"decision":"allow"}"#,
            r#"{"tool":"*","decision":"ask"}"#,
        ]),
        sandbox in prop::sample::select(vec![
            SandboxMode::Off, SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite,
        ]),
    ) {
        let policy = with(PolicySettings {
            sandbox,
            network: NetworkMode::Inherit,
            rules: vec![serde_json::from_str(rule).unwrap()],
            ..PolicySettings::default()
        });
        let grants = [grant(granted)];
        let action = action(&format!("{tool} {folder}{name}"));
        let verdict = judged(&policy, &action, &situation(agent, &grants, asking));
        prop_assert!(matches!(verdict, Verdict::Deny { .. }), "{verdict:?}");
    }

    #[test]
    fn rule_parser_survives_any_text(text in "(?s:.{0,200})", shells in "[$`'\"(){}|&;<> a\\\\\n]{0,200}") {
        for text in [text, shells] {
            let judged = shell::judge_example(&text);
            let words = judged.findings.runs.iter().map(|run| run.words.len()).sum::<usize>();
            let listed = text.contains(['{', '$']);
            prop_assert!(listed || words <= 4 * text.len() + 4, "{} words", words);
        }
    }

    // All but comments, in which any character is nothing.
    #[test]
    fn prefix_must_cover_the_whole_command(tail in "[ -\"$-~\\n]{0,40}") {
        let policy = policy(&[
            r#"{"tool":"bash","match":{"commandPrefix":"cargo test"},"decision":"allow"}"#,
        ]);
        let call = action(&format!("bash cargo test {tail}"));
        let verdict = judged(&policy, &call, &situation("build", &[], AnswerSource::Human));
        // What only ends the command joins nothing to it.
        let tail = tail.trim_end_matches([' ', '\n', ';']);
        // Before a blank, a dollar sign is nothing but itself.
        let tail = without_duplications(&format!("{tail} ").replace("$ ", " "));
        let joins = tail.contains([';', '&', '|', '$', '`', '>', '(', '\n'])
            && !tail.contains(['\'', '"', '\\']);
        prop_assert!(!(joins && matches!(verdict, Verdict::Allow(_))), "{tail:?}");
    }
}
