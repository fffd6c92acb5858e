//! Requests of a program with ids: each gets one response, and does what a person can do.

use std::fs;

use serde_json::{Value, json};

use crate::attach::AttachClient;
use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::Machine;

/// Sends a request with an id and returns its response.
#[track_caller]
fn ask(client: &mut AttachClient, id: &Value, request: Value) -> Value {
    let mut request = request;
    request["id"] = id.clone();
    client.send(&request);
    loop {
        let response = client.wait_for("response");
        if response["id"] == *id {
            assert_eq!(response["command"], request["type"], "{response}");
            return response;
        }
    }
}

/// The result of a request that is carried out.
#[track_caller]
fn result(client: &mut AttachClient, id: u64, request: Value) -> Value {
    let response = ask(client, &json!(id), request);
    assert_eq!(response["ok"], true, "{response}");
    response["result"].clone()
}

/// The error of a request that is not carried out.
#[track_caller]
fn error(client: &mut AttachClient, id: u64, request: Value) -> Value {
    let response = ask(client, &json!(id), request);
    assert_eq!((&response["ok"], response.get("result")), (&json!(false), None), "{response}");
    let error = response["error"].clone();
    assert!(error["where"].as_str().unwrap().contains("line "), "{error}");
    error
}

fn prompts(client: &mut AttachClient, text: &str) {
    client.send(&json!({"type": "message", "content": text}));
    client.wait_for("agent.invocation.completed");
}

#[test]
fn every_line_gets_one_response_with_its_id() {
    let server = ModelServer::start(vec![says("Hello.")]);
    let machine = Machine::with(&server);
    let mut client = AttachClient::start(&machine, &["run"]);
    let first = client.wait_for("session.started");
    assert_eq!(first["seq"], 1, "the session begins before the first response");
    let state = result(&mut client, 1, json!({"type": "state"}));
    assert_eq!(
        (&state["idle"], &state["model"], &state["permissionMode"], &state["thinking"]),
        (&json!(true), &json!("scripted-1"), &json!("ask"), &json!("default"))
    );
    let begun = ask(&mut client, &json!("a"), json!({"type": "message", "content": "hi"}));
    assert!(begun["result"]["invocationId"].is_string(), "{begun}");
    client.wait_for("agent.invocation.completed");
    let history = result(&mut client, 2, json!({"type": "messages"}));
    assert_eq!(history["messages"].as_array().unwrap().len(), 2, "{history}");
    let spent = result(&mut client, 3, json!({"type": "stats"}));
    assert_eq!(
        (&spent["total"]["requests"], &spent["models"][0]["model"]),
        (&json!(1), &json!("scripted-1"))
    );
    assert!(spent["context"]["tokensMax"].as_u64().unwrap() > 0, "{spent}");
    // Faults of lines: place and fix, and the session goes on.
    let table = [
        (json!({"type": "stat"}), "RPC002", "unknown type `stat`", "the types are"),
        (json!({"type": "rename"}), "RPC001", "missing field `title`", "posse help instructions"),
        (json!({"type": "state", "x": 1}), "RPC001", "unknown field `x`", "posse help"),
        (json!({"type": "set_model"}), "RPC001", "`model` or `provider`", "posse help"),
        (json!({"type": "withdraw", "messageId": "m"}), "RPC005", "no message `m`", "`queue`"),
        (json!({"type": "stop_job", "callId": "c"}), "RPC005", "no background job", "`jobs`"),
        (
            json!({"type": "set_agent", "agent": "nobody-here"}),
            "AGN001",
            "nobody-here",
            "choose one",
        ),
        (json!({"type": "set_thinking", "thinking": "much"}), "CFG003", "much", "/thinking"),
        (json!({"type": "fork", "prompt": 9}), "CKP002", "no prompt 9", "lists"),
        (json!({"type": "switch_session", "session": "1999"}), "SES014", "1999", "sessions list"),
        (json!({"type": "skill", "name": "none"}), "SKL", "none", ""),
    ];
    for (at, (request, code, what, fix)) in table.into_iter().enumerate() {
        let error = error(&mut client, 10 + at as u64, request);
        assert!(error["code"].as_str().unwrap().starts_with(code), "{error}");
        assert!(error["what"].as_str().unwrap().contains(what), "{error}");
        assert!(error["fix"].as_str().unwrap_or_default().contains(fix), "{error}");
    }
    client.send(&json!({"type": "state", "id": [1]}));
    let wrong = client.wait_for("response");
    assert_eq!((&wrong["ok"], wrong.get("id")), (&json!(false), None), "{wrong}");
    let state = result(&mut client, 40, json!({"type": "state"}));
    assert_eq!(state["idle"], true);
    let ended = client.close();
    ended.assert_code(0);
    let lines = ended.events();
    let seqs: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=lines.len() as u64).collect::<Vec<_>>(), "`seq` counts lines");
    let responses = lines.iter().filter(|line| line["type"] == "response").count();
    assert_eq!(responses, 17, "one for each line");
    machine.verify();
}

