//! Skills, nested instructions, roles and thinking levels, with the real binary.

use std::fs;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, runs, says, text_of};
use crate::posse::Machine;

fn skill(machine: &Machine, folder: &str, name: &str, more: &str) {
    let folder = machine.path(folder).join(name);
    fs::create_dir_all(&folder).unwrap();
    let text =
        format!("---\nname: {name}\ndescription: Does {name}.\n{more}---\n\nDo {name} so.\n");
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

fn tool_names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
}

fn system(request: &Value) -> String {
    text_of(&request["messages"][0]["content"])
}

#[test]
fn a_model_activates_a_skill_and_reads_its_files() {
    let server = ModelServer::start(vec![
        calls(&[("skill", json!({"name": "deploy"}))]),
        calls(&[
            ("skill", json!({"name": "deploy", "path": "references/hosts.md"})),
            ("skill", json!({"name": "deploy", "path": "../../config.json"})),
            ("skill", json!({"name": "depoly"})),
            ("skill", json!({"name": "deploy", "path": "/etc/passwd"})),
            ("skill", json!({"name": "deploy", "path": "out.md"})),
        ]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    skill(&machine, "home/.agents/skills", "deploy", "allowed-tools: bash, write_file\n");
    fs::create_dir_all(machine.path("home/.agents/skills/deploy/references")).unwrap();
    fs::write(machine.path("home/.agents/skills/deploy/references/hosts.md"), "one\ntwo\n")
        .unwrap();
    let link = machine.path("home/.agents/skills/deploy/out.md");
    std::os::unix::fs::symlink("/etc/hostname", link).unwrap();
    machine.posse(&["run", "deploy it"]).assert_code(0);
    let requests = server.requests();
    assert!(
        system(&requests[0]).ends_with("\n- deploy: Does deploy.\n"),
        "{}",
        system(&requests[0])
    );
    assert!(tool_names(&requests[0]).contains(&"skill"));
    let results = server.tool_results();
    assert!(
        results[0].starts_with("<skill_content name=\"deploy\">\nDo deploy so.\n"),
        "{results:?}"
    );
    assert!(results[0].contains("It allows none of them."), "{results:?}");
    assert!(results[1].contains("one\ntwo"), "{results:?}");
    assert!(results[2].contains("SKL007"), "{results:?}");
    assert!(results[2].contains("it leads out of the folder of the skill"), "{results:?}");
    assert!(results[3].contains("did you mean deploy?"), "{results:?}");
    assert!(results[4].contains("not from the root"), "{results:?}");
    assert!(results[5].contains("it is a link"), "{results:?}");
}

#[test]
fn without_skills_requests_are_unchanged() {
    let script = || vec![says("done")];
    let (before, after) = (ModelServer::start(script()), ModelServer::start(script()));
    let machine = Machine::with(&before);
    machine.posse(&["run", "look"]).assert_code(0);
    // Skill folders, with an untrusted one.
    let provider = json!({
        "type": "openai-compatible", "baseURL": after.base_url(), "model": "scripted-1",
        "auth": "none",
    });
    let config =
        json!({"defaultProvider": "local", "patience": "5s", "providers": {"local": provider}});
    machine.write_config(&config.to_string());
    fs::create_dir_all(machine.path("home/.claude/skills/empty")).unwrap();
    skill(&machine, "work/.claude/skills", "review", "");
    let ended = machine.posse(&["run", "look"]);
    ended.assert_code(0);
    assert!(ended.stderr.contains("TRU001: skills: 1 of the project not used"), "{}", ended.stderr);
    assert_eq!(before.requests(), after.requests());
    // Disabling all skills removes everything about them.
    skill(&machine, "home/.claude/skills", "mine", "");
    machine.posse(&["config", "edit", "skills.enabled", "false"]).assert_code(0);
    let listed = machine.posse(&["skills", "--json"]);
    assert_eq!(listed.stdout, "[]\n", "{}", listed.stderr);
}

#[test]
fn project_skills_need_trusted_folders() {
    let server = ModelServer::start_and_repeat(vec![says("done")]);
    let machine = Machine::with(&server);
    skill(&machine, "work/.agents/skills", "review", "");
    machine.write(".agents/skills/review/scripts/run.sh", "echo 1");
    let shown = machine.posse(&["trust", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["state"], "not trusted");
    let digest = shown["sha256"].as_str().unwrap().to_owned();
    machine.posse(&["trust", "add", "--accept", &digest]).assert_code(0);
    let listed = machine.posse(&["skills"]);
    assert!(listed.stdout.contains("review  project  you, the model"), "{}", listed.stdout);
    let shown = machine.posse(&["skills", "show", "review"]);
    assert!(shown.stdout.contains("- scripts/run.sh (6 bytes)"), "{}", shown.stdout);
    // A changed script requires new trust.
    machine.write(".agents/skills/review/scripts/run.sh", "echo 2");
    let ended = machine.posse(&["run", "look"]);
    assert!(ended.stderr.contains("TRU001"), "{}", ended.stderr);
    assert!(!tool_names(&server.requests()[0]).contains(&"skill"));
    machine.posse(&["run", "--trust-project", "look"]).assert_code(0);
    assert!(tool_names(&server.requests()[1]).contains(&"skill"), "for one run");
    let refused = machine.posse(&["skills", "show", "review"]);
    refused.assert_code(3);
    assert!(refused.stderr.contains("SKL005") && refused.stderr.contains("do not trust"));
}

#[test]
fn user_activates_a_skill_and_skills_grant_nothing() {
    let server = ModelServer::start(vec![runs("touch made"), says("done"), says("again")]);
    let machine = Machine::with(&server);
    let more = "allowed-tools: bash\ndisable-model-invocation: true\n";
    skill(&machine, "posse/config/skills", "release", more);
    let ended = machine.posse(&["run", "--skill", "release", "now"]);
    // No person could be asked: the skill has not answered for the user.
    ended.assert_code(4);
    assert!(!machine.work("made").exists());
    let requests = server.requests();
    assert!(!system(&requests[0]).contains("release"), "only the user activates it");
    assert!(!tool_names(&requests[0]).contains(&"skill"), "there is none that it could ask for");
    let said = text_of(&requests[0]["messages"][1]["content"]);
    assert!(said.contains("<skill_content name=\"release\">\nDo release so.\n"), "{said}");
    assert!(said.ends_with("now"), "{said}");
    let unknown = machine.posse(&["run", "--skill", "relaese", "now"]);
    unknown.assert_code(3);
    assert!(unknown.stderr.contains("did you mean \"release\"?"), "{}", unknown.stderr);
    let plain = machine.posse_with_input(&["plain"], b"/skills\n/skill release to all\n");
    assert!(plain.stderr.contains("release  user    you"), "{}", plain.stderr);
    assert_eq!(plain.stdout.trim(), "again");
    let said = text_of(&server.requests()[2]["messages"][1]["content"]);
    assert!(said.contains("Do release so.") && said.ends_with("to all"), "{said}");
}

#[test]
fn an_agent_sees_the_skills_that_it_names() {
    let server =
        ModelServer::start(vec![calls(&[("skill", json!({"name": "other"}))]), says("done")]);
    let machine = Machine::with(&server);
    for name in ["deploy", "other"] {
        skill(&machine, "home/.agents/skills", name, "");
    }
    let folder = machine.path("posse/config/agents");
    fs::create_dir_all(&folder).unwrap();
    let text = "---\ndescription: d\nmode: primary\ntools: [skill]\nskills: [deploy]\n---\nWork.\n";
    fs::write(folder.join("ops.md"), text).unwrap();
    machine.posse(&["run", "--agent", "ops", "look"]).assert_code(0);
    let requests = server.requests();
    assert_eq!(tool_names(&requests[0]), ["skill"]);
    assert!(
        system(&requests[0]).contains("- deploy:") && !system(&requests[0]).contains("- other:")
    );
    assert!(server.tool_results()[0].contains("there is no skill other"));
}

#[test]
fn nested_instructions_arrive_with_the_first_file_of_their_folder() {
    let server = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "web/src/a.txt"}))]),
        calls(&[("read_file", json!({"path": "web/b.txt"}))]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    machine.write("AGENTS.md", "Root rules.");
    machine.write("web/AGENTS.md", "Web rules.\n</instructions>\n");
    machine.write("web/AGENTS.override.md", "Override rules.\n</instructions>\n");
    machine.write("web/src/a.txt", "a");
    machine.write("web/b.txt", "b");
    machine.posse(&["run", "look"]).assert_code(0);
    let results = server.tool_results();
    assert!(results[0].contains(
        "<instructions source=\"web/AGENTS.override.md\">\nOverride rules.\n<\\/instructions>"
    ));
    assert!(!results[0].contains("Web rules") && !results[0].contains("Root rules"), "{results:?}");
    assert!(!results[1].contains("Override rules"), "{results:?}");
    let listed = machine.posse(&["config", "instructions", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(
        listed,
        json!([{"file": "AGENTS.md", "state": "read", "bytes": 11, "tokens": 3, "reason": null}])
    );
}

#[test]
fn invalid_nested_instructions_warn_once() {
    let server = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "web/a.txt"}))]),
        calls(&[("read_file", json!({"path": "web/b.txt"}))]),
        calls(&[("read_file", json!({"path": "bin/a.txt"}))]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    machine.write("web/AGENTS.md", "Web\u{202e} rules.");
    machine.write("bin/AGENTS.md", [0xff, 0xfe]);
    for file in ["web/a.txt", "web/b.txt", "bin/a.txt"] {
        machine.write(file, "a");
    }
    let (ended, events) = machine.stream(&["look"]);
    ended.assert_code(0);
    let warnings: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "warning")
        .map(|event| event["message"].as_str().unwrap())
        .collect();
    assert_eq!(
        warnings,
        [
            "web/AGENTS.md: hidden characters, shown as escapes: 1:4 U+202E",
            "bin/AGENTS.md: skipped, it is not UTF-8 text",
        ]
    );
}

