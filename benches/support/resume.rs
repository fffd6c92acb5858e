//! Cost of resuming a long session: a new process folds it and opens it for writing.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use posse::journal::state::Within;
use posse::journal::{FileJournal, StateDir, verify_session};
use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, InvocationId, Message, SessionId, StopReason, ToolCall,
    Usage,
};
use posse_actors::event::{Durability, Event, FORMAT_VERSION, Origin, RecordId, StoredRecord};
use posse_actors::ports::{JournalBatch, JournalStore};
use serde_json::Value;

use crate::table;

/// Argument that turns this program into the measured process.
pub(crate) const CHILD: &str = "resume-child";

const RECORDS: u64 = 100_000;
/// Records of one turn: request, reply, usage, call, intent, outcome.
const TURN: u64 = 6;
/// Bytes of a tool output, so that a record has 1,000 bytes on average.
const OUTCOME_BYTES: usize = 4100;
/// Turns between two compactions: about as many as fit into a large context window.
const COMPACTED_TURNS: u64 = 600;

/// Runs the measurements. Exits with 1 if a promised figure is missed.
pub(crate) fn main() -> ExitCode {
    let mut good = true;
    for (name, compacted) in [("compacted now and then", true), ("never compacted", false)] {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("s");
        write(&session, compacted);
        let verified = verify_session(&session, "s").unwrap();
        assert_eq!((verified.records, &verified.problem), (RECORDS, &None));
        table::fact(name, verified.bytes as f64 / 1e6, "MB");
        // Removes the fold cache that was made during writing: a killed process may leave none.
        fs::remove_file(session.join("fold-cache.json")).ok();
        for (what, keep) in [("without a fold cache", false), ("with one", true)] {
            let mut best: Option<Measured> = None;
            for _ in 0..3 {
                if !keep {
                    fs::remove_file(session.join("fold-cache.json")).ok();
                }
                let measured = in_a_process(&session);
                if best.as_ref().is_none_or(|best| measured.ready < best.ready) {
                    best = Some(measured);
                }
            }
            let Measured { ready, rss_mb, read } = best.unwrap();
            let seconds = ready.as_secs_f64();
            good &= table::at_most(&format!("  {what}: ready"), seconds, 1.0, "s");
            good &= table::at_most(&format!("  {what}: peak RSS"), rss_mb, 150.0, "MB");
            table::fact("    records read", read as f64, "");
        }
    }
    good &= listing();
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures listing a thousand stored sessions. Returns true if the time is within its bound.
fn listing() -> bool {
    let home = tempfile::tempdir().unwrap();
    let state = StateDir::new(home.path());
    let project = Path::new("/nowhere/example");
    for number in 0..1000 {
        let id = SessionId::new(format!("20260101-000000-{number:06x}"));
        let dir = state.session_dir(project, &id);
        fs::create_dir_all(&dir).unwrap();
        let store = FileJournal::lock(&dir, id).unwrap();
        append(&store, 1..=60, false);
    }
    let took = table::best(3, || {
        assert_eq!(state.summaries(Within::Everywhere).unwrap().len(), 1000);
    });
    table::at_most("list of 1,000 stored sessions", took.as_secs_f64() * 1000.0, 500.0, "ms")
}

struct Measured {
    ready: Duration,
    rss_mb: f64,
    read: u64,
}

fn in_a_process(session: &Path) -> Measured {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([CHILD.as_ref(), session.as_os_str()])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [micros, kb, read] = numbers[..] else { panic!("{text}") };
    Measured { ready: Duration::from_micros(micros), rss_mb: kb as f64 / 1e3, read }
}

/// The measured process: reads the history and opens the journal for writing. Prints the time in
/// microseconds, the peak memory in KB, and the number of records read.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn child(session: &Path) -> ExitCode {
    let start = Instant::now();
    let store = FileJournal::lock(session, SessionId::new("s")).unwrap();
    let folded = store.replayed().unwrap();
    let read = folded.read;
    let replayed = folded.replay.finish();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let opened = runtime.block_on(store.open()).unwrap();
    let ready = start.elapsed();
    assert_eq!((replayed.last_record, opened.last_record), (RECORDS, RECORDS));
    assert!(replayed.messages.len() > 100);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kb = peak.trim().trim_end_matches(" kB");
    println!("{} {kb} {read}", ready.as_micros());
    ExitCode::SUCCESS
}

