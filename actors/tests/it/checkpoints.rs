//! Checkpoints: one before the first effect of each run, none without effects, and no effect
//! without one.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use posse_actors::conversation::{Message, text_of};
use posse_actors::event::{Event, PermissionMode};
use posse_actors::ports::{
    Action, CallContext, CheckpointCoverage, CheckpointProgress, CheckpointRequest,
    CheckpointStore, CommandDeletions, Operation, PermittedCall, Policy, PortFuture, Prepared,
    RunContext, SideEffect, Situation, TakenCheckpoint, Tool, ToolAnnotations, ToolError,
    ToolOutput, ToolSpec, Verdict,
};
use posse_actors::root_session::UserCall;
use posse_actors::testing::{
    ModelStep, RunCounter, SessionBuilder, WritingTool, ask_all, test_confinement,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Do, count, end, play, soon};

/// Store that records its calls.
#[derive(Debug, Default)]
struct Notes {
    said: Mutex<Vec<String>>,
    /// Reason why checkpoints fail; `None`: they do not.
    fails: Mutex<Option<String>>,
    /// If it is set, taking waits for it.
    held: Option<Arc<Notify>>,
    /// Answers about the coverage of deleted files, in order. Without one: not covered.
    coverage: Mutex<VecDeque<CheckpointCoverage>>,
}