#[test]
fn a_program_does_what_a_person_can() {
    let answers = ["One.", "Two.", "Three.", "Four."].map(says);
    let server = ModelServer::start(answers.to_vec());
    let machine = Machine::with(&server);
    let mut client = AttachClient::start(&machine, &["run"]);
    prompts(&mut client, "first task");
    prompts(&mut client, "second task");
    let original = result(&mut client, 1, json!({"type": "rename", "title": " Mend\nthe login "}));
    assert_eq!(original["title"], "Mend the login");
    let state = result(&mut client, 2, json!({"type": "state"}));
    assert_eq!(state["title"], "Mend the login");
    // The conversation goes on with another model, and keeps its title and history.
    let state = result(&mut client, 3, json!({"type": "set_model", "model": "other-2"}));
    assert_eq!((&state["model"], &state["title"]), (&json!("other-2"), &json!("Mend the login")));
    let state = result(&mut client, 4, json!({"type": "set_thinking", "thinking": "high"}));
    assert_eq!((&state["model"], &state["thinking"]), (&json!("other-2"), &json!("high")));
    prompts(&mut client, "third task");
    let history = result(&mut client, 5, json!({"type": "messages"}));
    assert_eq!(history["messages"].as_array().unwrap().len(), 6);
    for (id, list, name) in [
        (6, "tools", "read_file"),
        (7, "agents", "build"),
        (8, "commands", "rename"),
        (9, "sessions", "Mend the login"),
    ] {
        let listed = result(&mut client, id, json!({"type": list}));
        assert!(listed[list].to_string().contains(name), "{list}: {listed}");
    }
    let models = result(&mut client, 10, json!({"type": "models"}));
    assert!(models["models"].is_array() && models["thinking"][0] == "off", "{models}");
    let skills = result(&mut client, 11, json!({"type": "skills"}));
    assert!(skills["skills"].is_array(), "{skills}");
    let path = result(&mut client, 12, json!({"type": "export", "file": "talk.html"}));
    let page = fs::read_to_string(path["path"].as_str().unwrap()).unwrap();
    assert!(page.contains("second task") && page.contains("Content-Security-Policy"));
    // A copy that ends before the second prompt.
    let listed = result(&mut client, 13, json!({"type": "prompts"}));
    assert_eq!(listed["prompts"][1]["prompt"], 2, "{listed}");
    let copy = result(&mut client, 14, json!({"type": "fork", "prompt": 2}));
    assert_eq!(copy["prompt"], "second task");
    assert_ne!(copy["sessionId"], state["sessionId"]);
    let history = result(&mut client, 15, json!({"type": "messages"}));
    assert_eq!(history["messages"].as_array().unwrap().len(), 2);
    prompts(&mut client, "another way");
    let back = &state["sessionId"];
    let back = result(&mut client, 16, json!({"type": "switch_session", "session": back}));
    assert_eq!(
        (&back["sessionId"], &back["title"]),
        (&state["sessionId"], &json!("Mend the login"))
    );
    let new = result(&mut client, 17, json!({"type": "new_session"}));
    assert_eq!((&new["idle"], &new["title"]), (&json!(true), &Value::Null));
    let ended = client.close();
    ended.assert_code(0);
    let models: Vec<Value> = server.requests().iter().map(|one| one["model"].clone()).collect();
    // The copy has the model that the session had before its second prompt.
    assert_eq!(models, ["scripted-1", "scripted-1", "other-2", "scripted-1"]);
    let lines = ended.events();
    assert_eq!(lines.last().unwrap()["type"], "session.ended");
    let switched = lines.iter().filter(|line| line["reason"] == "switched").count();
    assert_eq!(switched, 2);
    let listed = machine.posse(&["sessions", "list"]).stdout;
    assert!(listed.contains("Mend the login"), "{listed}");
}

