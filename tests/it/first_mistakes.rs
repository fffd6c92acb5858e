//! The 47 likely mistakes of a first hour: each message names what is wrong and the next step, and
//! suggests nothing that does not exist.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::model_server::ModelServer;
use crate::posse::{Machine, side_by_side};

/// Arguments, exit code, what is wrong, and the next step.
type Row = (&'static [&'static str], i32, &'static str, &'static str);

/// Mistakes on the command line of a machine with a working configuration.
const ON_THE_COMMAND_LINE: [Row; 33] = [
    (&["rnu", "fix it"], 2, "no command \"rnu\"", "did you mean \"run\"?"),
    (&["fix", "the", "tests"], 2, "no command \"fix\"", "posse run \"fix the tests\""),
    (&["init"], 2, "no command \"init\"", "posse run \"write an AGENTS.md"),
    (&["update"], 2, "no command \"update\"", "posse help install"),
    (&["chat"], 2, "no command \"chat\"", "`posse plain` line mode"),
    (&["continue"], 2, "no command \"continue\"", "`posse -c`"),
    (&["review"], 2, "no command \"review\"", "posse run \"review"),
    (&["export", "x"], 2, "no command \"export\"", "posse sessions export"),
    (&["config", "set", "model", "x"], 2, "no command \"set\"", "posse config edit KEY VALUE"),
    (&["trust", "/nonexistent"], 2, "no command \"/nonexistent\"", "see `posse trust --help`"),
    (&["mcp", "list"], 2, "\"mcp\" is not available yet", "posse --help"),
    (&["resume", "nosuch"], 8, "no session `nosuch`", "posse sessions list --all"),
    (&["-c", "go on"], 8, "no session", "posse run TASK"),
    (&["attach"], 8, "no session of this directory", "posse resume"),
    (&["sessions", "show"], 2, "<ID> is missing", "posse sessions show --help"),
    (&["completions"], 2, "<SHELL> is missing", "posse completions --help"),
    (&["permissions", "check"], 2, "no command to check", "posse permissions check git status"),
    (&["help", "nosuch"], 2, "no help about \"nosuch\"", "`posse help` lists"),
    (&["grants", "revoke", "nosuch"], 2, "no grant has the id", "posse grants list --all"),
    (&["run", "--model"], 2, "--model <NAME> has no value", "posse run --help"),
    (&["run", "--modle", "x", "hi"], 2, "no flag \"--modle\"", "did you mean \"--model\"?"),
    (&["run", "--yolo", "hi"], 2, "no flag \"--yolo\"", "--permission-mode auto"),
    (
        &["run", "--dangerously-skip-permissions", "hi"],
        2,
        "no flag \"--dangerously-skip-permissions\"",
        "`--yes` approves what would be asked",
    ),
    (
        &["run", "--permission-mode", "acceptEdits", "hi"],
        2,
        "cannot be \"acceptEdits\"",
        "the nearest mode is `edits`",
    ),
    (&["run", "--output-schema", "s.json", "hi"], 2, "no flag", "--output-format json"),
    (&["run", "--timeout", "5x", "hi"], 2, "cannot be \"5x\"", "90s, 10m, 2h"),
    (&["run", "--budget", "five", "hi"], 2, "cannot be \"five\"", "5 or 0.50"),
    (&["run", "--max-turns", "0", "hi"], 2, "cannot be \"0\"", "from 1 to 10000"),
    (&["run", "--image", "nofile.png", "hi"], 2, "nofile.png", "fix:"),
    (&["run", "--add-dir", "/nonexistent", "hi"], 2, "/nonexistent", "name a folder that exists"),
    (&["run", "--agent", "nosuch", "hi"], 3, "no agent \"nosuch\"", "choose one of build"),
    (&["run", "--provider", "nosuch", "hi"], 3, "no provider \"nosuch\"", "use one of anthropic"),
    (&["run", ""], 2, "the prompt is empty", "posse run \"fix the failing test\""),
];