fn write(session: &Path, compacted: bool) {
    let store = FileJournal::lock(session, SessionId::new("s")).unwrap();
    append(&store, 1..=RECORDS, compacted);
}

fn append(store: &FileJournal, numbers: std::ops::RangeInclusive<u64>, compacted: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let opened = runtime.block_on(store.open()).unwrap();
    let (done, ends) = mpsc::channel();
    let origin = Arc::new(Origin {
        invocation_id: InvocationId::new("i1"),
        parent_invocation_id: None,
        agent: "build".to_owned(),
        agent_path: "build".to_owned(),
    });
    let mut first = *numbers.start();
    while first <= *numbers.end() {
        let last = (first + 63).min(*numbers.end());
        let records = (first..=last).map(|number| record(number, &origin, compacted)).collect();
        let done = done.clone();
        opened.journal.submit(JournalBatch {
            records,
            durability: Durability::Written,
            done: Box::new(move |end| done.send(end.unwrap().last_record).unwrap()),
        });
        // Otherwise all records would wait in memory.
        ends.recv().unwrap();
        first = last + 1;
    }
}

fn record(number: u64, origin: &Arc<Origin>, compacted: bool) -> Arc<StoredRecord> {
    Arc::new(StoredRecord {
        v: FORMAT_VERSION,
        record: number,
        ts: 1_795_300_000_000 + number,
        id: RecordId { process: 7, count: u32::try_from(number).unwrap() },
        session_id: SessionId::new("s"),
        origin: (number > 1).then(|| Arc::clone(origin)),
        event: event(number, compacted),
    })
}

fn started() -> Event {
    Event::SessionStarted {
        posse: "bench".to_owned(),
        cwd: "/".to_owned(),
        agent: "build".to_owned(),
        provider: "local".to_owned(),
        model: "m".to_owned(),
        mode: "single-agent".to_owned(),
        tier: posse_actors::event::SandboxTier::Full,
        permission_mode: None,
        instructions: String::new(),
        budget: posse_actors::cost::Budget::default(),
        prompt: posse_actors::event::PromptOverrides::default(),
        forked_from: None,
    }
}

fn event(number: u64, compacted: bool) -> Event {
    let turn = number / TURN;
    let (call_id, name) = (CallId::new(format!("call-{turn}")), "read_file".to_owned());
    let text = |bytes: usize| "line of a \"file\"\tor so\n".repeat(bytes / 24);
    let nth = u32::try_from(turn).unwrap();
    match number % TURN {
        _ if number == 1 => started(),
        _ if number == 2 => {
            Event::UserMessage { content: vec![ContentPart::text("go")], message_id: None }
        }
        2 if compacted && turn.is_multiple_of(COMPACTED_TURNS) => Event::ContextCompacted {
            prompts_removed: 0,
            bytes_before: 3_000_000,
            bytes_after: 100_000,
            turns_removed: 500,
            outputs_removed: 0,
            tokens_before: None,
            tokens_after: None,
            cause: None,
            summarised_by: None,
            history: (0..100)
                .map(|_| Arc::new(Message::User { content: vec![ContentPart::text(text(1000))] }))
                .collect(),
        },
        3 => Event::ModelReply {
            turn: nth,
            message: AssistantMessage {
                content: Some(text(600)),
                tool_calls: vec![ToolCall {
                    id: call_id,
                    provider_id: None,
                    name,
                    arguments: "{\"path\":\"src/some/file.rs\"}".to_owned(),
                }],
                ..AssistantMessage::default()
            },
            stop_reason: StopReason::ToolUse,
            model: None,
        },
        4 => Event::ToolStarted {
            call_id,
            name,
            summary: "read src/some/file.rs".to_owned(),
            digest: "0".repeat(64),
            effect: false,
            coerced: Vec::new(),
        },
        5 => Event::ToolCompleted {
            call_id,
            name,
            content: vec![ContentPart::text(text(OUTCOME_BYTES))],
            metadata: Value::Null,
            duration_ms: 3,
        },
        0 => Event::ModelUsage {
            turn: nth,
            usage: Usage { input_tokens: Some(1000), output_tokens: Some(50), ..Usage::default() },
            billing: None,
        },
        _ => Event::ModelRequest {
            turn: nth,
            provider: "local".to_owned(),
            model: "m".to_owned(),
            messages: 100,
        },
    }
}
