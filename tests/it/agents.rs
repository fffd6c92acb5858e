//! Agent files and delegation: precedence, refused definitions, and the requests of each agent.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use posse_actors::replay::OUTCOME_UNKNOWN;
use serde_json::{Value, json};

use crate::model_server::{
    ModelAnswer, ModelServer, calls, runs, says, stream_bytes, text_event, text_of,
};
use crate::plain::Terminal;
use crate::posse::Machine;
use crate::signals::{eventually, marker, sleeping};

const AUDIT: &str = "---
name: audit
description: Looks for holes.
mode: all
authority: read-only
tools: { visible: [read_file, grep] }
---

You look for holes.
";

fn user_agent(machine: &Machine, name: &str, text: &str) {
    let folder = machine.path("posse/config/agents");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), text).unwrap();
}

fn listed(machine: &Machine, args: &[&str]) -> (Vec<Value>, String) {
    let ended = machine.posse(&[&["agents", "--json"], args].concat());
    ended.assert_code(0);
    let rows: Value = serde_json::from_str(&ended.stdout).unwrap();
    (rows.as_array().unwrap().clone(), ended.stderr)
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["name"].as_str().unwrap()).collect()
}

fn tool_names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
}

/// A call of `delegate_agent`.
fn delegates(agent: &str, task: &str) -> (&'static str, Value) {
    ("delegate_agent", json!({"agent": agent, "task": task}))
}

#[test]
fn single_agent_requests_are_unchanged() {
    let script = || vec![calls(&[("list_dir", json!({"path": "."}))]), says("done")];
    let (before, after) = (ModelServer::start(script()), ModelServer::start(script()));
    let machine = Machine::with(&before);
    machine.posse(&["run", "-y", "look"]).assert_code(0);
    // The same workspace, with unused agents and delegation limits.
    let provider = json!({
        "type": "openai-compatible", "baseURL": after.base_url(), "model": "scripted-1",
        "auth": "none",
    });
    let settings = json!({
        "defaultProvider": "local", "patience": "5s", "providers": {"local": provider},
        "agents": {"mine": {"description": "d", "tools": ["bash"], "prompt": "p"}},
        "delegation": {"maxDepth": 3, "maxConcurrent": 9},
    });
    machine.write_config(&settings.to_string());
    user_agent(&machine, "audit.md", AUDIT);
    machine.posse(&["run", "-y", "look"]).assert_code(0);
    // Compares values first for readable differences, then every byte of every body.
    assert_eq!(before.requests(), after.requests());
    assert_eq!(after.fingerprints().len(), 2, "and no request besides");
    assert_eq!(before.fingerprints(), after.fingerprints());
    let tools = "ask_user bash edit_file glob grep job_output job_stop list_dir multi_edit present_plan \
         read_file todo_write write_file";
    assert_eq!(tool_names(&after.requests()[0]).join(" "), tools);
    let text = after.requests()[0].to_string();
    assert!(!text.contains("delegate_agent") && !text.contains("explore"), "{text}");
}

