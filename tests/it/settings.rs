//! Effects of settings that no other suite observes: each in a run of the program.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::{FinishedRun, Machine, RunningPosse};

/// Adds the provider profile `name` for `server` to the configuration of `machine`.
fn add_profile(machine: &Machine, name: &str, server: &ModelServer) {
    let path = machine.path("posse/config/config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["providers"][name] = json!({
        "type": "openai-compatible", "baseURL": server.base_url(), "model": "other-1",
        "auth": "none",
    });
    machine.write_config(&config.to_string());
}

fn add_agent(machine: &Machine, name: &str, front_matter: &str) {
    let folder = machine.path("posse/config/agents");
    fs::create_dir_all(&folder).unwrap();
    let text = format!("---\ndescription: Works.\n{front_matter}\n---\n\nWork.\n");
    fs::write(folder.join(format!("{name}.md")), text).unwrap();
}

fn assert_says(ended: &FinishedRun, text: &str) {
    assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
}

#[test]
fn temperature_of_profile_and_agent_is_sent() {
    let delegates = ("delegate_agent", json!({"agent": "cold", "task": "Look."}));
    let server = ModelServer::start(vec![calls(&[delegates]), says("Seen."), says("done")]);
    let more = json!({"agentMode": "multi-agent"});
    let machine = Machine::configured(&server, &more, &json!({"temperature": 0.25}));
    add_agent(&machine, "cold", "tools: []\ntemperature: 0");
    machine.posse(&["run", "-y", "say hi"]).assert_code(0);
    let sent: Vec<Value> =
        server.requests().iter().map(|request| request["temperature"].clone()).collect();
    assert_eq!(sent, [json!(0.25), json!(0.0), json!(0.25)]);

    let server = ModelServer::start(vec![says("hi")]);
    Machine::with(&server).posse(&["run", "say hi"]).assert_code(0);
    assert!(server.requests()[0].get("temperature").is_none());

    let profile = json!({"temperature": 0.25, "quirks": {"omitTemperature": true}});
    let ended = Machine::configured(&server, &json!({}), &profile).posse(&["run", "say hi"]);
    ended.assert_code(3);
    assert_says(&ended, "error[CFG011]: providers.local.temperature conflicts with the quirk");

    // The quirk also holds back the temperature of an agent.
    let server = ModelServer::start(vec![says("hi")]);
    let profile = json!({"quirks": {"omitTemperature": true}});
    let machine = Machine::configured(&server, &json!({}), &profile);
    add_agent(&machine, "warm", "mode: primary\ntools: []\ntemperature: 0.5");
    machine.posse(&["run", "--agent", "warm", "say hi"]).assert_code(0);
    assert!(server.requests()[0].get("temperature").is_none());
}

#[test]
fn run_has_no_turn_limit_by_default() {
    let look = || calls(&[("list_dir", json!({}))]);
    let mut script: Vec<_> = (0..40).map(|_| look()).collect();
    script.push(says("done"));
    let server = ModelServer::start(script);
    let (ended, events) = Machine::with(&server).stream(&["look around"]);
    ended.assert_code(0);
    assert_eq!(events.last().unwrap()["turns"], 41);

    // Subagents have none either.
    let mut script =
        vec![calls(&[("delegate_agent", json!({"agent": "explore", "task": "Look."}))])];
    script.extend((0..15).map(|_| look()));
    script.extend([says("Seen."), says("done")]);
    let server = ModelServer::start(script);
    let (ended, events) = Machine::with(&server).stream(&["--multi-agent", "look around"]);
    ended.assert_code(0);
    let ended = events.iter().find(|event| event["type"] == "agent.delegation.ended").unwrap();
    assert_eq!(ended["outcome"], "done");
}

#[test]
fn parallel_tools_can_be_switched_off_or_extended_to_side_effects() {
    let look = ("list_dir", json!({}));
    let server = ModelServer::start(vec![calls(&[look.clone(), look.clone(), look]), says("done")]);
    let more = json!({"tools": {"parallel": "off"}});
    let (ended, events) = Machine::configured(&server, &more, &json!({})).stream(&["look"]);
    ended.assert_code(0);
    let order: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .filter(|kind| matches!(*kind, "tool.started" | "tool.completed"))
        .collect();
    assert_eq!(order, ["tool.started", "tool.completed"].repeat(3));

    // Each command waits for a file of the other one.
    let waits = |own: &str, other: &str| {
        let command = format!("touch {own}; until [ -e {other} ]; do :; done");
        ("bash", json!({"command": command, "timeout": 60}))
    };
    let server = ModelServer::start(vec![calls(&[waits("a", "b"), waits("b", "a")]), says("done")]);
    let more = json!({"tools": {"parallel": "all"}});
    let machine = Machine::configured(&server, &more, &json!({}));
    machine.posse(&["run", "-y", "--sandbox", "off", "wait"]).assert_code(0);
    let results = server.tool_results();
    assert!(results.iter().all(|text| !text.contains("timed out")), "{results:?}");
}