#[test]
fn commands_of_the_user_run_beside_other_requests_and_can_be_taken_back() {
    let write = calls(&[("write_file", json!({"path": "a.txt", "content": "made\n"}))]);
    let server = ModelServer::start(vec![write, says("Written."), says("Later.")]);
    let machine = Machine::with(&server);
    let mut client = AttachClient::start(&machine, &["run", "--permission-mode", "edits"]);
    prompts(&mut client, "write");
    assert_eq!(machine.read("a.txt"), "made\n");
    // The command asks; state and answer come while it waits.
    client.send(&json!({"type": "bash", "command": "sh -c 'cat a.txt; touch b.txt'", "id": "run"}));
    let question = client.wait_for("permission.requested");
    let state = result(&mut client, 1, json!({"type": "state"}));
    assert_eq!(state["idle"], false);
    let busy = error(&mut client, 2, json!({"type": "set_model", "model": "x"}));
    assert_eq!(busy["code"], "RPC003");
    client.answer(&question, "allow");
    let ran = loop {
        let response = client.wait_for("response");
        if response["id"] == "run" {
            break response["result"].clone();
        }
    };
    assert_eq!((&ran["status"], &ran["metadata"]["exitCode"]), (&json!("completed"), &json!(0)));
    assert!(ran["output"].as_str().unwrap().contains("made"), "{ran}");
    // Return of files and conversation.
    let returned = result(&mut client, 3, json!({"type": "rewind", "prompt": 1, "what": "both"}));
    assert_eq!((&returned["restored"], &returned["prompt"]), (&json!(true), &json!("write")));
    assert!(!machine.work("a.txt").exists());
    let history = result(&mut client, 4, json!({"type": "messages"}));
    assert_eq!(history["messages"], json!([]));
    client.close().assert_code(0);
    machine.verify();
}

#[test]
fn queued_messages_are_listed_and_withdrawn() {
    let server = ModelServer::start(vec![runs("sleep 600"), says("Stopped.")]);
    let machine = Machine::with(&server);
    let mut client = AttachClient::start(&machine, &["run", "--yes"]);
    client.send(&json!({"type": "message", "content": "wait"}));
    client.wait_for("tool.started");
    let steered =
        result(&mut client, 1, json!({"type": "follow_up", "content": "and then the tests"}));
    let queue = result(&mut client, 2, json!({"type": "queue"}));
    let entry = &queue["queue"][0];
    assert_eq!(
        (&entry["messageId"], &entry["kind"], &entry["text"]),
        (&steered["messageId"], &json!("follow_up"), &json!("and then the tests"))
    );
    // A second message moves before it, and its text changes.
    let next = result(&mut client, 6, json!({"type": "follow_up", "content": "then commit"}));
    let id = &next["messageId"];
    let moved =
        result(&mut client, 7, json!({"type": "edit_queued", "messageId": id, "position": 1}));
    let id = &moved["queue"][0]["messageId"];
    let edited = json!({"type": "edit_queued", "messageId": id, "text": "first the docs"});
    let edited = result(&mut client, 8, edited);
    let texts = [&edited["queue"][0]["text"], &edited["queue"][1]["text"]];
    assert_eq!(texts, ["first the docs", "and then the tests"]);
    let gone = json!({"type": "edit_queued", "messageId": id, "text": "too late"});
    assert_eq!(error(&mut client, 9, gone)["code"], "RPC005");
    let id = &edited["queue"][0]["messageId"];
    result(&mut client, 10, json!({"type": "withdraw", "messageId": id}));
    let id = &edited["queue"][1]["messageId"];
    let taken = result(&mut client, 3, json!({"type": "withdraw", "messageId": id}));
    assert_eq!(taken["content"][0]["text"], "and then the tests");
    let queue = result(&mut client, 4, json!({"type": "queue"}));
    assert_eq!(queue["queue"], json!([]));
    result(&mut client, 5, json!({"type": "interrupt"}));
    client.wait_for("agent.invocation.cancelled");
    client.close();
}

