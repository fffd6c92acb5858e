//! Commands in the policy: grants, rules, tiers, questions, and how long it takes.

use std::time::Instant;

use super::corpus::{GRANTED, grants};
use super::*;

fn at_tier(
    policy: &RulePolicy,
    tier: &str,
    asking: AnswerSource,
    granted: &[Grant],
    command: &str,
) -> Verdict {
    let tier = SandboxTier::from(tier.to_owned());
    let situation = Situation { tier: &tier, ..situation("build", granted, asking) };
    judged(policy, &action(&format!("bash {command}")), &situation)
}

fn question(policy: &RulePolicy, tier: &str, command: &str) -> PermissionQuestion {
    match at_tier(policy, tier, AnswerSource::Human, &grants(&GRANTED), command) {
        Verdict::Ask(question) => question,
        other => panic!("{command}: {other:?}"),
    }
}

#[test]
fn grant_covers_completely_granted_commands_only() {
    let policy = policy(&[]);
    let granted = grants(&["npm test", "terraform plan", "cd crates/core", "make build"]);
    let table = [
        ("npm test", true),
        ("npm test && npm test --silent", true),
        ("terraform plan", true),
        ("terraform plan -out=x", false),
        ("terraform  plan  x", false),
        ("cd crates/core && npm test", true),
        ("cd crates/core/../x && npm test", false),
        ("cd crates && npm test", false),
        ("make build", true),
        ("make build install", false),
        ("make", false),
        ("npm test; x", false),
        ("npm test > x", false),
        ("npm test $(x)", false),
        ("A=1 npm test", false),
        ("npm test\nx", false),
        ("npm test\rx", false),
        ("npm test <<< x", false),
        ("npm test <<X\n$(x)\nX", false),
        ("IFS=x npm test", false),
        ("npm test & x", false),
    ];
    for (command, expected) in table {
        let verdict = at_tier(&policy, "full", AnswerSource::Nobody, &granted, command);
        assert_eq!(matches!(verdict, Verdict::Allow(_)), expected, "{command}: {verdict:?}");
    }
    // A grant to write is none to run.
    let writes = [Grant {
        operation: "write".into(),
        target: "npm test".into(),
        scope: Scope::Session,
        agent: None,
    }];
    let verdict = at_tier(&policy, "full", AnswerSource::Human, &writes, "npm test");
    assert!(matches!(verdict, Verdict::Ask(_)));
}

#[test]
fn grants_parse_back() {
    let table: [&[&str]; 6] = [
        &["git", "log"],
        &["a b", "c'd", "\"", "''"],
        &["", "x"],
        &["$(id)", ";", "\n", "\\", "*"],
        &["é", "'"],
        &["-x=a,b"],
    ];
    for words in table {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(shell::split(&shell::quoted(&words)), Some(words));
    }
    for broken in ["", " ", "a;b", "a 'b", "a $x", "a\nb", "a > b", "`a`"] {
        assert_eq!(shell::split(broken), None, "{broken:?}");
    }
}

