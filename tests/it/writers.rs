//! Concurrent agents that change the same file: no change is lost, and the second writer gets the
//! name of the first.

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says, text_of};
use crate::posse::Machine;

/// Texts of a request's messages of one role, in order.
fn texts(request: &Value, role: &str) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages.filter(|message| message["role"] == role).map(|m| text_of(&m["content"])).collect()
}

/// Next answer for any of the three agents: the main one calls two; each of those reads the file,
/// waits until the other has, changes its line, and retries if it is refused.
fn next(request: &Value) -> ModelAnswer {
    let (task, results) = (texts(request, "user").remove(0), texts(request, "tool"));
    let own = ["one", "two"].into_iter().find(|line| task.contains(&format!("change line {line}")));
    let Some(own) = own else {
        if !results.is_empty() {
            return says("Both are done.");
        }
        let asks = |line: &str| {
            ("delegate_agent", json!({"agent": "worker", "task": format!("change line {line}")}))
        };
        return calls(&[asks("one"), asks("two")]);
    };
    let change = || {
        let new = format!("{own} changed");
        calls(&[("edit_file", json!({"path": "f", "oldString": own, "newString": new}))])
    };
    let meet =
        format!("touch read-{own}; while [ ! -e read-one -o ! -e read-two ]; do sleep 0.02; done");
    match (results.len(), results.last().map(String::as_str)) {
        (0, _) => calls(&[("read_file", json!({"path": "f"}))]),
        (1, _) => calls(&[("bash", json!({"command": meet}))]),
        (2, _) => change(),
        (_, Some(last)) if last.starts_with("updated f") => says(&results.join("\n")),
        (_, Some(last)) if last.starts_with("EDT004") => {
            calls(&[("read_file", json!({"path": "f"}))])
        }
        _ => change(),
    }
}

#[test]
fn second_writer_is_told_of_the_first_and_reads_again() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(next)]);
    let more = json!({
        "agentMode": "multi-agent", "delegation": {"defaultInvocationDecision": "allow"},
    });
    let machine = Machine::configured(&server, &more, &json!({}));
    machine.write("f", "one\nmiddle\ntwo\n");
    let ended = machine.posse(&["run", "--yes", "--sandbox", "off", "-p", "change both lines"]);
    ended.assert_code(0);
    assert_eq!(machine.read("f"), "one changed\nmiddle\ntwo changed\n");
    let requests = server.requests();
    let said: Vec<String> = requests.iter().flat_map(|request| texts(request, "tool")).collect();
    let refused: Vec<&String> = said.iter().filter(|text| text.starts_with("EDT004")).collect();
    assert!(!refused.is_empty(), "{said:?}");
    for text in refused {
        assert!(text.starts_with("EDT004 f changed"), "{text}");
        assert!(text.contains(": build/worker wrote it in c"), "{text}");
        assert!(text.contains("read it again"), "{text}");
    }
}

/// The main agent has to read what a subagent wrote before it can replace it.
#[test]
fn file_written_by_another_agent_must_be_read_before_replacing() {
    let server = ModelServer::start(vec![
        calls(&[("delegate_agent", json!({"agent": "worker", "task": "make notes"}))]),
        calls(&[("write_file", json!({"path": "notes", "content": "found\n"}))]),
        says("made"),
        calls(&[("write_file", json!({"path": "notes", "content": "mine\n"}))]),
        calls(&[("read_file", json!({"path": "notes"}))]),
        calls(&[("write_file", json!({"path": "notes", "content": "found and mine\n"}))]),
        says("done"),
    ]);
    let more = json!({
        "agentMode": "multi-agent", "delegation": {"defaultInvocationDecision": "allow"},
    });
    let machine = Machine::configured(&server, &more, &json!({}));
    machine.posse(&["run", "--yes", "-p", "go"]).assert_code(0);
    let results = server.tool_results();
    let refused = &results[1];
    assert!(
        refused.starts_with("EDT004 you have not seen notes as it is: build/worker"),
        "{refused}"
    );
    assert!(results[3].starts_with("updated notes"), "{results:?}");
    assert_eq!(machine.read("notes"), "found and mine\n");
}
