//! Output of the session commands, from stored bytes to text.

use std::path::Path;

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, InvocationId, SessionId, StopReason, Usage,
};
use posse_actors::event::{Event, FORMAT_VERSION, Origin, RecordId, SandboxTier, StoredRecord};
use tempfile::TempDir;

use super::*;
use crate::format::{HashChain, append_line};

const ID: &str = "20261121-215652-3f9a2c";
const START_MS: u64 = 1_795_298_212_000;

fn view(json: bool) -> OutputStyle {
    OutputStyle {
        json,
        color: false,
        columns: 100,
        now_ms: START_MS + 7_200_000,
        zone: TimeZone::UTC,
    }
}

fn events() -> Vec<Event> {
    let call_id = CallId::new("c1");
    let message = AssistantMessage {
        content: Some("I look.\n\nThen I fix.".to_owned()),
        ..Default::default()
    };
    vec![
        Event::SessionStarted {
            posse: "0.1.0".to_owned(),
            cwd: "/p".to_owned(),
            agent: "build".to_owned(),
            provider: "openai".to_owned(),
            model: "m".to_owned(),
            mode: "single-agent".to_owned(),
            tier: SandboxTier::default(),
            permission_mode: None,
            instructions: String::new(),
            budget: posse_actors::cost::Budget::default(),
            prompt: posse_actors::event::PromptOverrides::default(),
            forked_from: None,
        },
        Event::UserMessage {
            content: vec![ContentPart::text("fix the \u{1b}[2Jtest")],
            message_id: None,
        },
        Event::ModelReply { turn: 1, message, stop_reason: StopReason::ToolUse, model: None },
        Event::ToolStarted {
            call_id: call_id.clone(),
            name: "read_file".to_owned(),
            summary: "read src/lib.rs".to_owned(),
            digest: "d".to_owned(),
            effect: false,
            coerced: Vec::new(),
        },
        Event::ToolCompleted {
            call_id,
            name: "read_file".to_owned(),
            content: vec![ContentPart::text("one\ntwo\nthree")],
            metadata: serde_json::Value::Null,
            duration_ms: 3,
        },
        Event::ActorCrashed { actor: "ToolCallRun".to_owned(), cause: "index 3".to_owned() },
        Event::SessionEnded {
            reason: posse_actors::event::SessionEndReason::Completed,
            exit_code: 0,
            usage: Usage { input_tokens: Some(12), output_tokens: Some(3), ..Usage::default() },
            cost_usd: None,
            cost_nano_usd: None,
            unpriced_requests: 0,
            turns: 1,
            result: None,
            error: None,
        },
    ]
}

/// A state directory with one session of `events`.
fn stored(events: Vec<Event>) -> (TempDir, StateDir) {
    stored_of(events.into_iter().map(|event| (None, event)).collect())
}

/// A state directory with one session of these events and their origins.
fn stored_of(events: Vec<(Option<Origin>, Event)>) -> (TempDir, StateDir) {
    let home = tempfile::tempdir().unwrap();
    let state = StateDir::new(home.path());
    let dir = state.session_dir(Path::new("/nowhere/p"), &SessionId::new(ID));
    std::fs::create_dir_all(&dir).unwrap();
    let mut bytes = Vec::new();
    let mut chain = HashChain::start(ID);
    for ((origin, event), record) in events.into_iter().zip(1..) {
        let record = StoredRecord {
            v: FORMAT_VERSION,
            record,
            ts: START_MS + record * 1000,
            id: RecordId { process: 1, count: u32::try_from(record).unwrap() },
            session_id: SessionId::new(ID),
            origin: origin.map(Into::into),
            event,
        };
        chain = append_line(&mut bytes, &chain, &record).unwrap();
    }
    std::fs::write(dir.join(ACTIVE), bytes).unwrap();
    (home, state)
}

fn file(state: &StateDir) -> std::path::PathBuf {
    state.session_dir(Path::new("/nowhere/p"), &SessionId::new(ID)).join(ACTIVE)
}

