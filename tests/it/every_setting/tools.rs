//! Effects of `tools` and `sandbox`.

use std::fs;

use serde_json::{Value, json};

use super::{Scenario, assert_each_changes, with};
use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::Machine;

fn put_files(machine: &Machine) {
    machine.write("a.txt", "one  \ntwo\n");
    machine.write("big.txt", "a line that nobody needs\n".repeat(300));
}

#[test]
fn keys_of_tools_change_results() {
    let scenario = Scenario {
        answers: || {
            let read = || ("read_file", json!({"path": "big.txt"}));
            let edit = json!({"path": "a.txt", "oldString": "one\ntwo", "newString": "three"});
            vec![
                calls(&[read()]),
                calls(&[read()]),
                calls(&[("edit_file", edit)]),
                calls(&[(
                    "edit_file",
                    json!({"path": "a.txt", "oldString": "two", "newString": "2"}),
                )]),
                calls(&[("list_dir", json!({}))]),
                calls(&[("list_dir", json!({}))]),
                calls(&[("bash", json!({"command": "sleep 2; echo slept", "timeoutMs": 500_000}))]),
                says("done"),
            ]
        },
        prepare: put_files,
        runs: &[&["run", "-y", "work"]],
        acts: true,
    };
    let rows = [
        ("tools.bash.maxTimeout", json!("1s")),
        ("tools.budgets", json!({"list_dir": {"max": 1}})),
        ("tools.edit.fuzzy", json!(true)),
        ("tools.edit.requireRead", json!(true)),
        ("tools.outputBudget", json!(2048)),
        ("tools.read.dedup", json!(false)),
    ];
    let base = json!({"tools": {}});
    assert_each_changes(&scenario, &base, &rows);
    let limited =
        with(&base, "tools.budgets", &json!({"list_dir": {"max": 1, "onExceed": "block"}}));
    let rows = [("tools.budgets.list_dir.onExceed", json!("steer"))];
    assert_each_changes(&scenario, &limited, &rows);
}

/// Results of a file that is written, a command, and a secret file that is read, with `value` for
/// `key`.
fn confined(key: &str, value: impl Fn(&Machine) -> Value) -> Vec<String> {
    let command = "touch ../outside/made && echo created
        (: < /dev/tcp/127.0.0.1/$(cat port)) && echo connected";
    let server = ModelServer::start(vec![
        calls(&[("write_file", json!({"path": "new.txt", "content": "new"}))]),
        runs(command),
        calls(&[("read_file", json!({"path": ".env"}))]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    fs::create_dir_all(machine.path("outside")).unwrap();
    machine.write(".env", "A=only-in-the-secret\n");
    let address = server.base_url();
    machine.write("port", address.rsplit(':').next().unwrap().trim_end_matches("/v1"));
    let file = machine.path("posse/config/config.json");
    let config: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let config = with(&with(&config, "sandbox", &json!({})), key, &value(&machine));
    machine.write_config(&config.to_string());
    machine.posse(&["run", "-y", "work"]).assert_code(0);
    server.tool_results()
}

#[test]
fn keys_of_the_sandbox_change_results() {
    type MakeValue = fn(&Machine) -> Value;
    let rows: [(&str, MakeValue, MakeValue, usize, &str); 4] = [
        ("sandbox.mode", |_| json!("workspace-write"), |_| json!("read-only"), 0, "read-only"),
        ("sandbox.network", |_| json!("deny"), |_| json!("inherit"), 1, "\nconnected\n"),
        ("sandbox.writableRoots", |_| json!([]), |at| json!([at.path("outside")]), 1, "created\n"),
        ("sandbox.readSecrets", |_| json!([]), |at| json!([at.work(".env")]), 2, "only-in-the"),
    ];
    for (key, before, after, nth, words) in rows {
        let [before, after] =
            [before, after].map(|value| format!("\n{}", confined(key, value)[nth]));
        assert!(!before.contains(words) && after.contains(words), "{key}: {before}\n{after}");
    }
}

#[test]
fn number_of_parallel_calls_is_limited() {
    // Each command waits for a file of the other one, and gives up after a while.
    let waits = |own: &str, other: &str, seconds: u64| {
        let command = format!("touch {own}; until [ -e {other} ]; do sleep 0.05; done");
        ("bash", json!({"command": command, "timeoutMs": seconds * 1000}))
    };
    for (limit, seconds, times_out) in [(1, 2, true), (2, 60, false)] {
        let both = calls(&[waits("a", "b", seconds), waits("b", "a", seconds)]);
        let server = ModelServer::start(vec![both, says("done")]);
        let more = json!({"tools": {"parallel": "all", "maxParallel": limit}});
        let machine = Machine::configured(&server, &more, &json!({}));
        machine.posse(&["run", "-y", "--sandbox", "off", "wait"]).assert_code(0);
        let results = server.tool_results();
        let ended = results.iter().any(|text| text.contains("killed after its timeout"));
        assert_eq!(ended, times_out, "{limit}: {results:?}");
    }
}