#[test]
fn subagents_use_their_own_providers() {
    let second = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "a.txt"})), ("bash", json!({"command": "true"}))]),
        says("Nothing to hide."),
    ]);
    let first = ModelServer::start(vec![
        calls(&[delegates("explore", "Find a.txt")]),
        calls(&[("glob", json!({"pattern": "*.txt"}))]),
        says("It is `a.txt:1`."),
        calls(&[delegates("audit", "Look at a.txt")]),
        says("All is well."),
    ]);
    let fast = json!({
        "type": "openai-compatible", "baseURL": second.base_url(), "model": "fast-1",
        "auth": "none",
    });
    let machine = Machine::configured(&first, &json!({"agentMode": "multi-agent"}), &json!({}));
    let path = machine.path("posse/config/config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["providers"]["fast"] = fast;
    machine.write_config(&config.to_string());
    let own = AUDIT.replace("mode: all", "mode: subagent\nprovider: { profile: fast }");
    user_agent(&machine, "audit.md", &own);
    machine.write("a.txt", "one\n");
    let (ended, events) = machine.stream(&["-y", "check a.txt"]);
    ended.assert_code(0);
    let of = |kind: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["type"] == kind).collect()
    };

    let requests = first.requests();
    let main = &requests[0];
    assert!(tool_names(main).contains(&"delegate_agent"), "{main}");
    let system = text_of(&main["messages"][0]["content"]);
    assert!(
        system.contains("- audit: Looks for holes.") && system.contains("- explore ("),
        "{system}"
    );
    let child = &requests[1];
    assert_eq!(tool_names(child), ["glob", "grep", "list_dir", "read_file"]);
    assert_eq!(child["messages"].as_array().unwrap().len(), 2);
    assert!(text_of(&child["messages"][1]["content"]).contains("check a.txt"));
    assert_eq!(second.requests()[0]["model"], "fast-1");
    assert!(second.tool_results()[1].contains("Unknown tool"), "{:?}", second.tool_results());
    let results = first.tool_results();
    assert!(results.iter().any(|text| text.contains("): done") && text.contains("a.txt:1")));

    assert_eq!(events[0]["mode"], "multi-agent");
    let paths: Vec<&Value> =
        of("agent.invocation.started").iter().map(|event| &event["agentPath"]).collect();
    assert_eq!(paths, ["build", "build/explore", "build/audit"]);
    // A read-only agent with the user's own model needs no permission.
    let [asked] = of("permission.requested")[..] else { panic!("{events:#?}") };
    assert!(asked["detail"].as_str().unwrap().contains("provider: fast (fast-1, http"), "{asked}");
    assert!(asked["detail"].as_str().unwrap().contains("<task>\nLook at a.txt"), "{asked}");
    let outcomes: Vec<&Value> =
        of("agent.delegation.ended").iter().map(|event| &event["outcome"]).collect();
    assert_eq!(outcomes, ["done", "done"]);
    assert_eq!(events.last().unwrap()["turns"], 7);
    machine.verify();

    assert_remembered(&machine, events[0]["sessionId"].as_str().unwrap());
}

