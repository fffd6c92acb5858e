//! Known file versions and their consequences.

use std::fs;
use std::sync::Arc;

use posse_actors::ports::CallContext;
use posse_actors::testing::call_of_main;
use posse_base::hex::sha256;
use serde_json::{Value, json};

use crate::testing::ToolFixture;

fn read(desk: &ToolFixture, agent: &str, id: &str) -> String {
    desk.ask_as(agent, id, "read_file", &json!({ "path": "f" }))
}

fn edit(desk: &ToolFixture, agent: &str, old: &str, new: &str) -> String {
    let arguments = json!({ "path": "f", "oldString": old, "newString": new });
    desk.ask_as(agent, "e", "edit_file", &arguments)
}

fn long(line: &str) -> String {
    format!("{line}\n").repeat(100)
}

#[test]
fn unchanged_file_is_mentioned_once_then_shown() {
    let desk = ToolFixture::new();
    desk.put("f", long("text"));
    assert!(read(&desk, "build", "c1").starts_with("1\ttext\n"));
    assert_eq!(
        read(&desk, "build", "c2"),
        "f has not changed: c1 has shown exactly this. (Asked once more, it is shown again.)"
    );
    assert!(read(&desk, "build", "c3").starts_with("1\ttext\n"));
    assert!(read(&desk, "build", "c4").starts_with("f has not changed: c3 has"));
    // Another range, agent or content was not shown before.
    let part = desk.ask_as("build", "c5", "read_file", &json!({ "path": "f", "limit": 90 }));
    assert!(part.starts_with("1\ttext\n"), "{part}");
    assert!(read(&desk, "explore", "c6").starts_with("1\ttext\n"));
    desk.put("f", long("next"));
    assert!(read(&desk, "build", "c7").starts_with("1\tnext\n"));
    // The content is the same as before, but the agent has seen another in between.
    desk.put("f", long("text"));
    assert!(read(&desk, "build", "c8").starts_with("1\ttext\n"));
}

#[test]
fn short_files_are_repeated_and_all_on_request() {
    let desk = ToolFixture::new();
    desk.put("f", "short\n");
    for id in ["c1", "c2"] {
        assert!(read(&desk, "build", id).starts_with("1\tshort"));
    }
    let desk = ToolFixture::set(|env| env.dedup_reads = false);
    desk.put("f", long("text"));
    for id in ["c1", "c2"] {
        assert!(read(&desk, "build", id).starts_with("1\ttext"));
    }
}

#[test]
fn change_within_one_clock_tick_is_noticed() {
    let desk = ToolFixture::new();
    let path = desk.put("f", long("aaaa"));
    let times = fs::metadata(&path).unwrap().modified().unwrap();
    read(&desk, "build", "c1");
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"b", 0).unwrap();
    file.set_modified(times).unwrap();
    assert!(read(&desk, "build", "c2").starts_with("1\tbaaa\n"));
}

#[test]
fn file_changed_since_reading_is_not_edited() {
    let desk = ToolFixture::new();
    let path = desk.put("f", "a\nb\n");
    let stale = "EDT004 f changed since c1 saw it: it was changed from outside, by a person, a command \
                 or a program; read it again";
    read(&desk, "build", "c1");
    fs::write(&path, "a\nb\nc\n").unwrap();
    assert_eq!(edit(&desk, "build", "a", "x"), stale);
    let all = json!({ "path": "f", "content": "mine\n" });
    assert_eq!(desk.ask_as("build", "w", "write_file", &all), stale);
    let edits = json!({ "path": "f", "edits": [{ "oldString": "a", "newString": "x" }] });
    assert_eq!(desk.ask_as("build", "m", "multi_edit", &edits), stale);
    assert_eq!(desk.get("f"), b"a\nb\nc\n");
    read(&desk, "build", "c2");
    assert!(edit(&desk, "build", "a", "x").starts_with("updated f"));
    // An agent knows what it wrote.
    assert!(edit(&desk, "build", "x", "y").starts_with("updated f"));
}

#[test]
fn files_that_the_user_restores_are_known_to_the_agent_that_is_told() {
    let mut shared = None;
    let desk = ToolFixture::set(|env| {
        shared = Some((Arc::clone(&env.reads), env.workspace.clone()));
    });
    let (reads, workspace) = shared.unwrap();
    let path = desk.put("f", "a\n");
    read(&desk, "build", "c1");
    assert!(edit(&desk, "build", "a", "b").starts_with("updated f"));
    fs::write(&path, "a\n").unwrap();
    let restore = || CallContext { by_user: true, ..call_of_main("session-1", "r", "build") };
    reads.restored(&restore(), &path.canonicalize().unwrap(), sha256(b"a\n"));
    assert!(edit(&desk, "build", "a", "c").starts_with("updated f"));
    // Other agents, and the version after the restore, are guarded as before.
    fs::write(&path, "a\n").unwrap();
    reads.restored(&restore(), &path.canonicalize().unwrap(), sha256(b"a\n"));
    fs::write(&path, "b\n").unwrap();
    assert!(edit(&desk, "build", "b", "c").starts_with("EDT004 f changed since r saw it"));
    fs::write(&path, "a\n").unwrap();
    let blind = "EDT004 you have not seen f as it is: the user wrote it in r; read it first";
    reads.restored(&restore(), &path.canonicalize().unwrap(), sha256(b"a\n"));
    assert_eq!(edit(&desk, "third", "a", "c"), blind);
    // The user may change what no agent has read.
    let place = workspace.locate("f").unwrap();
    assert!(reads.require(&call_of_main("s", "w", "fourth"), &place, "other", true).is_err());
    assert_eq!(reads.require(&restore(), &place, "other", true), Ok(()));
}

