//! Reports of what commands left, whatever the names of the files are.

use serde_json::json;

use crate::model_server::{ModelServer, calls, says};
use crate::posse::Machine;

/// A name that is not UTF-8 must not keep the report from the user and the model.
#[test]
fn names_that_are_not_utf8_are_reported() {
    let commands = [
        "mkdir $'r\\xff'; echo ./evil > $'r\\xff/.envrc'; echo ./evil > .envrc",
        "ln -s node_modules/x $'l\\xff'; ln -s node_modules/x link",
        "git init -q $'g\\xff'; printf '[core]\\n\\tfsmonitor = ./evil\\n' >> $'g\\xff/.git/config'",
    ];
    let steps = (0..commands.len()).map(|nth| {
        let command = format!("bash plant{nth}.sh");
        calls(&[("bash", json!({"command": command}))])
    });
    let server = ModelServer::start(steps.chain([says("done")]).collect());
    let machine = Machine::with(&server);
    for (nth, command) in commands.iter().enumerate() {
        machine.write(&format!("plant{nth}.sh"), command);
    }
    machine.posse(&["run", "--permission-mode", "auto", "do it"]).assert_code(0);
    let results = server.tool_results();
    for (result, named) in results.iter().zip([".envrc", "link", "config"]) {
        assert!(result.contains("SBX010") && result.contains(named), "{result}");
        assert!(!result.contains("crashed"), "{result}");
    }
    assert_eq!(results.len(), commands.len());
    machine.verify();
}
