//! Files written with permission while commands run stay, whatever the commands do.

use std::fs;

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says, text_of};
use crate::permission::Person;
use crate::posse::Machine;

/// Waits for a signal, then runs `then`.
const JOB: &str = "while [ ! -e go ]; do sleep 0.02; done; . ./then.sh";

/// Reads the output of the job after its end.
fn reads(request: &Value) -> ModelAnswer {
    let messages = request["messages"].as_array().unwrap();
    let id = messages.iter().find_map(|message| {
        let text = text_of(&message["content"]);
        let (_, rest) = text.split_once("in the background as job ")?;
        Some(rest.split(['.', ' ']).next()?.to_owned())
    });
    let id = id.unwrap_or_else(|| panic!("no job: {request}"));
    calls(&[("job_output", json!({"id": id, "waitSeconds": 20}))])
}

fn writes(path: &str, content: &str) -> ModelAnswer {
    calls(&[("write_file", json!({"path": path, "content": content}))])
}

/// A job, files permitted while it runs, another command, and the end of the job, which first runs
/// `then`. Returns the results of the other command and of the job.
fn allowed_beside_a_job(backend: &str, then: &str) -> (Machine, [String; 2]) {
    let edit = json!({"path": "CLAUDE.md", "oldString": "before", "newString": "after"});
    let server = ModelServer::start(vec![
        calls(&[("bash", json!({"command": JOB, "background": true}))]),
        writes("AGENTS.md", "be kind\n"),
        writes(".vscode/tasks.json", "{}\n"),
        calls(&[("read_file", json!({"path": "CLAUDE.md"}))]),
        calls(&[("edit_file", edit)]),
        calls(&[("bash", json!({"command": "ls -a; touch go"}))]),
        ModelAnswer::By(reads),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    machine.write("CLAUDE.md", "before\n");
    machine.write("then.sh", then);
    let mut command = machine.command(&["run", "set it up"]);
    command.env("POSSE_SANDBOX_BACKEND", backend);
    let mut person = Person::facing(command);
    for asked in ["go ]; do sleep", "AGENTS.md", "tasks.json", "CLAUDE.md", "touch go"] {
        person.sees(asked);
        person.sees("[N] no: ");
        person.types("y\n");
    }
    let ended = person.running.end();
    assert_eq!(ended.code, Some(0), "{backend}: {}", person.seen);
    machine.verify();
    let results = server.tool_results();
    assert_eq!(results.len(), 7, "{backend}: {results:?}");
    (machine, [results[5].clone(), results[6].clone()])
}

fn assert_allowed_is_there(machine: &Machine, backend: &str) {
    assert_eq!(machine.read("AGENTS.md"), "be kind\n", "{backend}");
    assert_eq!(machine.read(".vscode/tasks.json"), "{}\n", "{backend}");
    assert_eq!(machine.read("CLAUDE.md"), "after\n", "{backend}");
}

#[test]
fn approved_change_stays_when_a_job_ends() {
    for backend in ["namespaces", "landlock"] {
        let (machine, results) = allowed_beside_a_job(backend, "echo nothing\n");
        assert_allowed_is_there(&machine, backend);
        for said in &results {
            assert!(!said.contains("SBX010"), "{backend}: {said}");
        }
        assert!(results[1].contains("nothing"), "{backend}: {results:?}");
        assert!(!machine.session_dir().join("quarantine").exists(), "{backend}");
    }
}

#[test]
fn approved_change_is_restored_after_a_job_changes_it() {
    for backend in ["namespaces", "landlock"] {
        let then = "for f in AGENTS.md CLAUDE.md .vscode/tasks.json; do echo planted > $f; done\n\
                    echo planted > .vscode/more.json; echo planted > GEMINI.md\n";
        let (machine, said) = allowed_beside_a_job(backend, then);
        // The command that is checked first reports it.
        let said = said.concat();
        assert_allowed_is_there(&machine, backend);
        for gone in [".vscode/more.json", "GEMINI.md"] {
            assert!(!machine.work(gone).exists(), "{backend}: {gone}");
        }
        for told in [
            "AGENTS.md is protected and was changed while this command ran, and others did",
            "CLAUDE.md is protected and was changed while",
            "tasks.json is protected and was changed while",
            "more.json is protected and was created while",
            "GEMINI.md is protected and was created while",
            "it was put back as it was, and what replaced it is in ",
        ] {
            assert!(said.contains(told), "{backend}: {told}: {said}");
        }
        // The planted file is in the quarantine.
        let kept = fs::read_dir(machine.session_dir().join("quarantine")).unwrap();
        let kept = kept.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        assert_eq!(kept.collect::<Vec<_>>(), ["planted\n"; 5], "{backend}");
    }
}
