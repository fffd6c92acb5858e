//! Speed of writing and verifying records, compared with disk and hash alone.
//!
//! `cargo bench --bench journal`, and `cargo bench --bench journal -- resume` for resuming long
//! sessions. Exits with 1 if a promised figure is missed.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on has nothing to say")]
#![expect(clippy::cast_precision_loss, reason = "rates for people")]
#![expect(clippy::disallowed_types, reason = "the process that is measured is this program again")]

#[path = "support/resume.rs"]
mod resume;
#[path = "support/table.rs"]
mod table;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use posse::journal::{FileJournal, verify_session};
use posse_actors::conversation::{ContentPart, Prompt, SessionId};
use posse_actors::event::{Durability, Event, FORMAT_VERSION, RecordId, StoredRecord};
use posse_actors::ports::{
    Action, CallContext, JournalBatch, JournalStore, NoCheckpoints, NoGrants, NoHooks,
    PermittedCall, PortFuture, Ports, Prepared, RunContext, SideEffect, Tool, ToolError,
    ToolOutput, ToolSpec, Toolbox,
};
use posse_actors::root_session::{SessionEnding, SessionHandle, SessionSettings};
use posse_actors::testing::{CountedIds, ModelStep, ScriptedModel, TokioClock, allow_all};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const RECORDS: u32 = 100_000;
/// Records in one batch: about as many as arrive while the disk is busy.
const BATCH: u32 = 64;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["resume", ..] => return resume::main(),
        [resume::CHILD, dir] => return resume::child(Path::new(dir)),
        _ => (),
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut good = true;

    let (took, bytes) = runtime.block_on(appended(&dir.path().join("direct"), "x", 0));
    let rate = f64::from(RECORDS) / took.as_secs_f64();
    good &= table::at_least("records through FileJournal", rate, 100_000.0, "/s");
    let floor = written(&dir.path().join("floor"), bytes);
    let floor = f64::from(RECORDS) / floor.as_secs_f64();
    table::fact("  the same bytes written and synced at once", floor, "/s");

    let took = runtime.block_on(noted(&dir.path().join("kernel")));
    let rate = f64::from(RECORDS) / took.as_secs_f64();
    good &= table::at_least("records through TranscriptWriter", rate, 100_000.0, "/s");

    let large = dir.path().join("large");
    let (_, bytes) = runtime.block_on(appended(&large, "x", 1000));
    let mut records = 0;
    let took = table::best(3, || records = verify_session(&large, "s").unwrap().records);
    assert_eq!(records, u64::from(RECORDS));
    let rate = bytes as f64 / took.as_secs_f64() / 1e6;
    good &= table::at_least("verify", rate, 200.0, "MB/s");
    let data = vec![b'x'; usize::try_from(bytes).unwrap()];
    let took = table::best(3, || assert_ne!(Sha256::digest(&data)[..], [0; 32]));
    let rate = bytes as f64 / took.as_secs_f64() / 1e6;
    table::fact("  SHA-256 of as many bytes", rate, "MB/s");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn record(number: u32, text: &str) -> Arc<StoredRecord> {
    Arc::new(StoredRecord {
        v: FORMAT_VERSION,
        record: u64::from(number),
        ts: 1_795_300_000_000,
        id: RecordId { process: 7, count: number },
        session_id: SessionId::new("s"),
        origin: None,
        event: Event::UserMessage { content: vec![ContentPart::text(text)], message_id: None },
    })
}

/// Appends `RECORDS` records, each with the repeated `text`, to a journal in `dir`. Returns the
/// time and the size of the journal in bytes.
async fn appended(dir: &Path, text: &str, repeated: usize) -> (Duration, u64) {
    let text = text.repeat(repeated.max(60));
    let batches: Vec<Vec<Arc<StoredRecord>>> = (0..RECORDS)
        .step_by(BATCH as usize)
        .map(|from| (from + 1..=(from + BATCH).min(RECORDS)).map(|n| record(n, &text)).collect())
        .collect();
    let journal = FileJournal::lock(dir, SessionId::new("s")).unwrap();
    let opened = journal.open().await.unwrap();
    let (done, ends) = mpsc::channel();
    let start = Instant::now();
    for records in batches {
        let done = done.clone();
        opened.journal.submit(JournalBatch {
            records,
            durability: Durability::Synced,
            done: Box::new(move |end| done.send(end.unwrap().last_record).unwrap()),
        });
    }
    drop(done);
    assert_eq!(ends.iter().max(), Some(u64::from(RECORDS)));
    let took = start.elapsed();
    drop((opened, journal));
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    (took, files.map(|file| file.len()).sum())
}

fn written(file: &Path, bytes: u64) -> Duration {
    let data = vec![b'x'; usize::try_from(bytes).unwrap()];
    let start = Instant::now();
    let mut file = File::create(file).unwrap();
    file.write_all(&data).unwrap();
    file.sync_data().unwrap();
    start.elapsed()
}

/// A tool that sends `RECORDS` events, which the kernel records like all others.
struct Talkative(ToolSpec);

impl Tool for Talkative {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, _: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let action = Action {
            tool: self.0.name.clone(),
            operations: Vec::new(),
            summary: "talk".to_owned(),
            detail: String::new(),
            digest: "0".repeat(64),
        };
        Box::pin(std::future::ready(Ok(Prepared { action, payload: Box::new(()) })))
    }

    fn run(&self, _: PermittedCall, context: RunContext) -> PortFuture<ToolOutput> {
        Box::pin(async move {
            for _ in 0..RECORDS {
                let message = "a fact that deserves a line of its own in the journal".to_owned();
                context.facts.send(Event::Warning { message }).await.unwrap();
            }
            ToolOutput::text("said")
        })
    }
}

/// Time until the records of a tool call are on disk.
async fn noted(dir: &Path) -> Duration {
    let mut tools = Toolbox::default();
    let spec = ToolSpec {
        name: "talk".to_owned(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
        side_effect: SideEffect::None,
        source: "programmatic".to_owned(),
        annotations: posse_actors::ports::ToolAnnotations::default(),
    };
    assert!(tools.register(Arc::new(Talkative(spec))).is_ok());
    let steps = vec![ModelStep::call("talk", "{}"), ModelStep::say("done")];
    let ports = Ports {
        provider: Arc::new(ScriptedModel::new(steps)),
        fallbacks: Vec::new(),
        tools: Arc::new(tools),
        hooks: Arc::new(NoHooks),
        policy: allow_all(),
        grants: Arc::new(NoGrants),
        checkpoints: Arc::new(NoCheckpoints),
        journal: Arc::new(FileJournal::lock(dir, SessionId::new("s")).unwrap()),
        clock: Arc::new(TokioClock::default()),
        ids: Arc::new(CountedIds::default()),
    };
    let settings = SessionSettings {
        tools: vec!["talk".to_owned()],
        ..SessionSettings::new(SessionId::new("s"), "/", "build")
    };
    let session = SessionHandle::start(ports, settings).await.unwrap();
    let start = Instant::now();
    session.prompt(Prompt::text("talk")).await.unwrap().outcome().await.unwrap();
    let reason = posse_actors::event::SessionEndReason::Completed;
    session.end(SessionEnding { reason, exit_code: 0, result: None, error: None }).await;
    let took = start.elapsed();
    let verified = verify_session(dir, "s").unwrap();
    assert!(verified.records >= u64::from(RECORDS), "{verified:?}");
    took
}
