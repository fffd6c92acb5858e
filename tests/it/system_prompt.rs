//! Texts of the user for the system prompt: sent, recorded, kept by resumed sessions, and only for
//! the main agent.

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, says, text_of};
use crate::posse::Machine;

/// The beginning of the instructions of the agent `build`.
const BUILD: &str = "You are posse, a coding agent";

fn system(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    assert_eq!(messages[0]["role"], "system", "{request}");
    text_of(&messages[0]["content"])
}

/// Asserts that `parts` are in `text`, in this order.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("{part:?} in {text}"));
        rest = after;
    }
}

#[test]
fn texts_replace_and_follow_the_instructions_of_the_main_agent_only() {
    let delegates = calls(&[("delegate_agent", json!({"agent": "explore", "task": "Look."}))]);
    let server = ModelServer::start(vec![delegates, says("found"), says("done"), says("hello")]);
    let machine = Machine::configured(&server, &json!({"agentMode": "multi-agent"}), &json!({}));
    machine.write("AGENTS.md", "Indent with tabs.\n");
    let args = ["--system-prompt", "Be a poet.", "--append-system-prompt", "--- rhyme ---", "go"];
    let (ended, events) = machine.stream(&[&["--yes"], &args[..]].concat());
    ended.assert_code(0);
    let texts = json!({"instructions": "Be a poet.", "append": "--- rhyme ---"});
    assert_eq!(events[0]["prompt"], texts, "{}", events[0]);
    let requests = server.requests();
    let parts = ["Be a poet.", "--- rhyme ---", "<environment>", "Indent with tabs.", "explore"];
    for request in [&requests[0], &requests[2]] {
        assert_in_order(&system(request), &parts);
        assert!(!system(request).contains(BUILD));
    }
    let child = system(&requests[1]);
    assert!(!child.contains("poet") && !child.contains("rhyme"), "{child}");
    machine.write("texts/more.md", "\u{feff}Say less.\n");
    let args = ["plain", "--append-system-prompt-file", "texts/more.md"];
    machine.posse_with_input(&args, b"hello\n").assert_code(0);
    assert_in_order(&system(&server.requests()[3]), &[BUILD, "Say less.", "<environment>"]);
    machine.verify();
}

#[test]
fn resumed_session_and_fork_keep_the_texts_until_others_are_given() {
    let server = ModelServer::start(vec![says("ok"); 7]);
    let machine = Machine::with(&server);
    let rows: [(&[&str], &[&str], &[&str]); 7] = [
        (&["run", "--system-prompt", "Be a poet."], &["Be a poet."], &[BUILD]),
        (&["run", "-c"], &["Be a poet."], &[BUILD]),
        (&["run", "-c", "--append-system-prompt", "Rhyme."], &["Be a poet.", "Rhyme."], &[BUILD]),
        (&["run", "-c", "--fork"], &["Be a poet.", "Rhyme."], &[BUILD]),
        (&["run", "-c", "--system-prompt", ""], &[BUILD, "Rhyme."], &["poet"]),
        (&["run", "-c", "--append-system-prompt", " "], &[BUILD], &["poet", "Rhyme."]),
        (&["run"], &[BUILD], &["poet", "Rhyme."]),
    ];
    for (nth, (args, has, lacks)) in rows.into_iter().enumerate() {
        machine.posse(&[args, &["go"]].concat()).assert_code(0);
        let system = system(&server.requests()[nth]);
        assert_in_order(&system, has);
        assert!(!lacks.iter().any(|text| system.contains(text)), "{args:?}: {system}");
    }
    machine.verify();
}

#[test]
fn unusable_texts_end_before_a_request() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    machine.write("long.md", "x".repeat((128 << 10) + 1));
    let rows: [(&[&str], &str); 3] = [
        (&["--system-prompt-file", "missing.md"], "CLI017"),
        (&["--append-system-prompt-file", "long.md"], "CLI017"),
        (&["--system-prompt", "a", "--system-prompt-file", "long.md"], "CLI009"),
    ];
    for (args, code) in rows {
        let ended = machine.posse(&[&["run"], args, &["go"]].concat());
        ended.assert_code(2);
        assert!(ended.stderr.contains(code), "{}", ended.stderr);
    }
}

#[test]
fn repository_cannot_set_the_texts() {
    let server = ModelServer::start(vec![says("ok")]);
    let machine = Machine::with(&server);
    machine.write("AGENTS.md", "--system-prompt Obey.\n");
    let keys = json!({"systemPrompt": "Obey.", "appendSystemPrompt": "Obey."});
    machine.write(".posse/config.json", keys.to_string());
    let ended = machine.posse(&["run", "--trust-project", "go"]);
    ended.assert_code(3);
    assert!(ended.stderr.contains("unknown key \"systemPrompt\""), "{}", ended.stderr);
    std::fs::remove_file(machine.work(".posse/config.json")).unwrap();
    machine.posse(&["run", "go"]).assert_code(0);
    assert_in_order(&system(&server.requests()[0]), &[BUILD, "<environment>", "Obey."]);
}

#[test]
fn agents_are_listed_only_if_one_can_be_called() {
    let list = "Agents that you may call with delegate_agent";
    for (depth_max, listed) in [(0, false), (1, true)] {
        let server = ModelServer::start(vec![says("ok")]);
        let settings = json!({"agentMode": "multi-agent", "delegation": {"maxDepth": depth_max}});
        let machine = Machine::configured(&server, &settings, &json!({}));
        machine.posse(&["run", "go"]).assert_code(0);
        assert_eq!(system(&server.requests()[0]).contains(list), listed, "maxDepth {depth_max}");
    }
}
