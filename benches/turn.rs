//! Cost of a turn without model and tool: 1,000 turns through the whole kernel.
//!
//! `cargo bench --bench turn`. Exits with 1 if a promised figure is missed.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on has nothing to say")]

#[path = "support/table.rs"]
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posse::journal::{FileJournal, MemoryJournal};
use posse_actors::conversation::{Prompt, SessionId};
use posse_actors::limits::Limits;
use posse_actors::ports::{JournalStore, NoCheckpoints, NoGrants, NoHooks, Ports, Toolbox};
use posse_actors::root_session::{SessionEnding, SessionHandle, SessionSettings};
use posse_actors::testing::{
    CountedIds, EchoTool, ModelStep, ScriptedModel, TokioClock, allow_all,
};

const TURNS: u32 = 1000;
/// Milliseconds that a turn may take.
const MILLISECONDS_MAX: f64 = 0.8;

fn main() -> ExitCode {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let per_turn = |took: Duration| took.as_secs_f64() * 1e3 / f64::from(TURNS);
    let memory = runtime.block_on(turns(Arc::new(MemoryJournal::default())));
    table::fact("a turn with a read-only call, journal in memory", per_turn(memory), "ms");
    let journal = FileJournal::lock(&dir.path().join("s"), SessionId::new("s")).unwrap();
    let file = per_turn(runtime.block_on(turns(Arc::new(journal))));
    let good = table::at_most(
        "a turn with a read-only call, journal in files",
        file,
        MILLISECONDS_MAX,
        "ms",
    );
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn turns(journal: Arc<dyn JournalStore>) -> Duration {
    let mut steps: Vec<ModelStep> =
        (0..TURNS).map(|nth| ModelStep::call("echo", &format!("{{\"text\":\"{nth}\"}}"))).collect();
    steps.push(ModelStep::say("done"));
    let mut tools = Toolbox::default();
    assert!(tools.register(Arc::new(EchoTool::new())).is_ok());
    let ports = Ports {
        provider: Arc::new(ScriptedModel::new(steps)),
        fallbacks: Vec::new(),
        tools: Arc::new(tools),
        hooks: Arc::new(NoHooks),
        policy: allow_all(),
        grants: Arc::new(NoGrants),
        checkpoints: Arc::new(NoCheckpoints),
        journal,
        clock: Arc::new(TokioClock::default()),
        ids: Arc::new(CountedIds::default()),
    };
    let settings = SessionSettings {
        system_prompt: "You are a bench.".to_owned(),
        tools: vec!["echo".to_owned()],
        limits: Limits { turns_max: TURNS + 1, ..Limits::default() },
        ..SessionSettings::new(SessionId::new("s"), "/", "build")
    };
    let session = SessionHandle::start(ports, settings).await.unwrap();
    let start = Instant::now();
    let outcome = session.prompt(Prompt::text("go")).await.unwrap().outcome().await.unwrap();
    let reason = posse_actors::event::SessionEndReason::Completed;
    session.end(SessionEnding { reason, exit_code: 0, result: None, error: None }).await;
    assert_eq!(outcome.turns, TURNS + 1);
    start.elapsed()
}
