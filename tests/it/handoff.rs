//! Packets for subagents: texts of references, answers in a few lines, and the conversation so far.

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says, text_of};
use crate::posse::Machine;

/// Results of the last calls of a request.
fn results(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap();
    let tools = messages.iter().rev().take_while(|message| message["role"] == "tool");
    let mut results: Vec<String> = tools.map(|one| text_of(&one["content"])).collect();
    results.reverse();
    results
}

/// Id of the first output that a text names.
fn output_in(text: &str) -> String {
    let rest = text.split("output:").nth(1).unwrap_or_else(|| panic!("no id in {text}"));
    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

/// Id of the agent that the last result of a request names.
fn agent_in(request: &Value) -> String {
    let text = results(request).pop().unwrap();
    text.split(['(', ')']).nth(1).unwrap().to_owned()
}

fn delegates_with_references(request: &Value) -> ModelAnswer {
    let text = results(request).remove(0);
    let references = [format!("output:{}", output_in(&text)), "notes.txt".to_owned()];
    let task = json!({
        "agent": "explore", "task": "Judge it.", "contextRefs": references, "returnMode": "brief",
    });
    calls(&[("delegate_agent", task)])
}

fn delegates_with_the_answer(request: &Value) -> ModelAnswer {
    let reference = format!("agent:{}", agent_in(request));
    let task = json!({"agent": "explore", "task": "Check it.", "contextRefs": [reference]});
    calls(&[("delegate_agent", task)])
}

/// The last message in the user's role.
fn packet(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    text_of(&messages.iter().rfind(|message| message["role"] == "user").unwrap()["content"])
}

#[test]
fn subagent_gets_the_texts_of_references_and_answers_in_brief() {
    let sentences: Vec<String> = (0..300).map(|number| format!("It is so {number}. ")).collect();
    let sentences = sentences.concat();
    let long = format!("Findings:\n- src/a.rs:3 leaks\n\n{sentences}");
    let secret = json!({"agent": "explore", "task": "Read it.", "contextRefs": [".env"]});
    let server = ModelServer::start(vec![
        calls(&[("bash", json!({"command": "echo begins; echo only-in-the-output; seq 1 30000"}))]),
        ModelAnswer::By(delegates_with_references),
        says(&long),
        ModelAnswer::By(delegates_with_the_answer),
        says("Checked."),
        calls(&[("delegate_agent", secret)]),
        says("done"),
    ]);
    let machine = Machine::configured(&server, &json!({"agentMode": "multi-agent"}), &json!({}));
    machine.write("notes.txt", "</reference>\nnoted in a file\n");
    machine.write(".env", "TOKEN=never-to-be-seen\n");
    let (ended, _) =
        machine.stream(&["--yes", "--sandbox", "off", "-p", "Look, and always be kind."]);
    ended.assert_code(0);
    let requests = server.requests();
    let first = packet(&requests[2]);
    for part in [
        "<return-mode>\nbrief: answer in at most ten lines.",
        "<tools>\nglob, grep, list_dir, read_file\n</tools>",
        "only-in-the-output",
        "noted in a file",
        "<\\/reference>",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert_eq!(first.matches("</reference>").count(), 2, "{first}");
    let result = results(&requests[3]).remove(0);
    assert!(result.len() < 1600, "a quarter of the usual answer: {result}");
    assert!(result.contains("The whole answer has"), "{result}");
    let second = packet(&requests[4]);
    assert!(second.contains(sentences.trim_end()), "the whole answer: {second}");
    assert!(second.contains("<findings>\n- src/a.rs:3 leaks\n"), "{second}");
    let denied = results(&requests[6]).remove(0);
    assert!(denied.contains("secrets"), "{denied}");
    assert!(!server.requests().iter().any(|one| one.to_string().contains("never-to-be-seen")));
    machine.verify();
}

#[test]
fn packet_contains_a_summary_of_earlier_prompts() {
    let delegates = || calls(&[("delegate_agent", json!({"agent": "explore", "task": "Look."}))]);
    let server = ModelServer::start(vec![
        says("It is the second parser."),
        delegates(),
        says("found"),
        says("done"),
    ]);
    let machine = Machine::configured(&server, &json!({"agentMode": "multi-agent"}), &json!({}));
    machine.posse(&["run", "Never touch docs. Which parser is used?"]).assert_code(0);
    machine.posse(&["run", "--continue", "--yes", "mend it"]).assert_code(0);
    let packet = packet(&server.requests()[2]);
    let (_, conversation) = packet.split_once("<conversation>").unwrap();
    for line in [
        "The user's standing instruction: Never touch docs.",
        "You answered: It is the second parser.",
    ] {
        assert!(conversation.contains(line), "{packet}");
    }
    assert!(!conversation.contains("mend it"), "it is the request: {packet}");
    machine.verify();
}

fn reads_the_first_result_again(request: &Value) -> ModelAnswer {
    let id = output_in(&all_results(request)[0]);
    calls(&[("read_file", json!({"path": format!("output:{id}")}))])
}

/// Texts of all results in a request.
fn all_results(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap();
    let tools = messages.iter().filter(|message| message["role"] == "tool");
    tools.map(|one| text_of(&one["content"])).collect()
}

#[test]
fn older_results_of_agents_become_a_ledger_with_the_next_prompt() {
    let answer =
        |nth: usize| format!("answer {nth} begins here. {} It ends.", "So it is. ".repeat(240));
    let mut answers = Vec::new();
    for nth in 0..4 {
        let task = json!({"agent": "explore", "task": format!("Look {nth}.")});
        answers.extend([calls(&[("delegate_agent", task)]), says(&answer(nth))]);
    }
    answers.extend([says("done"), ModelAnswer::By(reads_the_first_result_again)]);
    answers.extend([says("read"), says("again")]);
    let server = ModelServer::start(answers);
    let machine = Machine::configured(&server, &json!({"agentMode": "multi-agent"}), &json!({}));
    machine.posse(&["run", "--yes", "look"]).assert_code(0);
    let (ended, events) = machine.stream(&["--continue", "--yes", "-p", "and now?"]);
    ended.assert_code(0);
    machine.posse(&["run", "--continue", "--yes", "once more"]).assert_code(0);

    let requests = server.requests();
    let before = all_results(&requests[8]);
    assert!(before.iter().all(|text| text.contains("It ends.")), "no ledger within a run");
    let with_ledger = &requests[9];
    let results = all_results(with_ledger);
    assert_eq!(results[2..], before[2..], "the two newest ones stay");
    for (nth, text) in results[..2].iter().enumerate() {
        assert!(text.starts_with("[Ledger of agents: agent explore ("), "{text}");
        assert!(text.contains(&format!("answer {nth} begins here.")), "{text}");
        assert!(!text.contains("It ends."), "{text}");
    }
    let again = all_results(&requests[10]).pop().unwrap();
    assert!(again.contains("answer 0 begins here.") && again.contains("It ends."), "{again}");
    let compacted: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "context.compacted").collect();
    assert_eq!(compacted.len(), 1, "{compacted:?}");
    assert_eq!(compacted[0]["cause"], "delegates");
    // A resumed session sends the same bytes, and only adds to them.
    let (earlier, later) = (&requests[10]["messages"], &requests[11]["messages"]);
    let earlier = earlier.as_array().unwrap();
    assert_eq!(later.as_array().unwrap()[..earlier.len()], earlier[..]);
    machine.verify();
}

#[test]
fn result_in_the_main_conversation_has_a_limit_of_its_own() {
    let long = "So it is. ".repeat(400);
    let server = ModelServer::start(vec![
        calls(&[("delegate_agent", json!({"agent": "explore", "task": "Look."}))]),
        says(&long),
        says("done"),
    ]);
    let settings = json!({
        "agentMode": "multi-agent", "context": {"main": {"maxDelegateResultTokens": 256}},
    });
    let machine = Machine::configured(&server, &settings, &json!({}));
    machine.posse(&["run", "--yes", "look"]).assert_code(0);
    let result = server.tool_results().remove(0);
    assert!(result.len() < 1500, "{}: {result}", result.len());
    assert!(result.contains("The whole answer has"), "{result}");
    machine.verify();
}

#[test]
fn events_show_context_tools_and_memory_of_agents() {
    let server = ModelServer::start(vec![
        calls(&[("delegate_agent", json!({"agent": "worker", "task": "Do it."}))]),
        says("Findings:\n- src/a.rs:3 leaks"),
        says("done"),
    ]);
    let machine = Machine::configured(&server, &json!({"agentMode": "multi-agent"}), &json!({}));
    let (ended, events) = machine.stream(&["--yes", "-p", "look"]);
    ended.assert_code(0);
    let of = |kind: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["type"] == kind).collect()
    };
    let compiled = of("context.compiled");
    assert_eq!(compiled.len(), of("model.request").len());
    assert!(compiled.iter().all(|one| one["tokens"].as_u64() >= one["fixedTokens"].as_u64()));
    let [policy] = of("agent.invocation.tool_policy.applied")[..] else { panic!("{events:#?}") };
    assert_eq!(policy["agentPath"], "build/worker");
    let names = |key: &str| -> Vec<&str> {
        policy[key].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
    };
    assert!(names("effects").contains(&"bash") && !names("effects").contains(&"grep"), "{policy}");
    assert!(names("tools").contains(&"grep"), "{policy}");
    let [memory] = of("agent.session.memory_updated")[..] else { panic!("{events:#?}") };
    assert_eq!((&memory["agent"], &memory["tasks"]), (&json!("worker"), &json!(1)));
    let asked = of("permission.requested")[0];
    assert_eq!((&asked["targetType"], &asked["targetName"]), (&json!("agent"), &json!("worker")));
    let granted = of("permission.granted")[0];
    assert_eq!(
        (&granted["targetType"], &granted["targetName"]),
        (&json!("agent"), &json!("worker"))
    );
    // The ephemeral ones are in no journal.
    let journal = std::fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
    assert!(journal.contains("tool_policy.applied") && !journal.contains("context.compiled"));
    machine.verify();
}

