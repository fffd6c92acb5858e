//! Checkpoints: one before the first effect of each run, none without effects, and no effect
//! without one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use posse_actors::conversation::{Message, text_of};
use posse_actors::event::Event;
use posse_actors::ports::{
    CheckpointProgress, CheckpointRequest, CheckpointStore, PortFuture, TakenCheckpoint,
};
use posse_actors::root_session::UserCall;
use posse_actors::testing::{ModelStep, RunCounter, SessionBuilder, WritingTool};
use tokio::sync::Notify;

use crate::support::{count, end, play, soon};

/// Store that records its calls.
#[derive(Debug, Default)]
struct Notes {
    said: Mutex<Vec<String>>,
    /// Reason why checkpoints fail; `None`: they do not.
    fails: Mutex<Option<String>>,
    /// If it is set, taking waits for it.
    held: Option<Arc<Notify>>,
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
