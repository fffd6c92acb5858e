//! Results of subagents that did not finish: they report the progress, and never that nothing
//! happened.

use std::time::Duration;

use posse_actors::event::{StoredRecord, ToolFailureClass};
use posse_actors::replay::replay;
use posse_actors::root_session::{PromptError, Resumption};
use posse_actors::testing::{GuardedTool, HangingTool, ManualClock, MemoryStore};

use crate::support::check_pairs;

use super::*;

/// A main agent with a subagent that follows `steps`.
fn with_worker(
    main: Vec<ModelStep>,
    steps: Vec<ModelStep>,
) -> (SessionBuilder, Arc<ScriptedModel>) {
    let worker = model("worker", steps);
    let mut bench = SessionBuilder::new(main)
        .tool(WritingTool::new(RunCounter::default()))
        .tool(HangingTool::new(RunCounter::default()));
    bench.limits = quick();
    let tools = ["echo", "write", "hang"];
    bench.delegation = Some(delegation(vec![subagent("worker", &worker, &tools, &[])]));
    (bench, worker)
}

/// Another process on the journal of `records`.
fn second(
    records: &[StoredRecord],
    main: Vec<ModelStep>,
    steps: Vec<ModelStep>,
) -> (SessionBuilder, Arc<ScriptedModel>) {
    let (mut bench, worker) = with_worker(main, steps);
    bench.journal = Arc::new(MemoryStore::of(records.to_vec()));
    bench.process = 2;
    bench.resumption =
        Some(Resumption { replayed: replay(records, None), ..Resumption::default() });
    (bench, worker)
}

fn of_worker(record: &StoredRecord) -> bool {
    record.origin.as_ref().is_some_and(|origin| origin.agent == "worker")
}

/// The results of all calls in the last request.
fn told(model: &ScriptedModel) -> Vec<String> {
    let last = model.requests().pop().unwrap();
    let result = |message: &Arc<Message>| match &**message {
        Message::Tool { content, .. } => Some(text_of(content)),
        _ => None,
    };
    last.iter().filter_map(result).collect()
}