/// Both reports are shown, and are part of an exported document.
fn assert_remembered(machine: &Machine, id: &str) {
    let shown = machine.posse(&["sessions", "show", id, "--memory", "--json"]);
    shown.assert_code(0);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let [explore, audit] = &shown["memories"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!((&explore["agent"], &audit["provider"]), (&json!("explore"), &json!("fast")));
    assert_eq!(explore["findings"], json!(["It is `a.txt:1`."]));
    assert_eq!(audit["relevantFiles"], json!(["a.txt"]));
    let text = machine.posse(&["sessions", "show", id, "--memory"]).stdout;
    assert!(
        text.contains("explore (local) in ") && text.contains("  - It is `a.txt:1`."),
        "{text}"
    );
    let document = machine.posse(&["sessions", "export", id]);
    document.assert_code(0);
    assert!(document.stdout.contains("build/explore"), "{}", document.stdout);
}

#[test]
fn user_sees_the_activity_of_each_agent() {
    let server = ModelServer::start(vec![
        calls(&[delegates("explore", "Find it")]),
        calls(&[("read_file", json!({"path": "none.txt"}))]),
        says("It is not there."),
        says("Then not."),
    ]);
    let machine = Machine::with(&server);
    let ended = machine.posse(&["run", "-y", "--multi-agent", "find it"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "Then not.\n");
    // Each name is followed by a number that distinguishes agents of that name.
    let shown: String =
        ended.stderr.split(" #").enumerate().fold(String::new(), |text, (nth, part)| {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
            text + if nth == 0 { part } else { rest }
        });
    for line in [
        "▸ explore via local: Find it",
        "[build/explore]   ✗ read_file",
        "◂ explore: done, 2 replies",
    ] {
        assert!(shown.contains(line), "{line}: {}", ended.stderr);
    }
    assert!(ended.stderr.contains("▸ explore #"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("It is not there."), "{}", ended.stderr);
}

#[test]
fn subagent_start_is_denied_without_a_user() {
    let server =
        ModelServer::start(vec![calls(&[delegates("worker", "Write it")]), says("Not done.")]);
    let machine = Machine::with(&server);
    let (ended, events) = machine.stream(&["--multi-agent", "write it"]);
    ended.assert_code(4);
    assert!(
        server.tool_results()[0].starts_with("Denied: worker would start"),
        "{:?}",
        server.tool_results()
    );
    assert!(events.iter().all(|event| event["type"] != "agent.invocation.requested"));
}

#[test]
fn invalid_agent_is_reported_with_file_and_line_and_others_load() {
    let machine = Machine::new();
    user_agent(&machine, "audit.md", AUDIT);
    user_agent(&machine, "bad.md", "---\ndescription: d\ntools: [bashh]\n---\nx\n");
    user_agent(
        &machine,
        "leak.md",
        "---\ndescription: d\ntools: []\nprovider:\n  apiKey: sk-123\n---\nx\n",
    );
    let (rows, said) = listed(&machine, &[]);
    assert_eq!(names(&rows), ["build", "plan", "explore", "reviewer", "worker", "audit"]);
    assert_eq!((&rows[5]["source"], &rows[5]["mode"]), (&json!("user"), &json!("all")));
    for part in ["AGN005", "bad.md:3)", "did you mean \"bash\"?", "AGN007", "leak.md:5)"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("sk-123"), "{said}");
    for (agent, code) in [("bad", "AGN005"), ("explore", "AGN008"), ("aduit", "AGN001")] {
        let ended =
            machine.posse(&["run", "--provider", "ollama", "--model", "m", "--agent", agent, "x"]);
        ended.assert_code(3);
        assert!(ended.stderr.contains(&format!("error[{code}]")), "{}", ended.stderr);
    }
}

#[test]
fn guide_example_works_unchanged() {
    let guide = include_str!("../../docs/guide/agents.md");
    let example = guide.split("```markdown\n").nth(1).unwrap().split("```").next().unwrap();
    let machine = Machine::new();
    user_agent(&machine, "reviewer-sql.md", example);
    let (rows, said) = listed(&machine, &[]);
    assert!(names(&rows).contains(&"reviewer-sql"), "{said}");
    assert_eq!(said, "");
}

#[test]
fn hidden_characters_of_an_agent_are_escaped_and_reported() {
    const HIDDEN: &str = "---\ndescription: d\ntools: []\nmode: all\n---\nDo\u{202e} it\u{e0041}\n";
    let server = ModelServer::start(vec![says("done")]);
    let machine = Machine::configured(
        &server,
        &json!({"agents": {"conf": {"description": "d", "tools": [], "prompt": "a\u{200b}b"}}}),
        &json!({}),
    );
    user_agent(&machine, "hid.md", HIDDEN);
    user_agent(
        &machine,
        "boss.md",
        "---\ndescription: d\ntools: []\ndelegation: { canDelegate: true, allowedAgents: [ghost, hib] }\n---\nx\n",
    );
    let (_, said) = listed(&machine, &[]);
    for part in [
        "warning[AGN010]: agent \"hid\": hidden characters, shown as escapes: 6:3 U+202E, 6:7 U+E0041 (",
        "warning[AGN010]: agent \"conf\": hidden characters, shown as escapes: 1:2 U+200B (",
        "warning[AGN009]: agent \"boss\": allowedAgents names \"ghost\": there is no such agent",
        "names \"hib\": there is no such agent; did you mean \"hid\"?",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let ended = machine.posse(&["run", "--agent", "hid", "go"]);
    ended.assert_code(0);
    assert!(ended.stderr.contains("6:3 U+202E"), "{}", ended.stderr);
    let prompt = text_of(&server.requests()[0]["messages"][0]["content"]);
    assert!(prompt.starts_with("Do\\u{202e} it\\u{e0041}\n"), "{prompt}");

    machine.write(".posse/agents/theirs.md", HIDDEN);
    let shown = machine.posse(&["trust", "show"]).stdout;
    assert!(shown.contains("6:3 U+202E") && shown.contains("| Do\\u{202e} it"), "{shown}");
}

#[test]
fn agents_setting_of_wrong_type_is_reported_with_its_place() {
    for wrong in [json!([1]), json!("x"), json!(null)] {
        let machine = Machine::new();
        machine.write_config(&json!({ "agents": wrong }).to_string());
        let ended = machine.posse(&["agents"]);
        ended.assert_code(3);
        for part in ["error[CFG003]", "agents must be an object", "config.json:1", "\"agents\": {"]
        {
            assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        }
    }
}

#[test]
fn trust_shows_tools_and_prompts_of_agents_and_skills() {
    let machine = Machine::new();
    machine.write(
        ".posse/agents/audit.md",
        AUDIT.replace(
            "mode: all",
            "mode: all\ndefaultDecision: deny\npermissions:\n  - { tool: bash, decision: deny }",
        ),
    );
    machine.write(
        ".posse/agents/greedy.md",
        "---\ndescription: d\ntools: []\ndefaultDecision: allow\n---\nTake it.\n",
    );
    machine.write(
        ".posse/skills/deploy/SKILL.md",
        "---\nname: deploy\ndescription: Does deploy.\nallowed-tools: bash\n---\nRun it.\n",
    );
    let shown = machine.posse(&["trust", "show"]);
    shown.assert_code(0);
    for part in [
        "mode all; tools: read_file, grep, and it only reads",
        "where no rule decides: deny",
        "rule: {\"",
        "| You look for holes.",
        "left out: AGN003: agent \"greedy\": a repository cannot allow what nothing else covers",
        "it expects these tools, and allows none: bash",
        "| Run it.",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let shown = machine.posse(&["trust", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let contents = &shown["contents"];
    assert_eq!(contents["agents"]["audit"]["defaultDecision"], "deny", "{shown}");
    assert_eq!(contents["skills"][".posse/skills/deploy"]["begins"], "Run it.\n", "{shown}");
}

#[test]
fn user_agent_runs() {
    let server = ModelServer::start(vec![runs("true"), says("No holes.")]);
    let machine = Machine::with(&server);
    user_agent(&machine, "audit.md", AUDIT);
    let ended = machine.posse(&["run", "-y", "--agent", "audit", "look"]);
    ended.assert_code(0);
    let request = &server.requests()[0];
    assert_eq!(tool_names(request), ["grep", "read_file"]);
    assert!(text_of(&request["messages"][0]["content"]).starts_with("You look for holes."));
    assert!(server.tool_results()[0].contains("Unknown tool"));
}

#[test]
fn project_agents_do_not_exist_until_trusted() {
    let machine = Machine::new();
    machine.write(".posse/agents/audit.md", AUDIT);
    let is_there = |args: &[&str]| names(&listed(&machine, args).0).contains(&"audit");
    assert!(!is_there(&[]));
    assert!(listed(&machine, &[]).1.contains("TRU001"), "{}", listed(&machine, &[]).1);
    assert!(is_there(&["--trust-project"]));
    let ended =
        machine.posse(&["run", "--provider", "ollama", "--model", "m", "--agent", "audit", "x"]);
    ended.assert_code(3);
    assert!(ended.stderr.contains("you do not trust it"), "{}", ended.stderr);

    let shown = machine.posse(&["trust", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["state"], "not trusted");
    let accept = ["trust", "add", "--accept", shown["sha256"].as_str().unwrap()];
    machine.posse(&accept).assert_code(0);
    assert!(is_there(&[]));
    let (rows, _) = listed(&machine, &[]);
    assert_eq!(rows[5]["source"], "project");

    // Trust covers exactly the content that was shown.
    machine.write(".posse/agents/audit.md", AUDIT.replace("holes", "doors"));
    assert!(!is_there(&[]));
    let text = machine.posse(&["trust", "show"]).stdout;
    assert!(text.contains("audit.md  changed  sha256"), "{text}");
    assert_eq!(machine.posse(&accept).code, Some(2), "that was another file");
}

#[test]
fn stop_leaves_no_process_of_a_subagent() {
    let sleep = marker();
    let command = format!(
        "setsid sleep {sleep} & (setsid sh -c 'sleep {sleep} & exec sleep {sleep}' &) ; \
         trap '' TERM INT HUP; echo ready; sleep {sleep}; sleep {sleep}"
    );
    let server = ModelServer::start(vec![
        calls(&[delegates("worker", "Wait")]),
        calls(&[("bash", json!({"command": command, "timeoutMs": 600_000}))]),
    ]);
    let machine = Machine::with(&server);
    let mut running = machine.start(&["-y", "--multi-agent", "wait"]);
    let said = running.wait_for("tool.output.delta");
    assert_eq!(said["agentPath"], "build/worker");
    eventually("all sleep", || sleeping(&sleep) >= 4);
    let stopped = Instant::now();
    running.signal(Signal::SIGINT);
    eventually("nobody sleeps", || sleeping(&sleep) == 0);
    let took = stopped.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(running.end().code, Some(130));
}

/// A machine on which `audit` has a server of its own and may do everything.
fn two_servers(main: &ModelServer, others: &ModelServer) -> Machine {
    let machine = Machine::configured(main, &json!({"agentMode": "multi-agent"}), &json!({}));
    let path = machine.path("posse/config/config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["providers"]["fast"] = json!({
        "type": "openai-compatible", "baseURL": others.base_url(), "model": "fast-1",
        "auth": "none",
    });
    machine.write_config(&config.to_string());
    let own = "---\ndescription: Works.\nprovider: { profile: fast }\ntools: [read_file, bash]\n---\n\nWork.\n";
    user_agent(&machine, "audit.md", own);
    machine
}

fn resumed(machine: &Machine, more: &[&str]) -> (crate::posse::FinishedRun, Vec<Value>) {
    let dir = machine.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap();
    let args = ["resume", id, "--output-format", "stream-json", "--yes", "--sandbox", "off"];
    let ended = machine.posse(&[&args, more].concat());
    let events = ended.events();
    (ended, events)
}

fn users(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap();
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.map(|message| text_of(&message["content"])).collect()
}

#[test]
fn killed_subagent_resumes_and_its_caller_waits_again() {
    let others = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "a.txt"}))]),
        ModelAnswer::Hold(stream_bytes(text_event("half of").as_bytes())),
        says("Nothing to hide."),
    ]);
    let main = ModelServer::start(vec![
        calls(&[delegates("audit", "Look at a.txt")]),
        says("All is well."),
    ]);
    let machine = two_servers(&main, &others);
    machine.write("a.txt", "one\n");
    let mut running = machine.start(&["-y", "--sandbox", "off", "check a.txt"]);
    others.wait_for_request();
    others.wait_for_request();
    // The result of the first call is on disk before it is announced.
    running.wait_for("tool.completed");
    running.signal(Signal::SIGKILL);
    running.wait();

    let (ended, events) = resumed(&machine, &[]);
    ended.assert_code(0);
    assert_eq!(events.last().unwrap()["result"], "All is well.");
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(of("agent.invocation.requested"), 0, "nobody is started again");
    assert_eq!(of("agent.delegation.ended"), 1);
    let asked = others.requests();
    assert_eq!(asked.len(), 3);
    assert_eq!(users(&asked[2]).len(), 1, "it is told its task once");
    assert!(others.tool_results()[0].contains("one"), "{:?}", others.tool_results());
    assert_eq!(main.requests().len(), 2);
    let [result] = main.tool_results().try_into().unwrap();
    assert!(result.contains("): done") && result.contains("Nothing to hide."), "{result}");
    machine.verify();

    // Nothing is unfinished, and reporting that starts no agent.
    assert_eq!(resumed(&machine, &[]).0.code, Some(2));
    assert_eq!(others.requests().len(), 3);
}

