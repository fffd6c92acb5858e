//! Effects of `context`: what is kept in a conversation, and what agents pass to each other.

use serde_json::{Value, json};

use super::{Scenario, assert_each_changes, delegates};
use crate::model_server::{ModelAnswer, calls, says, status};
use crate::posse::Machine;

const FILES: usize = 10;

fn read(nth: usize) -> ModelAnswer {
    calls(&[("read_file", json!({"path": format!("f{nth}.txt")}))])
}

/// Files of about 1,900 tokens, each with a line of its own.
fn put_files(machine: &Machine) {
    for nth in 0..FILES {
        let filler = "a line that nobody needs\n".repeat(150);
        machine.write(&format!("f{nth}.txt"), format!("{filler}only in file {nth}\n{filler}"));
    }
}

/// A budget that is too small for all files, in which the latest turns do not all fit.
fn small() -> Value {
    json!({
        "maxContextTokens": 12_000, "compactAtRatio": 0.7, "recentTurns": 6, "minRecentTurns": 1,
        "summaryTargetTokens": 2000,
    })
}

/// Checks keys of one context, `context.main` or `context.subAgent`.
fn check(scenario: &Scenario, context: &str, base: &Value, values: &[(&str, Value)]) {
    let rows: Vec<(String, Value)> =
        values.iter().map(|(key, value)| (format!("{context}.{key}"), value.clone())).collect();
    let rows: Vec<(&str, Value)> =
        rows.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    assert_each_changes(scenario, base, &rows);
}

/// Keys that matter where large outputs do not fit.
fn sizes() -> [(&'static str, Value); 4] {
    [
        ("maxContextTokens", json!(16_000)),
        ("compactAtRatio", json!(0.9)),
        ("minRecentTurns", json!(3)),
        ("compression", json!("none")),
    ]
}

/// Keys that matter where turns have to be summarised.
fn summaries() -> [(&'static str, Value); 2] {
    [("recentTurns", json!(1)), ("summaryTargetTokens", json!(256))]
}

/// A turn with much text of the model's own, which no id replaces.
fn talk(nth: usize) -> ModelAnswer {
    let words: Vec<String> = (0..200).map(|word| format!("so {nth:02}-{word:03} goes ")).collect();
    let look = json!({
        "index": 0, "id": "call_0", "type": "function",
        "function": {"name": "list_dir", "arguments": "{}"},
    });
    ModelAnswer::Reply { text: words.concat(), calls: vec![look], finish: "tool_calls" }
}

/// A long prompt with instructions, which the summary repeats.
const RULES: &str = "Read all files. Always answer in French, and never in another language, also \
                     if a file is in another one. Never touch Cargo.lock, not even to sort it.";

#[test]
fn keys_of_the_main_context_change_its_requests() {
    let scenario = Scenario {
        answers: || (0..FILES).map(read).chain([says("done"), says("again")]).collect(),
        prepare: put_files,
        runs: &[&["run", RULES], &["run", "--continue", "and now?"]],
        acts: true,
    };
    let base = json!({"context": {"main": small()}});
    check(&scenario, "context.main", &base, &sizes());
    let scenario = Scenario {
        answers: || (0..16).map(talk).chain([says("done"), says("again")]).collect(),
        ..scenario
    };
    check(&scenario, "context.main", &base, &summaries());
}

#[test]
fn keys_of_the_context_of_subagents_change_their_requests() {
    let scenario = Scenario {
        answers: || {
            let task = [delegates("explore", RULES)];
            task.into_iter()
                .chain((0..FILES).map(read))
                .chain([says("seen"), says("done")])
                .collect()
        },
        prepare: put_files,
        runs: &[&["run", "-y", "look"]],
        acts: true,
    };
    let base = json!({"agentMode": "multi-agent", "context": {"subAgent": small()}});
    check(&scenario, "context.subAgent", &base, &sizes());
    let scenario = Scenario {
        answers: || {
            let task = [delegates("explore", RULES)];
            task.into_iter().chain((0..16).map(talk)).chain([says("seen"), says("done")]).collect()
        },
        ..scenario
    };
    check(&scenario, "context.subAgent", &base, &summaries());
}

#[test]
fn large_results_are_removed_after_a_rejection() {
    let scenario = Scenario {
        answers: || {
            let body = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
            let full = status("400 Bad Request", &["content-type: application/json"], body);
            vec![read(0), read(1), full, says("done")]
        },
        prepare: put_files,
        runs: &[&["run", "read them"]],
        acts: true,
    };
    let rows = [("context.main.maxInlineToolResultTokens", json!(300))];
    let base = json!({"context": {"main": {"maxInlineToolResultTokens": 4000}}});
    assert_each_changes(&scenario, &base, &rows);
}

#[test]
fn keys_of_the_ledger_change_requests() {
    let scenario = Scenario {
        answers: || {
            let mut answers = Vec::new();
            for nth in 0..5 {
                let long =
                    format!("answer {nth} begins here. {} It ends.", "So it is. ".repeat(240));
                answers.extend([delegates("explore", &format!("Look {nth}.")), says(&long)]);
            }
            answers.extend([says("done"), says("again")]);
            answers
        },
        prepare: |_| {},
        runs: &[&["run", "-y", "look"], &["run", "--continue", "-y", "and now?"]],
        acts: true,
    };
    let rows = [
        ("context.main.keepRawDelegateResults", json!(1)),
        ("context.main.ledgerTargetTokens", json!(256)),
    ];
    assert_each_changes(&scenario, &json!({"agentMode": "multi-agent"}), &rows);
}

#[test]
fn keys_of_the_hand_off_change_requests() {
    let scenario = Scenario {
        answers: || {
            let long: Vec<String> = (0..600).map(|number| format!("It is {number}. ")).collect();
            let long = long.concat();
            let task = json!({"agent": "explore", "task": "Look.", "context": long});
            let delegates = calls(&[("delegate_agent", task)]);
            vec![delegates.clone(), says(&long), delegates, says(&long), says("done")]
        },
        prepare: |_| {},
        runs: &[&["run", "-y", "look"]],
        acts: true,
    };
    let rows = [
        ("context.main.maxDelegateResultTokens", json!(300)),
        ("context.subAgent.maxDelegateContextTokens", json!(300)),
        ("context.subAgent.maxHandoffTokens", json!(400)),
        ("context.subAgent.maxResultTokensToMain", json!(300)),
        ("context.subAgent.memoryScope", json!("none")),
    ];
    assert_each_changes(&scenario, &json!({"agentMode": "multi-agent"}), &rows);
}
