//! Steps of a conversation that are in effect.

use posse_actors::conversation::{CallId, MessageId, SessionId};
use posse_actors::event::{FORMAT_VERSION, Origin, RecordId};

use posse_base::hex::sha256;
use serde_json::json;

use super::*;
use crate::checkpoint::RestoreChoice;

fn effects(records: &[StoredRecord]) -> Vec<UndoStep> {
    let mut steps = UndoSteps::default();
    for record in records {
        steps.add(record, Path::new("/session"));
    }
    steps.steps
}

fn change(path: &str, before: Option<&str>, after: &str) -> StoredRecord {
    let verdict = if before.is_some() { "updated" } else { "created" };
    let metadata = json!({
        "path": path, "verdict": verdict,
        "before": before.map(|text| sha256(text.as_bytes())), "after": sha256(after.as_bytes()),
    });
    completed(metadata)
}

fn completed(metadata: Value) -> StoredRecord {
    StoredRecord {
        v: FORMAT_VERSION,
        record: 1,
        ts: 1,
        id: RecordId { process: 1, count: 1 },
        session_id: SessionId::new("s"),
        origin: None,
        event: Event::ToolCompleted {
            call_id: CallId::new("c"),
            name: "write_file".to_owned(),
            content: Vec::new(),
            metadata,
            duration_ms: 1,
        },
    }
}

fn changed(step: UndoStep) -> UndoableChange {
    match step {
        UndoStep::Change(change) => change,
        UndoStep::Command(id) | UndoStep::Return(id) => panic!("checkpoint {id}"),
    }
}

/// A record of the invocation `invocation` of the main agent, or of a call of the user.
fn by(invocation: &str, record: StoredRecord) -> StoredRecord {
    let invocation_id = InvocationId::new(invocation);
    let (agent, agent_path) = ("a".to_owned(), "a".to_owned());
    let origin = Origin { invocation_id, parent_invocation_id: None, agent, agent_path };
    StoredRecord { origin: Some(origin.into()), ..record }
}

fn recorded(event: Event) -> StoredRecord {
    StoredRecord { event, ..completed(Value::Null) }
}

#[test]
fn changes_in_isolated_workspaces_are_none_of_the_workspace() {
    let started = |child: &str, workplace: Option<&str>| {
        recorded(Event::InvocationRequested {
            child_invocation_id: InvocationId::new(child),
            target: "worker".to_owned(),
            call_id: CallId::new("c"),
            provider: "p".to_owned(),
            task: "t".to_owned(),
            background: false,
            brief: false,
            workplace: workplace.map(str::to_owned),
        })
    };
    let records = [
        by("main", change("mine", None, "1")),
        by("main", started("isolated", Some("/state/w"))),
        by("main", started("beside", None)),
        by("isolated", started("below", None)),
        by("isolated", change("a", None, "1")),
        by("beside", change("b", None, "1")),
        by("below", change("c", None, "1")),
    ];
    let paths: Vec<String> =
        effects(&records).into_iter().map(|effect| changed(effect).path).collect();
    assert_eq!(paths, ["mine", "b"]);
}

#[test]
fn commands_are_undone_with_their_run() {
    let created = |checkpoint| {
        let (run, left_out) = (InvocationId::new("i"), String::new());
        recorded(Event::CheckpointCreated { checkpoint, run, files: 1, bytes: 1, left_out })
    };
    let restored = |checkpoint, undo, is_undo| {
        let arguments = tool::arguments(checkpoint, RestoreChoice::KeepUsers, is_undo);
        let (call_id, name) = (CallId::new("c"), tool::NAME.to_owned());
        [
            recorded(Event::ToolRequested { call_id, name, arguments }),
            recorded(Event::CheckpointRestored { checkpoint, undo, files: 1, kept: 0 }),
        ]
    };
    let command = || {
        recorded(Event::ToolStarted {
            call_id: CallId::new("c"),
            name: "bash".to_owned(),
            summary: String::new(),
            digest: String::new(),
            effect: true,
            coerced: Vec::new(),
        })
    };
    let of = |records: &[StoredRecord]| {
        let short = |step: UndoStep| match step {
            UndoStep::Change(change) => change.path,
            UndoStep::Command(id) => id.to_string(),
            UndoStep::Return(id) => format!("return{id}"),
        };
        effects(records).into_iter().map(short).collect::<Vec<_>>().join(" ")
    };
    let write = || change("a", None, "1");
    let first = [created(1), write(), command()];
    assert_eq!(of(&first), "a 1");
    let second = [&first[..], &[created(2), command()]].concat();
    assert_eq!(of(&second), "a 1 2");
    let and = |more: &[[StoredRecord; 2]]| of(&[&second[..], &more.concat()].concat());
    // Each undo leaves the step before.
    assert_eq!(and(&[restored(2, 3, true)]), "a 1");
    assert_eq!(and(&[restored(2, 3, true), restored(1, 4, true)]), "");
    // Another return is a step, below which are those of the state to which it returned.
    assert_eq!(and(&[restored(1, 3, false)]), "return3");
    assert_eq!(and(&[restored(2, 3, false)]), "a 1 return3");
    // The return was taken back.
    assert_eq!(and(&[restored(1, 3, false), restored(3, 4, true)]), "a 1 2");
    assert_eq!(of(&[command()]), "", "no checkpoint was taken");
}