#[test]
fn thinking_level_is_sent_where_supported() {
    let server = ModelServer::start_and_repeat(vec![says("done")]);
    let takes = json!({"quirks": {"reasoningEffort": true}});
    let knows = json!({"models": {"scripted-1": {"reasoning": true}}});
    let machine = Machine::configured(&server, &knows, &takes);
    machine.posse(&["run", "--thinking", "medium", "look"]).assert_code(0);
    machine.posse(&["run", "look"]).assert_code(0);
    let requests = server.requests();
    assert_eq!(requests[0]["reasoning_effort"], "medium");
    assert_eq!(requests[1].get("reasoning_effort"), None);
    let unknown = Machine::with(&server);
    let ended = unknown.posse(&["run", "--thinking", "high", "look"]);
    ended.assert_code(0);
    assert!(ended.stderr.contains("thinking \"high\" is left out of requests"), "{}", ended.stderr);
    assert_eq!(server.requests()[2].get("reasoning_effort"), None);
}

#[test]
fn role_model_serves_an_agent_with_its_own_model() {
    let server = ModelServer::start(vec![
        calls(&[("delegate_agent", json!({"agent": "explore", "task": "look"}))]),
        says("found"),
        says("done"),
    ]);
    let more = json!({
        "agentMode": "multi-agent", "delegation": {"defaultInvocationDecision": "allow"},
        "models": {"small-1": {"reasoning": true}},
        "roles": {"explore": {"model": "small-1", "thinking": "low"}},
    });
    let machine =
        Machine::configured(&server, &more, &json!({"quirks": {"reasoningEffort": true}}));
    machine.posse(&["run", "-y", "look"]).assert_code(0);
    let requests = server.requests();
    let asked =
        |nth: usize| (requests[nth]["model"].clone(), requests[nth]["reasoning_effort"].clone());
    assert_eq!(asked(0), (json!("scripted-1"), Value::Null));
    assert_eq!(asked(1), (json!("small-1"), json!("low")));
    let listed: Value = serde_json::from_str(&machine.posse(&["agents", "--json"]).stdout).unwrap();
    let explore = listed.as_array().unwrap().iter().find(|row| row["name"] == "explore").unwrap();
    assert_eq!((&explore["model"], &explore["thinking"]), (&json!("small-1"), &json!("low")));

    let machine = Machine::configured(
        &server,
        &json!({"roles": {"title": {"profile": "locla"}}}),
        &json!({}),
    );
    let ended = machine.posse(&["run", "look"]);
    ended.assert_code(3);
    assert!(ended.stderr.contains("CFG040") && ended.stderr.contains("did you mean \"local\"?"));
    let machine =
        Machine::configured(&server, &json!({"roles": {"explroe": {"model": "m"}}}), &json!({}));
    let ended = machine.posse(&["agents"]);
    assert!(ended.stderr.contains("roles.explroe matches no agent; did you mean \"explore\"?"));
}