#[test]
fn configured_roots_extend_the_workspace() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let outside = machine.path("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("note.txt"), "found it").unwrap();
    let read = ("read_file", json!({"path": outside.join("note.txt")}));
    for (roots, found) in [(json!([]), false), (json!([outside]), true)] {
        let server = ModelServer::start(vec![calls(std::slice::from_ref(&read)), says("done")]);
        let more = json!({"workspace": {"roots": roots}});
        let machine = Machine::configured(&server, &more, &json!({}));
        machine.posse(&["run", "read"]);
        assert_eq!(server.tool_results()[0].contains("found it"), found, "{roots}");
    }
}

#[test]
fn flags_select_the_model_of_the_main_agent_only() {
    let script = |agent: &str| {
        let task = json!({"agent": agent, "task": "Look."});
        vec![calls(&[("delegate_agent", task)]), says("Seen."), says("done")]
    };
    let models = |server: &ModelServer| -> Vec<String> {
        let requests = server.requests();
        requests.iter().map(|request| request["model"].as_str().unwrap().to_owned()).collect()
    };
    let more = json!({"agentMode": "multi-agent"});
    for (agent, front_matter, expected) in [
        ("plain", "tools: []", ["flagged-1", "scripted-1", "flagged-1"]),
        (
            "root",
            "tools: []\nprovider: { inheritRoot: true }",
            ["flagged-1", "flagged-1", "flagged-1"],
        ),
    ] {
        let server = ModelServer::start(script(agent));
        let machine = Machine::configured(&server, &more, &json!({}));
        add_agent(&machine, agent, front_matter);
        let ended = machine.posse(&["run", "-y", "--model", "flagged-1", "look"]);
        ended.assert_code(0);
        assert_eq!(models(&server), expected, "{agent}");
        assert_says(&ended, "subagents use local: scripted-1, as configured");
    }

    let configured = ModelServer::start(vec![says("Seen.")]);
    let flagged = ModelServer::start(vec![script("own").remove(0), says("done")]);
    let machine = Machine::configured(&configured, &more, &json!({}));
    add_profile(&machine, "other", &flagged);
    add_agent(&machine, "own", "tools: []\nprovider: { inheritRoot: false }");
    machine.posse(&["run", "-y", "--provider", "other", "look"]).assert_code(0);
    assert_eq!(models(&configured), ["scripted-1"]);
    assert_eq!(models(&flagged), ["other-1", "other-1"]);
}

#[test]
fn role_without_an_agent_is_reported_in_single_agent_mode() {
    let server = ModelServer::start_and_repeat(vec![says("hi")]);
    let more = json!({"roles": {"main": {"model": "m"}, "own": {"model": "m"}, "title": {}}});
    let machine = Machine::configured(&server, &more, &json!({}));
    add_agent(&machine, "own", "tools: []\ndelegation: { callable: true }");
    let ended = machine.posse(&["run", "say hi"]);
    ended.assert_code(0);
    assert_says(
        &ended,
        "warning[CFG040]: roles.main matches no agent; `defaultProvider` and `model` select",
    );
    assert!(!ended.stderr.contains("roles.own"), "{}", ended.stderr);
}

#[test]
fn context_flags_are_checked_like_settings() {
    let machine = Machine::with(&ModelServer::start(Vec::new()));
    for (flag, value) in [("--main-compact-at", "much"), ("--sub-max-context-tokens", "1")] {
        let ended = machine.posse(&["run", flag, value, "x"]);
        ended.assert_code(2);
        assert_says(&ended, "error[CFG003]");
        assert_says(&ended, flag);
    }
}

#[test]
fn advice_about_images_and_secret_files_names_what_helps() {
    let server = ModelServer::start(vec![
        calls(&[("write_file", json!({"path": ".env", "content": "A=1\n"}))]),
        says("done"),
    ]);
    let profile = json!({"quirks": {"noVision": true}});
    let machine = Machine::configured(&server, &json!({}), &profile);
    machine.write("a.png", b"\x89PNG\r\n\x1a\n");
    let ended = machine.posse(&["run", "--image", "a.png", "look"]);
    ended.assert_code(2);
    assert_says(&ended, "set providers.local.quirks.noVision to false");
    assert!(!ended.stderr.contains(".vision to true"), "{}", ended.stderr);

    machine.posse(&["run", "-y", "write"]);
    let denied = &server.tool_results()[0];
    assert!(denied.contains("ask the user to change it"), "{denied}");
    assert!(!denied.contains("readSecrets"), "{denied}");
}

