//! Accepted and rejected command lines, and the error texts.

use std::time::Duration;

use super::*;

mod documented_commands;

fn play(line: &str) -> Result<Invocation, CliExit> {
    parse(std::iter::once("posse").chain(line.split_whitespace()).map(OsString::from), false)
}

fn run(line: &str) -> RunArgs {
    match play(line) {
        Ok(Invocation::Run(command)) => command.into_args().expect(line),
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(line: &str) -> String {
    let exit = match play(line) {
        Ok(Invocation::Run(command)) => usage(command.into_args().expect_err(line)),
        other => other.expect_err(line),
    };
    assert_eq!((exit.code, exit.stderr), (2, true), "{line}: {}", exit.text);
    exit.text
}

#[test]
fn version_is_printed_without_building_the_full_parser() {
    let exit = play("--version").unwrap_err();
    assert_eq!(
        exit,
        CliExit { text: "posse 0.1.0\n".into(), stderr: false, code: 0, failure: None }
    );
    assert_eq!(play("-V"), Err(exit));
}

#[test]
fn task_is_read_from_arguments_flag_or_stdin() {
    let text = |text: &str| Some(PromptArg::Text(text.into()));
    assert_eq!(run("run fix the test").prompt, text("fix the test"));
    assert_eq!(run("exec --prompt fix").prompt, text("fix"));
    assert_eq!(run("-p fix").prompt, text("fix"));
    assert_eq!(run("-y -p fix").prompt, text("fix"));
    assert_eq!(run("run --prompt -x").prompt, text("-x"));
    assert_eq!(run("run fix -- --all").prompt, text("fix --all"));
    assert_eq!(run("run -").prompt, Some(PromptArg::Stdin));
    assert_eq!(run("run").prompt, None);
}

#[test]
fn flags_alone_open_a_conversation_on_a_terminal() {
    let at_terminal = |line: &str, terminal| {
        let words = std::iter::once("posse").chain(line.split_whitespace());
        parse(words.map(OsString::from), terminal)
    };
    let which = |id: &str, fork| {
        let which = Which::Id(id.into());
        Some(Resume { which, fork, headless: false })
    };
    let place = PlaceArgs { config: Some("f".into()), ..PlaceArgs::default() };
    let flags = AgentFlags { yes: true, model: Some("m".into()), ..AgentFlags::default() };
    for (line, expected) in [
        ("--config f", RunArgs { place, ..RunArgs::default() }),
        ("-y --model m", RunArgs { flags, ..RunArgs::default() }),
        ("--resume 2026", RunArgs { resume: which("2026", false), ..RunArgs::default() }),
        ("--resume 2026 --fork", RunArgs { resume: which("2026", true), ..RunArgs::default() }),
    ] {
        let Ok(Invocation::Tui(command)) = at_terminal(line, true) else { panic!("{line}") };
        assert_eq!(command.into_args(), expected, "{line}");
    }
    // A task, or a flag of a task, means `run`.
    for line in ["-p fix", "--image i", "--unattended", "--output-format json", "-y -p fix"] {
        assert!(matches!(at_terminal(line, true), Ok(Invocation::Run(_))), "{line}");
    }
    assert!(matches!(at_terminal("--config f", false), Ok(Invocation::Run(_))));
    let wrong = at_terminal("--modle m", true).unwrap_err();
    assert_eq!((wrong.text, wrong.code), (refused("--modle m"), 2));
    assert!(refused("tui --fork").contains("--fork") || refused("tui --fork").contains("missing"));
    assert!(refused("tui -c --resume 2026").contains("cannot be used with"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "every flag, one after the other")]
fn reads_every_flag_of_run() {
    let line = "run --agent plan --provider p --model m --thinking high --skill deploy --skill s --max-turns 3 --timeout 10m --budget 0.25 --cwd a \
        --add-dir b --add-dir c -y --unattended --dry-run --no-stream --image i --image j --no-transcript \
        --config f --output-format stream-json --input-format stream-json --record r --sandbox read-only --sandbox-required --network deny \
        --no-persistent-grants --mode single --trust-project -vv --main-max-context-tokens 9000 \
        --main-compact-at 0.5 --sub-max-context-tokens auto --sub-compact-at much \
        --system-prompt -s --append-system-prompt-file t go";
    let flags = AgentFlags {
        thinking: Some("high".into()),
        agent: Some("plan".into()),
        provider: Some("p".into()),
        model: Some("m".into()),
        max_turns: Some(3),
        main_max_context_tokens: Some("9000".into()),
        main_compact_at: Some("0.5".into()),
        sub_max_context_tokens: Some("auto".into()),
        sub_compact_at: Some("much".into()),
        timeout: Some(Duration::from_mins(10)),
        budget: Some(250_000),
        add_dirs: vec!["b".into(), "c".into()],
        yes: true,
        unattended: true,
        dry_run: true,
        no_stream: true,
        images: vec!["i".into(), "j".into()],
        no_transcript: true,
        record: Some("r".into()),
        sandbox: Some("read-only".into()),
        sandbox_required: true,
        network: Some("deny".into()),
        no_persistent_grants: true,
        mode: Some("single".into()),
        system_prompt: Some("-s".into()),
        append_system_prompt_file: Some("t".into()),
        verbose: 2,
        ..AgentFlags::default()
    };
    let expected = RunArgs {
        skills: vec!["deploy".into(), "s".into()],
        resume: None,
        prompt: Some(PromptArg::Text("go".into())),
        output_format: OutputFormat::StreamJson,
        input_format: InputFormat::StreamJson,
        flags,
        place: PlaceArgs { cwd: Some("a".into()), config: Some("f".into()), trust_project: true },
    };
    assert_eq!(run(line), expected);
    let keys: Vec<_> = expected
        .flags
        .overrides()
        .into_iter()
        .map(|(key, value, flag)| format!("{key}={value} {flag}"))
        .collect();
    insta::assert_snapshot!(keys.join("\n"), @r#"
    context.main.compactAtRatio=0.5 --main-compact-at
    context.main.maxContextTokens=9000 --main-max-context-tokens
    context.subAgent.compactAtRatio="much" --sub-compact-at
    context.subAgent.maxContextTokens="auto" --sub-max-context-tokens
    agentMode="single-agent" --mode
    defaultAgent="plan" --agent
    defaultProvider="p" --provider
    model="m" --model
    thinking="high" --thinking
    maxTurns=3 --max-turns
    timeout="600000ms" --timeout
    budget.maxCostMicroUsd=250000 --budget
    patience="24h" --unattended
    streaming.enabled=false --no-stream
    persistentGrants.enabled=false --no-persistent-grants
    sandbox.mode="read-only" --sandbox
    sandbox.required=true --sandbox-required
    sandbox.network="deny" --network
    "#);
}

#[test]
fn mistyped_subcommand_is_never_sent_to_a_model() {
    insta::assert_snapshot!(refused("rnu fix the test"), @r#"
    error[CLI005]: there is no command "rnu"
      fix: did you mean "run"?
    "#);
    assert!(refused("session list").contains("\"sessions\""));
    insta::assert_snapshot!(refused("fix the test"), @r#"
    error[CLI005]: there is no command "fix"
      fix: see `posse --help`; a task is given with `posse run "fix the test"`
    "#);
    for line in ["fix $(rm)", "fix --yes"] {
        let text = refused(line);
        assert!(text.contains("a task is given with `posse run \"TASK\"`"), "{text}");
    }
    assert!(refused("inti").contains("see `posse --help`"), "no similar name is no suggestion");
    assert!(refused("sessions lst").contains("\"list\""));
    assert!(refused("").contains("Usage"));
    assert!(refused("config").contains("Usage"));
}

#[test]
fn first_argument_with_a_space_is_a_task() {
    let parsed = |args: &[&str]| parse(args.iter().map(OsString::from), false);
    for args in [&["posse", "fix the test"][..], &["posse", "sessions list"], &["posse", "a\nb"]] {
        let Ok(Invocation::Run(command)) = parsed(args) else { panic!("{args:?}") };
        let expected = Some(PromptArg::Text(args[1].to_owned()));
        assert_eq!(command.into_args().unwrap().prompt, expected);
    }
    let Ok(Invocation::Run(command)) = parsed(&["posse", "fix it", "--yes"]) else { panic!() };
    assert!(command.into_args().unwrap().flags.yes);
    assert!(parsed(&["posse", " "]).is_err());
}

#[test]
fn help_and_other_names_of_commands_work() {
    for (line, words) in [("help", &[][..]), ("help run", &["run"]), ("help rnu x", &["rnu", "x"])]
    {
        let Ok(Invocation::Help(args)) = play(line) else { panic!("{line}") };
        assert_eq!(args.topic, words, "{line}");
    }
    assert_eq!(play("list-agents"), Ok(Invocation::Agents(ListArgs::default())));
    assert_eq!(play("list-tools"), Ok(Invocation::Tools(ListArgs::default())));
    assert_eq!(play("login"), Ok(Invocation::Login(LoginArgs::default())));
}

#[test]
fn unavailable_options_are_reported() {
    assert!(refused("serve").contains("is not available yet"), "{}", refused("serve"));
    for line in ["run --multi-agent x", "run --mode multi x"] {
        assert_eq!(run(line).flags.agent_mode(), Some("multi-agent"), "{line}");
    }
}

#[test]
fn conflict_error_names_both_flags() {
    let table = [
        ("run --stream --no-stream x", "--stream", "--no-stream"),
        ("run -p x y", "--prompt", "PROMPT"),
        ("run --single-agent --mode single x", "--single-agent", "--mode"),
        ("run --model a --model b x", "--model", "multiple times"),
        ("run --yes -y x", "--yes", "multiple times"),
    ];
    for (line, one, other) in table {
        let text = refused(line);
        assert!(text.contains(one) && text.contains(other), "{line}: {text}");
    }
}

#[test]
fn invalid_values_are_refused() {
    let table = [
        "run --timeout 0s x",
        "run --timeout 0 x",
        "run --timeout 5 x",
        "run --timeout h x",
        "run --timeout -1s x",
        "run --timeout 99999999999999999999h x",
        "run --timeout 721h x",
        "run --max-turns 0 x",
        "run --max-turns many x",
        "run --sandbox on x",
        "run --output-format xml x",
        "run --modle m x",
        "run --model",
    ];
    for line in table {
        let text = refused(line);
        assert!(text.starts_with("error[CLI00"), "{line}: {text}");
        assert!(text.contains("\n  fix: ") && text.matches("error").count() == 1, "{line}: {text}");
    }
    let shown: String = [
        "run --modle m x",
        "run --timeout 5 x",
        "run --output-format jsn x",
        "run --max-turns 0 x",
        "run --model",
        "run -y -y x",
        "replay",
        "sessions rm",
        "config edit maxTurns",
        "run --stream --no-stream x",
    ]
    .map(refused)
    .concat();
    assert!(refused("try ls -la").contains("fix: write `posse try -- ls -la`"));
    assert!(refused("checkpoints prune --keep-days 0").contains("--keep-days"));
    insta::assert_snapshot!(shown, @r#"
    error[CLI006]: there is no flag "--modle"
      fix: did you mean "--model"?
    error[CLI007]: --timeout cannot be "5"
      why: expected a number and a unit: 90s, 10m, 2h
      fix: see `posse run --help`
    error[CLI007]: --output-format cannot be "jsn"
      fix: did you mean "json"?
    error[CLI007]: --max-turns cannot be "0"
      why: expected a whole number from 1 to 10000
      fix: see `posse run --help`
    error[CLI007]: --model <NAME> has no value
      fix: see `posse run --help`
    error[CLI009]: --yes is given multiple times
      fix: leave one out; see `posse run --help`
    error[CLI008]: <ID> is missing
      fix: see `posse replay --help`
    error[CLI008]: <ID> is missing
      fix: see `posse sessions rm --help`
    error[CLI008]: <VALUE> is missing
      fix: see `posse config edit --help`
    error[CLI009]: --stream cannot be used with --no-stream
      fix: leave one out; see `posse run --help`
    "#);
    let empty = parse(["posse", "run", " "].map(OsString::from).into_iter(), true);
    let Ok(Invocation::Run(empty)) = empty else { panic!("{empty:?}") };
    assert_eq!(empty.into_args().unwrap_err().what, "the prompt is empty");
}

#[cfg(unix)]
#[test]
fn non_text_prompt_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let args = ["posse".into(), "run".into(), OsString::from_vec(vec![0xff])];
    assert_eq!(parse(args.into_iter(), true).unwrap_err().code, 2);
}

#[test]
fn reads_sessions_and_config() {
    assert_eq!(
        play("sessions show abc --json --cwd x"),
        Ok(Invocation::Sessions(SessionsArgs {
            cwd: Some("x".into()),
            action: SessionsAction::Show {
                id: "abc".into(),
                cost: false,
                memory: false,
                verbose: false,
                json: true
            },
        }))
    );
    assert_eq!(
        play("sessions verify"),
        Ok(Invocation::Sessions(SessionsArgs {
            cwd: None,
            action: SessionsAction::Verify { id: None, json: false }
        }))
    );
    assert_eq!(
        play("config show --origin --trust-project"),
        Ok(Invocation::Config(ConfigAction::Show {
            origin: true,
            json: false,
            place: PlaceArgs { trust_project: true, ..PlaceArgs::default() },
        }))
    );
    assert_eq!(
        play("demo -v"),
        Ok(Invocation::Demo(DemoArgs { verbose: 1, ..DemoArgs::default() }))
    );
}

#[test]
fn no_arguments_open_a_conversation_on_a_terminal_only() {
    let bare = || std::iter::once(OsString::from("posse"));
    assert_eq!(parse(bare(), true), Ok(Invocation::Tui(Box::default())));
    assert_eq!(parse(std::iter::empty(), true), Ok(Invocation::Tui(Box::default())));
    assert_eq!(parse(bare(), false).unwrap_err().code, 2);
    let Ok(Invocation::Plain(command)) = play("plain --agent plan -y --cwd x") else { panic!() };
    let expected = RunArgs {
        flags: AgentFlags { agent: Some("plan".into()), yes: true, ..AgentFlags::default() },
        place: PlaceArgs { cwd: Some("x".into()), ..PlaceArgs::default() },
        ..RunArgs::default()
    };
    assert_eq!(command.into_args(), expected);
    let Ok(Invocation::Plain(command)) = play("plain fix the test") else { panic!() };
    assert_eq!(command.into_args().prompt, Some(PromptArg::Text("fix the test".to_owned())));
    let task = || ["posse", "fix the test"].map(OsString::from).into_iter();
    assert!(matches!(parse(task(), true), Ok(Invocation::Tui(_))));
    assert!(matches!(parse(task(), false), Ok(Invocation::Run(_))));
    let single = ["posse", "-p", "fix the test"].map(OsString::from).into_iter();
    assert!(matches!(parse(single, true), Ok(Invocation::Run(_))));
    assert!(refused("plain --output-format json").contains("--output-format"));
}

#[test]
fn parses_all_other_subcommands() {
    let place = PlaceArgs::default;
    let id = || "abc".to_owned();
    let edit = |key: Option<&str>, value: Option<&str>, unset: Option<&str>| {
        let [key, value, unset] = [key, value, unset].map(|text| text.map(str::to_owned));
        Invocation::Config(ConfigAction::Edit { key, value, unset, config: None })
    };
    let sessions = |action| Invocation::Sessions(SessionsArgs { cwd: None, action });
    let table = [
        (
            "replay abc --json",
            Invocation::Replay(ReplayArgs {
                id: id(),
                output_format: OutputFormat::Text,
                json: true,
                cwd: None,
            }),
        ),
        ("agents --json", Invocation::Agents(ListArgs { json: true, place: place() })),
        ("tools", Invocation::Tools(ListArgs::default())),
        ("models", Invocation::Models(ListArgs::default())),
        ("sessions list --all", sessions(SessionsAction::List { all: true, json: false })),
        (
            "sessions export abc --format html -o x.html",
            sessions(SessionsAction::Export {
                id: id(),
                format: ExportFormat::Html,
                output: Some("x.html".into()),
            }),
        ),
        ("sessions rm abc -y", sessions(SessionsAction::Rm { id: id(), yes: true })),
        ("sessions verify --json", sessions(SessionsAction::Verify { id: None, json: true })),
        (
            "doctor --online",
            Invocation::Doctor(DoctorArgs { online: true, ..DoctorArgs::default() }),
        ),
        ("completions zsh", Invocation::Completions(CompletionsArgs { shell: Shell::Zsh })),
        ("man out", Invocation::Man(ManArgs { dir: Some("out".into()) })),
        ("config schema", Invocation::Config(ConfigAction::Schema)),
        ("config forget", Invocation::Config(ConfigAction::Forget)),
        ("config reference", Invocation::Config(ConfigAction::Reference)),
        ("config edit", edit(None, None, None)),
        ("config edit a.b -1", edit(Some("a.b"), Some("-1"), None)),
        ("config edit --unset a.b", edit(None, None, Some("a.b"))),
    ];
    for (line, expected) in table {
        assert_eq!(play(line), Ok(expected), "{line}");
    }
    for line in ["config edit a", "config edit --unset a b c", "completions tcsh", "replay"] {
        refused(line);
    }
    assert!(refused("replay a --json --output-format text").contains("--json"));
    assert!(refused("run --input-format stream-json -").contains("both"));
}

#[test]
fn short_and_long_help_exist() {
    let short = play("-h").unwrap_err();
    assert_eq!((short.code, short.stderr), (0, false));
    insta::assert_snapshot!(short.text);
    let long = play("run --help").unwrap_err();
    insta::assert_snapshot!(long.text);
}

#[test]
fn command_definition_is_consistent() {
    command().debug_assert();
}

#[test]
fn dollars_are_parsed_to_millionths() {
    let table = [
        ("5", Some(5_000_000)),
        ("0.50", Some(500_000)),
        (".1", Some(100_000)),
        ("$2.", Some(2_000_000)),
        ("0.000001", Some(1)),
        ("1000000", Some(1_000_000_000_000)),
    ];
    for (text, expected) in table {
        assert_eq!(run(&format!("run --budget {text} x")).flags.budget, expected, "{text}");
    }
    for text in ["0", "0.0000001", "1000001", "1e3", "1,5", ".", "$", "=-1", "99999999999999999999"]
    {
        assert!(refused(&format!("run --budget {text} x")).contains("--budget"), "{text}");
    }
}

#[test]
fn requested_json_is_known_also_for_invalid_command_lines() {
    let table: [(&[&str], bool); 16] = [
        (&[], false),
        (&["undo"], false),
        (&["undo", "--json"], true),
        (&["undo", "--json", "--no-such-flag"], true),
        (&["checkpoints", "--json", "diff", "99"], true),
        (&["checkpoints", "diff", "abc", "--json"], true),
        (&["sessions", "show", "--json"], true),
        (&["sessions", "rm", "--json", "x"], false),
        (&["replay", "ID", "--output-format", "json"], true),
        (&["replay", "ID", "--output-format=stream-json"], true),
        (&["replay", "ID", "--output-format", "text"], false),
        (&["try", "--", "ls", "--json"], false),
        (&["try", "--json", "--", "ls"], true),
        (&["doctor", "policies", "--json"], true),
        // Runs have a format of their own.
        (&["run", "--output-format", "json", "x"], false),
        (&["no-such-command", "--json"], false),
    ];
    for (words, expected) in table {
        let args: Vec<OsString> =
            ["posse"].iter().chain(words).map(|word| OsString::from(*word)).collect();
        assert_eq!(requests_json(&args), expected, "{words:?}");
    }
}

#[test]
fn requested_format_is_known_also_for_invalid_command_lines() {
    use OutputFormat::{Json, StreamJson, Text};
    let table: [(&[&str], OutputFormat); 12] = [
        (&[], Text),
        (&["run", "fix it"], Text),
        (&["run", "--output-format", "json", "--no-such-flag"], Json),
        (&["run", "--no-such-flag", "--output-format=stream-json"], StreamJson),
        (&["resume", "ID", "--output-format", "json"], Json),
        (&["demo", "--output-format", "json"], Json),
        (&["-p", "fix it", "--output-format", "json"], Json),
        (&["fix the test", "--output-format", "json"], Json),
        (&["run", "--output-format", "jsn"], Text),
        (&["run", "--output-format"], Text),
        (&["run", "--", "--output-format", "json"], Text),
        // Its output has another form.
        (&["replay", "ID", "--output-format", "json"], Text),
    ];
    for (words, expected) in table {
        let args: Vec<OsString> =
            ["posse"].iter().chain(words).map(|word| OsString::from(*word)).collect();
        assert_eq!(requested_format(&args), expected, "{words:?}");
    }
}