#[test]
fn system_prompt_names_agent_model_and_tools_and_stays_the_same() {
    let server = ModelServer::start(vec![
        calls(&[("delegate_agent", json!({"agent": "explore", "task": "Look."}))]),
        says("found"),
        says("done"),
        says("again"),
    ]);
    let machine = Machine::configured(&server, &json!({"agentMode": "multi-agent"}), &json!({}));
    machine.posse(&["run", "--yes", "look"]).assert_code(0);
    machine.posse(&["run", "--continue", "--yes", "and now?"]).assert_code(0);
    let requests = server.requests();
    let system = |nth: usize| text_of(&requests[nth]["messages"][0]["content"]);
    for (nth, agent) in [(0, "build"), (1, "explore")] {
        let tools = requests[nth]["tools"].as_array().unwrap();
        let names: Vec<&str> =
            tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
        let prompt = system(nth);
        let row = |label: &str| {
            let begin = format!("\n{label}: ");
            let rest = prompt.split(&begin).nth(1).unwrap_or_else(|| panic!("{label}: {prompt}"));
            rest.lines().next().unwrap().to_owned()
        };
        assert_eq!(row("Agent"), agent);
        assert!(row("Model").contains(" (provider "), "{prompt}");
        let mut shown: Vec<String> = row("Tools").split(", ").map(str::to_owned).collect();
        shown.sort_unstable();
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort_unstable();
        assert_eq!(shown, names, "{agent}");
    }
    assert_eq!(system(2), system(0));
    assert_eq!(system(3), system(0), "also in the next process");
    machine.verify();
}