#[test]
fn reverted_changes_are_not_undone_again() {
    let paths = |records: &[StoredRecord]| {
        let effects = effects(records);
        effects.into_iter().map(|effect| changed(effect).path).collect::<Vec<_>>()
    };
    let (one, two) = (change("a", Some("1"), "2"), change("b", None, "3"));
    let back = change("a", Some("2"), "1");
    assert_eq!(paths(&[one.clone(), two.clone()]), ["a", "b"]);
    assert_eq!(paths(&[one.clone(), back.clone()]), Vec::<String>::new());
    assert_eq!(paths(&[one.clone(), back.clone(), one.clone()]), ["a"]);
    // Another file was changed in between.
    assert_eq!(paths(&[one.clone(), two.clone(), back]), ["b"]);
    // One merge of a subagent's changes: the last file first.
    let of = |record: &StoredRecord| match &record.event {
        Event::ToolCompleted { metadata, .. } => metadata.clone(),
        _ => panic!(),
    };
    let gone = json!({
        "path": "c", "verdict": "removed", "before": sha256(b"4"), "after": null,
    });
    let merged = completed(json!({ "changes": [of(&one), of(&two), gone] }));
    let alone = std::slice::from_ref(&merged);
    assert_eq!(paths(alone), ["a", "b", "c"]);
    assert_eq!(changed(effects(alone).pop().unwrap()).after, None);
    let restored = change("c", None, "4");
    assert_eq!(paths(&[merged, restored]), ["a", "b"]);
    let other = completed(json!({ "exitCode": 0 }));
    let same = completed(json!({ "path": "a", "verdict": "unchanged", "after": "x" }));
    assert_eq!(paths(&[other, same]), Vec::<String>::new());
}

#[test]
fn commands_of_runs_without_a_checkpoint_do_not_belong_to_that_of_an_earlier_run() {
    let by = |run: &str, event: Event| {
        let (agent, agent_path) = ("a".to_owned(), "a".to_owned());
        let invocation_id = InvocationId::new(run);
        let origin = Origin { invocation_id, parent_invocation_id: None, agent, agent_path };
        StoredRecord { origin: Some(origin.into()), ..recorded(event) }
    };
    let command = || Event::ToolStarted {
        call_id: CallId::new("c"),
        name: "bash".to_owned(),
        summary: String::new(),
        digest: String::new(),
        effect: true,
        coerced: Vec::new(),
    };
    let (run, left_out) = (InvocationId::new("one"), String::new());
    let created = Event::CheckpointCreated { checkpoint: 1, run, files: 1, bytes: 1, left_out };
    let records = [
        by("one", created),
        by("one", command()),
        by("two", command()),
        // A call of an earlier run ends later.
        by("one", command()),
    ];
    assert_eq!(effects(&records), [UndoStep::Command(1), UndoStep::Command(1)]);
}

/// `/undo` removes a file that was created with a command of the user, which has a checkpoint.
#[test]
fn command_that_takes_a_change_back_is_no_step() {
    let created = |run: &str, checkpoint| {
        recorded(Event::CheckpointCreated {
            checkpoint,
            run: InvocationId::new(run),
            files: 1,
            bytes: 1,
            left_out: String::new(),
        })
    };
    let removes = recorded(Event::ToolStarted {
        call_id: CallId::new("c"),
        name: bash::NAME.to_owned(),
        summary: "run rm -- b".to_owned(),
        digest: String::new(),
        effect: true,
        coerced: Vec::new(),
    });
    let call = recorded(Event::UserCall {
        call_id: CallId::new("c"),
        tool: bash::NAME.to_owned(),
        message_id: MessageId::new("m"),
        said: format!("{TOOK_BACK}b myself. What came of it:"),
    });
    let steps = effects(&[
        by("run", created("run", 1)),
        by("run", change("a", Some("old"), "new")),
        by("run", change("b", None, "made")),
        by("undo", call),
        by("undo", created("undo", 2)),
        by("undo", removes),
    ]);
    // The change of `b` is skipped, because the file is as before it.
    let paths: Vec<String> = steps.into_iter().map(|step| changed(step).path).collect();
    assert_eq!(paths, ["a", "b"]);
}
