//! A journal that fails or is slow: nothing is announced or started before it is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use posse_actors::agent_invocation::Ending;
use posse_actors::conversation::Prompt;
use posse_actors::event::Event;
use posse_actors::ledger::{Price, Rates, Tariff};
use posse_actors::testing::{Bench, Journaled, Step, WritingTool};

use crate::support::{count, end, play, quick, soon};

fn writing(journaled: &Journaled) -> Bench {
    let mut bench = Bench::new(vec![Step::call("write", "{}"), Step::say("done")])
        .tool(WritingTool::new(journaled.clone()));
    bench.limits = quick();
    bench
}

#[tokio::test]
async fn what_failed_to_be_written_is_written_once_after_reopening() {
    for times in 1..=3 {
        let journaled = Journaled::default();
        let bench = writing(&journaled);
        let mut stage = bench.start().await;
        stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
        bench.journal.fail(times);
        let outcome = play(&mut stage, "go", &[]).await.unwrap();
        assert_eq!(outcome.ending, Ending::Answered("done".to_owned()), "{times}");
        let seen = end(&bench, stage).await;
        assert_eq!(bench.journal.opened(), times + 1);
        assert_eq!(count(&seen, "actor.restarted"), times as usize);
        assert_eq!(journaled.began.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn an_effect_waits_for_its_intent_and_an_observer_for_the_record() {
    let journaled = Journaled::default();
    let bench = writing(&journaled);
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    bench.journal.hold();
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
    assert_eq!(journaled.began.load(Ordering::SeqCst), 0, "no effect without its intent");
    assert!(stage.events.try_next().is_none(), "nothing is announced before it is written");
    bench.journal.release();
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
    assert_eq!(journaled.began.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn stopping_does_not_wait_for_the_disk() {
    let journaled = Journaled::default();
    let bench = writing(&journaled);
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    bench.journal.hold();
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
    assert_eq!(journaled.began.load(Ordering::SeqCst), 0);
    assert_eq!(count(&seen, "tool.failed"), 1);
}

#[tokio::test]
async fn a_journal_that_stays_broken_parks_the_session() {
    let journaled = Journaled::default();
    let bench = writing(&journaled);
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    bench.journal.fail(u32::MAX);
    let outcome = play(&mut stage, "go", &[]).await.unwrap();
    let Ending::Failed { class, cause } = outcome.ending else { panic!("{outcome:?}") };
    assert_eq!(class, "journal");
    assert!(cause.contains("the journal cannot be written: disk full"), "{cause}");
    assert_eq!(journaled.began.load(Ordering::SeqCst), 0);
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
async fn starting_and_ending_at_once_is_orderly() {
    let bench = Bench::new(Vec::new());
    let stage = bench.start().await;
    let (one, two) = (stage.session.clone(), stage.session.clone());
    let ending = || posse_actors::root_session::SessionEnding {
        reason: "completed".to_owned(),
        exit_code: 0,
        result: None,
    };
    let both = futures_util::future::join(one.end(ending()), two.end(ending()));
    soon("both ends", both).await;
    let seen = end(&bench, stage).await;
    assert_eq!((count(&seen, "session.started"), count(&seen, "session.ended")), (1, 1));
    let last = Arc::clone(seen.last().unwrap());
    assert!(matches!(last.event(), Event::SessionEnded { .. }));
}

#[tokio::test]
async fn the_last_record_says_what_it_cost() {
    let cost = |price: Option<Price>| async move {
        let mut bench = Bench::new(vec![Step::say("done")]);
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
    assert_eq!(cost(Some(Price::new(Tariff::default))).await, None);
    // Ten tokens read at $5 a million, two written at $100.
    let (input, output) = (5_000_000, 100_000_000);
    let (cached_input, cache_write) = (None, None);
    let rates = Rates { input, output, cached_input, cache_write, version: "test".to_owned() };
    assert_eq!(cost(Some(Price::fixed(rates))).await, Some(0.000_25));
}