#[test]
fn every_command_is_asked_about_without_a_sandbox() {
    let rules = [r#"{"tool":"bash","decision":"allow"}"#];
    let policy = policy(&rules);
    let granted = grants(&GRANTED);
    for command in ["ls", "git status", "make"] {
        assert!(matches!(
            at_tier(&policy, "full", AnswerSource::Human, &granted, command),
            Verdict::Allow(_)
        ));
        assert!(matches!(
            at_tier(&policy, "reduced", AnswerSource::Human, &granted, command),
            Verdict::Allow(_)
        ));
        let Verdict::Ask(question) = at_tier(&policy, "none", AnswerSource::Yes, &granted, command)
        else {
            panic!("{command} is allowed");
        };
        assert!(!question.yes_covers && question.grant.is_none());
        assert_eq!(question.scopes, [Scope::Once]);
        assert!(question.reason.contains("not sandboxed"), "{}", question.reason);
    }
    let off = with(PolicySettings {
        sandbox: SandboxMode::Off,
        sandbox_off_given: true,
        ..PolicySettings::default()
    });
    let Verdict::Ask(question) = at_tier(&off, "none", AnswerSource::Yes, &[], "make") else {
        panic!()
    };
    assert!(question.yes_covers, "--sandbox off was given");
    assert!(matches!(at_tier(&off, "none", AnswerSource::Yes, &granted, "ls"), Verdict::Allow(_)));
    let denied = at_tier(&off, "none", AnswerSource::Yes, &granted, "rm -rf /");
    assert!(matches!(denied, Verdict::Deny { .. }));
}

#[test]
fn asks_if_a_command_could_read_unhidable_secrets() {
    let policy = with(PolicySettings { secrets_in_reach: true, ..PolicySettings::default() });
    let granted = grants(&GRANTED);
    assert!(matches!(
        at_tier(&policy, "full", AnswerSource::Human, &granted, "ls"),
        Verdict::Allow(_)
    ));
    let Verdict::Ask(question) = at_tier(&policy, "reduced", AnswerSource::Human, &granted, "ls")
    else {
        panic!();
    };
    assert!(question.reason.contains("secret files") && question.grant.is_none());
}

#[test]
fn request_names_the_part_and_its_grant() {
    let policy = policy(&[]);
    let all = [Scope::Once, Scope::Session, Scope::Project, Scope::Global];
    let table: [(&str, Option<&str>, &[Scope]); 22] = [
        ("git diff --stat", Some("git diff"), &all),
        ("git status && git diff", Some("git diff"), &all),
        ("git diff; git diff --stat; ls", Some("git diff"), &all),
        ("cargo build -q", Some("cargo build"), &all[..3]),
        ("make test", Some("make test"), &all[..3]),
        ("terraform plan -out x", Some("terraform plan -out x"), &all),
        ("cd crates/core && cargo test", Some("cd crates/core"), &all),
        ("grep 'a b' src", Some("grep"), &all),
        ("cargo build && cargo build -q", Some("cargo build"), &all[..3]),
        ("git diff > x", None, &all[..1]),
        ("git diff --output=x", None, &all[..1]),
        ("git diff $(x)", None, &all[..1]),
        ("curl x", None, &all[..1]),
        ("sudo ls", None, &all[..1]),
        ("bash x.sh", None, &all[..1]),
        ("python3 x.py", None, &all[..1]),
        ("python3.12 x.py", None, &all[..1]),
        ("rm x", None, &all[..1]),
        ("env ls", None, &all[..1]),
        ("git", None, &all[..1]),
        ("cd", None, &all[..1]),
        ("./x", None, &all[..1]),
    ];
    for (command, grant, scopes) in table {
        let asked = question(&policy, "full", command);
        assert_eq!(asked.grant.as_ref().map(|grant| grant.target.as_str()), grant, "{command}");
        assert_eq!(asked.scopes, scopes, "{command}");
        if let Some(grant) = asked.grant {
            assert_eq!(grant.operation, "execute");
            let granted: Vec<Grant> = grants(&GRANTED).into_iter().chain([grant]).collect();
            let verdict = at_tier(&policy, "full", AnswerSource::Nobody, &granted, command);
            assert!(matches!(verdict, Verdict::Allow(_)), "{command}: {verdict:?}");
        }
    }
}

#[test]
fn grants_for_the_parts_of_a_list_are_offered_one_by_one() {
    let policy = policy(&[]);
    let mut granted = grants(&GRANTED);
    for (expected, rest) in [("cargo build", true), ("make lint", true), ("terraform plan", false)]
    {
        let command = "ls && cargo build -q && make lint; terraform plan";
        let verdict = at_tier(&policy, "full", AnswerSource::Human, &granted, command);
        let Verdict::Ask(question) = verdict else { panic!("{expected}: {verdict:?}") };
        let told = question.full_reason().contains("the rest is asked next");
        let grant = question.grant.unwrap();
        assert_eq!((grant.target.as_str(), question.grants_part), (expected, rest));
        assert_eq!(told, rest, "{}", question.reason);
        granted.push(grant);
    }
    // A part that cannot be granted does not hide the others, and a doubt about the whole does.
    for (command, grant) in [
        ("rm -rf x && make lint", Some("make lint")),
        ("make lint > x && terraform plan", Some("terraform plan")),
        ("rm -rf x && python3 x.py", None),
        ("make lint && x $(y)", None),
        ("if true; then make lint; fi", None),
    ] {
        let asked = question(&policy, "full", command);
        assert_eq!(asked.grant.as_ref().map(|grant| grant.target.as_str()), grant, "{command}");
        assert_eq!(asked.grants_part, grant.is_some(), "{command}");
    }
}

#[test]
fn grant_description_covers_all_effects() {
    let policy = policy(&[]);
    for command in ["cargo build", "make all", "pytest -q", "go test ./..."] {
        let reason = question(&policy, "full", command).grant_text;
        assert!(reason.contains("which runs code of the project's files"), "{reason}");
    }
    let reason = question(&policy, "full", "git status && git diff | wc -l").reason;
    assert!(reason.contains("`git diff`") && reason.contains("`wc -l`"), "{reason}");
    assert!(!reason.contains("git status"), "{reason}");
    let reason = question(&policy, "full", "x\u{1b}[31m 'a\nb'").reason;
    assert!(!reason.contains(['\u{1b}', '\n']), "{reason:?}");
}

#[test]
fn yes_flag_excludes_protected_files_and_secrets() {
    let policy = policy(&[]);
    let table = [
        ("make", true),
        ("a | b && c", true),
        ("x 'unclosed", true),
        ("cat x > .mcp.json", false),
        ("echo x >> .git/hooks/pre-commit", false),
        ("sh -c 'echo x > .envrc'", false),
        ("cat .env", false),
        ("sh -c 'cat .env'", false),
        ("cat < .env", false),
        ("cat .e*", false),
        ("cat sub/.en?", false),
        ("x .gitl*.yml", true),
        ("cat *", true),
        ("X=.env make", false),
    ];
    for (command, covered) in table {
        assert_eq!(question(&policy, "full", command).yes_covers, covered, "{command}");
    }
}

#[test]
fn deny_rule_matches_anywhere_in_a_command() {
    let policy = policy(&[
        r#"{"tool":"Bash(git push:*)","decision":"deny"}"#,
        r#"{"tool":"Bash(make deploy)","decision":"deny"}"#,
        r#"{"tool":"bash","match":{"commandPrefix":"kubectl"},"decision":"deny","reason":"by hand"}"#,
    ]);
    let denied = [
        "git push",
        "git push -f",
        "ls && git push",
        "sh -c 'git push'",
        "$(git push)",
        "sudo env A=1 git push",
        "g'i't push",
        "/usr/bin/git push",
        "if x; then git push; fi",
        "xargs git push",
        "find . -exec kubectl x \\;",
        "make deploy",
        "cat <<X\n$(kubectl get)\nX",
    ];
    let open = [
        "git pull",
        "git pushx",
        "echo 'git push'",
        "make deploy-docs",
        "make deploy x",
        "kubectlx",
    ];
    for command in denied {
        let verdict = at_tier(&policy, "full", AnswerSource::Human, &grants(&GRANTED), command);
        assert!(matches!(verdict, Verdict::Deny { .. }), "{command}: {verdict:?}");
    }
    for command in open {
        let verdict = at_tier(&policy, "full", AnswerSource::Human, &grants(&GRANTED), command);
        assert!(matches!(verdict, Verdict::Ask(_)), "{command}: {verdict:?}");
    }
}

#[test]
fn allow_rules_apply_per_part_and_specific_ask_wins() {
    let policy = policy(&[
        r#"{"tool":"Bash(make:*)","decision":"allow"}"#,
        r#"{"tool":"Bash(make deploy:*)","decision":"ask","reason":"it deploys"}"#,
        r#"{"tool":"Bash(npm run lint)","decision":"allow"}"#,
        r#"{"tool":"Edit(src/**)","decision":"allow"}"#,
    ]);
    let table = [
        ("make", "allow"),
        ("make -j 4 all", "allow"),
        ("make all && npm run lint", "allow"),
        ("npm run lint --fix", "ask"),
        ("make deploy", "ask"),
        ("make all; make deploy now", "ask"),
        ("make > x", "ask"),
        ("make *", "ask"),
        ("make .env", "ask"),
        ("make 'x", "ask"),
    ];
    for (command, expected) in table {
        let checked = policy.check(command, ROOT, &[]);
        assert_eq!(checked.decision, expected, "{command}: {}", checked.reason);
    }
    assert!(policy.check("make deploy", ROOT, &[]).reason.contains("it deploys"));
    assert_eq!(judge(&policy, "build", &[], "edit_file src/a.rs"), "allow in workspace-write");
    assert_eq!(judge(&policy, "build", &[], "multi_edit src/a.rs"), "allow in workspace-write");
    assert!(judge(&policy, "build", &[], "write_file src/a.rs").starts_with("ask"));
}

#[test]
fn rule_that_contradicts_its_examples_is_refused() {
    let good = [
        r#"{"tool":"Bash(git log:*)","decision":"allow","examples":{"match":["git log","git log -5 && git log"],"noMatch":["git logs","git log; id","git log --output=x"]}}"#,
        r#"{"tool":"bash","match":{"commandPrefix":"rm"},"decision":"deny","examples":{"match":["rm x","sudo rm x","sh -c 'rm x'"],"noMatch":["echo rm"]}}"#,
        r#"{"tool":"Edit(src/**)","decision":"allow","examples":{"match":["src/a/b.rs"],"noMatch":["a.rs"]}}"#,
    ];
    let broken = [
        r#"{"tool":"Bash(git log:*)","decision":"allow","examples":{"match":["git logs"]}}"#,
        r#"{"tool":"Bash(git log:*)","decision":"allow","examples":{"noMatch":["git log -1"]}}"#,
        r#"{"tool":"Edit(src/**)","decision":"allow","examples":{"match":["a.rs"]}}"#,
        r#"{"tool":"Bash(git log","decision":"allow"}"#,
        r#"{"tool":"Bash()","decision":"allow"}"#,
        r#"{"tool":"Bash(a; b:*)","decision":"allow"}"#,
        r#"{"tool":"Bash(a)","match":{"commandPrefix":"a"},"decision":"allow"}"#,
        r#"{"tool":"bash","decision":"allow","examples":{"matches":[]}}"#,
    ];
    let compiled = |rule: &str| {
        let rules = vec![serde_json::from_str(rule).unwrap()];
        RulePolicy::new(PolicySettings { rules, ..PolicySettings::default() })
    };
    for rule in good {
        assert!(compiled(rule).is_ok(), "{rule}: {:?}", compiled(rule).err());
    }
    for rule in broken {
        assert!(compiled(rule).is_err(), "{rule}");
    }
}

/// Texts with nesting, repetition or without end.
const HOSTILE: [&str; 62] = [
    "$(",
    "`",
    "\"$(",
    "((",
    "$((",
    "{",
    "(",
    "<(",
    "if ",
    "case x in ",
    "${x:-",
    "a|",
    "a;",
    "a&",
    "f(){ ",
    "[[ ",
    "x=(",
    "eval ",
    "sudo ",
    "env -S ",
    "sh -c '",
    "'",
    "\"",
    "\\",
    "{a,",
    "{a,b}",
    "{a..z}",
    "*",
    "[",
    "~",
    "<<X ",
    "<<X\n",
    "<<<",
    ">",
    "cd /;",
    "for x in ",
    "coproc ",
    "time ",
    "\\\n",
    "$'\\x",
    "find . -exec ",
    "xargs ",
    "f&",
    "! ",
    "a=b ",
    "$[",
    "${",
    "$x",
    "#",
    "}",
    ")",
    "esac",
    "done ",
    ";;",
    "eval \"",
    "rm ",
    "rm -rf /x ",
    "$(<",
    "a\n",
    "\t",
    "é",
    "git log ",
];

#[test]
fn hostile_text_is_judged_in_linear_time() {
    let policy = policy(&[]);
    let mut slowest = (Duration::ZERO, "");
    for seed in HOSTILE {
        let text = seed.repeat(10_000 / seed.len());
        let start = Instant::now();
        let checked = policy.check(&text, ROOT, &[]);
        slowest = slowest.max((start.elapsed(), seed));
        assert_ne!(checked.decision, "allow", "{seed:?}");
    }
    // The bound is 50 ms of a release build on a quiet machine (benches/judge.rs); this one is
    // neither.
    assert!(slowest.0 < Duration::from_secs(20), "{slowest:?}");
    // Ten times the text takes about ten times as long, not a hundred times.
    for seed in HOSTILE {
        let time = |times: usize| {
            let text = seed.repeat(times / seed.len());
            let start = Instant::now();
            policy.check(&text, ROOT, &[]);
            start.elapsed()
        };
        let (short, long) = (time(2_000), time(20_000));
        let bound = short.max(Duration::from_millis(20)) * 60;
        assert!(long < bound, "{seed:?}: {short:?}, then {long:?}");
    }
}