#[test]
fn model_without_tools_gets_none() {
    for (tools, expected) in [(false, false), (true, true)] {
        let server = ModelServer::start(vec![says("done")]);
        let models = json!({"models": {"scripted-1": {"tools": tools}}});
        let machine = Machine::configured(&server, &models, &json!({}));
        machine.posse(&["run", "say hello"]).assert_code(0);
        assert_eq!(server.requests()[0].get("tools").is_some(), expected);
    }
}

#[test]
fn removed_settings_are_errors_and_an_old_project_file_is_ignored() {
    let server = ModelServer::start_and_repeat(vec![says("hi"), runs("true")]);
    let machine = Machine::with(&server);
    machine.write(".posse/config.json", r#"{"mcpServers": {"x": {"command": "true"}}}"#);
    let ended = machine.posse(&["run", "say hi"]);
    ended.assert_code(0);
    assert_says(&ended, "warning[CFG002]: this version has no setting \"mcpServers\"");
}

#[test]
fn settings_without_effect_are_refused_at_their_place() {
    let quirk_value = |kind: &str, quirk: &str, value: Value| {
        json!({"providers": {"other": {
            "type": kind, "baseURL": "http://127.0.0.1:9/v1", "model": "m", "quirks": {quirk: value},
        }}})
    };
    let quirk = |kind: &str, quirk: &str| quirk_value(kind, quirk, json!(true));
    let budget = |tool: &str| json!({"tools": {"budgets": {tool: {"max": 1}}}});
    let table = [
        (
            quirk("anthropic", "noStreamUsage"),
            "error[CFG011]: providers.other.quirks.noStreamUsage has no effect with Messages",
            "it is a quirk of Chat Completions",
        ),
        (
            quirk("openai-compatible", "adaptiveThinking"),
            "error[CFG011]: providers.other.quirks.adaptiveThinking has no effect with Chat",
            "it is a quirk of Messages",
        ),
        (
            quirk("openai-responses", "oneCallAtTime"),
            "error[CFG002]: unknown key \"providers.other.quirks.oneCallAtTime\"",
            "did you mean \"oneCallAtATime\"?",
        ),
        (
            quirk_value("openai-compatible", "noVision", json!("yes")),
            "error[CFG003]: providers.other.quirks.noVision: invalid type: string \"yes\"",
            "`posse help noVision` describes it",
        ),
        (
            quirk_value("anthropic", "thinkingBudgets", json!({"hihg": 5000})),
            "error[CFG003]: providers.other.quirks.thinkingBudgets: there is no level \"hihg\"",
            "only off, minimal, low, medium, high, xhigh",
        ),
        (
            budget("bsh"),
            "error[CFG041]: tools.budgets.bsh: there is no tool \"bsh\"",
            "did you mean \"bash\"?",
        ),
        (
            budget("delegate_agent"),
            "error[CFG041]: tools.budgets.delegate_agent has no effect",
            "`delegation.maxTotal` limits",
        ),
    ];
    let server = ModelServer::start(Vec::new());
    for (more, what, advice) in table {
        let ended = Machine::configured(&server, &more, &json!({})).posse(&["run", "say hi"]);
        ended.assert_code(3);
        assert_says(&ended, what);
        assert_says(&ended, advice);
        assert_says(&ended, "config.json:");
    }
}

#[test]
fn values_that_cannot_act_are_refused_at_their_place() {
    let headers = |name: &str| json!({"providers": {"other": {"headers": {name: "x"}}}});
    let owned = "posse sets this header of each request itself";
    let table = [
        (
            json!({"agents": {"helper": 1}}),
            "agents.helper must be an object, got 1",
            "write it like",
        ),
        (
            json!({"notify": {"command": []}}),
            "notify.command must be a list with a program and its arguments, not empty",
            "or remove the key to run no program",
        ),
        (headers("Content-Length"), owned, "remove it"),
        (headers("host"), owned, "remove it"),
        (headers("Transfer-Encoding"), owned, "remove it"),
        (headers("Connection"), owned, "remove it"),
        (
            json!({"providers": {"other": {"auth": "Host"}}}),
            "providers.other.auth: posse sets the header \"Host\" of each request itself",
            "name the header in which the server expects the key",
        ),
    ];
    let server = ModelServer::start(Vec::new());
    for (more, what, advice) in table {
        let ended = Machine::configured(&server, &more, &json!({})).posse(&["run", "say hi"]);
        ended.assert_code(3);
        assert_says(&ended, "error[CFG003]");
        assert_says(&ended, what);
        assert_says(&ended, advice);
        assert_says(&ended, "config.json:");
    }
    let set = ["config", "edit", "providers.local.headers.Host", "x"];
    let ended = Machine::with(&server).posse(&set);
    ended.assert_code(3);
    assert_says(&ended, owned);
}

#[test]
fn missing_folders_are_named_with_their_setting() {
    let server = ModelServer::start_and_repeat(vec![says("hi")]);
    let warned = [
        (json!({"skills": {"folders": ["~/skils"]}}), "skills.folders", "did you mean"),
        (json!({"sandbox": {"writableRoots": ["/no/such"]}}), "sandbox.writableRoots", "create it"),
        (json!({"sandbox": {"readSecrets": ["/no/key"]}}), "sandbox.readSecrets", "create it"),
    ];
    let pattern = json!({"sandbox": {"readSecrets": ["/no/**/.env*"]}});
    let machine = Machine::configured(&server, &pattern, &json!({}));
    assert!(!machine.posse(&["run", "say hi"]).stderr.contains("CFG042"));
    for (more, key, advice) in warned {
        let machine = Machine::configured(&server, &more, &json!({}));
        fs::create_dir_all(machine.path("home/skills")).unwrap();
        let ended = machine.posse(&["run", "say hi"]);
        ended.assert_code(0);
        assert_says(&ended, &format!("warning[CFG042]: {key}: "));
        assert_says(&ended, advice);
        assert_says(&ended, "config.json:");
    }
    let more = json!({"workspace": {"roots": ["/no/such"]}});
    let ended = Machine::configured(&server, &more, &json!({})).posse(&["run", "say hi"]);
    ended.assert_code(3);
    assert_says(&ended, "error[CFG014]");
    assert_says(&ended, "/no/such, of workspace.roots (");
    assert_says(&ended, "fix: correct workspace.roots");
}

#[test]
fn budget_of_the_skill_tool_counts() {
    let activate = || calls(&[("skill", json!({"name": "greet"}))]);
    let server = ModelServer::start(vec![activate(), activate(), says("done")]);
    let more = json!({"tools": {"budgets": {"skill": {"max": 1}}}});
    let machine = Machine::configured(&server, &more, &json!({}));
    add_skill(&machine, "greet");
    machine.posse(&["run", "-y", "greet"]).assert_code(0);
    let results = server.tool_results();
    let refused: Vec<bool> = results.iter().map(|text| text.contains("LIM001 skill")).collect();
    assert_eq!(refused, [false, true], "{results:?}");
}

fn add_skill(machine: &Machine, name: &str) {
    let folder = machine.path("posse/config/skills").join(name);
    fs::create_dir_all(&folder).unwrap();
    let text = format!("---\nname: {name}\ndescription: Greets.\n---\n\nSay hello.\n");
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

#[test]
fn unknown_disabled_skill_is_reported() {
    let server = ModelServer::start_and_repeat(vec![says("hi")]);
    let more = json!({"skills": {"disabled": ["greet", "gret", "other-project"]}});
    let machine = Machine::configured(&server, &more, &json!({}));
    add_skill(&machine, "greet");
    add_skill(&machine, "gree");
    for command in [&["run", "say hi"][..], &["skills"]] {
        let ended = machine.posse(command);
        ended.assert_code(0);
        assert_says(
            &ended,
            "warning[SKL005]: skills.disabled: there is no skill \"gret\"; did you mean",
        );
        assert_says(&ended, "there is no skill \"other-project\"; remove it, or");
        assert_says(&ended, "config.json:");
        assert!(!ended.stderr.contains("\"greet\";"), "{}", ended.stderr);
    }
}

#[test]
fn key_that_is_not_text_is_reported() {
    let machine = Machine::with(&ModelServer::start(Vec::new()));
    machine.write_config("{}");
    let mut command = machine.command(&["run", "say hi"]);
    command.env("OPENAI_API_KEY", OsStr::from_bytes(b"key\xff"));
    let ended = RunningPosse::start(command).end();
    ended.assert_code(3);
    assert_says(&ended, "warning[CFG018]: environment variable OPENAI_API_KEY is not UTF-8");
    assert_says(&ended, "error[CFG023]");
}