#[test]
fn two_agents_do_not_overwrite_one_another() {
    let desk = ToolFixture::new();
    desk.put("f", "a\nb\n");
    read(&desk, "one", "c1");
    read(&desk, "two", "c2");
    assert!(edit(&desk, "one", "a", "x").starts_with("updated f"));
    let by_one = "EDT004 f changed since c2 saw it: one wrote it in e; read it again";
    assert_eq!(edit(&desk, "two", "b", "y"), by_one);
    read(&desk, "two", "c3");
    assert!(edit(&desk, "two", "b", "y").starts_with("updated f"));
    let by_two = "EDT004 f changed since e saw it: two wrote it in e; read it again";
    assert_eq!(edit(&desk, "one", "x", "z"), by_two);
    assert_eq!(desk.get("f"), b"x\ny\n");
    // An agent that has not read the file cannot change what others wrote, either.
    let blind = "EDT004 you have not seen f as it is: two wrote it in e; read it first";
    assert_eq!(edit(&desk, "three", "x", "z"), blind);
    let all = json!({ "path": "f", "content": "mine\n" });
    assert_eq!(desk.ask_as("three", "w", "write_file", &all), blind);
    read(&desk, "three", "c4");
    assert!(desk.ask_as("three", "w", "write_file", &all).starts_with("updated f"));
}

/// Of parallel changes of one file, one succeeds, and the others get the writer's name.
#[test]
fn one_of_many_concurrent_edits_succeeds() {
    let desk = ToolFixture::new();
    for round in 0..20 {
        desk.put("f", format!("a {round}\n"));
        let agents: Vec<String> = (0..6).map(|nth| format!("agent-{nth}")).collect();
        for agent in &agents {
            read(&desk, agent, "c");
        }
        let prepared: Vec<_> = agents
            .iter()
            .map(|agent| {
                let new = json!({"path": "f", "content": format!("{agent} {round}\n")});
                (agent, desk.prepare_for(agent, "write_file", &new).unwrap())
            })
            .collect();
        let said: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = prepared
                .into_iter()
                .map(|(agent, call)| scope.spawn(|| desk.run_for(agent, "write_file", call)))
                .collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let (done, refused): (Vec<_>, Vec<_>) =
            said.iter().partition(|text| text.starts_with("updated f"));
        assert_eq!(done.len(), 1, "{said:?}");
        for text in refused {
            assert!(text.starts_with("EDT004 f changed meanwhile: agent-"), "{text}");
            assert!(text.contains(" wrote it in "), "{text}");
        }
    }
}

#[test]
fn two_sessions_do_not_overwrite_one_another() {
    let one = ToolFixture::new();
    let path = one.put("f", "a\nb\n");
    read(&one, "build", "c1");
    // Another session has its own table; only the file is shared.
    fs::write(path.with_file_name("g"), "a\nother\n").unwrap();
    fs::rename(path.with_file_name("g"), &path).unwrap();
    assert!(edit(&one, "build", "a", "x").starts_with("EDT004"));
    assert_eq!(one.get("f"), b"a\nother\n");
}

#[test]
fn edit_requires_reading_if_configured() {
    let desk = ToolFixture::set(|env| env.require_read = true);
    desk.put("f", "a\n");
    let unread = "EDT007 f was not read yet; read it before changing it";
    let write = |content: &str| json!({ "path": "f", "content": content });
    let edits: Value = json!({ "path": "f", "edits": [{ "oldString": "a", "newString": "x" }] });
    assert_eq!(edit(&desk, "build", "a", "b"), unread);
    assert_eq!(desk.ask_as("build", "w", "write_file", &write("x")), unread);
    assert_eq!(desk.ask_as("build", "m", "multi_edit", &edits), unread);
    read(&desk, "other", "c1");
    assert_eq!(edit(&desk, "build", "a", "b"), unread);
    read(&desk, "build", "c2");
    assert!(edit(&desk, "build", "a", "b").starts_with("updated f"));
    // A new file could not be read before.
    let new = json!({ "path": "new", "content": "x\n" });
    assert!(desk.ask_as("build", "w", "write_file", &new).starts_with("created new"));
    let again = json!({ "path": "new", "oldString": "x", "newString": "y" });
    assert!(desk.ask_as("build", "e", "edit_file", &again).starts_with("updated new"));
}

#[test]
fn dry_run_records_no_change() {
    let desk = ToolFixture::with(true);
    desk.put("f", "a\n");
    read(&desk, "build", "c1");
    for _ in 0..2 {
        assert!(edit(&desk, "build", "a", "b").starts_with("dry run"));
    }
}

#[test]
fn file_is_shown_again_after_compaction() {
    let desk = ToolFixture::new();
    desk.put("f", long("text"));
    read(&desk, "build", "c1");
    desk.tools().iter().for_each(|tool| tool.history_shortened());
    assert!(read(&desk, "build", "c2").starts_with("1\ttext\n"));
    assert!(read(&desk, "build", "c3").starts_with("f has not changed"));
}