#[tokio::test]
async fn stopped_call_reports_progress_and_how_to_resume() {
    let steps = vec![
        ModelStep::calls("write", &["a.txt"]),
        ModelStep::calls("echo", &["x"]),
        ModelStep::calls("hang", &["make"]),
    ];
    let (bench, _) = with_worker(vec![calls(&["worker"]), ModelStep::say("fine")], steps);
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let begun =
        |event: &Event| matches!(event, Event::ToolOutputDelta { text, .. } if text == "begun");
    soon("the command", stage.until(begun)).await;
    stage.session.interrupt();
    soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(bench.model.requests().len(), 1, "nobody was woken");
    play(&mut stage, "and now?", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    let [result] = told(&bench.model).try_into().unwrap();
    assert!(!result.contains("before it ran"), "{result}");
    for part in [
        "): cancelled\n",
        "3 calls; 2 of them may have changed something:",
        "- write a.txt (done)",
        "- hang make (cut off: whether it took effect is not known)",
        r#"delegate_agent with "resume": "inv-"#,
    ] {
        assert!(result.contains(part), "{part}: {result}");
    }
    let request = format!("{:?}", bench.model.requests()[1]);
    assert_eq!(request.matches("): cancelled").count(), 1, "it is said once: {request}");
    let recorded = seen.iter().any(|one| {
        matches!(one.event(), Event::ToolFailed { name, class, content, .. }
            if name == DELEGATE && *class == ToolFailureClass::Cancelled && text_of(content) == result)
    });
    assert!(recorded);
}

/// The time limit of the main agent expires while its subagent runs.
#[tokio::test]
async fn caller_timeout_does_not_claim_that_nothing_ran() {
    let clock = Arc::new(ManualClock::default());
    let steps = vec![ModelStep::calls("write", &["a.txt"]), ModelStep::Hang("half".to_owned())];
    let (mut bench, _) = with_worker(vec![calls(&["worker"]), ModelStep::say("fine")], steps);
    bench.clock = Arc::clone(&clock) as Arc<dyn posse_actors::ports::Clock>;
    bench.limits.duration_max = Some(Duration::from_mins(1));
    let mut stage = bench.start().await;
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let asked = |event: &Event| matches!(event, Event::ModelRequest { provider, turn: 2, .. } if provider == "worker");
    soon("the worker", stage.until(asked)).await;
    clock.advance(Duration::from_mins(1));
    let outcome = soon("the end", running.outcome()).await.unwrap();
    assert!(matches!(outcome.ending, Ending::Limited { limit: "timeout", .. }));
    // The subagent has no more time than its caller: it ends by itself or is stopped.
    if outcomes(&stage.seen).is_empty() {
        let ended = |event: &Event| matches!(event, Event::DelegationEnded { .. });
        soon("the end of the worker", stage.until(ended)).await;
    }
    let running = stage.session.prompt(Prompt::text("and now?")).await.unwrap();
    soon("the answer", running.outcome()).await.unwrap();
    soon("the end", stage.end()).await;
    let request = format!("{:?}", bench.model.requests()[1]);
    assert!(!request.contains("before it ran"), "{request}");
    assert!(request.contains("- write a.txt (done)"), "{request}");
}

/// For a kill after any record, resumed in single-agent mode: the result of a call whose subagent
/// was running.
#[tokio::test]
async fn single_agent_mode_never_claims_that_a_broken_delegation_changed_nothing() {
    let steps = vec![
        ModelStep::calls("write", &["a.txt"]),
        ModelStep::calls("echo", &["x"]),
        ModelStep::say("It is written."),
    ];
    let (bench, _) = with_worker(vec![calls(&["worker"]), ModelStep::say("fine")], steps);
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    stage.end().await;
    let whole = bench.journal.records();
    let started = |record: &StoredRecord| matches!(record.event, Event::InvocationRequested { .. });
    let over = |record: &StoredRecord| matches!(&record.event, Event::ToolCompleted { name, .. } if name == DELEGATE);
    let (from, to) =
        (whole.iter().position(started).unwrap() + 1, whole.iter().position(over).unwrap());
    let mut wrote = 0;
    for length in from..=to {
        let prefix = &whole[..length];
        let (mut bench, _) = second(prefix, vec![ModelStep::say("so")], Vec::new());
        bench.delegation = None;
        let stage = bench.start().await;
        let running = stage.session.resume().await.unwrap();
        soon("the answer", running.outcome()).await.unwrap();
        stage.end().await;
        let [result] = told(&bench.model).try_into().unwrap();
        assert!(!result.contains("changes nothing"), "{length}: {result}");
        let ended =
            prefix.iter().any(|record| matches!(&record.event, Event::InvocationCompleted { .. }));
        let begun = prefix
            .iter()
            .any(|record| matches!(&record.event, Event::ToolStarted { effect: true, .. }));
        if ended {
            assert!(result.contains("): done\n<agent-answer>\nIt is written."), "{result}");
        } else if begun {
            assert!(result.contains("is not known"), "{length}: {result}");
            assert!(result.contains("- write a.txt ("), "{length}: {result}");
            wrote += 1;
        }
        let unknown = bench.journal.events().into_iter().filter(
            |event| matches!(event, Event::ToolOutcomeUnknown { name, .. } if name == DELEGATE),
        );
        assert_eq!(unknown.count(), 1, "{length}: it is recorded as what it is");
        check_main_pairs(&bench.journal.records());
    }
    assert!(wrote > 3);
}

/// The subagent keeps its state: it is not resumed here.
fn check_main_pairs(records: &[StoredRecord]) {
    let main: Vec<StoredRecord> =
        records.iter().filter(|record| !of_worker(record)).cloned().collect();
    check_pairs(&main);
}

#[tokio::test]
async fn result_after_a_stop_starts_no_run_in_any_process() {
    let (gate, background) = (Arc::new(Notify::new()), r#","wait":false"#);
    let main = vec![ModelStep::Call(vec![call("worker", background)]), ModelStep::say("so long")];
    let (bench, _) = with_worker(main, vec![ModelStep::after(&gate, ModelStep::say("found"))]);
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    gate.notify_one();
    let ended = |event: &Event| matches!(event, Event::MessageQueued { .. });
    soon("its end", stage.until(ended)).await;
    let records = bench.journal.records();
    // Killed before the message was written, and after it.
    for length in [records.len() - 1, records.len()] {
        let prefix = &records[..length];
        assert!(!replay(prefix, None).is_unfinished(), "{length}");
        let (bench, _) = second(prefix, vec![ModelStep::say("good")], Vec::new());
        let stage = bench.start().await;
        let woken = stage.session.resume().await;
        assert_eq!(woken.err(), Some(PromptError::NothingUnfinished), "{length}");
        assert_eq!(bench.model.requests().len(), 0);
        let running = stage.session.prompt(Prompt::text("and now?")).await.unwrap();
        soon("the answer", running.outcome()).await.unwrap();
        stage.end().await;
        let request = format!("{:?}", bench.model.requests()[0]);
        assert_eq!(request.matches("found").count(), 1, "it is read with the next prompt");
    }
}

/// The run time of a subagent counts in the next process, without the time between the processes.
#[tokio::test]
async fn run_time_of_a_subagent_carries_over_to_the_next_process() {
    let minute = Duration::from_mins(1);
    let clock = Arc::new(ManualClock::default());
    let steps = vec![ModelStep::calls("echo", &["x"]), ModelStep::Hang("half".to_owned())];
    let (mut bench, _) = with_worker(vec![calls(&["worker"])], steps);
    let hour = |bench: &mut SessionBuilder| {
        let delegation = bench.delegation.as_mut().unwrap();
        delegation.subagents[0].duration_max = Some(60 * minute);
    };
    hour(&mut bench);
    bench.clock = Arc::clone(&clock) as Arc<dyn posse_actors::ports::Clock>;
    let mut stage = bench.start().await;
    let _running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let asked = |event: &Event| matches!(event, Event::ModelRequest { provider, turn: 2, .. } if provider == "worker");
    soon("the worker", stage.until(asked)).await;
    clock.advance(40 * minute);
    // Writes a record here: the subagent has run until now.
    stage.session.warn("here".to_owned());
    let warned = |event: &Event| matches!(event, Event::Warning { .. });
    soon("the record", stage.until(warned)).await;
    let records = bench.journal.records();
    let worked = Duration::from_millis(replay(&records, None).delegated[0].worked_ms);
    assert!(worked >= 40 * minute && worked < 41 * minute, "{worked:?}");

    let later = Arc::new(ManualClock::default());
    later.advance(5000 * minute);
    let main = vec![ModelStep::say("too late")];
    let (mut next, again) = second(&records, main, vec![ModelStep::Hang("again".to_owned())]);
    hour(&mut next);
    next.clock = Arc::clone(&later) as Arc<dyn posse_actors::ports::Clock>;
    let mut stage = next.start().await;
    let running = stage.session.resume().await.unwrap();
    let half = |event: &Event| matches!(event, Event::ModelRequest { provider, .. } if provider == "worker");
    soon("the worker", stage.until(half)).await;
    later.advance(19 * minute);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(next.model.requests().len(), 0, "it has a minute left");
    later.advance(2 * minute);
    soon("its end", running.outcome()).await.unwrap();
    stage.end().await;
    assert_eq!(again.requests().len(), 1);
    assert!(told(&next.model)[0].contains("the limit timeout"), "{:?}", told(&next.model));
}

/// Records after the remaining ones are lost: it is unknown if the open calls ran.
#[tokio::test]
async fn open_calls_of_a_subagent_do_not_run_again_after_damage() {
    let (bench, _) = with_worker(
        vec![calls(&["worker"]), ModelStep::say("fine")],
        vec![ModelStep::calls("write", &["a.txt"]), ModelStep::say("done")],
    );
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    stage.end().await;
    let whole = bench.journal.records();
    let wished = |record: &StoredRecord| {
        of_worker(record) && matches!(record.event, Event::ToolRequested { .. })
    };
    let prefix = &whole[..=whole.iter().position(wished).unwrap()];
    for lost in [false, true] {
        let runs = Arc::new(std::sync::atomic::AtomicU32::default());
        let count = Arc::clone(&runs);
        let (mut bench, worker) =
            second(prefix, vec![ModelStep::say("so")], vec![ModelStep::say("I looked")]);
        let mut tools = posse_actors::ports::Toolbox::default();
        let guarded = GuardedTool::with_effect(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        });
        tools.register(Arc::new(guarded.named("write"))).ok();
        bench.tools = tools;
        let resumption = bench.resumption.as_mut().unwrap();
        resumption.lost = lost;
        if lost {
            resumption.replayed.mark_uncertain();
        }
        let stage = bench.start().await;
        let running = stage.session.resume().await.unwrap();
        soon("the answer", running.outcome()).await.unwrap();
        stage.end().await;
        let ran = runs.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(ran, u32::from(!lost), "lost: {lost}");
        let read = format!("{:?}", worker.requests()[0]);
        assert_eq!(read.contains("It may have run. Look before"), lost, "{read}");
        assert_eq!(read.contains("Part of the journal of this session was damaged"), lost);
        assert_eq!(history_error(&worker.requests()[0]), None);
    }
}