#[test]
fn command_of_a_killed_subagent_is_unknown_and_not_repeated() {
    let command = "echo once >> count; sleep 30";
    let others = ModelServer::start(vec![runs(command), says("It may have run.")]);
    let main =
        ModelServer::start(vec![calls(&[delegates("audit", "Count")]), says("Counted, perhaps.")]);
    let machine = two_servers(&main, &others);
    let mut running = machine.start(&["-y", "--sandbox", "off", "count"]);
    eventually("the command runs", || machine.work("count").exists());
    running.signal(Signal::SIGKILL);
    running.wait();
    let (ended, events) = resumed(&machine, &[]);
    ended.assert_code(0);
    let unknown = events.iter().find(|event| event["type"] == "tool.outcome_unknown").unwrap();
    assert_eq!(unknown["agentPath"], "build/audit");
    let [told] = others.tool_results().try_into().unwrap();
    assert!(told.starts_with(OUTCOME_UNKNOWN), "{told}");
    assert_eq!(machine.read("count"), "once\n");
    assert!(main.tool_results()[0].contains("It may have run."));
}

#[test]
fn new_prompt_stops_awaited_agents() {
    let others = ModelServer::start(vec![ModelAnswer::Hold(stream_bytes(b""))]);
    let main = ModelServer::start(vec![calls(&[delegates("audit", "Look")]), says("As you like.")]);
    let machine = two_servers(&main, &others);
    let mut running = machine.start(&["-y", "--sandbox", "off", "look"]);
    others.wait_for_request();
    // An event that was not received may not be recorded yet.
    while running.wait_for("model.request")["agentPath"] != "build/audit" {}
    running.signal(Signal::SIGKILL);
    running.wait();
    let (ended, events) = resumed(&machine, &["never mind"]);
    ended.assert_code(0);
    let end = events.iter().find(|event| event["type"] == "agent.delegation.ended");
    let end = end.unwrap_or_else(|| panic!("{events:#?}"));
    assert_eq!(end["outcome"], "cancelled");
    assert_eq!(others.requests().len(), 1);
    let [result] = main.tool_results().try_into().unwrap();
    assert!(result.contains("): cancelled") && result.contains("resume"), "{result}");
}

