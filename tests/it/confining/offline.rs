//! Commands that fail because the sandbox has no network.

use crate::model_server::{ModelServer, runs, says};
use crate::posse::Machine;

#[test]
fn failure_without_network_is_explained_once_to_the_user_and_each_time_to_the_model() {
    let fails = "echo 'curl: (6) Could not resolve host: example.org'; exit 6";
    let server = ModelServer::start(vec![runs(fails), runs(fails), runs("exit 6"), says("done")]);
    let machine = Machine::with(&server);
    let (ended, events) = machine.stream(&["--yes", "-p", "go"]);
    ended.assert_code(0);
    let results = server.tool_results();
    for result in &results[..2] {
        assert!(result.contains("no network") && result.contains("--network inherit"), "{result}");
    }
    assert!(!results[2].contains("network"), "{results:#?}");
    let warnings = events.iter().filter(|event| event["type"] == "warning");
    let told = warnings.filter(|event| event["message"].as_str().unwrap().contains("no network"));
    assert_eq!(told.count(), 1);
}