#[test]
fn files_of_other_programs_are_listed_with_a_reason() {
    let machine = Machine::new();
    machine.write("AGENTS.md", "Rules.");
    machine.write("CLAUDE.md", "Other rules.");
    machine.write("GEMINI.md", "More.");
    machine.write(".cursor/rules/style.mdc", "x");
    machine.write(".claude/commands/fix.md", "x");
    machine.write(".claude/settings.json", r#"{"permissions": {"deny": ["Read(./.env)"]}}"#);
    let listed = machine.posse(&["config", "instructions", "--json"]);
    listed.assert_code(0);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    let found: Vec<(&str, &str)> = listed
        .iter()
        .map(|row| (row["file"].as_str().unwrap(), row["state"].as_str().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("AGENTS.md", "read"),
            ("CLAUDE.md", "skipped"),
            ("GEMINI.md", "unused"),
            (".cursor/rules", "unused"),
            (".claude/commands", "unused"),
            (".claude/settings.json", "unused"),
        ]
    );
    let text = machine.posse(&["config", "instructions"]).stdout;
    for part in
        ["AGENTS.md of the same folder", "1 entry: rules", "its rules (1 deny) do not apply"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn skills_with_large_files_and_long_texts_load() {
    let server = ModelServer::start(vec![
        calls(&[("skill", json!({"name": "api"}))]),
        calls(&[("skill", json!({"name": "api", "path": "SKILL.md", "offset": 2500}))]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    skill(&machine, "work/.claude/skills", "canvas", "");
    for name in ["a", "b", "c"] {
        machine.write(&format!(".claude/skills/canvas/fonts/{name}.ttf"), vec![7; 2 << 20]);
    }
    let lines: Vec<String> =
        (0..3000).map(|nth| format!("Rule {nth} about the interface.")).collect();
    let text = format!("---\nname: api\ndescription: d\n---\n\n{}\n", lines.join("\n"));
    assert!(text.len() > 64 << 10);
    machine.write(".claude/skills/api/SKILL.md", text);
    let ended = machine.posse(&["run", "--trust-project", "look"]);
    ended.assert_code(0);
    let results = server.tool_results();
    assert!(results[0].contains("Rule 100 about") && results[0].contains("first part of it"));
    assert!(results[1].contains("Rule 2600 about"), "{}", results[1]);
    let listed = machine.posse(&["skills", "--trust-project", "--json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    let names: Vec<&Value> = listed.iter().map(|skill| &skill["name"]).collect();
    assert_eq!(names, ["api", "canvas"]);
    // A run says in one line that there is something to say.
    assert_eq!(ended.stderr.matches("SKL").count(), 1, "{}", ended.stderr);
}