#[test]
fn line_mode_shows_and_asks_for_background_agents_while_idle() {
    let others = ModelServer::start(vec![runs("echo so > made.txt"), says("Made it.")]);
    let background = json!({"agent": "audit", "task": "Make it", "wait": false});
    let main = ModelServer::start(vec![
        calls(&[("delegate_agent", background)]),
        says("It is on its way."),
        says("Good."),
    ]);
    let machine = two_servers(&main, &others);
    let mut terminal = Terminal::run(&machine, &["plain", "--sandbox", "off"], "xterm");
    terminal.see("> ");
    terminal.press("make it\r");
    terminal.see("allow? [y] once");
    terminal.press("y\r");
    // The main agent ends at about the time of the other's request, which is not answered earlier.
    terminal.see("build -> audit #");
    terminal.see("allow? [y] once");
    eventually("the main agent has ended", || main.requests().len() == 2);
    assert!(!machine.work("made.txt").exists());
    terminal.press("y\r");
    terminal.see("◂ audit #");
    terminal.see(": done, 2 replies");
    assert_eq!(machine.read("made.txt"), "so\n");
    terminal.see("> ");
    terminal.press("go on\r");
    terminal.see("Good.");
    let last = main.requests().pop().unwrap();
    assert!(users(&last).iter().any(|text| text.contains("Made it.")), "{last}");
    terminal.see("> ");
    terminal.press("/memory\r");
    terminal.see("audit (fast)");
    terminal.see("> ");
    terminal.press("/forget\r");
    terminal.see("Deleted: everything that agents have reported (audit)");
    terminal.see("> ");
    terminal.press("\u{4}");
    assert_eq!(terminal.end(), Some(0));
    machine.verify();
}