#[test]
fn attached_program_uses_the_same_requests() {
    let server = ModelServer::start(vec![says("One.")]);
    let machine = Machine::with(&server);
    let mut owner = AttachClient::start(&machine, &["run", "--permission-mode", "auto"]);
    prompts(&mut owner, "a task");
    let mut client = AttachClient::join(&machine);
    let state = result(&mut client, 1, json!({"type": "state"}));
    assert_eq!((&state["idle"], &state["model"]), (&json!(true), &json!("scripted-1")));
    let title = result(&mut client, 2, json!({"type": "rename", "title": "From afar"}));
    assert_eq!(title["title"], "From afar");
    assert_eq!(owner.wait_for("session.titled")["title"], "From afar");
    let ran = result(&mut client, 3, json!({"type": "bash", "command": "echo hello"}));
    assert!(ran["output"].as_str().unwrap().contains("hello"), "{ran}");
    let refused = error(&mut client, 4, json!({"type": "set_model", "model": "x"}));
    assert_eq!(refused["code"], "RPC004", "{refused}");
    let mode = ask(&mut client, &json!("m"), json!({"type": "permission.mode", "mode": "plan"}));
    assert_eq!(mode["result"]["mode"], "plan");
    // A request without an id has a response as well, an old instruction a line of its own.
    client.send(&json!({"type": "jobs"}));
    assert_eq!(client.wait_for("response")["result"], json!({"jobs": []}));
    client.send(&json!({"type": "context"}));
    assert_eq!(client.wait_for("attach.done")["line"], 7);
    client.close().assert_code(0);
    owner.close().assert_code(0);
}

#[test]
fn branches_are_a_tree_with_labels_and_places_to_go_to() {
    let server = ModelServer::start(["One.", "Two.", "Other.", "Again."].map(says).to_vec());
    let machine = Machine::with(&server);
    let mut client = AttachClient::start(&machine, &["run"]);
    prompts(&mut client, "first task");
    prompts(&mut client, "second task");
    let root = result(&mut client, 1, json!({"type": "state"}))["sessionId"].clone();
    result(&mut client, 2, json!({"type": "fork", "prompt": 2}));
    prompts(&mut client, "another way");
    result(&mut client, 3, json!({"type": "rename", "title": "Branch B"}));
    let label = json!({"type": "label", "session": root, "prompt": 2, "label": " good\nidea "});
    assert_eq!(result(&mut client, 4, label)["label"], "good idea");
    let tree = result(&mut client, 5, json!({"type": "tree"}));
    let rows: Vec<(String, u64, String, bool)> = tree["tree"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let text = row["text"].as_str().unwrap().to_owned();
            let label = row["label"].as_str().unwrap_or_default().to_owned();
            (text, row["depth"].as_u64().unwrap(), label, row["here"] == true)
        })
        .collect();
    let row =
        |text: &str, depth, label: &str, here| (text.to_owned(), depth, label.to_owned(), here);
    assert_eq!(
        rows,
        [
            row("first task", 0, "", false),
            row("first task", 0, "", false),
            row("Branch B", 1, "", false),
            row("another way", 1, "", true),
            row("second task", 0, "good idea", false),
        ]
    );
    // A copy of the original, from the branch.
    let there = json!({"type": "fork", "session": root, "prompt": 2});
    assert_eq!(result(&mut client, 6, there)["prompt"], "second task");
    prompts(&mut client, "third way");
    client.close().assert_code(0);
    // The same tree for a person, who labels a prompt and goes to a branch.
    let input = b"/tree\n/tree 2 start here\n/tree 2 -\n/tree 9\n/tree 1 x\n/tree\n/tree 3\n";
    let ended = machine.posse_with_input(&["plain", "-c"], input);
    ended.assert_code(0);
    for text in [
        "  3     \u{2514} Branch B",
        "  6 \u{25cf}     2. third way",
        "(prompt 1 is labelled: start here)",
        "(prompt 1 has no label)",
        "There is no row 9; /tree lists them.",
        "This row is a session: /rename",
        "2. [good idea] second task",
    ] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    let branch = tree["tree"][2]["session"].as_str().unwrap();
    assert!(ended.stderr.contains(&format!("session {branch}\n")), "{}", ended.stderr);
    machine.verify();
}
