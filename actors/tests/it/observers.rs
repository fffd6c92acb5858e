//! Observers: order of events, loss of deltas only, and the end.

use std::sync::Arc;

use posse_actors::conversation::Prompt;
use posse_actors::event::{Announcement, Event};
use posse_actors::subscription::Subscription;
use posse_actors::testing::{ModelStep, SessionBuilder};

use crate::support::{end, quick, soon};

async fn all(events: &mut Subscription) -> Vec<Arc<Announcement>> {
    soon("the observer", async {
        let mut seen = Vec::new();
        while let Some(announcement) = events.next().await {
            seen.push(announcement);
        }
        seen
    })
    .await
}

fn chatty() -> SessionBuilder {
    let texts: Vec<String> = (0..100).map(|nth| nth.to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let pieces = (0..500).map(|nth| format!("{nth} ")).collect();
    let mut bench = SessionBuilder::new(vec![
        ModelStep::calls("echo", &texts),
        ModelStep::calls("echo", &texts),
        ModelStep::Say(pieces),
    ]);
    bench.limits = quick();
    bench
}

#[tokio::test]
async fn slow_reader_loses_only_deltas() {
    for buffered_max in [0, 1, 2, 7, 100] {
        let mut bench = chatty();
        bench.limits.events_buffered_max = buffered_max;
        let stage = bench.start().await;
        let mut slow = stage.session.subscribe();
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        soon("the run", running.outcome()).await.unwrap();
        // The observer reads nothing until the session has ended.
        let seen = end(&bench, stage).await;
        let late = all(&mut slow).await;
        let records = |seen: &[Arc<Announcement>]| -> Vec<u64> {
            seen.iter().filter_map(|seen| seen.record()).collect()
        };
        let stored = bench.journal.records().len() as u64;
        assert!(stored > 500);
        let expected: Vec<u64> = (1..=stored).collect();
        assert_eq!(records(&seen), expected, "{buffered_max}");
        let first = records(&late)[0];
        assert_eq!(records(&late), (first..=stored).collect::<Vec<_>>(), "{buffered_max}");
        assert!(late.is_sorted_by(|a, b| a.seq < b.seq), "{buffered_max}");
    }
}

#[tokio::test]
async fn reader_that_lags_occasionally_misses_nothing() {
    for every in [1, 3, 10] {
        let mut bench = chatty();
        bench.limits.events_buffered_max = 5;
        let mut stage = bench.start().await;
        let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
        let mut outcome = std::pin::pin!(running.outcome());
        let mut turn = 0;
        soon("the run", async {
            loop {
                turn += 1;
                if turn % every == 0 {
                    for _ in 0..every {
                        tokio::task::yield_now().await;
                    }
                }
                tokio::select! {
                    biased;
                    announcement = stage.events.next() => stage.seen.push(announcement.unwrap()),
                    _ = &mut outcome => break,
                }
            }
        })
        .await;
        end(&bench, stage).await;
    }
}

#[tokio::test]
async fn observers_see_identical_events_and_may_unsubscribe() {
    let bench = chatty();
    let stage = bench.start().await;
    let (mut one, two) = (stage.session.subscribe(), stage.session.subscribe());
    drop(two);
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    let session = stage.session.clone();
    let seen = end(&bench, stage).await;
    let other = all(&mut one).await;
    let from = seen.len() - other.len();
    assert_eq!(seen[from..], other, "the same events in the same places");
    // A subscriber after the end receives the end.
    assert!(all(&mut session.subscribe()).await.is_empty());
}

#[tokio::test]
async fn waiting_for_an_event_can_be_cancelled() {
    let bench = chatty();
    let mut stage = bench.start().await;
    stage.until(|event| matches!(event, Event::SessionStarted { .. })).await;
    for _ in 0..3 {
        let next = futures_util::FutureExt::now_or_never(stage.events.next());
        assert!(next.is_none());
    }
    let running = stage.session.prompt(Prompt::text("go")).await.unwrap();
    soon("the run", running.outcome()).await.unwrap();
    end(&bench, stage).await;
}

/// Asserts that these are all records after `after`.
fn assert_whole(seen: &[Arc<Announcement>], after: u64, stored: u64) {
    let records: Vec<u64> = seen.iter().filter_map(|seen| seen.record()).collect();
    assert_eq!(records, (after.min(stored) + 1..=stored).collect::<Vec<_>>(), "after {after}");
}

#[tokio::test]
async fn late_subscriber_reads_from_any_record_without_gaps_or_duplicates() {
    for buffered_max in [0, 3, 100_000] {
        let mut bench = chatty();
        bench.limits.events_buffered_max = buffered_max;
        let stage = bench.start().await;
        let session = stage.session.clone();
        // The length of the journal is unknown before it is open.
        let early = [0, 1, 400].map(|after| (0, session.subscribe_after(after)));
        let running = session.prompt(Prompt::text("go")).await.unwrap();
        let mut outcome = std::pin::pin!(running.outcome());
        let mut readers = Vec::new();
        soon("the run", async {
            loop {
                tokio::select! {
                    biased;
                    _ = &mut outcome => break,
                    () = tokio::task::yield_now() => (),
                }
                if readers.len() < 40 {
                    let after = session.last_record() / 2;
                    readers.push((after, session.subscribe_after(after)));
                }
            }
        })
        .await;
        // Records that do not exist yet are not missing.
        readers.extend(early);
        let last = session.last_record();
        readers.extend([0, last - 1, last].map(|after| (after, session.subscribe_after(after))));
        end(&bench, stage).await;
        let stored = bench.journal.records().len() as u64;
        for (after, mut reader) in readers {
            assert_whole(&all(&mut reader).await, after, stored);
        }
        // A subscriber after the end reads the stored records.
        assert_whole(&all(&mut session.subscribe_after(0)).await, 0, stored);
        assert!(all(&mut session.subscribe_after(stored)).await.is_empty());
        assert!(all(&mut session.subscribe_after(u64::MAX)).await.is_empty());
    }
}
