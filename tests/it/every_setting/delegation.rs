//! Effects of the mode and of `delegation`.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{GREETING, Scenario, assert_each_changes, delegates, observed, with};
use crate::model_server::{ModelAnswer, calls, runs, says};
use crate::posse::Machine;

#[test]
fn every_key_of_the_mode_brings_subagents() {
    let rows = [
        ("agentMode", json!("multi-agent")),
        ("mode", json!("multi")),
        ("multiAgent.enabled", json!(true)),
    ];
    assert_each_changes(&GREETING, &json!({}), &rows);
}

#[test]
fn limits_of_delegation_change_results() {
    let prices = json!({"scripted-1": {"inputPrice": 1_000_000, "outputPrice": 1_000_000}});
    let base =
        json!({"agentMode": "multi-agent", "models": prices, "profile": {"maxTokens": 1000}});
    let twice = Scenario {
        answers: || {
            let look = || calls(&[("list_dir", json!({}))]);
            let task = || delegates("worker", "Look.");
            let repeated = [task(), look(), says("seen"), task(), look(), says("seen")];
            repeated.into_iter().chain((0..4).map(|_| says("done"))).collect()
        },
        prepare: |_| {},
        runs: &[&["run", "-y", "look"]],
        acts: true,
    };
    let rows = [
        ("delegation.maxCostMicroUsd", json!(1500)),
        ("delegation.maxTokens", json!(5)),
        ("delegation.maxTotal", json!(1)),
        ("delegation.subInvocationMaxTurns", json!(1)),
    ];
    assert_each_changes(&twice, &base, &rows);
    let unasked = Scenario { runs: &[&["run", "look"]], ..twice };
    let rows = [("delegation.defaultInvocationDecision", json!("allow"))];
    assert_each_changes(&unasked, &base, &rows);
}

/// Starts two subagents at once; each takes a moment.
fn starts_two(request: &Value) -> ModelAnswer {
    let messages = request["messages"].as_array().unwrap();
    let is_subagent = messages.iter().any(|message| message.to_string().contains("Only look."));
    let has_results = messages.iter().any(|message| message["role"] == "tool");
    if has_results {
        return says("done");
    }
    if is_subagent {
        thread::sleep(Duration::from_secs(2));
        return says("seen");
    }
    let task = json!({"agent": "explore", "task": "Only look.", "wait": false});
    let task = ("delegate_agent", task);
    calls(&[task.clone(), task])
}

#[test]
fn number_of_concurrent_subagents_is_limited() {
    let results = |limit: u64| {
        let server =
            crate::model_server::ModelServer::start_and_repeat(vec![ModelAnswer::By(starts_two)]);
        let settings =
            with(&json!({"agentMode": "multi-agent"}), "delegation.maxConcurrent", &json!(limit));
        Machine::configured(&server, &settings, &json!({})).posse(&["run", "-y", "look"]);
        let requests = server.requests();
        let has_results = |request: &&Value| {
            let messages = request["messages"].as_array().unwrap();
            messages.iter().filter(|message| message["role"] == "tool").count() == 2
        };
        let after = requests.iter().find(has_results).unwrap();
        let messages = after["messages"].as_array().unwrap();
        messages.iter().rfind(|message| message["role"] == "tool").unwrap()["content"].to_string()
    };
    let (one, two) = (results(1), results(2));
    let refused = "delegation.maxConcurrent (1) is reached";
    assert!(one.contains(refused) && !two.contains("is reached"), "{one}\n{two}");
}

#[test]
fn subagent_ends_at_its_time_limit() {
    let scenario = Scenario {
        answers: || {
            vec![delegates("worker", "Wait."), runs("sleep 4"), says("slept"), says("done")]
        },
        prepare: |_| {},
        runs: &[&["run", "-y", "wait"]],
        acts: true,
    };
    let base = json!({"agentMode": "multi-agent"});
    assert!(observed(&scenario, &base).contains("slept"));
    let limited = observed(&scenario, &with(&base, "delegation.maxDurationSeconds", &json!(1)));
    assert!(limited.contains("1 s") && !limited.contains("\"slept"), "{limited}");
}