fn text(run: impl FnOnce(&mut dyn Write) -> Result<Exit, Failure>) -> (String, Exit) {
    let mut out = Vec::new();
    let exit = run(&mut out).unwrap_or_else(|failure| {
        out.extend_from_slice(failure.to_string().as_bytes());
        failure.exit
    });
    (String::from_utf8(out).unwrap(), exit)
}

#[test]
fn lists_in_columns() {
    let (_home, state) = stored(events());
    let junk = state.session_dir(Path::new("/nowhere/p"), &SessionId::new("20260101-junk"));
    std::fs::create_dir_all(&junk).unwrap();
    std::fs::write(junk.join(ACTIVE), b"\0\0\0").unwrap();
    let file = std::fs::File::options().append(true).open(junk.join(ACTIVE)).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let (shown, exit) = text(|out| list(&state, Within::Everywhere, &view(false), out));
    assert_eq!(exit, Exit::Done);
    insta::assert_snapshot!(shown, @r"
    SESSION                 STARTED           AGE      SIZE     COST  STATE     PROMPT
    20261121-215652-3f9a2c  2026-11-21 21:56  1 h ago  1.6 KiB  -     finished  p: fix the \u{1b}[2Jtest
    20260101-junk           -                 -        3 B      -     damaged   -
    ");
    let (json, _) = text(|out| list(&state, Within::Everywhere, &view(true), out));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["state"], "finished");
    assert_eq!(json[1]["what"], "zero bytes where a line belongs");
    let (empty, _) = text(|out| list(&state, Within::Project(Path::new("/x")), &view(false), out));
    assert_eq!(empty, "there are no sessions of this directory\n");
}

#[test]
fn transcript_is_escaped() {
    let (_home, state) = stored(events());
    let (shown, exit) = text(|out| show(&state, "2026", &view(false), out));
    assert_eq!(exit, Exit::Done);
    insta::assert_snapshot!(shown, @r"
    21:56:53  started   build with m (openai) in /p, posse 0.1.0
    21:56:54  you       fix the \u{1b}[2Jtest
    21:56:55  model     I look.

                        Then I fix.
    21:56:56  call      read src/lib.rs
    21:56:57  done      one (2 more lines, 3 ms)
    21:56:58  crash     ToolCallRun: index 3
    21:56:59  ended     completed, exit code 0, 1 turn, 12 tokens in, 3 out
    state: finished
    ");
    let (json, _) = text(|out| show(&state, ID, &view(true), out));
    assert_eq!(json.as_bytes(), std::fs::read(file(&state)).unwrap());
}

#[test]
fn verifies_and_names_the_damage() {
    let (_home, state) = stored(events());
    let run = |json| text(|out| verify(&state, None, Within::Everywhere, &view(json), out));
    let (shown, exit) = run(false);
    assert_eq!(exit, Exit::Done);
    assert!(
        shown.starts_with("20261121-215652-3f9a2c  sound  7 records, 1.6 KiB, hash "),
        "{shown}"
    );

    let mut bytes = std::fs::read(file(&state)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file(&state), bytes).unwrap();
    let (shown, exit) = run(false);
    assert_eq!(exit, Exit::Session);
    assert!(shown.contains("  damaged  ") && shown.contains("a line whose hash does not fit"));
    let (json, _) = run(true);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["problem"]["tornTail"], false);
    assert!(json[0]["remains"]["readable"].as_u64().unwrap() > 0, "{json:#}");
    let fix = format!("`posse resume {ID}` continues after record ");
    assert!(json[0]["fix"].as_str().unwrap().starts_with(&fix), "{json:#}");
    assert_eq!(text(|out| show(&state, ID, &view(false), out)).1, Exit::Session);
}

/// Events of a session whose subagent replies twice and whose main agent replies once.
fn delegating() -> Vec<(Option<Origin>, Event)> {
    let origin = |id: &str, parent: Option<&str>, path: &str| Origin {
        invocation_id: InvocationId::new(id),
        parent_invocation_id: parent.map(InvocationId::new),
        agent: path.rsplit('/').next().unwrap().to_owned(),
        agent_path: path.to_owned(),
    };
    let (main, child) = (origin("i1", None, "build"), origin("i2", Some("i1"), "build/worker"));
    let of_main = |event| match event {
        Event::SessionStarted { .. } | Event::SessionEnded { .. } => (None, event),
        _ => (Some(main.clone()), event),
    };
    let mut all: Vec<_> = events().into_iter().map(of_main).collect();
    let task = Event::UserMessage { content: vec![ContentPart::text("a task")], message_id: None };
    let reply = all[2].1.clone();
    let of_child = [task, reply.clone(), reply].map(|event| (Some(child.clone()), event));
    all.splice(5..5, of_child);
    all
}

#[test]
fn replies_of_subagents_are_no_turns_of_the_session() {
    let (_home, state) = stored_of(delegating());
    let (json, _) = text(|out| list(&state, Within::Everywhere, &view(true), out));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["turns"], 1);
}

#[test]
fn task_of_a_subagent_is_not_a_message_of_the_user() {
    let (_home, state) = stored_of(delegating());
    let (shown, _) = text(|out| show(&state, ID, &view(false), out));
    assert!(shown.contains("  task      [build/worker] a task\n"), "{shown}");
    assert_eq!(shown.matches("  you  ").count(), 1, "{shown}");
}

/// Output of a reader that has gone.
struct ClosedPipe;

impl Write for ClosedPipe {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn damage_is_the_exit_code_of_a_verification_whose_reader_has_gone() {
    let (_home, state) = stored(events());
    let run = || verify(&state, None, Within::Everywhere, &view(false), &mut ClosedPipe).unwrap();
    assert_eq!(run(), Exit::Done);
    let mut bytes = std::fs::read(file(&state)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file(&state), bytes).unwrap();
    assert_eq!(run(), Exit::Session);
}

#[test]
fn journal_that_was_never_begun_is_empty_and_not_damaged() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDir::new(home.path());
    let dir = state.session_dir(Path::new("/nowhere/p"), &SessionId::new(ID));
    std::fs::create_dir_all(&dir).unwrap();
    let run = || text(|out| verify(&state, None, Within::Everywhere, &view(false), out));
    let lock = crate::lock::SessionLock::take(&dir).unwrap();
    drop(lock);
    // Killed before the file of the journal was created, and after that.
    for _ in 0..2 {
        let (shown, exit) = run();
        assert_eq!(exit, Exit::Done, "{shown}");
        assert!(shown.starts_with(&format!("{ID}  empty  the journal has no record")), "{shown}");
        assert!(
            shown.ends_with(&format!(
                "fix: `posse sessions rm {ID}` removes it: there is nothing to continue\n"
            )),
            "{shown}"
        );
        std::fs::File::create_new(dir.join(ACTIVE)).ok();
    }
    let (shown, _) = text(|out| list(&state, Within::Everywhere, &view(false), out));
    assert!(shown.contains("  empty  "), "{shown}");
    // Emptied and removed journals had records.
    std::fs::write(dir.join(ACTIVE), "a record").unwrap();
    std::fs::write(dir.join(ACTIVE), "").unwrap();
    assert_eq!(run().1, Exit::Session);
    std::fs::remove_file(dir.join(ACTIVE)).unwrap();
    assert_eq!(run().1, Exit::Session);
}

#[test]
fn list_of_all_projects_shows_the_prompt() {
    let mut all = events();
    if let Event::SessionStarted { cwd, .. } = &mut all[0] {
        *cwd = format!("/home/somebody/{}/of-a-project-with-a-long-name", "folder/".repeat(9));
    }
    let (_home, state) = stored(all);
    let (shown, _) = text(|out| list(&state, Within::Everywhere, &view(false), out));
    assert!(shown.contains("  of-a-pr…: fix the "), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
}
