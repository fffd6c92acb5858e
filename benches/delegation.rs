//! Cost of a subagent without its model: sequential, and 1,000 with 50 at once.
//!
//! `cargo bench --bench delegation`. Exits with 1 if a promised figure is missed.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on has nothing to say")]

#[path = "support/table.rs"]
mod table;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posse::journal::FileJournal;
use posse_actors::conversation::{Message, Prompt, SessionId};
use posse_actors::delegation::{Delegation, Subagent};
use posse_actors::governor::GovernorLimits;
use posse_actors::limits::Limits;
use posse_actors::outcome::Ending;
use posse_actors::ports::{NoCheckpoints, NoGrants, NoHooks, Ports, Toolbox};
use posse_actors::root_session::{SessionEnding, SessionHandle, SessionSettings};
use posse_actors::testing::{CountedIds, ModelStep, ScriptedModel, TokioClock, allow_all};

const ONE_BY_ONE: usize = 200;
const LIVE: usize = 50;
const ALL: usize = 1000;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The idle ones first: memory that was used before would be used again.
    let good =
        [runtime.block_on(idle()), runtime.block_on(one_by_one()), runtime.block_on(thousand())];
    if good.into_iter().all(|good| good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A delegation to the agent `scout`: tool name and arguments. `nth` makes the task unique; `more`
/// adds JSON members.
fn call(nth: usize, more: &str) -> (String, String) {
    let arguments = format!(r#"{{"agent":"scout","task":"look {nth}"{more}}}"#);
    ("delegate_agent".to_owned(), arguments)
}

type Moments = Arc<Mutex<Vec<Instant>>>;

/// A model step that stores the time of its request in `moments`, then performs `step`.
fn noted(moments: &Moments, step: impl Fn() -> ModelStep + Send + 'static) -> ModelStep {
    let moments = Arc::clone(moments);
    ModelStep::Computed(Box::new(move |_: &[Arc<Message>]| {
        moments.lock().unwrap().push(Instant::now());
        step()
    }))
}

/// Measures the time from the reply that starts a subagent to the subagent's first model request.
/// Returns true if the median is within its bound.
async fn one_by_one() -> bool {
    let (asked, began) = (Moments::default(), Moments::default());
    let mut steps: Vec<ModelStep> = (0..ONE_BY_ONE)
        .map(|nth| noted(&asked, move || ModelStep::Call(vec![call(nth, "")])))
        .collect();
    steps.push(ModelStep::say("done"));
    let scout = (0..ONE_BY_ONE).map(|_| noted(&began, || ModelStep::say("so"))).collect();
    let session = BenchSession::start(steps, scout, 1).await;
    session.play().await;
    let (asked, began) = (asked.lock().unwrap(), began.lock().unwrap());
    let mut took: Vec<Duration> = began.iter().zip(&*asked).map(|(to, from)| *to - *from).collect();
    took.sort_unstable();
    let median = took[took.len() / 2].as_secs_f64() * 1e3;
    table::fact("the same, worst of 200", took[took.len() - 1].as_secs_f64() * 1e3, "ms");
    table::at_most("one delegation, wish to first request, median", median, 5.0, "ms")
}

/// Measures the memory of 50 subagents that wait for their models. Returns true if it is within its
/// bound.
async fn idle() -> bool {
    let all = (0..LIVE).map(|nth| call(nth, r#","wait":false"#)).collect();
    let scout = (0..LIVE).map(|_| ModelStep::Hang(String::new())).collect();
    let session =
        BenchSession::start(vec![ModelStep::Call(all), ModelStep::say("done")], scout, LIVE).await;
    let before = resident();
    session.prompt().await;
    let per_child = (resident() - before) / f64::from(u32::try_from(LIVE).unwrap());
    session.end().await;
    table::fact("fifty idle agents together", per_child * 50.0, "MB");
    table::at_most("resident memory of an idle agent", per_child, 1.5, "MB")
}

async fn thousand() -> bool {
    let looked = Moments::default();
    let mut steps: Vec<ModelStep> = (0..ALL / LIVE)
        .map(|turn| ModelStep::Call((0..LIVE).map(|nth| call(turn * LIVE + nth, "")).collect()))
        .collect();
    steps.push(noted(&looked, || ModelStep::call("agent_status", "{}")));
    steps.push(noted(&looked, || ModelStep::say("done")));
    let scout = (0..ALL).map(|_| ModelStep::say("so")).collect();
    let session = BenchSession::start(steps, scout, LIVE).await;
    let (start, before) = (Instant::now(), resident());
    session.play().await;
    table::fact("a thousand agents, fifty at once, wall", start.elapsed().as_secs_f64(), "s");
    table::fact("resident memory that they leave", resident() - before, "MB");
    let looked = looked.lock().unwrap();
    let listing = (looked[1] - looked[0]).as_secs_f64() * 1e3;
    table::at_most("listing a thousand agents, one turn", listing, 100.0, "ms")
}

/// Resident memory of this process in MB.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u32 = text.split(' ').nth(1).unwrap().parse().unwrap();
    f64::from(pages) * 4096.0 / 1e6
}

struct BenchSession {
    session: SessionHandle,
    _dir: tempfile::TempDir,
}

impl BenchSession {
    async fn start(steps: Vec<ModelStep>, scout: Vec<ModelStep>, live: usize) -> BenchSession {
        let dir = tempfile::tempdir().unwrap();
        let journal = FileJournal::lock(&dir.path().join("s"), SessionId::new("s")).unwrap();
        let ports = Ports {
            provider: Arc::new(ScriptedModel::new(steps)),
            fallbacks: Vec::new(),
            tools: Arc::new(Toolbox::default()),
            hooks: Arc::new(NoHooks),
            policy: allow_all(),
            grants: Arc::new(NoGrants),
            checkpoints: Arc::new(NoCheckpoints),
            journal: Arc::new(journal),
            clock: Arc::new(TokioClock::default()),
            ids: Arc::new(CountedIds::default()),
        };
        let subagent = Subagent {
            name: "scout".to_owned(),
            system_prompt: "You are a bench.".to_owned(),
            tools: Vec::new(),
            provider: Some(Arc::new(ScriptedModel::new(scout).named("scout"))),
            thinking: None,
            temperature: None,
            price: None,
            calls: Vec::new(),
            turns_max: None,
            duration_max: None,
            depth_max: None,
            isolated: false,
        };
        let delegation = Delegation {
            main_calls: vec!["scout".to_owned()],
            subagents: vec![subagent],
            limits: GovernorLimits {
                live_max: u32::try_from(live).unwrap(),
                total_max: 10_000,
                ..GovernorLimits::default()
            },
            turns_max: 10,
            ..Delegation::default()
        };
        let turns_max = 2 * u32::try_from(ONE_BY_ONE).unwrap();
        let settings = SessionSettings {
            system_prompt: "You are a bench.".to_owned(),
            limits: Limits { turns_max, parallel_calls_max: LIVE, ..Limits::default() },
            delegation: Some(delegation),
            ..SessionSettings::new(SessionId::new("s"), "/", "build")
        };
        let session = SessionHandle::start(ports, settings).await.unwrap();
        BenchSession { session, _dir: dir }
    }

    async fn prompt(&self) {
        let running = self.session.prompt(Prompt::text("go")).await.unwrap();
        let outcome = running.outcome().await.unwrap();
        assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    }

    async fn end(self) {
        let reason = posse_actors::event::SessionEndReason::Completed;
        self.session.end(SessionEnding { reason, exit_code: 0, result: None, error: None }).await;
    }

    async fn play(self) {
        self.prompt().await;
        self.end().await;
    }
}
