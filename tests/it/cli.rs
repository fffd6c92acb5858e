//! Errors of the command line and the configuration, with codes and texts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::model_server::{ModelServer, says};
use crate::posse::{FinishedRun, Machine, RunningPosse};

/// Fails unless it was refused with this code, one of these words, and nothing on standard output.
#[track_caller]
fn assert_refused(ended: &FinishedRun, code: i32, words: &str) {
    ended.assert_code(code);
    assert_eq!(ended.stdout, "");
    assert!(ended.stderr.contains(words), "{words:?} is not in: {}", ended.stderr);
    let strange = ended.stderr.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(strange, None, "{}", ended.stderr);
}

#[test]
fn invalid_command_lines_are_refused() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    machine.write("a-file", "");
    let table: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["rnu", "fix it"], "did you mean \"run\"?"),
        (&["fix", "the", "test"], "error[CLI005]: there is no command \"fix\""),
        (&["run", "--modle", "m", "x"], "--model"),
        (&["run", "--model"], "--model"),
        (&["run", "--model", "a", "--model", "b", "x"], "multiple times"),
        (&["run", "--stream", "--no-stream", "x"], "--no-stream"),
        (&["run", "-p", "x", "y"], "--prompt"),
        (&["run", "--timeout", "0", "x"], "--timeout"),
        (&["run", "--timeout", "soon", "x"], "--timeout"),
        (&["run", "--max-turns", "0", "x"], "--max-turns"),
        (&["run", "--budget", "0", "x"], "--budget"),
        (&["run", "--budget", "abc", "x"], "expected dollars"),
        (&["run", "--budget=-1", "x"], "expected dollars"),
        (&["run", "--budget", "0.0000001", "x"], "expected dollars"),
        (&["run", "--output-format", "xml", "x"], "use one of text, json, stream-json"),
        (&["run", "--cwd", "nowhere", "x"], "--cwd"),
        (&["run", "--cwd", "a-file", "x"], "not a folder"),
        (&["run", "--add-dir", "nowhere", "x"], "--add-dir nowhere cannot be used"),
        (&["run", "--add-dir", "a-file", "x"], "not a folder"),
        (&["run", "--image", "nowhere.png", "x"], "IMG001"),
        (&["run", "--image", "a-file", "x"], "IMG004"),
        (&["run", ""], "empty"),
        (&["run", " \n "], "empty"),
        (&["serve"], "not available yet"),
        (&["sessions"], "Usage"),
        (&["sessions", "lst"], "did you mean \"list\"?"),
        (&["sessions", "show"], "ID"),
        (&["config", "shwo"], "did you mean \"show\"?"),
        (
            &["checkpoints", "diff", "abc"],
            "error[CLI007]: <ID> cannot be \"abc\"\n  why: the id of a checkpoint is a number, such as 12\n  \
             fix: `posse checkpoints list` shows the checkpoints with their ids\n",
        ),
        (&["checkpoints", "restore", "-1"], "CLI0"),
    ];
    for (args, words) in table {
        assert_refused(&machine.posse(args), 2, words);
    }
    assert_eq!(server.requests().len(), 0);
    assert!(!machine.path("posse/state").exists());
}