/// Configurations, and what `posse run hi` says.
const IN_THE_CONFIGURATION: [(&str, i32, &str, &str); 9] = [
    ("{}", 3, "no model provider is configured", "set one of OPENAI_API_KEY"),
    ("{\"model\": \"x\",", 3, "not valid JSON", "comments and trailing commas are allowed"),
    ("{\"modle\": \"x\"}", 3, "unknown key \"modle\"", "did you mean \"model\"?"),
    ("{\"maxTurns\": \"3\"}", 3, "must be a whole number 1–10000", "\"maxTurns\": 1000"),
    ("{\"defaultProvider\": \"nosuch\"}", 3, "no provider \"nosuch\"", "use one of anthropic"),
    ("{\"defaultProvider\": \"anthropic\"}", 3, "has no key", "set ANTHROPIC_API_KEY"),
    (
        "{\"defaultProvider\": \"x\", \"providers\": {\"x\": {\"baseURL\": \"127.0.0.1:1\"}}}",
        3,
        "must be an address with http",
        "\"baseURL\": \"https://host.example/v1\"",
    ),
    (
        "{\"defaultProvider\": \"x\", \"providers\": {\"x\": {\"model\": \"m\"}}}",
        3,
        "baseURL",
        "fix:",
    ),
    (
        "{\"defaultProvider\": \"x\", \"retry\": {\"maxAttempts\": 1}, \"providers\": {\"x\": \
         {\"model\": \"m\", \"baseURL\": \"http://127.0.0.1:1/v1\"}}}",
        5,
        "nothing listens at http://127.0.0.1:1",
        "start the server, or correct baseURL",
    ),
];

#[test]
fn mistakes_on_the_command_line_name_the_next_step() {
    side_by_side(ON_THE_COMMAND_LINE, |(args, code, what, next)| {
        let server = ModelServer::start(Vec::new());
        let ended = Machine::with(&server).posse(args);
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(what), "{args:?}: {what:?} is not in: {}", ended.stderr);
        assert!(ended.stderr.contains(next), "{args:?}: {next:?} is not in: {}", ended.stderr);
    });
}

#[test]
fn mistakes_in_the_configuration_name_the_next_step() {
    side_by_side(IN_THE_CONFIGURATION, |(text, code, what, next)| {
        let machine = Machine::new();
        machine.write_config(text);
        let ended = machine.posse(&["run", "hi"]);
        assert_eq!(ended.code, Some(code), "{text}: {}", ended.stderr);
        assert!(ended.stderr.contains(what), "{text}: {what:?} is not in: {}", ended.stderr);
        assert!(ended.stderr.contains(next), "{text}: {next:?} is not in: {}", ended.stderr);
    });
}

/// Mistakes that are no error: posse goes on, or starts in another way, and says why.
#[test]
fn mistakes_of_the_place_name_the_next_step() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let home = machine.path("home").display().to_string();
    for folder in [home.as_str(), "/"] {
        let ended = machine.posse(&["run", "--cwd", folder, "hi"]);
        ended.assert_code(2);
        assert!(ended.stderr.contains("cannot be a workspace"), "{}", ended.stderr);
        assert!(ended.stderr.contains("start in the folder of a project"), "{}", ended.stderr);
    }
    let without_terminal = machine.posse(&["tui"]);
    assert!(
        without_terminal.stderr.contains("standard input or output is no terminal"),
        "{}",
        without_terminal.stderr
    );
    let piped = machine.posse(&[] as &[&str]);
    assert!(piped.stderr.contains("Usage") && piped.stderr.contains("posse \"TASK\""));
    let readable = Machine::new();
    readable.write_config("{\"providers\": {\"openai\": {\"apiKey\": \"sk-secret\"}}}");
    let config = readable.path("posse/config/config.json");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = readable.posse(&["run", "hi"]);
    ended.assert_code(3);
    assert!(
        ended.stderr.contains("CFG010") && ended.stderr.contains("chmod 600"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("sk-secret"), "{}", ended.stderr);
}
