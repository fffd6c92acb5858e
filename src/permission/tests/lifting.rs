//! Commands that would not be held everywhere: only a person lets them, each time.

use super::*;

#[test]
fn approval_of_a_protected_write_describes_its_effect() {
    let why = |command: &str, tier: &'static str| {
        let tier = SandboxTier::from(tier.to_owned());
        let situation = Situation { tier: &tier, ..situation("build", &[], AnswerSource::Human) };
        match judged(&policy(&[]), &action(&format!("bash {command}")), &situation) {
            Verdict::Ask(question) => question.reason,
            other => panic!("{command}: {other:?}"),
        }
    };
    for tier in ["full", "reduced"] {
        assert_eq!(
            why("echo x > AGENTS.md", tier),
            "AGENTS.md is protected: it configures or triggers later code execution, and a \
             command's change to it is undone when the command ends unless the call names it in \
             unprotect; it needs approval each time"
        );
    }
    assert_eq!(
        why("echo x > AGENTS.md", "none"),
        "AGENTS.md is protected: it configures or triggers later code execution; it needs approval each \
         time"
    );
}

/// Neither a rule, nor a grant, nor `--yes` answers.
#[test]
fn write_that_controls_git_is_asked_each_time() {
    let mut call = action("write_file src/config");
    let Operation::Write { repository, .. } = &mut call.operations[0] else { panic!() };
    *repository = Some("src".to_owned());
    let allow = policy(&[r#"{"tool":"*","decision":"allow"}"#]);
    let grants = [grant(ROOT)];
    let situation = situation("build", &grants, AnswerSource::Yes);
    let Verdict::Ask(question) = judged(&allow, &call, &situation) else { panic!() };
    assert!(!question.yes_covers && question.scopes == [Scope::Once], "{question:?}");
    assert!(question.reason.contains("the folder src is a git repository"), "{question:?}");
    assert!(matches!(
        judged(&allow, &action("write_file src/config"), &situation),
        Verdict::Allow { .. }
    ));
}

/// A command with exemptions.
fn free(command: &str, besides: &[Operation]) -> Action {
    let mut action = action(&format!("bash {command}"));
    action.operations.extend(besides.iter().cloned());
    action
}

fn write(relative: &str) -> Operation {
    let path = format!("{ROOT}/{relative}");
    Operation::Write {
        path,
        relative: relative.into(),
        root: ROOT.into(),
        repository: None,
        ways: Vec::new(),
    }
}

fn unseen() -> Operation {
    Operation::Read {
        path: ROOT.into(),
        relative: ".".into(),
        root: ROOT.into(),
        is_committed: false,
        ways: Vec::new(),
    }
}

#[test]
fn command_without_protection_is_always_asked_about() {
    let rules = [
        r#"{"tool":"*","decision":"allow"}"#,
        r#"{"tool":"bash","decision":"allow"}"#,
        r#"{"tool":"bash","match":{"commandPrefix":"ls"},"decision":"allow"}"#,
        r#"{"tool":"*","match":{"pathGlob":"**"},"decision":"allow"}"#,
    ];
    let grants = [
        command_grant("ls").unwrap(),
        grant(ROOT),
        Grant {
            operation: "execute".into(),
            target: "ls".into(),
            scope: Scope::Global,
            agent: None,
        },
    ];
    let policies = [
        policy(&rules),
        policy(&[]),
        with(PolicySettings {
            sandbox_off_given: true,
            sandbox: SandboxMode::Off,
            ..PolicySettings::default()
        }),
    ];
    // Without exemptions the first policy allows it.
    let plainly =
        judged(&policies[0], &free("ls", &[]), &situation("build", &grants, AnswerSource::Yes));
    assert!(matches!(plainly, Verdict::Allow(_)), "{plainly:?}");
    let cases: [&[Operation]; 5] = [
        &[write(".git/config")],
        &[write("AGENTS.md"), write(".vscode")],
        &[unseen()],
        &[write(".git/hooks"), unseen()],
        // A path that is not protected needs no exemption; naming it asks all the same.
        &[write("src/main.rs")],
    ];
    for policy in &policies {
        for (asking, tier) in [AnswerSource::Human, AnswerSource::Yes, AnswerSource::Nobody]
            .into_iter()
            .flat_map(|asking| SandboxTier::KNOWN.iter().map(move |tier| (asking, tier)))
        {
            for besides in cases {
                let situation = Situation { tier, ..situation("build", &grants, asking) };
                let verdict = judged(policy, &free("ls", besides), &situation);
                let Verdict::Ask(question) = verdict else { panic!("{besides:?}: {verdict:?}") };
                assert!(!question.yes_covers && question.grant.is_none());
                assert!(question.rule.is_none());
                assert_eq!(question.scopes, [Scope::Once]);
            }
        }
    }
}

#[test]
fn protected_paths_are_named_with_reasons() {
    let asked = |besides: &[Operation]| {
        let situation = situation("build", &[], AnswerSource::Human);
        match judged(&policy(&[]), &free("make", besides), &situation) {
            Verdict::Ask(question) => question.reason,
            other => panic!("{other:?}"),
        }
    };
    insta::assert_snapshot!(
        [
            asked(&[write(".git/config")]),
            asked(&[write("AGENTS.md"), write("a\u{1b}[2J/.envrc")]),
            asked(&[unseen()]),
            asked(&[write(".mcp.json"), unseen()]),
        ]
        .join("\n"),
        @r"
    the command would be free to change .git/config, which configures or triggers later code execution; it needs approval each time
    the command would be free to change AGENTS.md, a\u{1b}[2J/.envrc, which configure or trigger later code execution; it needs approval each time
    /w has more folders than are scanned: protected and secret files in the rest are not protected from the command. Start it in a subfolder to narrow the scan
    the command would be free to change .mcp.json, which configures or triggers later code execution; it needs approval each time. /w has more folders than are scanned: protected and secret files in the rest are not protected from the command. Start it in a subfolder to narrow the scan
    "
    );
}

#[test]
fn denied_call_cannot_be_approved() {
    let read_only = PolicySettings { sandbox: SandboxMode::ReadOnly, ..PolicySettings::default() };
    for (settings, agent, command, besides, rule) in [
        (PolicySettings::default(), "build", "ls", write(".env"), "global-deny: secrets"),
        (PolicySettings::default(), "build", "ls", write("own/grants"), "hard-deny: own"),
        (PolicySettings::default(), "build", "rm -rf /", write(".git/config"), "hard-deny"),
        (PolicySettings::default(), "plan", "ls", write(".git/config"), "agent plan"),
        (PolicySettings::default(), "plan", "ls", unseen(), "agent plan"),
        (read_only, "build", "ls", write(".git/config"), "sandbox.mode: read-only"),
    ] {
        let situation = situation(agent, &[], AnswerSource::Human);
        match judged(&with(settings), &free(command, std::slice::from_ref(&besides)), &situation) {
            Verdict::Deny { rule: by, .. } => assert!(by.starts_with(rule), "{besides:?}: {by}"),
            other => panic!("{besides:?}: {other:?}"),
        }
    }
    let outside = Operation::Write {
        path: "/etc/profile".into(),
        relative: "profile".into(),
        root: "/etc".into(),
        repository: None,
        ways: Vec::new(),
    };
    let situation = situation("build", &[], AnswerSource::Human);
    let verdict = judged(&policy(&[]), &free("ls", &[outside]), &situation);
    assert!(matches!(verdict, Verdict::Deny { .. }), "{verdict:?}");
}
