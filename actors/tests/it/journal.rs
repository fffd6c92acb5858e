//! A journal that fails or is slow: nothing is announced or started before it is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posse_actors::conversation::Prompt;
use posse_actors::cost::{ModelPricing, PriceLookup, TokenRates};
use posse_actors::event::Event;
use posse_actors::outcome::Ending;
use posse_actors::ports::Clock;
use posse_actors::root_session::{RunningPrompt, TurnOutcome};
use posse_actors::testing::{
    ManualClock, ModelStep, RunCounter, RunningSession, SessionBuilder, WritingTool,
};

use crate::support::{count, end, play, quick, soon};

fn writing(run_counter: &RunCounter) -> SessionBuilder {
    let mut bench =
        SessionBuilder::new(vec![ModelStep::call("write", "{}"), ModelStep::say("done")])
            .tool(WritingTool::new(run_counter.clone()));
    bench.limits = quick();
    bench
}

#[tokio::test]
async fn failed_writes_are_written_once_after_reopening() {
    for times in 1..=3 {
        let run_counter = RunCounter::default();
        let bench = writing(&run_counter);
        let mut stage = bench.start().await;
        stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
        bench.journal.fail(times);
        let outcome = play(&mut stage, "go", &[]).await.unwrap();
        assert_eq!(outcome.ending, Ending::Answered("done".to_owned()), "{times}");
        let seen = end(&bench, stage).await;
        assert_eq!(bench.journal.opened(), times + 1);
        assert_eq!(count(&seen, "actor.restarted"), times as usize);
        assert_eq!(run_counter.began.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn effect_waits_for_its_intent_and_observer_for_the_record() {
    let run_counter = RunCounter::default();
    let bench = writing(&run_counter);
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    bench.journal.block_writes();
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the request", async {
        while bench.model.requests().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0, "no effect without its intent");
    assert!(stage.events.try_next().is_none(), "nothing is announced before it is written");
    bench.journal.release();
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn stop_does_not_wait_for_the_disk() {
    let run_counter = RunCounter::default();
    let bench = writing(&run_counter);
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    bench.journal.block_writes();
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the request", async {
        while bench.model.requests().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    stage.session.interrupt();
    let outcome = soon("stopping", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Interrupted);
    bench.journal.release();
    let seen = end(&bench, stage).await;
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    assert_eq!(count(&seen, "tool.failed"), 1);
}

#[tokio::test]
async fn permanently_broken_journal_parks_the_session() {
    let run_counter = RunCounter::default();
    let bench = writing(&run_counter);
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    bench.journal.fail(u32::MAX);
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    let Ending::Failed { class, cause } = outcome.ending else { panic!("{outcome:?}") };
    assert_eq!(class, "journal");
    assert!(cause.contains("the journal cannot be written: disk full"), "{cause}");
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    let seen = soon("the end", stage.end()).await;
    let parked = seen.iter().find_map(|seen| match seen.event() {
        Event::SessionParked { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert!(parked.unwrap().contains("the journal cannot be written"));
    assert!(matches!(seen.last().unwrap().event(), Event::SessionEnded { .. }));
    let stored = seen.iter().filter(|seen| seen.record().is_some()).count();
    assert_eq!(stored, bench.journal.records().len(), "only what was written was announced so");
}

#[tokio::test]
async fn immediate_end_after_start_is_orderly() {
    let bench = SessionBuilder::new(Vec::new());
    let stage = bench.start().await;
    let (one, two) = (stage.session.clone(), stage.session.clone());
    let ending = || posse_actors::root_session::SessionEnding {
        reason: posse_actors::event::SessionEndReason::Completed,
        exit_code: 0,
        result: None,
        error: None,
    };
    let both = futures_util::future::join(one.end(ending()), two.end(ending()));
    soon("both ends", both).await;
    let seen = end(&bench, stage).await;
    assert_eq!((count(&seen, "session.started"), count(&seen, "session.ended")), (1, 1));
    let last = Arc::clone(seen.last().unwrap());
    assert!(matches!(last.event(), Event::SessionEnded { .. }));
}

#[tokio::test]
async fn last_record_contains_the_cost() {
    let cost = |price: Option<PriceLookup>| async move {
        let mut bench = SessionBuilder::new(vec![ModelStep::say("done")]);
        bench.price = price;
        let mut stage = bench.start().await;
        play(&mut stage, "go", &[]).await.unwrap();
        let seen = end(&bench, stage).await;
        match seen.last().unwrap().event() {
            Event::SessionEnded { cost_usd, .. } => *cost_usd,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(cost(None).await, None);
    assert_eq!(cost(Some(PriceLookup::new(ModelPricing::default))).await, None);
    // Ten tokens read at $5 a million, two written at $100.
    let (input, output) = (5_000_000, 100_000_000);
    let (cached_input, cache_write) = (None, None);
    let rates = TokenRates { input, output, cached_input, cache_write, version: "test".to_owned() };
    assert_eq!(cost(Some(PriceLookup::fixed(rates))).await, Some(0.000_25));
}

/// A bench whose disk is full, or nearly, from the moment the prompt is given.
async fn without_room(
    run_counter: &RunCounter,
    clock: &Arc<ManualClock>,
    take: impl Fn(&SessionBuilder),
) -> (SessionBuilder, RunningSession, RunningPrompt) {
    let mut bench = writing(run_counter);
    bench.clock = Arc::clone(clock) as Arc<dyn Clock>;
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    take(&bench);
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    let warns = |event: &Event| {
        let starts = |message: &str| {
            message.starts_with("there is no room") || message.starts_with("there is hardly any")
        };
        matches!(event, Event::Warning { message } if starts(message))
    };
    soon("the warning", stage.until(warns)).await;
    (bench, stage, running)
}

/// Lets the clock pass, a probe at a time, until `done`.
async fn pass(clock: &ManualClock, done: impl Fn() -> bool) {
    soon("the probes", async {
        while !done() {
            if let Some(next) = clock.next_wake() {
                clock.advance(next);
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The outcome, while the clock passes.
async fn outcome(clock: &ManualClock, running: RunningPrompt) -> TurnOutcome {
    let mut outcome = std::pin::pin!(running.outcome());
    soon("the run", async {
        loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => break outcome.unwrap(),
                () = tokio::task::yield_now() => {
                    if let Some(next) = clock.next_wake() {
                        clock.advance(next);
                    }
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn full_disk_is_waited_for_and_the_run_continues() {
    let (run_counter, clock) = (RunCounter::default(), Arc::new(ManualClock::default()));
    let (bench, stage, running) =
        without_room(&run_counter, &clock, |bench| bench.journal.set_full(true)).await;
    let opened = bench.journal.opened();
    pass(&clock, || bench.journal.opened() >= opened + 20).await;
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    // One request may be on its way before the disk is known to be full.
    let asked = bench.model.requests().len();
    assert!(asked <= 1, "{asked}: nothing begins that has to be recorded");
    bench.journal.set_full(false);
    let outcome = outcome(&clock, running).await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 1);
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "actor.crashed"), 0);
    let warnings = seen.iter().filter(|seen| matches!(seen.event(), Event::Warning { .. }));
    assert!(warnings.count() <= 2, "said once, and once that it is over");
}

#[tokio::test]
async fn no_effect_starts_while_disk_space_is_low() {
    let (run_counter, clock) = (RunCounter::default(), Arc::new(ManualClock::default()));
    let (bench, stage, running) =
        without_room(&run_counter, &clock, |bench| bench.journal.set_scarce(true)).await;
    let before = clock.monotonic();
    pass(&clock, || clock.monotonic() > before + Duration::from_secs(100)).await;
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    bench.journal.set_scarce(false);
    pass(&clock, || run_counter.began.load(Ordering::SeqCst) == 1).await;
    let outcome = soon("the run", running.outcome()).await.unwrap();
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    end(&bench, stage).await;
}

#[tokio::test]
async fn permanently_full_disk_parks_the_session() {
    let (run_counter, clock) = (RunCounter::default(), Arc::new(ManualClock::default()));
    let (bench, stage, running) =
        without_room(&run_counter, &clock, |bench| bench.journal.set_full(true)).await;
    let patience = bench.limits.patience;
    let outcome = outcome(&clock, running).await;
    assert!(clock.monotonic() >= patience, "{:?}", clock.monotonic());
    let Ending::Failed { class, cause } = outcome.ending else { panic!("{outcome:?}") };
    assert_eq!(class, "journal");
    assert!(cause.contains("no room for the journal"), "{cause}");
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    soon("the end", stage.end()).await;
}

#[tokio::test]
async fn session_end_does_not_wait_for_disk_space() {
    let (run_counter, clock) = (RunCounter::default(), Arc::new(ManualClock::default()));
    let (_bench, stage, _running) =
        without_room(&run_counter, &clock, |bench| bench.journal.set_full(true)).await;
    let seen = soon("the end", stage.end()).await;
    assert!(matches!(seen.last().unwrap().event(), Event::SessionEnded { .. }));
    assert_eq!(clock.monotonic(), Duration::ZERO);
}

#[tokio::test]
async fn permanently_low_disk_space_ends_the_run() {
    let (run_counter, clock) = (RunCounter::default(), Arc::new(ManualClock::default()));
    let (bench, stage, running) =
        without_room(&run_counter, &clock, |bench| bench.journal.set_scarce(true)).await;
    let ended = outcome(&clock, running).await;
    assert!(clock.monotonic() >= bench.limits.patience);
    let Ending::Failed { class, cause } = ended.ending else { panic!("{ended:?}") };
    assert_eq!(class, "journal");
    assert!(cause.contains("hardly any room"), "{cause}");
    assert_eq!(run_counter.began.load(Ordering::SeqCst), 0);
    // What is under way is recorded, and so is the end.
    let seen = end(&bench, stage).await;
    assert_eq!(count(&seen, "session.ended"), 1);
    assert!(seen.last().unwrap().record().is_some());
}