#[test]
fn claude_code_agents_need_trust_and_never_widen_authority() {
    const FINDER: &str = "---\nname: finder\ndescription: Use it when: something is lost.\n\
        tools: Read, Grep, Bash(git log:*), WebFetch\nmodel: sonnet\n\
        permissionMode: bypassPermissions\ncolor: blue\n---\n\nFind it.\n";
    let machine = Machine::new();
    machine.write(".claude/agents/finder.md", FINDER);
    let mine = machine.path("home/.claude/agents/mine.md");
    fs::create_dir_all(mine.parent().unwrap()).unwrap();
    fs::write(&mine, "---\nname: mine\ndescription: d\ndisallowedTools: Bash\n---\nx\n").unwrap();
    let (rows, errors) = listed(&machine, &[]);
    assert!(names(&rows).contains(&"mine") && !names(&rows).contains(&"finder"), "{rows:?}");
    assert!(errors.contains("TRU001") && errors.contains("finder"), "{errors}");

    let shown = machine.posse(&["trust", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["state"], "not trusted");
    let begins = &shown["contents"]["agents"][".claude/agents/finder.md"]["begins"];
    assert_eq!(begins, "Find it.\n", "{shown:#}");
    let accept = ["trust", "add", "--accept", shown["sha256"].as_str().unwrap()];
    machine.posse(&accept).assert_code(0);
    let (rows, errors) = listed(&machine, &[]);
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    let finder = row("finder");
    assert_eq!(
        (&finder["source"], &finder["tools"]),
        (&json!("project"), &json!(["read_file", "grep"]))
    );
    assert_eq!((&finder["fromClaudeCode"], &finder["may"]), (&json!(true), &json!(["read"])));
    assert_eq!(row("mine")["disallowedTools"], json!(["bash"]));
    let warnings: Vec<&str> = errors.lines().filter(|line| line.contains("AGN011")).collect();
    assert_eq!(warnings.len(), 1, "{errors}");
    for part in ["Bash(git log:*)", "WebFetch", "color", "model sonnet", "bypassPermissions"] {
        assert!(warnings[0].contains(part), "{part}: {errors}");
    }
    let table = machine.posse(&["agents"]).stdout;
    assert!(table.contains("project, Claude Code"), "{table}");

    // Trust covers exactly these bytes.
    machine.write(".claude/agents/finder.md", FINDER.replace("Grep", "Write"));
    assert!(!names(&listed(&machine, &[]).0).contains(&"finder"));
}

#[test]
fn settings_of_a_use_reach_the_model() {
    let definition = "---\ndescription: Works.\nmode: all\ntools: [read_file, grep, bash]\n\
        delegation: { canDelegate: true }\nmodes:\n  chat: { prompt: { append: In a chat. } }\n\
        \x20 task:\n    temperature: 0.25\n    tools: [read_file]\n    limits: { maxTurns: 2 }\n    prompt: { append: In a task. }\n---\n\nWork.\n";
    let helper = "---\ndescription: Helps.\ntools: [read_file, grep]\nmodes:\n  chat: { tools: [grep], prompt: { append: In a chat. } }\n---\n\nHelp.\n";
    let server = ModelServer::start(vec![
        calls(&[delegates("helper", "look")]),
        says("found"),
        calls(&[("read_file", json!({"path": "a.txt"}))]),
    ]);
    let machine = Machine::configured(&server, &json!({"agentMode": "multi-agent"}), &json!({}));
    user_agent(&machine, "hand.md", definition);
    user_agent(&machine, "helper.md", helper);
    machine.write("a.txt", "one\n");
    let ended = machine.posse(&["run", "--yes", "--agent", "hand", "look"]);
    assert!(ended.stderr.contains("modes.subagent is missing"), "{}", ended.stderr);
    assert!(ended.stderr.contains("the limit of 2 model replies"), "{}", ended.stderr);
    let requests = server.requests();
    assert_eq!(requests.len(), 3, "the third reply was the last that it may have");
    let prompt = |nth: usize| text_of(&requests[nth]["messages"][0]["content"]);
    assert!(prompt(0).starts_with("Work.\n\nIn a task.") && !prompt(0).contains("In a chat."));
    assert_eq!(requests[0]["temperature"], 0.25);
    assert!(tool_names(&requests[0]).contains(&"read_file"));
    assert!(!tool_names(&requests[0]).contains(&"bash"), "{:?}", tool_names(&requests[0]));
    // A subagent without settings of its own has those for a conversation.
    assert!(prompt(1).starts_with("Help.\n\nIn a chat."), "{}", prompt(1));
    assert_eq!(tool_names(&requests[1]), ["grep"]);
    machine.verify();
}