impl Notes {
    fn say(&self, what: String) {
        self.said.lock().unwrap().push(what);
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

/// The store as a port: the session and the test share it.
#[derive(Debug, Clone)]
struct NotesStore(Arc<Notes>);

impl CheckpointStore for NotesStore {
    fn prepare(&self, progress: CheckpointProgress) {
        self.0.say("prepare".to_owned());
        progress(500, 1000);
    }

    fn take(
        &self,
        request: CheckpointRequest,
        _: CheckpointProgress,
    ) -> PortFuture<Result<Option<TakenCheckpoint>, String>> {
        let notes = Arc::clone(&self.0);
        Box::pin(async move {
            if let Some(held) = &notes.held {
                held.notified().await;
            }
            notes.say(format!("take before {}", request.title));
            if let Some(reason) = notes.fails.lock().unwrap().clone() {
                return Err(reason);
            }
            let id = notes.said().iter().filter(|said| said.starts_with("take")).count() as u64;
            Ok(Some(TakenCheckpoint { id, files: 3, bytes: 9, left_out: String::new() }))
        })
    }

    fn finish(&self, id: u64) -> PortFuture<Result<(), String>> {
        self.0.say(format!("finish {id}"));
        Box::pin(async { Ok(()) })
    }

    fn coverage(
        &self,
        paths: Vec<String>,
        id: Option<u64>,
    ) -> PortFuture<Result<CheckpointCoverage, String>> {
        let by = id.map_or_else(|| "now".to_owned(), |id| id.to_string());
        self.0.say(format!("coverage of {} by {by}", paths.join(" ")));
        let found = self.0.coverage.lock().unwrap().pop_front();
        Box::pin(async move { Ok(found.unwrap_or(CheckpointCoverage::None)) })
    }

    fn close(&self) -> PortFuture<()> {
        self.0.say("close".to_owned());
        Box::pin(async {})
    }
}

fn bench(script: Vec<ModelStep>, notes: &Arc<Notes>) -> (SessionBuilder, RunCounter) {
    let counter = RunCounter::default();
    let mut bench = SessionBuilder::new(script).tool(WritingTool::new(counter.clone()));
    bench.checkpoints = Arc::new(NotesStore(Arc::clone(notes)));
    (bench, counter)
}

fn write() -> (String, String) {
    ("write".to_owned(), r#"{"text":"a"}"#.to_owned())
}

fn echo() -> (String, String) {
    ("echo".to_owned(), r#"{"text":"a"}"#.to_owned())
}

#[tokio::test]
async fn a_run_with_effects_has_one_checkpoint() {
    let notes = Arc::<Notes>::default();
    let script = vec![
        ModelStep::say("a run without calls stores nothing"),
        ModelStep::Call(vec![echo()]),
        ModelStep::Call(vec![write(), write()]),
        ModelStep::Call(vec![write()]),
        ModelStep::say("done"),
        ModelStep::Call(vec![echo()]),
        ModelStep::say("nothing changed"),
        ModelStep::Call(vec![write()]),
        ModelStep::say("done again"),
    ];
    let (bench, _) = bench(script, &notes);
    let mut stage = bench.start().await;
    for prompt in ["zero", "one", "two", "three"] {
        play(&mut stage, prompt, &[]).await.unwrap();
    }
    let call = UserCall {
        tool: "write".to_owned(),
        arguments: r#"{"text":"a"}"#.to_owned(),
        said: String::new(),
    };
    let running = stage.session.call(call).await.unwrap();
    soon("the call", running.outcome()).await.unwrap();
    let seen = end(&bench, stage).await;
    let expected = [
        "prepare",
        "take before one",
        "finish 1",
        "prepare",
        "prepare",
        "take before three",
        "finish 2",
        "prepare",
        "take before write",
        "finish 3",
        "close",
    ];
    assert_eq!(notes.said(), expected);
    assert_eq!(count(&seen, "checkpoint.created"), 3);
    assert!(count(&seen, "checkpoint.progress") >= 1);
    // The checkpoint precedes the intent.
    let records = bench.journal.records();
    let at = |wanted: fn(&Event) -> bool| records.iter().position(|one| wanted(&one.event));
    let created = at(|event| matches!(event, Event::CheckpointCreated { checkpoint: 1, .. }));
    let started = at(|event| matches!(event, Event::ToolStarted { effect: true, .. }));
    assert!(created.unwrap() < started.unwrap());
}

#[tokio::test]
async fn without_a_checkpoint_no_effect_begins() {
    let notes = Arc::<Notes>::default();
    *notes.fails.lock().unwrap() = Some("no space is left on the disk".to_owned());
    let script = vec![
        ModelStep::Call(vec![write()]),
        ModelStep::Call(vec![echo()]),
        ModelStep::say("I stop"),
        ModelStep::Call(vec![write()]),
        ModelStep::say("done"),
    ];
    let (bench, counter) = bench(script, &notes);
    let mut stage = bench.start().await;
    play(&mut stage, "one", &[]).await.unwrap();
    assert_eq!(counter.began.load(Ordering::SeqCst), 0);
    let requests = bench.model.requests();
    let told = requests[1].iter().find_map(|message| match &**message {
        Message::Tool { content, .. } => Some(text_of(content)),
        _ => None,
    });
    let told = told.unwrap();
    assert!(told.contains("Not started") && told.contains("no space is left"), "{told}");
    // The session goes on, and the next run has its checkpoint.
    *notes.fails.lock().unwrap() = None;
    play(&mut stage, "two", &[]).await.unwrap();
    assert_eq!(counter.began.load(Ordering::SeqCst), 1);
    let seen = end(&bench, stage).await;
    assert_eq!((count(&seen, "checkpoint.created"), count(&seen, "tool.failed")), (1, 1));
}

#[tokio::test]
async fn a_run_that_is_stopped_while_it_waits_has_no_effect() {
    let held = Arc::new(Notify::new());
    let notes = Arc::new(Notes { held: Some(Arc::clone(&held)), ..Notes::default() });
    let (bench, counter) = bench(vec![ModelStep::Call(vec![write()])], &notes);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(posse_actors::conversation::Prompt::text("one"));
    let running = running.await.unwrap();
    stage.until(|event| matches!(event, Event::ToolRequested { .. })).await;
    stage.session.interrupt();
    soon("the run", running.outcome()).await.unwrap();
    held.notify_waiters();
    let seen = end(&bench, stage).await;
    assert_eq!(counter.began.load(Ordering::SeqCst), 0);
    assert_eq!(count(&seen, "checkpoint.created"), 0);
}

/// Tool that deletes the file `/w/a`, as far as its action says. It counts its runs.
struct DeletingTool(ToolSpec, RunCounter);

impl DeletingTool {
    fn new(counter: RunCounter) -> DeletingTool {
        let spec = ToolSpec {
            name: "delete".to_owned(),
            description: "deletes".to_owned(),
            parameters: json!({"type": "object", "properties": {}, "required": []}),
            side_effect: SideEffect::Process,
            source: "programmatic".to_owned(),
            annotations: ToolAnnotations::default(),
        };
        DeletingTool(spec, counter)
    }
}

impl Tool for DeletingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, _: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
        let operation = Operation::Execute {
            command: "rm a".to_owned(),
            cwd: "/w".to_owned(),
            links: Vec::new(),
            replaces: Vec::new(),
            deletions: CommandDeletions::of(vec!["/w/a".to_owned()]),
            in_trial: false,
            secrets: posse_actors::ports::CommandSecrets::default(),
        };
        let text = || "rm a".to_owned();
        let (summary, detail, digest) = (text(), text(), text());
        let operations = vec![operation];
        let action = Action { tool: "delete".to_owned(), operations, summary, detail, digest };
        Box::pin(async move { Ok(Prepared { action, payload: Box::new(()) }) })
    }

    fn run(&self, _: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
        self.1.began.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { ToolOutput::text("deleted") })
    }
}

/// Policy that allows restorable deletions and calls without deletions, and asks about all others.
struct AsksAboutLoss(Arc<dyn Policy>);

impl Policy for AsksAboutLoss {
    fn judge(&self, action: &Action, situation: &Situation<'_>) -> Verdict {
        if action.deletions().all(|one| one.are_restorable) {
            return Verdict::Allow(test_confinement());
        }
        self.0.judge(action, situation)
    }
}

/// Notes of a session in `mode` whose model calls `delete` `calls` times. The store gives these
/// answers about coverage; a person allows what is asked. Also the numbers of runs of the tool and of
/// questions.
async fn deletions(
    mode: PermissionMode,
    calls: usize,
    coverage: &[CheckpointCoverage],
) -> (Vec<String>, u32, usize) {
    let notes = Arc::<Notes>::default();
    notes.coverage.lock().unwrap().extend(coverage);
    let call = || ModelStep::Call(vec![("delete".to_owned(), "{}".to_owned())]);
    let script = (0..calls).map(|_| call()).chain([ModelStep::say("done")]).collect();
    let counter = RunCounter::default();
    let mut bench = SessionBuilder::new(script).tool(DeletingTool::new(counter.clone()));
    bench.checkpoints = Arc::new(NotesStore(Arc::clone(&notes)));
    bench.policy = Arc::new(AsksAboutLoss(ask_all()));
    let mut stage = bench.start().await;
    stage.session.set_permission_mode(mode, None).await.unwrap();
    play(&mut stage, "go", &[("permission.requested", Do::Allow)]).await.unwrap();
    let seen = end(&bench, stage).await;
    let runs = counter.began.load(Ordering::SeqCst);
    (notes.said(), runs, count(&seen, "permission.requested"))
}

#[tokio::test]
async fn a_deletion_that_the_checkpoint_covers_needs_no_further_checkpoint() {
    use CheckpointCoverage::{Possible, Stored};
    let (said, runs, questions) =
        deletions(PermissionMode::Auto, 2, &[Possible, Stored, Possible, Stored]).await;
    let expected = [
        "prepare",
        "coverage of /w/a by now",
        "take before go",
        "coverage of /w/a by 1",
        "coverage of /w/a by now",
        "coverage of /w/a by 1",
        "finish 1",
        "close",
    ];
    assert_eq!((said, runs, questions), (expected.map(str::to_owned).to_vec(), 2, 0));
}

#[tokio::test]
async fn a_deletion_of_files_that_changed_since_has_a_checkpoint_of_its_own() {
    use CheckpointCoverage::{Possible, Stored};
    let (said, runs, questions) =
        deletions(PermissionMode::Auto, 1, &[Possible, Possible, Stored]).await;
    let expected = [
        "prepare",
        "coverage of /w/a by now",
        "take before go",
        "coverage of /w/a by 1",
        "finish 1",
        "take before go",
        "coverage of /w/a by 2",
        "finish 2",
        "close",
    ];
    assert_eq!((said, runs, questions), (expected.map(str::to_owned).to_vec(), 1, 0));
}

#[tokio::test]
async fn a_deletion_without_a_question_does_not_begin_if_no_checkpoint_has_its_files() {
    use CheckpointCoverage::{None, Possible};
    for coverage in [[Possible, None, None], [Possible, Possible, Possible]] {
        let (_, runs, questions) = deletions(PermissionMode::Auto, 1, &coverage).await;
        assert_eq!((runs, questions), (0, 0), "{coverage:?}");
    }
}

#[tokio::test]
async fn a_deletion_that_no_checkpoint_covers_is_asked_about() {
    let (said, runs, questions) = deletions(PermissionMode::Auto, 1, &[]).await;
    assert_eq!((runs, questions), (1, 1));
    // A person has allowed it, so the checkpoint need not contain the file.
    assert_eq!(said.iter().filter(|said| said.ends_with("by now")).count(), 2, "{said:?}");
    assert!(!said.iter().any(|said| said.ends_with("by 1")), "{said:?}");
    // In other modes the store is not asked.
    let (said, runs, questions) = deletions(PermissionMode::Ask, 1, &[]).await;
    assert_eq!((runs, questions), (1, 1));
    assert!(!said.iter().any(|said| said.starts_with("coverage")), "{said:?}");
}