#[test]
fn non_text_prompts_are_refused() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let big = vec![b'a'; (4 << 20) + 1];
    let table: [(&[u8], &str); 5] = [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"a\0b", "standard input is binary (3 bytes)"),
        (b"caf\xc3\xa9 \xff", "not valid UTF-8 (byte 6)"),
        (&big, "4 MiB"),
    ];
    for (input, words) in table {
        assert_refused(&machine.posse_with_input(&["run"], input), 2, words);
    }
    assert_refused(&machine.posse_with_input(&["run", "with context"], b"\xff"), 2, "UTF-8");
    let args = [OsStr::new("run"), OsStr::from_bytes(b"\xff\xfe")];
    machine.posse(&args).assert_code(2);
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn unusable_folders_are_refused() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    fs::create_dir(machine.work("gone")).unwrap();
    // Only a shell can start a program in a folder that is no more.
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "rmdir \"$PWD\"; exec \"$0\" run x", env!("CARGO_BIN_EXE_posse")])
        .current_dir(machine.work("gone"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("POSSE_HOME", machine.path("posse"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    assert_refused(&RunningPosse::start(shell).end(), 2, "CLI001");

    let ended = machine.posse(&["run", "--add-dir", "nowhere", "x"]);
    assert_refused(&ended, 2, "error[CLI001]: --add-dir nowhere");
    assert!(ended.stderr.contains("fix: "), "{}", ended.stderr);

    // A workspace from which tools could change their own authority.
    for folder in ["home", "posse", "posse/state", ""] {
        fs::create_dir_all(machine.path(folder)).unwrap();
        let path = machine.path(folder).display().to_string();
        let ended = machine.posse(&["run", "--cwd", &path, "x"]);
        assert!(matches!(ended.code, Some(2 | 3)), "{folder}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("error["), "{folder}: {}", ended.stderr);
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn prints_version_and_help() {
    let machine = Machine::new();
    let version = machine.posse(&["--version"]);
    version.assert_code(0);
    assert_eq!(version.stdout, concat!("posse ", env!("CARGO_PKG_VERSION"), "\n"));
    for args in [&["--help"][..], &["-h"], &["run", "--help"], &["sessions", "show", "--help"]] {
        let help = machine.posse(args);
        help.assert_code(0);
        assert!(help.stdout.contains("Usage"), "{}", help.stdout);
        assert_eq!(help.stderr, "");
    }
}

#[test]
fn all_configuration_errors_are_reported_together() {
    let machine = Machine::new();
    machine.write_config(
        "{\n  \"modle\": \"m\",\n  \"maxTurns\": \"two\",\n  \"delegation\": {\"maxDepth\": -1},\n  \
         \"maxTurns\": 3,\n}\n",
    );
    let ended = machine.posse(&["run", "x"]);
    ended.assert_code(3);
    let shown = ended.stderr.replace(&machine.path("").display().to_string(), "/");
    insta::assert_snapshot!(shown, @r#"
    error[CFG004]: "maxTurns" is set twice; the first is on line 3
      where: /posse/config/config.json:5:3
        5 |   "maxTurns": 3,
          |   ^
      fix: remove one; the later one would win
    error[CFG002]: unknown key "modle"
      where: /posse/config/config.json:2:3
        2 |   "modle": "m",
          |   ^
      fix: did you mean "model"?
    error[CFG003]: maxTurns must be a whole number 1–10000, got "two"
      where: /posse/config/config.json:3:3
        3 |   "maxTurns": "two",
          |   ^
      fix: write it like "maxTurns": 1000
    error[CFG003]: delegation.maxDepth must be a whole number 0–8, got -1
      where: /posse/config/config.json:4:18
        4 |   "delegation": {"maxDepth": -1},
          |                  ^
      fix: write it like "maxDepth": 1
    "#);
}

/// Errors in rules are reported with the other configuration errors and their places.
#[test]
fn invalid_rules_are_reported_with_other_errors() {
    let machine = Machine::with(&ModelServer::start(Vec::new()));
    let rules = "\"permissions\": [{\"tool\": \"bash\"}, {\"tool\": \"\", \"decision\": \"ask\"}]";
    machine.write_config(&format!("{{\n  \"modle\": \"m\",\n  {rules}\n}}\n"));
    let ended = machine.posse(&["run", "x"]);
    ended.assert_code(3);
    assert_eq!(ended.stderr.matches("error[").count(), 3, "{}", ended.stderr);
    for words in ["CFG002", "permissions[0]", "permissions[1]"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    // The rules alone.
    machine.write_config(&format!("{{\n  {rules}\n}}\n"));
    let ended = machine.posse(&["run", "--provider", "ollama", "x"]);
    assert_refused(&ended, 3, "error[CFG013]: permissions[0]");
    let place = format!("where: {}:2", machine.path("posse/config/config.json").display());
    assert_eq!(ended.stderr.matches(&place).count(), 2, "{}", ended.stderr);
}

/// One row each: content of a file, and its error.
#[test]
fn every_configuration_error_has_its_code() {
    let server = ModelServer::start_and_repeat(vec![says("hi")]);
    let machine = Machine::with(&server);
    let base = fs::read_to_string(machine.path("posse/config/config.json")).unwrap();
    let with = |more: &str| format!("{},{more}}}", base.trim_end().strip_suffix('}').unwrap());
    let brace = "{a,b}".repeat(12);
    let refused = [
        (with(r#""sandbox.network": "deny""#), "nest it: { \"sandbox\": { \"network\""),
        (with(&format!(r#""sandbox": {{"readSecrets": ["/{brace}"]}}"#)), "error[CFG028]"),
        (
            with(r#""models": {"m": {"contextWindow": 1000, "maxOutputTokens": 2000}}"#),
            "error[CFG011]",
        ),
        (with(r#""include": "other.json""#), "error[CFG002]"),
        (with(r#""maxTurns": 1e9"#), "error[CFG003]"),
        (with(r#""budget": {"maxTokens": -1}"#), "error[CFG003]"),
    ];
    for (text, words) in &refused {
        machine.write_config(text);
        assert_refused(&machine.posse(&["run", "x"]), 3, words);
    }
    assert_eq!(server.requests().len(), 0);
    let key = "sk-0123456789abcdefghij";
    let noted = [
        (with(&format!(r#""model": "{key}""#)), "warning[CFG015]"),
        (with(r#""version": 2"#), "warning[CFG012]"),
        (format!("\u{feff}{base}"), ""),
    ];
    for (text, words) in &noted {
        machine.write_config(text);
        let ended = machine.posse(&["run", "x"]);
        ended.assert_code(0);
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        assert!(!ended.stderr.contains("warning") || !words.is_empty(), "{}", ended.stderr);
    }
    machine.write_config(&with(r#""version": 2"#));
    let edited = machine.posse(&["config", "edit", "maxTurns", "3"]);
    assert_refused(&edited, 3, "error[CFG012]");

    // A file with a key that all users can read.
    let mut config: Value = serde_json::from_str(&base).unwrap();
    config["providers"]["local"]["apiKey"] = json!(key);
    config["providers"]["local"]["auth"] = json!("bearer");
    machine.write_config(&config.to_string());
    let file = machine.path("posse/config/config.json");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let ended = machine.posse(&["run", "x"]);
    assert!(ended.stderr.contains("CFG010"), "{}", ended.stderr);
    assert!(ended.stderr.contains("chmod 600"), "{}", ended.stderr);
    assert!(!ended.stderr.contains(key), "{}", ended.stderr);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();

    for (value, words) in [("", "CFG018"), ("\"7\"", "CFG018"), ("7\n", "CFG018"), ("x", "CFG003")]
    {
        let mut command = machine.command(&["run", "x"]);
        command.env("POSSE_MAX_TURNS", value);
        let ended = RunningPosse::start(command).end();
        assert!(ended.stderr.contains(words), "{value:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("POSSE_MAX_TURNS"), "{value:?}: {}", ended.stderr);
    }
}

#[test]
fn non_configuration_files_are_refused() {
    let machine = Machine::new();
    let file = machine.path("posse/config/config.json");
    machine.write_config("{\"model\": \"m\"");
    assert_refused(
        &machine.posse(&["run", "x"]),
        3,
        "error[CFG001]: config.json is not valid JSON",
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"model\": \"m\"");
    machine.write_config(&format!("{{\"model\": \"{}\"}}", "m".repeat(3 << 20)));
    assert_refused(&machine.posse(&["run", "x"]), 3, "CFG006");
    fs::write(&file, b"{\"model\": \"\xff\"}").unwrap();
    assert_refused(&machine.posse(&["run", "x"]), 3, "CFG008");
    machine.write_config("{\"model\": \"\0\"}");
    assert_refused(&machine.posse(&["run", "x"]), 3, "CFG009");
    fs::remove_file(&file).unwrap();
    for target in ["/dev/zero", "/", "config.json"] {
        symlink(target, &file).unwrap();
        assert_refused(&machine.posse(&["run", "x"]), 3, "CFG007");
        fs::remove_file(&file).unwrap();
    }
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_refused(&machine.posse(&["run", "x"]), 3, "CFG007");
}

#[test]
fn missing_model_suggests_setup() {
    let machine = Machine::new();
    let ended = machine.posse(&["run", "x"]);
    assert_refused(&ended, 3, "CFG023");
    assert!(ended.stderr.contains("posse demo"), "{}", ended.stderr);
    assert!(ended.stderr.contains("OPENAI_API_KEY"), "{}", ended.stderr);
    assert_refused(&machine.posse(&["run", "--provider", "opnai", "x"]), 3, "CFG024");
    assert_refused(&machine.posse(&["run", "--provider", "openai", "x"]), 3, "CFG020");
    let machine = Machine::with(&ModelServer::start(Vec::new()));
    let ended = machine.posse(&["run", "--agent", "biuld", "x"]);
    assert_refused(&ended, 3, "AGN001");
    assert!(ended.stderr.contains("did you mean \"build\"?"), "{}", ended.stderr);
}

#[test]
fn never_accepts_a_setting_and_ignores_it_silently() {
    let server = ModelServer::start_and_repeat(vec![says("hi")]);
    for (more, profile, key) in [
        (json!({}), json!({"timeouts": {"total": "1m"}}), "providers.local.timeouts.total"),
        (json!({"memory": {"enabled": true}}), json!({}), "memory"),
    ] {
        let ended = Machine::configured(&server, &more, &profile).posse(&["run", "say hi"]);
        assert_refused(&ended, 3, "error[CFG002]");
        let text = format!("this version has no setting \"{key}\"");
        assert!(ended.stderr.contains(&text), "{}", ended.stderr);
        assert!(ended.stderr.contains("fix: remove it"), "{}", ended.stderr);
    }
    for (fallback, code) in [("other", "error[CFG024]"), ("local", "error[CFG025]")] {
        let profile = json!({"fallback": [fallback]});
        let ended = Machine::configured(&server, &json!({}), &profile).posse(&["run", "say hi"]);
        assert_refused(&ended, 3, code);
    }
    // A cassette is for a provider that plays it.
    let profile = json!({"baseURL": "file:///tmp/cassette.jsonl"});
    let ended = Machine::configured(&server, &json!({}), &profile).posse(&["run", "say hi"]);
    assert_refused(&ended, 3, "error[NET001]");
}

#[test]
fn forbidden_repository_settings_are_ignored() {
    let server = ModelServer::start(vec![says("hi")]);
    let machine = Machine::with(&server);
    let evil = json!({
        "permissions": [{"tool": "*", "decision": "allow"}],
        "providers": {"local": {"baseURL": "http://127.0.0.1:1/"}},
        "sandbox": {"mode": "off"},
        "streaming": {"enabled": false},
    });
    machine.write(".posse/config.json", evil.to_string());
    let ended = machine.posse(&["run", "say hi"]);
    ended.assert_code(0);
    assert!(ended.stderr.contains("warning[CFG005]"), "{}", ended.stderr);
    assert_eq!(server.requests()[0]["stream"], true, "nothing of it counts before trust");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one line for each setting")]
fn settings_are_shown_with_their_source() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let file = machine.path("posse/config/config.json");
    let key = "sk-0123456789abcdefghij";
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    config["providers"]["local"]["apiKey"] = json!(key);
    config["providers"]["local"]["auth"] = json!("bearer");
    machine.write_config(&config.to_string());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = machine.command(&["config", "show", "--origin"]);
    command.env("POSSE_MAX_TURNS", "7");
    let ended = RunningPosse::start(command).end();
    ended.assert_code(0);
    assert!(!format!("{ended:?}").contains(key));
    let root = machine.path("").display().to_string();
    let address = server.base_url();
    let shown = ended.stdout.replace(&root, "/").replace(&address, "http://127.0.0.1/v1");
    insta::assert_snapshot!(shown, @r#"
    agentMode = "single-agent"  (built in)
    checkpoints.enabled = true  (built in)
    checkpoints.keepDays = 14  (built in)
    checkpoints.maxFileBytes = 10485760  (built in)
    checkpoints.maxStoreBytes = 2147483648  (built in)
    context.main.compactAtRatio = 0.7  (built in)
    context.main.compression = "deterministic"  (built in)
    context.main.keepRawDelegateResults = 2  (built in)
    context.main.ledgerTargetTokens = 1200  (built in)
    context.main.maxContextTokens = "auto"  (built in)
    context.main.maxDelegateResultTokens = 1000  (built in)
    context.main.maxInlineToolResultTokens = 2000  (built in)
    context.main.minRecentTurns = 2  (built in)
    context.main.recentTurns = 6  (built in)
    context.main.summaryTargetTokens = 3000  (built in)
    context.subAgent.compactAtRatio = 0.7  (built in)
    context.subAgent.compression = "deterministic"  (built in)
    context.subAgent.maxContextTokens = "auto"  (built in)
    context.subAgent.maxDelegateContextTokens = 1000  (built in)
    context.subAgent.maxHandoffTokens = 2000  (built in)
    context.subAgent.maxResultTokensToMain = 1000  (built in)
    context.subAgent.memoryScope = "root-session"  (built in)
    context.subAgent.minRecentTurns = 1  (built in)
    context.subAgent.recentTurns = 3  (built in)
    context.subAgent.summaryTargetTokens = 1200  (built in)
    defaultAgent = "build"  (built in)
    defaultProvider = "local"  (/posse/config/config.json:1)
    delegation.defaultInvocationDecision = "ask"  (built in)
    delegation.maxConcurrent = 3  (built in)
    delegation.maxDepth = 1  (built in)
    delegation.maxTotal = 100  (built in)
    maxTurns = 7  (environment variable POSSE_MAX_TURNS)
    multimodal.detail = "auto"  (built in)
    multimodal.maxImageBytes = 8388608  (built in)
    network.uploadLimitBytes = 1048576  (built in)
    notify.method = "auto"  (built in)
    notify.title = true  (built in)
    notify.when = "unfocused"  (built in)
    patience = "5s"  (/posse/config/config.json:1)
    permissionMode = "ask"  (/posse/config/config.json:1)
    persistentGrants.enabled = true  (built in)
    persistentGrants.scope = "global"  (built in)
    persistentGrants.ttlMs = 604800000  (built in)
    providers.local.apiKey = "sk-…ghij"  (/posse/config/config.json:1)
    providers.local.auth = "bearer"  (/posse/config/config.json:1)
    providers.local.baseURL = "http://127.0.0.1/v1"  (/posse/config/config.json:1)
    providers.local.model = "scripted-1"  (/posse/config/config.json:1)
    providers.local.timeouts.connect = "10s"  (built in)
    providers.local.type = "openai-compatible"  (/posse/config/config.json:1)
    retry.baseDelay = "1s"  (built in)
    retry.maxDelay = "30s"  (built in)
    sandbox.mode = "workspace-write"  (built in)
    sandbox.network = "auto"  (built in)
    skills.enabled = true  (built in)
    streaming.enabled = true  (built in)
    tools.bash.jobs = 8  (built in)
    tools.bash.maxTimeout = "10m"  (built in)
    tools.bash.timeout = "2m"  (built in)
    tools.edit.fuzzy = false  (built in)
    tools.edit.requireRead = false  (built in)
    tools.maxParallel = 8  (built in)
    tools.parallel = "readonly"  (built in)
    tools.read.dedup = true  (built in)
    ui.history = true  (built in)
    ui.queue.followUp = "one"  (built in)
    ui.queue.steering = "all"  (built in)
    ui.showThinking = true  (built in)
    ui.theme = "auto"  (built in)
    # delegation.subInvocationMaxTurns: no limit
    # model: that of the provider
    # providers.local.temperature: that of the server
    # providers.local.timeouts.firstByte: 90s; 10m for a server on this machine
    # providers.local.timeouts.idle: 5m; 10m for a server on this machine
    # providers.local.timeouts.silence: 90s; 10m for a server on this machine
    # retry.maxAttempts: no limit
    # thinking: that of the model
    "#);
}

#[test]
fn settings_are_shown_as_json_and_files_by_path() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let json = machine.posse(&["config", "show", "--json"]);
    json.assert_code(0);
    let settings: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(settings["providers"]["local"]["baseURL"], server.base_url());
    let paths = machine.posse(&["config", "path"]);
    paths.assert_code(0);
    let file = machine.path("posse/config/config.json");
    assert!(paths.stdout.contains(&file.display().to_string()), "{}", paths.stdout);
}

#[test]
fn errors_at_start_are_also_json_on_request() {
    let machine = Machine::with(&ModelServer::start(Vec::new()));
    let table: &[(&[&str], i32, &str, &str)] = &[
        (&["run", "--output-format", "json", "--modle", "m", "x"], 2, "CLI006", "result"),
        (&["run", "--output-format", "json", ""], 2, "CLI002", "result"),
        (&["run", "--output-format=json", "--provider", "nowhere", "x"], 3, "CFG024", "result"),
        (&["resume", "nowhere", "x", "--output-format", "json"], 8, "SES002", "result"),
        (
            &["run", "--output-format", "stream-json", "--agent", "no", "x"],
            3,
            "AGN001",
            "session.ended",
        ),
    ];
    for (args, code, error, kind) in table {
        let ended = machine.posse(args);
        ended.assert_code(*code);
        assert!(ended.stderr.contains(&format!("error[{error}]: ")), "{}", ended.stderr);
        let line: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(
            (line["type"].as_str(), line["exitCode"].as_i64()),
            (Some(*kind), Some((*code).into()))
        );
        assert_eq!(
            (line["sessionId"].is_null(), line["error"]["code"].as_str()),
            (true, Some(*error))
        );
        assert!(line["error"]["what"].is_string() && line["reason"] == "failed", "{line}");
    }
    machine.write_config(r#"{"maxTurns": 0, "modle": "m"}"#);
    let ended = machine.posse(&["run", "--output-format", "json", "x"]);
    ended.assert_code(3);
    let line: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(line["errors"].as_array().map(Vec::len), Some(1), "{line}");
    assert!(line["error"]["where"].as_str().unwrap().contains("config.json"), "{line}");
    assert_eq!(machine.posse(&["run", "--help", "--output-format", "json"]).code, Some(0));
}

/// A command that has the flag `--json`.
struct CommandWithJson {
    /// Its name, and those of the commands above it.
    path: Vec<String>,
    /// Values for its required arguments.
    values: Vec<String>,
    /// True if an unknown flag is the beginning of one of its arguments.
    takes_any_flag: bool,
}

fn commands_with_json() -> Vec<CommandWithJson> {
    fn walk(
        command: &clap::Command,
        path: &[String],
        inherits: bool,
        found: &mut Vec<CommandWithJson>,
    ) {
        let json = command.get_arguments().find(|arg| arg.get_long() == Some("json"));
        let has_json = inherits || json.is_some();
        if has_json && !command.is_subcommand_required_set() {
            let required = command.get_positionals().filter(|arg| arg.is_required_set());
            let values = required.flat_map(|arg| {
                let dashes = arg.is_last_set().then(|| "--".to_owned());
                dashes.into_iter().chain(["1".to_owned()])
            });
            let takes_any_flag = command.get_positionals().any(clap::Arg::is_trailing_var_arg_set);
            let (path, values) = (path.to_vec(), values.collect());
            found.push(CommandWithJson { path, values, takes_any_flag });
        }
        let is_global = inherits || json.is_some_and(clap::Arg::is_global_set);
        for below in command.get_subcommands() {
            let path = [path, &[below.get_name().to_owned()]].concat();
            walk(below, &path, is_global, found);
        }
    }
    let mut found = Vec::new();
    walk(&posse::cli::command(), &[], false, &mut found);
    found
}

#[test]
fn errors_of_all_commands_with_json_are_json_as_well() {
    let machine = Machine::new();
    let commands = commands_with_json();
    let names: Vec<String> = commands.iter().map(|command| command.path.join(" ")).collect();
    for name in ["undo", "checkpoints diff", "grants revoke", "sessions show", "replay", "try"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }
    let failing: [&[&str]; 2] = [&["--json", "--no-such-flag"], &["--json", "--cwd", "nowhere"]];
    for flags in failing {
        for CommandWithJson { path, values, takes_any_flag } in &commands {
            if *takes_any_flag && flags.contains(&"--no-such-flag") {
                continue;
            }
            let flags = flags.iter().map(|flag| (*flag).to_owned());
            let args: Vec<String> =
                path.iter().cloned().chain(flags).chain(values.iter().cloned()).collect();
            let ended = machine.posse(&args);
            let object: Value = serde_json::from_str(&ended.stdout)
                .unwrap_or_else(|_| panic!("{args:?}: {:?} {}", ended.stdout, ended.stderr));
            let code = object["error"]["code"].as_str().unwrap_or_else(|| panic!("{object}"));
            assert!(ended.stderr.contains(&format!("error[{code}]: ")), "{}", ended.stderr);
            assert_eq!(object["exitCode"], json!(ended.code), "{args:?}: {object}");
            assert_ne!(ended.code, Some(0), "{args:?}");
        }
    }
}

#[test]
fn error_of_a_command_with_json_has_the_members_of_other_errors() {
    let machine = Machine::new();
    let ended = machine.posse(&["undo", "--json"]);
    ended.assert_code(1);
    let object: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(object["exitCode"], 1);
    let error = &object["error"];
    assert_eq!(error["code"], "UND001", "{object}");
    for member in ["what", "why", "fix"] {
        let text = error[member].as_str().unwrap_or_else(|| panic!("{member}: {object}"));
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    let ended = machine.posse(&["checkpoints", "diff", "99", "--json"]);
    let object: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(object["error"]["code"], "CKP002", "{object}");
    // Without the flag, standard output is empty as before.
    assert_eq!(machine.posse(&["undo"]).stdout, "");
}
